"""Pinned files: `python -m tests.pinned.files` writes those of today's versions, from the repository's root.

Each is written by the code of its time, and never again: a version that has a file keeps it. A release with another
version of device file, store or backup runs this once, and so adds its own. `vectors/files/README.md` says what they
hold; what each must still hold when it is read stands beside it as JSON.
"""

import gzip
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from dither.device.schema import FILE_NAME, SCHEMA_VERSION
from dither_aggregator.store import SQLiteStore, create_store
from dither_aggregator.store import dump as backup_file
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME as STORE_NAME
from dither_aggregator.store.sqlite import schema
from tests.pinned.adapter import Aggregator
from tests.pinned.comparing import VECTORS, load
from tests.pinned.devices import Held, lived
from tests.support.clocks import Clock
from tests.support.devices import close_all
from tests.support.redis_servers import running_redis

FILES = VECTORS / "files"
# Stores: streams that are recorded and pinned by themselves, up to where something waits.

CUTS = {"changes": 7, "quarantine": 13}
"""How many steps of a stream a pinned store has taken. The others must go on as they are pinned."""


def steps_of(name: str) -> list[dict[str, Any]]:
    """Return the steps of a recorded stream."""
    (steps,) = [stream["steps"] for stream in load("streams") if stream["name"] == name]
    return list(steps)


def filled(name: str, directory: Path) -> Held:
    """Make a store by the first steps of a stream; return the key that lets uploads in, and whom it knows."""
    with Aggregator(directory) as aggregator:
        for step in steps_of(name)[: CUTS[name]]:
            getattr(aggregator, step["do"])(**step["with"])
    with closing(SQLiteStore(directory, Clock())) as store:
        made = [store.create_key(scope, f"a {scope} key") for scope in ("write", "read")]
        store.note("command line", "key create", "read")
        return {
            "keys": {key.id: text for key, text in made},
            "journal": [entry.to_document() for entry in store.journal()],
            "backlog": store.backlog(),
        }


def write() -> None:
    """Write the files of today's versions that are not there yet."""
    FILES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        _write_device(Path(home) / "device")
        for name in CUTS:
            _write_store(name, Path(home) / name)


def _write_device(directory: Path) -> None:
    target = FILES / f"device-{SCHEMA_VERSION}.sqlite3.gz"
    if target.exists():
        return
    held = lived(directory, Clock())
    close_all()
    _pack(directory / FILE_NAME, target, held)


def _write_store(name: str, directory: Path) -> None:
    target, backup = FILES / f"store-{schema.VERSION}-{name}.sqlite3.gz", f"{backup_file.VERSION}-{name}.dither"
    if target.exists():
        return
    held = filled(name, directory)
    with closing(SQLiteStore(directory)) as store:
        backup_file.write(FILES / f"backup-{backup}", store.dump())
    with (
        running_redis(directory.with_suffix(".redis")) as server,
        closing(create_store(server.url, "pinned", 4, unfinished=True)) as made,
    ):
        restore(made, backup_file.read(FILES / f"backup-{backup}"))
        backup_file.write(FILES / f"redis-{backup}", made.dump())
    _pack(directory / STORE_NAME, target, held)


def _pack(source: Path, target: Path, held: Held) -> None:
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    target.with_suffix("").with_suffix(".json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


# Reading them.


def unpack(packed: Path, directory: Path, name: str) -> Held:
    """Put a pinned file into a directory, made for it; return what it must hold."""
    directory.mkdir(parents=True, mode=0o700)
    (directory / name).write_bytes(gzip.decompress(packed.read_bytes()))
    held: Held = json.loads(packed.with_suffix("").with_suffix(".json").read_text(encoding="utf-8"))
    return held


def pinned_device(version: int, directory: Path) -> tuple[Path, Clock, Held]:
    """Return a directory with the pinned file of a version, the clock as it was, and what the file must hold."""
    held = unpack(FILES / f"device-{version}.sqlite3.gz", directory, FILE_NAME)
    return directory, Clock(held["day"]), held


def dump(directory: Path) -> list[str]:
    """Return all that a file holds, as SQL, with its version."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        return [*db.iterdump(), str(db.execute("PRAGMA user_version").fetchone())]


def content(directory: Path) -> dict[str, bytes]:
    """Return the bytes of the file and of its log, if that holds any. The index beside them is made anew by SQLite."""
    found = {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}
    return {name: read for name, read in found.items() if read}


if __name__ == "__main__":
    write()
