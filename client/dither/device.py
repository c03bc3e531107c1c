"""The device: one SQLite file with the budget, the schedule, a slot for each metric and the built upload.

Each call is one transaction, so a device that is killed anywhere is found in a state it was in before or after. What
is stored is public, random already, or a count; only of a memoized metric the file tells which listed answers it has
given, since each costs once. Life of a report: `record` puts it in its metric's slot; building moves what the slots
hold into one upload, charges the budget and freezes the upload's bytes and id; `settle` forgets the upload.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dither.schedule import answers_always, day_number, draw_periods, period_start
from dither_shared.errors import DitherError
from dither_shared.exact import to_micro
from dither_shared.mechanisms import Memoized
from dither_shared.mechanisms.rappor import COHORTS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from dither_shared.wire import GROUPS_MAX, encode_upload, new_upload_id

FILE_NAME = "device.sqlite3"
SCHEMA_VERSION = 2
SECRET_BYTES = 32
DAY_S = 86_400
GIVE_UP_S = 6 * DAY_S
"""A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice."""

_SCHEMA = """
CREATE TABLE state (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE metric (
    name TEXT PRIMARY KEY,
    spent INTEGER NOT NULL,    -- micro-epsilon charged, ever
    next_day INTEGER NOT NULL, -- the first day on which it may answer again
    terms TEXT NOT NULL,       -- what its periods were drawn for
    memo_key TEXT NOT NULL,    -- what its memo belongs to, '' for fresh noise
    reserved INTEGER NOT NULL  -- the most that it may charge, and of a memo the most it ever might
) WITHOUT ROWID;
CREATE TABLE class (  -- the answers that a memoized metric has given, by their class
    metric TEXT, class TEXT, place INTEGER NOT NULL, charged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (metric, class)
) WITHOUT ROWID;
CREATE TABLE schedule (metric TEXT, day INTEGER, PRIMARY KEY (metric, day)) WITHOUT ROWID;
CREATE TABLE slot (
    metric TEXT PRIMARY KEY, plan TEXT NOT NULL, charge INTEGER NOT NULL, class TEXT, cohort INTEGER,
    report TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload (
    id TEXT PRIMARY KEY, body BLOB NOT NULL, reports INTEGER NOT NULL,
    attempts INTEGER NOT NULL, first_attempt REAL, last_attempt REAL
) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""


class DeviceUnusable(DitherError):
    """The device's file cannot be used; the app goes on without telemetry."""


@dataclass(frozen=True)
class BuiltUpload:
    """An upload whose bytes and id are frozen and whose reports are charged."""

    id: str
    body: bytes
    reports: int
    attempts: int
    """How often it was sent, this time included."""


class Device:
    """The state of one device. Safe to share between threads; processes share the file.

    `folder` None keeps the state in memory: for trials and simulated devices, which then have no quiet days.
    """

    def __init__(
        self, registry: Registry, folder: Path | None, rng: Rng, clock: Callable[[], float] = time.time
    ) -> None:
        self._registry = registry
        self._rng = rng
        self._clock = clock
        self._lock = threading.RLock()  # so that a call from a signal handler is refused, not stuck
        self._quiet_days = registry.quiet_days if folder else 0
        try:
            self._db = _connect(folder)
        except (OSError, ValueError, sqlite3.Error) as error:
            raise DeviceUnusable(f"the device file in {folder} cannot be used: {error}") from None
        try:
            self._prepare_file(folder)
        except sqlite3.Error as error:
            self._db.close()
            raise DeviceUnusable(f"the device file in {folder} cannot be used: {error}") from None
        except DeviceUnusable:
            self._db.close()
            raise

    def _prepare_file(self, folder: Path | None) -> None:
        if folder:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        else:
            self._db.deserialize(_blank())
        with self._transaction():
            self._found()

    def _found(self) -> None:
        """Make the tables of a new file; refuse a file of another version or app."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            _make_tables(self._db)
        elif version != SCHEMA_VERSION:
            raise DeviceUnusable(f"the device file has version {version}; this dither reads {SCHEMA_VERSION}")
        app = self._get("app")
        if app is None:
            self._set("app", self._registry.app)
            self._set("first_day", self._today())
        elif app != self._registry.app:
            raise DeviceUnusable(f"the device file belongs to the app {app!r}")

    def close(self) -> None:
        """Close the file. What waits in it is sent by the next start."""
        with self._lock:
            self._db.close()

    # Recording.

    def record(self, metric: Metric, answer: object) -> str | None:
        """Randomize an answer into the metric's slot; return None, or why the device stays silent.

        Whether it does depends on days, periods, slots and budgets; never on the answer.
        """
        # Before the lock: an answer's own methods may do anything, recording included.
        read = metric.read(answer)
        with self._transaction():
            today = self._today()
            reason = self._silence(metric, today)
            if reason:
                self._count(reason)
                return reason
            self._fill_slot(metric, read)
            self._db.execute(
                "UPDATE metric SET next_day = ? WHERE name = ?",
                (period_start(today, metric.period_days) + metric.period_days, metric.name),
            )
            return None

    def _silence(self, metric: Metric, today: int) -> str | None:
        if today > self._clock_day() + 1:
            return "clock-behind"
        if today >= day_number(metric.expires):
            return "expired"
        if today < self._get("first_day") + self._quiet_days:
            return "quiet"
        spent, next_day = self._prepare(metric, today)
        if today < next_day:
            return "answered"
        if not answers_always(metric) and not self._scheduled(metric, today):
            return "unscheduled"
        if self._slot_full(metric):
            self._build()
            if self._slot_full(metric):
                return "waiting"
            spent = self._spent()[metric.name]  # what waited is charged now
        if self._has_memo(metric.name):
            return None  # all its answers were reserved when it began
        if not spent and not self._fits(metric.name, metric.reservation):
            return "spent"
        # A memo begins with all of its answers left, or not at all.
        needed = metric.reservation if metric.memoized else metric.charge
        return None if spent + needed <= metric.reservation else "spent"

    def _has_memo(self, name: str) -> bool:
        return self._one("SELECT 1 FROM class WHERE metric = ?", name) is not None

    def _fits(self, name: str, reservation: int) -> bool:
        """Tell whether the device's epsilon bears a metric's reservation beside what the others have begun to spend.

        Those count with all that they reserved, also where they have left the registry: how much of it was spent would
        tell how many answers there were.
        """
        begun = "spent > 0 OR name IN (SELECT metric FROM class UNION SELECT metric FROM slot)"
        sql = f"SELECT name, MAX(spent, reserved), {begun} FROM metric WHERE name <> ?"  # noqa: S608 - no value in it
        others = self._db.execute(sql, (name,)).fetchall()
        taken = sum(most for other, most, begun in others if begun or other not in self._registry.metrics)
        return int(taken) + reservation <= to_micro(self._registry.device_epsilon)

    def _fill_slot(self, metric: Metric, read: tuple[int, ...] | str) -> None:
        mechanism, shape = metric.mechanism, metric.mechanism.shape
        cohort = self._cohort() & (shape.cohorts - 1) if shape.cohorts else None
        answer_class = metric.class_of(read, cohort or 0)
        charge, key = metric.charge, None
        if isinstance(mechanism, Memoized):
            key, charge = self._paid_class(metric, str(answer_class))
            memo_rng = keyed_rng(self._secret(), f"{metric.plan.memo_key} {key}".encode("ascii"))
            report = mechanism.repeat(mechanism.permanent.randomize(int(key), memo_rng), self._rng)
        else:
            report = mechanism.randomize(answer_class, self._rng)
        self._db.execute(
            "INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?)",
            (metric.name, metric.plan.digest, charge, key, cohort, json.dumps(shape.to_wire(report))),
        )

    def _paid_class(self, metric: Metric, key: str) -> tuple[str, int]:
        """Return the class that a memoized metric answers with, and what its report costs.

        A class that was charged is free. When the last one that may be charged is, any further answer repeats it:
        silence would say that the answer has changed.
        """
        sql = "SELECT class, charged FROM class WHERE metric = ? ORDER BY place"
        known: dict[str, int] = dict(self._db.execute(sql, (metric.name,)).fetchall())
        (reserved,) = self._one("SELECT reserved FROM metric WHERE name = ?", metric.name) or (0,)
        if key not in known and len(known) >= min(metric.charges, reserved // metric.charge):
            key = list(known)[-1]
        if key not in known:
            self._db.execute("INSERT INTO class VALUES (?, ?, ?, 0)", (metric.name, key, len(known)))
        return key, 0 if known.get(key) else metric.charge

    def _cohort(self) -> int:
        """Return the one number below 128 that puts this device into a cohort of every metric that has some."""
        cohort: int | None = self._get("cohort")
        if cohort is None:
            cohort = self._rng.uniform(COHORTS_MAX)
            self._set("cohort", cohort)
        return cohort

    def _secret(self) -> bytes:
        secret: bytes | None = self._get("secret")
        if secret is None:
            secret = self._rng.randbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
            self._set("secret", secret)
        return secret

    def _prepare(self, metric: Metric, today: int) -> tuple[int, int]:
        """Return what the metric has spent and the day from which it may answer; draw its periods if terms are new."""
        terms = f"{metric.schedule} {metric.charges} {metric.period_days} {metric.expires}"
        memo_key, reserved = metric.plan.memo_key, metric.reservation
        row = self._one("SELECT spent, next_day, terms, memo_key, reserved FROM metric WHERE name = ?", metric.name)
        if row and row[2:] == (terms, memo_key, reserved):
            return row[0], row[1]
        spent, next_day = row[:2] if row else (0, 0)
        if row and self._has_memo(metric.name):
            if row[3] == memo_key:
                # What was reserved stays so, and grows only where the device's epsilon bears it.
                reserved = reserved if reserved > row[4] and self._fits(metric.name, reserved) else row[4]
            else:
                # The memo cannot go on. All that was reserved counts as spent, for what was not would tell how many
                # answers there were; what waits is part of it.
                spent = max(spent, row[4])
                self._db.execute("DELETE FROM class WHERE metric = ?", (metric.name,))
                self._db.execute("UPDATE slot SET charge = 0, class = NULL WHERE metric = ?", (metric.name,))
        self._db.execute(
            "INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?, ?, ?)",
            (metric.name, spent, next_day, terms, memo_key, reserved),
        )
        if row and row[2] == terms:
            return spent, next_day
        self._db.execute("DELETE FROM schedule WHERE metric = ?", (metric.name,))
        if not answers_always(metric):
            # Of an upgrade's draw only periods not begun count, today's was decided under the old terms, and of them
            # no more than there are reports left. The draw's order is random, so its first ones are a fair choice.
            begun = period_start(today, metric.period_days) + (1 if row else 0)
            left = max(0, metric.reservation - spent) // metric.charge
            days = [day for day in draw_periods(metric, self._rng) if day >= begun][:left]
            self._db.executemany("INSERT INTO schedule VALUES (?, ?)", [(metric.name, day) for day in days])
        return spent, next_day

    def _slot_full(self, metric: Metric) -> bool:
        return self._one("SELECT 1 FROM slot WHERE metric = ?", metric.name) is not None

    def _scheduled(self, metric: Metric, today: int) -> bool:
        day = period_start(today, metric.period_days)
        return self._one("SELECT 1 FROM schedule WHERE metric = ? AND day = ?", metric.name, day) is not None

    # Uploading.

    def next_upload(self) -> BuiltUpload | None:
        """Return the upload to send now, marked as sent and synced to the disk before this returns; None if none.

        Builds one if there is none. Gives up one whose first attempt is six days old, or lies in the future.
        """
        with self._transaction(durable=True):
            now = self._clock()
            row = self._one("SELECT id, first_attempt, last_attempt FROM upload")
            if row and row[1] is not None and (now > row[1] + GIVE_UP_S or now < row[2]):
                self._forget_upload(row[0], "given-up")
            self._build()
            self._db.execute(
                "UPDATE upload SET attempts = attempts + 1, last_attempt = :now, "
                "first_attempt = COALESCE(first_attempt, :now)",
                {"now": now},
            )
            built = self._one("SELECT id, body, reports, attempts FROM upload")
            return BuiltUpload(*built) if built else None

    def _build(self) -> None:
        """Move what the slots hold into a new upload and charge it, unless one is still to be sent.

        An upload takes at most GROUPS_MAX groups; what is left goes into the next. Every report was recorded within
        its metric's reservation, and is dropped if it no longer is: the budget refuses if all else fails.
        """
        if self._one("SELECT 1 FROM upload"):
            return
        sql = "SELECT metric, plan, charge, class, cohort, report FROM slot LIMIT ?"
        slots = self._db.execute(sql, (GROUPS_MAX,)).fetchall()
        spent = self._spent()
        groups = []
        for metric, plan, charge, key, cohort, report in slots:
            self._db.execute("DELETE FROM slot WHERE metric = ?", (metric,))
            if self._affords(metric, charge, spent, memoized=key is not None):
                spent[metric] += charge
                self._db.execute("UPDATE metric SET spent = ? WHERE name = ?", (spent[metric], metric))
                self._db.execute("UPDATE class SET charged = 1 WHERE metric = ? AND class = ?", (metric, key))
                groups.append((metric, plan, [json.loads(report)], cohort))
            else:
                self._count("spent")
        if groups:
            upload_id = new_upload_id(self._rng.randbits)
            self._db.execute(
                "INSERT INTO upload VALUES (?, ?, ?, 0, NULL, NULL)",
                (upload_id, encode_upload(upload_id, groups), len(groups)),
            )

    def _affords(self, metric: str, charge: int, spent: dict[str, int], *, memoized: bool) -> bool:
        """Tell whether a report may be charged. One of a memo may: a refusal would tell that its answer is new."""
        if memoized or not charge:
            return True
        asked = self._registry.metrics.get(metric)
        within_metric = asked is None or spent[metric] + charge <= asked.reservation
        memos = dict(
            self._db.execute("SELECT name, reserved FROM metric WHERE name IN (SELECT metric FROM class)").fetchall()
        )
        total = sum(max(micro, memos.get(name, 0)) for name, micro in spent.items())
        return within_metric and total + charge <= to_micro(self._registry.device_epsilon)

    def settle(self, upload_id: str, outcome: str) -> bool:
        """Forget the upload of that id and count its reports under `outcome`; False if another process was first."""
        with self._transaction():
            return self._forget_upload(upload_id, outcome)

    def _forget_upload(self, upload_id: str, outcome: str) -> bool:
        row = self._one("SELECT reports FROM upload WHERE id = ?", upload_id)
        if row:
            self._db.execute("DELETE FROM upload WHERE id = ?", (upload_id,))
            self._count(outcome, row[0])
        return row is not None

    def planned(self) -> float | None:
        """Return when the next attempt is due, in seconds since 1970, or None."""
        with self._lock:
            when: float | None = self._get("planned")
            return when

    def plan(self, when: float) -> None:
        """Remember when the next attempt is due, across restarts too."""
        with self._transaction():
            self._set("planned", when)

    def rest(self) -> bool:
        """Plan nothing if nothing waits; tell whether nothing does."""
        with self._transaction():
            if self._waiting():
                return False
            self._set("planned", None)
            return True

    # Looking.

    def waiting(self) -> int:
        """Return how many reports wait in slots and in the built upload."""
        with self._lock:
            return self._waiting()

    def _waiting(self) -> int:
        both = "SELECT (SELECT COUNT(*) FROM slot) + (SELECT COALESCE(SUM(reports), 0) FROM upload)"
        (count,) = self._db.execute(both).fetchone()
        return int(count)

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        with self._lock:
            return self._spent()

    def _spent(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT name, spent FROM metric ORDER BY name").fetchall())

    def counters(self) -> dict[str, int]:
        """Return how many reports were accepted, and how many answers and reports were not sent, by reason."""
        with self._lock:
            return dict(self._db.execute("SELECT name, count FROM counter ORDER BY name").fetchall())

    # Within a transaction.

    @contextmanager
    def _transaction(self, durable: bool = False) -> Iterator[None]:
        """Run the block as one transaction; `durable` syncs it, and all before it, to the disk."""
        with self._lock:
            if self._busy():
                raise DeviceUnusable("the device was called from within its own call, by a signal handler perhaps")
            if durable:
                self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._busy():
                    self._db.execute("ROLLBACK")
                raise
            finally:
                if durable:
                    self._db.execute("PRAGMA synchronous = NORMAL")

    def _busy(self) -> bool:
        return self._db.in_transaction

    def _today(self) -> int:
        """Return the day by the clock, or the latest day that was ever used if the clock went back behind it."""
        clock_day = self._clock_day()
        last_day = self._get("last_day")
        if last_day is not None and last_day >= clock_day:
            return int(last_day)
        self._set("last_day", clock_day)
        return clock_day

    def _clock_day(self) -> int:
        return int(self._clock() // DAY_S)

    def _count(self, name: str, count: int = 1) -> None:
        self._db.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            (name, count),
        )

    def _one(self, sql: str, *arguments: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(sql, arguments).fetchone()
        return row

    def _get(self, key: str) -> Any:
        row = self._one("SELECT value FROM state WHERE key = ?", key)
        return row[0] if row else None

    def _set(self, key: str, value: object) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))


def _connect(folder: Path | None) -> sqlite3.Connection:
    where = ":memory:"
    if folder:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        where = str(folder / FILE_NAME)
        os.close(os.open(where, os.O_CREAT | os.O_RDWR, 0o600))
    return sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=5)


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@cache
def _blank() -> bytes:
    """Return the image of an empty file: a fleet copies it instead of making the tables for each device."""
    with closing(_connect(None)) as db:
        _make_tables(db)
        return db.serialize()
