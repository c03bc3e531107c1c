"""Processes that read: a server that forks them, and the one of them that computes pages ahead of those who ask.

**Readers are forked** from a process that has imported what they need, once, and that has no threads.
A new interpreter imports the same for a second or two each time, and keeps a copy of its own. A command forks this
process from itself before it has threads, files or connections, and goes on while it imports. A new interpreter takes
its place when a process is needed and none was forked, or it has ended.

Processes of one command share it: whoever asks brings two sockets, one to talk over and one by which the process is
ended. A process ends when either is closed, so it never outlives who asked for it, however that one ended.

**Readings are made ahead**: a process that nobody waits for computes pages, and what it reads is kept.
The process is a reader (`web/reader_process.py`) that hands over each reading as soon as it is made. Killed at any
moment it loses the one that it was at; that one is tried again later, and the others go on at once.
"""

import atexit
import gc
import logging
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import urlencode

import msgspec

from dither_aggregator.analysis import reading_cache
from dither_aggregator.operations import ONE_THREAD
from dither_aggregator.operations.registry_process import COMPUTING_NICENESS, READING_NICENESS, give_way
from dither_aggregator.operations.signal_handling import say_stacks_on_sigusr1, set_up_logging
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web.process_messages import LENGTH, Computed, Place, ReadRequest, encode
from dither_shared.installed import load

FORK_SERVER_NAME, READER_NAME = "dither-forker", "dither-reader"
"""The names under which `ps -e` and `top` show the processes, on Linux."""
_REQUEST = struct.Struct("<b?")
"""A niceness, and whether the process has only the time that nobody else wants."""
_NUMBER = struct.Struct("<i")
"""The answers about a process: its id, and how it ended, an exit code or a signal's negative number."""
_FILES_MAX = 1 << 20


class Child:
    """A process that was asked for. `talk` leads to it at once, though it may be forked later."""

    def __init__(self, talk: socket.socket, control: socket.socket) -> None:
        self.talk = talk
        self._control = control
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """Its id, None as long as it is not forked."""
        if self._pid is None:
            with suppress(OSError):
                (self._pid,) = _NUMBER.unpack(self._control.recv(_NUMBER.size, socket.MSG_DONTWAIT) or _NUMBER.pack(0))
        return self._pid or None

    def end(self) -> int | None:
        """End the process, whatever it is at, and return its exit code, negative for a signal.

        None where it is not known: nothing was forked yet, or the fork server has ended.
        """
        with self.talk, self._control as control:
            if self.pid is None:  # the closed socket ends it as soon as it is forked
                return None
            with suppress(OSError):
                control.shutdown(socket.SHUT_WR)
                said = control.recv(_NUMBER.size)
                return int(_NUMBER.unpack(said)[0]) if said else None
        return None


class ForkServer:
    """The fork server of this process, or of the one that started it, seen from here. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.line: socket.socket | None = None
        """The way to it, which other processes may be given."""
        self._process: int | None = None
        self._started_by = 0

    def fork(self, niceness: int, idle: bool = False) -> Child:
        """Have a reader forked, see `give_way` for its priority; do not wait for that. Raises OSError."""
        (talk, to_talk), (control, to_control) = socket.socketpair(), socket.socketpair()
        with to_talk, to_control, self._lock:
            request, files = _REQUEST.pack(niceness, idle), [to_talk.fileno(), to_control.fileno()]
            try:
                socket.send_fds(self.line or self._begin_anew(), [request], files)
            except (BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._begin_anew(), [request], files)
        return Child(talk, control)

    def begin(self) -> None:
        """Fork the server. It has all that this process has: call this before there is a store, a lock or a listener.

        It is left to the first who needs it if there are other threads already: a lock that one of them holds would
        stay locked in the fork.
        """
        if threading.active_count() > 1:
            return
        self.end()
        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # else the fork would say it again
        pid = os.fork()
        if not pid:
            _be(theirs)
        theirs.close()
        self._is(ours, pid)

    def _begin_anew(self) -> socket.socket:
        self.end()
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            path = os.pathsep.join(filter(None, sys.path))
            words = [*command(), str(theirs.fileno())]
            pid = os.posix_spawn(words[0], words, {**os.environ, **ONE_THREAD, "PYTHONPATH": path})
        self._is(ours, pid)
        return ours

    def _is(self, line: socket.socket, pid: int) -> None:
        self.line, self._process, self._started_by = line, pid, os.getpid()
        atexit.register(self.end)
        give_way(READING_NICENESS, pid)  # from its first step: to import takes a second

    def end(self) -> None:
        """End the server, if this process has started it. Processes that it forked end with who asked for them."""
        atexit.unregister(self.end)
        if self._process and self._started_by == os.getpid():
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        if self.line:
            self.line.close()
        self.line = self._process = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin, and end with the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()


fork_server = ForkServer()
"""The one of this process."""


def command() -> Sequence[str]:
    """Return the command line of a fork server, without its last word: the number of its socket."""
    return sys.executable, "-P", "-m", "dither_aggregator.operations.fork_server"


# Readings that are made ahead.


LOOK_EVERY_S = 0.5
ENDS_MAX = 32
"""How often the process may end over one page, each time over another reading."""
CANDIDATES_MAX = 2_000
"""More than these are a long list, which is not computed ahead."""
_READ_BYTES = 1 << 18
_ADDRESS = re.compile(r"(live|read) (/[!-~]{0,200}) ([!-~]{0,1000})")

_log = logging.getLogger("dither_aggregator")
_decoder = msgspec.msgpack.Decoder(Computed)


class Address(NamedTuple):
    """A page, and whether it is for somebody who is told live figures."""

    live: bool
    path: str
    query: str = ""

    @classmethod
    def of(cls, asked: ReadRequest) -> "Address":
        """Return that of a request."""
        return cls(asked.live, asked.path, asked.query.decode("latin-1"))

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address of a text; raise ValueError for another one."""
        if not (found := _ADDRESS.fullmatch(text)):
            raise ValueError("this is the address of no page")
        who, path, query = found.groups()
        return cls(who == "live", path, query)

    @property
    def is_short(self) -> bool:
        """Whether a task can carry it."""
        return bool(_ADDRESS.fullmatch(str(self)))

    def __str__(self) -> str:
        return f"{'live' if self.live else 'read'} {self.path} {self.query}"


def unmade(store: Store) -> Iterator[Address]:
    """Give the pages of the last sealed day that were not computed yet, those of all metrics first; each is looked up
    when it is its turn.

    A page that was computed by a dither with another estimator version counts: it is computed again when it is asked
    for.
    """
    sealed, epochs = store.sealed(), store.all_epochs()
    if store.merged() < sealed:
        return  # the digests of its tallies, by which readings are known, come with that
    names = [
        stored.plan.metric
        for stored in store.plans()
        if stored.current and any(day <= sealed for day in epochs.get(stored.id, ()))
    ]
    pages = [("/", ""), ("/changes", "")] if names else []
    for name in names:
        pages += [(f"/metrics/{name}", ""), (f"/metrics/{name}/time", ""), ("/compare", urlencode({"metric": name}))]
    wanted = [Address(live, path, query) for path, query in pages for live in (False, True)]
    yield from (each for each in wanted if not store.kept_reading(_made(store, each)))


def _made(store: Store, address: Address) -> str:
    return f"{address} {store.sealed()}"


class Computer:
    """Computes pages of a store, one after the other, in a process that it starts and ends. For one thread."""

    def __init__(self, store: Store, data: str, *, alone: bool) -> None:
        self._store = store
        self._place = Place(data, store.generation, CANDIDATES_MAX, computes=True, alone=alone)
        self._process: Child | None = None
        self._read = bytearray()
        self._begun: KeptReading | None = None

    def unmade(self) -> list[Address]:
        """Return the pages of the last sealed day that were not computed yet."""
        return list(unmade(self._store))

    def compute(self, address: Address, stopping: Callable[[], bool] = lambda: False) -> None:
        """Compute what is missing of a page, and note that it was computed. Raises StoreError."""
        made = KeptReading(_made(self._store, address), self._store.sealed(), False, b"made")
        for _ in range(ENDS_MAX):
            if self._computed(address, stopping) or stopping():
                break
        if not stopping():
            self._store.keep_readings([made])

    def close(self) -> int | None:
        """End the process, whatever it is at; return how it had ended before, if that is known."""
        process, self._process = self._process, None
        return process.end() if process else None

    def _computed(self, address: Address, stopping: Callable[[], bool]) -> bool:
        """Compute a page; return False where the process ended over it."""
        process = self._process = self._process or self._start()
        asked = ReadRequest("GET", address.path, address.query.encode("latin-1"), [], b"", live=address.live)
        try:
            process.talk.sendall(encode(asked))
            while not stopping():
                made = self._next(process)
                if readings := [one for one in made if one is not None]:
                    self._keep(readings)
                if len(readings) < len(made):
                    return True
        except (EOFError, OSError):
            self._ended()
        except StoreError:
            self.close()
            raise
        if stopping():
            self.close()
        return False

    def _start(self) -> Child:
        self._read.clear()
        self._begun = None
        process = fork_server.fork(COMPUTING_NICENESS)
        with suppress(OSError):  # reading tells that it has ended
            process.talk.sendall(encode(self._place))
        return process

    def _next(self, process: Child) -> list[KeptReading | None]:
        """Return what came meanwhile; wait a while for it. Raises EOFError when the process has ended."""
        poll = select.poll()
        poll.register(process.talk, select.POLLIN)
        if not poll.poll(LOOK_EVERY_S * 1000):
            return []
        come = process.talk.recv(_READ_BYTES)
        if not come:
            raise EOFError
        self._read += come
        made = []
        while len(self._read) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._read)
            if len(self._read) < LENGTH.size + length:
                break
            made.append(_decoder.decode(self._read[LENGTH.size : LENGTH.size + length]).reading)
            del self._read[: LENGTH.size + length]
        return made

    def _keep(self, readings: Sequence[KeptReading]) -> None:
        last = {one.key: one for one in readings}
        self._store.keep_readings(list(last.values()))
        for one in readings:
            if one.open:
                self._begun = one
            elif self._begun and one.key == self._begun.key:
                self._begun = None

    def _ended(self) -> None:
        """Note over which reading the process ended."""
        code = self.close()
        begun, self._begun = self._begun, None
        _log.error("the process that computes readings ended with %s", code)
        if begun:
            self._store.keep_readings([reading_cache.failed(begun, _describe_end(code))])


def _describe_end(code: int | None) -> str:
    return "it takes too long" if code == -signal.SIGXCPU else "its process was ended"


# The fork server.


def _be(line: socket.socket) -> NoReturn:
    """Be the fork server, or a process that it has forked, until there is nothing to do."""
    code = 1
    try:
        os.setpgid(0, 0)  # a terminal's Ctrl-C is for the server, which ends this
        _let_go_but(line.fileno())
        say_stacks_on_sigusr1()
        _name(FORK_SERVER_NAME)
        _serve(line)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)  # what was to be done at the end is for the process that this was forked from


def _let_go_but(kept: int) -> None:
    """Close what came from the process that forked this one. All that is printed goes to its log."""
    os.closerange(3, kept)
    os.closerange(kept + 1, _FILES_MAX)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)


def _name(name: str) -> None:
    with suppress(OSError):  # no Linux
        Path("/proc/self/comm").write_text(name, "ascii")


def _serve(line: socket.socket) -> None:
    """Import, then fork whoever is asked for, until nobody can ask any more; in a fork return at its end."""
    answer = load("dither_aggregator.web.reader_process:answer")  # by name: it needs what asks for it
    load("dither_aggregator.web.reader_process:prepare")()
    gc.freeze()  # else each process would copy all of it, to look for garbage among it
    children: dict[int, tuple[socket.socket, int]] = {}
    poll = select.poll()
    poll.register(line, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number != line.fileno():
                poll.unregister(number)
                _end(*children.pop(number))
                continue
            asked, files, _, _ = socket.recv_fds(line, _REQUEST.size, 2)
            if not asked:
                for each in children.values():
                    _end(*each)
                return
            talk, control = (socket.socket(fileno=file) for file in files)
            if not (pid := os.fork()):
                for held in (line, control, *(other for other, _ in children.values())):
                    held.close()
                _name(READER_NAME)
                niceness, idle = _REQUEST.unpack(asked)
                give_way(niceness, os.getpid(), idle)
                answer(talk)
                return
            talk.close()
            children[control.fileno()] = control, pid
            poll.register(control, select.POLLIN)
            with suppress(OSError):  # who asked has left: the next look ends it
                control.send(_NUMBER.pack(pid))


def _end(control: socket.socket, pid: int) -> None:
    """End a process, and say how it ended."""
    os.kill(pid, signal.SIGKILL)  # it was not waited for: its id is no other's
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with control, suppress(OSError):
        control.send(_NUMBER.pack(code))


def main() -> None:
    """Be a fork server that is no fork of who needs it."""
    set_up_logging()
    _be(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
