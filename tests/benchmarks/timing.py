"""Timing two ways of the same work side by side."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object], budget_s: float = 1.0) -> float:
    """Return the seconds of one call: the best of several rounds, so that a busy machine disturbs less."""
    work()
    best, deadline = float("inf"), time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def row(name: str, ours_s: float, naive_s: float, unit: str) -> None:
    """Print one line: seconds of ours and of the naive version for one unit, and their ratio."""
    ours, naive = f"{ours_s * 1e6:9.3f} us a {unit}", f"naive {naive_s * 1e6:9.3f} us"
    print(f"  {name:20} {ours}, {naive}: {naive_s / ours_s:6.1f} times faster")
