"""The pipeline's page: where every accepted report is, what waits, what was kept apart, and what somebody should mend.

All of it is read from the store. No key, address, path or upload's id is on it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from flask import render_template

from dither_aggregator.health.checks import LAG_MAX_S, HealthFinding, Observed, Teller, duration, findings
from dither_aggregator.health.status import Capped, RefusedShown, StoreStatus, refused_before
from dither_aggregator.store import LedgerRow, Store
from dither_aggregator.store.documents import GRACE
from dither_aggregator.store.records import Counted, Quarantined, ShardStatus, TallyKey, total_of
from dither_aggregator.web.pages.presentation import EXPIRES_SOON_DAYS
from dither_aggregator.web.query_parameters import Parameters, query_parameters

ROWS_MAX = 100
SHARDS_MAX = 16
"""The most shards with a row each: beyond, one row has the sum, and those that lag have rows of their own."""
REASONS_MAX = 20
REASON_CHARACTERS = 200


@dataclass(frozen=True)
class ShardShown:
    """How far a shard is, or all of them together."""

    name: str
    written: int
    folded: int
    waiting: int
    waiting_for: str
    sealed: str
    merged: str


@dataclass(frozen=True)
class Reason:
    """Why reports wait in quarantine, and how many do."""

    text: str
    groups: int
    reports: int


@dataclass(frozen=True)
class Expiry:
    """A metric that expires soon, or did lately."""

    metric: str
    words: str


@dataclass(frozen=True)
class PipelinePage:
    """All that the template shows."""

    day: date
    headline: str
    total: Counted
    today: Counted
    unbalanced: int
    """Rows of the ledger."""
    rows: Capped[LedgerRow]
    """Those that do not balance, or of which something is pending or in quarantine."""
    checks: Sequence[HealthFinding]
    waits: str
    """How much waits to be folded, in a sentence."""
    shards: Capped[ShardShown]
    reasons: Capped[Reason]
    refused: RefusedShown
    kept: Sequence[str]
    expiring: Capped[Expiry]
    soon_days: int = EXPIRES_SOON_DAYS


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    query_parameters(Parameters)
    return render_template("pipeline.html", page=pipeline_page(store))


def pipeline_page(store: Store) -> PipelinePage:
    """Return what the page shows."""
    store_status, counted, day = StoreStatus.of(store), store.counted(), store.today()
    status = store_status.shards
    total = total_of(counted.values())
    rows = _telling(store, counted)
    unbalanced = sum(not row.balanced for row in rows)
    found = findings(Teller.PAGE, Observed(store_status, store_status.trouble, total, asked=store))
    return PipelinePage(
        day,
        f"{total.equation}: {_verdict(unbalanced, sum(not check.well for check in found))}",
        total,
        total_of([each for (_, epoch), each in counted.items() if epoch == day]),
        unbalanced,
        Capped.of(rows, ROWS_MAX),
        found,
        _waits(status),
        Capped.of(_shards(status), ROWS_MAX),
        Capped.of(_reasons(store.quarantined()), REASONS_MAX),
        refused_before(store, day),
        _kept(store),
        Capped.of(_expiring(store, day), ROWS_MAX),
    )


def _verdict(unbalanced: int, ill: int) -> str:
    if unbalanced:
        return "it does not balance."
    if ill == 1:
        return "it balances, and one health check below needs a look."
    return f"it balances, and {ill} health checks below need a look." if ill else "all is well."


def _telling(store: Store, counted: Mapping[TallyKey, Counted]) -> list[LedgerRow]:
    """Return the rows that somebody may have to do something about, the worst first."""
    telling = {
        key: each
        for key, each in counted.items()
        if not each.balanced or each.pending or each.quarantined > each.dropped
    }
    return sorted(store.named(telling), key=lambda row: (row.balanced, row.quarantined == row.dropped))


# Shards and what waits.


def _waits(status: Sequence[ShardStatus]) -> str:
    backlog = sum(shard.backlog for shard in status)
    if not backlog:
        return "No upload waits to be folded."
    waiting = max(shard.waiting_s for shard in status)
    uploads = "One upload waits" if backlog == 1 else f"{backlog:,} uploads wait"
    shard = "of the shard that has waited longest " * (len(status) > 1)
    return f"{uploads} to be folded; {shard}nothing was folded for {duration(waiting)}."


def _shards(status: Sequence[ShardStatus]) -> list[ShardShown]:
    """Return all shards or, where they are many, their sum and those that lag behind the others."""
    if len(status) <= SHARDS_MAX:
        return [_shard(f"{one.shard}", [one]) for one in status]
    sealed, merged = max(shard.sealed for shard in status), max(shard.merged for shard in status)
    late = [one for one in status if one.waiting_s > LAG_MAX_S or one.sealed < sealed or one.merged < merged]
    return [_shard(f"all {len(status)}", status), *(_shard(f"{one.shard}", [one]) for one in late)]


def _shard(name: str, shards: Sequence[ShardStatus]) -> ShardShown:
    backlog = sum(shard.backlog for shard in shards)
    return ShardShown(
        name,
        sum(shard.written for shard in shards),
        sum(shard.cursor for shard in shards),
        backlog,
        duration(max(shard.waiting_s for shard in shards)) if backlog else "",
        _day(min(shard.sealed for shard in shards)),
        _day(min(shard.merged for shard in shards)),
    )


def _day(day: date) -> str:
    return "no day yet" if day == date.min else day.isoformat()


# Quarantine, retention, and plans that end.


def _reasons(waiting: Sequence[Quarantined]) -> list[Reason]:
    """Return why reports wait in quarantine, with the most reports first."""
    held: defaultdict[str, list[int]] = defaultdict(list)
    for group in waiting:
        held[group.reason[:REASON_CHARACTERS]].append(group.n)
    reasons = [Reason(text, len(numbers), sum(numbers)) for text, numbers in held.items()]
    return sorted(reasons, key=lambda reason: (-reason.reports, reason.text))


def _kept(store: Store) -> list[str]:
    retention, first, erased = store.retention(), store.tallies_from(), store.erased()
    message = [
        f"{what} are kept {'for ever' if days is None else f'for {days:,} days after their day'}."
        for what, days in (("Tallies", retention.tallies_days), ("Snapshots", retention.snapshots_days))
    ]
    if first > date.min:
        message.append(f"Tallies of days before {first} were given up; snapshots have their estimates.")
    if erased > date.min:
        message.append(f"Up to {erased} the store's files hold merged tallies, and no upload.")
    return message


def _expiring(store: Store, day: date) -> list[Expiry]:
    """Return the registry's metrics that expire soon, or whose late reports are still taken, the first one first."""
    first, last = day - GRACE, day + timedelta(days=EXPIRES_SOON_DAYS)
    soon = [stored for stored in store.plans() if stored.current and not stored.retired]
    ending = sorted((stored.expires, stored.plan.metric) for stored in soon if first < stored.expires <= last)
    return [Expiry(metric, _expiry(expires, day)) for expires, metric in ending]


def _expiry(expires: date, day: date) -> str:
    if expires <= day:
        return f"expired on {expires}; reports that were on their way are taken before {expires + GRACE}"
    left = (expires - day).days
    return f"expires in {left} day{'s' * (left != 1)}, on {expires}"
