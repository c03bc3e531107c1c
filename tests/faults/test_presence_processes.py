"""Real programs with hidden presence fork and meet faults, and nobody who sees uploads can tell which has answers.

A host (`hidden_host.py`) is run for some days in pairs that differ in `record` alone: one device records every day, the
other never. Both must send one upload a day, on the same days.
"""

import json
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import requests

from tests.support.aggregators import ENVIRONMENT
from tests.support.registries import registry_text
from tests.support.servers import Reply, accepted, scripted
from tests.support.soaking import MEMORY, SOAK, scaled

ROOT = Path(__file__).parents[2]
HOST = Path(__file__).with_name("hidden_host.py")
PATHS = [str(ROOT / "client"), str(ROOT / "shared"), str(Path(requests.__file__).parents[1])]
OTHER_PYTHONS = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))]
OTHER_PYTHONS = OTHER_PYTHONS if SOAK else OTHER_PYTHONS[-1:]

DAYS = scaled(4, 6)
DAY_S = 86_400
NOON_H, EVENING_H = 12, 18
PATIENCE_S = 10.0
"""How long we wait for an upload; once one has not come, only HURRY_S for the next."""
HURRY_S = 1.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")]


class Clock:
    """The one clock of all hosts, in a file that their processes map; it is moved here."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._first_day = int(time.time() // DAY_S)
        self.move(0, NOON_H)

    def move(self, day: int, hour: int) -> None:
        now = (self._first_day + day) * DAY_S + hour * 3_600
        struct.pack_into("d", self._map, 0, now - time.time())

    def day(self) -> int:
        offset_s: float = struct.unpack_from("d", self._map)[0]
        return int((time.time() + offset_s) // DAY_S) - self._first_day

    def end(self) -> None:
        """Tell all hosts to end."""
        struct.pack_into("d", self._map, 8, 1.0)


@dataclass
class Device:
    """One host, and what the aggregator and the system saw of it."""

    name: str
    scene: str
    python: str
    directory: Path
    process: "subprocess.Popen[bytes]"
    uploads: dict[str, int]
    """The day of each upload, by its id."""
    stderr: str = ""

    def has_done(self, day: int) -> bool:
        assert self.process.poll() in (None, 0), self.name
        return (self.directory / f"done-{day}").exists()

    def end(self) -> None:
        """Wait until every process of the host has ended: each has the pipe."""
        self.process.communicate(timeout=90)
        self.stderr = (self.directory / "stderr").read_text()
        assert self.process.returncode == 0, self.name
        if warns_of_threads_started_by_a_hook(self.python):
            self.stderr = re.sub(r".*DeprecationWarning: .* is multi-threaded, .*\n(  .*\n)?", "", self.stderr)

    def connected(self) -> set[int]:
        """Return the processes that made a connection."""
        return set(map(int, (self.directory / "connected").read_text().split()))


@cache
def warns_of_threads_started_by_a_hook(python: str) -> bool:
    """Tell whether this Python warns of a fork beside threads if the only one is started after it, by a hook.

    3.13.0 does (github.com/python/cpython/issues/137109): it counts them after the hooks have run.
    """
    code = (
        "import os, threading, time\n"
        "thread = threading.Thread(target=time.sleep, args=[0.1])\n"
        "os.register_at_fork(after_in_parent=thread.start)\n"
        "os.fork() or os._exit(0)\n"
    )
    done = subprocess.run(
        [python, "-W", "always::DeprecationWarning", "-c", code], capture_output=True, check=True, timeout=60
    )
    return b"multi-threaded" in done.stderr


def until(condition: Callable[[], object], within_s: float) -> bool:
    """Wait until something is so, and tell whether it came to be."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


@contextmanager
def a_device(home: Path, clock: Clock, scene: str, says: str, python: str) -> Iterator[Device]:
    directory = home / f"{scene}-{says}-{OTHER_PYTHONS.index(python) if python in OTHER_PYTHONS else 'ours'}"
    directory.mkdir()
    uploads: dict[str, int] = {}

    def take(body: bytes) -> bytes:
        receipt = accepted(body)
        uploads.setdefault(json.loads(receipt)["upload"], clock.day())
        return receipt

    with scripted(Reply(body=take)) as (url, _), (directory / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [python, "-W", "always::DeprecationWarning", HOST, scene, says, url, directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,  # no pipe: a host that writes a lot must not wait for us
            env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(PATHS)},
            start_new_session=True,
        )
        try:
            yield Device(f"{scene}, {says}, {Path(python).parents[1].name}", scene, python, directory, process, uploads)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            print((directory / "stderr").read_text()[:2_000])


def pairs(home: Path, *scenes: str, pythons: Sequence[str] = (sys.executable,)) -> list[Device]:
    """Run hosts in pairs, all at the same time: of each two the first has nothing to say, and the second answers."""
    text = registry_text(epsilon="0.1", reports=20, presence="hidden")
    head, _, metrics = text.partition("[metric.color]")
    (home / "metrics.toml").write_text(head + "[metric.dark]" + metrics.partition("[metric.dark]")[2], encoding="utf-8")
    clock = Clock(home / "clock")
    with ExitStack() as stack:
        devices = [
            stack.enter_context(a_device(home, clock, scene, says, python))
            for scene in scenes
            for python in pythons
            for says in ("silent", "answering")
        ]
        stack.callback(clock.end)  # also of what a host has left behind, before it is waited for
        for day in range(DAYS + 1):
            live_through(day, clock, devices)
        clock.end()
        for device in devices:
            device.end()
    return devices


def live_through(day: int, clock: Clock, devices: list[Device]) -> None:
    """Let a day begin, wait for its uploads, which are of the day before, and let it end."""
    clock.move(day, NOON_H)
    if day:
        missed = any(set(range(1, day)) - set(device.uploads.values()) for device in devices)
        for hour in range(NOON_H, EVENING_H):
            clock.move(day, hour)  # so that what failed is repeated on the same day
            if until(
                lambda: all(day in device.uploads.values() for device in devices),
                (HURRY_S if missed else PATIENCE_S) / (EVENING_H - NOON_H),
            ):
                break
    clock.move(day, EVENING_H)
    assert until(lambda: all(device.has_done(day) for device in devices), 60)


def check(devices: list[Device]) -> None:
    assert devices
    days = {device.name: sorted(device.uploads.values()) for device in devices}
    assert days == {name: list(range(1, DAYS + 1)) for name in days}, days
    stderr = {device.name: device.stderr for device in devices}
    assert stderr == dict.fromkeys(days, ""), stderr


@pytest.mark.parametrize("scene", ["Daemon", "Forks", "Prefork"])
def test_forks_do_not_tell_who_has_answers(home: Path, scene: str) -> None:
    check(pairs(home, scene, pythons=[sys.executable, *OTHER_PYTHONS]))


def test_programs_started_with_a_preexec_fn_send_nothing(home: Path) -> None:
    """Fork hooks run in them, too; and the day changes while they are at it."""
    devices = pairs(home, "Programs", pythons=[sys.executable, *OTHER_PYTHONS])
    check(devices)
    assert [device.connected() for device in devices] == [{device.process.pid} for device in devices]


FAULTS = ["NoFilesAtAFork", "NoFilesForADaemon", "NoFilesAtAReopen", "FailingDisk", "FailingDiskAtAReopen"]


@pytest.fixture(scope="module")
def after_faults() -> list[Device]:
    """Return the pairs of all these scenes, which run at the same time: each waits for most of its own."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        return pairs(Path(directory), *FAULTS)


@pytest.mark.parametrize("scene", FAULTS)
def test_a_fault_that_passes_does_not_tell_who_has_answers(after_faults: list[Device], scene: str) -> None:
    check([device for device in after_faults if device.scene == scene])


def test_a_lock_longer_than_any_wait_does_not_tell_who_has_answers(home: Path) -> None:
    check(pairs(home, "LockedFile", "LockedFileAtAReopen"))
