"""`dither` with faults in it: killed, put to sleep or failing at a named point, or with a bug planted.

    python -m tests.support.failing api --data ...      # what is to happen stands in TEST_ORDERS

A fault is at an effect of the store, `commit_fold` as an example, or at `publish`:

    before      nothing of it is done
    within      SQLite: in the middle of the transaction. Redis: all is sent, and no reply was read
    after       all of it is done, and nobody was told
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ENVIRONMENT_NAME = "TEST_ORDERS"
BEFORE, WITHIN, AFTER = "before", "within", "after"
KILL, KILL_GROUP, KILL_REDIS, RAISE, SLEEP = "kill", "kill group", "kill redis", "raise", "sleep"
TOO_LATE = "too late"
"""The note on an effect that did nothing, because somebody else was faster."""
WITHIN_STEPS = 12
"""A transaction that is cut short comes so far, in steps of SQLite's machine."""


@dataclass(frozen=True)
class Fault:
    """A fault at the n-th time that a process comes to a point, `times` times over all processes at most."""

    point: str
    when: str
    action: str = KILL
    nth: int = 1
    times: int = 1
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.when} {self.point} {self.nth} {self.action}"

    @property
    def over(self) -> str:
        """The note when a sleep is over."""
        return f"{self.name} over"


@dataclass(frozen=True)
class Orders:
    """A process's differences from production. `directory` is where processes note the faults that happened."""

    directory: Path
    faults: tuple[Fault, ...] = ()
    bugs: tuple[str, ...] = ()
    settings: dict[str, object] = field(default_factory=dict)
    """Values of modules by their full name."""

    def to_text(self) -> str:
        return json.dumps({**asdict(self), "directory": str(self.directory)})

    @classmethod
    def from_text(cls, text: str) -> "Orders":
        document = json.loads(text)
        faults = tuple(Fault(**fault) for fault in document["faults"])
        return cls(Path(document["directory"]), faults, tuple(document["bugs"]), document["settings"])

    def happened(self, fault: Fault) -> int:
        """Return how often a fault has happened."""
        return len(list(self.directory.glob(f"{fault.name}.*")))

    def claim(self, fault: Fault) -> bool:
        """Note that a fault happens now; return False when it has happened often enough."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for number in range(fault.times):
            with suppress(FileExistsError):
                (self.directory / f"{fault.name}.{number}").touch(exist_ok=False)
                return True
        return False

    def note(self, what: str) -> None:
        """Note that something happened."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / f"{what}.{os.getpid()}.{time.monotonic_ns()}").touch()

    def noted(self, what: str) -> int:
        """Return how often something happened."""
        return len(list(self.directory.glob(f"{what}.*")))

    def left(self) -> list[str]:
        """Return the names of the faults that have not happened as often as they are to."""
        return [fault.name for fault in self.faults if self.happened(fault) < fault.times]


def with_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a process where modules have these values, and that has no faults."""
    return {ENVIRONMENT_NAME: Orders(Path(os.devnull), settings=dict(settings)).to_text()} if settings else {}


class _Planted:
    """The faults of one process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._armed = threading.local()

    def plant(self, owner: type, name: str, faults: list[Fault]) -> None:
        """Let a method suffer its faults."""
        method = getattr(owner, name)

        def suffering(self_: Any, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                number = self._calls[name] = self._calls.get(name, 0) + 1
            due = [fault for fault in faults if number >= fault.nth]
            for fault in due:
                self._strike(fault, BEFORE, self_)
            with self._within(self_, due):
                result = method(self_, *args, **kwargs)
            if result is False:
                self._orders.note(TOO_LATE)
            for fault in due:
                self._strike(fault, AFTER, self_)
            return result

        setattr(owner, name, suffering)

    def _strike(self, fault: Fault, when: str, owner: Any) -> None:
        if fault.when != when or not self._orders.claim(fault):
            return
        match fault.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill group":
                os.killpg(os.getpgid(0), signal.SIGKILL)
            case "kill redis":
                os.kill(int(owner._client.information()[0]["process_id"]), signal.SIGKILL)
            case "sleep":
                time.sleep(fault.seconds)
                self._orders.note(fault.over)
            case "raise":
                from dither_aggregator.store import StoreUnavailable

                raise StoreUnavailable(f"a planted fault {when} {fault.point}")

    @contextmanager
    def _within(self, owner: Any, due: list[Fault]) -> Iterator[None]:
        left = (fault for fault in due if fault.when == WITHIN and self._orders.happened(fault) < fault.times)
        fault = next(left, None)
        if fault is None:
            yield
        elif hasattr(owner, "_db"):
            db = owner._db
            db.set_progress_handler(lambda: self._strike(fault, WITHIN, owner), WITHIN_STEPS)
            try:
                yield
            finally:
                db.set_progress_handler(None, 1)
        else:
            self._armed.fault = fault, owner
            try:
                yield
            finally:
                self._armed.fault = None

    def plant_in_connections(self) -> None:
        """Let what was sent to a Redis be the last that a process does."""
        from redis import connection as connections

        owner: Any = connections.AbstractConnection
        send = owner.send_packed_command

        def send_and_suffer(connection: Any, *args: Any, **kwargs: Any) -> Any:
            result = send(connection, *args, **kwargs)
            armed = getattr(self._armed, "fault", None)
            if armed is not None:
                self._strike(armed[0], WITHIN, armed[1])
            return result

        owner.send_packed_command = send_and_suffer


def _owners(name: str) -> list[type]:
    """Return the classes that have a point."""
    from dither_aggregator.store import SQLiteStore
    from dither_aggregator.store.redis import RedisStore
    from dither_aggregator.workers.tasks import TaskQueue

    return [owner for owner in (SQLiteStore, RedisStore, TaskQueue) if hasattr(owner, name)]


# Bugs, each one that somebody might write.


def _commit_without_the_cursor(owner: type) -> None:
    """A counter that was too late counts all the same."""
    commit = owner.commit_fold  # type: ignore[attr-defined]

    def late(self: Any, shard: int, read: Any, segments: Any, poisons: Any) -> bool:
        while not commit(self, shard, read, segments, poisons):
            now = self.read_log(shard)
            segments = [one._replace(low=now.low, high=now.low) for one in segments]
            read = now._replace(high=now.low, groups=[], mark=b"")
        return True

    owner.commit_fold = late  # type: ignore[attr-defined]


def _answer_before_the_commit(owner: type) -> None:
    """Uploads are acknowledged first, and stored soon."""
    append = owner.append  # type: ignore[attr-defined]

    def early(self: Any, uploads: Any) -> Any:
        threading.Timer(0.3, append, [self, uploads]).start()
        return [self._prepare(upload, body).result for upload, body in uploads]

    owner.append = early  # type: ignore[attr-defined]


def _forget_the_ids(owner: type) -> None:
    """Uploads are known again by nothing."""
    prepare = owner._prepare  # type: ignore[attr-defined]
    owner._prepare = lambda self, *args: prepare(self, *args)._replace(id=os.urandom(12))  # type: ignore[attr-defined]


def _fold_in_two_steps(owner: type) -> None:
    """The cursor moves, and the counts follow."""
    commit = owner.commit_fold  # type: ignore[attr-defined]

    def apart(self: Any, shard: int, read: Any, segments: Any, poisons: Any) -> bool:
        if not commit(self, shard, read, [], poisons):
            return False
        time.sleep(0.2)
        last = read._replace(low=read.high, groups=[], mark=b"")
        return bool(commit(self, shard, last, segments, []))

    owner.commit_fold = apart  # type: ignore[attr-defined]


def _commit_without_a_sync(owner: type) -> None:
    """SQLite leaves it to the system when it writes to the disk."""
    if not hasattr(owner, "_connect"):
        return
    connect = owner._connect

    def relaxed(self: Any) -> Any:
        db = connect(self)
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    owner._connect = relaxed


# An older release that takes part in an upgrade.


def _know_no_new_plans(owner: type) -> None:
    """Keep the plans that the command found at its start, also in processes that begin later."""
    refresh = owner.refresh  # type: ignore[attr-defined]
    found: list[Any] = []

    def once(self: Any) -> None:
        refresh(self)
        if not found:
            found.append(self._plans)
        self._plans = found[0]

    owner.refresh = once  # type: ignore[attr-defined]


def _know_no_new_mechanisms(owner: type) -> None:
    """Not understand the plans of PGR: they came with a later release."""
    from dither_aggregator.store.documents import StoredPlan
    from dither_aggregator.store.records import StoreError

    read = StoredPlan.from_document

    def older(document: Any) -> Any:
        if "pgr" in json.dumps(document):
            raise StoreError("a plan of the store is damaged, or of a later dither")
        return read(document)

    later: Any = StoredPlan
    later.from_document = older


BUGS: dict[str, Callable[[type], None]] = {
    "commit without the cursor": _commit_without_the_cursor,
    "answer before the commit": _answer_before_the_commit,
    "forget the ids": _forget_the_ids,
    "commit without a sync": _commit_without_a_sync,
    "know no new plans": _know_no_new_plans,
    "know no new mechanisms": _know_no_new_mechanisms,
    "fold in two steps": _fold_in_two_steps,
}


def prepare(orders: Orders) -> None:
    """Make this process one that fails as ordered."""
    for place, value in orders.settings.items():
        module, _, name = place.rpartition(".")
        assert hasattr(import_module(module), name), f"there is no {place}"
        setattr(import_module(module), name, value)
    planted = _Planted(orders)
    points: dict[str, list[Fault]] = {}
    for fault in orders.faults:
        points.setdefault(fault.point, []).append(fault)
    for name, faults in points.items():
        owners = _owners(name)
        assert owners, f"there is no point {name}"
        for owner in owners:
            planted.plant(owner, name, faults)
    if any(fault.when == WITHIN for fault in orders.faults):
        planted.plant_in_connections()
    for bug in orders.bugs:  # around the faults: these may strike in the middle of a bug
        for owner in _owners("commit_fold"):
            BUGS[bug](owner)


def main() -> int:
    prepare(Orders.from_text(os.environ[ENVIRONMENT_NAME]))
    from dither import cli

    return cli.main(sys.argv[1:])


if __name__ == "__mp_main__":  # a server process, which has started afresh
    prepare(Orders.from_text(os.environ[ENVIRONMENT_NAME]))
if __name__ == "__main__":
    sys.exit(main())
