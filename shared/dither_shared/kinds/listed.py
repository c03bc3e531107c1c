"""Kinds of listed values: a flag, a choice, choices. Reading their lists, and choosing a mechanism for them."""

from __future__ import annotations

from abc import abstractmethod

from dither_shared.domains import NONE, OTHER, VALUE_CHARACTERS_MAX, Values
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.kind import (
    FRESH_ONLY,
    MEMOIZED_ONLY,
    Asked,
    Kind,
    Offer,
    read_epsilon,
    read_memoize,
    read_permanent,
)
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import Cells, PureMechanism, one_cell
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

VALUES_MAX = 65_535


class Listed(Kind[Values, tuple[int, ...]]):
    """A kind whose answers hold some of a list of values."""

    estimand = "shares"

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read the values, and the mechanism or what chooses it."""
        values = self._values(table, directory, (NONE,) if hidden else ())
        return Asked(Values(values), one_cell(self._mechanism(table, len(values))))

    @abstractmethod
    def _values(self, table: TomlTable, directory: str | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        """Return all values, with those that come `unlisted` at the end."""

    def _ticks(self, table: TomlTable, d: int) -> int | None:
        """Return the most values of one answer, of d; None for exactly one."""

    def _mechanism(self, table: TomlTable, d: int) -> PureMechanism:
        """Return the named mechanism, or the automatic choice."""
        from dither_shared.mechanisms import choose, serving  # not for a registry that is compiled

        epsilon, memoize = read_epsilon(table), read_memoize(table)
        permanent = read_permanent(table, epsilon) if memoize else None
        for key, reason in (FRESH_ONLY if memoize else MEMOIZED_ONLY).items():
            if table.has(key):
                raise table.error(key, reason)
        ticks = self._ticks(table, d)
        name = table.one_of("mechanism", serving(ticks)) if table.has("mechanism") else None
        try:
            return choose(d, epsilon, ticks=ticks, permanent=permanent, name=name)
        except InvalidParameter as error:
            step = "ask fewer values" if name is None else "ask fewer values, or leave mechanism out"
            raise table.error("values", f"are too many: {error}; {step}") from None

    def takes(self, answer: object, domain: Values) -> bool:
        """Tell whether it is a listed value."""
        return domain.holds(answer)

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        """Return the listed value that it is, or "other"."""
        return (domain.index(answer),)

    def unreadable(self, domain: Values) -> tuple[int, ...]:
        """Return "other"."""
        return (domain.index(OTHER),)

    def nothing(self, domain: Values) -> tuple[int, ...]:
        """Return the value "none"."""
        return (domain.index(NONE),)

    def names(self, read: tuple[int, ...], domain: Values) -> tuple[str, ...]:
        """Return the values."""
        return tuple(domain.values[index] for index in read)

    def class_of(self, read: tuple[int, ...], domain: Values, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the class that the mechanism makes of the values."""
        return PureMechanism.of(cells.mechanism_of(cell)).class_of(read)


def read_list(
    table: TomlTable, key: str, directory: str | None, unlisted: tuple[str, ...], most: int = VALUES_MAX
) -> tuple[str, ...]:
    """Return the listed values. Those that are `unlisted` come to the list by themselves."""
    reserved = {value: UNLISTED[value] for value in unlisted}
    return table.list_or_file(key, directory, most, VALUE_CHARACTERS_MAX, reserved).values


UNLISTED = {
    OTHER: "it is always there and takes everything else",
    NONE: "presence is hidden, so it is there and said by devices that have nothing to say",
}


# A flag: yes or no.


NO, YES = 0, 1


class FlagKind(Listed):
    """A yes-or-no question. It takes True and False, numpy's too; all else is read as False, whatever its truth."""

    name = "flag"
    meaning = "for yes or no"
    aliases = ("bool", "boolean", "yes/no", "toggle")
    starter = 'question = "Do people use it?"'
    web_type = "boolean"
    published = True
    estimand = "one share"

    def _values(self, table: TomlTable, directory: str | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        return ("no", "yes", *unlisted)

    def takes(self, answer: object, domain: Values) -> bool:
        """Tell whether an answer is True or False, or numpy's. The type says it: `__bool__` is not called."""
        kind = type(answer)
        return kind is bool or (kind.__module__, kind.__name__) in _NUMPY_BOOLS

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        """Return yes for True, else no."""
        return (YES if self.takes(answer, domain) and bool(answer) else NO,)

    def misread(self, domain: Values) -> str:
        """Say that it is sent as False."""
        return "takes True and False: anything else is sent as False"

    def unreadable(self, domain: Values) -> tuple[int, ...]:
        """Return no."""
        return (NO,)

    def nothing(self, domain: Values) -> tuple[int, ...]:
        """Return the value "none", the last one."""
        return (len(domain.values) - 1,)

    def offer(self, asked: Asked) -> Offer:
        """Return the two answers."""
        return Offer(("Yes or no.",))

    def examples(self, asked: Asked) -> list[object]:
        """Return both answers."""
        return [True, False]


_NUMPY_BOOLS = {("numpy", "bool"), ("numpy", "bool_")}
"""The type of numpy's True and False, in version 2 and before, by its module and name: numpy is not imported."""


# A choice: one of several listed values.


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


# Choices: several of the listed values at once.

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
