import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device, DeviceUnusable
from dither_shared.rng import Rng
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, make, open_device, record, send
from tests.support.registries import registry

KILLED = """
import os, random, signal, sys
from pathlib import Path
from dither.device import Device
from dither_shared.rng import Rng
from tests.support.registries import registry
asked = registry()
device = Device(asked, Path(sys.argv[1]), Rng(random.Random(1).getrandbits))
device.agree()
assert device.record(asked.metrics["color"], "red") == ""
assert device.record(asked.metrics["dark"], True) == ""
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_recorded_survives_kill_9(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=ENVIRONMENT, check=False, timeout=60)
    assert done.returncode == -9
    asked = registry()
    device = Device(asked, tmp_path, Rng(random.Random(2).getrandbits))
    assert device.waiting() == 2
    device.close()


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    device, _ = make(Clock(), folder)
    device.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_no_answer_reaches_the_file(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, values=("marker-listed", "b", "c"))
    record(device, asked, answer="marker-listed")
    record(device, asked, "dark", "marker-free-text")
    device.next_upload()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert len(stored) > 4096
    assert b"marker" not in stored
    device.close()


def test_a_file_of_another_app_or_version_is_refused(tmp_path: Path) -> None:
    device, _ = make(Clock(), tmp_path)
    device.close()
    with pytest.raises(DeviceUnusable, match="belongs to the app 'example'"):
        make(Clock(), tmp_path, app="another")
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DeviceUnusable, match="version 99; this dither reads 4"):
        make(Clock(), tmp_path)


def test_a_damaged_file_and_a_folder_that_is_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to be read as one" * 100)
    with pytest.raises(DeviceUnusable, match="cannot be used"):
        make(Clock(), tmp_path)
    with pytest.raises(DeviceUnusable, match="cannot be used"):
        make(Clock(), tmp_path / FILE_NAME)


def test_two_devices_make_different_noise_and_one_seed_makes_the_same() -> None:
    def reports(seed: int) -> object:
        device, asked = make(Clock(), None, seed, values=tuple(f"v{number}" for number in range(40)))
        record(device, asked)
        body = send(device)
        return body and (body["upload"], body["groups"])

    assert reports(1) == reports(1)
    assert reports(1) != reports(2)


ENDED = """
import random, sys
from pathlib import Path
from dither.device import Device
from dither_shared.rng import Rng
from tests.support.registries import registry
asked = registry()
device = Device(asked, Path(sys.argv[1]), Rng(random.Random(1).getrandbits))
device.agree()
assert device.record(asked.metrics["color"], "red") == ""
"""


def test_a_program_that_ends_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Closing SQLite's last connection would write the log into the file, sync both and remove the log."""
    subprocess.run([sys.executable, "-c", ENDED, str(tmp_path)], env=ENVIRONMENT, check=True, timeout=60)
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size > 0
    device, _ = make(Clock(), tmp_path)
    assert device.waiting() == 1


def test_a_start_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    asked = registry(expires=EXPIRES)
    open_device(asked, tmp_path, Clock()).close()
    device = open_device(asked, tmp_path, Clock(), agree=False)
    device.agree_once()
    device.look().when
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size == 0
