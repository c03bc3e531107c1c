"""Lists by name which other distributions add to: kinds and what they need, each by an entry point of a group.

    [project.entry-points."dither.kinds"]
    weekday = "weekdays:WEEKDAY"

A name that is here already is found at once. Only one that is not, or a walk over all names, reads what is installed:
that takes a few hundredths of a second, once a process, and an app whose registry names no such kind never pays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from dither_shared.errors import ConfigurationError
from dither_shared.light_typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def load(place: str) -> Any:
    """Return what has a name in a module, "module:name", which is imported if it is not yet."""
    module, _, name = place.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)


class Installed(MutableMapping[str, T]):
    """Our own by name, then those of the entry points of a group. Our own keep their names.

    One of ours may be given as its place, which is loaded, and `make` called with it, when it is first asked for: an
    app's registry asks for a few.
    """

    def __init__(self, group: str, own: Mapping[str, T | str], make: Callable[[Any], T] = lambda found: found) -> None:
        self._group = group
        self._own = dict(own)
        self._make = make
        self._others: Mapping[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> T:
        """Return what has a name, loaded once. Raises KeyError, and ConfigurationError where it cannot be loaded."""
        found = self._own[name] if name in self._own else self._load(self._installed()[name])
        made: T = self._make(load(found)) if isinstance(found, str) else found
        self._own[name] = made
        return made

    def _load(self, entry: EntryPoint) -> T:
        try:
            found: T = entry.load()
        except Exception as error:
            raise ConfigurationError(
                f"{entry.name} of {self._group}, {entry.value}, cannot be loaded: {error!r}"
            ) from error
        return found

    def __setitem__(self, name: str, thing: T) -> None:
        self._own[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed()

    def __iter__(self) -> Iterator[str]:
        own = list(self._own)
        yield from own
        yield from (name for name in (*self._own, *self._installed()) if name not in own)

    def __len__(self) -> int:
        return len({*self._own, *self._installed()})

    def _installed(self) -> Mapping[str, EntryPoint]:
        if self._others is None:
            from importlib.metadata import entry_points  # takes longer than all of ours: only where a name is unknown

            self._others = {entry.name: entry for entry in entry_points(group=self._group)}
        return self._others
