"""The tail: the sum over all values that do not stand out, with an interval that holds.

Values are set apart by the counts of one window. Their sum in the same window comes out too low, because noise helped
to leave them out. So the sum is of other days: there the noise is new, and knows nothing of who was left out. The
interval is of the share among the reports of those days. As an interval of the population that they are a sample of, it
would be too narrow: the same devices report in both windows, so their answers, unlike their noise, are partly the same.

Let V be the m values, k the number of them that an answer holds, F the mean of k over the n reports, and g(y) the
number of values in V that a report y supports. Then

    E[g | k] = m q + k (p - q)                 F^ = (mean of g - m q) / (p - q)
    Var[F^]  = mean of Var[g | answer] / (n (p - q)^2)

All d shares sum to one where an answer holds one value: then most of them are estimated as one less the few others,
which have less noise. Reports support several values at a time, so the variance is not the sum of those of the m
estimates. Let B, O, N be the probabilities that a report supports two given values, where the answer holds both, one,
neither (`PairLaw`):

    Var[g | k] = E[g | k] + k (k - 1) B + 2 k (m - k) O + (m - k) (m - k - 1) N - E[g | k]^2

This is c_0 + c_1 k + c_2 k^2, so its mean over the reports needs the mean of k^2, too. It is F if an answer holds one
value. If it holds up to t, whole numbers k with the mean F make it at least F^2 + b (1 - b), b being F less the whole
number below, and at most min(t, m) F. The one that makes the variance larger counts.
The reports tell it where B, O, N depend on the values (PGR): with S^2 their sample variance of g,

    mean of Var[g | answer] = E[S^2] - n / (n - 1) (p - q)^2 F (1 - F)

F in both is the estimate, cut to what is possible. All of these follow from the definitions in a line or two, and are
enumerated in the tests.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor, sqrt
from statistics import NormalDist
from typing import Annotated

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import COUNT_MIN, Floats, Z
from dither_aggregator.analysis.rows import Days, says
from dither_aggregator.analysis.windows import Window
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.supports import hyperplanes_through
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.pure import PairLaw


@dataclass(frozen=True)
class Sum:
    """The sum over some values: values a report, which is a share if an answer holds one value."""

    estimate: float
    """Raw and unbiased: it may be negative."""
    std_error: float
    lower: float
    upper: float

    @property
    def rest(self) -> "Sum":
        """The sum over all other values, if both sums add up to one."""
        return Sum(1 - self.estimate, self.std_error, 1 - self.upper, 1 - self.lower)


class TailDocument(Days):
    """The share of all values that do not stand out, from days before, whose noise did not choose them.

    If answers may hold several values, it is the number of them a report. Values apart are not in it.
    """

    values: Annotated[int, says("how many values")]
    n: Annotated[int, says("reports of these days")]
    estimate: Annotated[float, says("their share of these reports: raw, so it may be negative")]
    std_error: Annotated[float, says("how far it may be from these reports, whatever error_of says of rows")]
    lower: Annotated[float, says("the interval's lower end, which holds by itself at the level")]
    upper: Annotated[float, says("its upper end")]


@dataclass(frozen=True)
class Tail:
    """The sum over all values that do not stand out in a window, from other days."""

    total: Sum
    values: int
    window: Window
    """The other days, from the first of them that has reports to the last."""
    n: int
    """Their reports."""

    def to_document(self) -> TailDocument:
        """Return what the API says of it."""
        return {
            "values": self.values,
            "estimate": self.total.estimate,
            "std_error": self.total.std_error,
            "lower": self.total.lower,
            "upper": self.total.upper,
            "n": self.n,
            **self.window.ends,
        }


@dataclass(frozen=True)
class _Supported:
    """How many values of V the reports support."""

    mean: float
    """The mean of g over the n reports."""
    bulk: float
    """As many counts of a rare symbol are about as far from a normal law as the sum is; fixed before any report."""
    spread: float
    """The mean of Var[g | answer] over the reports."""


def sum_shares(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Estimate what values have together, bool[d], from the counts of n >= 0 reports that did not choose them.

    The interval is of the share among these reports, whose noise must be fresh. None where the law of two values is not
    known, where reports are too few for a normal law, and where the interval is as wide as all that is possible.
    """
    if n < 2:
        return None
    others = mechanism.ticks == 1 and 2 * among.sum() > mechanism.d
    found = _estimate(mechanism, counts, n, ~among if others else among, confidence)
    return found.rest if found and others else found


def _estimate(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Return it from the reports' supports of these values, not of all others."""
    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    supported = _by_pairs(mechanism, counts, n, among) or _by_points(mechanism, counts, n, among)
    if supported is None or supported.bulk < COUNT_MIN * (z / Z) ** 4:
        return None
    estimate = _share(mechanism, supported.mean, int(among.sum()))
    std_error = sqrt(supported.spread / n) / float(mechanism.p - mechanism.q)
    if 2 * z * std_error >= mechanism.ticks:
        return None
    return Sum(estimate, std_error, estimate - z * std_error, estimate + z * std_error)


def _share(mechanism: PureMechanism, mean: float, m: int) -> float:
    """Return F^."""
    return (mean - m * float(mechanism.q)) / float(mechanism.p - mechanism.q)


def _by_pairs(mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_]) -> _Supported | None:
    """Return it from support counts and the law of pairs; None where there is none."""
    pairs = mechanism.pairs
    if pairs is None:
        return None
    m = int(among.sum())
    most = min(mechanism.ticks, m)
    mean = int(counts[: mechanism.d][among].sum()) / n  # without PrivSet's dummies
    constant, linear, square = _coefficients(mechanism, pairs, m)
    share = min(max(_share(mechanism, mean, m), 0.0), most)
    part = share - floor(share)
    squares = (share**2 + part * (1 - part), most * share)
    spread = constant + linear * share + max(square * mean_square for mean_square in squares)
    least = min(constant + linear * k + square * k**2 for k in range(most + 1))
    return _Supported(mean, n * least, spread)


def _coefficients(mechanism: PureMechanism, pairs: PairLaw, m: int) -> tuple[float, float, float]:
    """Return c_0, c_1 and c_2, computed exactly: large terms cancel."""
    p, q, both, one, neither = mechanism.p, mechanism.q, pairs.both, pairs.one, pairs.neither
    constant: Fraction = m * q + m * (m - 1) * neither - (m * q) ** 2
    linear = (p - q) * (1 - 2 * m * q) - both + 2 * m * one - (2 * m - 1) * neither
    return float(constant), float(linear), float(both - 2 * one + neither - (p - q) ** 2)


def _by_points(mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_]) -> _Supported | None:
    """Return it from the reports themselves, where a tally counts points; None where it does not.

    A point lies on the hyperplane of a value just where that value, as a point, lies on the hyperplane of the point.
    """
    if mechanism.geometry is None:
        return None
    supports = hyperplanes_through(*mechanism.geometry, np.flatnonzero(among)).astype(np.float64)
    mean = float(counts @ supports) / n
    share = min(max(_share(mechanism, mean, int(among.sum())), 0.0), 1.0)
    sampled = float(counts @ (supports - mean) ** 2)
    spread = (sampled - n * float(mechanism.p - mechanism.q) ** 2 * share * (1 - share)) / (n - 1)
    return _Supported(mean, n * _bulk(supports), max(spread, 0.0))


def _bulk(supports: Floats) -> float:
    """Return Var^3 / E[|g - E g|^3]^2 of a uniform point; of a rare symbol it is about its probability.

    A few points with far more values on them than others have make it small: then reports seldom show the variance.
    """
    distance = np.abs(supports - supports.mean())
    third = float((distance**3).mean())
    return float((distance**2).mean()) ** 3 / third**2 if third else 0.0
