"""A registry that comes while uploads are taken: a process of its own reads it, within limits, and says what is in it.

The process knows the shared code alone. It is nicer than the server, as readers are. It decodes the body too, and
refuses what the store would: uploads wait for each step that the server's own process takes.

A process that is started for the first registry, and ends with the server, forks it. The server starts none for each:
all of its threads wait until a new process has had its first turn at the processor, some milliseconds beside others.
Beside busy programs that leave it next to no time, a less nice one begins anew.
"""

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from dither_shared.domains import Coded
from dither_shared.errors import DitherError, RegistryError
from dither_shared.plan import Plan
from dither_shared.registry import Registry, utc_today
from dither_shared.words.alphabets import is_own

READING_NICENESS = 5
"""Uploads go first. Beside busy programs a page is still made: at 19 it would get a hundredth of a processor."""
COMPUTING_NICENESS, LOADING_NICENESS = 10, 19
PROCESSOR_S = 20
READ_WITHIN_S = 60
"""By the clock: uploads come first."""
STARVED_S = 10.0
"""After so long it is looked at whether a process gets any time."""
MEMORY_BYTES_MAX = 512 * 1024 * 1024
DOCUMENT = msgspec.json.Decoder(dict[str, str | int | float | bool | list[str | int | float | bool | None] | None])
"""Bodies hold words, numbers and lists of them: what is nested deeper, however much of it, is not even read."""
REGISTRY = "registry"
"""The one member of a body that holds a registry."""
_READ, _REFUSED, _TOO_MUCH, _NO_REGISTRY = range(4)


class NoRegistry(DitherError):
    """A body that holds no registry. `short` is a short one that is wrong in the same way."""

    def __init__(self, short: bytes) -> None:
        super().__init__("the body holds no registry")
        self.short = short


class KnownPlans(msgspec.Struct, frozen=True, array_like=True):
    """The part of a store by which it refuses registries."""

    app: str
    digests: Sequence[tuple[str, int, str]]
    """All plans, each with its metric and rev."""

    def check(self, registry: Registry) -> None:
        """Raise RegistryError for a registry that the store would refuse, in the store's words."""
        if registry.app != self.app:
            raise RegistryError(another_app(self.app, registry.app))
        before = {(metric, rev): digest for metric, rev, digest in self.digests}
        for plan in (metric.plan for metric in registry.metrics.values()):
            digest = before.get((plan.metric, plan.rev), plan.digest)
            if digest != plan.digest:
                raise RegistryError(another_meaning(plan, digest))


def another_app(app: str, offered: str) -> str:
    """Return why a store takes no registry of another app."""
    return f"the store belongs to the app {app!r} and the registry to {offered!r}; give each app a store of its own"


def another_meaning(plan: Plan, digest: str) -> str:
    """Return why a store takes no plan in the place of another one of the same rev, whose digest is given."""
    return (
        f"metric.{plan.metric}: rev {plan.rev} was loaded before with another meaning (plan {digest}, now "
        f"{plan.digest}); give the changed metric the next rev"
    )


def read_apart(registry: bytes | Path, known: KnownPlans | None = None) -> dict[str, Any]:
    """Read a registry, its file or a body that holds it; return what `Offered.from_document` makes plans of.

    Raises RegistryError as `Registry.load` does, for one that takes too long or too much memory, and for one that a
    known store would refuse; NoRegistry for another body.
    """
    path, body = (str(registry), b"") if isinstance(registry, Path) else ("", registry)
    code, answer = _forker.ask(msgspec.json.encode((path, known)), body)
    if code == _REFUSED:
        raise RegistryError(answer.decode())
    if code == _NO_REGISTRY:
        raise NoRegistry(answer)
    if code == _TOO_MUCH:
        raise RegistryError(
            f"{path or REGISTRY}: must be read within {PROCESSOR_S} seconds and {MEMORY_BYTES_MAX >> 20} MiB of memory"
        )
    document: dict[str, Any] = json.loads(answer)
    return document


class _Forker:
    """The process that forks those which read registries, seen from the server's. One registry at a time."""

    def __init__(self) -> None:
        self._one = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None

    def ask(self, how: bytes, body: bytes) -> tuple[int, bytes]:
        """Return how a registry was read, and what was said of it."""
        with self._one:
            if self._process and self._process.poll() is not None:
                self.end()
            until = time.monotonic() + READ_WITHIN_S
            line = self._line or self._start(LOADING_NICENESS)
            message = bytes([_TOO_MUCH])
            try:
                _send(line, how, body)
                began_anew = not line.poll(min(STARVED_S, READ_WITHIN_S)) and self._starves()
                if began_anew:
                    self.end()
                    line = self._start(READING_NICENESS)
                    _send(line, how, body)
                if line.poll(max(until - time.monotonic(), 0)):
                    message = line.recv_bytes()
                    if not began_anew:
                        return message[0], message[1:]
            except (EOFError, OSError):
                pass  # it has ended, perhaps in the middle of an answer
            self.end()  # one that began anew, too: the next registry has all the time that others leave again
            return message[0], message[1:]

    def _starves(self) -> bool:
        """Return whether the process, or the one that it has forked, gets next to no time."""
        assert self._process
        pid = self._process.pid
        try:
            forked = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        except OSError:  # no Linux, or it has ended
            forked = []
        return any(starves(each) for each in (pid, *map(int, forked)))

    def _start(self, niceness: int) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # this module
                [sys.executable, "-P", "-m", "dither_aggregator.operations.registry_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                process_group=0,  # a terminal's Ctrl-C is for the server
            )
        self._line = ours
        atexit.register(self.end)
        give_way(niceness, self._process.pid)  # from its first step: to start takes longer than most registries do
        return ours

    def end(self) -> None:
        """End the process, and the one that it has forked."""
        atexit.unregister(self.end)
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._line:
            self._line.close()
        self._process = self._line = None


_forker = _Forker()


def document_of(registry: Registry) -> dict[str, Any]:
    """Return what a store takes of a registry.

    Raises RegistryError where a compiled registry has brought an alphabet that is none of this dither's: a store keeps
    digests alone, and could not be opened again.
    """
    for name, metric in registry.metrics.items():
        domain = metric.asked.domain
        if isinstance(domain, Coded) and domain.alphabet and not is_own(domain.alphabet):
            other = f"its alphabet, {domain.alphabet[:12]!r}, is not one of this dither's"
            raise RegistryError(f"metric.{name}: {other}: install the dither that has it")
    return {
        "app": registry.app,
        "plans": [
            {
                "plan": metric.plan.to_document(),
                "question": metric.question,
                "owners": list(metric.owners),
                "candidates": metric.asked.candidates,
                "reservation": metric.reservation,
                "expires": metric.expires.isoformat(),
                "period_days": metric.period_days,
                "measures": metric.measures,
            }
            for metric in registry.metrics.values()
        ],
    }


def give_way(niceness: int, process: int, idle: bool = False) -> None:
    """Have the server go before a process, from its first step on, where both want a processor.

    One that is `idle` has only the time that nobody else wants. A server that was started nice has nobody go before it.
    """
    with suppress(ProcessLookupError):  # it has ended at once
        os.setpriority(os.PRIO_PROCESS, process, max(niceness, os.getpriority(os.PRIO_PROCESS, process)))
        if hasattr(os, "SCHED_BATCH"):  # which takes no processor from who wakes up
            os.sched_setscheduler(process, os.SCHED_IDLE if idle else os.SCHED_BATCH, os.sched_param(0))


def starves(process: int) -> bool:
    """Return whether a process has waited for a processor nine times as long as it had one."""
    try:
        had_ns, waited_ns = map(int, Path(f"/proc/{process}/schedstat").read_text("ascii").split()[:2])
    except (OSError, ValueError):  # no Linux, or it has ended
        return False
    return waited_ns > 9 * had_ns


def _send(line: Connection, how: bytes, body: bytes) -> None:
    line.send_bytes(how)
    line.send_bytes(body)


def main() -> None:
    """Have registries read until nobody asks any more."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # whoever asks all processes of a service where they are ends none
    line = Connection(int(sys.argv[1]))
    with suppress(EOFError, ConnectionError):
        while True:
            how, body = line.recv_bytes(), line.recv_bytes()
            line.send_bytes(forked(how, body))


def forked(how: bytes, body: bytes) -> bytes:
    """Have a process within limits read a registry; return how that went, a byte, and what it says."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CPU, PROCESSOR_S)):
                resource.setrlimit(what, (most, most))
            code, content = _read(how, body)
            with os.fdopen(writing, "wb") as answer:
                answer.write(bytes([code]) + content)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    return content if os.waitpid(child, 0)[1] == 0 else bytes([_TOO_MUCH])


def _read(how: bytes, body: bytes) -> tuple[int, bytes]:
    """Read a registry; return what is in it, or why it is refused."""
    path, known = msgspec.json.decode(how, type=tuple[str, KnownPlans | None])
    source = path or REGISTRY
    try:
        registry = Registry.load(path) if path else Registry.parse(_text(body), source)
        registry.check_dates(utc_today(), source)
        if known:
            known.check(registry)
        document = document_of(registry)
    except NoRegistry as error:
        return _NO_REGISTRY, error.short
    except DitherError as error:
        return _REFUSED, str(error).encode("utf-8", "backslashreplace")
    return _READ, json.dumps(document).encode("ascii")


def _text(body: bytes) -> str:
    """Return the text of the registry that a body holds; raise NoRegistry."""
    try:
        given = DOCUMENT.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise NoRegistry(b"") from None
    text = given.get(REGISTRY)
    if len(given) == 1 and isinstance(text, str):
        return text
    wrong = [name for name in given if name != REGISTRY] or list(given)
    raise NoRegistry(msgspec.json.encode({name: None if given[name] is None else 0 for name in wrong[:1]}))


if __name__ == "__main__":
    main()
