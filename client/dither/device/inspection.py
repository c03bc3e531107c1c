"""Why each metric is silent, from a device's file alone: without the app's registry, by the terms that were agreed to.

It says what `status()` says in the app, as far as the file can tell: of a registry that the app has not started with
yet it knows nothing, nor of a `device_epsilon` below what was agreed to.
"""

from datetime import date
from typing import Any, NamedTuple

from dither.device.budget import others_begun
from dither.device.file import DeviceFile
from dither.device.outbox import RETIRED_DAYS
from dither.device.reached import behind_until, forgotten_until, quiet_until, today, used_until
from dither.device.refusals import Refusals
from dither.device.skip_reason import Facts, SkipReason, reason_nothing_leaves
from dither.schedule import answers_always, end_of_period, period_start, silent_from
from dither_shared.terms import Terms

_FACTS = """
SELECT a.metric, a.terms, a.refused, COALESCE(m.spent, 0), m.terms, m.reserved, s.leaves,
    s.replaceable, EXISTS (SELECT 1 FROM class WHERE metric = a.metric), COALESCE(s.charge, 0),
    EXISTS (SELECT 1 FROM upload),
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


def skip_reasons(file: DeviceFile) -> dict[str, SkipReason]:
    """Return why nothing of each metric leaves that was ever agreed to or refused; within a transaction."""
    return {row[0]: reason_nothing_leaves(_facts(file, row)) for row in file.execute(_FACTS).fetchall()}


def _facts(file: DeviceFile, row: tuple[Any, ...]) -> Facts:
    (
        name,
        terms,
        refused,
        spent,
        prepared_for,
        reserved,
        leaves,
        replaceable,
        has_memo,
        charge,
        built,
        building,
        retired,
    ) = row
    day = today(file)
    crowded = leaves is not None
    stays = crowded and (bool(built) or leaves > day)
    agreed = Terms.from_json(terms) if terms else None
    prepared = prepared_for is not None and agreed is not None
    scheduled, next_scheduled, affordable, expires, next_day = True, None, True, day + 1, 0
    if agreed:
        asked = _asked(agreed, prepared_for)
        expires = silent_from(asked, day)
        next_day = used_until(file, name, day, end_of_period(asked, day))
        if prepared and not answers_always(asked):
            first = period_start(day, asked.period_days)
            sql = "SELECT MIN(day) FROM schedule WHERE metric = ? AND day >= ?"
            (next_scheduled,) = file.one(sql, name, first) or (None,)
            scheduled = next_scheduled == first
        if crowded and not stays:
            building += charge  # an answer would have it built
        most = agreed.lifetime if reserved is None else reserved
        needed = most if agreed.permanent else most // asked.charges
        fits = spent + building > 0 or _fits(file, name, most)
        affordable = bool(has_memo) or (fits and spent + building + needed <= most)
    return Facts(
        today=day,
        clock_day=file.clock_day(),
        behind_until=behind_until(file),
        refused=bool(refused) or file.get("consent") == 0 or Refusals(file.directory).of(name),
        agreed=agreed is not None,
        expires=expires,
        quiet_until=quiet_until(file, file.get("quiet_days") or 0),
        forgotten_until=forgotten_until(file),
        retired_until=retired if retired <= day + RETIRED_DAYS + 1 else 0,
        prepared=prepared,
        next_day=next_day,
        hidden=agreed is not None and agreed.presence == "hidden",
        replaceable=bool(replaceable) and day < leaves <= next_day,
        scheduled=scheduled,
        next_scheduled=next_scheduled,
        crowded=crowded,
        waits=stays,
        affordable=affordable,
        key_refused=bool(file.get("key_refused")),
    )


def _asked(agreed: Terms, prepared_for: str | None) -> _Asked:
    """Return what the metric's budget was last prepared for, or else what was agreed to."""
    hidden = agreed.presence == "hidden"
    if not prepared_for:
        return _Asked("", agreed.charges, agreed.period_days, date.fromisoformat(agreed.expires), hidden)
    schedule, charges, period_days, expires = prepared_for.split()
    return _Asked(schedule, int(charges), int(period_days), date.fromisoformat(expires), hidden)


def _fits(file: DeviceFile, name: str, most: int) -> bool:
    """Tell whether what was agreed to for the device bears a metric's reservation beside those that have begun."""
    return others_begun(file, name) + most <= (file.get("agreed_epsilon") or 0)
