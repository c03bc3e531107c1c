"""A choice: one of several listed values."""

from __future__ import annotations

from dither_shared.domains import NONE, OTHER
from dither_shared.kinds.kind import Asked, Offer
from dither_shared.kinds.listed import Listed, read_list
from dither_shared.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable


class ChoiceKind(Listed):
    """One of the listed values, or "other"."""

    name = "choice"
    meaning = "for one of several values"
    aliases = ("enum", "string", "select", "category", "categorical", "radio")
    starter = 'question = "Which one do people use?"\nvalues = ["first", "second", "third"]'
    types_values = True
    published = True

    def _values(self, table: TomlTable, directory: str | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        if table.has("cohorts") or table.is_one_of("measures", ("first_month",)):
            return (*_read_cohorts(table), OTHER, *unlisted)
        return (*read_list(table, "values", directory, (OTHER, *unlisted)), OTHER, *unlisted)

    def offer(self, asked: Asked) -> Offer:
        """Return one of the values."""
        return offered("One of", asked)


def _read_cohorts(table: TomlTable) -> tuple[str, ...]:
    """Return the values of a metric that measures the month of first use."""
    from dither_shared.measures import COHORTS, cohorts  # most registries have none

    if not table.is_one_of("measures", ("first_month",)):
        raise table.error("cohorts", 'is for measures = "first_month": name values')
    if not table.has("cohorts"):
        raise table.error("cohorts", 'must say how many there are where measures = "first_month": 4, 12 or 24')
    for key in ("values", "values_file"):
        if table.has(key):
            raise table.error(key, "must be left out beside cohorts, which make the values")
    number = table.integer("cohorts", min(COHORTS), max(COHORTS), needed="the integer 4, 12 or 24")
    if number not in COHORTS:
        raise table.error("cohorts", f"must be the integer 4, 12 or 24, got {number}")
    return cohorts(number)


def offered(lead: str, asked: Asked) -> Offer:
    """Return an offer of the listed values."""
    listed = tuple(value for value in asked.domain.values if value not in (OTHER, NONE))
    return Offer(lead=lead, listed=listed, after=(f"Anything else is sent as “{OTHER}”.",))
