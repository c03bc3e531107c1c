"""The meaning of the rows of the SQLite store's tables: each record has one way in and one way out."""

from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any

from dither_aggregator.store.packing import BODY_BYTES, NO_RECEIPT, check_size
from dither_aggregator.store.records import Counted, Final, LogGroup, Poison, Retention, Segment, TallyKey

INSERT_SEGMENT = "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)"
INSERT_POISON = "INSERT INTO quarantine (plan, cell, epoch, n, reason, reports) VALUES (?, ?, ?, ?, ?, ?)"
INSERT_LEDGER = "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)"
INSERT_FINAL = "INSERT INTO final VALUES (?, ?, ?, ?)"
INSERT_SNAPSHOT = "INSERT OR IGNORE INTO snapshot VALUES (?, ?, ?)"
_SEGMENTS = "(SELECT * FROM segment UNION ALL SELECT * FROM tally)"
SELECT_SEGMENTS = f"SELECT plan, epoch, n, counts FROM {_SEGMENTS} ORDER BY plan, epoch"  # noqa: S608
SELECT_OF_TALLY = f"SELECT low, high, n, counts FROM {_SEGMENTS} WHERE plan = ? AND epoch = ? ORDER BY low"  # noqa: S608
SELECT_LEDGER = "SELECT plan, epoch, accepted, folded, quarantined, dropped FROM ledger"

INSERT_SEEN = "INSERT INTO seen VALUES (?, ?, ?)"
INSERT_LOG = "INSERT INTO log (entry) VALUES (?)"
SEEN_AT_ONCE = 256
"""Uploads that one statement looks for: it has two parameters for each."""


@cache
def select_seen(rows: int) -> str:
    """Return the statement that looks for so many uploads among those that were answered, each named twice."""
    ids = ", ".join("?" * rows)
    return (
        f"SELECT id, answer FROM seen WHERE id IN ({ids}) "  # noqa: S608 - our own words
        f"UNION ALL SELECT id, body FROM taken WHERE id IN ({ids})"
    )


def whole_answer(answer: bytes) -> bytes:
    """Return an answer of `seen`, or what stands in the place of one that `taken` has no more of than the body."""
    return answer + NO_RECEIPT if len(answer) == BODY_BYTES else answer


def segment_row(one: Segment) -> tuple[int, str, int, int, int, bytes]:
    """Return the row of a segment."""
    return one.plan, one.epoch.isoformat(), one.low, one.high, one.n, one.packed


def segment_of(plan: int, epoch: date, row: tuple[int, int, int, bytes], size: int) -> Segment:
    """Return the segment of `size` counts of (low, high, n, counts); raise BadTally for anything else."""
    low, high, n, packed = row
    return Segment(plan, epoch, low, high, n, check_size(packed, size))


def poison_row(poison: Poison) -> tuple[int, int, str, int, str, bytes]:
    """Return the row of a group that could not be counted, but for its number."""
    group = poison.group
    return group.plan, group.cell, group.epoch.isoformat(), group.n, poison.reason, group.reports


def poison_of(plan: int, cell: int, epoch: str, n: int, reason: str, reports: bytes) -> Poison:
    """Return the group of a row of the quarantine."""
    return Poison(LogGroup(plan, cell, date.fromisoformat(epoch), n, reports), reason)


def ledger_row(key: TallyKey, row: Counted) -> tuple[int, str, int, int, int, int]:
    """Return the row of what is kept of a plan and epoch."""
    plan, epoch = key
    return plan, epoch.isoformat(), *row.kept


def ledger_of(plan: int, epoch: str, *kept: int) -> tuple[TallyKey, Counted]:
    """Return what a row of the ledger keeps."""
    return (plan, date.fromisoformat(epoch)), Counted.from_kept(*kept)


def final_row(plan: int, epoch: date, final: Final) -> tuple[int, str, str, str]:
    """Return the row of what is kept of a finalized epoch."""
    return plan, epoch.isoformat(), final.digest, final.snapshot


def retention_of(state: Mapping[str, Any]) -> Retention:
    """Return what a store's state says of how long tallies and snapshots are kept."""
    return Retention(state.get("tallies_days"), state.get("snapshots_days"))
