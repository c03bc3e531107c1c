"""The mechanisms, by name, and the choice between them."""

from collections.abc import Callable, Mapping
from typing import Final

from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms.choice import ONE_VALUE, SEVERAL_VALUES, choose
from dither_shared.mechanisms.grr import GRR
from dither_shared.mechanisms.mechanism import Mechanism
from dither_shared.mechanisms.memoized import Memoized, MemoizedTwoLevel, MemoizedUnary
from dither_shared.mechanisms.pgr import PGR
from dither_shared.mechanisms.privset import PrivSet
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.mechanisms.rappor import RAPPOR
from dither_shared.mechanisms.subset import SubsetSelection
from dither_shared.mechanisms.two_level import OneShot
from dither_shared.mechanisms.unary import OUE, SUE, Unary

__all__ = [
    "GRR",
    "MECHANISMS",
    "ONE_VALUE",
    "OUE",
    "PGR",
    "RAPPOR",
    "SEVERAL_VALUES",
    "SUE",
    "Mechanism",
    "Memoized",
    "MemoizedTwoLevel",
    "MemoizedUnary",
    "OneShot",
    "PrivSet",
    "PureMechanism",
    "SubsetSelection",
    "Unary",
    "choose",
    "from_parameters",
]

MECHANISMS: Final[Mapping[str, type[OneShot] | type[Unary]]] = {
    mechanism.name: mechanism for mechanism in (GRR, SubsetSelection, PGR, PrivSet, OUE, SUE)
}


def from_parameters(name: str, parameters: Mapping[str, int]) -> Mechanism:
    """Return the mechanism that a stored plan names; raise InvalidParameter when it is not one of ours."""
    makers: Mapping[str, Callable[..., Mechanism]] = {**MECHANISMS, RAPPOR.name: RAPPOR}
    if name not in makers:
        raise InvalidParameter(f"mechanism must be one of {', '.join(makers)}, got {name!r}")
    integers = dict(parameters)
    keep, flip = integers.pop("threshold_keep", None), integers.pop("threshold_flip", None)
    try:
        permanent = makers[name](**integers)
    except TypeError:
        raise InvalidParameter(f"{name} does not take the parameters {', '.join(integers)}") from None
    if keep is not None and isinstance(permanent, OneShot):
        return MemoizedTwoLevel(permanent, keep)
    if flip is not None and isinstance(permanent, Unary):
        return MemoizedUnary(permanent, flip)
    if keep is not None or flip is not None:
        raise InvalidParameter(f"{name} does not take the parameters {', '.join(parameters)}")
    return permanent
