"""The error of what the plan picks: measured, by formula, and beside the bound.

Tallies are drawn from the exact law of each mechanism (tests/support/tallies.py), whose real randomizer passes its law
tests. The mean square error over all values of R repetitions has a relative standard deviation of sqrt(2 / (R k)), with
k the number of values that err independently: for a tolerance of 5 % at five of them R k = 20,000 are needed, which
REPETITIONS has for each d (k = 1 for two values).
"""

from collections.abc import Callable
from decimal import Decimal
from math import exp

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.counting import support_counts
from dither_shared.mechanisms import PureMechanism, choose
from tests.support.tallies import draw_tallies

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N = 10_000
EPSILONS = ("0.5", "1", "2", "4")
REPETITIONS = {2: 20_000, 16: 2_000, 128: 200, 1024: 40}
MSE_TOLERANCE = 0.05
BOUND_MAX = {(d, epsilon): 1.03 for d in (1024,) for epsilon in EPSILONS} | {(128, "4"): 0.90, (16, "1"): 0.87}


def zipf(d: int) -> Counts:
    """Return how many of N devices have each value, by Zipf's law of exponent 1.1, rounded to sum to N."""
    weights = 1 / np.arange(1, d + 1) ** 1.1
    return _whole(weights / weights.sum())


def uniform(d: int) -> Counts:
    """Return equal counts, rounded to sum to N."""
    return _whole(np.full(d, 1 / d))


TRUTHS: dict[str, Callable[[int], Counts]] = {"zipf": zipf, "uniform": uniform}


def _whole(shares: Floats) -> Counts:
    ends = np.round(np.cumsum(shares) * N).astype(np.int64)
    return np.diff(ends, prepend=0)


def run() -> None:
    """Print the table; raise AssertionError when an aim is missed."""
    missed = _print_ours()
    assert not missed, "; ".join(missed)


def _print_ours() -> list[str]:
    print(f"\n  {N:,} reports; MSE: measured beside the formula; bound: the formula beside 4 e^eps / (n (e^eps - 1)^2)")
    print(
        f"  {'eps':>4} {'d':>5}  {'truth':8} {'mechanism':10}{'runs':>7}{'MSE':>7}{'bound':>8}{'Wald':>9}{'exact':>9}"
    )
    missed = []
    for epsilon in EPSILONS:
        for d, repetitions in REPETITIONS.items():
            mechanism = choose(d, Decimal(epsilon))
            for name, truth in TRUTHS.items():
                mse, bound, wald, exact = measure(mechanism, float(epsilon), truth(d), repetitions)
                print(
                    f"  {epsilon:>4} {d:5}  {name:8} {mechanism.name:10}{repetitions:7,}{mse:7.3f}{bound:8.3f}"
                    f"{wald:9.2%}{exact:9.2%}"
                )
                holds = {
                    "MSE": abs(mse - 1) <= MSE_TOLERANCE,
                    "bound": bound <= BOUND_MAX.get((d, epsilon), float("inf")),
                    "Wald coverage": 0.94 <= wald <= 0.96,
                    "exact coverage": exact >= 0.945,
                }
                missed += [f"{what} at eps {epsilon}, d {d}, {name}" for what, held in holds.items() if not held]
    return missed


def measure(
    mechanism: PureMechanism, epsilon: float, counts: Counts, repetitions: int
) -> tuple[float, float, float, float]:
    """Return measured MSE by formula, formula by bound, and the coverage of Wald and of exact intervals."""
    rng = np.random.default_rng([mechanism.charge, mechanism.d, int(counts.max())])
    n, e = int(counts.sum()), exp(epsilon)
    truth = counts / n
    tallies = draw_tallies(mechanism, np.tile(counts, (repetitions, 1)), rng)
    drawn = [support_counts(mechanism, tally, n) for tally in tallies]
    # All repetitions at once, as if they were further values: each estimate is of its own count alone.
    support, truth = np.concatenate(drawn), np.tile(truth, repetitions)
    wald = estimate_shares(mechanism, support, n, method="wald")
    exact = estimate_shares(mechanism, support, n, method="exact")
    square = float(((wald.estimate - truth) ** 2).mean())
    held = float(((wald.lower <= truth) & (truth <= wald.upper)).mean())
    held_exactly = float(((exact.lower <= truth) & (truth <= exact.upper)).mean())
    formula = float(mechanism.average_variance) / n
    bound = 4 * e / (n * (e - 1) ** 2)
    return square / formula, formula / bound, held, held_exactly
