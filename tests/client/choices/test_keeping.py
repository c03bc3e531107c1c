"""A choice holds, and is kept if that is possible at all, though the device's file or telemetry cannot be used."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import FILE_NAME
from dither.sending.transport import DryRun
from dither.session import Settings
from dither.status import REFUSED
from dither.telemetry import Telemetry
from tests.client.choices.conftest import Start
from tests.support.registries import registry
from tests.support.waiting import wait_until


def test_what_waits_is_dropped_once_the_file_can_be_used(start: Start, tmp_path: Path) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    telemetry.close()
    with locked(tmp_path / "d"):
        telemetry = start(False)
        assert telemetry.status().silent
        telemetry.dark.record(True)
    wait_until(lambda: telemetry.status().silent == REFUSED)
    telemetry.close()
    telemetry = start(True)
    assert (telemetry.status().waiting, telemetry.status().counts) == (0, {"refused": 1})


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Let another process be in the middle of a transaction of the device's file."""
    with (
        closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as other,
        pytest.MonkeyPatch.context() as m,
    ):
        for name in ("file.DURABLE_WAIT_S", "DURABLE_WAIT_S", "file.WAIT_S"):
            m.setattr(f"dither.device.{name}", 0.05)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_refusal_holds_at_once_and_at_the_next_start_though_the_file_cannot_be_written(
    start: Start, tmp_path: Path
) -> None:
    """It is kept beside the file, and written when that can be."""
    telemetry = start(True)
    telemetry.color.record("red")
    with locked(tmp_path / "d"):
        assert telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        telemetry.dark.record(True)
        assert {metric.silent for metric in telemetry.status().metrics.values()} == {"refused"}
        assert telemetry.flush(0.1) == dither.FlushResult(0, 0, REFUSED)
        telemetry.close()
        assert (tmp_path / "d" / f"{FILE_NAME}-refused").exists()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED


@pytest.mark.parametrize("restarts", [False, True])
def test_what_waited_when_the_person_refused_is_not_sent_when_they_agree_later(
    restarts: bool, start: Start, tmp_path: Path
) -> None:
    """Also where the file could not be written then."""
    telemetry = start(True)
    telemetry.color.record("red")
    with locked(tmp_path / "d"):
        assert telemetry.set_consent(False)
    if restarts:
        telemetry.close()
        telemetry = start(True)
    assert telemetry.set_consent(True)
    status = telemetry.status()
    assert (status.silent, status.waiting, status.counts) == ("", 0, {"refused": 1})
    result = telemetry.flush(1)
    assert (result.sent, result.waiting) == (0, 0)
    assert result.detail.startswith("nothing to send: color: answered until ")
    telemetry.close()
    assert not (tmp_path / "d" / f"{FILE_NAME}-refused").exists()


def test_an_agreement_that_cannot_be_kept_is_said_and_begins_nothing(start: Start, tmp_path: Path) -> None:
    telemetry = start(True)
    assert telemetry.set_consent(False)
    with locked(tmp_path / "d"):
        assert not telemetry.set_consent(True)
        assert not telemetry.set_consent(True, metric="color")
    assert telemetry.status().silent == REFUSED
    assert telemetry.status().counts["failed"] == 2
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED


def test_a_refusal_that_can_be_kept_nowhere_holds_and_is_written_when_telemetry_is_closed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    with locked(tmp_path / "d"), monkeypatch.context() as patched:
        patched.setattr("dither.device.agreement.Refusals.note", lambda *_: False)
        assert not telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        assert telemetry.status().counts["failed"] == 1
        telemetry.dark.record(True)
        assert telemetry.flush(0.1) == dither.FlushResult(0, 0, REFUSED)
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    assert telemetry.status().waiting == 0


@pytest.mark.parametrize("before", [True, False])
def test_a_refusal_on_a_disk_so_full_that_no_file_can_be_made_or_opened_holds_at_the_next_start(
    before: bool, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    if before:
        start(True).close()
    else:
        (tmp_path / "d").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("dither.device.file.connect", full)
        telemetry = start(True)
        assert "disk is full" in telemetry.status().silent
        assert telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED


@pytest.mark.parametrize("damaged", [range(5_000), range(100, 4_000)], ids=["whole", "pages"])
def test_a_refusal_beside_a_damaged_file_holds_when_that_is_deleted(
    damaged: range, start: Start, tmp_path: Path
) -> None:
    """People delete a damaged file when support says so, and the app's default may be to agree."""
    telemetry = start(True)
    telemetry.color.record("red")
    telemetry.close()
    file = tmp_path / "d" / FILE_NAME
    wait_until(lambda: not file.with_name(f"{FILE_NAME}-wal").exists())  # which would mend the file
    content = bytearray(file.read_bytes())
    content[damaged.start : damaged.stop] = b"x" * len(damaged)
    file.write_bytes(content)
    telemetry = start(True)
    assert telemetry.status().silent.endswith(("is damaged", "is not a database", "is malformed"))
    assert telemetry.set_consent(False)
    assert telemetry.set_consent(False, metric="dark")
    assert telemetry.status().silent == REFUSED
    assert not telemetry.set_consent(True)  # which cannot be kept, and takes nothing back
    telemetry.close()
    assert file.read_bytes() == bytes(content)
    file.unlink()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.color.record("red")
    assert telemetry.set_consent(True)
    assert (telemetry.status().waiting, telemetry.status().refused) == (0, ("dark",))


def test_a_refusal_leaves_no_mark_beside_the_file_of_another_app(start: Start, tmp_path: Path) -> None:
    """That app would read it as its own person's."""
    with closing(Telemetry(Settings(registry(app="another"), DryRun(), tmp_path / "d", True))):
        pass
    telemetry = start(True)
    assert not telemetry.set_consent(False)
    assert telemetry.status().silent == REFUSED
    telemetry.close()
    assert not (tmp_path / "d" / f"{FILE_NAME}-refused").exists()


@pytest.mark.parametrize("how", ["endpoint", "key", "directory"])
def test_a_choice_is_kept_though_telemetry_cannot_work(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good: dict[str, Any] = {"endpoint": "https://example.org", "key": "k"}
    bad = {**good, how: ""} if how in good else good
    telemetry = dither.start(registry(), **bad, data_dir="here", consent=True)
    monkeypatch.chdir("/")  # as a daemon does: the device stays where it was
    telemetry.set_consent(False)
    telemetry.close()
    telemetry = dither.start(registry(), **good, data_dir=tmp_path / "here", consent=True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


@pytest.mark.parametrize("data_dir", [b"here", 5, "a\0b"])
def test_a_directory_that_is_none_is_said(data_dir: object) -> None:
    telemetry = dither.start(registry(), endpoint="https://example.org", key="k", data_dir=data_dir, consent=True)  # type: ignore[arg-type]
    assert telemetry.status().silent
    telemetry.color.record("red")
    telemetry.close()
    with pytest.raises(AttributeError, match="no metric"):
        telemetry.set_consent(True, metric=[])  # type: ignore[arg-type]
    paths: list[Any] = [123, None, {}, "a\0b"]
    for path in paths:
        with pytest.raises(dither.RegistryError, match="cannot be read"):
            dither.start(path, endpoint="https://example.org", key="k", consent=True)


def test_a_choice_that_cannot_be_kept_is_counted_and_raised_only_in_tests(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
    telemetry = Telemetry(Settings(registry(), DryRun(), tmp_path, None))
    assert not telemetry.set_consent(True)
    assert telemetry.status().counts == {"failed": 1}
    telemetry.close()
    with pytest.raises(dither.DitherError, match="cannot be used"):
        Telemetry(Settings(registry(), DryRun(), tmp_path, True, strict=True))


@pytest.fixture
def anothers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of another user's, which may not be entered: not even by root, who runs some tests."""
    directory = tmp_path / "anothers"
    directory.mkdir()

    def denying(does: Callable[..., Any]) -> Callable[..., Any]:
        def denied(path: Any, *arguments: object, **named: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).parent == directory:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return does(path, *arguments, **named)

        return denied

    for name in ("stat", "open"):
        monkeypatch.setattr(os, name, denying(getattr(os, name)))
    return directory


@pytest.mark.parametrize("consent", [True, None])
def test_a_file_of_another_user_is_told_in_words(
    consent: bool | None, anothers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Telemetry(Settings(registry(), DryRun(), anothers, consent))) as telemetry:
        telemetry.color.record("red")
        assert f"the device file in {anothers} cannot be used: " in telemetry.status().silent
        assert not telemetry.set_consent(True)
        assert f"not kept on this device: the device file in {anothers} cannot be used: " in caplog.text
    assert "DeviceFault" not in caplog.text


def test_a_file_of_another_user_raises_nothing_where_the_environment_forbids_it(anothers: Path) -> None:
    with closing(Telemetry(Settings(registry(), DryRun(), anothers, True, "DO_NOT_TRACK is set"))) as telemetry:
        assert telemetry.status().silent == "DO_NOT_TRACK is set"


def test_a_file_that_is_locked_is_told_in_words(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = start(True)
    with locked(tmp_path / "d"):
        assert not telemetry.set_consent(True)
    # SQLite gives up a moment before the call does, unless the machine is busy.
    reasons = ("the device file cannot be used now: database is locked", "SQLite still waits for the device file")
    assert any(f"not kept on this device: {reason}\n" in caplog.text for reason in reasons)
