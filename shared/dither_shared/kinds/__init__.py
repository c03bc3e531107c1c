"""The kinds of metrics, by name: one file each. All other code asks a kind what it asks for."""

from typing import Any

from dither_shared.installed import Installed
from dither_shared.kinds.choice import ChoiceKind
from dither_shared.kinds.choices import ChoicesKind
from dither_shared.kinds.flag import FlagKind
from dither_shared.kinds.kind import Answer, Asked, Kind, Offer, PublicColumn
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

KINDS = Installed[Kind[Any, Any]](
    "dither.kinds",
    {
        kind.name: kind
        for kind in (FlagKind(), ChoiceKind(), ChoicesKind(), NumberKind(), TableKind(), TextKind(), WordsKind())
    },
)
