"""Intervals that every estimand uses: how sure they are, and where a normal law is not good enough.

Intervals are Wald's, estimate +- z standard errors, from `normal_from` reports on. With fewer, those of one value are
exact, however small a count is. For a population they are Clopper and Pearson's, of the rate behind a binomial count;
for the share among these reports they invert the sum of two binomials (`exact_ends`). Intervals of other sums reach
further, as far as single reports may weigh (`reach`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import exp, log, pi, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv, gammainccinv, gammaincinv, log_ndtr, ndtr, ndtri

from dither_aggregator.counting import Counts

Floats = npt.NDArray[np.float64]
ErrorOf = Literal["population", "reports"]
Method = Literal["wald", "clopper-pearson", "exact"]

CONFIDENCE = 0.95
LEVEL_MIN, LEVEL_MAX = Decimal(50), Decimal("99.9")
"""The ends of the levels that a reader may ask for, in percent."""
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
NORMAL_MIN, NORMAL_SKEWED = 40, 25
"""A mean of so many terms is normal, as far as intervals of 95 % show; times the squared skewness, so many more."""
HALVINGS = 40
"""Steps to a quantile: to 1e-12 of a standard error."""
LARGE_N, LARGE_COUNT = 10**7, 10**4
"""Beyond, and below: binomial counts are Poisson's, whose quantiles are computed more exactly."""


N = TypeVar("N", float, Floats)
_LEVEL = re.compile(r"[0-9]{1,2}(\.[0-9]{1,3})?|0?\.[0-9]{1,5}")


def read_level(text: str) -> Decimal:
    """Return a level in percent, written so or as a share: 99.9 of "99.9" and of ".999". Raises ValueError."""
    level = Decimal(text) if _LEVEL.fullmatch(text) else Decimal(0)
    level = level * 100 if level < 1 else level
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        share = f"{LEVEL_MIN / 100:f} to {LEVEL_MAX / 100:f}"
        raise ValueError(f"must be a percentage from {LEVEL_MIN} to {LEVEL_MAX}, or a share from {share}, got {text!r}")
    return Decimal(f"{level.normalize():f}")


def effective(n: N, repeats: int, *, permanent: bool) -> N:
    """Return how many devices n reports may be of, at the worst: of as few as send `repeats` each.

    Their law counts where noise repeats, `permanent`; fresh noise is another one in each report. Every floor, every
    gate of a normal law and every law of small counts asks this.
    """
    return np.maximum(n / repeats, 1.0) if permanent else n


def normal_from(skewness: N, z: float = Z) -> N:
    """Return how many reports of different devices make Wald intervals of z standard errors hold.

    It is of means of terms with such a skewness, 1 / sqrt(rate) for a rare bit. The error of such an interval grows
    with the squared skewness over n (Edgeworth); farther out it weighs more, (z / 1.96)^4 times as much.
    """
    return (NORMAL_MIN + NORMAL_SKEWED * skewness**2) * (z / Z) ** 4


def bit_skewness(p: float, q: float) -> float:
    """Return the skewness of a bit that is rarely one, or rarely zero: where nobody or everybody has a value."""
    rate = min(q, 1 - p)
    return abs(1 - 2 * rate) / sqrt(rate * (1 - rate))


def reach(variance: Floats, heaviest: Floats, n: float, z: float = Z) -> Floats:
    """Return how far an interval of z standard errors reaches from a mean of n terms, each of which moves it.

    No term moves it by more than `heaviest`: so its skewness is at most n heaviest / sqrt(n variance). If that is too
    much for a normal law, a term that was not seen yet counts, too, in the variance and beside it.
    """
    few = variance * max(n - NORMAL_MIN * (z / Z) ** 4, 0) < NORMAL_SKEWED * (z / Z) ** 4 * n * heaviest**2
    beside = max((z**2 + 2) / 3, -float(log_ndtr(-z)) - z) * heaviest
    return np.asarray(z * np.sqrt(variance + few * heaviest**2) + few * beside)


def reach_of_noise(std_error: float, alpha: float) -> float:
    """Return how far a weighted sum of Laplace noise lies from zero with probability alpha <= 0.1, nearly or at most.

    A sum of many terms is nearly normal. A single one has exp(-sqrt(2) x) beyond x standard errors: more than of any
    sum, so far out.
    """
    z = -NormalDist().inv_cdf(alpha / 2)
    return max(z, -log(alpha) / sqrt(2)) * std_error


def beyond_zero(lower: float, upper: float) -> int:
    """Return on which side of zero an interval lies: 1 above, -1 below, 0 where it holds zero. Verdicts ask this."""
    return int(lower > 0) - int(upper < 0)


def open_chance(beyond: float, open_part: float = 0.0) -> float:
    """Return the two-sided p-value of a number that its data leave open between two ends, both in standard errors.

    `beyond` is how far the nearer end lies from what is tested, `open_part` how far the ends are from each other. The
    wider, the nearer to a one-sided test (Imbens and Manski 2004).
    """
    return float(ndtr(-beyond) + ndtr(-beyond - open_part)) if beyond > 0 else 1.0


def open_z(alpha: float, open_part: float) -> float:
    """Return how many standard errors an interval of such a number reaches beyond its ends: 1.96 to 1.645 at 95 %."""
    z = -float(ndtri(alpha))  # from below the chance is convex: Newton's steps pass nowhere beyond
    for _ in range(HALVINGS):
        over = float(ndtr(-z) + ndtr(-z - open_part)) - alpha
        density = (exp(-z * z / 2) + exp(-(z + open_part) * (z + open_part) / 2)) / sqrt(2 * pi)
        step = over / density
        z += step
        if abs(step) <= 1e-14 * abs(z):
            break
    return z


def devices_reach(share: Floats, devices: float, alpha: float) -> tuple[Floats, Floats]:
    """Return how far exact intervals reach below and above the shares that so many devices have, cut to [0, 1].

    It is what answers leave open where a device gives one answer again and again: the noise of its reports adds to it,
    squared (Zou's "MOVER", 2008).
    """
    held = np.clip(share, 0.0, 1.0)
    lower, upper = clopper_pearson(devices * held, devices, alpha)
    return held - lower, upper - held


def clopper_pearson(counts: Counts | Floats, n: float, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of the exact intervals of confidence 1 - alpha for the rates behind binomial counts out of n.

    Neither need be whole: then they lie between those of whole ones.
    """
    none, all_ = counts <= 0, counts >= n
    some, less = np.where(none, 1, counts), np.where(all_, max(n - 1, 0), counts)
    lower = betaincinv(some, n - some + 1, alpha / 2)
    upper = betainccinv(less + 1, n - less, alpha / 2)
    if n >= LARGE_N:
        lower = np.where(some <= LARGE_COUNT, gammaincinv(some, alpha / 2) / n, lower)
        upper = np.where(less <= LARGE_COUNT, gammainccinv(less + 1, alpha / 2) / n, upper)
    return np.where(none, 0.0, lower), np.where(all_, 1.0, upper)


# Ratios x / y of weighted sums of raw shares, and intervals of them that hold where y is known poorly.
#
# Fieller 1954: where x / y = r, x - r y is zero but for noise. So r is possible at a level z where
#
#     (x - r y)^2 <= z^2 Var_r[x - r y]         Var_r = Vxx - 2 r Vxy + r^2 Vyy - k (1 - 2 r) (x - r y)
#
# which is quadratic in r. The last term is for a part x of y, and for the answers' own part of its variance. It is
# estimated at the share x, but if the ratio were r that share would be r y. A part of y with the ratio r has the
# variance r (1 - r) y / n, whose slope is (1 - 2 r) / n; k is 1 / n and what noise makes more of it
# (`tables.pairs.CellTable.steepness`). Without noise this is Wilson's interval of x out of y, and with much of it
# Fieller's.
#
# The interval ends only where y is more than z standard errors above zero. Elsewhere all is possible, and the ratio
# cannot be told. A part of a whole has a ratio from 0 to 1, so intervals are cut there. Estimates are not.


SURE = 3.0
"""Standard errors above zero that the whole must be, for anything to be said of its parts."""
SURE_TO_COMPARE = 5.0
"""The same of both wholes, for the difference of two ratios, and of two factors: there the error is that of a slope."""


class KnownRatio(NamedTuple):
    """A ratio that is told."""

    place: tuple[int, ...]
    estimate: float
    std_error: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Ratios:
    """x and y, each with what is known of its error; arrays of one shape."""

    part: Floats
    whole: Floats
    part_variance: Floats
    covariance: Floats
    whole_variance: Floats
    steepness: float
    """k."""
    least: float = 0.0
    """The least ratio that is possible."""
    most: float = 1.0

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether each whole is sure enough."""
        return self.surely(SURE)

    def surely(self, errors: float) -> npt.NDArray[np.bool_]:
        """Return whether each whole is at least so many standard errors above zero."""
        return (self.whole > 0) & (self.whole**2 >= errors**2 * self.whole_variance)

    @property
    def estimate(self) -> Floats:
        """x / y, of wholes that are told; it may be below 0 or above 1."""
        return self.part / self.whole

    @property
    def std_error(self) -> Floats:
        """The standard error of x / y by the delta method: for plotting; the interval is not made of it."""
        ratio = np.clip(self.estimate, self.least, self.most)
        spread = self.part_variance - 2 * ratio * self.covariance + ratio**2 * self.whole_variance
        return np.sqrt(np.maximum(spread, 0.0)) / np.abs(self.whole)

    def variance_at(self, ratio: Floats) -> Floats:
        """Return the variance of x / y if the ratio were this: Var_r / y^2."""
        x, y = self.part, self.whole
        spread = self.part_variance - 2 * ratio * self.covariance + ratio**2 * self.whole_variance
        return np.asarray((spread - self.steepness * (1 - 2 * ratio) * (x - ratio * y)) / y**2)

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Return the ends of the intervals at a level, within what is possible."""
        x, y, k = self.part, self.whole, self.steepness
        # square r^2 - 2 half r + constant <= 0
        square = y**2 - z**2 * (self.whole_variance - 2 * k * y)
        half = x * y - z**2 * (self.covariance - k * (y / 2 + x))
        constant = x**2 - z**2 * (self.part_variance - k * x)
        root = np.sqrt(np.maximum(half**2 - square * constant, 0.0))
        bounded = (square > 0) & (y > 0)
        lower, upper = ((half + way * root) / np.where(bounded, square, 1.0) for way in (-1, 1))
        least, most = self.least, self.most
        return np.where(bounded, np.clip(lower, least, most), least), np.where(
            bounded, np.clip(upper, least, most), most
        )

    def tell(self, z: float) -> Iterator[KnownRatio]:
        """Yield the ratios that are told, with intervals at a level."""
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = (self.estimate, self.std_error, *self.ends(z))
        yield from tell(self.known, *columns)


def tell(known: npt.NDArray[np.bool_], *columns: Floats) -> Iterator[KnownRatio]:
    """Yield the places that are told, with an estimate, its standard error and the ends of its interval."""
    places = zip(*(axis.tolist() for axis in np.nonzero(known)), strict=True)
    numbers = zip(*(column[known].tolist() for column in columns), strict=True)
    for place, (estimate, std_error, lower, upper) in zip(places, numbers, strict=True):
        yield KnownRatio(place, estimate, std_error, lower, upper)


# Exact intervals of the share that holds a value among n reports, from the count of those that support it.
#
# Let m of n reports hold the value. They support it with probability p each, all others with q < p. So the count of
# support is C = Bin(m, p) + Bin(n - m, q), and its tail P_m[C >= c] grows with m. The lower end for a count c is the m
# at which this tail is alpha / 2. The upper end is the lower one of the mirrored law, n - C = Bin(n - m, 1 - q) +
# Bin(m, 1 - p). Each m between the ends passes both one-sided tests of level alpha / 2, so the interval holds every m
# with probability 1 - alpha at least: the construction of Clopper and Pearson 1934, who had one binomial. Between two
# whole m the tail is linear, which is the law of a report that holds the value with the probability of the fraction.
#
# No such law exists beyond 0 and n. There the ends are Clopper and Pearson's for the rate of one binomial, mapped to
# shares by (rate - q) / (p - q). At m = 0 and at m = n one binomial is left, so both kinds of ends meet there.
#
# Tails of a small variance are sums over both binomials. Larger ones are saddlepoint approximations (Lugannani and Rice
# 1980, with the lattice correction of Daniels 1987, as the r* of Barndorff-Nielsen 1986), within 1 % of these sums.


VARIANCE_MIN = 25.0
"""Tails are summed where the count varies less than this in the tilted law, whose mean is the count that was seen."""
LEFT_OUT = 1e-15
"""The windows of a sum leave out at most this probability."""
TOLERANCE, ROUNDS_MAX = 1e-6, 12
"""A saddlepoint is found when r* is this near the wanted normal quantile: in 7 rounds where no sums are needed."""
NEWTON_ROUNDS = 8
"""The search with sums takes Newton's steps in its first rounds, mostly one or two, and halves its bracket then."""


def exact_ends(counts: Counts, n: int, p: float, q: float, alpha: float) -> tuple[Floats, Floats]:
    """Return the lower and the upper ends, as shares m / n, of intervals of confidence 1 - alpha from n >= 1 reports.

    Ends grow with the count and reach beyond 0 and 1, as raw estimates do. A lower end is above zero if and only if
    P[Bin(n, q) >= count] < alpha / 2.
    """
    each, place = np.unique(counts, return_inverse=True)
    lower, upper = ((rate - q) / (p - q) for rate in clopper_pearson(each, n, alpha))
    inside = (lower > 0) & (lower < 1)
    lower[inside] = _lower(each[inside], n, p, q, alpha / 2) / n
    inside = (upper > 0) & (upper < 1)
    upper[inside] = 1 - _lower(n - each[inside], n, 1 - q, 1 - p, alpha / 2) / n
    return lower[place], upper[place]


def _lower(counts: Counts, n: int, p: float, q: float, level: float) -> Floats:
    """Return the m at which P_m[C >= count] is the level, for counts where m = 0 has less and m = n has more."""
    m, variance = _by_saddlepoint(counts, n, p, q, -float(ndtri(level)))
    few = ~(variance >= VARIANCE_MIN)  # also nan, as where every report supports the value: no tilt has this mean
    if few.any():
        m[few] = _by_sums(counts[few], m[few], n, p, q, level)
    return np.clip(m, np.finfo(np.float64).tiny, n)  # an approximation must not undo that m = 0 was refused


def _by_saddlepoint(counts: Counts, n: int, p: float, q: float, z: float) -> tuple[Floats, Floats]:
    """Return the m at which r* is z, and the variance of its tilted law; nan where none was found.

    For each tilt s > 0 one m has the count as its tilted mean. From the estimate down to m = 0, s and r* grow.
    """
    share = np.clip((counts / n - q) / (p - q), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        most = np.log(counts / (n - counts)) - np.log(q / (1 - q))
        s = np.minimum(z / np.sqrt(n * (share * p * (1 - p) + (1 - share) * q * (1 - q))), most)
        for _ in range(ROUNDS_MAX):
            m, variance, r, slope = _tilted(s, counts, n, p, q)
            off = r - z
            if not (np.abs(off) > TOLERANCE).any():
                break
            s = np.clip(s - off / slope, s / 4, most)
    return m, np.where(np.abs(off) <= TOLERANCE, variance, np.nan)


def _tilted(s: Floats, counts: Counts, n: int, p: float, q: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the m whose law has the count as its mean once tilted by s, the variance then, r*, and nearly its slope.

    K is the cumulant generating function of C. w^2 / 2 = s count - K(s), and its derivative along m(s) is
    variance (log_p - log_q) / (tilted_p - tilted_q); r* = w + log(u / w) / w with u = (1 - e^-s) sqrt(variance).
    """
    rise = np.expm1(s)
    tilted_p, tilted_q = p * (1 + rise) / (1 + p * rise), q * (1 + rise) / (1 + q * rise)
    apart = tilted_p - tilted_q
    m = (counts - n * tilted_q) / apart
    variance = m * tilted_p * (1 - tilted_p) + (n - m) * tilted_q * (1 - tilted_q)
    log_p, log_q = np.log1p(p * rise), np.log1p(q * rise)
    w = np.sqrt(2 * (s * counts - m * log_p - (n - m) * log_q))
    r = w + np.log(-np.expm1(-s) * np.sqrt(variance) / w) / w
    return m, variance, r, variance * (log_p - log_q) / (apart * w)


def _by_sums(counts: Counts, start: Floats, n: int, p: float, q: float, level: float) -> Floats:
    """Return the m at which P_m[C >= count] is the level, by a search from a start, which may be nan."""
    low, high = np.zeros_like(counts), np.full_like(counts, n)
    at = np.clip(np.nan_to_num(start, nan=n), 0, n - 1).astype(np.int64)
    m, left, rounds = np.zeros(len(counts)), np.arange(len(counts)), 0
    while len(left):
        tail, more = _tail(at, counts[left], n, p, q)
        over, under = tail + q * more >= level, tail + p * more < level
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            m[left] = at + np.clip(((level - tail) / more - q) / (p - q), 0, 1)
            better = at + 0.5 + _quantile_step(tail + (p + q) / 2 * more, (p - q) * more, level)
        low, high = np.where(under, at + 1, low), np.where(over, at, high)
        rounds += 1
        better = np.where(np.isfinite(better) & (rounds < NEWTON_ROUNDS), better, (low + high) / 2)
        again = (over | under) & (low < high)
        left, low, high, better = left[again], low[again], high[again], better[again]
        at = np.clip(better, low, high - 1).astype(np.int64)
    return m


def _quantile_step(tail: Floats, slope: Floats, level: float) -> Floats:
    """Return Newton's step from a tail to a level, in standard normal quantiles: there tails are nearly straight."""
    z = ndtri(tail)
    step: Floats = (ndtri(level) - z) * np.exp(-z * z / 2) / (np.sqrt(2 * np.pi) * slope)
    return step


def _tail(m: Counts, counts: Counts, n: int, p: float, q: float) -> tuple[Floats, Floats]:
    """Return P[C >= count] and P[C = count - 1] of C = Bin(m, p) + Bin(n - 1 - m, q), one report less.

    The last report supports the value with a probability r, hence with it the tail is the first plus r times the other.
    """
    first, law = _law(n - 1 - m, q)
    first_m, law_m = _law(m, p)
    beyond = np.zeros((len(m), law_m.shape[1] + 1))  # P[Bin(m, p) >= first_m + column]
    beyond[:, :-1] = law_m[:, ::-1].cumsum(axis=1)[:, ::-1]
    column = (counts - first - first_m)[:, None] - np.arange(law.shape[1])
    reached, reached_before = (
        (law * np.take_along_axis(beyond, np.clip(column - back, 0, law_m.shape[1]), axis=1)).sum(axis=1)
        for back in (0, 1)
    )
    return reached, reached_before - reached


def _law(trials: Counts, rate: float) -> tuple[Counts, Floats]:
    """Return where windows of binomial laws begin, and the probabilities in them, a row for each number of trials.

    By Bernstein's inequality a window leaves out LEFT_OUT at most. Probabilities are products of their ratios,
    P[k] / P[k - 1] = (trials - k + 1) / k rate / (1 - rate), divided by their sum.
    """
    room = np.log(2 / LEFT_OUT)
    half = int(np.sqrt(2 * room * trials.max() * rate * (1 - rate)) + 2 * room / 3) + 2
    first = np.maximum((trials * rate).astype(np.int64) - half, 0)
    k = first[:, None] + np.arange(1, min(2 * half, int(trials.max())) + 1)
    logs = np.zeros((len(trials), k.shape[1] + 1))
    with np.errstate(divide="ignore"):
        np.cumsum(
            np.log(np.maximum(trials[:, None] - k + 1, 0) / k) + np.log(rate / (1 - rate)), axis=1, out=logs[:, 1:]
        )
    law = np.exp(logs - logs.max(axis=1, keepdims=True))
    return first, law / law.sum(axis=1, keepdims=True)
