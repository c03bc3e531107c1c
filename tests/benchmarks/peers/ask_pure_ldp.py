"""Answer questions about pure-ldp 1.2, in its own environment: a JSON list on stdin, a JSON list on stdout.

    {"mechanism", "d", "epsilon"}
        -> {"randomize_us": a value, "fold_us": a report, "estimate_ms": all d values, "n": reports estimated from}

n is 10,000, or fewer where folding so many would take too long. Estimating works on the folded counts, so its time does
not depend on n, except for "hadamard", which keeps the reports as a list and counts them when it estimates.

"hadamard" is its Hadamard response: a transform for d > 128, a slow double loop below. Up to epsilon 1 it breaks from
Python 3.12 on, which no longer takes a float for `random.randint`.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer  # type: ignore[import-not-found]
from pure_ldp.frequency_oracles.hadamard_response import (  # type: ignore[import-not-found]
    HadamardResponseClient,
    HadamardResponseServer,
)
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer  # type: ignore[import-not-found]
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer  # type: ignore[import-not-found]

Answer = dict[str, Any]
REPORTS = 10_000
CALLS = 100
BUDGET_S = 1.0


def direct(epsilon: float, d: int) -> tuple[Any, Any]:
    """Return its client and server for generalised randomised response."""
    return DEClient(epsilon, d), DEServer(epsilon, d)


def unary(epsilon: float, d: int, optimized: bool) -> tuple[Any, Any]:
    """Return its client and server for unary encoding, optimized or symmetric."""
    return UEClient(epsilon, d, use_oue=optimized), UEServer(epsilon, d, use_oue=optimized)


def hashing(epsilon: float, d: int) -> tuple[Any, Any]:
    """Return its client and server for optimized local hashing."""
    return LHClient(epsilon, d, use_olh=True), LHServer(epsilon, d, use_olh=True)


def hadamard(epsilon: float, d: int) -> tuple[Any, Any]:
    """Return its client and server for Hadamard response; above epsilon 1 they share the server's permutation."""
    server = HadamardResponseServer(epsilon, d)
    return HadamardResponseClient(epsilon, d, server.get_hash_funcs()), server


MECHANISMS: dict[str, Callable[[float, int], tuple[Any, Any]]] = {
    "grr": direct,
    "oue": partial(unary, optimized=True),
    "sue": partial(unary, optimized=False),
    "olh": hashing,
    "hadamard": hadamard,
}


def estimate_all(server: Any, d: int) -> Any:
    """Return the server's d counts, computed afresh: otherwise it answers a second time from its cache."""
    server.last_estimated = 0
    return server.estimate_all(range(1, d + 1), suppress_warnings=True)  # its values count from 1


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
    """Time the three steps, each on its own."""
    make, d, epsilon = MECHANISMS[question["mechanism"]], question["d"], question["epsilon"]
    client, server = make(epsilon, d)
    values = [1 + place % d for place in range(CALLS)]
    randomize_s = best_s(lambda: [client.privatise(value) for value in values]) / CALLS
    reports = [client.privatise(value) for value in values]
    fold_s = best_s(lambda: server.aggregate_all(reports)) / CALLS
    server.reset()
    n = max(CALLS, min(REPORTS, int(BUDGET_S / fold_s)))
    server.aggregate_all(client.privatise(1 + place % d) for place in range(n))
    estimate_s = best_s(lambda: estimate_all(server, d))
    return {"randomize_us": randomize_s * 1e6, "fold_us": fold_s * 1e6, "estimate_ms": estimate_s * 1e3, "n": n}


def answer(question: dict[str, Any]) -> Answer:
    """Answer one question; a mechanism that breaks must not silence the others."""
    if question["mechanism"] not in MECHANISMS:
        return {"error": f"pure-ldp has no {question['mechanism']}"}
    try:
        return speed(question)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
