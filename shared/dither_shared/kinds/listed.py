"""Listed values: reading lists, and choosing a mechanism for them."""

from __future__ import annotations

from abc import abstractmethod

from dither_shared.cells import Cells, one_cell
from dither_shared.domains import NONE, OTHER, VALUE_CHARACTERS_MAX, Values
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.kind import FRESH_ONLY, MEMOIZED_ONLY, Asked, Kind, read_epsilon, read_memoize, read_permanent
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import PureMechanism
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
