"""Domains: the answers that a plan tells apart. Whatever is not told apart is "other"."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from dither_shared.documents import sha256
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen

OTHER = "other"
NONE = "none"
"""The answer of a device with nothing to report, when `presence` is hidden. Always the last value."""

VALUE_CHARACTERS_MAX = 200


class Domain(ABC):
    """The answers that a plan tells apart. Subclasses are frozen and in DOMAINS, under their names."""

    name = ""
    values: tuple[str, ...] = ()
    """Listed values, in order; none where nobody lists them."""

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


@frozen
class Values(Domain):
    """Listed values, in order."""

    name = "values"

    values: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """Return the values."""
        return {"domain": self.name, "values": list(self.values)}

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the document: of many metrics the same, yes and no."""
        return _digest_of(self)

    def agreed(self, *, hidden: bool) -> list[str]:
        """Return the listed values, whatever their order."""
        return sorted(self.values[:-1] if hidden else self.values)

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


@lru_cache(maxsize=64)
def _digest_of(values: Values) -> str:
    return sha256(values.to_document())


@frozen
class Words(Domain):
    """Texts of at most `characters_max` characters, which nobody lists."""

    name = "words"

    characters_max: int = VALUE_CHARACTERS_MAX

    def to_document(self) -> dict[str, object]:
        """Return the length."""
        return {"domain": self.name, "characters_max": self.characters_max}

    def agreed(self, *, hidden: bool) -> None:
        """Return nothing: whoever is asked for a text sees that it may be any."""


DOMAINS: dict[str, Callable[..., Domain]] = {Values.name: Values, Words.name: Words}
"""What makes a domain of its document's other fields, by name."""


def from_document(document: Mapping[str, Any]) -> Domain:
    """Return the domain of a stored document; raise InvalidParameter when it is not one of ours."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    name = fields.pop("domain")
    if name not in DOMAINS:
        raise InvalidParameter(f"the domain must be one of {', '.join(DOMAINS)}, got {name!r}")
    try:
        return DOMAINS[name](**fields)
    except TypeError:
        raise InvalidParameter(f"{name} does not have the fields {', '.join(fields)}") from None
