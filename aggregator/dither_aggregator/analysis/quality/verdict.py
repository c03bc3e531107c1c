"""The verdict on one day: whether its counts are those of devices that randomize as they should.

Each of five checks (`counted`) has a p-value: the smallest of its counts', times how many there are, and times five.
A day is implausible where one of these is at most ALPHA. So of a sound metric at most one day in a thousand is called
so, whatever people answer (Bonferroni; each tail is exact or bounded: `laws`). This is the rate of one metric and day:
somebody who looks at a thousand of them finds one where nothing is wrong.

Days are never checked together. The cohorts of the same devices are the same every day, so that over several days
their counts would always seem uneven; and memos repeat their noise.

Only what is clumsy is found: reports that no honest device sends so often, such as those of a broken build, of a
device that sends one report a thousand times, of all ones. Made-up reports that are drawn like honest ones pass, and
move an estimate all the same: `dither_shared.accounting.poisoning` says how far.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from threading import Condition
from typing import get_args

from cachetools import LRUCache, cached

from dither_aggregator.analysis.estimands import days_of, each_day, tally_of
from dither_aggregator.analysis.quality.counted import Check, Extremes, count
from dither_aggregator.analysis.reading_cache import Codec, once
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_shared.plan import Plan

ALPHA = 0.001
"""At most this part of a sound metric's days is called implausible."""
CHECKS: tuple[Check, ...] = get_args(Check)
SLOW_ENTRIES = 1 << 17
"""A tally with more takes tenths of a second: its checks are made beforehand, and kept."""
DAYS_MAX = 10_000
"""Verdicts that are kept, a few numbers each."""


@dataclass(frozen=True)
class Checked:
    """One check of one day, with the count that is farthest off."""

    check: Check
    tests: int
    """How many counts it looks at."""
    of: str
    """The name of the count, in words that follow a number."""
    observed: int
    low: float
    """The least that is expected, whatever is answered."""
    high: float
    p_value: float
    """The p-value of the worst count, times all counts of the check and the five checks of a day; at most 1."""

    @property
    def implausible(self) -> bool:
        """Whether honest devices hardly ever give such a count."""
        return self.p_value <= ALPHA


@dataclass(frozen=True)
class Quality:
    """One day of one plan."""

    epoch: date
    n: int
    checks: Sequence[Checked]
    """The checks that the plan has."""

    @property
    def worst(self) -> Checked | None:
        """The check that tells surest that something is wrong; None where nothing does."""
        return min((each for each in self.checks if each.implausible), key=lambda each: each.p_value, default=None)


def examine(plan: Plan, tally: Tally) -> Sequence[Checked]:
    """Return the checks of a day's tally; none of a day without reports."""
    found: dict[Check, list[Extremes]] = {}
    for each in count(plan.cells, tally.counts) if tally.n else ():
        if not (tally.left_out and each.check == "cells"):  # which are uneven then
            found.setdefault(each.check, []).append(each)
    return [_checked(plan, check, found[check]) for check in CHECKS if check in found]


def _checked(plan: Plan, check: Check, found: Sequence[Extremes]) -> Checked:
    tests = sum(each.tests for each in found)
    worst = min(found, key=lambda each: float(each.chances.min()))
    at = int(worst.chances.argmin())
    return Checked(
        check,
        tests,
        _named(plan, worst, at),
        int(worst.counts[at]),
        float(worst.low[at]),
        float(worst.high[at]),
        min(1.0, float(worst.chances[at]) * tests * len(CHECKS)),
    )


def _named(plan: Plan, counted: Extremes, at: int) -> str:
    """Return what is counted, in words that follow a number."""
    place, cell = int(counted.places[at]), "cohort" if plan.cells.lasting else "cell"
    if counted.check == "cells":
        return f"reports of {cell} {counted.cell + place}"
    if counted.check == "ones":
        return "bits that are set"
    if counted.check == "shares" and plan.values:
        return f"reports that support “{plan.values[place]}”"
    sentence = {
        "unused": f"reports that support the unused value {place}",
        "unused together": "times that reports support unused values",
    }.get(counted.check, f"reports that support place {place}")
    return f"{sentence} in {cell} {counted.cell}" if plan.cells.several else sentence


def days(store: Store, stored: StoredPlan, window: Window) -> Iterator[Quality]:
    """Yield each closed day of a window that has reports, the earliest first; those no longer kept are left out.

    Raises BadTally, and NotReady where some of them are not checked yet.
    """
    sealed, kept_from, finals = store.sealed(), store.tallies_from(), store.finals(stored.plan)
    closed = [each for each in days_of(store, stored, window, finals) if kept_from <= each[0] <= sealed]
    codec, slow = Codec((Quality, Checked), stored), stored.plan.cells.tally_size > SLOW_ENTRIES

    def check(of_day: tuple[date, str]) -> Quality:
        def made() -> Quality:
            return _once(store, stored, of_day[0])

        return once(store, stored, "quality", [of_day], [], made, codec, slow=slow, noun="checking the counts")

    yield from each_day(closed, check)


def _key(store: Store, stored: StoredPlan, day: date) -> tuple[object, ...]:
    return store.generation, stored.plan.metric, stored.plan.digest, day


@cached(LRUCache(DAYS_MAX), key=_key, condition=Condition())
def _once(store: Store, stored: StoredPlan, day: date) -> Quality:
    """Check a closed day, once: its counts do not change any more."""
    tally = tally_of(store, stored, Window.ending(day, 1))
    return Quality(day, tally.n, examine(stored.plan, tally))
