"""The records of a dump: everything that makes another store the same, whichever kind it is."""

from dataclasses import dataclass, field
from datetime import date

from dither_aggregator.store.records import Final, Retention


@dataclass(frozen=True)
class Identity:
    """The first record: what is fixed when a store is made."""

    app: str
    key: str
    digest_key: bytes
    generation: str
    """Of the store that was dumped."""
    retention: Retention
    tallies_from: date


@dataclass(frozen=True)
class PlanRecord:
    """A plan as `StoredPlan.to_document` gives it."""

    document: dict[str, object]


@dataclass(frozen=True)
class ShardRecord:
    """A shard: the days it has used and sealed, its pending entries, ledger and quarantine, at one instant.

    Its seen ids and its segments follow.
    """

    shard: int
    day: date
    sealed: date
    cursor: int
    entries: tuple[bytes, ...]
    """Whole entries of the log, as packed, oldest first."""
    ledger: dict[tuple[int, date], tuple[int, int, int, int]] = field(default_factory=dict)
    """(accepted, folded, quarantined, dropped) by plan and epoch."""
    quarantine: tuple[tuple[int, date, int, str, bytes], ...] = ()
    """(plan, epoch, n, reason, reports) of each group."""


@dataclass(frozen=True)
class SeenRecord:
    """Ids of uploads that were answered on one day: keyed digest to what the store keeps as the answer."""

    day: date
    answers: dict[bytes, bytes]


@dataclass(frozen=True)
class TallyRecord:
    """A shard's part of a tally."""

    shard: int
    plan: int
    epoch: date
    n: int
    counts: bytes


@dataclass(frozen=True)
class FinalRecord:
    """What is recorded of a final epoch, and its snapshot where that is still kept."""

    plan: int
    epoch: date
    final: Final
    snapshot: bytes | None


Record = Identity | PlanRecord | ShardRecord | SeenRecord | TallyRecord | FinalRecord
