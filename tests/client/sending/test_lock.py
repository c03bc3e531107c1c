"""Which process sends: through forks, kills, two objects in one process, and where there are no locks."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device
from dither.device.outbox import LEASE_S
from dither.sending.upload_thread import BUSY, Sender, SenderLock
from tests.faults.apps import Taker
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.devices import make, record

HOLDS = """
import os, sys, time
from pathlib import Path
from dither.sending.upload_thread import SenderLock
from tests.support.clocks import Clock
from tests.support.devices import make
held = SenderLock(make(Clock(), Path(sys.argv[1]))[0])
assert held.take()
{then}
"""


def holder(directory: Path, then: str) -> "subprocess.Popen[str]":
    """Start a process that holds the lock, and wait until it says so."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(then=then), directory],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def waits_for(sender: SenderLock) -> bool:
    """Tell whether the lock can be had within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if sender.take():
            return True
        time.sleep(0.01)
    return False


def a_lock(directory: Path, clock: Clock | None = None, seed: int = 1) -> tuple[Device, SenderLock]:
    device, _ = make(clock or Clock(), directory, seed=seed)
    return device, SenderLock(device)


def test_two_telemetry_objects_of_one_process_keep_each_other_out(tmp_path: Path) -> None:
    _, one = a_lock(tmp_path, seed=1)
    _, other = a_lock(tmp_path, seed=2)
    assert one.take()
    assert not other.take()
    other.release()  # not its own
    assert not other.take()
    one.release()
    assert other.take()
    other.release()


def test_a_sender_that_finds_it_taken_says_so_and_sends_nothing(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    _, other = a_lock(tmp_path, seed=2)
    taker = Taker()
    sender = Sender(device, taker, Clock())
    assert other.take()
    assert sender.attempt() is None
    assert (sender.detail, taker.bodies) == (BUSY, [])
    other.release()
    assert sender.attempt()
    assert len(taker.bodies) == 1


def test_the_lock_of_a_killed_sender_ends_with_it(tmp_path: Path) -> None:
    _, ours = a_lock(tmp_path)
    process = holder(tmp_path, 'print("held", flush=True); time.sleep(60)')
    assert not ours.take()
    process.kill()
    process.communicate()
    assert ours.take()
    ours.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork, so no child inherits a lock there")
@pytest.mark.parametrize("forks", [1, 2])
def test_children_of_a_sender_do_not_hold_its_lock(tmp_path: Path, forks: int) -> None:
    """They live on when it is killed, daemonized by a double fork perhaps."""
    then = f"""
for _ in range({forks}):
    child = os.fork()
    if child:
        break
if child and os.getppid() == {os.getpid()}:
    print("held", flush=True)
elif child:
    os._exit(0)
else:
    os.close(1)
    sys.stdin.read()  # until the test lets go
    os._exit(0)
time.sleep(60)
"""
    _, ours = a_lock(tmp_path)
    process = holder(tmp_path, then)
    assert not ours.take()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    assert waits_for(ours)
    ours.release()
    process.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork, so no child inherits a lock there")
def test_a_child_that_exits_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    then = """
child = os.fork()
if child == 0:
    held.release()
    os._exit(0)
os.waitpid(child, 0)
print("held", flush=True)
time.sleep(60)
"""
    _, ours = a_lock(tmp_path)
    process = holder(tmp_path, then)
    assert not ours.take()
    process.kill()
    process.communicate()


def test_programs_that_the_app_starts_do_not_inherit_it(tmp_path: Path) -> None:
    then = """
import subprocess
other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], close_fds=False)
print("held", flush=True)
time.sleep(60)
"""
    _, ours = a_lock(tmp_path)
    process = holder(tmp_path, then)
    process.kill()
    process.wait(10)
    assert waits_for(ours)
    ours.release()
    process.communicate()


def test_the_lock_is_not_on_the_database(tmp_path: Path) -> None:
    """Closing any descriptor of a file takes away all locks that the process has on it, SQLite's too."""
    device, ours = a_lock(tmp_path)
    assert ours.take()
    assert {path.name for path in tmp_path.iterdir()} >= {FILE_NAME, f"{FILE_NAME}-sender"}
    assert (tmp_path / f"{FILE_NAME}-sender").stat().st_mode & 0o777 == 0o600
    ours.release()
    device.look()


@pytest.fixture
def _no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("dither.sending.upload_thread._lock", refuse)


@pytest.mark.usefixtures("_no_locks")
def test_where_there_are_no_locks_a_lease_stands_in(tmp_path: Path) -> None:
    clock = Clock()
    _, one = a_lock(tmp_path, clock, seed=1)
    _, other = a_lock(tmp_path, clock, seed=2)
    assert one.take()
    assert not other.take()
    other.release()  # not its own
    assert not other.take()
    one.release()
    assert other.take()
    clock.now += LEASE_S
    assert one.take()  # that of a process that is gone ends
    assert not other.take()


def test_what_is_no_answer_about_locks_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("dither.sending.upload_thread._lock", fail)
    _, ours = a_lock(tmp_path)
    with pytest.raises(OSError, match="input/output"):
        ours.take()
    monkeypatch.undo()
    assert ours.take()
    ours.release()


def test_a_device_in_memory_needs_no_lock() -> None:
    device, _ = make(Clock())
    assert SenderLock(device).take()
    assert SenderLock(device).take()
