"""A nursery of processes: it has imported what `dither` needs, and each process begins as a fork of it.

Hundreds of `dither` processes start in these tests, and each would import the same for half a second. From the fork on
a process is what `python -m MODULE` is: it has a session, an environment and files of its own, and `__main__` is that
module, so that multiprocessing starts further processes as it does elsewhere. Five things differ: all processes have
the nursery's hash seed; variables that Python reads at its start, as PYTHONWARNINGS, do nothing in an environment; no
look for garbage sees what was imported before; a worker ends half a second sooner; and `failing.prepare` makes its
settings after the imports, so that a copy by `from ... import` keeps the value before.

    Nursery.shared(environment).born("dither.cli", ["beat", ...], environment, out, err)  # into files
    Nursery.shared(environment).piped("dither.cli", ["beat", ...], environment)

`python -m tests.support.nursery` is the nursery itself. It ends with the test process that started it.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

BYTES_MAX = 128 * 1024
LOOK_EVERY_S = 0.005
IMPORTED = (
    "dither.sending.connection",
    "dither.telemetry",
    "dither_aggregator.commands.api",
    "dither_aggregator.commands.beat",
    "dither_aggregator.commands.demo",
    "dither_aggregator.commands.serve",
    "dither_aggregator.commands.worker",
    "dither_aggregator.analysis.closed_days",
    "dither_aggregator.web.reader_process",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.routes",
    "celery.app.trace",
    "celery.backends.base",
    "celery.concurrency.prefork",
    "celery.events.dispatcher",
    "celery.events.receiver",
    "celery.fixups.django",
    "celery.loaders.app",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "kombu.pidbox",
    "kombu.transport.redis",
    "multiprocessing.popen_fork",
    "multiprocessing.sharedctypes",
)
"""Modules of `dither` and of others. The module that a process runs is not among them: it is `__main__` there."""


class Born:
    """A process of the nursery, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._nursery.code_of(self.pid)

    def wait(self, timeout: float) -> int:
        """Wait until it has ended, and return its exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout)
            time.sleep(LOOK_EVERY_S)
        return code

    @property
    def returncode(self) -> int | None:
        """Its exit code, as `poll` returns it."""
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended this moment
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        self.send_signal(signal.SIGKILL)


class Piped(Born):
    """A process of the nursery whose stdout and stderr are pipes to this one."""

    def __init__(self, born: Born, stdout: IO[str], stderr: IO[str]) -> None:
        super().__init__(born._nursery, born.pid)
        self.stdout, self.stderr = stdout, stderr

    def communicate(self, timeout: float = 290) -> tuple[str, str]:
        """Read what is left of stdout and stderr, and close them; wait until it has ended.

        Its own processes have both, too, and may end later: one at the lowest priority waits until it is started.
        """
        deadline = time.monotonic() + timeout
        rest = ["", ""]

        def read(place: int, stream: IO[str]) -> None:
            rest[place] = stream.read()

        # Both at once, since it would wait for who reads a pipe that is full; none that was read to its end before.
        streams = [each for each in enumerate((self.stdout, self.stderr)) if not each[1].closed]
        reading = [threading.Thread(target=read, args=each, daemon=True) for each in streams]
        for thread in reading:
            thread.start()
        for thread in reading:
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                raise subprocess.TimeoutExpired([str(self.pid)], timeout)
        self.wait(max(deadline - time.monotonic(), 1))
        self.close()
        return rest[0], rest[1]

    def close(self) -> None:
        """Read no more of what it writes."""
        self.stdout.close()
        self.stderr.close()


class Nursery:
    """The side of the tests, which ask for processes on any thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.nursery"]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), env=dict(environment), start_new_session=True
            )
        self._of = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        """End it with this process; the processes that it started may go on."""
        if self._of == os.getpid():
            self._socket.close()
            self._process.wait()

    @classmethod
    def shared(cls, environment: Mapping[str, str]) -> "Nursery":
        """Return the nursery of this process, which is started when it is first needed."""
        return _shared(tuple(sorted(environment.items())), os.getpid())

    def born(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> Born:
        """Start a process, its stdout in a new file and its stderr at the end of another."""
        with out.open("wb") as said, err.open("ab") as written:
            return self._born(module, arguments, environment, said.fileno(), written.fileno())

    def piped(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Piped:
        """Start a process whose stdout and stderr are pipes to this one."""
        (out, said), (err, written) = os.pipe(), os.pipe()
        try:
            born = self._born(module, arguments, environment, said, written)
        finally:
            os.close(said)
            os.close(written)
        return Piped(born, os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8"))

    def _born(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], out: int, err: int) -> Born:
        asked = {"module": module, "arguments": [*arguments], "environment": {**environment}}
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [out, err])
            while (pid := self._hear(0).get("pid")) is None:
                pass
            self._codes.pop(pid, None)
            return Born(self, pid)

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a process; None while it runs."""
        with self._lock:
            try:
                while True:
                    self._hear(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return self._codes.get(pid)

    def _hear(self, flags: int) -> dict[str, int]:
        received = self._socket.recv(BYTES_MAX, flags)
        assert received, f"the nursery has ended with {self._process.wait()}"
        said: dict[str, int] = json.loads(received)
        if "ended" in said:
            self._codes[said["ended"]] = said["code"]
        return said


@cache
def _shared(environment: tuple[tuple[str, str], ...], _process: int) -> Nursery:
    return Nursery(dict(environment))


# The nursery.


def _serve(asking: socket.socket) -> dict[str, Any] | None:
    """Answer until nobody can ask any more. In a process that was born, return what was asked for it."""
    ends: dict[int, int] = {}  # the process of each pidfd
    poll = select.poll()
    poll.register(asking, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number != asking.fileno():
                poll.unregister(number)
                os.close(number)
                pid, status = os.waitpid(ends.pop(number), 0)
                _say(asking, ended=pid, code=os.waitstatus_to_exitcode(status))
                continue
            try:
                received, files, _, _ = socket.recv_fds(asking, BYTES_MAX, 2)
            except ConnectionResetError:  # the tests were killed
                return None
            if not received:
                return None
            if pid := _forked():
                for file in files:
                    os.close(file)
                end = os.pidfd_open(pid)
                ends[end] = pid
                poll.register(end, select.POLLIN)
                _say(asking, pid=pid)
            else:
                for end in ends:
                    os.close(end)
                asking.close()
                asked: dict[str, Any] = json.loads(received)
                return {**asked, "files": files}


def _forked() -> int:
    """Fork: in the process that begins, with a session of its own, return 0; in this one return its id after that."""
    began, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(began)
    os.close(begins)
    if pid:
        os.read(began, 1)
        os.close(began)
    return pid


def _say(asking: socket.socket, **what: int) -> None:
    asking.send(json.dumps(what).encode())


def _live(module: str, arguments: list[str], environment: dict[str, str], files: list[int]) -> None:
    """Be the process that was asked for."""
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
        os.dup2(file, number)
        os.close(file)
    # Those of the nursery know whether its own files could be sought in.
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, and serve."""
    for name in IMPORTED:
        import_module(name)
    import_module("dither_aggregator.web.reader_process").prepare()  # else each fork server would
    # As it ends a worker joins a thread of Celery's that looks twice a second whether it may end.
    brief = SimpleNamespace(sleep=lambda _: time.sleep(LOOK_EVERY_S))
    setattr(import_module("celery.concurrency.prefork"), "time", brief)  # noqa: B010
    gc.freeze()  # else each process would copy all of it, to look for garbage among it
    asking = socket.socket(fileno=os.dup(0))
    if asked := _serve(asking):
        _live(**asked)


if __name__ == "__main__":
    main()
