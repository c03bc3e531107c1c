"""The door of a device's file: who owns it, who may write it, and whether a link leads away from it."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest

import dither
from dither.device import FILE_NAME, REFUSED_NAME, DeviceUnusable
from dither.device.agreement import EVERYTHING, Refusals
from dither.device.schema import connect
from dither.sending.upload_thread import SenderLock
from dither.telemetry import Telemetry
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.devices import make
from tests.support.owners import SOMEBODY, Owners
from tests.support.registries import registry

COMPANIONS = ("", "-wal", "-shm", "-journal", "-sender")


def started(directory: Path) -> Telemetry:
    return dither.start(registry(), endpoint="http://127.0.0.1:9", key="k", data_dir=directory, consent=True)


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def with_two_names(path: Path) -> None:
    path.with_name("elsewhere").hardlink_to(path)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("companion", COMPANIONS)
@pytest.mark.parametrize(
    ("spoil", "said"), [(as_link, "is a link"), (with_two_names, "has 2 names, as hard links"), (as_pipe, "is no file")]
)
def test_a_file_that_is_not_the_device_s_alone_turns_telemetry_off_and_stays_as_it_is(
    tmp_path: Path, companion: str, spoil: Callable[[Path], None], said: str
) -> None:
    connect(tmp_path).close()
    path = tmp_path / f"{FILE_NAME}{companion}"
    path.touch()
    spoil(path)
    before = {each.name: each.lstat() for each in tmp_path.iterdir()}
    with closing(started(tmp_path)) as telemetry:
        silent = telemetry.status().silent
        assert silent.startswith(f"the device file in {tmp_path} cannot be used: {path} {said}")
        telemetry.dark.record(True)
        assert telemetry.flush(5).detail == silent
    after = {each.name: each.lstat() for each in tmp_path.iterdir()}
    assert {name: found.st_mtime_ns for name, found in after.items()} == {
        name: found.st_mtime_ns for name, found in before.items()
    }


@pytest.mark.parametrize("companion", COMPANIONS)
def test_another_user_s_file_turns_telemetry_off(
    tmp_path: Path, companion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{FILE_NAME}{companion}").touch()
    Owners(monkeypatch).give(tmp_path / f"{FILE_NAME}{companion}", SOMEBODY)
    with closing(started(tmp_path)) as telemetry:
        assert "belongs to user 4711: give it to user 1000" in telemetry.status().silent
    assert [path.name for path in tmp_path.iterdir()] == [f"{FILE_NAME}{companion}"]


def test_a_directory_in_which_all_may_write_turns_telemetry_off_unless_it_is_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode, owner in ((0o1777, 0), (0o777, 0), (0o777, SOMEBODY), (0o700, SOMEBODY)):
        shared.chmod(mode)
        Owners(monkeypatch).give(shared, owner)
        with pytest.raises(DeviceUnusable, match="name a directory"):
            connect(shared)
        assert list(shared.iterdir()) == []
    Owners(monkeypatch).give(shared, 0)
    shared.chmod(0o1777)
    connect(shared / "own").close()  # as it says
    assert S_IMODE((shared / "own").stat().st_mode) == 0o700


def test_a_mode_that_lets_others_in_is_mended_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device, asked = make(Clock(), tmp_path)
    assert device.record(asked.metrics["dark"], True) == ""
    device.close()
    (tmp_path / FILE_NAME).chmod(0o666)
    tmp_path.chmod(0o777)
    for _ in range(2):
        with closing(started(tmp_path)) as telemetry:
            assert telemetry.status().silent == ""
            assert telemetry.status().waiting == 1
    assert [S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / FILE_NAME)] == [0o755, 0o600]
    assert [record.getMessage() for record in caplog.records if record.name == "dither"] == [
        f"{tmp_path} was open to others (mode 777): it has mode 755 now",
        f"{tmp_path / FILE_NAME} was open to others (mode 666): it has mode 600 now",
    ]


def test_a_directory_that_the_user_put_elsewhere_by_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with closing(started(tmp_path / "link")) as telemetry:
        assert telemetry.status().silent == ""
    assert (tmp_path / "disk" / FILE_NAME).is_file()


def test_neither_a_mark_nor_the_lock_is_written_through_a_link(tmp_path: Path) -> None:
    device, _ = make(Clock(), tmp_path)
    elsewhere = tmp_path / "elsewhere"
    for name in (REFUSED_NAME, f"{FILE_NAME}-sender"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(elsewhere)
    assert not Refusals(tmp_path).note(EVERYTHING)
    assert Refusals(tmp_path).pending == {EVERYTHING}  # its name says so
    with pytest.raises(OSError, match="symbolic links"):
        SenderLock(device).take()
    assert not elsewhere.exists()
    device.close()


CLOSES_LAST = """
import sys
from pathlib import Path
from dither.device.schema import connect
db = connect(Path(sys.argv[1]))
db.execute("INSERT INTO counter VALUES ('other', 1)")
db.close()
"""


def test_a_second_opening_leaves_the_first_one_its_locks(tmp_path: Path) -> None:
    """Else another process takes itself for the last one, and the log away in which the first goes on writing."""
    with closing(connect(tmp_path)) as first, closing(connect(tmp_path)):
        subprocess.run([sys.executable, "-c", CLOSES_LAST, str(tmp_path)], env=ENVIRONMENT, check=True, timeout=60)
        first.execute("INSERT INTO counter VALUES ('first', 1)")
        with closing(connect(tmp_path)) as later:
            assert dict(later.execute("SELECT name, count FROM counter")) == {"first": 1, "other": 1}
        assert (tmp_path / f"{FILE_NAME}-wal").exists()
