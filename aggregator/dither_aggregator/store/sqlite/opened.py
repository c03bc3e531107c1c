"""Making and opening a SQLite store; its plans, its clock, and how far it is."""

import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from threading import Lock
from typing import Self

from dither_aggregator.health.capacity import FreeSpace
from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.keys import Key, Keys
from dither_aggregator.store.packing import day_at
from dither_aggregator.store.plans import Plans, StoredPlan
from dither_aggregator.store.records import OtherLayout, ShardStatus, StoreError
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.file import FILE_NAME, SQLiteFile, describe_error, keep
from dither_shared.ownership import make_file


class SQLiteOpened(SQLiteFile, Opened):
    """The base of every role of a SQLite store."""

    kind = "SQLite"
    layout = schema.VERSION
    shards = 1

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        *,
        read_only: bool = False,
        unfinished: bool = False,
        moved: bool = False,
    ) -> None:
        super().__init__(directory, read_only=read_only)
        self._clock, self._refreshing = clock, Lock()
        try:
            self._open(unfinished, moved)
        except BaseException as error:
            self.close()
            if isinstance(error, OtherLayout):
                error.args = (f"{self._path} cannot be used: {error}",)
                raise
            if not isinstance(error, OSError | sqlite3.Error | StoreError):
                raise
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None

    @classmethod
    def create(
        cls, directory: Path, app: str, clock: Callable[[], float] = time.time, *, unfinished: bool = False
    ) -> Self:
        """Make the store of an app in a directory, and open it; `unfinished` until it is restored."""
        path = directory / FILE_NAME
        state = _first_state(app, day_at(clock()), unfinished)
        try:
            keep(directory)
            make_file(path)
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone() != (0,):
                    raise StoreError(f"{directory} holds a store already: name a new directory")
                schema.create(db, state)
                db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be used: {describe_error(error)}") from None
        return cls(directory, clock, unfinished=unfinished)

    @classmethod
    def open_or_create(cls, directory: Path, app: str, clock: Callable[[], float] = time.time) -> Self:
        """Open the store in a directory, made for an app if there is none."""
        path = directory / FILE_NAME
        # A file of no bytes is left where making a store was cut off.
        made = path.exists() and path.stat().st_size
        return cls(directory, clock) if made else cls.create(directory, app, clock)

    def _open(self, unfinished: bool, moved: bool) -> None:
        if self._read_only:
            version = schema.version_of(self._db)
            if version != schema.VERSION:
                raise OtherLayout(
                    f"it has version {version}; this dither reads {schema.VERSION}: `dither serve` brings it to that",
                    newer=False,
                    serve_brings=f"layout {version} to {schema.VERSION}",
                )
        else:
            # By one that cannot write: closing another would write the log of a newer store into its file.
            with closing(self._connect_as("mode=ro")) as reader:
                schema.version_of(reader)
            with self._transaction() as db:
                schema.migrate(db)
        state = self._states()
        if state.get("unfinished") and not unfinished:
            raise StoreError("it was not filled to its end; make it again")
        self.moved_to: str = state.get("moved_to", "")
        if self.moved_to and not moved:
            raise StoreError(f"it was copied to the store {self.moved_to}, which goes on in its place: name that one")
        self.app = state["app"]
        self.generation = state["generation"]
        self._digest_key, self._secret = state["digest_key"], state["secret"]
        self.refresh()

    def finish(self) -> None:
        """Make the store usable."""
        with self._transaction():
            self._set_state("unfinished", 0)

    # Plans.

    def _refresh(self) -> None:
        with self._instant():
            state = self._states()
            self._offset_s = float(state.get("clock_offset_s", 0.0))
            if not hasattr(self, "_plans") or self._plans.version != state["plans_version"]:
                documents = self._rows("SELECT document FROM plan ORDER BY id")
                stored = [StoredPlan.from_json(document) for (document,) in documents]
                self._plans = Plans(stored, state["plans_version"])
            if not hasattr(self, "_keys") or self._keys.version != state["keys_version"]:
                documents = self._rows("SELECT document FROM key")
                known = [Key.from_document(json.loads(document)) for (document,) in documents]
                self._keys = Keys(known, state["keys_version"], self._secret)

    def _next_version(self, name: str, version: int) -> bool:
        """Within a transaction: move a version on if it is still this one; return whether it was."""
        moved = self._db.execute("UPDATE state SET value = value + 1 WHERE key = ? AND value = ?", (name, version))
        return moved.rowcount == 1

    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        with self._transaction() as db:
            if not self._next_version("plans_version", version):
                return False
            rows = [(item.id, json.dumps(item.to_document())) for item in plans]
            db.executemany("INSERT OR REPLACE INTO plan VALUES (?, ?)", rows)
        return True

    # Time.

    def _now_s(self) -> float:
        return self._clock() + self._offset_s

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every process that uses this file."""
        with self._transaction():
            self._set_state("clock_offset_s", seconds)
        self.refresh()

    def _advance_day(self) -> date:
        """Within a transaction: return the day that an upload counts on now, and remember that it was used."""
        today = max(self.clock_day(), self._day_of("day"))
        self._set_state("day", today.isoformat())
        return today

    # How it is.

    def status(self) -> list[ShardStatus]:
        """Return how far the one shard is."""
        with self._instant() as db:
            state = self._states()
            (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
            # Nothing is ever missing between the first and the last; counting the rows would read all of them.
            first, last = db.execute("SELECT (SELECT MIN(seq) FROM log), (SELECT MAX(seq) FROM log)").fetchone()
            backlog = last - first + 1 if first else 0
        return [
            ShardStatus(
                shard=0,
                written=max(cursor, last or 0),
                cursor=cursor,
                backlog=backlog,
                day=date.fromisoformat(state["day"]),
                clock_day=self.clock_day(),
                sealed=date.fromisoformat(state["sealed"]),
                merged=date.fromisoformat(state.get("merged", date.min.isoformat())),
                waiting_s=max(0.0, self._now_s() - state.get("waiting_since", 0.0)) if backlog else 0.0,
            )
        ]

    def left(self) -> FreeSpace | None:
        """Return what is left of the directory's disk, for those who are not root."""
        disk = shutil.disk_usage(self._path.parent)
        return FreeSpace("disk", disk.free, disk.total)

    def _trouble(self) -> dict[str, str]:
        return {"store": f"{self._path} is not the file that was opened"} if self._replaced() else {}

    def integrity(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        return [f"file: {text}" for (text,) in self._rows("PRAGMA integrity_check") if text != "ok"]


def _first_state(app: str, today: date, unfinished: bool) -> dict[str, object]:
    return {
        "app": app,
        "digest_key": secrets.token_bytes(32),
        "secret": secrets.token_bytes(32),
        "generation": secrets.token_hex(8),
        "day": today.isoformat(),
        "sealed": (today - timedelta(days=1)).isoformat(),
        "tallies_from": date.min.isoformat(),
        "plans_version": 0,
        "keys_version": 0,
        "unfinished": int(unfinished),
    }
