"""A program that lives through cases of hidden presence: each once with answers and once without, in real processes.

    python -m tests.faults.presence_lives DIRECTORY [planted] < cases, a JSON list a line

Each process of a case is a fork of this one, which has imported all and uses nothing. A clock in memory stands still
but where a case moves it, coins are seeded, and the uploader's thread sleeps until it is woken: so two lives differ by
their answers alone, and what is left can be compared byte by byte. For each life the directory has the device's file
as two later starts leave it, and its uploads.
"""

import gc
import json
import mmap
import os
import random
import resource
import signal
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from dither.device import DAY_S, FILE_NAME, Device, budget
from dither.sending import upload_attempt, upload_thread
from dither.sending.thread_states import State
from dither.sending.transport import Answer, Outcome
from dither.settings import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.support.devices import EXPIRES
from tests.support.registries import registry_text

DAY = 20_777
NOON_S = DAY_S / 2
LIFE_MAX_S = 60
"""After this a process ends, so that none that hangs outlives its test."""
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)


class Case(NamedTuple):
    """The life of two devices."""

    step: str
    """The step of the third day at which the life ends: one of STEPS."""
    ending: str
    """The way it ends: one of ENDINGS."""
    fault: str = ""
    """The fault from then on, a key of FAULTS; "" for none."""
    schedule: str = "early"
    memoized: bool = False
    processes: int = 1
    """How many use the file: those beside the one that answers only look, and are killed when it has ended."""


STEPS = ("unlooked", "looked", "answered", "midnight", "settling")
ENDINGS = ("exit", "_exit", "kill", "threads", "parent", "child", "suspend", "mended")


class Clock:
    """Seconds since 1970 in memory that all processes of a life share."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 8)
        self.move(DAY, NOON_S)

    def __call__(self) -> float:
        now: float = struct.unpack("d", self._map[:8])[0]
        return now

    def move(self, day: int, second: float) -> None:
        self._map[:8] = struct.pack("d", day * DAY_S + second)


class Net:
    """A transport that writes down the uploads that it takes, and fails as it is told."""

    def __init__(self, log: Path, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self.fails = ""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        if self.fails == "unreached":
            return Answer(Outcome.KEPT, "no answer (ConnectionError)", connected=False)
        stands()
        if self.fails in ("401", "403"):
            return Answer(Outcome.STOPPED, "the aggregator does not know the key")
        if self.fails == "503":
            return Answer(Outcome.KEPT, "slow down", retry_after_s=60.0)
        if self.fails == "retired":
            return Answer(Outcome.DROPPED, "410 retired", retired=tuple(range(99)))
        groups = [(group["metric"], group["plan"]) for group in json.loads(body)["groups"]]
        with self._log.open("a") as log:
            log.write(json.dumps([self._clock() // DAY_S - DAY, len(body), groups]) + "\n")
        return Answer(Outcome.ACCEPTED, "")

    def idle(self) -> None:
        pass


class FailingConnection(sqlite3.Connection):
    """A connection to a disk that fails when it is told to. As SQLite's own do then, it undoes its transaction."""

    fails = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if FailingConnection.fails and arguments[0].lstrip()[:6] != "SELECT":
            if self.in_transaction:
                super().execute("ROLLBACK")
            error = sqlite3.OperationalError("the disk fails")
            error.sqlite_errorcode, error.sqlite_errorname = FailingConnection.fails, "SQLITE_FAILS"
            raise error
        return super().execute(*arguments)


class Life:
    """One of the two lives of a case."""

    def __init__(self, case: Case, says: bool, directory: Path) -> None:
        self.case, self.says, self.directory = case, says, directory
        directory.mkdir()
        (directory / "uploads").touch()
        self.clock = Clock()
        text = (
            registry_text(presence="hidden", expires=EXPIRES, epsilon="1", epsilon_permanent="4", answers=3)
            if case.memoized
            else registry_text(presence="hidden", expires=EXPIRES, epsilon="0.2", reports=60, schedule=case.schedule)
        )
        self.registry = Registry.parse(text)
        self.starts = 0

    def start(self) -> Telemetry:
        """Start the app's telemetry, which looks."""
        self.starts += 1
        self.net = Net(self.directory / "uploads", self.clock)
        settings = Settings(self.registry, self.net, self.directory / "device", consent=True, clock=self.clock)
        coins = Rng(random.Random(f"{self.starts}").getrandbits)
        with mock.patch("dither.session.SYSTEM", coins):
            telemetry = Telemetry(settings)
        device = telemetry._session.device
        assert device, telemetry.status()
        # How many coins an answer takes must not decide what else is drawn.
        device._slots._rng = Rng(random.Random(f"{self.starts} {self.says}").getrandbits)
        return telemetry

    def answer(self, telemetry: Telemetry) -> None:
        if self.says:
            telemetry.color.record("red")
            telemetry.dark.record(True)

    # In the processes of the life.

    def live(self) -> None:
        """Live until the end of the case."""
        telemetry = self.start()
        self.answer(telemetry)
        if self.case.fault in ("401", "403", "retired"):
            self.net.fails = self.case.fault
            self.clock.move(DAY + 1, 1.0)
            telemetry.flush(5)
            self.answer(telemetry)
        else:
            self.clock.move(DAY + 1, DAY_S - 1 if self.case.step == "midnight" else 1.0)
            telemetry.flush(5)
            self.answer(telemetry)
        if self.case.fault == "refused":
            for name in self.registry.metrics:
                telemetry.set_consent(False, metric=name)
        elif self.case.fault:
            FAULTS[self.case.fault](self)
        self.clock.move(DAY + 2, 0.0 if self.case.step == "midnight" else 300.0)
        if self.case.step in ("looked", "answered"):
            look(telemetry)
        if self.case.step == "settling" and os.fork():
            os._exit(0)
        if self.case.step != "answered":
            no_more_looks()
        self.answer(telemetry)
        if self.case.step == "answered":
            look(telemetry)
        self.end(telemetry)

    def end(self, telemetry: Telemetry) -> None:
        """End as the case says."""
        no_more_looks()
        ending = self.case.ending
        if ending == "suspend":
            self.clock.move(DAY + 3, NOON_S)
            self.answer(telemetry)
        if ending == "mended":
            self.mend()
            no_look.clear()
            for day in (3, 4):
                self.clock.move(DAY + day, NOON_S)
                look(telemetry)
                self.answer(telemetry)
        if ending in ("parent", "child"):
            is_parent = bool(os.fork())
            if is_parent == (ending == "parent"):
                os._exit(0)
            self.answer(telemetry)
        if ending == "threads":
            start_thread(threading.Thread(target=time.sleep, args=[0.05]))
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if ending == "_exit":
            os._exit(0)

    def mend(self) -> None:
        """Let the fault pass, while the process goes on."""
        resource.setrlimit(resource.RLIMIT_NOFILE, FILES)
        FailingConnection.fails, self.net.fails = 0, ""
        threading.Thread.start = start_thread  # type: ignore[method-assign]
        while kept:
            kept.pop().close()

    def look_only(self, ready: int) -> None:
        """Be another process of the app, in which nobody answers, until it is killed."""
        look(self.start())  # its first look, if it came late on a busy machine, would find another day
        os.write(ready, b"x")
        time.sleep(LIFE_MAX_S)

    def recover(self) -> None:
        """Start again when nothing fails, send all, and leave an erased log."""
        telemetry = self.start()
        telemetry.flush(5)
        look(telemetry)
        telemetry.close()
        for thread in threading.enumerate():  # which closes the file
            if thread is not threading.current_thread():
                thread.join(LIFE_MAX_S)

    # In the program that forks them.

    def run(self) -> None:
        """Live this life, and two starts after it."""
        ready, is_ready = os.pipe()
        others = [fork(lambda: self.look_only(is_ready)) for _ in range(self.case.processes - 1)]
        for _ in others:
            assert os.read(ready, 1)
        alive, lives = os.pipe()
        child = fork(self.live)
        os.close(lives)
        os.waitpid(child, 0)
        assert os.read(alive, 1) == b""  # until the last process that the life has forked ends, too
        for pid in others:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.starts = 10
        for day in (5, 6):
            self.starts += 1
            self.clock.move(DAY + day, NOON_S)
            assert os.waitpid(fork(self.recover), 0)[1] == 0
        for descriptor in (ready, is_ready, alive):
            os.close(descriptor)


# Looks, which come when a case wants them.

no_look = threading.Event()
start_thread = threading.Thread.start


def no_more_looks() -> None:
    """Let no thread look from now on: all that comes after it comes before any look."""
    no_look.set()


def look(telemetry: Telemetry) -> None:
    """Have the thread look, and wait until it sleeps again or has ended."""
    uploader_ = telemetry._session.uploader
    if uploader_:
        with uploader_._changed:
            asleep.discard(uploader_)
            uploader_.wake()
            uploader_._changed.wait_for(lambda: uploader_ in asleep or uploader_._thread is None, LIFE_MAX_S)


asleep: set[upload_thread.Uploader] = set()
decide = upload_thread.Uploader.decide


def decide_if_any(self: upload_thread.Uploader) -> tuple[State, float]:
    if no_look.is_set() and not (self._forks or self._situation.closed):  # it ends then, and does not look either
        return State.WAITING, float(LIFE_MAX_S)
    return decide(self)


def sleep_until_woken(self: upload_thread.Uploader, seconds: float, now: float) -> None:
    if seconds > 0:
        asleep.add(self)
        self._changed.notify_all()
        self._changed.wait(LIFE_MAX_S)


# Faults, from when they are made to the end of the process, unless they are mended.


def use_up_descriptors(life: Life) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, FILES[1]))


def fail_with(code: int) -> Callable[[Life], None]:
    def fail(life: Life) -> None:
        FailingConnection.fails = code

    return fail


def lock(life: Life) -> None:
    locker = sqlite3.connect(life.directory / "device" / FILE_NAME, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    kept.append(locker)


kept: list[sqlite3.Connection] = []


def refuse_threads(life: Life) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse  # type: ignore[method-assign]


def fail_to_send(life: Life) -> None:
    life.net.fails = life.case.fault


FAULTS: dict[str, Callable[[Life], None]] = {
    "401": fail_to_send,
    "403": fail_to_send,
    "503": fail_to_send,
    "retired": fail_to_send,
    "refused": fail_to_send,
    "unreached": fail_to_send,
    "EMFILE": use_up_descriptors,
    "EIO": fail_with(sqlite3.SQLITE_IOERR),
    "ENOSPC": fail_with(sqlite3.SQLITE_FULL),
    "locked": lock,
    "thread": refuse_threads,
}


# The program.


def fork(lives: Callable[[], None]) -> int:
    """Fork a process that does something and ends as a program does."""
    if pid := os.fork():
        return pid
    signal.alarm(LIFE_MAX_S)
    try:
        lives()
    finally:
        sys.stderr.flush()
    raise SystemExit


def let_an_answer_open_its_period(self: Device, metric: Metric, answer: object) -> str:
    """Be the fault that this is about, as it once was."""
    with self._file.transaction():
        self._slots.open_periods()
        return self._slots.replace(metric, metric.read(answer)) or ""


def main(directory: Path, planted: bool) -> None:
    """Live through all cases."""
    upload_thread.Uploader.decide = decide_if_any  # type: ignore[method-assign]
    upload_thread.Uploader._sleep = sleep_until_woken  # type: ignore[method-assign]
    for module in (upload_thread, upload_attempt):
        setattr(module, "jitter", lambda most_s: most_s / 2)  # noqa: B010
    sqlite3.connect = partial(sqlite3.connect, factory=FailingConnection)  # type: ignore[assignment]
    # "spread": all days but each third one, such as the second.
    drawn = [day for day in range(DAY, DAY + 60) if day % 3 != (DAY + 1) % 3]
    setattr(budget, "draw_periods", lambda metric, rng: drawn)  # noqa: B010
    if planted:
        Device._replace = let_an_answer_open_its_period  # type: ignore[method-assign]
    gc.freeze()  # else each process would copy all that is imported, by looking for garbage in it
    for place, line in enumerate(sys.stdin):
        for says in (False, True):
            Life(Case(*json.loads(line)), says, directory / f"{place}-{'answers' if says else 'silent'}").run()
        (directory / f"{place}-done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "planted" in sys.argv[2:])
