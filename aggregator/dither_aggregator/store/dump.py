"""The records of a dump: everything that makes another store the same, whichever kind it is.

Each has a document for a backup's file, in JSON's own types: bytes are base64, days are ISO 8601.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Self

import msgspec

from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.packing import BODY_BYTES, ID_BYTES
from dither_aggregator.store.records import Batch, Counted, Final, LogGroup, Poison, RefusedCount, RefusedKey, TallyKey

DOCUMENTS_BYTES = 1024 * 1024
"""So many bytes of documents come in one record, but for a longer document."""


class Record:
    """A part of a dump."""

    def to_document(self) -> dict[str, Any]:
        """Return what `from_document` needs to make this again."""
        document: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return document

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make the record of a document. `archive.read` turns the errors of a wrong one into a StoreError."""
        return msgspec.convert(fields, cls, str_keys=True)


_Text = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Identity(Record):
    """The first record: what is fixed when a store is made."""

    app: _Text
    secret: bytes
    """It hashes keys and signs sessions."""
    digest_key: bytes
    generation: _Text
    """Another one for each store: of a dump's that of the store that was dumped."""
    tallies_from: date = date.min

    @classmethod
    def drawn(cls, app: str) -> "Identity":
        """Return what a new store of an app is known by."""
        return cls(app, secrets.token_bytes(32), secrets.token_bytes(32), secrets.token_hex(8))


@dataclass(frozen=True)
class DocumentsRecord(Record):
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

    def to_document(self) -> dict[str, Any]:
        """Return the kind's name and the fields of each."""
        return {"kind": self.kind.kind, "documents": [one.to_document() for one in self.documents]}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make the documents of their fields."""
        (kind,) = [kind for kind in KINDS if kind.kind == fields["kind"]]
        return cls(kind, tuple(map(kind.from_document, fields["documents"])))


@dataclass(frozen=True)
class BatchesRecord(Record):
    """The batches of open days, as at one instant before any tally is read. A store without any has no such record."""

    hour: int
    """The hour of the last cut, in hours since 1970."""
    batches: tuple[Batch, ...]

    def to_document(self) -> dict[str, Any]:
        """Return the hour, and each batch as a list."""
        rows = [tuple(vars(one).values()) for one in self.batches]
        return {"hour": self.hour, "batches": msgspec.to_builtins(rows)}

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make the batches of their lists."""
        rows = msgspec.convert(fields["batches"], list[tuple[int, date, bool, int, bytes]])
        return cls(fields["hour"], tuple(Batch(*row) for row in rows))


@dataclass(frozen=True)
class ShardRecord(Record):
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

    def to_document(self) -> dict[str, Any]:
        """Return the fields by name, and each row as a list."""
        document: dict[str, Any] = msgspec.to_builtins(
            {
                **vars(self),
                "ledger": [(*key, *row.kept) for key, row in self.ledger.items()],
                "quarantine": [(*group[:4], reason, group.reports) for group, reason in self.quarantine],
                "refused": [(*key, one.groups, one.reports) for key, one in self.refused.items()],
            }
        )
        return document

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make the shard of its fields."""
        ledger = msgspec.convert(fields["ledger"], list[tuple[int, date, int, int, int, int]])
        quarantine = msgspec.convert(fields["quarantine"], list[tuple[int, int, date, int, str, bytes]])
        refused = msgspec.convert(fields.get("refused", ()), list[tuple[date, str, str, int, int]])
        return cls(
            fields["shard"],
            date.fromisoformat(fields["day"]),
            date.fromisoformat(fields["sealed"]),
            fields["cursor"],
            msgspec.convert(fields["entries"], tuple[bytes, ...]),
            {(plan, day): Counted.from_kept(*kept) for plan, day, *kept in ledger},
            tuple(
                Poison(LogGroup(plan, cell, day, n, held), reason) for plan, cell, day, n, reason, held in quarantine
            ),
            {RefusedKey(day, metric, reason): RefusedCount(*counts) for day, metric, reason, *counts in refused},
        )


@dataclass(frozen=True)
class SeenRecord(Record):
    """Uploads of one day: the digest of each one's id to that of its body."""

    day: date
    bodies: dict[bytes, bytes]
    of: int = 0
    """How many ids of the day the whole store has, about: another makes room for so many. 0 where that is not told."""

    def to_document(self) -> dict[str, Any]:
        """Return the day, how many, and the digests of each upload."""
        document: dict[str, Any] = msgspec.to_builtins(
            {"day": self.day, "of": self.of, "ids": self.bodies}, str_keys=True
        )
        return document

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make the record of a day; before version 6 it has longer digests, and the answers behind those of bodies."""
        ids = msgspec.convert(fields["ids" if "ids" in fields else "answers"], dict[bytes, bytes], str_keys=True)
        bodies = {id_[:ID_BYTES]: body[:BODY_BYTES] for id_, body in ids.items()}
        return cls(date.fromisoformat(fields["day"]), bodies, fields.get("of", 0))


@dataclass(frozen=True)
class TallyRecord(Record):
    """A shard's part of a tally."""

    shard: int
    plan: int
    epoch: date
    n: int
    counts: bytes


@dataclass(frozen=True)
class FinalRecord(Record):
    """A finalized epoch: its record, and its snapshot if the store still has that."""

    plan: int
    epoch: date
    final: Final
    snapshot: bytes | None
