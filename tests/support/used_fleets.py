"""Fleets of devices that come, are used, stay away and go, week by week, and the reports of the month of first use."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.analysis.people import Month, month_after, periods_of
from dither_aggregator.analysis.reading import reports_possible
from dither_aggregator.store import Tally
from dither_shared.measures import cohort_of
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.mechanism import MemoizedPure
from tests.support.laws import law_of_class, pure, repeats
from tests.support.measured import measured
from tests.support.sites import Site, site_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FIRST = date(2026, 1, 1)
"""A day on which a week of devices begins."""
ARRIVES = (0.85, 0.10, 0.02)
"""The parts of reports that come in their own week, and one and two later; the others never come."""


@dataclass(frozen=True)
class World:
    """How devices of a fleet live. All are parts of 1 a week, but `installs`, in devices a week."""

    installs: float = 300.0
    growth: float = 0.01
    weeks: int = 44
    quits: tuple[float, float] = (0.25, 0.01)
    """How many of two halves of the devices are used no more, each week: those who try it and those who stay."""
    used: float = 0.7
    season: float = 0.4
    """How much less everybody uses it in four weeks of the summer, and in one of the winter."""
    reinstalls: float = 0.003
    refuses: float = 0.2
    clocks: float = 0.01
    """The part of all devices whose clock is wrong by 1 to 6 days."""
    away: float = 0.01
    """So many begin, each week, to stay away for 2 to 6 weeks; what they had to send leaves when they are back."""


@dataclass(frozen=True)
class Fleet:
    """The truth of a fleet, and the reports that came of it."""

    used: Ints
    """How many devices were used, by week, those that refused included."""
    truth: Ints
    """The same of those that agreed, by week and month of first use since FIRST's."""
    came: Ints
    """Their reports by week and device, int64[weeks, devices]."""
    month: Ints
    """The month of first use of each device, since FIRST's."""


def live(world: World, rng: np.random.Generator) -> Fleet:
    """Draw the life of a fleet."""
    weeks = world.weeks
    arrivals = rng.poisson(world.installs * (1 + world.growth) ** np.arange(weeks))
    begins = np.repeat(np.arange(weeks), arrivals)
    day = rng.integers(7, size=len(begins))
    devices = len(begins)
    wrong = np.where(rng.random(devices) < world.clocks, rng.integers(-6, 7, size=devices), 0)
    agrees = rng.random(devices) >= world.refuses
    quits = np.where(rng.random(devices) < 0.5, *world.quits)
    eager = rng.beta(4, 4 * (1 / world.used - 1), size=devices)
    ends = begins + rng.geometric(quits + world.reinstalls * (1 - quits))
    begins, ends, day, wrong, agrees, eager = _reinstalled(
        world, rng, quits, (begins, ends, day, wrong, agrees, eager), weeks
    )
    devices = len(begins)
    quiet = np.ones(weeks)
    quiet[26:30] = quiet[51:52] = 1 - world.season
    back = np.zeros(devices, dtype=np.int64)
    used = np.zeros((weeks, devices), dtype=bool)
    for week in range(weeks):
        leaves = (rng.random(devices) < world.away) & (back <= week)
        back = np.where(leaves, week + rng.integers(2, 7, size=devices), back)
        there = (begins <= week) & (week < ends) & (back <= week)
        used[week] = there & ((rng.random(devices) < eager * quiet[week]) | (begins == week))
    on = np.array([_month_of(int(week), int(spot)) for week, spot in zip(begins, day + wrong, strict=True)])
    month = np.clip(on, 0, None)
    truth = np.zeros((weeks, int(month.max()) + 1), dtype=np.int64)
    for week in range(weeks):
        np.add.at(truth[week], month[used[week] & agrees], 1)
    return Fleet(used.sum(axis=1), truth, _come(used & agrees, wrong, rng), month)


def _reinstalled(
    world: World, rng: np.random.Generator, quits: Floats, fleet: tuple[npt.NDArray[Any], ...], weeks: int
) -> tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.bool_], Floats]:
    """Add what is a new device of the same person, from the week on in which the one before was erased."""
    begins, ends, *rest = fleet
    again = rng.random(len(begins)) < world.reinstalls / (quits + world.reinstalls)
    again &= np.asarray(ends < weeks)
    new = np.asarray(ends)[again]
    lasts = new + rng.geometric(quits[again] + world.reinstalls)
    joined = [np.concatenate([np.asarray(each), np.asarray(each)[again]]) for each in rest]
    return np.concatenate([begins, new]), np.concatenate([ends, lasts]), *joined  # type: ignore[return-value]


def _month_of(week: int, day: int) -> int:
    on = FIRST + timedelta(days=7 * week + day)
    return 12 * (on.year - FIRST.year) + on.month - FIRST.month


def _come(used: npt.NDArray[np.bool_], wrong: Ints, rng: np.random.Generator) -> Ints:
    """Draw in which week each report comes: late, or by a clock that is wrong in the week beside it."""
    weeks, devices = used.shape
    came = np.zeros((weeks, devices), dtype=np.int64)
    week, device = np.nonzero(used)
    late = rng.choice(4, p=[*ARRIVES, 1 - sum(ARRIVES)], size=len(week))
    shifts = (wrong[device] != 0) & (rng.random(len(week)) < np.abs(wrong[device]) / 7)
    comes = week + np.where(shifts, -np.sign(wrong[device]), late)
    there = (late < 3) & (comes >= 0) & (comes < weeks)
    np.add.at(came, (comes[there], device[there]), 1)
    return came


def cut_off(fleet: Fleet, weeks: range, part: float, rng: np.random.Generator) -> Fleet:
    """Return a fleet of which so many reports did not get through in some weeks: each device kept one of its own.

    It sends that with its next report after these weeks.
    """
    came = fleet.came.copy()
    out = slice(weeks.start, weeks.stop)
    lost = rng.binomial(came[out], part)
    came[out] -= lost
    there = came[weeks.stop :] > 0
    kept = np.flatnonzero(lost.any(axis=0) & there.any(axis=0))
    came[weeks.stop + there[:, kept].argmax(axis=0), kept] += 1
    return replace(fleet, came=came)


def memo_laws(mechanism: PureMechanism) -> tuple[Floats, Floats]:
    """Return the law of the memo of each value, and that of a report of each memo."""
    assert isinstance(mechanism, MemoizedPure)
    size = mechanism.shape.size
    memos, reports = np.zeros((mechanism.d, size)), np.zeros((size, size))
    for value in range(mechanism.d):
        for symbol, probability in law_of_class(mechanism.first_stage, value).items():
            memos[value, symbol] = probability
    for memo in range(size):
        for symbol, probability in repeats(mechanism, memo).items():
            reports[memo, symbol] = probability
    return memos, reports


def counted(
    fleet: Fleet, mechanism: PureMechanism, cohorts: int, rng: np.random.Generator, laws: tuple[Floats, Floats]
) -> Ints:
    """Draw the memo of each device and its reports, and return their tally by week: int64[weeks, symbols]."""
    memos, reports = laws
    values = np.array([cohort_of(month_after(FIRST, month), cohorts) for month in range(int(fleet.month.max()) + 1)])
    ends = memos.cumsum(axis=1)
    memo = (rng.random(len(fleet.month))[:, np.newaxis] > ends[values[fleet.month]]).sum(axis=1)
    each = reports / reports.sum(axis=1, keepdims=True)
    weeks = [np.bincount(memo, came, len(reports)).astype(np.int64) for came in fleet.came]
    return np.array([rng.multinomial(of_memo, each).sum(axis=0) for of_memo in weeks])


def read_months(weeks: Ints, mechanism: PureMechanism) -> list[tuple[Month, Functionals]]:
    """Return what the reports of each month tell, of tallies by week."""
    found, month = [], FIRST
    while (window := periods_of(month, 7)).last < FIRST + timedelta(days=7 * len(weeks)):
        first, last = ((day - FIRST).days // 7 for day in (window.first, window.last))
        counts = weeks[first : last + 1].sum(axis=0)
        most = reports_possible(window.days, 7, once_a_day=True)
        n = int(counts.sum())
        found.append(
            (Month(month, window, window.days // 7, n, None, month, month), Functionals(mechanism, counts, n, most))
        )
        month = month_after(month, 1)
    return found


def true_retention(fleet: Fleet, cohort: tuple[date, date], base: date, month: date) -> float:
    """Return how many of a cohort's devices are used in a week of a month, over the same of its first whole month."""
    first, last = (12 * (day.year - FIRST.year) + day.month - FIRST.month for day in cohort)

    def mean(of: date) -> float:
        window = periods_of(of, 7)
        weeks = slice((window.first - FIRST).days // 7, (window.last - FIRST).days // 7 + 1)
        return float(fleet.truth[weeks, first : last + 1].sum() / (window.days // 7))

    return mean(month) / mean(base)


@contextmanager
def people_site(directory: Path, fleet: Fleet, cohorts: int) -> Iterator[Site]:
    """Yield pages of a fleet's reports, those of a week on its first day."""
    asked = measured("since", "theme", cohorts=cohorts, expires=date(2027, 3, 1))
    with site_of(asked, directory) as made:
        plan = asked.metrics["since"].plan
        mechanism = pure(plan)
        weeks = counted(fleet, mechanism, cohorts, np.random.default_rng(4), memo_laws(mechanism))
        for week, counts in enumerate(weeks):
            day, n = FIRST + timedelta(days=7 * week), int(counts.sum())
            made.hold(plan, Tally(n, np.array([n, *counts])), (made.store.today() - day).days)
        yield made
