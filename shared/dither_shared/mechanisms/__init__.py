"""The mechanisms, by name, and the choice between them: each is loaded when it is first asked for."""

from __future__ import annotations

from dither_shared.installed import load
from dither_shared.light_typing import TYPE_CHECKING, Any
from dither_shared.mechanisms.mechanism import (
    DEVICE,
    DEVICE_CELLS_MAX,
    DEVICES,
    PUBLIC_MAX,
    Cells,
    Mechanism,
    MechanismRequest,
    Memoized,
    Part,
    PureMechanism,
    from_document,
    one_cell,
)

if TYPE_CHECKING:
    from dither_shared.mechanisms.automatic_choice import MECHANISMS, choose, serving
    from dither_shared.mechanisms.grr import GRR
    from dither_shared.mechanisms.pgr import PGR
    from dither_shared.mechanisms.privset import PrivSet
    from dither_shared.mechanisms.rappor import RAPPOR
    from dither_shared.mechanisms.subset import SubsetSelection
    from dither_shared.mechanisms.two_level import MemoizedTwoLevel, OneShot
    from dither_shared.mechanisms.unary import OUE, SUE, MemoizedUnary, Unary
    from dither_shared.mechanisms.window import SquareWave

__all__ = [
    "DEVICE",
    "DEVICES",
    "DEVICE_CELLS_MAX",
    "GRR",
    "MECHANISMS",
    "OUE",
    "PGR",
    "PUBLIC_MAX",
    "RAPPOR",
    "SUE",
    "Cells",
    "Mechanism",
    "MechanismRequest",
    "Memoized",
    "MemoizedTwoLevel",
    "MemoizedUnary",
    "OneShot",
    "Part",
    "PrivSet",
    "PureMechanism",
    "SquareWave",
    "SubsetSelection",
    "Unary",
    "choose",
    "from_document",
    "one_cell",
    "serving",
]

_PLACES = {
    name: f"{__name__}.{module}:{name}"
    for module, names in {
        "automatic_choice": ("MECHANISMS", "choose", "serving"), "grr": ("GRR",), "pgr": ("PGR",),
        "privset": ("PrivSet",), "rappor": ("RAPPOR",), "subset": ("SubsetSelection",),
        "two_level": ("MemoizedTwoLevel", "OneShot"), "unary": ("OUE", "SUE", "MemoizedUnary", "Unary"),
        "window": ("SquareWave",),
    }.items()
    for name in names
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return load(_PLACES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
