"""The mechanisms, by name, and the choice between them: each is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping

from dither_shared.errors import InvalidParameter
from dither_shared.installed import load
from dither_shared.light_typing import TYPE_CHECKING, Any
from dither_shared.mechanisms.mechanism import DEVICES, Mechanism, MechanismRequest, Memoized, PureMechanism

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
    "DEVICES",
    "GRR",
    "MECHANISMS",
    "OUE",
    "PGR",
    "RAPPOR",
    "SUE",
    "Mechanism",
    "MechanismRequest",
    "Memoized",
    "MemoizedTwoLevel",
    "MemoizedUnary",
    "OneShot",
    "PrivSet",
    "PureMechanism",
    "SquareWave",
    "SubsetSelection",
    "Unary",
    "choose",
    "from_document",
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
_OWN = {
    "grr": "GRR", "oue": "OUE", "pgr": "PGR", "privset": "PrivSet", "rappor": "RAPPOR", "ss": "SubsetSelection",
    "sue": "SUE", "window": "SquareWave",
}  # fmt: skip
"""The class of each name: a document needs no other, nor the choice."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return load(_PLACES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _of_name(name: str) -> type[Mechanism]:
    """Return a mechanism, ours or one that was registered beside them; raise InvalidParameter where there is none."""
    if name in _OWN:
        own: type[Mechanism] = load(_PLACES[_OWN[name]])
        return own
    from dither_shared.mechanisms.automatic_choice import MECHANISMS

    if name not in MECHANISMS:
        raise InvalidParameter(f"the mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    return MECHANISMS[name]


def from_document(document: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism of a stored document; raise InvalidParameter when it is not one of ours."""
    name = document["mechanism"]
    mechanism = _of_name(name)
    parameters, memo = document["parameters"], document.get("memo")
    if not all(type(value) is int for value in (*parameters.values(), *(memo or {}).values())):
        raise InvalidParameter(f"the parameters of {name} must be integers")
    try:
        return mechanism.of_integers(parameters, memo)
    except TypeError:
        raise InvalidParameter(f"{name} does not take these parameters: {parameters}") from None
