"""Forgetting goes on by itself until the file is erased, whatever else is silent."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dither.device import FILE_NAME
from tests.client.choices.conftest import Start
from tests.support.devices import MEMO
from tests.support.registries import registry
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the thread try again soon: it may look while the reader is still there, and then waits for seconds."""
    monkeypatch.setattr("dither.device.ERASE_AGAIN_S", 0.1)
    monkeypatch.setattr("dither.sending.upload_thread.TIDY_AGAIN_S", 0.05)


@contextmanager
def somebody_reading(directory: Path) -> Iterator[None]:
    """Read from the device's file, and go on for as long as the block runs."""
    with closing(sqlite3.connect(directory / "d" / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        yield


def test_while_another_process_reads_forgetting_is_tried_again_by_itself(start: Start, tmp_path: Path) -> None:
    """Until then the status says that it is still to be done; then no file has a byte of the secret any more."""
    telemetry = start(True, registry(**MEMO))
    telemetry.color.record("red")
    assert telemetry.flush(5).sent == 1
    assert telemetry._session.device
    with telemetry._session.device._file.peek():
        secret = telemetry._session.device._file.get("secret")

    def has_secret() -> bool:
        return any(secret in path.read_bytes() for path in (tmp_path / "d").iterdir())

    with somebody_reading(tmp_path):
        telemetry.forget()
        assert telemetry.status().erasing
        assert telemetry.status().waiting == 0
        assert has_secret()
    wait_until(lambda: not telemetry.status().erasing)
    assert not has_secret()


@pytest.mark.parametrize("forbids", ["", "DO_NOT_TRACK is set"])
@pytest.mark.parametrize("restarts", [False, True])
def test_where_nothing_else_may_be_done_forgetting_is_tried_again_too(
    forbids: str, restarts: bool, start: Start, tmp_path: Path
) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    if not forbids:
        telemetry.set_consent(False)
    telemetry.close()
    telemetry = start(True, silent=forbids)
    silent = telemetry.status().silent
    assert silent
    with somebody_reading(tmp_path):
        telemetry.forget()
        assert telemetry.status().erasing
        assert telemetry.status().silent == silent
        if restarts:
            telemetry.close()
    if restarts:
        telemetry = start(True, silent=forbids)
    wait_until(lambda: not telemetry.status().erasing)
    telemetry.color.record("red")
    assert telemetry.status().waiting == 0
    telemetry.close()
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME)) as db:
        assert db.execute("SELECT value FROM state WHERE key = 'erasing'").fetchone() in (None, (None,))


def test_the_next_start_goes_on_erasing(start: Start, tmp_path: Path) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    with somebody_reading(tmp_path):
        telemetry.forget()
        telemetry.close()
    telemetry = start(True)
    wait_until(lambda: not telemetry.status().erasing)


def test_forgetting_is_possible_while_silent(start: Start) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    telemetry.close()
    telemetry = start()
    telemetry.forget()
    telemetry.close()
    telemetry = start(True)
    telemetry.color.record("red")
    assert telemetry.status().counts == {"forgotten": 2}
