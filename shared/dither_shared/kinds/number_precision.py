"""How precisely mean and median of a number can be read: planning figures, for numbers that are spread evenly.

The reports of a part have the law A f, with f the shares of the places and A[y, v] = P[y | v]. From n reports, a share
w of them of that part, the least variance of an unbiased estimate of g . f is (Gauss, Markov, Aitken)

    g' M^-1 g / n      M = sum over parts of  w A' diag(A f)^-1 A      for g . f = 0

which counts both the noise and that the devices are a sample. Mean and share up to the middle are ratios to those with
a number, as a reading has them: g is their places, less the mean. "Other" is among what is estimated, and "none" where
presence is hidden. Even ranges lose nothing by it; on a logarithmic scale it makes up to 11 % of the mean's error.

M is never written down: sums over windows are differences of running sums, so M x takes a few passes over x, and
conjugate gradients reach M^-1 g in some thirty of them. Plain floats: nothing here decides anything on a device.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, sqrt
from operator import add, mul, sub, truediv

from dither_shared.domains.number_ranges import Buckets, NumberDomain, Range, Thresholds
from dither_shared.kinds.kind import Asked
from dither_shared.kinds.precision import (
    HONEST,
    MEANS_MIN,
    NUMBERS_MIN,
    SIDES,
    TAILS,
    CountNoise,
    KindPrecision,
    Told,
    Worth,
    of_support,
    with_tails,
)
from dither_shared.mechanisms import Cells, PureMechanism, SquareWave
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.rng import SCALE

Floats = Sequence[float]
Information = Callable[[Floats], list[float]]
"""M x, of x."""
OPEN = 1e-3
"""Each of the two open buckets gets this part of the range: no law is without anything there."""
LEFT, SOLVED = 1e-14, 1e-26
"""The part of |g|^2 that a solution leaves: of ranges, whose errors are right to seven digits then, and of a grid."""
ROUNDS_MAX = 2_000
TOLD = ("mean", "median")
MEAN_TOLD = "width of the mean's interval, as a part of the range"
MEDIAN_TOLD = "width of the median's interval, as a share of the people"


def std_errors(domain: NumberDomain, cells: Cells, n: int, told: tuple[str, ...] = TOLD) -> Mapping[str, float]:
    """Return the standard errors of what n >= 1 reports are asked for, in the domain's unit; of `told` alone."""
    step = 10.0**-domain.decimals / sqrt(n)
    return {name: step * sqrt(variance) for name, variance in _variances(domain, cells, told).items()}


def told_best(domain: NumberDomain, cells: Cells, n: int) -> Told:
    """Return how wide the mean's or, where that is less, the median's interval is: the same one for every n."""
    mean, *median = told_of(domain, cells, NUMBERS_MIN)
    better = bool(median) and median[0].part < mean.part
    return told_of(domain, cells, n)[better]


def told_of(domain: NumberDomain, cells: Cells, n: int) -> Sequence[Told]:
    """Return the widths of the mean's interval, as a part of the range, and of the median's, as a share of the people.

    In which part of its range a number lies is left open, by which the intervals are wider: the mean's for numbers that
    are spread evenly, which on a logarithmic scale lie mostly in the widest range; the median's for ranges that have
    equally many, as whoever writes the edges wants them.
    """
    whole = domain.edges[-1] - domain.edges[0]
    open_ = sum((high - low) ** 2 for low, high in pairwise(domain.edges)) / whole**2
    errors = {name: each * 10**domain.decimals / whole for name, each in std_errors(domain, cells, n).items()}
    if not isinstance(domain, Buckets):
        return (Told(MEAN_TOLD, SIDES * errors["mean"]),)
    least = 1 / (len(domain.edges) - 1)
    return (
        Told(MEAN_TOLD, open_ + SIDES * errors["mean"], open_),
        Told(MEDIAN_TOLD, least + SIDES * errors["median"], least),  # whose error is that of the share below it
    )


def share_error(domain: NumberDomain, cells: Cells) -> float:
    """Return the standard error of one report for the share of those with a number, of whom all have one."""
    shares = _evenly(domain, cells)
    return sqrt(_variance(_of_both(cells, shares), shares, [float(share == 0) for share in shares]))


def even_information(domain: NumberDomain, cells: Cells) -> tuple[Floats, Sequence[Floats]]:
    """Return the shares of numbers that are spread evenly, and the rows of M there, for one report."""
    shares = _evenly(domain, cells)
    information = _of_both(cells, shares)
    return shares, [information([float(place == at) for place in range(len(shares))]) for at in range(len(shares))]


@lru_cache(maxsize=64)
def _variances(domain: NumberDomain, cells: Cells, told: tuple[str, ...]) -> Mapping[str, float]:
    """Return variances times n, in steps squared."""
    edges = domain.edges
    whole = edges[-1] - edges[0]
    if isinstance(domain, Range):
        return {"mean": whole**2 * mean_variance(cells)}
    if isinstance(domain, Thresholds):
        return _of_thresholds(domain, cells)
    middles = [edges[0], *((low + high) / 2 for low, high in pairwise(edges)), edges[-1]]
    half = min(range(1, len(edges)), key=lambda place: abs(edges[place] - (edges[0] + edges[-1]) / 2))
    below = [float(whole if bucket <= half else 0) for bucket in range(len(middles))]
    shares = _evenly(domain, cells)
    information = _of_both(cells, shares)
    wanted = {name: places for name, places in zip(TOLD, (middles, below), strict=True) if name in told}
    return {name: _variance(information, shares, places) for name, places in wanted.items()}


def _evenly(domain: NumberDomain, cells: Cells) -> list[float]:
    """Return the shares of numbers that are spread evenly over the buckets, and those of the others that are told."""
    whole = OPEN * (domain.edges[-1] - domain.edges[0])
    widths = [whole, *(high - low for low, high in pairwise(domain.edges)), whole]
    *_, points = cells.parts
    others = PureMechanism.of(points.mechanism).d - len(widths)
    total = sum(widths)
    return [width / total for width in widths] + [0.0] * others


def mean_variance(cells: Cells) -> float:
    """Return n times the variance of the mean that one window tells, as parts of its range."""
    window, shares, places = _grid(cells)
    return _variance(_of_window(window, shares), shares, places, SOLVED)


def worths(domain: NumberDomain, cells: Cells) -> tuple[Worth, ...]:
    """Return what a made-up report is worth in the mean, as parts of the range, and in the share of a cohort.

    The weights of a shape's fit follow its counts. A memoized number's mean is the sum of its steps' shares, each by
    its width: w_j g(m_j) summed, with g(m) = m / (m + (n - m') / J) the part of one of J cohorts that m of all m'
    made-up devices are. As g is concave, that is at most g(max w m'): as if the mean had the part 1 / (J max w) of the
    reports. With equal steps that is all of them.
    """
    if isinstance(domain, Range):
        return (mean_worth(cells),)
    if not isinstance(domain, Thresholds):
        return (HONEST,)
    bit, edges = PureMechanism.of(cells.mechanism), domain.edges
    widest = Fraction(max(high - low for low, high in pairwise(edges)), edges[-1] - edges[0])
    mean = of_support("the mean", bit.p, bit.q, 1 / (domain.size * widest))
    return mean, of_support("a share above a point", bit.p, bit.q, Fraction(1, domain.size))


def mean_worth(cells: Cells) -> Worth:
    """Return what a made-up report is worth in the mean that one window tells, as parts of its range.

    The mean is read with weights that are best where all places are alike, whatever the counts: so it is the mean of
    w(y), with w = R^-1 A M^-1 x, R = diag(A f) for even f, and x the places. Rounded up to a billionth.
    """
    weights = _mean_weights(cells)
    return Worth("the mean, as a part of the range", _up(max(weights)), _up(-min(weights)))


def mean_moved(cells: Cells, *, at_an_end: bool = False) -> float:
    """Return the sum of squares of how far each count moves that mean, over the variance of what one report says of it.

    It is of numbers that are spread evenly, or that all lie at an end. A count moves n as well, so a weight counts from
    the mean.
    """
    window, shares, _ = _grid(cells)
    held = [1.0] + [0.0] * (window.d - 1) if at_an_end else shares
    weights, law = _mean_weights(cells), _law_of_window(window, held)
    mean = _product(weights, law) / sum(law)
    apart = [(weight - mean) ** 2 for weight in weights]
    return sum(apart) * sum(law) / _product(apart, law)


def _mean_weights(cells: Cells) -> list[float]:
    """Return w(y)."""
    window, shares, places = _grid(cells)
    solved = _solved(_of_window(window, shares), places, SOLVED)
    return list(map(truediv, _law_of_window(window, solved), _law_of_window(window, shares)))


def _grid(cells: Cells) -> tuple[SquareWave, Floats, Floats]:
    """Return the one window, even shares of its places, and the places as parts of its range."""
    window = SquareWave.of(cells.mechanism)
    return window, [1 / window.d] * window.d, [place / (window.d - 1) for place in range(window.d)]


def _up(weight: float) -> Fraction:
    return Fraction(ceil(weight * 10**9), 10**9)


def _of_thresholds(domain: Thresholds, cells: Cells) -> dict[str, float]:
    """Return those of bits, one for each step: of steps' areas, and of F in the middle step."""
    bit = PureMechanism.of(cells.mechanism)
    p, q = float(bit.p), float(bit.q)
    whole, begin, mean, middle = domain.edges[-1] - domain.edges[0], domain.edges[0], 0.0, 0.0
    for low, high in pairwise(domain.edges):
        rate = q + (p - q) * (1 - ((low + high) / 2 - begin) / whole)
        variance = domain.size * rate * (1 - rate) / (p - q) ** 2
        mean += (high - low) ** 2 * variance
        middle = variance if low - begin <= whole / 2 else middle
    return {"mean": mean, "median": middle * whole**2}


def _of_both(cells: Cells, shares: Floats) -> Information:
    """Return M of windows and points."""
    weights = [part.cells * part.weight for part in cells.parts]
    window, points = (part.mechanism for part in cells.parts)
    of_window = _of_window(SquareWave.of(window), shares, weights[0] / sum(weights))
    of_points = _of_points(TwoLevel.of(points), shares, weights[1] / sum(weights))
    return lambda x: list(map(add, of_window(x), of_points(x)))


def _of_points(points: TwoLevel, shares: Floats, weight: float) -> Information:
    """Return w A' diag(A f)^-1 A of points.

    Exact for GRR. The reports of PGR are taken for equally likely, and M is scaled so that f' M f = 1, as it is for
    every law: without that the errors of a skew f would be far off.
    """
    if not points.supports_one:
        same, other = points.law.information
        whole = other + (same - other) * _product(shares, shares)
        every, own = weight * other / whole, weight * (same - other) / whole
        return lambda x: [total + own * value for total in [every * sum(x)] for value in x]
    q, more = float(points.q), float(points.p - points.q)

    def law(x: Floats) -> list[float]:
        every = q * sum(x)
        return [every + more * value for value in x]  # A is its own transpose

    expected = [each / weight for each in law(shares)]
    return lambda x: law(list(map(truediv, law(x), expected)))


def _of_window(window: SquareWave, shares: Floats, weight: float = 1) -> Information:
    """Return w A' diag(A f)^-1 A of a window."""
    width, others = window.width, len(shares) - window.d
    outside, more = _levels(window)
    expected = [each / (weight * more) for each in _law_of_window(window, shares)]

    def information(x: Floats) -> list[float]:
        sums = [0.0, *accumulate(map(truediv, _law_of_window(window, x), expected))]
        every = outside / more * sums[-1]
        return [every + held for held in map(sub, sums[width:], sums)] + [sums[-1] / window.outputs / more] * others

    return information


def _law_of_window(window: SquareWave, shares: Floats) -> list[float]:
    """Return A f of a window, by output, over how much likelier an output is inside of an answer's window.

    An output may come of a run of places, and of all others: those without a place send any.
    """
    outside, more = _levels(window)
    placed, rest = shares[: window.d], [0.0] * (window.outputs - window.d)
    every = outside / more * sum(placed) + sum(shares[window.d :]) / window.outputs / more
    begun = list(accumulate(placed, initial=every))[1:]
    ended = [0.0, *rest, *accumulate(placed)]
    return list(map(sub, begun + [begun[-1]] * len(rest), ended))


def _levels(window: SquareWave) -> tuple[float, float]:
    """Return the probability of an output outside of an answer's window, and how much more one inside of it has."""
    outside = (1 - window.threshold / SCALE) / (window.outputs - window.width)
    return outside, window.threshold / SCALE / window.width - outside


def _variance(information: Information, shares: Floats, told: Floats, part: float = LEFT) -> float:
    """Return n times the variance of the average of what the first places tell, of those who are at one of them."""
    average = _product(told, shares)
    ratio = [value - average for value in told] + [0.0] * (len(shares) - len(told))
    return _product(ratio, _solved(information, ratio, part))


def _solved(information: Information, wanted: Floats, part: float) -> list[float]:
    """Return x with M x = wanted, M positive definite: by conjugate gradients (Hestenes, Stiefel 1952)."""
    solution, rest, along = [0.0] * len(wanted), list(wanted), list(wanted)
    left = _product(wanted, wanted)
    least = part * left
    for _ in range(ROUNDS_MAX):
        if left <= least:
            break
        image = information(along)
        step = left / _product(along, image)
        solution = [value + step * each for value, each in zip(solution, along, strict=True)]
        rest = [value - step * each for value, each in zip(rest, image, strict=True)]
        left, before = _product(rest, rest), left
        along = [value + left / before * each for value, each in zip(rest, along, strict=True)]
    return solution


def _product(a: Floats, b: Floats) -> float:
    """Return the sum of products, as far as both go."""
    return float(sum(map(mul, a, b)))


class NumberPrecision(KindPrecision[NumberDomain]):
    """Numbers."""

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of a bucket by the points alone, or of a step by its cohort: at most so much."""
        *_, last = cells.parts
        if isinstance(last.mechanism, SquareWave):
            return Fraction(mean_variance(cells))
        return PureMechanism.of(last.mechanism).noise_variance * cells.weights / last.weight

    def poisoning(self, domain: NumberDomain, cells: Cells) -> tuple[Worth, ...]:
        """Return that of the mean, as parts of the range, and of a cohort's share; of a shape no bound is known."""
        return worths(domain, cells)

    def std_errors(self, asked: Asked, n: int) -> Mapping[str, float]:
        """Return those of mean and median of n reports, in the unit, of numbers that are spread evenly."""
        return std_errors(NumberDomain.of(asked.domain), asked.cells, n)

    def tells(self, asked: Asked, n: int) -> Told:
        """Return how wide the mean's or, where that is less, the median's interval is: the same one for every n."""
        return told_best(NumberDomain.of(asked.domain), asked.cells, n)

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of numbers that are spread evenly, and of ones of which nearly all lie in one place.

        The latter has the tails of the noise in it, which errors of numbers allow for.
        """
        if isinstance(cells.parts[-1].mechanism, SquareWave):
            even, most = (mean_moved(cells, at_an_end=at_an_end) / n for at_an_end in (False, True))
            return sqrt(1 + noise.variance * even), sqrt(1 + TAILS * noise.variance * most)
        each = [(part.mechanism, max(1, n * part.weight // cells.weights)) for part in cells.parts]
        evenly = [noise.wider_even(mechanism.shape.size, reports) for mechanism, reports in each]
        rarely = [
            noise.wider(mechanism, reports) for mechanism, reports in each if isinstance(mechanism, PureMechanism)
        ]
        return min(evenly), with_tails(max(evenly + rarely))

    def reports_min(self, asked: Asked) -> int:
        """Return that of a mean, or of quantiles, too."""
        return MEANS_MIN if isinstance(asked.domain, Range) else NUMBERS_MIN
