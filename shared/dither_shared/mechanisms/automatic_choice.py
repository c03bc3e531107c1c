"""The automatic choice: of all mechanisms for a metric, the shortest report within 3 % of the least error.

Each mechanism offers its designs for what is needed. Their exact average variances are compared, as rationals, so that
every machine chooses alike. There is no rule of thumb about d: "GRR while d < 3 e^eps + 2" loses up to 30 % of
accuracy.

A memo is a fingerprint, so of memoized answers the design of least R(200) within 15 % of the least error is taken. A
unary code's memo tells all devices apart; it is taken only where no symbol comes near its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from dither_shared.errors import InvalidParameter
from dither_shared.exact import digits
from dither_shared.light_typing import Final
from dither_shared.mechanisms.grr import GRR
from dither_shared.mechanisms.mechanism import DEVICES, REPORT_BITS_MAX, Mechanism, MechanismRequest, PureMechanism
from dither_shared.mechanisms.pgr import PGR
from dither_shared.mechanisms.privset import PrivSet
from dither_shared.mechanisms.rappor import RAPPOR
from dither_shared.mechanisms.subset import SubsetSelection
from dither_shared.mechanisms.two_level import MemoizedTwoLevel
from dither_shared.mechanisms.unary import OUE, SUE
from dither_shared.mechanisms.window import SquareWave

# R(n) of one memo, for the automatic choice. `accounting` has what it means, and several memos and cohorts.
#
# Two levels make it a sum of two terms: with probability m each of c symbols has m / c, and of n devices with the same
# answer the share that is alone, or is paired rightly by chance, is
#
#     R(n) = sum over both levels of c (1 - (1 - m / c)^n) / n
#
# It is computed in decimal numbers, which every machine rounds alike.

_DIGITS = digits(50)
_RARE = Fraction(1, 10**20)
"""Symbols that are rarer than this are taken as ones that no two devices share."""


def linked_by(memo: MemoizedTwoLevel) -> Decimal:
    """Return R(200) of the memo's permanent symbol, within 1e-17."""
    inside, share = memo.permanent.law.inside, memo.permanent.law.share
    levels = ((inside, share), (1 - inside, 1 - share))
    one, other = (_linked(mass, mass / (part * memo.permanent.outputs)) for mass, part in levels)
    return _DIGITS.add(one, other)


def _linked(mass: Fraction, each: Fraction) -> Decimal:
    """Return what symbols of probability `each` add, `mass` together."""
    if each < _RARE:
        return _decimal(mass)
    met = _DIGITS.subtract(Decimal(1), _DIGITS.power(_decimal(1 - each), DEVICES))
    return _DIGITS.divide(_DIGITS.multiply(_decimal(mass / each), met), Decimal(DEVICES))


def _decimal(number: Fraction) -> Decimal:
    return _DIGITS.divide(Decimal(number.numerator), Decimal(number.denominator))


MECHANISMS: Final[dict[str, type[Mechanism]]] = {
    mechanism.name: mechanism for mechanism in (GRR, SubsetSelection, PGR, PrivSet, OUE, SUE, RAPPOR, SquareWave)
}
"""The mechanisms, by name. Pure ones that are registered here take part in the choice."""
INDIFFERENT = Fraction(103, 100)
"""Within 3 % of the least error the shorter report wins: nobody sees 3 %, everybody pays for the bits."""
LINKED_LOSS = Fraction(115, 100)
"""Within 15 % of the least error the memo wins that links fewer devices."""


def serving(ticks: int | None) -> dict[str, type[PureMechanism]]:
    """Return the mechanisms for answers of up to `ticks` values, or of exactly one where that is None."""
    return {
        name: mechanism
        for name, mechanism in MECHANISMS.items()
        if issubclass(mechanism, PureMechanism)
        and (mechanism.serves_one if ticks is None else mechanism.serves_several)
    }


def choose(
    d: int, epsilon: Decimal, *, ticks: int | None = None, permanent: Decimal | None = None, name: str | None = None
) -> PureMechanism:
    """Return the mechanism for d values and reports of `epsilon`.

    `ticks` is the most values of an answer that may hold several, None for exactly one. `permanent` is the epsilon of
    a memoized answer, None for fresh noise each time. `name` takes the choice among one mechanism's designs alone.
    Fresh reports: the fewest bits win within 3 % of the least average variance. Memos: the least R(200) wins within
    15 %. Ties go to the fewest bits, then the shortest tally to decode, then the least variance.
    Raises InvalidParameter if every report would be too long.
    """
    asked = tuple(mechanism for own, mechanism in serving(ticks).items() if name in (None, own))
    return _chosen(asked, d, epsilon, ticks, permanent, name)


@lru_cache(maxsize=256)  # many metrics of a registry are alike
def _chosen(
    asked: tuple[type[PureMechanism], ...],
    d: int,
    epsilon: Decimal,
    ticks: int | None,
    permanent: Decimal | None,
    name: str | None,
) -> PureMechanism:
    request = MechanismRequest(
        d, epsilon, several=ticks is not None, ticks=ticks or 1, permanent=permanent, named=name is not None
    )
    designs = (design for mechanism in asked for design in mechanism.designs(request))
    short = [design for design in designs if design.shape.bits <= REPORT_BITS_MAX]
    if not short:
        what = f"{'memoized ' if permanent is not None else ''}{name or 'mechanism'}"
        raise InvalidParameter(f"there is no {what} for {d} values with reports of at most {REPORT_BITS_MAX} bits")
    symbols = [design for design in _near(short, LINKED_LOSS) if isinstance(design, MemoizedTwoLevel)]
    if symbols:
        return min(symbols, key=lambda design: (linked_by(design), *_length(design)))
    return min(_near(short, INDIFFERENT), key=_length)


def _near(designs: Sequence[PureMechanism], loss: Fraction) -> list[PureMechanism]:
    """Return those whose average variance is at most `loss` times the least."""
    bound = min(design.average_variance for design in designs) * loss
    return [design for design in designs if design.average_variance <= bound]


def _length(design: PureMechanism) -> tuple[int, int, Fraction]:
    """Return what a report and a tally take, and among equally long ones the error."""
    return design.shape.bits, design.shape.size, design.average_variance
