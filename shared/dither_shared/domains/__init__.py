"""Domains: the answers that a plan tells apart. Every other answer is "other"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dither_shared.domains.domain import NONE, OTHER, VALUE_CHARACTERS_MAX, Domain, Values
from dither_shared.errors import InvalidParameter
from dither_shared.installed import Installed, load
from dither_shared.light_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither_shared.domains.coded_words import Coded
    from dither_shared.domains.columns import Columns
    from dither_shared.domains.hashed_texts import Hashed, TextDomain, TypedTexts, Verbatim
    from dither_shared.domains.number_ranges import Buckets, NumberDomain, Range, Thresholds

__all__ = [
    "DOMAINS",
    "NONE",
    "OTHER",
    "VALUE_CHARACTERS_MAX",
    "Buckets",
    "Coded",
    "Columns",
    "Domain",
    "Hashed",
    "NumberDomain",
    "Range",
    "TextDomain",
    "Thresholds",
    "TypedTexts",
    "Values",
    "Verbatim",
    "from_document",
]


_PLACES = {
    name: f"{__name__}.{module}:{name}"
    for name, module in {
        "Values": "domain", "Verbatim": "hashed_texts", "Hashed": "hashed_texts", "Coded": "coded_words",
        "Buckets": "number_ranges", "Range": "number_ranges", "Thresholds": "number_ranges", "Columns": "columns",
        "NumberDomain": "number_ranges", "TextDomain": "hashed_texts", "TypedTexts": "hashed_texts",
    }.items()
}  # fmt: skip


def _maker(domain: Any) -> Callable[..., Domain]:
    """Return what makes a domain of the fields of its document."""
    return _columns if domain.name == "columns" else domain


def _columns(domains: tuple[Any, ...], questions: tuple[Any, ...], **fields: Any) -> Domain:
    made = tuple(map(from_document, domains))
    columns: Domain = load(_PLACES["Columns"])(domains=made, questions=tuple(map(tuple, questions)), **fields)
    return columns


DOMAINS = Installed[Callable[..., Domain]](
    "dither.domains",
    {
        "words" if name == "Verbatim" else name.lower(): place
        for name, place in _PLACES.items()
        if name not in ("NumberDomain", "TextDomain")
    },
    _maker,
)
"""By name, the function that makes a domain of its document's other fields."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return load(_PLACES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def from_document(document: Mapping[str, Any]) -> Domain:
    """Return the domain of a stored document; raise InvalidParameter when it is not one of ours."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    name: Any = fields.pop("domain")
    if name not in DOMAINS:
        raise InvalidParameter(f"the domain must be one of {', '.join(DOMAINS)}, got {name!r}")
    try:
        return DOMAINS[name](**fields)
    except TypeError:
        raise InvalidParameter(f"{name} does not have the fields {', '.join(fields)}") from None
