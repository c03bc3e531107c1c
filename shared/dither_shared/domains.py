"""Domains: the answers that a plan tells apart. Whatever is not told apart is "other"."""

from functools import cached_property

from dither_shared.frozen import frozen

OTHER = "other"
NONE = "none"
"""The answer of a device with nothing to report, when `presence` is hidden. Always the last value."""

VALUE_CHARACTERS_MAX = 200


@frozen
class Values:
    """Listed values, in order; none for texts, which nobody lists."""

    values: tuple[str, ...]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def holds(self, value: object) -> bool:
        """Tell whether a value is listed."""
        return isinstance(value, str) and value in self._indices

    def index(self, value: object) -> int:
        """Return which value it is: "other" if it is not listed, wrong types included."""
        other = self._indices[OTHER]
        return self._indices.get(value, other) if isinstance(value, str) else other
