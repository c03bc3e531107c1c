"""The records of a dump: everything that makes another store the same, whichever kind it is.

Each has a document for a backup's file, in JSON's own types: bytes are base64, days are ISO 8601.
"""

import base64
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.records import (
    Batch,
    Counted,
    Document,
    Final,
    LogGroup,
    Poison,
    RefusedCount,
    RefusedKey,
    TallyKey,
)

DOCUMENTS_BYTES = 1024 * 1024
"""So many bytes of documents come in one record, but for a longer document."""


@dataclass(frozen=True)
class Identity:
    """The first record: what is fixed when a store is made."""

    app: str
    secret: bytes
    """It hashes keys and signs sessions."""
    digest_key: bytes
    generation: str
    """Another one for each store: of a dump's that of the store that was dumped."""
    tallies_from: date = date.min

    @classmethod
    def drawn(cls, app: str) -> "Identity":
        """Return what a new store of an app is known by."""
        return cls(app, secrets.token_bytes(32), secrets.token_bytes(32), secrets.token_hex(8))

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {
            **vars(self),
            "secret": _text(self.secret),
            "digest_key": _text(self.digest_key),
            "tallies_from": self.tallies_from.isoformat(),
        }

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "Identity":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        app, generation = fields["app"], fields["generation"]
        if not all(isinstance(text, str) and text for text in (app, generation)):
            raise ValueError("an app and a generation are texts")
        secret, digest_key = _bytes(fields["secret"]), _bytes(fields["digest_key"])
        return cls(app, secret, digest_key, generation, date.fromisoformat(fields["tallies_from"]))


@dataclass(frozen=True)
class DocumentsRecord:
    """Some documents of one kind, those of a numbered kind in their order."""

    kind: type[Document]
    documents: tuple[Document, ...]

    @classmethod
    def each(cls, kind: type[Document], documents: Iterable[Document]) -> Iterator["DocumentsRecord"]:
        """Yield the records of all documents of a kind."""
        some: list[Document] = []
        size = 0
        for one in documents:
            length = len(one.to_text())
            if some and size + length > DOCUMENTS_BYTES:
                yield cls(kind, tuple(some))
                some, size = [], 0
            some.append(one)
            size += length
        if some:
            yield cls(kind, tuple(some))

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {"kind": self.kind.kind, "documents": [one.to_document() for one in self.documents]}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "DocumentsRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        (kind,) = [kind for kind in KINDS if kind.kind == fields["kind"]]
        return cls(kind, tuple(map(kind.from_document, fields["documents"])))


@dataclass(frozen=True)
class BatchesRecord:
    """The batches of open days, as at one instant before any tally is read. A store without any has no such record."""

    hour: int
    """The hour of the last cut, in hours since 1970."""
    batches: tuple[Batch, ...]

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        kept = [[one.plan, one.epoch.isoformat(), one.shown, one.n, _text(one.packed)] for one in self.batches]
        return {"hour": self.hour, "batches": kept}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "BatchesRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        return cls(
            fields["hour"],
            tuple(
                Batch(plan, date.fromisoformat(day), shown, n, _bytes(packed))
                for plan, day, shown, n, packed in fields["batches"]
            ),
        )


@dataclass(frozen=True)
class ShardRecord:
    """A shard at one instant: the days it has used and sealed, pending entries, ledger, quarantine, refused groups.

    Its seen ids and its segments follow.
    """

    shard: int
    day: date
    sealed: date
    cursor: int
    entries: tuple[bytes, ...]
    """Whole entries of the log, as packed, oldest first."""
    ledger: dict[TallyKey, Counted] = field(default_factory=dict)
    """As it is kept: what is pending is in the entries."""
    quarantine: tuple[Poison, ...] = ()
    refused: dict[RefusedKey, RefusedCount] = field(default_factory=dict)
    """Older releases read a backup without them, and their backups have none."""

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {
            **vars(self),
            "day": self.day.isoformat(),
            "sealed": self.sealed.isoformat(),
            "entries": [_text(entry) for entry in self.entries],
            "ledger": [[plan, epoch.isoformat(), *row.kept] for (plan, epoch), row in self.ledger.items()],
            "quarantine": [
                [group.plan, group.cell, group.epoch.isoformat(), group.n, reason, _text(group.reports)]
                for group, reason in self.quarantine
            ],
            "refused": [
                [key.day.isoformat(), key.metric, key.reason, one.groups, one.reports]
                for key, one in self.refused.items()
            ],
        }

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "ShardRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        return cls(
            fields["shard"],
            date.fromisoformat(fields["day"]),
            date.fromisoformat(fields["sealed"]),
            fields["cursor"],
            tuple(_bytes(entry) for entry in fields["entries"]),
            {
                (plan, date.fromisoformat(day)): Counted.from_kept(a, f, q, d)
                for plan, day, a, f, q, d in fields["ledger"]
            },
            tuple(
                Poison(LogGroup(plan, cell, date.fromisoformat(day), n, _bytes(reports)), reason)
                for plan, cell, day, n, reason, reports in fields["quarantine"]
            ),
            {
                RefusedKey(date.fromisoformat(day), metric, reason): RefusedCount(groups, reports)
                for day, metric, reason, groups, reports in fields.get("refused", ())
            },
        )


@dataclass(frozen=True)
class SeenRecord:
    """Ids of uploads that were answered on one day: keyed digest to what the store keeps as the answer."""

    day: date
    answers: dict[bytes, bytes]

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        answers = {_text(id_): _text(answer) for id_, answer in self.answers.items()}
        return {"day": self.day.isoformat(), "answers": answers}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "SeenRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        answers = {_bytes(id_): _bytes(answer) for id_, answer in fields["answers"].items()}
        return cls(date.fromisoformat(fields["day"]), answers)


@dataclass(frozen=True)
class TallyRecord:
    """A shard's part of a tally."""

    shard: int
    plan: int
    epoch: date
    n: int
    counts: bytes

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {**vars(self), "epoch": self.epoch.isoformat(), "counts": _text(self.counts)}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "TallyRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        return cls(**{**fields, "epoch": date.fromisoformat(fields["epoch"]), "counts": _bytes(fields["counts"])})


@dataclass(frozen=True)
class FinalRecord:
    """A finalized epoch: its record, and its snapshot if the store still has that."""

    plan: int
    epoch: date
    final: Final
    snapshot: bytes | None

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {
            "plan": self.plan,
            "epoch": self.epoch.isoformat(),
            "final": vars(self.final),
            "snapshot": None if self.snapshot is None else _text(self.snapshot),
        }

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> "FinalRecord":
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        snapshot = fields["snapshot"]
        return cls(
            fields["plan"],
            date.fromisoformat(fields["epoch"]),
            Final(**fields["final"]),
            None if snapshot is None else _bytes(snapshot),
        )


Record = Identity | DocumentsRecord | BatchesRecord | ShardRecord | SeenRecord | TallyRecord | FinalRecord


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
