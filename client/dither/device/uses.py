"""Days of use: on which of the last days the device was used, and on which first, for what it measures itself.

One row: the day of first use, the latest day of use, and a bit for each of the last days up to that one. A day is a
bit, so that none counts twice, however the clock goes. A day that lies ahead of today came of a false clock, and goes
again; what a jump ahead has pushed out is lost, and reads as days without use. While the clock is behind, nothing is
kept.

Kept after consent alone, where a metric that the person agreed to measures it. All within a transaction.
"""

from dither.device.days import EPOCH, Days, period_start
from dither.device.file import DeviceFile
from dither_shared.frozen import frozen
from dither_shared.measures import DAYS_KEPT, cohort_of
from dither_shared.registry import Metric

WEEK_DAYS = 7
_ALL = (1 << DAYS_KEPT) - 1


@frozen
class Used:
    """The days of use of a device: days since 1970, and a bit for each of the last days."""

    first: int
    latest: int
    days: int
    """Bit k says whether the device was used k days before the latest."""

    def on(self, today: int) -> "Used":
        """Return the days of use with today among them, which nothing is after."""
        ahead = today - self.latest
        days = self.days << min(ahead, DAYS_KEPT) if ahead >= 0 else self.days >> -ahead
        return Used(min(self.first, today), today, days & _ALL | 1)

    def answer(self, metric: Metric) -> object:
        """Return the answer to what a metric measures, on the latest day."""
        begun = self.latest - period_start(self.latest, metric.period_days)
        before = (self.days >> (begun + 1) & (1 << metric.period_days) - 1).bit_count()
        match metric.measures:
            case "active_days":
                return before
            case "returned":
                return before > 0
            case "age":
                return (self.latest - self.first) // WEEK_DAYS
            case "first_month":
                values = metric.kind.offer(metric.asked).listed
                return values[cohort_of(EPOCH.fromordinal(EPOCH.toordinal() + self.first), len(values))]
        raise ValueError(f"{metric.measures} is not measured by days of use")


class DaysOfUse:
    """The days of use in a device's file: it writes the table `used_days`."""

    def __init__(self, file: DeviceFile, days: Days) -> None:
        self._file = file
        self._days = days

    def mark(self) -> Used | None:
        """Keep that the device is used today; return all days of use, or None where that was known or is not kept."""
        today = self._days.today()
        if today > self._file.day + 1 or today < self._days.forgotten_until():
            return None
        row = self._file.one("SELECT first, latest, days FROM used_days")
        before = Used(*row) if row else Used(today, today, 0)
        now = before.on(today)
        if now == before:
            return None
        self._file.execute("INSERT OR REPLACE INTO used_days VALUES (0, ?, ?, ?)", now.first, now.latest, now.days)
        return now

    def forget(self) -> None:
        """Erase them."""
        self._file.execute("DELETE FROM used_days")
