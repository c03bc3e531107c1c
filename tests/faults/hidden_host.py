"""A host app as a program of its own, in which only `record` depends on whether its device has anything to say.

    hidden_host.py SCENE answering|silent URL DIRECTORY

`test_presence_processes.py` moves its clock, and runs it with its directory beside those of the others. The host says
`done-N` in its directory when day N has nothing more for it to do.
"""

import faulthandler
import gc
import mmap
import os
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.telemetry import Telemetry  # imported in `start`, after our hooks are registered

DAY_S = 86_400
EVENING_S = 18 * 3_600
FAULT_S = 0.5
QUIET_WITHIN_S = 20.0
"""How long a thread is given to be done with what it is at, and the system to have it gone once it has ended."""
FORK_WAIT_S = 2.0
"""The longest that a fork waits for a thread that only waits. In an app that is .05 s: too little on a busy machine."""
ALARM_S = 90
"""After this every process ends, so that none that hangs outlives its test."""
LOCK_WAIT_S = 0.5
"""The longest wait for a lock in the scenes of one. An app's are 5 s."""
LOCKED_S = 2.0
"""Longer than any wait for a lock."""

at_fork: list[Callable[[], object]] = []
"""Done once at the next fork, when dither has closed the device's file."""
before_reopening: list[Callable[[], object]] = []
"""Done once after the next fork in the parent, before dither may open the file again."""


# The clock, which the test moves for all processes at once.


class Over(Exception):
    """The test has seen enough."""


class Clock:
    """Real time and an offset, the first number in a file that all processes map; the second says when it is over."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._first_day = self() // DAY_S

    def __call__(self) -> float:
        offset_s: float = struct.unpack_from("d", self._map)[0]
        return time.time() + offset_s

    def wait_for(self, day: int, second: float = 0) -> None:
        """Wait for a time of a day, counted from the day on which the host began; raise Over if the test ends."""
        while self() < (self._first_day + day) * DAY_S + second:
            if struct.unpack_from("d", self._map, 8)[0]:
                raise Over
            time.sleep(0.01)

    def wait_until_over(self) -> None:
        with suppress(Over):
            self.wait_for(1_000)


# Forks.


def _waits(thread: threading.Thread) -> bool:
    """Tell whether a thread waits, the uploader's for its next look or the file's for a job, or has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or frame.f_back is None:
        return not thread.is_alive()
    if thread.name == "dither-file":
        return frame.f_code.co_name == "_work"
    return frame.f_code is threading.Condition.wait.__code__ and frame.f_back.f_code.co_name == "_sleep"


def wait_until_quiet() -> None:
    """Wait until other threads only wait: one in the middle of something cannot end at once when the host forks.

    Say so on stderr if they do not.
    """
    deadline = time.monotonic() + QUIET_WITHIN_S
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    while not all(map(_waits, others)):
        if time.monotonic() > deadline:
            print("no quiet among", others, file=sys.stderr)
            return
        time.sleep(0.001)


def fork(child: Callable[[], object]) -> int:
    """Fork a process that does something and ends."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(ALARM_S)
        child()
        os._exit(0)
    return pid


def daemonize() -> None:
    """Go on as the child of a child, in a session of its own; the others end."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.alarm(ALARM_S)


def _before_any_fork() -> None:
    """Run last, when dither has told its thread to end: let it, and say so on stderr if it does not.

    For the system a thread is there for a moment after it has ended for Python.
    """
    deadline = time.monotonic() + QUIET_WITHIN_S
    with suppress(OSError):  # no /proc, or no descriptor for it
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:  # noqa: PTH208
            time.sleep(0.001)
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
            print("a fork beside", threading.enumerate(), file=sys.stderr)
    while at_fork:
        at_fork.pop()()


def _after_any_fork_in_parent() -> None:
    while before_reopening:
        before_reopening.pop()()


# Faults.


def lower_the_limit() -> None:
    """Let no file be opened any more: the first three descriptors are in use."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def restore_the_limit(soft: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


class FailingConnection(sqlite3.Connection):
    """A connection to a disk that fails at times. As SQLite's own do then, it undoes its transaction."""

    fails = False

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if FailingConnection.fails:
            if self.in_transaction:
                super().execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error
        return super().execute(*arguments)


@contextmanager
def a_failing_disk() -> Iterator[None]:
    FailingConnection.fails = True
    yield
    time.sleep(FAULT_S)
    FailingConnection.fails = False


LOCKER = f"""
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA locking_mode = " + sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep({LOCKED_S})
db.execute("ROLLBACK")
db.close()
"""


def lock(file: Path, mode: str) -> "subprocess.Popen[str]":
    """Let another process take the file for a while: its writes, or in the mode EXCLUSIVE all of it."""
    locker = subprocess.Popen([sys.executable, "-c", LOCKER, file, mode], stdout=subprocess.PIPE, text=True)
    assert locker.stdout
    assert locker.stdout.readline() == "locked\n"
    return locker


# Scenes.


class Scene:
    """A host's work beside recording: as it starts, and each evening."""

    settle_s: float | None = 0.1
    """How long a forked child waits before its thread does anything, or None for what it is by itself."""
    lock_wait_s: float | None = None
    """The longest wait for a lock, or None for what it is by itself."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self.clock = clock

    def begin(self) -> None:
        """Return in the process that records and ends its days."""

    def end(self, day: int) -> None:
        """End a day, on which nothing is to be sent any more."""


class Daemon(Scene):
    """A double fork, and its parents end."""

    settle_s = None

    def begin(self) -> None:
        wait_until_quiet()
        daemonize()


class Forks(Scene):
    """A fork now and then, whose child ends at once."""

    def end(self, day: int) -> None:
        if day % 2 == 0:
            wait_until_quiet()
            os.waitpid(fork(lambda: None), 0)


class Prefork(Scene):
    """Two children that record and live on, and a parent that waits for them."""

    settle_s = None

    def begin(self) -> None:
        import dither.sending.connection  # noqa: F401  # once, and not in each child: it brings all of requests

        pids = []
        for number in range(2):
            wait_until_quiet()
            if (pid := os.fork()) == 0:
                signal.alarm(ALARM_S)
                if number == 0:  # only when the other one has ended a day all forks are made
                    self.directory = self.directory / "first"
                    self.directory.mkdir()
                return
            pids.append(pid)
        for pid in pids:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        sys.exit()


class Programs(Scene):
    """Programs that are started with a `preexec_fn`, which the next day begins in the middle of."""

    settle_s = None

    def end(self, day: int) -> None:
        (self.directory / f"done-{day}").touch()
        subprocess.run(["true"], check=True, preexec_fn=partial(time.sleep, 0.3))


class NoFilesAtAFork(Scene):
    """No descriptor is left for half a second, for either side of a fork."""

    def end(self, day: int) -> None:
        if day == 0:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            lower_the_limit()
            fork(partial(self._live_on, soft))
            self._bear(soft)

    def _bear(self, soft: int) -> None:
        time.sleep(FAULT_S)
        restore_the_limit(soft)

    def _live_on(self, soft: int) -> None:
        self._bear(soft)
        self.clock.wait_until_over()


class NoFilesForADaemon(Scene):
    """No descriptor is left for half a second, and then the one that could open the file is the child alone."""

    def begin(self) -> None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        lower_the_limit()
        daemonize()
        time.sleep(FAULT_S)
        restore_the_limit(soft)


class NoFilesAtAReopen(Scene):
    """There are descriptors for a fork, and for half a second none after it."""

    def end(self, day: int) -> None:
        if day == 0:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            before_reopening.append(lower_the_limit)
            child = fork(lambda: None)
            time.sleep(FAULT_S)
            restore_the_limit(soft)
            os.waitpid(child, 0)


class FailingDisk(Scene):
    """The disk fails for half a second, whatever is done with the file."""

    def end(self, day: int) -> None:
        if day == 0:
            with a_failing_disk():
                pass


class FailingDiskAtAReopen(Scene):
    """The disk fails for half a second, and the file must be opened meanwhile."""

    def end(self, day: int) -> None:
        if day == 0:
            with a_failing_disk():
                os.waitpid(fork(lambda: None), 0)


class LockedFile(Scene):
    """Another process writes, and has a transaction open for longer than anybody waits."""

    mode = "NORMAL"
    lock_wait_s = LOCK_WAIT_S

    def end(self, day: int) -> None:
        if day == 0:
            with self.lock():
                pass

    def lock(self) -> "subprocess.Popen[str]":
        return lock(self.directory / "device" / "device.sqlite3", self.mode)


class LockedFileAtAReopen(LockedFile):
    """Another process takes the whole file as soon as it is closed, and keeps it for longer than anybody waits."""

    mode = "EXCLUSIVE"

    def end(self, day: int) -> None:
        if day == 0:
            lockers: list[subprocess.Popen[str]] = []
            at_fork.append(lambda: lockers.append(self.lock()))
            os.waitpid(fork(lambda: None), 0)
            with lockers.pop():
                pass


SCENES: dict[str, type[Scene]] = {
    scene.__name__: scene
    for scene in (
        *(Daemon, Forks, Prefork, Programs),
        *(NoFilesAtAFork, NoFilesForADaemon, NoFilesAtAReopen),
        *(FailingDisk, FailingDiskAtAReopen, LockedFile, LockedFileAtAReopen),
    )
}


# The host.


def start(url: str, directory: Path, clock: Clock, scene: Scene) -> "Telemetry":
    import dither
    from dither.device import connection, file, schema
    from dither.sending import uploader
    from dither.sending.transport import HttpTransport
    from dither.settings import Settings

    uploader.SEND_WITHIN_S = uploader.LOOK_AGAIN_S = 0.05
    uploader.PAUSE_S, uploader.PAUSE_MAX_S = 0.02, 0.1
    uploader.FORK_WAIT_S = FORK_WAIT_S
    uploader.SETTLE_S = uploader.SETTLE_S if scene.settle_s is None else scene.settle_s
    if scene.lock_wait_s is not None:
        for module, name in ((schema, "OPEN_WAIT_S"), (file, "DURABLE_WAIT_S"), (connection, "DURABLE_WAIT_S")):
            setattr(module, name, scene.lock_wait_s)
    registry = dither.Registry.load(directory.parent / "metrics.toml")
    return dither.Telemetry(
        Settings(
            registry=registry,
            transport=HttpTransport(url, "k"),
            directory=directory / "device",
            consent=True,
            clock=clock,
        )
    )


def note_who_connects(path: Path) -> None:
    """Write down the process of every connection that is made."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "socket.connect":
            with suppress(OSError), path.open("a") as file:
                file.write(f"{os.getpid()}\n")

    sys.addaudithook(hook)


def main(scene_name: str, says: str, url: str, directory: Path) -> None:
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(ALARM_S)
    gc.set_threshold(20_000, 10, 10)  # else a sixth of a host's time goes into looking for garbage among its imports
    # Before those of dither: so the first runs after theirs, and the second before theirs.
    os.register_at_fork(before=_before_any_fork, after_in_parent=_after_any_fork_in_parent)
    sqlite3.connect = partial(sqlite3.connect, factory=FailingConnection)  # type: ignore[assignment]
    note_who_connects(directory / "connected")
    clock = Clock(directory.parent / "clock")
    scene = SCENES[scene_name](directory, clock)
    telemetry = start(url, directory, clock, scene)
    scene.begin()
    with suppress(Over):
        for day in range(1_000):
            clock.wait_for(day)
            if says == "answering":
                telemetry.dark.record(True)
            clock.wait_for(day, EVENING_S)
            scene.end(day)
            (scene.directory / f"done-{day}").touch()


if __name__ == "__main__":
    scene, says, url, directory = sys.argv[1:]
    main(scene, says, url, Path(directory))
