"""Timing two ways of the same work side by side."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object], budget_s: float = 0.5) -> float:
    """Return the seconds of one call: the best of several rounds, so that a busy machine disturbs less."""
    work()
    best, deadline = float("inf"), time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def each(work: Callable[[], object], calls: int = 100, budget_s: float = 0.5) -> float:
    """Return the seconds of one of many calls, for work too short for the clock."""

    def many() -> None:
        for _ in range(calls):
            work()

    return seconds(many, budget_s) / calls
