"""Answer questions about dp-accounting 0.6, in its own environment: a JSON list on stdin, a JSON list on stdout.

    {"epsilons": [of each output], "delta"}
        -> {"pld": epsilon, "pld_low": epsilon, "zcdp": epsilon, "seconds": of both "pld" and "zcdp"}

"pld" composes the privacy loss distributions of randomized response on a grid of 1e-4, rounded up; "pld_low" is the
same rounded down, so the truth lies between the two. "zcdp" is its Renyi accountant's bound of an event of so much
zCDP, at its own list of orders.
"""

import json
import sys
import time
from collections import Counter
from functools import reduce
from math import exp
from typing import Any

import dp_accounting  # type: ignore[import-not-found]
from dp_accounting.pld import privacy_loss_distribution  # type: ignore[import-not-found]
from dp_accounting.rdp import RdpAccountant  # type: ignore[import-not-found]

GRID = 1e-4


def composed(epsilons: list[float], delta: float, pessimistic: bool) -> float:
    """Return the epsilon of all together, by privacy loss distributions."""
    each = [
        privacy_loss_distribution.from_randomized_response(
            2 / (1 + exp(epsilon)), 2, pessimistic_estimate=pessimistic, value_discretization_interval=GRID
        ).self_compose(times)
        for epsilon, times in Counter(epsilons).items()
    ]
    return float(reduce(lambda one, other: one.compose(other), each).get_epsilon_for_delta(delta))


def zcdp(epsilons: list[float], delta: float) -> float:
    """Return the epsilon of all together, by zCDP."""
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.ZCDpEvent(sum(epsilon**2 for epsilon in epsilons) / 2))
    return float(accountant.get_epsilon(delta))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answer one question."""
    epsilons, delta = question["epsilons"], question["delta"]
    started = time.perf_counter()
    found = {"pld": composed(epsilons, delta, True), "zcdp": zcdp(epsilons, delta)}
    seconds = time.perf_counter() - started
    return {**found, "pld_low": composed(epsilons, delta, False), "seconds": seconds}


if __name__ == "__main__":
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
