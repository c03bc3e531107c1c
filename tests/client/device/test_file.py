import gc
import random
import sqlite3
import subprocess
import sys
import weakref
from contextlib import closing
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device, DeviceUnusable
from dither.device.schema import blank, empty
from dither_shared.rng import Rng
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, begun, connect, make, open_device, record, send
from tests.support.registries import registry
from tests.support.soaking import scaled


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "directory"
    device, _ = make(Clock(), directory)
    device.close()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600


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
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DeviceUnusable, match="version 99; this dither reads 8"):
        make(Clock(), tmp_path)


@pytest.mark.parametrize("version", [0, 4, 5])
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path, version: int, journal: str) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("CREATE TABLE theirs (x)")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(DeviceUnusable, match="another program's: name another data_dir"):
        make(Clock(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_damaged_file_and_a_directory_that_is_a_file_are_refused(tmp_path: Path) -> None:
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
    device = open_device(asked, tmp_path, Clock())
    device.begin()
    device.close()
    device = open_device(asked, tmp_path, Clock(), agree=False)
    device.agree_once()
    device.begin()
    device.look()
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size == 0


def test_the_file_is_opened_when_it_is_first_used(tmp_path: Path) -> None:
    device = Device(registry(), tmp_path / "directory", Rng(random.Random(1).getrandbits))
    assert list(tmp_path.iterdir()) == []
    device.open()
    assert (tmp_path / "directory" / FILE_NAME).is_file()
    device.close()


def test_pages_are_small(tmp_path: Path) -> None:
    """A commit writes the pages that it changes, whole."""
    for directory in (tmp_path, None):
        device, _ = make(Clock(), directory)
        with device._file.peek():
            assert device._file.execute("PRAGMA page_size").fetchone() == (1_024,)


def test_no_call_of_the_apps_writes_the_log_into_the_file(tmp_path: Path) -> None:
    """That waits for the disk: the sending thread does it, and who closes the file."""
    device, asked, clock = begun(tmp_path, reports=1_000, epsilon="0.01")
    assert device.tidy()
    before = (tmp_path / FILE_NAME).read_bytes()
    for _ in range(scaled(300, 600)):  # the log grows beyond the thousand pages at which SQLite would do it
        record(device, asked)
        record(device, asked, "dark", True)
        device.look()
        device.waiting()
        device.next_upload()
        device.refuse_metric("dark", refused=True)
        device.refuse_metric("dark", refused=False)
        clock.travel(0.1)
    assert device.log_bytes() > 1_000 * 1_024
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert device.tidy()
    assert device.log_bytes() == 0


def test_what_a_connection_charged_is_in_the_file_when_it_is_charged(tmp_path: Path) -> None:
    """So it outlasts the loss of the log, which power loss and tidy people cause."""
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    upload = connect(device)
    assert upload is not None
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / FILE_NAME).write_bytes((tmp_path / FILE_NAME).read_bytes())
    copy, _ = make(Clock(), tmp_path / "copy", seed=2)
    assert copy.spent() == {"color": 2_000_000}
    assert copy.next_upload() == upload


def test_an_emptied_file_in_memory_is_as_a_blank_one() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(blank())
        new = list(db.iterdump())
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        for table in tables:
            columns = db.execute(f"PRAGMA table_info({table})").fetchall()
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('7' for _ in columns)})")
        assert len(list(db.iterdump())) == len(new) + len(tables)
        empty(db)
        assert list(db.iterdump()) == new


def test_a_device_that_nobody_closes_goes_when_nothing_refers_to_it(tmp_path: Path) -> None:
    """With its connection and descriptors: no cycle waits for a collection of garbage."""
    gc.disable()
    try:
        device = Device(registry(), tmp_path, Rng(random.Random(1).getrandbits), Clock())
        device.open()
        seen = weakref.ref(device)
        del device
        assert seen() is None
    finally:
        gc.enable()
