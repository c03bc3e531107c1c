"""How precisely mean and median of a number can be read: planning figures, for numbers that are spread evenly.

The reports of a part have the law A f, with f the shares of the places and A[y, v] = P[y | v]. From n reports, a share
w of them of that part, the least variance of an unbiased estimate of g . f is (Gauss, Markov, Aitken)

    [ g' M^-1 g - (g . f)^2 ] / n      M = sum over parts of  w A' diag(A f)^-1 A

which counts both the noise and that the devices are a sample. Plain floats: nothing here decides anything on a device.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, sqrt
from operator import mul

from dither_shared.accounting.poisoning import Worth
from dither_shared.cells import Cells
from dither_shared.domains.numbers import NumberDomain, Range, Thresholds
from dither_shared.mechanisms import PureMechanism, SquareWave
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.rng import SCALE

Matrix = list[list[float]]


def std_errors(domain: NumberDomain, cells: Cells, n: int) -> Mapping[str, float]:
    """Return the standard errors of what n >= 1 reports are asked for, in the domain's unit."""
    step = 10.0**-domain.decimals / sqrt(n)
    return {name: step * sqrt(variance) for name, variance in _variances(domain, cells).items()}


def _variances(domain: NumberDomain, cells: Cells) -> dict[str, float]:
    """Return variances times n, in steps squared."""
    whole = domain.edges[-1] - domain.edges[0]
    if isinstance(domain, Range):
        return {"mean": whole**2 * mean_variance(cells)}
    if isinstance(domain, Thresholds):
        return _of_thresholds(domain, cells)
    edges, last = domain.edges, len(domain.edges)
    middles = [edges[0], *((low + high) / 2 for low, high in pairwise(edges)), edges[-1]]
    # Evenly spread, which leaves a little to the open buckets: no law is without anything there.
    widths = [1e-3 * whole, *(high - low for low, high in pairwise(edges)), 1e-3 * whole]
    shares = [width / sum(widths) for width in widths]
    half = min(range(1, last), key=lambda place: abs(edges[place] - (edges[0] + edges[-1]) / 2))
    below = [float(bucket <= half) for bucket in range(last + 1)]
    matrix = _of_both(cells, shares)
    mean, at_half = (_variance(matrix, shares, functional) for functional in (middles, below))
    return {"mean": mean, "median": at_half * whole**2}


def mean_variance(cells: Cells) -> float:
    """Return n times the variance of the mean that one window tells, as parts of its range."""
    window = SquareWave.of(cells.mechanism)
    shares = [1 / window.d] * window.d
    return _variance(_of_window(window, shares), shares, [place / (window.d - 1) for place in range(window.d)])


def mean_worth(cells: Cells) -> Worth:
    """Return what a made-up report is worth in the mean that one window tells, as parts of its range.

    The mean is read with weights that are best where all places are alike, whatever the counts: so it is the mean of
    w(y), with w = R^-1 A M^-1 x, R = diag(A f) for even f, and x the places. Rounded up to a billionth.
    """
    window = SquareWave.of(cells.mechanism)
    shares = [1 / window.d] * window.d
    lower, forward = _forward(_of_window(window, shares), [place / (window.d - 1) for place in range(window.d)])
    solved = [0.0] * window.d
    for place in reversed(range(window.d)):
        rest = sum(lower[later][place] * solved[later] for later in range(place + 1, window.d))
        solved[place] = (forward[place] - rest) / lower[place][place]
    inside = window.threshold / SCALE / window.width
    outside = (1 - window.threshold / SCALE) / (window.outputs - window.width)
    weights = []
    for output in range(window.outputs):
        held = range(max(output - window.width + 1, 0), min(output + 1, window.d))
        outside_share = outside * sum(solved) + (inside - outside) * sum(solved[place] for place in held)
        weights.append(outside_share / (outside + (inside - outside) * len(held) / window.d))
    return Worth("the mean, as a part of the range", _up(max(weights)), _up(-min(weights)))


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


def _of_both(cells: Cells, shares: Sequence[float]) -> Matrix:
    """Return M of windows and points."""
    parts = [part.cells * part.weight / sum(each.cells * each.weight for each in cells.parts) for part in cells.parts]
    window, points = (part.mechanism for part in cells.parts)
    pairs = zip(_of_window(SquareWave.of(window), shares), _of_points(TwoLevel.of(points), shares), strict=True)
    return [[parts[0] * a + parts[1] * b for a, b in zip(one, other, strict=True)] for one, other in pairs]


def _of_points(points: TwoLevel, shares: Sequence[float]) -> Matrix:
    """Return A' diag(A f)^-1 A of points, of which nobody says the last ones, "other" among them.

    Exact for GRR. The reports of PGR are taken for equally likely, and M is scaled so that f' M f = 1, as it is for
    every law: without that the variance of a skew f would come out below zero.
    """
    places = range(len(shares))
    if not points.supports_one:
        same, other = points.law.information
        whole = other + (same - other) * _product(shares, shares)
        return [[(same if v == w else other) / whole for w in places] for v in places]
    q, more = float(points.q), float(points.p - points.q)
    each = [1 / (q + more * share) for share in shares]
    every = q**2 * sum(each) + q * (points.d - len(shares))
    return [
        [every + q * more * (each[v] + each[w]) + (more**2 * each[v] if v == w else 0.0) for w in places]
        for v in places
    ]


def _of_window(window: SquareWave, shares: Sequence[float]) -> Matrix:
    """Return A' diag(A f)^-1 A of a window: sums over outputs, of which each window is a run."""
    inside = window.threshold / SCALE / window.width
    outside = (1 - window.threshold / SCALE) / (window.outputs - window.width)
    mass = [0.0, *accumulate(shares)]
    sums = [0.0]
    for output in range(window.outputs):  # which the windows of the places first .. last - 1 hold
        first, last = max(output - window.width + 1, 0), min(output + 1, window.d)
        sums.append(sums[-1] + 1 / (outside + (inside - outside) * (mass[last] - mass[first])))
    every, more = outside**2 * sums[-1], inside - outside
    held = [sums[place + window.width] - sums[place] for place in range(window.d)]
    return [
        [
            every
            + outside * more * (held[v] + held[w])
            + more**2 * max(sums[min(v, w) + window.width] - sums[max(v, w)], 0.0)
            for w in range(window.d)
        ]
        for v in range(window.d)
    ]


def _variance(matrix: Matrix, shares: Sequence[float], functional: Sequence[float]) -> float:
    """Return g' M^-1 g - (g . f)^2, with M symmetric and positive definite: by Cholesky, L z = g and |z|^2."""
    _, solved = _forward(matrix, functional)
    return _product(solved, solved) - _product(shares, functional) ** 2


def _forward(matrix: Matrix, functional: Sequence[float]) -> tuple[Matrix, list[float]]:
    """Return L, row by row up to the diagonal, with M = L L', and z with L z = g."""
    lower: Matrix = []
    solved: list[float] = []
    for row, wanted in zip(matrix, functional, strict=True):
        line: list[float] = []
        for above in lower:
            line.append((row[len(line)] - _product(line, above[: len(line)])) / above[-1])
        line.append(sqrt(row[len(line)] - _product(line, line)))
        solved.append((wanted - _product(line[:-1], solved)) / line[-1])
        lower.append(line)
    return lower, solved


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the sum of products."""
    return float(sum(map(mul, a, b)))
