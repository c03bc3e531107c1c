"""Health checks: what each finds now, what it must be, and what to do where it is not.

`/readyz`, `dither doctor`, the pipeline's page and `/metrics` tell the same ones. No check names a path, an address or
anything of a device, so anybody may read them; the log has the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dither_aggregator.health.capacity import FreeSpace
from dither_aggregator.health.status import Audit, StoreStatus
from dither_aggregator.store.packing import DAY_S
from dither_aggregator.store.records import ShardStatus

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

FIXED = (
    "writing", "work", "folding", "backlog", "sealing", "clock", "store", "durability", "losses", "capacity", "ledger",
    "quarantine",
)  # fmt: skip
"""The checks that a server always tells, and `/metrics` has a series of."""


@dataclass(frozen=True)
class HealthCheck:
    """One finding of a server, its store or its machine; in the hint, commands are in backticks."""

    what: str
    value: str
    limit: str
    well: bool
    hint: str

    def to_document(self) -> dict[str, object]:
        """Return it for monitors."""
        return {"check": self.what, "value": self.value, "limit": self.limit, "ok": self.well, "hint": self.hint}


# Words in place of what the log says.

_MESSAGES = {
    "writer": "uploads cannot be written",
    "counter": "reports cannot be folded",
    "scheduler": "days that are over cannot be sealed",
    "watcher": "nobody looks after the store",
    "auditor": "nobody looks at the ledger",
    "store": "the store cannot be read",
    "settings": "the store may lose what it acknowledges",
}
"""In place of what is said in the log, which may name a path or an address."""
_HARMLESS = {"backlog-full", "clock", "disk-full", "folding", "lost"}
"""The words for these troubles hold only days, seconds, bytes and uploads."""


def without_addresses(trouble: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong, by kind, in words that anybody may read."""
    return {
        kind: message if kind in _HARMLESS else f"{_MESSAGES.get(kind, 'it failed')}; the log says why"
        for kind, message in trouble.items()
    }


def duration(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.0f} h"


# The store's.

_OF_STORE = {
    "store": (
        "store",
        "the one that was opened",
        "Put the store back that was there, or restart the server with the one that is. The log says which.",
    ),
    "settings": (
        "durability",
        "what is acknowledged is on the disk",
        "Give the store the settings that deploy/machines.md lists; the log of the server names those that differ.",
    ),
    "lost": (
        "losses",
        "none",
        "Acknowledged uploads are gone: deploy/machines.md has the store's settings, deploy/backups.md the way back.",
    ),
}
"""By the kind of trouble: the check, its value and limit where all is well, and the hint."""
_OWN = {"backlog-full", "clock", "disk-full", "folding"}
"""Kinds of trouble with a check of their own."""


def of_store(store_status: StoreStatus | None, found: Mapping[str, str]) -> list[HealthCheck]:
    """Return what a store tells of its health at a glance; `found` is what is wrong with it, by kind.

    Without a status, because it could not be read yet, only what is wrong.
    """
    trouble = without_addresses(found)
    if store_status and store_status.lossy:
        trouble["settings"] = "the store may lose what it acknowledges, as the one who started it chose"
    checks = [
        HealthCheck(what, trouble.get(kind, usual), usual, kind not in trouble, hint)
        for kind, (what, usual, hint) in _OF_STORE.items()
    ]
    others = [
        HealthCheck(kind, trouble[kind], "as it must be", False, "Read the log of the server.")
        for kind in sorted(trouble.keys() - _OF_STORE.keys() - _OWN)
    ]
    if store_status is None:
        return [*checks, *others]
    return [
        _folding(store_status.shards),
        _backlog(store_status.backlog, trouble),
        _sealing(store_status),
        _clock(store_status),
        *checks,
        _capacity(store_status.left, trouble),
        *others,
    ]


def _folding(status: Sequence[ShardStatus]) -> HealthCheck:
    waiting = max(shard.waiting_s for shard in status)
    return HealthCheck(
        "folding",
        f"nothing folded for {duration(waiting)}" if any(shard.backlog for shard in status) else "nothing waits",
        f"within {duration(LAG_MAX_S)}",
        waiting <= LAG_MAX_S,
        "Does `dither serve`, or `dither worker`, run? Its log says what it cannot fold; `dither fsck` names damaged "
        "entries, and `dither quarantine aside` sets them apart.",
    )


def _backlog(uploads: int, trouble: Mapping[str, str]) -> HealthCheck:
    return HealthCheck(
        "backlog",
        f"{uploads:,} upload{'s' * (uploads != 1)}",
        f"at most {BACKLOG_MAX:,}",
        uploads <= BACKLOG_MAX and "backlog-full" not in trouble,
        "More comes than is folded: run `dither worker` with more processes or on more machines; with `dither serve`, "
        "`dither store copy` moves the store to Redis.",
    )


def _sealing(store_status: StoreStatus) -> HealthCheck:
    sealed = min(shard.sealed for shard in store_status.shards)
    return HealthCheck(
        "sealing",
        f"{sealed} is sealed, over for {duration(store_status.seal_age_s)}",
        f"at most {duration(DAY_S + SEAL_GRACE_S)}",
        store_status.seal_age_s <= DAY_S + SEAL_GRACE_S,
        "A day is sealed once nothing of it waits. Does `dither serve`, or `dither beat` with a `dither worker`, run?",
    )


def _clock(store_status: StoreStatus) -> HealthCheck:
    wrong, day = store_status.wrong_clock, max(shard.day for shard in store_status.shards)
    return HealthCheck(
        "clock",
        f"{store_status.clock_day}; {wrong.sentence}" if wrong else f"{store_status.clock_day}",
        f"{day - timedelta(days=1)} or later",
        wrong is None,
        wrong.cure if wrong else "Let NTP set the clock of the store's machine: days begin and end by it.",
    )


def _capacity(left: FreeSpace | None, trouble: Mapping[str, str]) -> HealthCheck:
    hint = "Free space before uploads are refused: a larger disk or more memory, or `dither store keep` for fewer days."
    if left is None:
        return HealthCheck(
            "capacity", "not told", "told", True, "Give the Redis a maxmemory: deploy/redis/data.conf has one."
        )
    least = min(left.total * FREE_SHARE, FREE_BYTES)
    if message := trouble.get("disk-full"):
        return HealthCheck("capacity", message, "above the floor", False, f"Uploads are refused until there is. {hint}")
    well = left.free >= least
    return HealthCheck("capacity", f"{_size(left.free)} of {left.what}", f"at least {_size(least)}", well, hint)


def _size(size: float) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.0f} MiB"


# The ledger's.


def of_ledger(audit: Audit | None, now: float) -> list[HealthCheck]:
    """Return what the ledger tells; `now` is by `time.monotonic`. None is one that was not read yet."""
    return [_balance(audit, now), quarantine(audit.waiting if audit else 0)]


def _balance(audit: Audit | None, now: float) -> HealthCheck:
    hint = (
        "`dither ledger` shows the rows that do not balance, `dither fsck` names what is damaged, and "
        "`dither quarantine aside` sets damaged entries of the log apart."
    )
    limit = f"balances, read within {duration(AUDIT_AGE_MAX_S)}"
    if audit is None:
        return HealthCheck("ledger", "not read yet", limit, True, hint)
    age = now - audit.began
    rows = f"{audit.rows:,} row{'s' * (audit.rows != 1)} off by {audit.imbalance:,} reports"
    value = f"{rows if audit.rows else 'balances'}, read {duration(age)} ago"
    return HealthCheck("ledger", value, limit, not audit.rows and age <= AUDIT_AGE_MAX_S, hint)


def quarantine(waiting: int) -> HealthCheck:
    """Return the check of reports that wait in quarantine."""
    return HealthCheck(
        "quarantine",
        f"{waiting:,} report{'s wait' if waiting != 1 else ' waits'}" if waiting else "nothing waits",
        "nothing waits",
        not waiting,
        "`dither quarantine list` says why; replay what can be counted now, and drop what never can be.",
    )


# A server's.


def of_threads(trouble: Mapping[str, str]) -> list[HealthCheck]:
    """Return what a server's own threads tell, by name; empty where all of them do their work."""
    messages = without_addresses(trouble)
    others = [f"{kind}: {message}" for kind, message in sorted(messages.items()) if kind != "writer"]
    return [
        HealthCheck(
            "writing",
            messages.get("writer", "uploads are written"),
            "uploads are written",
            "writer" not in messages,
            "The log says why the store cannot be written: mostly a full disk or memory, or no connection to Redis.",
        ),
        HealthCheck(
            "work",
            ", ".join(others) or "every thread does its work",
            "every thread does its work",
            not others,
            "Read the log of the server; a thread that has ended comes back with a restart.",
        ),
    ]
