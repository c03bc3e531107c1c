"""People: how many devices are used, how often, and how many of those of a month are still used months later.

All are read off a memoized metric that measures the month of first use (`dither_shared.measures`). Each device that is
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

**Days.** A device sends one report of a metric a day. One that was late once is late on each day on which it is used,
until a day without use: with a chance of .1 to miss the day, .2 to .4 of all reports are late, and so more come on a
Saturday than devices are used on it, week after week. So of days l is LATE_DAILY. At most 1 - LATE of B never report or
are late otherwise: B <= n' / (1 - LATE) as before.

**Missing reports.** After an outage more than that part comes late: a device sends its kept report and its own. So no
bound is claimed of a period with more than twice (1/GAP) as many reports as either of the two before it: after an
outage of a part f of all reports that ends within a period, however long, and be it at the metric's very beginning,
(1 + f) / (1 - f) times as many come, so that it is seen from a third on. One that ends bit by bit is not seen: of
100,000 devices a week of which 60 % were cut off and 15 % of all come back each week, 114,062 are claimed in one. Days
are held against the same day of the week before. No bound is claimed, either, after a period without reports, or with
less than half (GAP) as many as periods on both sides of it, which shows an outage of a day; nor in the week after such
a day, until most devices were used again. Months that hold such a period, or begin just after one, are left out: their
reports divided by their periods are no number of devices.

**How often.** How many devices are used on a mean day, over how many are in the month: two lower bounds say nothing of
it. But of the devices that report n also bounds A from above, as at least 1 - l of their reports come in their own
period: A <= n / (1 - l). In a sum over k days no report is late that comes on another of these days, so only those of
the two days before are too many:

    N - l (A_-1 + A_-2) <= S <= N / (1 - l)    with N reports in all, of S = A_1 + ... + A_k

if as many are late as of longer periods; where more are, on days, those of the last two of S that come behind it are
added to N. The ratio lies between the least sum over the most devices and the most over the least. Chance: a device may
be late on all its days at once, so that the variance of N is up to k N. The same devices must be asked both.

**Retention.** The periods that begin in a calendar month are read as one. With W of them, n reports and a cohort's
share s, n s / W is how many devices of the cohort were used in a mean period of the month, and over the same of the
cohort's first whole month

    R = (n_k s_k / W_k) / (n_a s_a / W_a)

is the part of them that is still used. Its interval is Fieller's (`inference`), with the noise of the reports alone:
what it is about are the devices that reported. A device's memo repeats in both months, which goes unused: with it
intervals would be narrower. Cohorts are told modulo two years, so that devices of two years before count as the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil, inf, sqrt
from statistics import NormalDist

import numpy as np

from dither_aggregator.analysis.estimands import estimand_of, tallies_of
from dither_aggregator.analysis.functional import Functionals, IntervalEstimate
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, Ratios
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_shared.measures import CYCLE_MONTHS, cohort_of, month_number

LATE = 0.15
"""The largest part of a period's reports that come in the two periods after it, or never."""
LATE_DAILY = 0.6
"""The same of a day, as a device that was late once stays so: about as many are late of each day."""
GAP = 0.5
"""A period has a gap if it has less than this part of the reports of the largest of REACH periods on either side."""
REACH = 3
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
class Stickiness:
    """One long period: how many devices are used in a mean short one, as a part of those that are in the long one."""

    window: Window
    lower: float
    upper: float
    """At most 1: who is used on a day is used in its month."""
    reported: float
    """The same ratio of the reports that came."""
    n: int
    """The long period's reports."""


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
        reach = 2 * days + (1 + REACH) * _step(days)
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
        missing = follows_missing(counts, first, stored.period_days, begins)
        bound = None if missing else least(n, known, late_of(stored.period_days), confidence)
        found.append(Active(window, n, bound))
    return found


def follows_missing(counts: Mapping[date, int | None], first: date, period_days: int, begins: date) -> bool:
    """Return whether reports of the two periods before one are missing, or of the week, so that they may come in it.

    Reports are missing, too, where many more come than in either, or than on the same day a week before. Nothing else
    shows an outage which began long ago, or before the metric's first report.
    """
    n, step = counts[first] or 0, _step(period_days)
    for back in range(period_days, max(2 * period_days, step) + 1, period_days):
        before = first - timedelta(days=max(back, step))
        if (counts.get(before) or 0) < GAP * n or gap(counts, first - timedelta(days=back), period_days, begins, n):
            return True
    return False


def gap(counts: Mapping[date, int | None], first: date, period_days: int, begins: date, later: int = 0) -> bool:
    """Return whether reports of a period are missing, by those of periods on both sides; `later` is one more after it.

    Days are held against the same day of other weeks. A metric that grows, or that is used less from a period on, has
    no gap, and neither has a period before the metric began.
    """
    n = counts.get(first)
    if n is None or first + timedelta(days=period_days) <= begins:
        return False
    step = _step(period_days)
    before, after = (
        max(counts.get(first + timedelta(days=side * step * far)) or 0 for far in range(1, REACH + 1))
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


def late_of(period_days: int) -> float:
    """Return the largest part of a period's reports that come in the two periods after it, or never."""
    return LATE_DAILY if period_days == 1 else LATE


def least(n: int, before: Sequence[int], late: float = LATE, confidence: float = CONFIDENCE) -> int:
    """Return how many devices were used at least in a period of n reports, after periods of so many.

    Such a part of each comes later or never, at most, and at most LATE otherwise than a day late.
    """
    z = NormalDist().inv_cdf(confidence)
    most = max(before)
    devices = (most + z * sqrt(most)) / (1 - min(late, LATE))
    sure = n - late * devices - z * sqrt(late * (n + devices))
    return max(0, min(n, int(sure / (1 - late))))


# How often.


def pairs(stored: Sequence[StoredPlan]) -> list[tuple[StoredPlan, StoredPlan]]:
    """Return each two of plans that count devices of which one's period is a whole number of the other's, that first.

    The first plan stands for all of one period.
    """
    by_period = {each.period_days: each for each in reversed(stored)}
    lengths = sorted(by_period)
    return [
        (by_period[short], by_period[long])
        for long in lengths
        for short in lengths
        if short < long and long % short == 0
    ]


def stickiness(
    store: Store, short: StoredPlan, long: StoredPlan, told: Sequence[Window], confidence: float = CONFIDENCE
) -> list[Stickiness]:
    """Return how many devices are used in a mean short period, as a part of those in each of some long ones.

    A long period is left out while a week after it is not sealed, and where reports of it, of one of its short periods
    or of those just before are missing. Each interval holds with the confidence, by itself.
    """
    begins = [min(store.epochs(each.plan), default=None) for each in (short, long)]
    if not told or not all(begins):
        return []
    days, wholes = (
        _counts(store, each, began, told[0].first) for each, began in zip((short, long), begins, strict=True) if began
    )
    found = []
    for window in told:
        parts = _whole(days, short.period_days, window, begins[0])
        one = _whole(wholes, long.period_days, window, begins[1])
        after = days.get(window.last + timedelta(days=_step(short.period_days) - short.period_days + 1))
        if parts and one and after is not None:
            ends = often(parts, one, confidence, late_of(short.period_days))
            found.append(Stickiness(window, *ends, sum(parts[2:]) / len(parts[2:]) / one[2], one[2]))
    return found


def _whole(
    counts: Mapping[date, int | None], period_days: int, window: Window, begins: date | None
) -> Sequence[int] | None:
    """Return the reports of two periods and of those of a window behind them; None where some are missing."""
    assert begins
    days = timedelta(days=period_days)
    firsts = [window.first + days * place for place in range(-2, window.days // period_days)]
    known = [n for first in firsts if (n := counts.get(first)) is not None]
    if len(known) < len(firsts) or any(follows_missing(counts, first, period_days, begins) for first in firsts[2:]):
        return None
    return None if any(gap(counts, first, period_days, begins) for first in firsts[2:]) else known


def often(parts: Sequence[int], whole: Sequence[int], confidence: float, late: float = LATE) -> tuple[float, float]:
    """Return between which parts of a long period's devices a mean short one has, of the reports of both.

    The first two numbers of each are of the two periods before. So large a part of the short ones' is late at most.
    Eight bounds must hold.
    """
    risk = (1 - confidence) / 8
    z = -NormalDist().inv_cdf(risk)
    of, total = len(parts) - 2, sum(parts[2:])
    early = late * sum(_at_most(n, z) for n in parts[:2])
    behind = (late - LATE) * sum(_at_most(n, z) for n in parts[-2:])
    fewest = max(total - early - z * sqrt(2 * early), 0.0) / of, least(whole[2], whole[:2], confidence=1 - risk)
    lower = fewest[0] / _at_most(whole[2], z)
    most = _at_most(total + ceil(behind), z, of) / of
    return lower, min(most / fewest[1], 1.0) if fewest[1] else 1.0


def _at_most(n: int, z: float, together: int = 1) -> float:
    """Return how many devices had to report at most, if n reports came in time; of so many periods, in all of them."""
    chance = z * sqrt(together * LATE)
    return float(((chance + sqrt(chance**2 + 4 * n)) / 2) ** 2 / (1 - LATE))


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
