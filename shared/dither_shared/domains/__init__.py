"""Domains: the answers that a plan tells apart. Every other answer is "other"."""

from collections.abc import Callable, Mapping
from typing import Any

from dither_shared.domains.columns import Columns
from dither_shared.domains.domain import NONE, OTHER, Domain
from dither_shared.domains.numbers import Buckets, NumberDomain, Range, Thresholds
from dither_shared.domains.texts import Coded, Hashed, TextDomain, Verbatim
from dither_shared.domains.values import VALUE_CHARACTERS_MAX, Values
from dither_shared.errors import InvalidParameter
from dither_shared.installed import Installed

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
    "Values",
    "Verbatim",
    "from_document",
]


def _columns(domains: tuple[Any, ...], questions: tuple[Any, ...], **fields: Any) -> Columns:
    return Columns(domains=tuple(map(from_document, domains)), questions=tuple(map(tuple, questions)), **fields)


DOMAINS = Installed[Callable[..., Domain]](
    "dither.domains",
    {
        **{domain.name: domain for domain in (Values, Verbatim, Hashed, Coded, Buckets, Range, Thresholds)},
        Columns.name: _columns,
    },
)
"""By name, the function that makes a domain of its document's other fields."""


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
