"""The store: log, tallies, ledger and deduplication in one SQLite file, where nothing is counted twice or lost.

Every effect is one transaction. `append` writes an upload's id, its reports and the ledger's `accepted` together, so
an acknowledged upload is in the log and a repeated one is recognised. `fold` reads what lies behind the cursor, adds
it up, and commits *if the cursor is still where it was read*: segment, ledger, cursor and trimmed log move together or
not at all. Whoever was killed, late or doubled changes nothing, and at every instant

    accepted = folded + pending + quarantined          for each plan and epoch

where `pending` is counted from the log itself, not kept: the equation can fail, and `ledger` shows it if it does.
"""

import hashlib
import hmac
import json
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dither_aggregator.fold import BadTally, Counts, fold
from dither_aggregator.records import LedgerRow, Receipt, StoredPlan, StoreError, Tally
from dither_shared.plan import Plan, canonical_json
from dither_shared.registry import Metric, Registry
from dither_shared.wire import Group, GroupRefused, Problem, Upload, all_refused

FILE_NAME = "store.sqlite3"
LOCK_NAME = "lock.sqlite3"
SCHEMA_VERSION = 2
DEDUPE = timedelta(days=7)
"""How long an upload's id is remembered. A device gives an upload up a day earlier."""
GRACE = timedelta(days=7)
"""How long the reports of an expired metric are still taken: they were on their way."""
FOLD_ROWS_MAX = 5_000
COMPACT_SEGMENTS = 64
CACHE_KIB = 16_384

_SCHEMA = """
CREATE TABLE state (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE plan (
    id INTEGER PRIMARY KEY,
    metric TEXT NOT NULL, digest TEXT NOT NULL, rev INTEGER NOT NULL,
    document TEXT NOT NULL,
    question TEXT NOT NULL, candidates TEXT NOT NULL, reservation INTEGER NOT NULL, expires TEXT NOT NULL,
    current INTEGER NOT NULL,  -- 1 for the plan that the registry holds now
    UNIQUE (metric, rev), UNIQUE (metric, digest)
);
CREATE TABLE upload (  -- what was acknowledged, by keyed digest of the id
    id BLOB PRIMARY KEY, body BLOB NOT NULL, day TEXT NOT NULL, accepted INTEGER NOT NULL, rejected TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX upload_day ON upload (day);
CREATE TABLE log (  -- accepted and not folded
    seq INTEGER PRIMARY KEY AUTOINCREMENT, plan INTEGER NOT NULL, epoch TEXT NOT NULL, n INTEGER NOT NULL,
    reports BLOB NOT NULL
);
CREATE TABLE cursor (seq INTEGER NOT NULL);  -- everything up to here is folded
CREATE TABLE segment (  -- count vectors of the log from above `low` to `high`, whose sum is the tally
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, n INTEGER NOT NULL,
    counts BLOB NOT NULL, PRIMARY KEY (plan, epoch, low)
) WITHOUT ROWID;
CREATE TABLE ledger (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL,
    accepted INTEGER NOT NULL DEFAULT 0, folded INTEGER NOT NULL DEFAULT 0, quarantined INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
INSERT INTO cursor VALUES (0);
"""


class Store:
    """One SQLite store. Each thread has its own connection, until `close`; any number of processes may read it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, *, read_only: bool = False) -> None:
        self._path = folder / FILE_NAME
        self._clock = clock
        self._read_only = read_only
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._plans: dict[tuple[str, str], StoredPlan] = {}
        if read_only and not self._path.exists():
            raise StoreError(f"{folder} holds no store; `dither serve REGISTRY --data {folder}` makes one")
        try:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._path.touch(mode=0o600)
                self._create()
            self._check_version()
            self._read_plans()
            self._digest_key: bytes = self._state("digest_key")
            self.key: str = self._state("key")
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise StoreError(f"{self._path} cannot be used: {error}") from None
        except StoreError:
            self.close()
            raise

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise StoreError(f"{self._path} has version {version}; this dither reads {SCHEMA_VERSION}")

    # Connections and time.

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            mode = "ro" if self._read_only else "rw"
            uri = f"{self._path.absolute().as_uri()}?mode={mode}"
            # Used by one thread; closed by the one that closes the store.
            db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30, check_same_thread=False)
            self._connections.append(db)
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            if not self._read_only:
                db.execute("PRAGMA journal_mode = WAL")
                # A commit that has returned is on the disk: only then is an upload acknowledged.
                db.execute("PRAGMA synchronous = FULL")
            self._local.db = db
        return db

    def close(self) -> None:
        """Close every thread's connection, when none of them uses the store any more."""
        while self._connections:
            self._connections.pop().close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _state(self, key: str) -> Any:
        (value,) = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return value

    def today(self) -> date:
        """Return the current epoch: the day by the clock, or the latest day ever used if the clock is behind it."""
        return max(date.fromisoformat(self._state("day")), self._clock_day())

    def _clock_day(self) -> date:
        return datetime.fromtimestamp(self._clock(), UTC).date()

    def _advance_day(self) -> date:
        """Within a transaction: return the current epoch and remember that it was used."""
        today = self.today()
        self._db.execute("UPDATE state SET value = ? WHERE key = 'day' AND value < ?", (today.isoformat(),) * 2)
        return today

    # Plans.

    def _create(self) -> None:
        with self._transaction() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version:
                return
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            state = {
                "day": self._clock_day().isoformat(),
                "digest_key": secrets.token_bytes(32),
                "key": secrets.token_urlsafe(24),
            }
            db.executemany("INSERT INTO state VALUES (?, ?)", state.items())

    def load(self, registry: Registry) -> None:
        """Store the registry's plans beside the older ones, which stay accepted until they expire.

        Raises StoreError for another app's registry and for a rev that came before with another plan.
        """
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO state VALUES ('app', ?)", (registry.app,))
            if self._state("app") != registry.app:
                raise StoreError(
                    f"{self._path.parent} belongs to the app {self._state('app')!r} and the registry to "
                    f"{registry.app!r}; give each app a directory of its own"
                )
            db.execute("UPDATE plan SET current = 0")
            for metric in registry.metrics.values():
                self._store_plan(metric)
        self._read_plans()

    def _store_plan(self, metric: Metric) -> None:
        plan = metric.plan
        row = self._db.execute(
            "SELECT digest FROM plan WHERE metric = ? AND rev = ?", (metric.name, metric.rev)
        ).fetchone()
        if row and row[0] != plan.digest:
            raise StoreError(
                f"metric.{metric.name}: rev {metric.rev} was loaded before with another meaning (plan {row[0]}, now "
                f"{plan.digest}); give the changed metric the next rev"
            )
        self._db.execute(
            "INSERT INTO plan (metric, digest, rev, document, question, candidates, reservation, expires, current) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (metric, rev) DO UPDATE SET "
            "question = excluded.question, candidates = excluded.candidates, reservation = excluded.reservation, "
            "expires = excluded.expires, current = 1",
            (
                metric.name,
                plan.digest,
                metric.rev,
                canonical_json(plan.to_document()).decode("ascii"),
                metric.question,
                json.dumps(metric.candidates),
                metric.reservation,
                metric.expires.isoformat(),
            ),
        )

    def _read_plans(self) -> None:
        rows = self._db.execute(
            "SELECT id, document, question, candidates, reservation, expires, current FROM plan ORDER BY id"
        )
        stored = [_stored_plan(*row) for row in rows]
        self._plans = {(item.plan.metric, item.plan.digest): item for item in stored}

    @property
    def app(self) -> str:
        """The app whose reports these are."""
        app: str = self._state("app")
        return app

    def plans(self, metric: str | None = None) -> list[StoredPlan]:
        """Return the plans of one metric, or of all: those of the registry first, then the newest."""
        plans = [item for item in self._plans.values() if metric in (None, item.plan.metric)]
        return sorted(plans, key=lambda item: (not item.current, -item.id if metric else item.id))

    def find_plan(self, metric: str, digest: str) -> Plan:
        """Return the plan under which an upload's group may be accepted; raise GroupRefused with the reason."""
        stored = self._plans.get((metric, digest))
        if stored is None:
            known = any(item.plan.metric == metric for item in self._plans.values())
            raise GroupRefused("unknown-plan" if known else "unknown-metric")
        if self._clock_day() >= stored.expires + GRACE:
            raise GroupRefused("expired")
        return stored.plan

    # Accepting.

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, given with the body each was read from, and return the answer to each.

        One transaction for all of them: when this returns they are on the disk. Raises sqlite3.Error when nothing was
        stored.
        """
        with self._transaction():
            today = self._advance_day()
            return [self._append_one(upload, body, today) for upload, body in uploads]

    def _append_one(self, upload: Upload, body: bytes, today: date) -> Receipt | Problem:
        upload_id = self._digest(upload.id.encode("ascii"))
        body_digest = self._digest(body)
        row = self._db.execute("SELECT body, accepted, rejected FROM upload WHERE id = ?", (upload_id,)).fetchone()
        if row is None:
            return self._accept(upload, upload_id, body_digest, today)
        if not hmac.compare_digest(row[0], body_digest):
            return Problem("upload-conflict", "this upload's id was used before with another body")
        return Receipt(upload.id, row[1], duplicate=True, rejected=json.loads(row[2]))

    def _accept(self, upload: Upload, upload_id: bytes, body_digest: bytes, today: date) -> Receipt | Problem:
        if not upload.groups:
            return all_refused(upload.refused)
        accepted = sum(group.count for group in upload.groups)
        rejected = [refusal.to_document() for refusal in upload.refused]
        epoch = today.isoformat()
        self._db.execute(
            "INSERT INTO upload VALUES (?, ?, ?, ?, ?)",
            (upload_id, body_digest, epoch, accepted, json.dumps(rejected)),
        )
        for group in upload.groups:
            self._append_group(group, epoch)
        return Receipt(upload.id, accepted, duplicate=False, rejected=rejected)

    def _append_group(self, group: Group, epoch: str) -> None:
        """Write reports to the log, without the upload's id, and count them as accepted."""
        plan = self._plans[group.plan.metric, group.plan.digest].id
        self._db.execute(
            "INSERT INTO log (plan, epoch, n, reports) VALUES (?, ?, ?, ?)", (plan, epoch, group.count, group.reports)
        )
        self._db.execute(
            "INSERT INTO ledger (plan, epoch, accepted) VALUES (?, ?, ?) "
            "ON CONFLICT (plan, epoch) DO UPDATE SET accepted = accepted + excluded.accepted",
            (plan, epoch, group.count),
        )

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._digest_key, digest_size=16).digest()

    def forget_uploads(self) -> None:
        """Forget the ids of uploads that no device sends any more."""
        with self._transaction() as db:
            db.execute("DELETE FROM upload WHERE day < ?", ((self.today() - DEDUPE).isoformat(),))

    # Folding.

    def fold(self) -> int:
        """Fold the oldest pending reports, of at most FOLD_ROWS_MAX groups; return how many reports that were.

        The count happens outside the transaction; the commit does nothing if another folder was faster.
        """
        (low,) = self._db.execute("SELECT seq FROM cursor").fetchone()
        rows = self._db.execute(
            "SELECT seq, plan, epoch, n, reports FROM log WHERE seq > ? ORDER BY seq LIMIT ?", (low, FOLD_ROWS_MAX)
        ).fetchall()
        if not rows:
            return 0
        high = rows[-1][0]
        segments = list(self._segments(rows))
        with self._transaction() as db:
            moved = db.execute("UPDATE cursor SET seq = ? WHERE seq = ?", (high, low))
            if moved.rowcount != 1:
                return 0
            for plan, epoch, n, counts in segments:
                db.execute(
                    "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", (plan, epoch, low, high, n, _to_blob(counts))
                )
                db.execute("UPDATE ledger SET folded = folded + ? WHERE plan = ? AND epoch = ?", (n, plan, epoch))
            db.execute("DELETE FROM log WHERE seq <= ?", (high,))
        return sum(n for _, _, n, _ in segments)

    def _segments(self, rows: Iterable[tuple[int, int, str, int, bytes]]) -> Iterator[tuple[int, str, int, Counts]]:
        shapes = {item.id: item.plan.mechanism.shape for item in self._plans.values()}
        ordered = sorted(rows, key=lambda row: row[1:3])
        for (plan, epoch), grouped in groupby(ordered, key=lambda row: row[1:3]):
            group = list(grouped)
            n = sum(row[3] for row in group)
            reports = b"".join(row[4] for row in group)
            if len(reports) != n * shapes[plan].width:
                raise StoreError(f"{self._path}: the log of plan {plan} does not hold the {n} reports that it should")
            yield plan, epoch, n, fold(shapes[plan], reports)

    def compact(self) -> None:
        """Replace many segments of a tally by their sum."""
        with self._transaction() as db:
            crowded = db.execute(
                "SELECT plan, epoch FROM segment GROUP BY plan, epoch HAVING COUNT(*) >= ?", (COMPACT_SEGMENTS,)
            ).fetchall()
            sizes = {item.id: item.plan.mechanism.shape.tally_size for item in self._plans.values()}
            for plan, epoch in crowded:
                tally = self._sum(plan, epoch, sizes[plan])
                low, high = db.execute(
                    "SELECT MIN(low), MAX(high) FROM segment WHERE plan = ? AND epoch = ?", (plan, epoch)
                ).fetchone()
                db.execute("DELETE FROM segment WHERE plan = ? AND epoch = ?", (plan, epoch))
                db.execute(
                    "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)",
                    (plan, epoch, low, high, tally.n, _to_blob(tally.counts)),
                )

    # Reading.

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a plan and epoch: n = 0 and zeros where nothing was folded."""
        stored = self._plans[plan.metric, plan.digest]
        return self._sum(stored.id, epoch.isoformat(), plan.mechanism.shape.tally_size)

    def _sum(self, plan: int, epoch: str, size: int) -> Tally:
        rows = self._db.execute("SELECT n, counts FROM segment WHERE plan = ? AND epoch = ?", (plan, epoch)).fetchall()
        counts = [_from_blob(blob) for _, blob in rows] or [np.zeros(size, dtype=np.int64)]
        if any(len(one) != size for one in counts):
            raise BadTally(f"a stored tally does not have its {size} counts")
        return Tally(sum(n for n, _ in rows), np.sum(counts, axis=0, dtype=np.int64))

    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted, latest first."""
        stored = self._plans[plan.metric, plan.digest]
        rows = self._db.execute("SELECT epoch FROM ledger WHERE plan = ? ORDER BY epoch DESC", (stored.id,))
        return [date.fromisoformat(epoch) for (epoch,) in rows]

    def is_open(self, plan: Plan, epoch: date) -> bool:
        """Whether more reports may still come into the tally: the day is not over, or some of it is not folded."""
        stored = self._plans[plan.metric, plan.digest]
        pending = self._db.execute(
            "SELECT 1 FROM log WHERE plan = ? AND epoch = ? LIMIT 1", (stored.id, epoch.isoformat())
        ).fetchone()
        return epoch >= self.today() or pending is not None

    def ledger(self) -> list[LedgerRow]:
        """Return where the reports of each metric, plan and epoch are, all at one instant."""
        rows = self._db.execute(
            "SELECT plan.metric, plan.digest, ledger.epoch, accepted, folded, COALESCE(waiting.n, 0), quarantined "
            "FROM ledger JOIN plan ON plan.id = ledger.plan "
            "LEFT JOIN (SELECT plan, epoch, SUM(n) AS n FROM log GROUP BY plan, epoch) AS waiting "
            "  ON waiting.plan = ledger.plan AND waiting.epoch = ledger.epoch "
            "ORDER BY plan.metric, ledger.epoch, plan.id"
        )
        return [LedgerRow(*row) for row in rows]

    def pending(self) -> int:
        """Return how many accepted reports are not folded."""
        (count,) = self._db.execute("SELECT COALESCE(SUM(n), 0) FROM log").fetchone()
        return int(count)


def _stored_plan(
    id_: int, document: str, question: str, candidates: str, reservation: int, expires: str, current: int
) -> StoredPlan:
    try:
        plan = Plan.from_document(json.loads(document))
        return StoredPlan(
            id_, plan, question, tuple(json.loads(candidates)), reservation, date.fromisoformat(expires), bool(current)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the store's plan {id_} is damaged: {error!r}") from None


def _to_blob(counts: Counts) -> bytes:
    """Pack a count vector. Compressed, since the few reports of one fold leave most points of a large space empty."""
    return zlib.compress(counts.astype("<i8").tobytes(), level=1)


def _from_blob(blob: object) -> Counts:
    """Unpack a count vector; raise BadTally for what is none."""
    try:
        return np.frombuffer(zlib.decompress(blob), dtype="<i8")  # type: ignore[arg-type]  # SQLite holds anything
    except (zlib.error, TypeError, ValueError) as error:
        raise BadTally(f"a stored tally cannot be read: {error}") from None


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a data directory for one serving process; raise StoreError when another one has it.

    The lock is SQLite's own on a file of its own: it works wherever the store does, and ends with the process.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = sqlite3.connect(folder / LOCK_NAME, isolation_level=None, timeout=0)
            held.enter_context(closing(lock))
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreError(f"{folder} is being served already: stop that process or use another --data") from None
            raise StoreError(f"{folder} cannot be used: {error}") from None
        except sqlite3.Error as error:
            raise StoreError(f"{folder} cannot be used: {error}") from None
        except OSError as error:
            raise StoreError(f"{folder} cannot be used: {error.strerror}") from None
        yield
