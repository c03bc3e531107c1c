"""Answer questions about multi-freq-ldpy 0.2.5, in its own environment: a JSON list on stdin, a JSON list on stdout.

    {"mechanism", "d", "epsilon"}
        -> {"randomize_us": a value, "fold_us": null, "estimate_ms": all d values, "n": reports estimated from}

fold_us is null and estimate_ms contains the folding: an aggregator takes the list of all reports. n is 10,000, or fewer
where that would take too long; estimate_ms grows in proportion to n.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from multi_freq_ldpy.pure_frequency_oracles.GRR import (  # type: ignore[import-not-found]
    GRR_Aggregator_MI,
    GRR_Client,
)
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client  # type: ignore[import-not-found]
from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client  # type: ignore[import-not-found]
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client  # type: ignore[import-not-found]

Answer = dict[str, Any]
Pair = tuple[Callable[[int], Any], Callable[[list[Any]], Any]]
REPORTS = 10_000
CALLS = 100
BUDGET_S = 1.0


def plain(client: Any, aggregator: Any, epsilon: float, d: int) -> Pair:
    """Return the randomizer and the estimator of a mechanism that needs nothing but d and epsilon."""
    return lambda value: client(value, d, epsilon), lambda reports: aggregator(reports, d, epsilon)


def unary(optimal: bool, epsilon: float, d: int) -> Pair:
    """Return the randomizer and the estimator of unary encoding, optimized or symmetric."""
    return (
        lambda value: UE_Client(value, d, epsilon, optimal),
        lambda reports: UE_Aggregator_MI(reports, epsilon, optimal),
    )


MECHANISMS: dict[str, Callable[[float, int], Pair]] = {
    "grr": partial(plain, GRR_Client, GRR_Aggregator_MI),
    "oue": partial(unary, True),
    "sue": partial(unary, False),
    "ss": partial(plain, SS_Client, SS_Aggregator_MI),
    "olh": partial(plain, LH_Client, LH_Aggregator_MI),
}


def best_s(work: Callable[[], object]) -> float:
    """Return the seconds of one call: the best of all rounds that fit in the budget, after one to warm up."""
    work()
    best, deadline = float("inf"), time.perf_counter() + BUDGET_S
    while best == float("inf") or time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def speed(question: dict[str, Any]) -> Answer:
    """Time both steps, each on its own; numba compiles while warming up."""
    d = question["d"]
    randomize, aggregate = MECHANISMS[question["mechanism"]](float(question["epsilon"]), d)
    values = [place % d for place in range(CALLS)]
    randomize_s = best_s(lambda: [randomize(value) for value in values]) / CALLS
    sample = [randomize(value) for value in values]
    n = max(CALLS, min(REPORTS, int(BUDGET_S / best_s(lambda: aggregate(sample)) * CALLS)))
    reports = [randomize(place % d) for place in range(n)]
    estimate_s = best_s(lambda: aggregate(reports))
    return {"randomize_us": randomize_s * 1e6, "fold_us": None, "estimate_ms": estimate_s * 1e3, "n": n}


def answer(question: dict[str, Any]) -> Answer:
    """Answer one question; a mechanism that breaks must not silence the others."""
    if question["mechanism"] not in MECHANISMS:
        return {"error": f"multi-freq-ldpy has no {question['mechanism']}"}
    try:
        return speed(question)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
