"""The mechanisms, by name, and the choice between them."""

from decimal import Decimal
from fractions import Fraction

from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms.grr import GRR
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.mechanisms.unary import OUE

__all__ = ["GRR", "MECHANISMS", "OUE", "PureMechanism", "choose", "from_parameters"]

MECHANISMS: dict[str, type[PureMechanism]] = {mechanism.name: mechanism for mechanism in (GRR, OUE)}

UNARY_D_MAX = 512
"""A longer bit string costs more to send and store than it saves in error."""

INDIFFERENT = Fraction(103, 100)
"""Within 3 % of the least error the shorter report wins: nobody sees 3 %, everybody pays for the bits."""


def choose(d: int, epsilon: Decimal) -> PureMechanism:
    """Return the mechanism for d values: within 3 % of the least average variance, the fewest bits a report.

    Compared as exact rationals, so that every machine chooses alike.
    """
    candidates: list[PureMechanism] = [GRR.for_epsilon(d, epsilon)]
    if d <= UNARY_D_MAX:
        candidates.append(OUE.for_epsilon(d, epsilon))
    bound = min(candidate.average_variance for candidate in candidates) * INDIFFERENT
    return min(
        (candidate for candidate in candidates if candidate.average_variance <= bound),
        key=lambda candidate: (candidate.shape.bits, candidate.average_variance),
    )


def from_parameters(name: str, parameters: dict[str, int]) -> PureMechanism:
    """Return the mechanism that a stored plan names; raise InvalidParameter when it is not one of ours."""
    if name not in MECHANISMS:
        raise InvalidParameter(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    try:
        return MECHANISMS[name](**parameters)
    except TypeError:
        raise InvalidParameter(f"{name} does not take the parameters {', '.join(parameters)}") from None
