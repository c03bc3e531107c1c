"""The state of a store that servers read: a little every second, the ledger more rarely.

`checks.py` says which of it is well, `web/endpoints.py` gives monitors the numbers.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Generic, Self, TypeVar

from dither_aggregator.analysis.reading_cache import kept_figure
from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.clock import WrongClock
from dither_aggregator.store.contract import REFUSED_DAYS
from dither_aggregator.store.documents import GRACE
from dither_aggregator.store.records import (
    Counted,
    RefusedCount,
    RefusedKey,
    ShardStatus,
    TallyKey,
    sum_refused,
    total_of,
)

# Which metrics of the registry have expired, and which will soon: their devices fall silent, and nothing else says so.
#
# A metric that has expired beside others that go on is the usual end of a release. A registry with nothing but expired
# metrics is a release that nobody replaced in time.


SOON = timedelta(days=60)
"""As in deploy/registry.md: time enough to ship a release, and for most devices to take it."""
NAMED_MAX = 10

_log = logging.getLogger("dither_aggregator")


@dataclass(frozen=True)
class Expiries:
    """The metrics that the registry asks for and that nobody retired, by whether they go on; the first one first."""

    expired: Sequence[StoredPlan]
    soon: Sequence[StoredPlan]
    later: Sequence[StoredPlan]

    @classmethod
    def of(cls, plans: Iterable[StoredPlan], today: date) -> "Expiries":
        """Sort plans. On the day that `expires` names devices ask no more."""
        asked = sorted(
            (stored for stored in plans if stored.current and not stored.retired),
            key=lambda stored: (stored.expires, stored.plan.metric),
        )
        return cls(
            [stored for stored in asked if stored.expires <= today],
            [stored for stored in asked if today < stored.expires <= today + SOON],
            [stored for stored in asked if stored.expires > today + SOON],
        )

    @property
    def last(self) -> date | None:
        """The day on which the last metric expires or has; None where there is none that is not retired."""
        asked = self.later or self.soon or self.expired
        return asked[-1].expires if asked else None

    @property
    def all_over(self) -> bool:
        """Whether nothing but expired metrics is left."""
        return bool(self.expired) and not self.soon and not self.later

    @property
    def words(self) -> str:
        """Which metrics have expired or soon will, and when; "" where none has or will."""
        parts = []
        if self.expired:
            parts.append(f"expired: {_named(self.expired)}")
        if self.soon:
            parts.append(f"expires within {SOON.days} days: {_named(self.soon)}")
        return "; ".join(parts)


def _named(plans: Sequence[StoredPlan]) -> str:
    named = ", ".join(f"{stored.plan.metric} on {stored.expires}" for stored in plans[:NAMED_MAX])
    return f"{named} and {len(plans) - NAMED_MAX:,} more" if len(plans) > NAMED_MAX else named


def log_expiries(store: Store) -> None:
    """Log which metrics have expired or soon will, if any: when a server starts, and when a registry is loaded."""
    found = Expiries.of(store.plans(), store.clock_day())  # neither asks the store: to tell this must hold up nothing
    if found.all_over:
        _log.warning("no metric is left that has not expired: devices report nothing more (%s)", found.words)
    elif found.words:
        _log.warning("metrics of the registry: %s", found.words)


MOVED = "questions moved"


@dataclass(frozen=True)
class StoreStatus:
    """The state that is cheap to read."""

    shards: Sequence[ShardStatus]
    trouble: Mapping[Trouble, str]
    """The store's troubles, by kind, in words for the log."""
    lossy: bool
    """Whether it may lose what it acknowledges, as the operator chose."""
    seal_age_s: float
    """For how long the latest sealed day has been over."""
    clock_day: date
    wrong_clock: WrongClock | None
    last_expiry: date | None
    """The day on which the registry's last metric expires or has; None where it has none that is not retired."""
    left: FreeSpace | None
    read: float = field(default_factory=time.monotonic)
    """When, by `time.monotonic`."""

    @classmethod
    def of(cls, store: Store) -> "StoreStatus":
        """Read a store. Raises as the store does."""
        shards = store.last_status()
        return cls(
            shards,
            store.trouble(),
            bool(store.lossy),
            store.over_for_s(min(shard.sealed for shard in shards)),
            store.clock_day(),
            store.wrong_clock(shards),
            Expiries.of(store.plans(), store.clock_day()).last,
            store.left(),
        )

    @property
    def backlog(self) -> int:
        """How many accepted uploads are not folded."""
        return sum(shard.backlog for shard in self.shards)

    @property
    def sealed(self) -> date:
        """The latest day that every shard has sealed."""
        return min(shard.sealed for shard in self.shards)

    @property
    def waiting_s(self) -> float:
        """For how long the shard that has waited longest has had something to fold, and folded nothing."""
        return max(shard.waiting_s for shard in self.shards)


class Interrupted(Exception):
    """An audit was given up because its process ends."""


@dataclass(frozen=True)
class Ids:
    """The uploads that are remembered, so that no copy is counted."""

    by_day: Sequence[int]
    """How many of each day, the earliest first."""
    bytes_each: int
    """About so much is taken by one."""

    @classmethod
    def of(cls, store: Store) -> "Ids":
        """Count them. May take as long as reading today's."""
        return cls([number for _, number in sorted(store.ids().items())], store.id_bytes)


@dataclass(frozen=True)
class Audit:
    """The state that takes reading the ledger, and the log for pending uploads."""

    total: Counted
    rows: int
    """The rows of the ledger that do not balance."""
    imbalance: int
    """How many reports these rows are off by together, too many or too few."""
    refused_groups: Mapping[str, int]
    """Today's, by reason."""
    refused_reports: Mapping[str, int]
    backup_age_s: float | None
    """How long ago the latest backup was made, when this was read; None without one."""
    ids: Ids
    questions_moved: int
    """The saved questions whose answers moved, as far as that is computed."""
    began: float
    """When reading it began, by `time.monotonic`."""

    @classmethod
    def of(cls, store: Store, until: Callable[[], bool] = lambda: False) -> "Audit":
        """Read a store, shard by shard. Raises as the store does, and Interrupted when told to stop."""
        began = time.monotonic()
        totals: dict[TallyKey, Counted] = {}
        for shard in range(store.shards):
            if until():
                raise Interrupted
            for key, counted in store.shard_ledger(shard).items():
                totals[key] = totals[key] + counted if key in totals else counted
        off = [abs(row.missing) for row in totals.values()]
        groups: Counter[str] = Counter()
        reports: Counter[str] = Counter()
        today = store.today()
        for refusal, refused in store.refused(today, today).items():
            groups[refusal.reason] += refused.groups
            reports[refusal.reason] += refused.reports
        age_s = store.backup_age_s()
        ids = Ids.of(store)
        moved = kept_figure(store, MOVED) or 0
        return cls(total_of(totals.values()), sum(map(bool, off)), sum(off), groups, reports, age_s, ids, moved, began)


# A list of which a page shows no more than the first.


# Refused groups: how many there were by reason and metric, and what to do.


T = TypeVar("T")


@dataclass(frozen=True)
class Capped(Generic[T]):
    """The first of a list, and how many more there are."""

    shown: Sequence[T]
    left: int

    @classmethod
    def of(cls, rows: Sequence[T], most: int) -> Self:
        """Return at most so many of them."""
        return cls(rows[:most], max(len(rows) - most, 0))


SHOWN_DAYS = 7
ROWS_MAX = 100

REASONS_IN_WORDS = {
    "malformed": (
        "malformed",
        "These groups do not have the form that shared/wire.md gives. Another client than dither's sent them, or "
        "something on the way changed them.",
    ),
    "unknown-metric": (
        "unknown metric",
        "The app has a metric that was never loaded here. Load the registry that the app ships: "
        "`dither metrics load metrics.toml`.",
    ),
    "unknown-plan": (
        "unknown plan of the metric",
        "The app has another registry than this store. Load the one that the app ships, before it ships it: "
        "`dither metrics load metrics.toml`.",
    ),
    "expired": (
        "metric expired",
        f"Reports are taken for {GRACE.days} days after a metric expires. If it must go on, give it a later `expires` "
        "in the registry, load that, and ship it; else there is nothing to do.",
    ),
    "retired": (
        "plan retired",
        "An operator retired the plan. `dither metrics retire NAME --rev N --undo` takes its reports again.",
    ),
    "bad-report": (
        "impossible report",
        "The plan of the metric cannot make one of the reports, or has no such cell. dither's own client sends no such "
        "report: it was damaged, made up, or sent by another client.",
    ),
}
"""Each reason in words, and what to do about it; commands are in backticks."""


@dataclass(frozen=True)
class RefusedRow:
    """The groups of one metric that were refused for one reason."""

    reason: str
    metric: str
    """The one that they name; "" where the store has none of that name."""
    count: RefusedCount
    latest: date
    """The last day on which there were any."""

    @property
    def words(self) -> str:
        """The reason in words."""
        return REASONS_IN_WORDS.get(self.reason, (self.reason,))[0]


@dataclass(frozen=True)
class RefusedShown:
    """The groups that were refused on the last days."""

    rows: Capped[RefusedRow]
    """The ones with the most reports come first."""
    total: RefusedCount
    hints: Sequence[tuple[str, str]]
    """The words of each reason that there is, and what to do."""
    days: int = SHOWN_DAYS
    kept_days: int = REFUSED_DAYS


def refused_before(store: Store, day: date) -> RefusedShown:
    """Return what was refused on the SHOWN_DAYS days that end with this one."""
    counted = store.refused(day - timedelta(days=SHOWN_DAYS - 1), day)
    reasons = {key.reason for key in counted}
    return RefusedShown(
        Capped.of(_rows(counted), ROWS_MAX),
        sum(counted.values(), RefusedCount()),
        [hint for reason, hint in REASONS_IN_WORDS.items() if reason in reasons],
    )


def _rows(counted: Mapping[RefusedKey, RefusedCount]) -> list[RefusedRow]:
    """Return the sums over the days."""
    totals = sum_refused({(key.reason, key.metric): one} for key, one in counted.items())
    latest = {(key.reason, key.metric): key.day for key in sorted(counted)}
    rows = [RefusedRow(*key, one, latest[key]) for key, one in totals.items()]
    return sorted(rows, key=lambda row: (-row.count.reports, -row.count.groups, row.reason, row.metric))
