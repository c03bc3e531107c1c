"""The keys of a metric's table that say how much noise its answers get, whatever its kind."""

from __future__ import annotations

from decimal import Decimal

from dither_shared.exact import EPSILON_MAX
from dither_shared.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable


def read_epsilon(table: TomlTable, most: Decimal = EPSILON_MAX) -> Decimal:
    """Return the epsilon of a report, at most so much."""
    return table.epsilon("epsilon", most)


def read_memoize(table: TomlTable) -> bool:
    """Tell whether answers are memoized."""
    return table.boolean("memoize", default=False)


def read_permanent(table: TomlTable, epsilon: Decimal) -> Decimal:
    """Return epsilon_permanent, which is above the epsilon of a report."""
    permanent = table.epsilon("epsilon_permanent")
    if permanent <= epsilon:
        raise table.error("epsilon_permanent", f"must be above epsilon, {epsilon}, got {permanent}")
    return permanent


FRESH_ONLY = {"reports": "must be left out where answers are memoized: repeating one costs nothing more"}
MEMOIZED_ONLY = dict.fromkeys(
    ("epsilon_permanent", "answers"), "is for memoized answers: add memoize = true and leave reports out"
)
