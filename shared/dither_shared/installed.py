"""Lists by name which other distributions add to: kinds and what they need, each by an entry point of a group.

    [project.entry-points."dither.kinds"]
    weekday = "weekdays:WEEKDAY"

A name that is here already is found at once. Only one that is not, or a walk over all names, reads what is installed:
that takes a few hundredths of a second, once a process, and an app whose registry names no such kind never pays it.
"""

from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dither_shared.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Installed(UserDict[str, T]):
    """Our own by name, then those of the entry points of a group. Our own keep their names."""

    def __init__(self, group: str, own: Mapping[str, T]) -> None:
        super().__init__(own)
        self._group = group
        self._others: dict[str, EntryPoint] | None = None

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._installed()

    def __missing__(self, name: str) -> T:
        """Load what is installed under a name, once. Raises KeyError, and ConfigurationError where it cannot be."""
        entry = self._installed()[name]
        try:
            found: T = entry.load()
        except Exception as error:
            raise ConfigurationError(f"{name} of {self._group}, {entry.value}, cannot be loaded: {error!r}") from error
        return self.data.setdefault(name, found)

    def __iter__(self) -> Iterator[str]:
        own = list(self.data)
        yield from own
        yield from (name for name in (*self.data, *self._installed()) if name not in own)

    def __len__(self) -> int:
        return len({*self.data, *self._installed()})

    def _installed(self) -> Mapping[str, "EntryPoint"]:
        if self._others is None:
            from importlib.metadata import entry_points  # takes longer than all of ours: only where a name is unknown

            self._others = {entry.name: entry for entry in entry_points(group=self._group)}
        return self._others
