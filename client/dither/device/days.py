"""Days: when a device answers, the day that it takes for today, and its way back from a false future.

A device knows whole UTC days only, counted from 1 January 1970. A period of k days starts on the days divisible by k,
so it starts on the same day for everybody.

A day is reached when a public period is used on it, or a report is charged. Beginning reaches none, nor does a look,
though it opens hidden periods. While the clock reads more than a day earlier than that, nothing is recorded. The device
falls back to its clock's day at once with a receipt whose Date agrees with the clock within a day, else when so many
days of its clock are over without one. No answer of a server moves it anywhere else.

All that was used, charged, memoized and drawn stays. `used` keeps the days of all periods that were used, so that none
is used again, whichever way the clock goes; budgets know no days.

An aggregator counts a report on the day by its own clock. How far that is ahead of the device's is taken from the Date
of its latest receipt, and only says when the next report of a metric may leave.

Days that were kept without being reached may lie in a false future, too: the first one of the file, from which it is
quiet, and that of forgetting. Such a pause begins again on the first day on which the clock is found behind them.
"""

from collections.abc import Iterable
from datetime import date
from typing import Protocol

from dither.device.file import DAY_S, DeviceFile
from dither_shared.rng import Rng

EPOCH = date(1970, 1, 1)
YEAR_DAYS = 365
GRACE_DAYS = 7
"""For so long after a metric expires an aggregator takes its reports: one that leaves later is not made."""
SILENT_DAYS = 30
"""For so many days of its clock a device that is behind says nothing; and after everything was forgotten."""
AGREES_S = 60
"""Clocks that agree, an answer's Date and an attempt's end are within so many seconds of each other."""
SPANS_MAX = 32
"""A metric's used days are kept as so many spans at most: then those of the shortest gap become one."""


class Scheduled(Protocol):
    """The part of a metric that decides when it is answered."""

    @property
    def schedule(self) -> str:
        """Return "spread" or "early"."""

    @property
    def charges(self) -> int:
        """Return the most reports, or, memoized, different answers."""

    @property
    def period_days(self) -> int:
        """Return the length of a period."""

    @property
    def expires(self) -> date:
        """Return the first day on which it has expired."""

    @property
    def hidden(self) -> bool:
        """Tell whether its reports leave when their period has closed."""


def day_number(day: date) -> int:
    """Return the days from 1 January 1970 to `day`."""
    return (day - EPOCH).days


def period_start(day: int, period_days: int) -> int:
    """Return the first day of the period that `day` is in."""
    return day - day % period_days


def end_of_period(metric: Scheduled, today: int) -> int:
    """Return the first day after the period that today is in."""
    return period_start(today, metric.period_days) + metric.period_days


def silent_from(metric: Scheduled, today: int) -> int:
    """Return the first day on which a metric is silent because it expires; a hidden one, whose report would be late."""
    expires = day_number(metric.expires)
    late = end_of_period(metric, today) >= expires + GRACE_DAYS and metric.hidden
    return min(expires, today) if late else expires


def answers_always(metric: Scheduled) -> bool:
    """Tell whether the device answers in each of its periods while it may, with nothing to draw."""
    return metric.schedule == "early" or metric.charges >= len(_periods(metric))


def draw_periods(metric: Scheduled, rng: Rng) -> list[int]:
    """Return the first days of `metric.charges` periods of the year before the metric expires, as they were drawn.

    The whole year is drawn from, whenever the device came: those before it came are lost, so that a device that has
    been there for a month has answered in as many of its days as one that has been there for a year. Nothing drawn
    depends on an answer.
    """
    candidates = list(_periods(metric))
    drawn = []
    for _ in range(min(metric.charges, len(candidates))):
        drawn.append(candidates.pop(rng.uniform(len(candidates))))
    return drawn


def _periods(metric: Scheduled) -> range:
    last = day_number(metric.expires) - 1
    return range(period_start(last - YEAR_DAYS + 1, metric.period_days), last + 1, metric.period_days)


class Days:
    """The days in a device's file: what `state` says of them, `used` and `schedule`. All within a transaction."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file

    def today(self) -> int:
        """Return the day by the clock, or the latest day that was reached if the clock went back behind it."""
        return max(self._file.day, self._file.state.get("last_day") or 0)

    def reach(self) -> None:
        """Keep that today a period was used, or a report charged."""
        self._file.set("last_day", self.today())

    # The way back.

    def notice(self) -> None:
        """Take note whether the clock is behind, and fall back when it was for long enough."""
        file = self._file
        if not self._is_behind():
            if file.state.get("behind_since") is not None:
                file.set("behind_since", None)
            return
        since = self._behind_since()
        if file.day < since + SILENT_DAYS:
            file.set("behind_since", since)
            return
        file.end_era()
        file.set("behind_since", None)
        self._fall_back()
        if self._forgot_ahead():
            file.set("forgotten_until", None)
        if file.state.get("last_day") is None:
            file.set("first_day", min(since, file.state.get("first_day") or 0))

    def agree(self, date: float | None) -> None:
        """Keep how far a receipt's Date, in seconds since 1970, is ahead of the clock.

        The device falls back to its clock's day if the two agree within a day.
        """
        if date is None:
            return
        ahead_s = int(date - self._file.clock())
        self._file.set("ahead_s", ahead_s if abs(ahead_s) > AGREES_S // 2 else None)
        if abs(date - self._file.clock()) <= DAY_S:
            self._fall_back()

    def _fall_back(self) -> None:
        reached = self._file.state.get("last_day")
        if reached is not None:
            self._file.set("last_day", min(reached, self._file.day))

    def _is_behind(self) -> bool:
        state = self._file.state
        first_day = 0 if state.get("last_day") is not None else state.get("first_day") or 0
        return max(self.today(), first_day) > self._file.day + 1 or self._forgot_ahead()

    def _behind_since(self) -> int:
        """Return the first day on which the clock was found behind: today, unless that was kept."""
        day, since = self._file.day, self._file.state.get("behind_since")
        return day if since is None else min(day, since)

    def behind_until(self) -> int:
        """Return the first day on which a device that is behind may speak again."""
        return min(self.today() - 1, self._behind_since() + SILENT_DAYS)

    # The aggregator's days.

    def of_aggregator(self) -> tuple[int, int]:
        """Return the first and the last day that it may be for the aggregator: two days around its midnight."""
        now = self._aggregators_clock()
        return int((now - AGREES_S) // DAY_S), int((now + AGREES_S) // DAY_S)

    def builds_on(self) -> int:
        """Return the day for which uploads are built: the aggregator's next one, once it has begun by either clock."""
        return max(self._file.day, self.of_aggregator()[1])

    def next_of_aggregator(self) -> float:
        """Return when its next day has certainly begun, in seconds since 1970 by the device's clock."""
        now = self._aggregators_clock()
        return self._file.clock() + DAY_S - (now - AGREES_S) % DAY_S

    def _aggregators_clock(self) -> float:
        return self._file.clock() + float(self._file.state.get("ahead_s") or 0)

    # Pauses.

    def quiet_until(self, days: int) -> int:
        """Return the first day on which a new file speaks that is quiet for so many days."""
        state = self._file.state
        first, reached = state.get("first_day") or 0, state.get("last_day")
        if reached is not None and reached < first:
            return 0  # it was quiet before that day came
        return (first if first <= self.today() else self._behind_since()) + days

    def begin_silence(self) -> None:
        """Keep that everything was forgotten today: a device that is behind begins its silence anew."""
        self._file.set("forgotten_until", self.today() + SILENT_DAYS)
        self._file.set("behind_since", None)

    def forgotten_until(self) -> int:
        """Return the first day on which a device speaks again after everything was forgotten."""
        if self._forgot_ahead():
            return self._behind_since() + SILENT_DAYS
        return self._file.state.get("forgotten_until") or 0

    def _forgot_ahead(self) -> bool:
        return (self._file.state.get("forgotten_until") or 0) > self._file.day + SILENT_DAYS + 1

    # Periods.

    def use(self, metric: str, first: int, until: int) -> None:
        """Keep that a metric's period was used, whose days are those from `first` and before `until`.

        The latest is a span of its own until the next: it tells when the period began whose report is in the slot.
        """
        file = self._file
        spans = file.execute("SELECT first, until FROM used WHERE metric = ? ORDER BY first", metric).fetchall()
        gap, place = 1, 0
        if len(spans) > 1:
            gap, place = min((spans[place][0] - spans[place - 1][1], place) for place in range(1, len(spans)))
        if gap <= 0 or len(spans) >= SPANS_MAX:
            (before, ends), (after, ends_later) = spans[place - 1 : place + 1]
            file.execute("DELETE FROM used WHERE metric = ? AND first = ?", metric, after)
            sql = "UPDATE used SET until = ? WHERE metric = ? AND first = ?"
            file.execute(sql, max(ends, ends_later), metric, before)
        sql = (
            "INSERT INTO used VALUES (?, ?, ?) "
            "ON CONFLICT (metric, first) DO UPDATE SET until = MAX(until, excluded.until)"
        )
        file.execute(sql, metric, first, until)

    def schedule(self, metric: str, periods: Iterable[int]) -> None:
        """Keep the periods that were drawn for a metric, in place of those before."""
        self._file.execute("DELETE FROM schedule WHERE metric = ?", metric)
        for day in periods:
            self._file.execute("INSERT INTO schedule VALUES (?, ?)", metric, day)
