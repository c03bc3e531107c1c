"""Too small to be honest: the fewest devices for which each statement keeps its level, by mechanism and epsilon.

A sum of n reports is nearly normal from n = 40 + 25 g^2 on, with g the skewness of a report's w (`functional`). So says
the two-sided term of Edgeworth's expansion, and 60 drawn cases. g is exact, and the larger one of two worlds: all
answers are given equally often, or nobody has what is summed (of several ticks the latter alone). A memoized metric
counts devices, and has the g of its permanent part.
"""

from collections.abc import Callable
from decimal import Decimal
from math import ceil, comb

import numpy as np
from scipy.stats import hypergeom

from dither_aggregator.analysis.functional import on_points
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.counting import hyperplane_sums
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from dither_shared.mechanisms import GRR, PrivSet, PureMechanism, SubsetSelection, choose
from dither_shared.mechanisms.mechanism import MemoizedPure

EPSILONS = ("0.5", "1", "2", "4", "8")
VALUES = (2, 16, 264, 1_024)
TICKS = 3
"""The most values that an answer of `choices` may hold."""
MEMO = 2
"""A permanent epsilon is so many times that of a report."""
SEED = 1
Statement = Callable[[PureMechanism], int]


def share(mechanism: PureMechanism) -> int:
    """One value: its intervals are exact where counts are small, and so are those of its differences."""
    return 1


def ratio(mechanism: PureMechanism) -> int:
    """One value over half of them, which are drawn by lot."""
    half = np.random.default_rng(SEED).permutation(_first(mechanism, (mechanism.d + 1) // 2))
    return max(needed(mechanism, _first(mechanism, 1)), needed(mechanism, half))


def at_random(mechanism: PureMechanism) -> int:
    """A sum of a fifth of the values, drawn by lot, and its difference between two windows."""
    return needed(mechanism, np.random.default_rng(SEED).permutation(_first(mechanism, _fifth(mechanism))))


def neighbours(mechanism: PureMechanism) -> int:
    """The same of a fifth that stand side by side in the order of the mechanism."""
    return needed(mechanism, _first(mechanism, _fifth(mechanism)))


STATEMENTS: dict[str, Statement] = {
    "share, its difference": share,
    "sum, its difference": at_random,
    "sum of neighbours": neighbours,
    "ratio": ratio,
}


def _fifth(mechanism: PureMechanism) -> int:
    return max(1, round(mechanism.d / 5))


def _first(mechanism: PureMechanism, number: int) -> Floats:
    return np.asarray(np.arange(mechanism.d) < number, dtype=np.float64)


def needed(mechanism: PureMechanism, among: Floats) -> int:
    """Return how many devices a sum of values needs, float64[d] of 0 and 1."""
    shot = mechanism.permanent if isinstance(mechanism, MemoizedPure) else mechanism
    everybody, others = np.full(shot.d, 1 / shot.d), (1 - among) / max((1 - among).sum(), 1)
    worlds = [others] if shot.ticks > 1 else [everybody] if among.all() else [everybody, others]
    return ceil(40 + 25 * max(abs(skewness(shot, among, world)) for world in worlds) ** 2)


def skewness(mechanism: PureMechanism, among: Floats, held: Floats) -> float:
    """Return that of how many of some values a report supports, where answers have these shares."""
    chances, values = law_of_sum(mechanism, among, held)
    away = values - chances @ values
    spread = float(chances @ away**2)
    return float(chances @ away**3) / spread**1.5 if spread > 1e-15 else 0.0


def law_of_sum(mechanism: PureMechanism, among: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Return the chances of numbers, and the numbers."""
    p, q, d, size = float(mechanism.p), float(mechanism.q), mechanism.d, int(among.sum())
    inside = float(held @ among)
    if isinstance(mechanism, GRR):
        return np.array([1 - (size * q + (p - q) * inside), size * q + (p - q) * inside]), np.array([0.0, 1.0])
    if mechanism.geometry is not None:
        padded = np.zeros(mechanism.shape.size)
        padded[:d] = held
        through = hyperplane_sums(padded, *mechanism.geometry)
        own = np.zeros(mechanism.shape.size)
        own[0] = 1.0
        on = hyperplane_sums(own, *mechanism.geometry).sum()  # points on a hyperplane
        chances = through * p / on + (1 - through) * (1 - p) / (mechanism.shape.size - on)
        return chances, on_points(mechanism, among)
    numbers = np.arange(size + 1, dtype=np.float64)
    if isinstance(mechanism, SubsetSelection):
        weight = mechanism.weight

        def subsets(of: int, taken: int) -> Floats:
            return np.asarray(hypergeom.pmf(numbers, d - 1, of, taken))

        holders = p * np.roll(subsets(size - 1, weight - 1), 1) + (1 - p) * subsets(size - 1, weight) if size else 0.0
        others = p * subsets(size, weight - 1) + (1 - p) * subsets(size, weight)
        return np.asarray(inside * holders + (1 - inside) * others), numbers
    if isinstance(mechanism, PrivSet):
        return _nobody_ticks(mechanism, size)
    bits = np.array([1.0])
    for _ in range(size - 1):
        bits = np.convolve(bits, [1 - q, q])
    of_holders, of_others = np.convolve(bits, [1 - p, p]), np.convolve(bits, [1 - q, q])
    return np.asarray(inside * of_holders + (1 - inside) * of_others), numbers


def _nobody_ticks(mechanism: PrivSet, size: int) -> tuple[Floats, Floats]:
    """Return the law of a sum of values that nobody ticks: of subsets that hold a tick, or none, all are as likely."""
    ticks, weight, of = mechanism.ticks, mechanism.weight, mechanism.d + mechanism.ticks
    every, without = comb(of, weight), comb(of - ticks, weight)
    chance = float(mechanism.p) * (every - without) / comb(of - 1, weight - 1)
    numbers = range(size + 1)
    hit = [
        comb(size, k) * (comb(of - size, weight - k) - comb(of - ticks - size, weight - k))
        for k in numbers[: weight + 1]
    ]
    missed = [comb(size, k) * comb(of - ticks - size, weight - k) for k in numbers[: weight + 1]]
    chances = [
        chance * one / (every - without) + (1 - chance) * other / without
        for one, other in zip(hit, missed, strict=True)
    ]
    return np.array(chances), np.arange(len(chances), dtype=np.float64)


def mechanism_of(d: int, epsilon: str, ticks: int | None = None, *, memo: bool = False) -> PureMechanism:
    """Return the mechanism that dither takes for so many values."""
    permanent = MEMO * Decimal(epsilon) if memo else None
    return choose(d, Decimal(epsilon), ticks=ticks, permanent=permanent)


def table() -> list[list[str]]:
    """Return the table's rows, as text: a metric and statement, and the number at each epsilon."""
    rows = []
    metrics: list[tuple[str, tuple[int, int | None, bool]]]
    metrics = [(f"{d:,} values" if d > 2 else "yes or no", (d, None, False)) for d in VALUES]
    metrics += [(f"16 values, up to {TICKS} ticks", (16, TICKS, False)), ("16 values, memoized", (16, None, True))]
    for name, (d, ticks, memo) in metrics:
        made = [mechanism_of(d, epsilon, ticks, memo=memo) for epsilon in EPSILONS]
        rows.append([name, "mechanism", *(each.name for each in made)])
        for statement, fewest in STATEMENTS.items():
            if d == 2 and fewest in (at_random, neighbours):
                continue
            rows.append(["", statement, *(f"{fewest(each):,}" for each in made)])
    rows.append(["numbers", "mean alone", *[f"{MEANS_MIN:,}"] * len(EPSILONS)])
    rows.append(["", "mean, quantiles", *[f"{NUMBERS_MIN:,}"] * len(EPSILONS)])
    return rows


def lines() -> list[str]:
    """Return the table as the page has it."""
    heads = ["", "", *(f"epsilon {epsilon}" for epsilon in EPSILONS)]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *table())]


def run() -> None:
    """Print the table, and how often intervals hold where few devices send many reports."""
    print("\n".join([*lines(), *few_devices()]))


def few_devices() -> list[str]:
    """Return how often intervals hold of what few of few devices have, of fresh noise that they send again and again.

    A flag at epsilon 4; 3,000 runs, so that a figure is off by 2 points at most (2.5 standard errors).
    """
    flag, rng, runs = GRR.for_epsilon(2, Decimal(4)), np.random.default_rng(SEED), 3_000
    p, q = float(flag.p), float(flag.q)
    found = []
    for devices, days, true in ((100, 31, 0.01), (300, 7, 0.01), (1_000, 31, 0.01)):
        held = days * rng.binomial(devices, true, size=runs)
        n = devices * days
        yes = rng.binomial(held, p) + rng.binomial(n - held, q)
        inside = 0
        for count in yes.tolist():
            shares = estimate_shares(flag, np.array([n - count, count]), n, repeats=days)
            inside += bool(shares.lower[1] <= true <= shares.upper[1])
        found.append(f"{devices:,} devices, {days} days, {true:.0%}: {inside / runs:.0%} hold")
    return found
