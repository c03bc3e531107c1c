"""The kinds of metrics, by name: of listed values in one file, the others in one each. All else asks a kind."""

from __future__ import annotations

from dither_shared.installed import Installed, load
from dither_shared.kinds.kind import Answer, Asked, Kind, Offer, PublicColumn
from dither_shared.light_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither_shared.kinds.listed import ChoiceKind, ChoicesKind, FlagKind
    from dither_shared.kinds.number import NumberKind
    from dither_shared.kinds.table import TableKind
    from dither_shared.kinds.text import TextKind
    from dither_shared.kinds.words import WordsKind

__all__ = [
    "KINDS",
    "Answer",
    "Asked",
    "ChoiceKind",
    "ChoicesKind",
    "FlagKind",
    "Kind",
    "NumberKind",
    "Offer",
    "PublicColumn",
    "TableKind",
    "TextKind",
    "WordsKind",
]

_PLACES = {
    name: f"{__name__}.{module}:{name.capitalize()}Kind"
    for name, module in {
        **dict.fromkeys(("flag", "choice", "choices"), "listed"),
        **{name: name for name in ("number", "table", "text", "words")},
    }.items()
}
KINDS = Installed[Kind[Any, Any]]("dither.kinds", _PLACES, lambda kind: kind())


def __getattr__(name: str) -> Any:
    if name.endswith("Kind") and name in __all__:
        return load(_PLACES[name.removesuffix("Kind").lower()])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
