"""Health checks: what each finds now, what it must be, and what to do where it is not.

A check is one object of this file. It has a name, a limit, a next step, the places that tell it, the words for the
trouble it is about, its numbers for `/metrics` and the names of its alerts (deploy/monitoring). No check names a path,
an address or anything of a device, so anybody may read them; the log has the rest. `origins` alone repeats words of
strangers: names of pages, in the letters that such a name has.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Flag, auto
from typing import NamedTuple

from dither_aggregator.analysis.reading_cache import state_of
from dither_aggregator.health.capacity import DAYS_OF_IDS, Trouble, days_until_full
from dither_aggregator.health.status import Audit, Ids, StoreStatus
from dither_aggregator.ingest import process_counters
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store
from dither_aggregator.store.clock import EXPIRES_WITHIN
from dither_aggregator.store.records import DAY_S, Counted, day_at

LAG_MAX_S = 120.0
"""For how long reports may wait without any being folded before somebody should look."""
BACKLOG_MAX = 100_000
"""Uploads: what counters do in minutes. With more of them, a look at the ledger and a backup take long too."""
SEAL_GRACE_S = 3_600.0
"""How long after its end a day may be open: the reports that wait are folded in the first minutes."""
FREE_SHARE = 1 / 20
FREE_BYTES = 4 << 30
"""So many free bytes of a large disk are enough to be told in time."""
AUDIT_AGE_MAX_S = 3_600.0
BACKUP_AGE_MAX_S = 36 * 3_600.0
"""A night's backup is never so old, and one that was missed is."""
CLOCK_OFF_MAX_S = 60.0
NAMED_MAX = 10
_NTP = "Have NTP set the clocks of both machines: days begin and end by the store's."


class Teller(Flag):
    """Who tells a check."""

    SERVER = auto()
    """`/readyz` and `/metrics`, which never ask the store."""
    PAGE = auto()
    """The pipeline's page."""
    DOCTOR = auto()


NOBODY = Teller(0)
EVERYWHERE = ~NOBODY


@dataclass(frozen=True)
class Observed:
    """All that checks look at."""

    status: StoreStatus | None = None
    """The state of the store that was read last; None where it could not be read yet."""
    trouble: Mapping[Trouble, str] = field(default_factory=dict)
    """The trouble of the store, in the log's words."""
    total: Counted | None = None
    """The ledger's sum; None where it was not read yet."""
    audit: Audit | None = None
    threads: Mapping[str, str] = field(default_factory=dict)
    """The troubles of a server's own threads, by their names."""
    asked: Store | None = None
    """The store, where it may be asked now: for the page and the doctor."""

    @property
    def store(self) -> Store:
        """The store of a check that no server tells."""
        assert self.asked
        return self.asked

    @property
    def ids(self) -> Ids | None:
        """The ids of uploads when they were last counted; None where they were not yet."""
        if self.audit:
            return self.audit.ids
        return Ids.of(self.asked) if self.asked else None

    @property
    def read(self) -> StoreStatus:
        """The status of a check that is told only with one."""
        assert self.status
        return self.status


class Gauge(NamedTuple):
    """A number of a finding, for `/metrics`."""

    name: str
    text: str
    value: float


@dataclass(frozen=True)
class HealthFinding:
    """One finding about a server, its store or its machine; in the hint, commands are in backticks."""

    what: str
    value: str
    limit: str
    well: bool
    hint: str
    gauges: Sequence[Gauge] = ()

    def to_document(self) -> dict[str, object]:
        """Return it for monitors."""
        return {"check": self.what, "value": self.value, "limit": self.limit, "ok": self.well, "hint": self.hint}


def found(
    value: str = "", well: bool = True, gauges: Sequence[Gauge] = (), limit: str = "", hint: str = ""
) -> HealthFinding:
    """Return what a look finds; what is left out is the check's own."""
    return HealthFinding("", value, limit, well, hint, gauges)


Look = Callable[[Observed], HealthFinding]


@dataclass(frozen=True)
class HealthCheck:
    """A check: all that is particular to it. As a decorator it takes its look and joins CHECKS."""

    name: str
    limit: str
    hint: str
    places: Teller = EVERYWHERE
    trouble: Trouble | None = None
    """A kind of the store's trouble with which it is not well."""
    message: str = ""
    """The public words for that trouble; "" where the log's own name no path and no address."""
    unread: Teller = NOBODY
    """Who tells it also of a store that could not be read."""
    alerts: tuple[str, ...] = ()
    """The alerts that ask for its numbers; one more is about all checks of a server."""

    def __call__(self, look: Look) -> "HealthCheck":
        """Join CHECKS, in the place of the function beneath."""
        CHECKS[self] = look
        return self

    def find(self, seen: Observed) -> HealthFinding:
        """Return what it finds now."""
        one, trouble = CHECKS[self](seen), without_addresses(seen.trouble).get(self.trouble or "")
        value, well = one.value or trouble or self.limit, one.well and not trouble
        return HealthFinding(self.name, value, one.limit or self.limit, well, one.hint or self.hint, one.gauges)


CHECKS: dict[HealthCheck, Look] = {}
"""All checks, in the order in which they are told."""


def told(by: Teller, seen: Observed) -> list[HealthCheck]:
    """Return the checks that somebody tells now."""
    return [check for check in CHECKS if by in (check.places if seen.status else check.unread)]


def findings(by: Teller, seen: Observed) -> list[HealthFinding]:
    """Return what the checks find that somebody tells now."""
    return [check.find(seen) for check in told(by, seen)]


def without_addresses(trouble: Mapping[str, str] | Mapping[Trouble, str]) -> dict[str, str]:
    """Return what is wrong, by kind, in words that anybody may read."""
    messages = _THREADS | {str(check.trouble): check.message for check in CHECKS if check.trouble}
    return {
        kind: f"{message}; the log says why" if (message := messages.get(kind, "it failed")) else words
        for kind, words in trouble.items()
    }


def duration(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.0f} h"


# A server's threads.

_THREADS = {
    "writer": "uploads cannot be written",
    "counter": "reports cannot be folded",
    "scheduler": "days that are over cannot be sealed",
    "watcher": "nobody looks after the store",
    "auditor": "nobody looks at the ledger",
}


@HealthCheck(
    "writing",
    "uploads are written",
    "The log says why the store cannot be written: mostly a full disk or memory, or no connection to Redis.",
    Teller.SERVER,
    unread=Teller.SERVER,
)
def _writing(seen: Observed) -> HealthFinding:
    failure = without_addresses(seen.threads).get("writer")
    return found(failure or "", not failure)


@HealthCheck(
    "work",
    "every thread does its work",
    "Read the log of the server; a thread that has ended comes back with a restart.",
    Teller.SERVER,
    unread=Teller.SERVER,
)
def _work(seen: Observed) -> HealthFinding:
    others = [f"{name}: {words}" for name, words in sorted(without_addresses(seen.threads).items()) if name != "writer"]
    return found(", ".join(others), not others)


@HealthCheck(
    "origins",
    "told",
    "If a page of yours is among them, start the server with `--allow-origin` and its origin; leave out all others.",
    Teller.SERVER,
    unread=Teller.SERVER,
)
def _origins(seen: Observed) -> HealthFinding:
    """Tell which pages may not send. It is always well: any stranger can say any origin."""
    refused, names = process_counters.refused_origins()
    named = f"; in the last day {', '.join(names)}" if names else ""
    return found(
        f"{refused:,} request{'s' * (refused != 1)} refused since the start{named}" if refused else "none refused"
    )


@HealthCheck(
    "keys",
    "told",
    "If an app of yours sends nothing, compare its key with those of `dither keys list`.",
    Teller.SERVER,
    unread=Teller.SERVER,
)
def _keys(seen: Observed) -> HealthFinding:
    """Tell how many keys were refused. It is always well: any stranger can show any key, so only the doctor judges."""
    wrong, other = process_counters.refused_keys()
    if not wrong + other:
        return found("none refused")
    scopes = f", {other:,} with one that may not do this" if other else ""
    taken = f"{process_counters.taken():,} uploads taken"
    return found(
        f"{wrong:,} request{'s' * (wrong != 1)} with a key that is not known{scopes}, {taken}, since the start"
    )


# The store.


@HealthCheck(
    "folding",
    f"within {duration(LAG_MAX_S)}",
    "Does `dither serve`, or `dither worker`, run? Its log says what it cannot fold; `dither fsck` names damaged "
    "entries, and `dither quarantine aside` sets them apart.",
    trouble=Trouble.FOLDING,
    alerts=("DitherFoldingLags",),
)
def _folding(seen: Observed) -> HealthFinding:
    waiting = seen.read.waiting_s
    text = "For how long something has waited and nothing was folded."
    return found(
        f"nothing folded for {duration(waiting)}" if seen.read.backlog else "nothing waits",
        waiting <= LAG_MAX_S,
        [Gauge("dither_folding_lag_seconds", text, waiting)],
    )


@HealthCheck(
    "backlog",
    f"at most {BACKLOG_MAX:,}",
    "More comes than is folded: run `dither worker` with more processes or on more machines; with `dither serve`, "
    "`dither store copy` moves the store to Redis.",
    trouble=Trouble.BACKLOG_FULL,
    alerts=("DitherBacklogGrows",),
)
def _backlog(seen: Observed) -> HealthFinding:
    uploads = seen.read.backlog
    gauge = Gauge("dither_backlog_uploads", "Accepted uploads that are not folded.", uploads)
    return found(f"{uploads:,} upload{'s' * (uploads != 1)}", uploads <= BACKLOG_MAX, [gauge])


@HealthCheck(
    "sealing",
    f"at most {duration(DAY_S + SEAL_GRACE_S)}",
    "A day is sealed once nothing of it waits. Does `dither serve`, or `dither beat` with a `dither worker`, run?",
    alerts=("DitherNotSealed",),
)
def _sealing(seen: Observed) -> HealthFinding:
    age_s = seen.read.seal_age_s
    return found(
        f"{seen.read.sealed} is sealed, over for {duration(age_s)}",
        age_s <= DAY_S + SEAL_GRACE_S,
        [Gauge("dither_seal_age_seconds", "For how long the latest sealed day has been over.", age_s)],
    )


@HealthCheck(
    "clock",
    "the day before the latest that was used, or later",
    "Let NTP set the clock of the store's machine: days begin and end by it.",
    trouble=Trouble.CLOCK,
)
def _clock(seen: Observed) -> HealthFinding:
    wrong, clock_day = seen.read.wrong_clock, seen.read.clock_day
    return found(
        f"{clock_day}; {wrong.sentence}" if wrong else f"{clock_day}",
        wrong is None,
        limit=f"{max(shard.day for shard in seen.read.shards) - timedelta(days=1)} or later",
        hint=wrong.cure if wrong else "",
    )


HealthCheck(
    "store",
    "the one that was opened",
    "Put the store back that was there, or restart the server with the one that is. The log says which.",
    trouble=Trouble.STORE,
    message="the store cannot be read",
    unread=Teller.SERVER,
)(lambda seen: found())


HealthCheck(
    "nodes",
    "all of the cluster there",
    "Uploads of the shards on that node are told to come again; all others are taken. Start it, or what replicates it.",
    trouble=Trouble.AWAY,
    message="a part of the store's cluster is away",
    unread=Teller.SERVER,
)(lambda seen: found())


@HealthCheck(
    "durability",
    "what is acknowledged is on the disk",
    "Give the store the settings that deploy/machines.md lists; the log of the server names those that differ.",
    trouble=Trouble.SETTINGS,
    message="the store may lose what it acknowledges",
    unread=Teller.SERVER,
)
def _durability(seen: Observed) -> HealthFinding:
    if seen.status and seen.status.lossy:
        return found("the store may lose what it acknowledges, as the one who started it chose", False)
    return found()


HealthCheck(
    "losses",
    "none",
    "Acknowledged uploads are gone: deploy/machines.md has the store's settings, deploy/backups.md the way back.",
    trouble=Trouble.LOST,
    unread=Teller.SERVER,
)(lambda seen: found())


_MORE_SPACE = (
    "Free space before uploads are refused: a larger disk or more memory, or `dither store keep` for fewer days."
)


@HealthCheck(
    "capacity",
    "told",
    _MORE_SPACE,
    trouble=Trouble.DISK_FULL,
    alerts=("DitherCapacityShrinks", "DitherCapacityLow"),
)
def _capacity(seen: Observed) -> HealthFinding:
    left = seen.read.left
    if left is None:
        return found("not told", True, hint="Give the Redis a maxmemory: deploy/redis/data.conf has one.")
    what, least = left.what, min(left.total * FREE_SHARE, FREE_BYTES)
    gauges = [
        Gauge(f"dither_{what}_free_bytes", f"How much {what} the store can still take.", left.free),
        Gauge(f"dither_{what}_size_bytes", f"How much {what} there is for the store.", left.total),
    ]
    if Trouble.DISK_FULL in seen.trouble:
        return found("", False, gauges, "above the floor", f"Uploads are refused until there is. {_MORE_SPACE}")
    return found(f"{_size(left.free)} of {what}", left.free >= least, gauges, f"at least {_size(least)}")


def _size(size: float) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.0f} MiB"


@HealthCheck(
    "ids",
    f"room for {DAYS_OF_IDS} days as busy as the busiest",
    "Ids of uploads, by which copies are known, fill it: a larger disk or more memory. deploy/sizes.md has how much.",
    alerts=("DitherIdsFill",),
)
def _ids(seen: Observed) -> HealthFinding:
    left, ids = seen.read.left, seen.ids
    if ids is None:
        return found("not read yet")
    full = days_until_full(ids.by_day, ids.bytes_each, left.free) if left else None
    text = "Within what time ids of uploads fill the store; +Inf where they do not."
    within = f", full within {full} day{'s' * (full != 1)}" if full else ""
    return found(
        f"about {_size(sum(ids.by_day) * ids.bytes_each)} of ids{within}",
        full is None,
        [Gauge("dither_ids_full_seconds", text, full * DAY_S if full else float("inf"))],
    )


_USUAL = "Some minutes after midnight (UTC) this is usual; later: "


@HealthCheck(
    "merging",
    "all sealed days",
    f"{_USUAL}does `dither serve`, or `dither beat` with a `dither worker`, run?",
    Teller.PAGE,
)
def _merging(seen: Observed) -> HealthFinding:
    merged = min(shard.merged for shard in seen.read.shards)
    return found(f"{merged} is merged" if merged > date.min else "no day yet", merged >= seen.read.sealed)


@HealthCheck(
    "finalizing",
    "all merged days",
    f"{_USUAL}the log says which tally cannot be read, and `dither fsck` why.",
    Teller.PAGE,
)
def _finalizing(seen: Observed) -> HealthFinding:
    metrics = len(maintenance.unfinalized(seen.store))
    return found(f"missing for {metrics:,} metric{'s' * (metrics != 1)}" if metrics else "", not metrics)


@HealthCheck(
    "time",
    f"within {CLOCK_OFF_MAX_S:.0f} s",
    _NTP,
    Teller.DOCTOR,
)
def _both_clocks(seen: Observed) -> HealthFinding:
    now, ahead_s, expires = time.time(), seen.store.ahead_s(), seen.read.last_expiry
    days = {"the store's": day_at(now + ahead_s), "this machine's": day_at(now)}
    wrong = [whose for whose, day in days.items() if expires and not expires - EXPIRES_WITHIN <= day <= expires]
    which = f"It is {wrong[0]} that is wrong, by the dates of the registry. " if len(wrong) == 1 else ""
    return found(
        f"the store's clock is {abs(ahead_s):,.1f} s {'ahead of' if ahead_s >= 0 else 'behind'} this machine's",
        abs(ahead_s) <= CLOCK_OFF_MAX_S,
        hint=f"{which}{_NTP}",
    )


# The ledger.


@HealthCheck(
    "ledger",
    f"balances, read within {duration(AUDIT_AGE_MAX_S)}",
    "`dither ledger` shows the rows that do not balance, `dither fsck` names what is damaged, and "
    "`dither quarantine aside` sets damaged entries of the log apart.",
    Teller.SERVER | Teller.DOCTOR,
    unread=Teller.SERVER,
    alerts=("DitherLedgerImbalance", "DitherLedgerUnread"),
)
def _ledger(seen: Observed) -> HealthFinding:
    audit = seen.audit
    if audit is None:
        return found("not read yet")
    age = time.monotonic() - audit.began
    gauges = [
        Gauge("dither_ledger_age_seconds", "Since the ledger was last read.", age),
        Gauge("dither_ledger_imbalance_reports", "Reports by which the ledger does not balance.", audit.imbalance),
    ]
    rows = f"{audit.rows:,} row{'s' * (audit.rows != 1)} off by {audit.imbalance:,} reports"
    value = f"{rows if audit.rows else 'balances'}, read {duration(age)} ago"
    return found(value, not audit.rows and age <= AUDIT_AGE_MAX_S, gauges)


@HealthCheck(
    "quarantine",
    "nothing waits",
    "`dither quarantine list` says why; replay what can be counted now, and drop what never can be.",
    unread=Teller.SERVER,
    alerts=("DitherQuarantined",),
)
def _quarantine(seen: Observed) -> HealthFinding:
    if seen.total is None:
        return found()
    waiting = seen.total.quarantined - seen.total.dropped
    return found(
        f"{waiting:,} report{'s wait' if waiting != 1 else ' waits'}" if waiting else "",
        not waiting,
        [Gauge("dither_reports_quarantined", "Accepted reports that wait in quarantine.", waiting)],
    )


@HealthCheck(
    "backup",
    f"within {duration(BACKUP_AGE_MAX_S)}, where any was made",
    "`dither backup` makes one; does its timer run? Its log says why one failed: deploy/backups.md.",
    Teller.SERVER | Teller.DOCTOR,
    unread=Teller.SERVER,
    alerts=("DitherBackupOld",),
)
def _backup(seen: Observed) -> HealthFinding:
    """Tell that backups have stopped. An operator who copies the store in another way never began them."""
    if seen.audit is None or seen.audit.backup_age_s is None:
        return found("none was made" if seen.audit else "not read yet")
    age = seen.audit.backup_age_s + time.monotonic() - seen.audit.began
    return found(
        f"the latest is {duration(age)} old" if age >= 0 else "the latest is of a day that is yet to come",
        -CLOCK_OFF_MAX_S <= age <= BACKUP_AGE_MAX_S,
        [Gauge("dither_backup_age_seconds", "Since the latest backup became whole.", age)],
    )


# Readings.


@HealthCheck(
    "readings",
    "none that could not be computed",
    "Pages say it in the metric's row, and other rows stand. It is tried again, ever more rarely; the log of the "
    "server or worker says more.",
    Teller.PAGE | Teller.DOCTOR,
)
def _readings(seen: Observed) -> HealthFinding:
    states = [state for entry in seen.store.open_readings() if (state := state_of(entry))]
    failures = {state.metric: state.words for state in states if state.failed}
    more = f" and {len(failures) - NAMED_MAX:,} more" if len(failures) > NAMED_MAX else ""
    named = ", ".join(f"{metric}: {words}" for metric, words in sorted(failures.items())[:NAMED_MAX])
    return found(f"{named}{more}" if failures else f"{len(states):,} being computed", not failures)
