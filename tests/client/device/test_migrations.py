"""Steps from one version of a device's file to the next: once, whole, by the app alone; a newer file is left alone."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dither.cli import main
from dither.device import FILE_NAME, DeviceUnusable
from dither.device.migrations import STEPS
from dither.device.schema import SCHEMA_VERSION
from dither.sending.transport import DryRun
from dither.session import Settings
from dither.status import REFUSED
from dither.telemetry import Telemetry
from tests.pinned.devices import ASKED, answer_everything, opened
from tests.pinned.files import content, dump, pinned_device
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.mounts import read_only
from tests.support.soaking import thinned

OLDER = sorted(STEPS)
DROPS = {4}
"""The versions whose step drops what waits."""


# A newer file.


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return a directory whose file the next version wrote, with a part of it still in the log, as after a kill."""
    directory, _, _ = pinned_device(SCHEMA_VERSION, tmp_path / "used")
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE later (more TEXT)")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        db.commit()
        shutil.copytree(directory, tmp_path / "newer")
    (tmp_path / "newer" / f"{FILE_NAME}-shm").unlink()
    for path in (tmp_path / "newer").iterdir():
        path.chmod(0o600)
    return tmp_path / "newer"


NEWER = f"the device file has version {SCHEMA_VERSION + 1}; this dither reads {SCHEMA_VERSION}: use the dither that"


def test_a_newer_file_is_left_alone_silent_and_said(
    newer: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(newer)
    assert len(before[f"{FILE_NAME}-wal"]) > 0
    with caplog.at_level(logging.INFO, "dither"):
        telemetry = Telemetry(Settings(ASKED, DryRun(), newer, True, clock=Clock()))
        telemetry.paint.record("red")
        assert telemetry.status().silent.startswith(NEWER)
        assert telemetry.status().metrics["paint"].silent == "off"
        assert telemetry.flush(5).detail.startswith(NEWER)
        telemetry.close()
    assert [record.getMessage().partition(NEWER)[0] for record in caplog.records] == ["telemetry is off: "]
    for action in ("inspect", "budget", "forget"):
        assert main(["device", action, str(newer)]) == 2
        assert NEWER in capsys.readouterr().err
    assert content(newer) == before


def test_a_refusal_waits_beside_a_newer_file_for_the_dither_that_reads_it(newer: Path) -> None:
    before = content(newer)
    telemetry = Telemetry(Settings(ASKED, DryRun(), newer, None, clock=Clock()))
    assert telemetry.set_consent(False)
    telemetry.close()
    assert content(newer).items() >= before.items()
    with closing(sqlite3.connect(newer / FILE_NAME)) as db:  # as if this dither were the newer one
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.commit()
    read = Telemetry(Settings(ASKED, DryRun(), newer, None, clock=Clock()))
    assert (read.status().silent, read.status().waiting) == (REFUSED, 0)
    read.close()


def test_a_device_that_a_newer_dither_took_over_while_it_was_open_writes_no_more(tmp_path: Path) -> None:
    directory, clock, _ = pinned_device(SCHEMA_VERSION, tmp_path / "device")
    device = opened(directory, clock)
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        db.commit()
    before = dump(directory)
    for action in (device.next_upload, device.look, lambda: answer_everything(device, ASKED, "red"), device.forget):
        with pytest.raises(DeviceUnusable, match=f"has version {SCHEMA_VERSION + 1}"):
            action()
    assert dump(directory) == before


# Steps.


def test_a_version_without_a_step_is_left_alone(tmp_path: Path) -> None:
    directory, clock, _ = pinned_device(SCHEMA_VERSION, tmp_path / "device")
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version = {min(STEPS) - 1}")
        db.commit()
    before = content(directory)
    with pytest.raises(DeviceUnusable, match="no step leads from it to this version"):
        opened(directory, clock)
    assert content(directory) == before


@pytest.mark.parametrize("version", OLDER)
def test_looking_at_an_older_file_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    directory, _, _ = pinned_device(version, tmp_path / "device")
    before = content(directory)
    for action in ("inspect", "budget", "forget"):
        assert main(["device", action, str(directory)]) == 2
        assert "the app brings it to this version" in capsys.readouterr().err
    assert content(directory) == before


@pytest.mark.parametrize("version", OLDER)
def test_a_step_that_is_cut_off_changes_nothing(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, clock, _ = pinned_device(version, tmp_path / "device")
    before, step = dump(directory), STEPS[version]

    def cut_off(db: sqlite3.Connection) -> None:
        step(db)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(STEPS, version, cut_off)
        with pytest.raises(KeyboardInterrupt):
            opened(directory, clock)
    assert dump(directory) == before
    opened(directory, clock)


HOST = """
import os, sys
from pathlib import Path
from dither.device.migrations import STEPS
from tests.pinned.devices import device_registry
from tests.support.clocks import Clock
from tests.support.devices import open_device
if sys.argv[3:]:
    step = STEPS[int(sys.argv[3])]
    STEPS[int(sys.argv[3])] = lambda db: (step(db), os.kill(os.getpid(), 9))
device = open_device(device_registry(), Path(sys.argv[1]), Clock(float(sys.argv[2])), agree=False)
device.begin()
print(device.spent(), device.counters())
"""


def host(*arguments: object) -> "subprocess.Popen[str]":
    """Start an app in a process of its own."""
    command = [sys.executable, "-c", HOST, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


@pytest.mark.parametrize("version", thinned(OLDER, 0))
def test_a_kill_in_the_middle_of_a_step_changes_nothing(tmp_path: Path, version: int) -> None:
    directory, clock, _ = pinned_device(version, tmp_path / "device")
    before = dump(directory)
    killed = host(directory, clock.now, version)
    assert (killed.communicate(timeout=60)[0], killed.returncode) == ("", -9)
    assert dump(directory) == before


@pytest.mark.parametrize("version", thinned(OLDER, 0))
def test_processes_forks_and_threads_that_open_a_file_at_once_take_each_step_once(tmp_path: Path, version: int) -> None:
    directory, clock, held = pinned_device(version, tmp_path / "device")
    expected, _, _ = pinned_device(version, tmp_path / "alone")
    alone = opened(expected, clock)
    others = [host(directory, clock.now) for _ in range(3)]
    ready = threading.Barrier(6)
    failures: list[BaseException] = []

    def open_at_once() -> None:
        try:
            ready.wait()
            opened(directory, clock)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_at_once) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for process in others:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"{alone.spent()} {alone.counters()}\n"), err
    assert opened(directory, clock).counters().get("dropped", 0) == (held["waiting"] if version in DROPS else 0)


@pytest.mark.parametrize("version", thinned(OLDER, 0))
def test_a_fork_before_the_file_is_used_brings_it_up_in_either_process(tmp_path: Path, version: int) -> None:
    directory, clock, _ = pinned_device(version, tmp_path / "device")
    code = """
import os, sys
from pathlib import Path
from dither.device import Device
from dither_shared.rng import SYSTEM
from tests.pinned.devices import device_registry
from tests.support.clocks import Clock
device = Device(device_registry(), Path(sys.argv[1]), SYSTEM, Clock(float(sys.argv[2])))
child = os.fork()
device.open()
device.begin()
told = device.counters().get("dropped", 0)
if not child:
    os._exit(told)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == told
print(told)
"""
    command = [sys.executable, "-c", code, str(directory), str(clock.now)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "8\n" if version in DROPS else "0\n"), done.stderr


@pytest.mark.parametrize("version", thinned(OLDER, 0))
def test_what_nobody_can_write_to_is_left_alone_and_said(tmp_path: Path, version: int) -> None:
    directory, clock, _ = pinned_device(version, tmp_path / "device")
    before = content(directory)
    command = read_only(directory, tmp_path / "mounted", sys.executable, "-c", HOST)
    done = subprocess.run(
        [*command, str(tmp_path / "mounted"), str(clock.now)],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert "DeviceFault: the device file in" in done.stderr
    assert "Read-only file system" in done.stderr
    assert content(directory) == before
