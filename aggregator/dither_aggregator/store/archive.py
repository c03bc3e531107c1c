"""A backup's file: the records of a dump, a JSON line each, in gzip. A file that is cut off or altered is refused.

    {"format": "dither backup", "version": 1, "app": "example", "generation": "..."}
    {"identity": {...}}  {"plan": {...}}  {"shard": {...}}  {"seen": {...}}  {"tally": {...}}  {"final": {...}}
    {"end": {"records": 1234, "sha256": "of all the lines before"}}

Bytes are base64, days are ISO 8601. The file holds the key of the devices and the key of the digests: keep it as safe
as the store.
"""

import base64
import gzip
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from dither_aggregator.store.dump import (
    FinalRecord,
    Identity,
    PlanRecord,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.records import Final, Retention, StoreError

FORMAT, VERSION = "dither backup", 1


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
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return number


def _sync_folder(folder: Path) -> None:
    """Have the disk know a new name too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def app_of(path: Path) -> str:
    """Return whose backup it is, after reading all of it; raise StoreError when it is not whole."""
    apps = [record.app for record in read(path) if isinstance(record, Identity)]
    if len(apps) != 1:
        raise StoreError(f"{path} is not a backup of one store")
    return apps[0]


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a backup; raise StoreError at the end when it is not whole."""
    digest, number, ended = hashlib.sha256(), 0, False
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                document = json.loads(line)
                if number == 0 and (document.get("format"), document.get("version")) != (FORMAT, VERSION):
                    raise StoreError(f"{path} is not a backup that this dither reads")
                if ended:
                    raise StoreError(f"{path} goes on behind its end")
                if "end" in document:
                    ended = document["end"] == {"records": number, "sha256": digest.hexdigest()}
                    if not ended:
                        raise StoreError(f"{path} is not what was written: a part of it was altered")
                    continue
                digest.update(line)
                number += 1
                if "format" not in document:
                    yield _decode(document)
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"{path} cannot be read to its end: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is not a backup of dither: {error!r}") from None
    if not ended:
        raise StoreError(f"{path} is cut off")


def _lines(records: Iterable[Record]) -> Iterator[bytes]:
    for record in records:
        if isinstance(record, Identity):
            head = {"format": FORMAT, "version": VERSION, "app": record.app, "generation": record.generation}
            yield _line(head)
        yield _line(_encode(record))


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _encode(record: Record) -> dict[str, Any]:
    match record:
        case Identity():
            fields = {
                **vars(record),
                "digest_key": _text(record.digest_key),
                "retention": vars(record.retention),
                "tallies_from": record.tallies_from.isoformat(),
            }
            return {"identity": fields}
        case PlanRecord():
            return {"plan": record.document}
        case ShardRecord():
            fields = {
                **vars(record),
                "day": record.day.isoformat(),
                "sealed": record.sealed.isoformat(),
                "entries": [_text(entry) for entry in record.entries],
                "ledger": [[plan, epoch.isoformat(), *row] for (plan, epoch), row in record.ledger.items()],
                "quarantine": [
                    [plan, epoch.isoformat(), n, reason, _text(reports)]
                    for plan, epoch, n, reason, reports in record.quarantine
                ],
            }
            return {"shard": fields}
        case SeenRecord():
            answers = {_text(id_): _text(answer) for id_, answer in record.answers.items()}
            return {"seen": {"day": record.day.isoformat(), "answers": answers}}
        case TallyRecord():
            return {"tally": {**vars(record), "epoch": record.epoch.isoformat(), "counts": _text(record.counts)}}
        case FinalRecord():
            fields = {
                "plan": record.plan,
                "epoch": record.epoch.isoformat(),
                "final": vars(record.final),
                "snapshot": None if record.snapshot is None else _text(record.snapshot),
            }
            return {"final": fields}


def _decode(document: dict[str, Any]) -> Record:
    ((kind, fields),) = document.items()
    match kind:
        case "identity":
            return Identity(
                **{
                    **fields,
                    "digest_key": _bytes(fields["digest_key"]),
                    "retention": Retention(**fields["retention"]),
                    "tallies_from": date.fromisoformat(fields["tallies_from"]),
                }
            )
        case "plan":
            return PlanRecord(fields)
        case "shard":
            return ShardRecord(
                fields["shard"],
                date.fromisoformat(fields["day"]),
                date.fromisoformat(fields["sealed"]),
                fields["cursor"],
                tuple(_bytes(entry) for entry in fields["entries"]),
                {(plan, date.fromisoformat(day)): (a, f, q, d) for plan, day, a, f, q, d in fields["ledger"]},
                tuple(
                    (plan, date.fromisoformat(day), n, reason, _bytes(reports))
                    for plan, day, n, reason, reports in fields["quarantine"]
                ),
            )
        case "seen":
            answers = {_bytes(id_): _bytes(answer) for id_, answer in fields["answers"].items()}
            return SeenRecord(date.fromisoformat(fields["day"]), answers)
        case "tally":
            return TallyRecord(
                **{**fields, "epoch": date.fromisoformat(fields["epoch"]), "counts": _bytes(fields["counts"])}
            )
        case "final":
            snapshot = fields["snapshot"]
            return FinalRecord(
                fields["plan"],
                date.fromisoformat(fields["epoch"]),
                Final(**fields["final"]),
                None if snapshot is None else _bytes(snapshot),
            )
    raise ValueError(f"an unknown kind of record, {kind!r}")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
