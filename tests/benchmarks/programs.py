"""Programs that use a telemetry SDK, run one at a time against a server on loopback.

A program is `peers/sdks/program.py` in a fresh process and the SDK's own environment. The server is a thread of this
process, so that its work is no part of a program's CPU time.
"""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from gzip import decompress
from pathlib import Path
from typing import Any, Protocol

from dither.commands.metrics.compiling import document_of
from dither_shared.frozen import canonical_json
from dither_shared.registry import Registry
from tests.benchmarks.peers import HERE, PeerUnavailable
from tests.support.servers import Reply, accepted, scripted

PROGRAM = HERE / "sdks" / "program.py"
TIMEOUT_S = 20.0
LINGER_S = 5.0
TOML = "dither TOML"
"""The name of our SDK where it starts from `metrics.toml`: otherwise from the compiled form."""
FEW = 3
"""Flags of a registry that has metrics of the other kinds, too."""

_OTHERS = {
    "browser": 'kind = "choice"\nvalues = ["Firefox", "Chrome", "Safari", "Edge", "Opera"]\nreports = 3',
    "tools": 'kind = "choices"\nvalues = ["git", "make", "cmake", "ninja", "bazel"]\nticks_max = 3\nreports = 3',
    "plan": 'kind = "choice"\nvalues = ["free", "team"]\nmemoize = true\nepsilon_permanent = 2.0\nanswers = 2',
    "homepage": 'kind = "text"\nmemoize = true\nepsilon_permanent = 4.0\nanswers = 2',
}


@dataclass(frozen=True)
class Sdk:
    """An SDK and the Python that has it."""

    name: str
    python: Path

    @property
    def packages(self) -> Path:
        """The directory of what is installed."""
        (directory,) = self.python.parents[1].glob("lib/python*/site-packages")
        return directory


class Request(Protocol):
    """A request that came to a server."""

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    cpu_s: float
    answer: dict[str, Any]
    exit_s: float
    """From its last line to its end, where it says when that was; TIMEOUT_S if it had to be killed."""
    killed: bool


def play(
    sdk: Sdk, scenario: str, endpoint: str, directory: Path, *, flags: int = FEW, linger_s: float = LINGER_S
) -> Ended:
    """Run one program, for at most TIMEOUT_S, and then what it leaves behind for at most `linger_s`.

    Raises PeerUnavailable if it fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_registry(flags, directory, compiled=sdk.name != TOML)
    (directory / "answer.json").unlink(missing_ok=True)
    command = [str(sdk.python), "-I", str(PROGRAM), sdk.name.split()[0], scenario, endpoint, str(directory)]
    before_s = _children_cpu_s()
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            # An environment of its own: neither a proxy nor a setting of this shell may meddle.
            env={"PATH": os.environ["PATH"], "HOME": str(directory), "DITHER_TELEMETRY": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that a process that it leaves behind can be found
        )
        timer = threading.Timer(TIMEOUT_S, os.killpg, [process.pid, signal.SIGKILL])
        timer.start()
        try:
            process.wait()  # not with a timeout, which would be noticed in steps of up to 50 ms
            now = time.monotonic()
        finally:
            timer.cancel()
            _end_session(process.pid, linger_s)
    cpu_s = _children_cpu_s() - before_s
    if process.returncode == -signal.SIGKILL:
        return Ended(cpu_s, {}, TIMEOUT_S, killed=True)
    if process.returncode:
        last = (directory / "output").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise PeerUnavailable(f"{scenario}: exit status {process.returncode}: {' '.join(last)}")
    answer = json.loads((directory / "answer.json").read_text("utf-8")) if (directory / "answer.json").exists() else {}
    return Ended(cpu_s, answer, now - answer.get("ends", now), killed=False)


def _end_session(session: int, linger_s: float) -> None:
    """Wait until nothing is left of a session, then end what is."""
    until = time.monotonic() + linger_s
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(session, 0)
            time.sleep(0.02)
        os.killpg(session, signal.SIGKILL)


def _children_cpu_s() -> float:
    """Return the CPU time of all programs so far, without what they left behind."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def write_registry(flags: int, directory: Path, *, compiled: bool = True) -> None:
    """Write that registry and, unless told otherwise, its compiled form, which an app ships."""
    text = registry_text(flags)
    (directory / "metrics.toml").write_text(text, encoding="utf-8")
    if compiled:
        (directory / "metrics.json").write_bytes(canonical_json(document_of(Registry.parse(text))))


def registry_text(flags: int) -> str:
    """Return a registry of flags, `event_0` and on, and, if they are few, of the other kinds as well."""
    expires = datetime.now(UTC).date() + timedelta(days=180)
    blocks = {f"event_{i}": 'kind = "flag"\nreports = 1' for i in range(flags)} | (_OTHERS if flags == FEW else {})
    head = '[registry]\napp = "benchmark"\ndevice_epsilon = 1000.0\nquiet_days = 0\n'
    common = f"""
rev = 1
question = "Does it happen?"
epsilon = 1.0
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""
    return head + "".join(f"\n[metric.{name}]\n{keys}{common}" for name, keys in blocks.items())


# Servers.


@contextmanager
def up(sdk: Sdk) -> Iterator[tuple[str, Sequence[Request]]]:
    """Serve an endpoint that takes everything; yield its address and what has come."""
    # A receipt where one is needed; the others look at the status alone.
    reply = Reply(202, accepted) if sdk.name == "dither" else Reply(200, b"{}")
    with scripted(reply) as (endpoint, requests):
        yield endpoint, requests


@contextmanager
def deaf(*, listens: bool) -> Iterator[str]:
    """Yield an endpoint that refuses connections, or takes them and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen(128)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def arrived(requests: Sequence[Request]) -> Counter[str]:
    """Return how often each event has come."""
    found: Counter[str] = Counter()
    for request in requests:
        zipped = request.headers.get("Content-Encoding") == "gzip"
        body = decompress(request.body) if zipped else request.body
        found.update(event.decode() for event in re.findall(rb"\bevent_[0-9]+", body))
    return found
