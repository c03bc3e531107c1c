"""The costs of numbers: a report on the device, and all statistics of a day on the aggregator."""

import secrets
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np

from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.numbers import Numbers, fit_tally
from dither_aggregator.analysis.numeric.bounds import Bounds, quantile_bounds
from dither_aggregator.analysis.reading import View
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import OTHER, Values
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import PureMechanism, choose
from dither_shared.plan import Plan
from dither_shared.rng import Rng
from tests.benchmarks.timing import each, seconds
from tests.support.drawn_numbers import DAY, draw_numbers, places_of, read_numbers, stored_number

REPORT_MAX = 2.0
"""Times what a report of a choice takes."""
REPORT_AIM_US = 10.0
DAY_MAX_S = 0.6
"""Seconds of one core: a machine that is busy with other things takes longer."""
ROUNDS = 3
NUMBER = 37.25
LINES = {
    "fresh": ("low = 0\nhigh = 62\nbuckets = 62", ""),
    "mean alone": ('low = 0\nhigh = 62\nasks = ["mean"]', ""),
    "memoized": ("low = 0\nhigh = 64\nbuckets = 16", "3"),
}
VALUES = 64


def print_costs() -> list[str]:
    """Print both tables; return what is missed."""
    return [*_print_reports(), *_print_days()]


def _print_reports() -> list[str]:
    print(f"\n  a report, epsilon 1: microseconds to read, place and randomize a number; a choice of {VALUES} values")
    choice_us = 1e6 * each(_choosing())
    print(f"  {'choice':12}{choice_us:8.2f}")
    missed = []
    for name, (lines, memo) in LINES.items():
        us = 1e6 * each(_reporting(stored_number(lines, memo=memo).plan))
        print(f"  {name:12}{us:8.2f}{us / choice_us:8.2f} times a choice{_beside_aim(us)}")
        if us > REPORT_MAX * choice_us:
            missed.append(f"a report of a number, {name}, takes {us / choice_us:.2f} times a choice")
    return missed


def _beside_aim(us: float) -> str:
    return f"   aim {REPORT_AIM_US:.0f}{'' if us <= REPORT_AIM_US else ', MISSED'}"


def _reporting(plan: Plan) -> Callable[[], object]:
    """Return what makes a report of one number under a plan: in a cell of its own, or for good in the first."""
    rng, kind, cells = Rng(secrets.randbits), plan.kind, plan.cells

    def report() -> int:
        cell = 0 if cells.lasting else cells.draw(rng)
        answer = kind.class_of(kind.read(NUMBER, plan.domain), plan.domain, cells, cell, rng)
        return cells.mechanism_of(cell).randomize(answer, rng)

    return report


def _choosing() -> Callable[[], object]:
    """Return what makes a report of a choice."""
    rng, kind = Rng(secrets.randbits), KINDS["choice"]
    names = tuple(f"value {place}" for place in range(VALUES - 1))
    domain, mechanism = Values((*names, OTHER)), choose(VALUES, Decimal(1))
    assert isinstance(mechanism, PureMechanism)

    def report() -> int:
        read = kind.read(names[3], domain)
        assert isinstance(read, tuple)
        return mechanism.randomize(mechanism.class_of(read), rng)

    return report


def _print_days() -> list[str]:
    print(
        "\n  all statistics of a day of 100,000 reports: milliseconds of a core; a scan tries all places of a quantile"
    )
    print(f"  {'':22}{'cold':>8}{'a scan':>9}{'from the cache':>16}")
    missed = []
    for name, (lines, memo) in LINES.items():
        for epsilon in ("0.5", "4"):
            stored = stored_number(lines, epsilon=epsilon, memo=memo and "6")
            cold_s, scan_s, cached_s = _day(stored)
            scan = f"{1e3 * scan_s:9.0f}" if scan_s else f"{'-':>9}"
            print(f"  {f'{name}, eps {epsilon}':22}{1e3 * cold_s:8.1f}{scan}{1e3 * cached_s:16.3f}")
            if cold_s > DAY_MAX_S:
                missed.append(f"a day of {name} at eps {epsilon} takes {cold_s:.2f} s, more than {DAY_MAX_S:g}")
    return missed


def _day(stored: StoredPlan) -> tuple[float, float, float]:
    """Return the seconds of a reading, of one whose quantiles are found by trying all places, and of a kept one."""
    places = places_of(stored.plan)
    shares = 1.0 + np.arange(places) % 7
    tally = draw_numbers(stored.plan, shares / shares.sum(), 100_000, np.random.default_rng(1))
    names = Numbers().names(stored)

    def cold() -> object:
        return Numbers().read(stored, DAY, tally, View(), provisional=False, snapshot=None)

    cold_s = _cpu_s(cold)
    scan_s = cold_s + (len(names) - 1) * _scan_s(stored, tally) if len(names) > 1 else 0.0
    return cold_s, scan_s, seconds(partial(read_numbers, stored, tally))


def _cpu_s(work: Callable[[], object]) -> float:
    """Return the seconds of a core that a call takes, at best."""
    taken = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def _scan_s(stored: StoredPlan, tally: Tally) -> float:
    """Return how many more seconds a quantile takes where every place is tried, not a few by halving."""
    bounds = Bounds(fit_tally(stored, tally, View()), Z)
    is_number, places = bounds.fit.channel.places.is_number, bounds.fit.channel.places.numbers
    up_to = np.tril(np.ones((places, len(is_number)))) - 0.5 * is_number

    def scan() -> object:
        return [(bounds.may_be(each), bounds.may_be(-each)) for each in up_to]

    return max(_cpu_s(scan) - _cpu_s(partial(quantile_bounds, bounds, 0.5)), 0.0)
