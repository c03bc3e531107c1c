"""The day reached: the day that a device takes for today, and its way back from a false future. In a transaction.

A day is reached when a public period is used on it, or a report is charged. Beginning reaches none, nor does a look,
though it opens hidden periods. While the clock reads more than a day earlier than that, nothing is recorded. The device
falls back to its clock's day at once with a receipt whose Date agrees with the clock within a day, else when so many
days of its clock are over without one. No answer of a server moves it anywhere else.

All that was used, charged, memoized and drawn stays. `used` keeps the days of all periods that were used, so that none
is used again, whichever way the clock goes; budgets know no days.

Days that were kept without being reached may lie in a false future, too: the first one of the file, from which it is
quiet, and that of forgetting. Such a pause begins again on the first day on which the clock is found behind them.
"""

from dither.device.file import DAY_S, DeviceFile

SILENT_DAYS = 30
"""For so many days of its clock a device that is behind says nothing; and after everything was forgotten."""
SPANS_MAX = 32
"""A metric's used days are kept as so many spans at most: then those of the shortest gap become one."""


def today(file: DeviceFile) -> int:
    """Return the day by the clock, or the latest day that was reached if the clock went back behind it."""
    return max(file.clock_day(), file.get("last_day") or 0)


def reach(file: DeviceFile) -> None:
    """Keep that today a period was used, or a report charged."""
    file.set("last_day", today(file))


# The way back.


def notice(file: DeviceFile) -> None:
    """Take note whether the clock is behind, and fall back when it was for long enough."""
    if not _is_behind(file):
        file.set("behind_since", None)
        return
    day, since = file.clock_day(), _behind_since(file)
    if day < since + SILENT_DAYS:
        file.set("behind_since", since)
        return
    file.set("behind_since", None)
    _fall_back(file)
    if _forgot_ahead(file):
        file.set("forgotten_until", None)
    if not _was_used(file):
        file.set("first_day", min(since, file.get("first_day") or 0))


def agree(file: DeviceFile, date: float | None) -> None:
    """Fall back at once if a receipt's Date, in seconds since 1970, agrees with the clock within a day."""
    if date is not None and abs(date - file.clock()) <= DAY_S:
        _fall_back(file)


def _fall_back(file: DeviceFile) -> None:
    if file.get("last_day") is not None:
        file.set("last_day", min(file.get("last_day"), file.clock_day()))


def _is_behind(file: DeviceFile) -> bool:
    first_day = 0 if _was_used(file) else file.get("first_day") or 0
    return max(today(file), first_day) > file.clock_day() + 1 or _forgot_ahead(file)


def _was_used(file: DeviceFile) -> bool:
    return file.get("last_day") is not None


def _behind_since(file: DeviceFile) -> int:
    """Return the first day on which the clock was found behind: today, unless that was kept."""
    day, since = file.clock_day(), file.get("behind_since")
    return day if since is None else min(day, since)


def behind_until(file: DeviceFile) -> int:
    """Return the first day on which a device that is behind may speak again."""
    return min(today(file) - 1, _behind_since(file) + SILENT_DAYS)


# Pauses.


def quiet_until(file: DeviceFile, days: int) -> int:
    """Return the first day on which a new file speaks that is quiet for so many days."""
    first = file.get("first_day") or 0
    if _was_used(file) and file.get("last_day") < first:
        return 0  # it was quiet before that day came
    return (first if first <= today(file) else _behind_since(file)) + days


def begin_silence(file: DeviceFile) -> None:
    """Keep that everything was forgotten today: a device that is behind begins its silence anew."""
    file.set("forgotten_until", today(file) + SILENT_DAYS)
    file.set("behind_since", None)


def forgotten_until(file: DeviceFile) -> int:
    """Return the first day on which a device speaks again after everything was forgotten."""
    return _behind_since(file) + SILENT_DAYS if _forgot_ahead(file) else file.get("forgotten_until") or 0


def _forgot_ahead(file: DeviceFile) -> bool:
    return (file.get("forgotten_until") or 0) > file.clock_day() + SILENT_DAYS + 1


# Used periods.


def use(file: DeviceFile, metric: str, first: int, until: int) -> None:
    """Keep that a metric's period was used, whose days are those from `first` and before `until`.

    The latest is a span of its own until the next: it tells when the period began whose report is in the slot.
    """
    spans = file.execute("SELECT first, until FROM used WHERE metric = ? ORDER BY first", metric).fetchall()
    gap, place = min(((spans[place][0] - spans[place - 1][1], place) for place in range(1, len(spans))), default=(1, 0))
    if gap <= 0 or len(spans) >= SPANS_MAX:
        (before, ends), (after, ends_later) = spans[place - 1 : place + 1]
        file.execute("DELETE FROM used WHERE metric = ? AND first = ?", metric, after)
        sql = "UPDATE used SET until = ? WHERE metric = ? AND first = ?"
        file.execute(sql, max(ends, ends_later), metric, before)
    sql = (
        "INSERT INTO used VALUES (?, ?, ?) ON CONFLICT (metric, first) DO UPDATE SET until = MAX(until, excluded.until)"
    )
    file.execute(sql, metric, first, until)


def used_until(file: DeviceFile, metric: str, today: int, end: int) -> int:
    """Return the first day after the used days of a metric in a period that ends on the day `end`; 0 if it has none."""
    sql = "SELECT MAX(until) FROM used WHERE metric = ? AND until > ? AND first < ?"
    (until,) = file.one(sql, metric, today, end) or (0,)
    return until or 0
