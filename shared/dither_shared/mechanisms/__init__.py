"""The mechanisms, by name, and the choice between them."""

from collections.abc import Mapping
from typing import Any

from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms.choice import MECHANISMS, choose, serving
from dither_shared.mechanisms.grr import GRR
from dither_shared.mechanisms.linkable import DEVICES
from dither_shared.mechanisms.mechanism import Mechanism
from dither_shared.mechanisms.memoized import Memoized
from dither_shared.mechanisms.pgr import PGR
from dither_shared.mechanisms.privset import PrivSet
from dither_shared.mechanisms.pure import MechanismRequest, PureMechanism
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


def from_document(document: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism of a stored document; raise InvalidParameter when it is not one of ours."""
    name = document["mechanism"]
    if name not in MECHANISMS:
        raise InvalidParameter(f"the mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    parameters, memo = document["parameters"], document.get("memo")
    if not all(type(value) is int for value in (*parameters.values(), *(memo or {}).values())):
        raise InvalidParameter(f"the parameters of {name} must be integers")
    try:
        return MECHANISMS[name].of_integers(parameters, memo)
    except TypeError:
        raise InvalidParameter(f"{name} does not take these parameters: {parameters}") from None
