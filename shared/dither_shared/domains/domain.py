"""The interface of a domain, the two answers that any may have besides those that it tells apart, and listed values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, lru_cache

from dither_shared.frozen import frozen, sha256
from dither_shared.light_typing import Self
from dither_shared.text_normalization import COMPOSED_MAX, normal

OTHER = "other"
NONE = "none"
"""The answer of a device with nothing to report, when `presence` is hidden. Always the last value."""


class Domain(ABC):
    """The answers that a plan tells apart. Subclasses are frozen and in DOMAINS, under their names."""

    name = ""
    values: tuple[str, ...] = ()
    """Listed values, in order; none where nobody lists them."""

    public: tuple[str, ...] = ()
    """Name and values of the public column that reports say in the clear; none without one."""

    unit = ""
    """The unit of its numbers."""

    table: Mapping[str, object] | None = None
    """The table that the document names by its digest, which a compiled registry carries; None where it names none."""

    @classmethod
    def of(cls, domain: Domain) -> Self:
        """Return a domain that is one of this class; raise TypeError for any other."""
        if not isinstance(domain, cls):
            raise TypeError(f"the domain must be a {cls.__name__}, got {domain.name}")
        return domain

    @property
    def size(self) -> int:
        """How many answers are told apart; 0 where there is no end of them."""
        return len(self.values)

    @property
    def columns(self) -> Mapping[str, Domain]:
        """The domain of each column, by its name; empty unless an answer has several."""
        return {}

    @property
    def summary(self) -> str:
        """The answers that are told apart, in words."""
        return f"{self.size} values"

    @abstractmethod
    def to_document(self) -> dict[str, object]:
        """Return what tells this domain from every other, for `from_document` and for the plan's digest."""

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the document."""
        return sha256(self.to_document())

    @abstractmethod
    def agreed(self, *, hidden: bool) -> object:
        """Return the part that a person agrees to, as a document; None where there is nothing to see.

        Presence has its own place in what people agree to: the "none" that it adds is left out.
        """


# Listed values.

VALUE_CHARACTERS_MAX = 200


@frozen
class Values(Domain):
    """Listed values, in order."""

    name = "values"

    values: tuple[str, ...]
    """Normal texts (`text_normalization`)."""

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
