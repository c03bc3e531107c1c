"""Measures of use: the answers that the SDK itself gives, and no app can record.

A device keeps on which of its last 62 days it was used, and on which day first. A metric with `measures` is answered
from these at the first use of a day, if a report of its period is due:

    active_days     on how many days of the period before the device was used: 0 to the period's days
    returned        whether that is any
    age             whole weeks since the day of first use
    first_month     the cohort of the calendar month of first use: it never changes, so one memo says it for life
    session_length  how long a session took that the app marked

The period before, and not the present one, because its days are over: the same is answered on whichever day of a period
the device is first used. A cohort is a month modulo 24, so that the list of values, and with it the plan, stays.
"""

from datetime import date
from typing import TYPE_CHECKING

from dither_shared.frozen import frozen

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

DAYS_KEPT = 62
"""The last days of which a device keeps whether it was used: two periods of 31 days."""
PERIOD_DAYS_MAX = DAYS_KEPT // 2
TIME_UNITS = ("ns", "us", "µs", "ms", "s", "min", "h")
CYCLE_MONTHS = 24
COHORTS = (4, 12, 24)
"""How many cohorts a cycle may have: half-years, two months each, or single months."""
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@frozen
class UseMeasure:
    """One measure: the metrics that may ask for it."""

    name: str
    kind: str
    words: str
    """The thing that the device works out, in words that follow "Your device itself works out"."""
    units: tuple[str, ...] = ()
    """The units that its number may have."""
    memoized: bool = False
    """Whether it is memoized, or else always answered with fresh noise."""
    looks_back: bool = False
    """Whether it is about the period before."""


MEASURES = {
    measure.name: measure
    for measure in (
        UseMeasure(
            "active_days", "number", "on how many days of the period before it was used", ("days",), looks_back=True
        ),
        UseMeasure("returned", "flag", "whether it was used in the period before, too", looks_back=True),
        UseMeasure("age", "number", "how many weeks ago it was first used", ("weeks",)),
        UseMeasure("first_month", "choice", "in which month it was first used", memoized=True),
        UseMeasure("session_length", "number", "how long a time of use is that the app marks", TIME_UNITS),
    )
}


def read_measures(table: "TomlTable", kind: str, *, unit: str, memoize: bool, charges: int, period_days: int) -> str:
    """Return the name of what a metric measures; refuse what it cannot be asked with.

    Raises RegistryError with the key, what was needed and what came.
    """
    measure = MEASURES[table.one_of("measures", MEASURES)]
    asks = f'where measures = "{measure.name}"'
    if kind != measure.kind:
        raise table.error("kind", f'must be "{measure.kind}" {asks}, got "{kind}"')
    if table.one_of("presence", ("public", "hidden")) == "hidden":
        raise table.error(
            "presence", f'must be "public" {asks}: a device keeps its days of use as they come, which tells as much'
        )
    if measure.units and unit not in measure.units:
        units = " or ".join(f'"{each}"' for each in measure.units)
        raise table.error("unit", f'must be {units} {asks}, got "{unit}"')
    if measure.memoized and not memoize:
        raise table.error("memoize", f"must be true {asks}: it never changes, and fresh noise would tell it in the end")
    if memoize and not measure.memoized:
        raise table.error("memoize", f"must be left out {asks}: the answer changes, and says when")
    if measure.memoized and charges != 1:
        raise table.error("answers", f"must be 1 {asks}: it never changes, got {charges}")
    if measure.looks_back and period_days > PERIOD_DAYS_MAX:
        most = f'at most "{PERIOD_DAYS_MAX}d" {asks}: a device keeps the last {DAYS_KEPT} days of use'
        raise table.error("period", f'must be {most}, got "{period_days}d"')
    if measure.name == "first_month" and not table.has("cohorts"):
        raise table.error("cohorts", f"must say how many cohorts there are {asks}: 4, 12 or 24")
    return measure.name


def cohorts(number: int) -> tuple[str, ...]:
    """Return the names of the cohorts of a cycle, which is an even year and the odd one after it, in order."""
    return tuple(_cohort(first, CYCLE_MONTHS // number) for first in range(0, CYCLE_MONTHS, CYCLE_MONTHS // number))


def cohort_of(day: date, number: int) -> int:
    """Return the place of the cohort that a day is in, of so many."""
    return month_number(day) % CYCLE_MONTHS * number // CYCLE_MONTHS


def month_number(day: date) -> int:
    """Return the months from the beginning of year 0, an even one, to that of a day."""
    return 12 * day.year + day.month - 1


def _cohort(first: int, months: int) -> str:
    year = "an odd year" if first >= 12 else "an even year"
    begin, end = _MONTHS[first % 12], _MONTHS[(first + months - 1) % 12]
    return f"{begin} of {year}" if months == 1 else f"{begin} to {end} of {year}"
