"""The state of a store that servers read: a little every second, the ledger more rarely.

`checks.py` says which of it is well, `web/health_endpoints.py` gives monitors the numbers.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from dither_aggregator.analysis.reading_cache import kept_figure
from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.clock import WrongClock
from dither_aggregator.store.records import Counted, ShardStatus, TallyKey, total_of

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
        off = [abs(row.accepted - row.folded - row.pending - row.quarantined) for row in totals.values()]
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
