"""The records of a dump: everything that makes another store the same, whichever kind it is.

Each has a document for a backup's file, in JSON's own types: bytes are base64, days are ISO 8601.
"""

import base64
import gzip
import hashlib
import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec

from dither_aggregator.store.document_kinds import DayMark, Document, JournalEntry, Key, Retention, first_key
from dither_aggregator.store.documents import KINDS, StoredPlan
from dither_aggregator.store.records import (
    BODY_BYTES,
    ID_BYTES,
    Batch,
    Counted,
    Final,
    LogGroup,
    Poison,
    RefusedCount,
    RefusedKey,
    StoreError,
    TallyKey,
    day_at,
)
from dither_shared.errors import reason_of
from dither_shared.files import check_named

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
        """Make the record of a document. `read` turns the errors of a wrong one into a StoreError."""
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


# A backup's file: the records of a dump, a JSON line each, in gzip. A file that is cut off or altered is refused.
#
#     {"format": "dither backup", "version": 6, "app": "example", "generation": "..."}
#     {"identity": {...}}  {"documents": {"kind": "plans", "documents": [...]}}  {"batches": {...}}  {"shard": {...}}
#     {"seen": {...}}  {"tally": {...}}  {"final": {...}}
#     {"end": {"records": 1234, "sha256": "of all the lines before"}}
#
# Bytes are base64, days are ISO 8601. The file holds no key's text, but the secret by which sessions are signed, and
# the key of the digests: keep it as safe as the store.


_T = TypeVar("_T")

FORMAT, VERSION = "dither backup", 6
READ_VERSIONS = (2, 3, 4, 5, VERSION)
"""Version 2 has the text of the one key there was; what is made of it knows a hash of that text. 3 has no batches. Up
to 4 keys and retention stand in the identity, and plans, marks and entries of the journal have records of their own. Up
to 5 the digests of uploads are longer, and have what was answered behind them.
"""
_KINDS: dict[str, type[Record]] = {
    "identity": Identity,
    "documents": DocumentsRecord,
    "batches": BatchesRecord,
    "shard": ShardRecord,
    "seen": SeenRecord,
    "tally": TallyRecord,
    "final": FinalRecord,
}
_NAMES = {record: name for name, record in _KINDS.items()}
LINE_BYTES_MAX = 256 * 1024 * 1024
"""Above the longest: a plan with 100,000 candidates of 200 characters, each of them twelve letters in JSON."""
VALUES_MAX = 4_000_000
"""Values of a line: the parser takes up to a hundred bytes for each."""
HELD_BYTES_MAX, HELD_TIMES_MAX = 1024 * 1024 * 1024, 32
"""For lines that take memory until all are read: documents, and uploads that wait to be folded. In a large file so many
times its size, since uploads are noise, which nothing makes much shorter."""
TEXT_BYTES = 150
"""The memory that a text in such a line takes beside its length, with the numbers around it."""
PART_BYTES, PART_ITEMS = LINE_BYTES_MAX // 4, VALUES_MAX // 16
"""A record with more is written as several, of which the last has its cursor: a reader adds them up."""
_HELD = ("identity", "documents", "plan", "shard")
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""The errors of reading and taking up a record that no store has written."""


def write(path: Path, records: Iterable[Record], on_record: Callable[[int], None] = lambda number: None) -> int:
    """Write a dump into a new file, which appears when it is whole and on the disk; return how many records it has."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    digest, number = hashlib.sha256(), 0
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="", mtime=0) as packed:
                for line in _lines(records):
                    digest.update(line)
                    packed.write(line)
                    number += 1
                    on_record(number)
                packed.write(_line({"end": {"records": number, "sha256": digest.hexdigest()}}))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_directory(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return number


def _sync_directory(directory: Path) -> None:
    """Have the disk know a new name too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def app_of(path: Path) -> str:
    """Return whose backup it is, after reading all of it; raise StoreError when it is not whole.

    Raises NotOurs for one that all may write: it brings the keys.
    """
    if path.exists():
        check_named(path)
        if not path.is_file():  # a pipe would be waited for, and is not there when it is read again
            raise StoreError(f"{path} is no file: name one that `dither backup` wrote")
    apps = [record.app for record in read(path) if isinstance(record, Identity)]
    if len(apps) != 1:
        raise StoreError(f"{path} is not a backup of one store")
    return apps[0]


GZIP = b"\x1f\x8b"
"""The first bytes of every file in gzip."""


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a backup; raise StoreError at the end when it is not whole."""
    try:
        with path.open("rb") as raw:
            if raw.peek(len(GZIP))[: len(GZIP)] not in (GZIP, b""):  # an empty one is cut off
                raise StoreError(f"{path} is no backup of dither: it does not begin as `dither backup` writes one")
            with gzip.open(raw) as file:
                yield from _read_lines(path, file)
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"{path} cannot be read to its end: {reason_of(error)}") from None
    except UNFIT as error:
        raise unfit(path, error) from None


def unfit(path: Path, error: BaseException) -> StoreError:
    """Return the error for a file whose records cannot be taken up, in words of a bounded length."""
    message = str(error) if isinstance(error, StoreError) else repr(error)
    return StoreError(f"{path} is not a backup of dither: {message if len(message) <= 200 else f'{message[:197]}...'}")


def _read_lines(path: Path, file: gzip.GzipFile) -> Iterator[Record]:
    digest, number, held, ended = hashlib.sha256(), 0, 0, False
    held_max = max(HELD_BYTES_MAX, HELD_TIMES_MAX * path.stat().st_size)
    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise StoreError(f"{path} is not a backup of dither: a line has more than {LINE_BYTES_MAX:,} bytes")
        if sum(map(line.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise StoreError(f"{path} is not a backup of dither: a line has more than {VALUES_MAX:,} values")
        document = json.loads(line)
        if number == 0 and (document.get("format") != FORMAT or document.get("version") not in READ_VERSIONS):
            versions = " and ".join(map(str, READ_VERSIONS))
            raise StoreError(
                f"{path} is not a backup that this dither reads: it reads versions {versions}; "
                f"use the dither that wrote it"
            )
        if ended:
            raise StoreError(f"{path} goes on behind its end")
        if "end" in document:
            ended = document["end"] == {"records": number, "sha256": digest.hexdigest()}
            if not ended:
                raise StoreError(f"{path} is not what was written: a part of it was altered")
            continue
        digest.update(line)
        number += 1
        if any(kind in document for kind in _HELD):
            held += len(line) + TEXT_BYTES * line.count(b'"') // 2
            if held > held_max:
                raise StoreError(f"{path} has more than {held_max:,} bytes of documents and of uploads to fold")
        if "format" not in document:
            try:
                yield from _records_of(document)
            except StoreError as error:
                raise unfit(path, error) from None
    if not ended:
        raise StoreError(f"{path} is cut off")


def _lines(records: Iterable[Record]) -> Iterator[bytes]:
    for record in records:
        if isinstance(record, Identity):
            head = {"format": FORMAT, "version": VERSION, "app": record.app, "generation": record.generation}
            yield _line(head)
        for part in _parts(record):
            yield _line({_NAMES[type(part)]: part.to_document()})


def _parts(record: Record) -> Iterator[Record]:
    """Yield the records to write in the place of one that may be too long."""
    if not _is_long(record):
        yield record
    elif isinstance(record, SeenRecord):
        for some in _chunks(record.bodies.items(), lambda one: len(one[0]) + len(one[1])):
            yield replace(record, bodies=dict(some))
    elif isinstance(record, ShardRecord):
        rest = replace(record, cursor=0, entries=(), ledger={}, quarantine=(), refused={})
        for entries in _chunks(record.entries, len):
            yield replace(rest, entries=tuple(entries))
        for rows in _chunks(record.ledger.items(), lambda _: 0):
            yield replace(rest, ledger=dict(rows))
        for held in _chunks(record.quarantine, lambda poison: len(poison.group.reports)):
            yield replace(rest, quarantine=tuple(held))
        yield replace(rest, cursor=record.cursor, refused=record.refused)


def _is_long(record: Record) -> bool:
    """Tell whether a record is one that may be split, and has to be."""
    match record:
        case SeenRecord():
            sizes = list(map(len, record.bodies.values()))
        case ShardRecord():
            sizes = [*map(len, record.entries), *(len(poison.group.reports) for poison in record.quarantine)]
            sizes += [0] * len(record.ledger)
        case _:
            return False
    return len(sizes) > PART_ITEMS or sum(sizes) > PART_BYTES


def _chunks(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield items in order, so many and so many bytes together."""
    chunk: list[_T] = []
    held = 0
    for item in items:
        if chunk and (held + size(item) > PART_BYTES or len(chunk) == PART_ITEMS):
            yield chunk
            chunk, held = [], 0
        chunk.append(item)
        held += size(item)
    if chunk:
        yield chunk


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _records_of(document: dict[str, Any]) -> Iterator[Record]:
    ((kind, fields),) = document.items()
    if kind == "identity" and "retention" in fields:
        if "key" in fields:  # version 2, from before keys had scopes
            secret = secrets.token_bytes(32)
            key = first_key(fields["key"], secret, day_at(time.time()))
            fields = {**fields, "keys": [key.to_document()], "secret": base64.b64encode(secret).decode("ascii")}
        yield Identity.from_document(fields)
        yield DocumentsRecord(Key, tuple(map(Key.from_document, fields["keys"])))
        yield DocumentsRecord(Retention, (Retention.from_document(fields["retention"]),))
    elif kind == "plan":
        yield DocumentsRecord(StoredPlan, (StoredPlan.from_document(fields),))
    elif kind == "marks":
        yield DocumentsRecord(DayMark, tuple(map(DayMark.from_document, fields["marks"])))
    elif kind == "journal":
        yield DocumentsRecord(JournalEntry, tuple(map(JournalEntry.from_document, fields["entries"])))
    elif kind in _KINDS:
        yield _KINDS[kind].from_document(fields)
    else:
        raise ValueError(f"an unknown kind of record, {kind!r}")
