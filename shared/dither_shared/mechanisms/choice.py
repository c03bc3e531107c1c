"""The automatic choice: of all mechanisms for a metric, the shortest report within 3 % of the least error.

Every candidate's exact average variance is compared, as rationals, so that every machine chooses alike. There is no
rule of thumb about d: "GRR while d < 3 e^eps + 2" loses up to 30 % of accuracy.
"""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, floor

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.mechanisms.grr import GRR
from dither_shared.mechanisms.memoized import OUTPUTS_MAX, MemoizedTwoLevel, MemoizedUnary
from dither_shared.mechanisms.pgr import PGR, designs
from dither_shared.mechanisms.privset import PrivSet
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.mechanisms.subset import SubsetSelection
from dither_shared.mechanisms.two_level import OneShot
from dither_shared.mechanisms.unary import OUE, SUE

INDIFFERENT = Fraction(103, 100)
"""Within 3 % of the least error the shorter report wins: nobody sees 3 %, everybody pays for the bits."""
ONE_VALUE = tuple(mechanism.name for mechanism in (GRR, SubsetSelection, PGR, OUE, SUE))
SEVERAL_VALUES = tuple(mechanism.name for mechanism in (PrivSet, OUE, SUE))
"""The mechanisms for answers of one value, and of several."""
REPORT_BITS_MAX = 4_096
"""Longer reports are refused: they cost more to send and store than they are worth."""
ORDER_FACTOR = 2
"""A PGR of an order twice or half of e^epsilon + 1 has 12.5 % more error than the best: no candidate."""


def choose(
    d: int, epsilon: Decimal, *, ticks: int | None = None, permanent: Decimal | None = None, name: str | None = None
) -> PureMechanism:
    """Return the mechanism for d values and reports of `epsilon`.

    `ticks` is the most values of an answer that may hold several, None for exactly one. `permanent` is the epsilon of
    a memoized answer, None for fresh noise each time. `name` takes the choice among one mechanism's designs alone.
    Within 3 % of the least average variance the fewest bits a report win, then the shortest tally to decode, then the
    least variance. Raises InvalidParameter where every report would be too long.
    """
    return _chosen(d, epsilon, ticks, permanent, name)


@lru_cache(maxsize=256)  # many metrics of a registry are alike
def _chosen(d: int, epsilon: Decimal, ticks: int | None, permanent: Decimal | None, name: str | None) -> PureMechanism:
    candidates = [one for one in _candidates(d, epsilon, ticks, permanent, name) if name in (None, one.name)]
    short = [one for one in candidates if one.shape.bits <= REPORT_BITS_MAX]
    if not short:
        what = f"{'memoized ' if permanent is not None else ''}{name or 'mechanism'}"
        limit = f" or at most {OUTPUTS_MAX} symbols" if permanent is not None else ""
        raise InvalidParameter(
            f"there is no {what} for {d} values with reports of at most {REPORT_BITS_MAX} bits{limit}"
        )
    bound = min(one.average_variance for one in short) * INDIFFERENT
    near = [one for one in short if one.average_variance <= bound]
    return min(near, key=lambda one: (one.shape.bits, one.shape.size, one.average_variance))


def _candidates(
    d: int, epsilon: Decimal, ticks: int | None, permanent: Decimal | None, name: str | None
) -> Iterator[PureMechanism]:
    if permanent is None:
        if ticks is None:
            yield from _two_level(d, epsilon)
        else:
            yield PrivSet.for_epsilon(d, epsilon, ticks, REPORT_BITS_MAX)
        if ticks is not None or name is not None:
            # For one value of d they never win: subset selection has less error in as many bits.
            yield OUE.for_epsilon(d, epsilon, ticks or 1)
            yield SUE.for_epsilon(d, epsilon, ticks or 1)
        return
    for one_shot in _few_outputs(d, permanent) if ticks is None else _few_sets(d, permanent, ticks):
        yield MemoizedTwoLevel.for_epsilon(one_shot, epsilon)
    yield MemoizedUnary.for_epsilon(OUE.for_epsilon(d, permanent, ticks or 1), epsilon)
    yield MemoizedUnary.for_epsilon(SUE.for_epsilon(d, permanent, ticks or 1), epsilon)


def _two_level(d: int, epsilon: Decimal) -> Iterator[OneShot]:
    yield GRR.for_epsilon(d, epsilon)
    yield SubsetSelection.for_epsilon(d, epsilon)
    e = exp_below(epsilon)
    least, most = ceil(e / ORDER_FACTOR) + 1, floor(e * ORDER_FACTOR) + 1
    near = designs(d, orders=range(least, most + 1))
    # Far from e^epsilon + 1 only the largest order may be left: then others win, unless PGR is asked for.
    for order, dimension in near or designs(d)[-1:]:
        yield PGR.for_design(d, order, dimension, epsilon)


def _few_outputs(d: int, permanent: Decimal) -> Iterator[OneShot]:
    """Yield every design whose symbols may be memoized: few enough to try them all."""
    if d <= OUTPUTS_MAX:
        yield GRR.for_epsilon(d, permanent)
        for weight in range(1, d):
            if comb(d, weight) <= OUTPUTS_MAX:
                yield SubsetSelection.for_weight(d, weight, permanent)
    for order, dimension in designs(d, OUTPUTS_MAX):
        yield PGR.for_design(d, order, dimension, permanent)


def _few_sets(d: int, permanent: Decimal, ticks: int) -> Iterator[OneShot]:
    for weight in range(1, d + 1):
        if comb(d + ticks, weight) <= OUTPUTS_MAX:
            yield PrivSet.for_weight(d, ticks, weight, permanent)
