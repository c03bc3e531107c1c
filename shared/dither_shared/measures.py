"""Measures of use: the answers that the SDK itself gives, and no app can record.

A device keeps on which of its last 62 days it was used, and on which day first. A metric with `measures` is answered
from these at the first use of a day, if a report of its period is due:

    active_days     on how many days of the period before the device was used: 0 to the period's days
    returned        whether that is any
    age             whole weeks since the day of first use
    first_month     the cohort of the calendar month of first use: it never changes, so one memo says it for life
    session_length  how long a session took that the app marked

The period before, and not the present one, because its days are over: the same is answered on whichever day of a period
the device is first used. A device that has not kept days since the beginning of that period does not answer. A cohort
is a month modulo 24, so that the list of values, and with it the plan, stays.
"""

from __future__ import annotations

from datetime import date

from dither_shared.frozen import frozen
from dither_shared.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_shared.domains import Domain
    from dither_shared.toml_tables import TomlTable

DAYS_KEPT = 62
"""The last days of which a device keeps whether it was used: two periods of 31 days."""
LOOKS_BACK_DAYS = (2, DAYS_KEPT // 2)
"""The shortest and the longest period of what looks back: of one day it would tell whether that day had use."""
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


def check_kind(table: TomlTable, kind: str) -> None:
    """Refuse a metric that is of another kind than what it measures, before the keys of that kind are read."""
    for measure in MEASURES.values():
        if table.is_one_of("measures", (measure.name,)) and kind != measure.kind:
            raise table.error("kind", f'must be "{measure.kind}" where measures = "{measure.name}", got "{kind}"')


def read_measures(
    table: TomlTable, domain: Domain, *, memoize: bool, charges: int, period_days: int, schedule: str
) -> str:
    """Return the name of what a metric measures; refuse what it cannot be asked with.

    Raises RegistryError with the key, what was needed and what came.
    """
    measure = MEASURES[table.one_of("measures", MEASURES)]
    asks = f'where measures = "{measure.name}"'
    if table.one_of("presence", ("public", "hidden")) == "hidden":
        raise table.error(
            "presence", f'must be "public" {asks}: a device keeps its days of use as they come, which tells as much'
        )
    if measure.units and domain.unit not in measure.units:
        units = " or ".join(f'"{each}"' for each in measure.units)
        raise table.error("unit", f'must be {units} {asks}, got "{domain.unit}"')
    if measure.memoized and not memoize:
        raise table.error("memoize", f"must be true {asks}: it never changes, and fresh noise would tell it in the end")
    if memoize and not measure.memoized:
        raise table.error("memoize", f"must be left out {asks}: the answer changes, and says when")
    if measure.memoized and charges != 1:
        raise table.error("answers", f"must be 1 {asks}: it never changes, got {charges}")
    if measure.looks_back:
        least, most = LOOKS_BACK_DAYS
        if period_days > most:
            why = f'at most "{most}d" {asks}: a device keeps the last {DAYS_KEPT} days of use'
            raise table.error("period", f'must be {why}, got "{period_days}d"')
        if period_days < least:
            why = f'at least "{least}d" {asks}: it would tell whether a single day had use'
            raise table.error("period", f'must be {why}, got "{period_days}d"')
        if charges == 1 and schedule == "early":
            why = f'{asks} and schedule = "early": devices would answer only when they are new'
            raise table.error("reports", f"must be more than 1 {why}")
    if measure.name == "active_days":
        from dither_shared.domains.number_ranges import NumberDomain  # loaded with every number

        asked = NumberDomain.of(domain)
        if asked.edges[0] >= period_days * 10**asked.decimals:
            key = "edges" if table.has("edges") else "low"
            raise table.error(key, f"must begin below the {period_days} days of a period {asks}")
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
