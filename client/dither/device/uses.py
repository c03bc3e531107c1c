"""Days of use: on which of the last days the device was used, and on which first, for what it measures itself.

One row: the day of first use, the latest day of use, and a bit for each of the last days up to that one. A day is a
bit, so that none counts twice, however the clock goes. A day that lies ahead of today came of a false clock, and goes
again; what a jump ahead has pushed out is lost, and reads as days without use. While the clock is behind, nothing is
kept.

Kept after consent alone, where a metric that the person agreed to measures it. All within a transaction.

Days may be kept for less long than the device has been there: such a metric may come with a later version. So what is
asked of the first use goes by the file's first day, if that is earlier, until everything was forgotten. A question
about the period before gets no answer until all its days were kept.
"""

from __future__ import annotations

from datetime import date

from dither.device.file import DeviceFile
from dither.device.recording import EPOCH, Days, day_number, period_start
from dither_shared.frozen import frozen
from dither_shared.measures import DAYS_KEPT, cohort_of
from dither_shared.registry import Metric

WEEK_DAYS = 7
PLAUSIBLE_FROM = day_number(date(2026, 1, 1))
"""Before this day nobody had dither: a clock that reads less has never been set."""
_ALL = (1 << DAYS_KEPT) - 1


@frozen
class Used:
    """The days of use of a device: days since 1970, and a bit for each of the last days."""

    first: int
    """The day since which they are kept."""
    latest: int
    days: int
    """Bit k says whether the device was used k days before the latest."""

    def on(self, today: int) -> Used:
        """Return the days of use with today among them, which nothing is after."""
        ahead = today - self.latest
        days = self.days << min(ahead, DAYS_KEPT) if ahead >= 0 else self.days >> -ahead
        return Used(min(self.first, today), today, days & _ALL | 1)

    def answer(self, metric: Metric, first_use: int) -> object:
        """Return the answer to what a metric measures, on the latest day; None where these days do not tell it."""
        begun = self.latest - period_start(self.latest, metric.period_days)
        before = (self.days >> (begun + 1) & (1 << metric.period_days) - 1).bit_count()
        match metric.measures:
            case "active_days" | "returned" if self.first > self.latest - begun - metric.period_days:
                return None
            case "active_days":
                return before
            case "returned":
                return before > 0
            case "age":
                return (self.latest - first_use) // WEEK_DAYS
            case "first_month":
                values = metric.kind.offer(metric.asked).listed
                return values[cohort_of(EPOCH.fromordinal(EPOCH.toordinal() + first_use), len(values))]
        raise ValueError(f"{metric.measures} is not measured by days of use")


class DaysOfUse:
    """The days of use in a device's file: it writes the table `used_days`."""

    def __init__(self, file: DeviceFile, days: Days) -> None:
        self._file = file
        self._days = days

    def mark(self) -> Used | None:
        """Keep that the device is used today; return all days of use, or None where that was known or is not kept."""
        today = self._days.today()
        if today > self._file.day + 1 or today < max(self._days.forgotten_until(), PLAUSIBLE_FROM):
            return None
        row = self._file.execute("SELECT first, latest, days FROM used_days").fetchone()
        before = Used(*row) if row else Used(today, today, 0)
        now = before.on(today)
        if now == before:
            return None
        self._file.execute("INSERT OR REPLACE INTO used_days VALUES (0, ?, ?, ?)", (now.first, now.latest, now.days))
        return now

    def first_use(self, used: Used) -> int:
        """Return the day of first use: the file's first one, unless it is later, false or before a `forget()`."""
        day = self._file.state.get("first_day") or 0
        known = day >= PLAUSIBLE_FROM and self._file.state.get("forgotten_until") is None
        return min(used.first, day) if known else used.first

    def forget(self) -> None:
        """Erase them."""
        self._file.execute("DELETE FROM used_days")
