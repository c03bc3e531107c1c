"""Timing two ways of the same work side by side."""

import time
from collections.abc import Callable

Work = Callable[[], object]
Clock = Callable[[], float]
BUDGET_S = 0.5
"""How long one thing is measured."""


def in_turns(*works: Work, budget_s: float = 1.0, clock: Clock = time.perf_counter) -> list[float]:
    """Return the seconds of one call of each: the best of several rounds of all, so that what disturbs one disturbs
    the others, and a busy machine changes their ratio little."""
    for work in works:
        work()
    best, deadline = [float("inf")] * len(works), time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        for place, work in enumerate(works):
            started = clock()
            work()
            best[place] = min(best[place], clock() - started)
    return best


def seconds(work: Work, budget_s: float | None = None) -> float:
    """Return the seconds of one call."""
    return in_turns(work, budget_s=BUDGET_S if budget_s is None else budget_s)[0]


def each(work: Work, calls: int = 100, budget_s: float | None = None) -> float:
    """Return the seconds of one of many calls, for work too short for the clock."""
    return seconds(many(work, calls), budget_s) / calls


def many(work: Work, calls: int = 100) -> Work:
    """Return work that is done so many times, which the clock can tell."""

    def repeat() -> None:
        for _ in range(calls):
            work()

    return repeat
