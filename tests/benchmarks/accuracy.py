"""The error of what the plan picks: measured, by formula, beside the bound, and beside the peers on the same truth.

Tallies are drawn from the exact law of each mechanism (tests/support/tallies.py), whose real randomizer passes its law
tests. The mean square error over all values of R repetitions has a relative standard deviation of sqrt(2 / (R k)), with
k the number of values that err independently: for a tolerance of 5 % at five of them R k = 20,000 are needed, which
REPETITIONS has for each d (k = 1 for two values).
"""

from collections.abc import Callable
from decimal import Decimal
from math import exp, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.normalise import norm_sub
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.counting.supports import support_counts
from dither_shared.mechanisms import PureMechanism, choose
from tests.benchmarks.peers import ask
from tests.support.tallies import draw_tallies

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N = 10_000
EPSILONS = ("0.5", "1", "2", "4")
REPETITIONS = {2: 20_000, 16: 2_000, 128: 200, 1024: 40}
MSE_TOLERANCE = 0.05
BOUND_MAX = {(d, epsilon): 1.03 for d in (1024,) for epsilon in EPSILONS} | {(128, "4"): 0.90, (16, "1"): 0.87}
PEER_REPETITIONS = 20
PEERS = (("pure_ldp", "grr"), ("pure_ldp", "oue"), ("multi_freq_ldpy", "grr"), ("multi_freq_ldpy", "oue"))


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
    """Print both tables; raise AssertionError when an aim is missed."""
    missed = _print_ours()
    _print_peers()
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


# Beside the peers.


def _print_peers() -> None:
    print(f"\n  the same truth and n, {PEER_REPETITIONS} runs of each library's real code (dither: exact law)")
    print("  top: what is reported of the most frequent value on average, and how many standard errors that is off;")
    print("  rms: the root of the mean square error over all values, in points")
    cases = [(epsilon, d, name) for epsilon in EPSILONS for d in REPETITIONS for name in TRUTHS]
    theirs = {
        (peer, mechanism): ask(
            peer,
            [
                {
                    "what": "estimate",
                    "mechanism": mechanism,
                    "d": d,
                    "epsilon": float(epsilon),
                    "counts": TRUTHS[name](d).tolist(),
                    "repetitions": PEER_REPETITIONS,
                    "seed": 1,
                }
                for epsilon, d, name in cases
            ],
            timeout_s=3600,
        )
        for peer, mechanism in PEERS
    }
    for place, (epsilon, d, name) in enumerate(cases):
        counts = TRUTHS[name](d)
        print(f"  eps {epsilon}, d {d}, {name}: true top {counts.max() / N:.2%}")
        raw, shifted = _ours(d, epsilon, counts)
        print(_peer_line("dither " + choose(d, Decimal(epsilon)).name, {"estimates": raw}, counts))
        print(_peer_line("  the same, norm_sub", {"estimates": shifted}, counts))
        for (peer, mechanism), answers in theirs.items():
            print(_peer_line(f"{peer} {mechanism}", answers[place], counts))


def _ours(d: int, epsilon: str, counts: Counts) -> tuple[list[Floats], list[Floats]]:
    """Return raw estimates, and normalised ones to stand beside a peer that clips."""
    mechanism = choose(d, Decimal(epsilon))
    rng = np.random.default_rng([mechanism.charge, d, int(counts.max())])
    tallies = draw_tallies(mechanism, np.tile(counts, (PEER_REPETITIONS, 1)), rng)
    supports = [support_counts(mechanism, tally, N) for tally in tallies]
    raw = [estimate_shares(mechanism, support, N).estimate for support in supports]
    return raw, [norm_sub(mechanism, support, N).shares for support in supports]


def _peer_line(label: str, answer: dict[str, Any], counts: Counts) -> str:
    if "error" in answer:
        return f"    {label:22} {answer['error']}"
    estimates, truth = np.array(answer["estimates"]), counts / N
    top = int(counts.argmax())
    mean, spread = estimates[:, top].mean(), estimates[:, top].std(ddof=1) / sqrt(len(estimates))
    rms = sqrt(((estimates - truth) ** 2).mean())
    return f"    {label:22} top {mean:8.2%} ({(mean - truth[top]) / spread:+6.1f})   rms {100 * rms:8.3f}"
