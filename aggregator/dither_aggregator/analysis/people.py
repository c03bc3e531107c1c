"""People: how many devices are used, and how many of those of a month are still used months later.

Both are read off a memoized metric that measures the month of first use (`dither_shared.measures`). Each device that is
used in a period answers it once, so that the number of its reports counts devices, at no epsilon. It is at least what
it says: devices whose person refused, new ones in their quiet days, ones after `forget()` and those whose report never
came are not among them.

**Late reports.** Some of a period's reports come in a later one, and those of an earlier one in this. Let at most a
part l (LATE) of the reports of a period come in later ones, of the next two, or never. With A devices used, B >= A of
either period before, and n reports

    E n <= (1 - m) A + m B    for some m <= l,    so    A >= min(n, (n - l B) / (1 - l))    where B <= n' / (1 - l)

if the same part of each period is late, for A = (n - m B) / (1 - m) falls with m where n < B, and is at least n
elsewhere; n' is the larger number of reports of both periods before. `least` takes that, and chance off n: its variance
is at most l (n + B).

**Missing reports.** After an outage more than that part comes late: a device sends its kept report and its own. So no
bound is claimed after a period without reports, or with less than half (GAP) as many as periods on both sides of it.
Months that hold such a period, or begin just after one, are left out: their reports divided by their periods are no
number of devices.

**Retention.** The periods that begin in a calendar month are read as one. With W of them, n reports and a cohort's
share s, n s / W is how many devices of the cohort were used in a mean period of the month, and over the same of the
cohort's first whole month

    R = (n_k s_k / W_k) / (n_a s_a / W_a)

is the part of them that is still used. Its interval is Fieller's (`ratios`), with the noise of the reports alone: what
it is about are the devices that reported. A device's memo repeats in both months, which goes unused: with it intervals
would be narrower. Cohorts are told modulo two years, so that devices of two years before count as the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import inf, sqrt
from statistics import NormalDist

import numpy as np

from dither_aggregator.analysis.estimands import estimand_of, tallies_of
from dither_aggregator.analysis.functional import Functionals, IntervalEstimate
from dither_aggregator.analysis.inference import CONFIDENCE, Floats
from dither_aggregator.analysis.ratios import Ratios
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_shared.measures import CYCLE_MONTHS, cohort_of, month_number

LATE = 0.15
"""The largest part of a period's reports that come in the two periods after it, or never."""
GAP = 0.5
"""A period has a gap if it has less than this part of the reports of the largest of REACH periods on either side."""
REACH = 3
LONG_REACH = 12
"""The same before a bound: after a long outage that is over, the larger number of reports is of devices that kept one.
A quiet season of as many periods looks the same, and no bound follows it."""
PERIODS = 12
"""The last periods that are told."""
WEEK_DAYS = 7
"""A longer period is no part of a month: of it no retention is told."""
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Active:
    """One period, and the devices that were used in it."""

    window: Window
    n: int
    """The reports that came in it."""
    least: int | None
    """So many devices were used in it at least, at 95 %; None after a period whose reports are missing."""


@dataclass(frozen=True)
class Month:
    """The periods that begin in one calendar month."""

    first: date
    window: Window
    periods: int
    n: int
    new: IntervalEstimate | None
    """The share of the reports by devices of the cohort that the month is in.

    None where too few tell it, and in all months of a cohort but its last: before it, as new is who came in fewer.
    """
    cohort: date
    """The first month of that cohort."""
    cohort_last: date
    """Its last month."""

    @property
    def mean(self) -> float:
        """How many reports a period has, in the mean."""
        return self.n / self.periods


@dataclass(frozen=True)
class Retained:
    """How many of a cohort's devices are used in a month, as a part of those of its first whole month."""

    cohort: date
    """The first day of its first month."""
    cohort_last: date
    """The first day of its last month."""
    month: date
    since: int
    """Months since the cohort's first whole month."""
    n: int
    share: IntervalEstimate | None
    """None where too few reports tell it."""


@dataclass(frozen=True)
class People:
    """All that one metric tells of the devices' use."""

    stored: StoredPlan
    active: Sequence[Active]
    months: Sequence[Month]
    retained: Sequence[Retained]
    """By cohort, the latest first, then by month."""
    left_out: Sequence[date]
    """The months that are not among these, as they hold a period whose reports are missing, or begin after one."""

    @property
    def cohort_months(self) -> int:
        """How many months a cohort has."""
        return CYCLE_MONTHS // cohorts(self.stored)


def measured(store: Store) -> list[StoredPlan]:
    """Return the present plans that count devices by the month of their first use."""
    return [stored for stored in store.plans() if stored.current and stored.measures == "first_month"]


def cohorts(stored: StoredPlan) -> int:
    """Return how many cohorts a plan tells apart."""
    return sum(value not in UNLISTED for value in stored.plan.values)


def people(store: Store, stored: StoredPlan) -> People:
    """Return what a metric that measures the month of first use tells."""
    begins = min(store.epochs(stored.plan), default=None)
    if begins is None:
        return People(stored, [], [], [], [])
    counts = _counts(store, stored, begins)
    months, left_out = _months(store, stored, begins, counts)
    return People(
        stored,
        _active(stored, begins, counts, periods(store, stored), CONFIDENCE),
        [month for month, _ in months],
        retained(stored, months, begins),
        left_out,
    )


def periods(store: Store, stored: StoredPlan, within: Window | None = None) -> list[Window]:
    """Return the whole sealed periods of a metric, the earliest first: all within a window, or the last PERIODS.

    Raises nothing and reads no count: there are none before the first report.
    """
    begins = min(store.epochs(stored.plan), default=None)
    if begins is None:
        return []
    length = timedelta(days=stored.period_days - 1)
    first = begins - timedelta(days=_into(begins, stored.period_days))
    found = []
    while first + length <= store.sealed():
        if within is None or (within.first <= first and first + length <= within.last):
            found.append(Window(first, first + length))
        first += timedelta(days=stored.period_days)
    return found if within else found[-PERIODS:]


def active(store: Store, stored: StoredPlan, told: Sequence[Window], confidence: float) -> list[Active]:
    """Return how many devices were used at least in each of some periods of which that is known, the earliest first."""
    begins = min(store.epochs(stored.plan), default=None)
    if begins is None or not told:
        return []
    return _active(stored, begins, _counts(store, stored, begins, told[0].first), told, confidence)


def _counts(store: Store, stored: StoredPlan, begins: date, since: date = date.min) -> dict[date, int | None]:
    """Return how many reports each whole sealed period has, by its first day, from two before the metric began on.

    Periods that say nothing of those from a day on are left out.
    """
    days = stored.period_days
    first = begins - timedelta(days=_into(begins, days) + 2 * days)
    if since > begins:
        reach = 2 * days + LONG_REACH * _step(days)
        first = max(first, since - timedelta(days=reach))
    windows, sealed = list[Window](), store.sealed()
    while first + timedelta(days=days - 1) <= sealed:
        windows.append(Window(first, first + timedelta(days=days - 1)))
        first += timedelta(days=days)
    return {
        window.first: tally.n if tally else None
        for window, tally in zip(windows, _tallies(store, stored, windows), strict=True)
    }


def _into(day: date, period_days: int) -> int:
    """Return how many days of its period are over when a day begins."""
    return (day.toordinal() - _EPOCH) % period_days


def _active(
    stored: StoredPlan, begins: date, counts: Mapping[date, int | None], told: Sequence[Window], confidence: float
) -> list[Active]:
    """Return periods, the earliest first, each with how many devices were used in it at least."""
    days, found = timedelta(days=stored.period_days), []
    for window in told:
        first = window.first
        n, before = counts[first], [counts[first - days], counts[first - 2 * days]]
        known = [each for each in before if each is not None]
        if n is None or len(known) < len(before):
            continue
        places = [first - back * days for back in (1, 2)]
        gaps = [gap(counts, each, stored.period_days, begins, n, LONG_REACH) for each in places]
        sure = None if any(gaps) else least(n, known, confidence=confidence)
        found.append(Active(window, n, sure))
    return found


def gap(
    counts: Mapping[date, int | None], first: date, period_days: int, begins: date, later: int = 0, reach: int = REACH
) -> bool:
    """Return whether reports of a period are missing, by those of periods on both sides; `later` is one more after it.

    Days are held against the same day of other weeks. A metric that grows, or that is used less from a period on, has
    no gap, and neither has a period before the metric began.
    """
    n = counts.get(first)
    if n is None or first + timedelta(days=period_days) <= begins:
        return False
    step = _step(period_days)
    before, after = (
        max(counts.get(first + timedelta(days=side * step * far)) or 0 for far in range(1, reach + 1))
        for side in (-1, 1)
    )
    return n == 0 or n < GAP * min(before, max(after, later))


def _step(period_days: int) -> int:
    """Return from how many days before and after a period another is held against it."""
    return WEEK_DAYS if WEEK_DAYS % period_days == 0 else period_days


def _tallies(store: Store, stored: StoredPlan, windows: Sequence[Window]) -> Iterator[Tally | None]:
    """Yield the counts of some windows; None of one whose counts are damaged, not kept, or not told in whole."""
    kept_from = store.tallies_from()
    for window, tally in zip(windows, tallies_of(store, stored, windows), strict=True):
        yield tally if tally and tally.left_out == 0 and window.first >= kept_from else None


def least(n: int, before: Sequence[int], late: float = LATE, confidence: float = CONFIDENCE) -> int:
    """Return how many devices were used at least in a period of n reports, after periods of so many."""
    z = NormalDist().inv_cdf(confidence)
    most = max(before)
    devices = (most + z * sqrt(most)) / (1 - late)
    sure = n - late * devices - z * sqrt(late * (n + devices))
    return max(0, min(n, int(sure / (1 - late))))


# Months.


def _months(
    store: Store, stored: StoredPlan, begins: date, counts: Mapping[date, int | None]
) -> tuple[list[tuple[Month, Functionals]], list[date]]:
    """Return the whole sealed months whose counts are kept, with what their reports tell, and those left out."""
    found: list[tuple[Month, Functionals]] = []
    left_out: list[date] = []
    if stored.period_days > WEEK_DAYS:
        return found, left_out
    month, sealed = date(begins.year, begins.month, 1), store.sealed()
    windows: dict[date, Window] = {}
    while (window := periods_of(month, stored.period_days)).last <= sealed:
        if window.first >= begins:
            windows[month] = window
        month = month_after(month, 1)
    for (month, window), tally in zip(windows.items(), _tallies(store, stored, [*windows.values()]), strict=True):
        if tally is None:
            continue
        if _has_gap(stored, window, begins, counts):
            left_out.append(month)
            continue
        functionals = estimand_of(stored.plan).functionals(stored, tally, window.days)
        if isinstance(functionals, Functionals):
            found.append((_month(stored, month, window, functionals), functionals))
    return found, left_out


def _has_gap(stored: StoredPlan, window: Window, begins: date, counts: Mapping[date, int | None]) -> bool:
    """Return whether reports of a period of the window, or of the one before it, are missing."""
    days = stored.period_days
    firsts = (window.first + timedelta(days=days * place) for place in range(-1, window.days // days))
    return any(gap(counts, first, days, begins) for first in firsts)


def periods_of(month: date, period_days: int) -> Window:
    """Return the periods that begin in a month."""
    first = month + timedelta(days=-(month.toordinal() - _EPOCH) % period_days)
    last = month_after(month, 1) - timedelta(days=1)
    last -= timedelta(days=(last.toordinal() - _EPOCH) % period_days)
    return Window(first, last + timedelta(days=period_days - 1))


def _month(stored: StoredPlan, month: date, window: Window, functionals: Functionals) -> Month:
    width = CYCLE_MONTHS // cohorts(stored)
    cohort = month_after(month, -(month_number(month) % width))
    last = month_after(cohort, width - 1)
    weights = _only(stored, cohort_of(month, cohorts(stored)))
    ends = functionals.interval(weights, 1 - CONFIDENCE) if month == last else None
    new = None
    if ends:
        new = IntervalEstimate(functionals.estimate(weights), sqrt(functionals.variance(weights)), *ends)
    return Month(month, window, window.days // stored.period_days, functionals.n, new, cohort, last)


def retained(stored: StoredPlan, months: Sequence[tuple[Month, Functionals]], begins: date) -> list[Retained]:
    """Return each cohort's part that is still used, in each month after its first whole one.

    The intervals hold together: of all cells of the triangle. A cohort that was over before the month in which the
    metric begins has no cell. Its first whole month is then that one, in which the version that has the metric still
    spreads, and in a new app nobody is in it; its cells would widen all the others.
    """
    number = cohorts(stored)
    width = CYCLE_MONTHS // number
    cells = []
    for place, (base, _) in enumerate(months):
        # A cohort ended with the month before, and not before the metric began.
        if month_number(base.first) % width == 0 and month_number(base.first) > month_number(begins):
            until = month_number(base.first) + CYCLE_MONTHS - width
            later = [other for other, (month, _) in enumerate(months) if other > place]
            cells += [(place, other) for other in later if month_number(months[other][0].first) < until]
    alpha = (1 - CONFIDENCE) / max(len(cells), 1)
    rows = []
    for at, to in cells:
        (base, reports), (month, later_reports) = months[at], months[to]
        cohort = month_after(base.first, -width)
        weights = _only(stored, cohort_of(cohort, number))
        share = _ratio((later_reports, month.periods), (reports, base.periods), weights, alpha)
        since = month_number(month.first) - month_number(base.first)
        rows.append(Retained(cohort, month_after(base.first, -1), month.first, since, month.n, share))
    return sorted(rows, key=lambda row: (-row.cohort.toordinal(), row.month))


def _ratio(
    part: tuple[Functionals, int], whole: tuple[Functionals, int], weights: Floats, alpha: float
) -> IntervalEstimate | None:
    """Return how many reports of a sum a period has, over the same of other days; None where that cannot be told."""
    if any(functionals.interval(weights, alpha) is None for functionals, _ in (part, whole)):
        return None
    scales = [functionals.n / periods for functionals, periods in (part, whole)]
    (x, y) = (scale * each.estimate(weights) for scale, (each, _) in zip(scales, (part, whole), strict=True))
    spread_x, spread_y = (
        scale**2 * each.variance(weights, "reports") for scale, (each, _) in zip(scales, (part, whole), strict=True)
    )
    part_of, whole_of, spread_part, spread_whole = (np.array([each]) for each in (x, y, spread_x, spread_y))
    ratios = Ratios(part_of, whole_of, spread_part, np.zeros(1), spread_whole, steepness=0.0, most=inf)
    known = next(ratios.tell(-NormalDist().inv_cdf(alpha / 2)), None)
    if known is None or known.upper == inf:
        return None
    return IntervalEstimate(known.estimate, known.std_error, known.lower, known.upper)


def _only(stored: StoredPlan, place: int) -> Floats:
    """Return the weights of one value."""
    weights = np.zeros(len(stored.plan.values))
    weights[place] = 1.0
    return weights


def month_after(month: date, months: int) -> date:
    """Return the first day of the month that comes so many after one, or before it."""
    number = month_number(month) + months
    return date(number // 12, number % 12 + 1, 1)
