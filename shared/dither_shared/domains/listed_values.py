"""Listed values."""

from __future__ import annotations

from functools import cached_property, lru_cache

from dither_shared.canonical_json import sha256
from dither_shared.domains.domain import OTHER, Domain
from dither_shared.frozen import frozen
from dither_shared.text_normalization import COMPOSED_MAX, normal

VALUE_CHARACTERS_MAX = 200


@frozen
class Values(Domain):
    """Listed values, in order."""

    name = "values"

    values: tuple[str, ...]
    """Normal texts: texts.py."""

    def to_document(self) -> dict[str, object]:
        """Return the values."""
        return _document_of(self.values)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the document: of many metrics the same, yes and no."""
        return _digest_of(self.values)

    def agreed(self, *, hidden: bool) -> list[str]:
        """Return the listed values, whatever their order."""
        return sorted(self.values[:-1] if hidden else self.values)

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def holds(self, value: object) -> bool:
        """Tell whether a value is listed, in whatever form it is written."""
        return self._find(value) is not None

    def index(self, value: object) -> int:
        """Return which value it is: "other" if it is not listed, wrong types included."""
        found = self._find(value)
        return self._indices[OTHER] if found is None else found

    def _find(self, value: object) -> int | None:
        if not isinstance(value, str):
            return None
        found = self._indices.get(value)
        if found is None and str.__len__(value) <= COMPOSED_MAX * VALUE_CHARACTERS_MAX:
            found = self._indices.get(normal(value))
        return found


@lru_cache(maxsize=64)
def _digest_of(values: tuple[str, ...]) -> str:
    return sha256(_document_of(values))


def _document_of(values: tuple[str, ...]) -> dict[str, object]:
    return {"domain": Values.name, "values": list(values)}
