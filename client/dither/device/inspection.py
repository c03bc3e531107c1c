"""Why each metric is silent, from a device's file alone: without the app's registry, by the terms that were agreed to.

It says what `status()` says in the app, as far as the file can tell: a metric whose terms the app has changed since
the person agreed shows the terms of then.
"""

from datetime import date
from typing import Any, NamedTuple

from dither.device.file import DeviceFile
from dither.device.refusals import EVERYTHING, Refusals
from dither.device.silence import Facts, Silence, why_nothing_leaves
from dither.schedule import answers_always, period_start, silent_from
from dither_shared.terms import Terms

_FACTS = """
SELECT a.metric, a.terms, a.refused, COALESCE(m.spent, 0), COALESCE(m.next_day, 0), m.terms, s.leaves, s.replaceable,
    EXISTS (SELECT 1 FROM class WHERE metric = a.metric), COALESCE(s.charge, 0), EXISTS (SELECT 1 FROM upload),
    COALESCE((SELECT micro FROM reserved WHERE metric = a.metric), 0),
    COALESCE((SELECT until FROM retired WHERE metric = a.metric), 0)
FROM agreement AS a LEFT JOIN metric AS m ON m.name = a.metric LEFT JOIN slot AS s ON s.metric = a.metric
ORDER BY a.metric
"""


class _Asked(NamedTuple):
    """A metric as far as the file knows it."""

    schedule: str
    charges: int
    period_days: int
    expires: date
    hidden: bool


def silences(file: DeviceFile) -> dict[str, Silence]:
    """Return why nothing of each metric leaves that was ever agreed to or refused; within a transaction."""
    return {row[0]: why_nothing_leaves(_facts(file, row)) for row in file.execute(_FACTS).fetchall()}


def _facts(file: DeviceFile, row: tuple[Any, ...]) -> Facts:
    (
        name,
        terms,
        refused,
        spent,
        next_day,
        prepared_for,
        leaves,
        replaceable,
        has_memo,
        charge,
        built,
        building,
        retired,
    ) = row
    today, pending = file.today(), Refusals(file.folder).pending
    crowded = leaves is not None
    stays = crowded and (bool(built) or leaves > today)
    agreed = Terms.from_json(terms) if terms else None
    prepared = prepared_for is not None and agreed is not None
    scheduled, next_scheduled, affordable, expires = True, None, True, today + 1
    if agreed:
        schedule = (prepared_for or "").partition(" ")[0]
        expiry = date.fromisoformat(agreed.expires)
        asked = _Asked(schedule, agreed.charges, agreed.period_days, expiry, agreed.presence == "hidden")
        expires = silent_from(asked, today)
        if prepared and not answers_always(asked):
            day = period_start(today, asked.period_days)
            (next_scheduled,) = file.one("SELECT MIN(day) FROM schedule WHERE metric = ? AND day >= ?", name, day) or (
                None,
            )
            scheduled = next_scheduled == day
        if crowded and not stays:
            building += charge  # an answer would have it built
        needed = agreed.lifetime if agreed.permanent else agreed.report
        affordable = bool(has_memo) or spent + building + needed <= agreed.lifetime
    return Facts(
        today=today,
        clock_day=file.clock_day(),
        refused=bool(refused) or file.get("consent") == 0 or not pending.isdisjoint({EVERYTHING, name}),
        agreed=agreed is not None,
        expires=expires,
        quiet_until=file.get("quiet_until") or 0,
        forgotten_until=file.get("forgotten_until") or 0,
        retired_until=retired,
        prepared=prepared,
        next_day=next_day,
        replaceable=bool(replaceable) and leaves > today,
        scheduled=scheduled,
        next_scheduled=next_scheduled,
        crowded=crowded,
        waits=stays,
        affordable=affordable,
        key_refused=bool(file.get("key_refused")),
    )
