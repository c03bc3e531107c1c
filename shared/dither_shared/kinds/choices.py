"""Choices: several of the listed values at once."""

from __future__ import annotations

from dither_shared.domains import Values
from dither_shared.kinds.choice import ChoiceKind, offered
from dither_shared.kinds.kind import Asked, Offer
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import PureMechanism

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

TICKS_MAX = 64


class ChoicesKind(ChoiceKind):
    """Several of the listed values, in a list, tuple or set; a text alone is one of them."""

    name = "choices"
    meaning = "for several of them"
    aliases = ("set", "list", "multiselect", "checkboxes", "string_list", "labeled_boolean")
    starter = """\
question = "Which ones do people use?"
values = ["first", "second", "third", "fourth"]
ticks_max = 2  # of an answer with more those listed first count: values listed last then read too low"""
    several = True

    def _ticks(self, table: TomlTable, d: int) -> int:
        return table.integer("ticks_max", 2, min(d, TICKS_MAX))

    def takes(self, answer: object, domain: Values) -> bool:
        """Tell whether all that it holds is listed."""
        return all(map(domain.holds, _held(answer)))

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        """Return the listed values that it holds, "other" for all that are not listed."""
        return tuple(sorted({domain.index(value) for value in _held(answer)}))

    def offer(self, asked: Asked) -> Offer:
        """Return some of the values."""
        return offered(f"Up to {PureMechanism.of(asked.cells.mechanism).ticks} of", asked)

    def examples(self, asked: Asked) -> list[object]:
        """Return as many values as may be ticked, others that share none with them, none, and single ones."""
        values = list(asked.domain.values)
        ticks = PureMechanism.of(asked.cells.mechanism).ticks
        return [values[:ticks], values[ticks : 2 * ticks], values[-ticks:], [], *([value] for value in values)]


def _held(answer: object) -> list[object]:
    return list(answer) if isinstance(answer, list | tuple | set | frozenset) else [answer]
