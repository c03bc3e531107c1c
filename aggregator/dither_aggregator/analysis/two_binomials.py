"""Exact intervals of the share that holds a value among n reports, from the count of those that support it.

Let m of n reports hold the value. They support it with probability p each, all others with q < p. So the count of
support is C = Bin(m, p) + Bin(n - m, q), and its tail P_m[C >= c] grows with m. The lower end for a count c is the m at
which this tail is alpha / 2. The upper end is the lower one of the mirrored law, n - C = Bin(n - m, 1 - q) +
Bin(m, 1 - p). Each m between the ends passes both one-sided tests of level alpha / 2, so the interval holds every m
with probability 1 - alpha at least: the construction of Clopper and Pearson 1934, who had one binomial. Between two
whole m the tail is linear, which is the law of a report that holds the value with the probability of the fraction.

No such law exists beyond 0 and n. There the ends are Clopper and Pearson's for the rate of one binomial, mapped to
shares by (rate - q) / (p - q). At m = 0 and at m = n one binomial is left, so both kinds of ends meet there.

Tails of a small variance are sums over both binomials. Larger ones are saddlepoint approximations (Lugannani and Rice
1980, with the lattice correction of Daniels 1987, as the r* of Barndorff-Nielsen 1986), within 1 % of these sums.
"""

import numpy as np
from scipy.special import ndtri

from dither_aggregator.analysis.inference import Floats, clopper_pearson
from dither_aggregator.counting.folding import Counts

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
