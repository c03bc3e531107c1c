"""The person's choices, through the telemetry object."""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dither
from dither.device import FILE_NAME
from dither.sending.transport import DryRun
from dither.settings import Settings
from dither.status import CLOSED, NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.registries import registry

Start = Callable[..., Telemetry]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Telemetry] = []

    def begin(consent: bool | None = None, asked: Registry | None = None, silent: str = "") -> Telemetry:
        started.append(Telemetry(Settings(asked or registry(), DryRun(), tmp_path / "d", consent, silent)))
        return started[-1]

    yield begin
    for telemetry in started:
        telemetry.close()


def test_a_choice_on_nobodys_device_is_not_kept() -> None:
    """As in CI: there is no directory, and nothing may be kept."""
    with closing(Telemetry(Settings(registry(), DryRun(), None, None, "CI is set"))) as telemetry:
        assert not telemetry.set_consent(False)
        assert not telemetry.set_consent(False, metric="color")
        assert not telemetry.set_consent(True)


def test_whoever_has_refused_is_not_asked_again_by_this_registry(start: Start) -> None:
    telemetry = start(True)
    telemetry.close()
    telemetry = start(True, asked=registry(epsilon="3"))
    assert telemetry.status().ask
    assert telemetry.set_consent(False)
    assert not telemetry.status().ask
    telemetry.close()


def test_until_the_person_is_asked_nothing_is_made_or_kept(start: Start, tmp_path: Path) -> None:
    telemetry = start()
    telemetry.color.record("red")
    silent = dither.MetricStatus("not-agreed")
    assert telemetry.status() == dither.Status(NOT_ASKED, metrics={"color": silent, "dark": silent})
    assert telemetry.status().ask
    assert telemetry.preview() == dither.Preview(b"", {})
    telemetry.forget()
    telemetry.close()
    assert list(tmp_path.iterdir()) == []


def test_a_choice_goes_before_what_start_is_given_and_is_remembered(start: Start) -> None:
    telemetry = start()
    assert telemetry.set_consent(True)
    telemetry.color.record("red")
    assert telemetry.status().waiting == 1
    telemetry.close()
    telemetry = start(False)
    assert telemetry.status().silent == ""
    assert telemetry.status().waiting == 1
    assert telemetry.set_consent(False)
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


def test_an_argument_is_no_choice(start: Start) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    telemetry.close()
    telemetry = start()
    assert telemetry.status().silent == NOT_ASKED
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().waiting == 1
    telemetry.close()
    telemetry = start(False)
    assert telemetry.status().silent == REFUSED
    telemetry.close()
    telemetry = start()
    assert telemetry.status().silent == NOT_ASKED
    telemetry.close()


def test_what_the_app_says_drops_what_waits_as_a_refusal_does(start: Start) -> None:
    """In its slot, and built; what a connection has charged stays charged."""
    telemetry = start(True)
    telemetry.color.record("red")
    with telemetry._any_device() as device:
        upload = device.next_upload()
        assert upload is not None
        assert device.charge(upload.id)
    telemetry.dark.record(True)
    telemetry.close()
    telemetry = start(False)
    telemetry.color.record("red")
    assert telemetry.flush(1) == dither.FlushResult(0, 0, REFUSED)
    telemetry.close()
    telemetry = start(True)
    status = telemetry.status()
    assert (status.silent, status.waiting, status.counts) == ("", 0, {"refused": 2})
    assert status.spent == {"color": 2.0, "dark": 0.0}
    telemetry.close()


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
    telemetry.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a thread to do what it is about to do."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Let another process be in the middle of a transaction of the device's file."""
    with (
        closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as other,
        pytest.MonkeyPatch.context() as m,
    ):
        for name in ("file.DURABLE_WAIT_S", "file.WAIT_S", "connected.WAIT_S"):
            m.setattr(f"dither.device.{name}", 0.05)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_refusing_ends_it_at_once_and_agreeing_begins_it_again(start: Start) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    telemetry.set_consent(False)
    status = telemetry.status()
    assert (status.silent, status.waiting, status.counts) == (REFUSED, 0, {"refused": 1})
    telemetry.color.record("red")
    assert telemetry.flush(1) == dither.FlushResult(0, 0, REFUSED)
    telemetry.set_consent(True)
    telemetry.color.record("red")
    telemetry.dark.record(True)
    status = telemetry.status()
    assert (status.silent, status.waiting) == ("", 1)
    assert status.counts == {"refused": 1, "answered": 1}  # the first answer of the day was dropped, and is gone
    telemetry.close()


def test_a_device_in_memory_can_be_agreed_to_later_and_refreshes_nothing() -> None:
    telemetry = Telemetry(Settings(registry(), DryRun(), None, None))
    telemetry.color.record("red")
    assert telemetry.status().silent == NOT_ASKED
    telemetry.set_consent(True)
    telemetry.color.record("red")
    assert telemetry.flush(10).sent == 1
    telemetry.set_consent(False)
    telemetry.set_consent(True)
    telemetry.color.record("red")
    assert telemetry.status().counts == {"accepted": 1, "answered": 1}
    assert telemetry.status().spent == {"color": 2.0, "dark": 0.0}
    telemetry.close()


def test_a_refusal_in_another_process_is_said(start: Start) -> None:
    one, other = start(True), start(True)
    other.set_consent(False)
    assert one.status().silent == REFUSED
    other.close()
    one.close()


def test_one_metric_can_be_refused(start: Start) -> None:
    telemetry = start(True)
    telemetry.set_consent(False, metric="color")
    telemetry.color.record("red")
    telemetry.dark.record(True)
    assert telemetry.status().waiting == 1
    assert telemetry.status().refused == ("color",)
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().refused == ("color",)
    telemetry.set_consent(True, metric="color")
    telemetry.color.record("red")
    assert telemetry.status().waiting == 2
    with pytest.raises(AttributeError, match="no metric 'colour'; it has color, dark"):
        telemetry.set_consent(False, metric="colour")
    telemetry.close()


def test_while_the_environment_forbids_it_a_refusal_is_kept_and_an_agreement_is_not(start: Start) -> None:
    telemetry = start(silent="DO_NOT_TRACK is set")
    assert not telemetry.set_consent(True)
    assert telemetry.status().silent == "DO_NOT_TRACK is set"
    telemetry.close()
    telemetry = start()
    assert telemetry.status().silent == NOT_ASKED
    telemetry.close()
    telemetry = start(silent="DO_NOT_TRACK is set")
    assert telemetry.set_consent(False)
    assert telemetry.status().silent == "DO_NOT_TRACK is set"
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


NO_CHOICES: list[Any] = ["no", "false", "yes", "", 1, 0, 1.0, [], object()]


@pytest.mark.parametrize("consent", NO_CHOICES)
def test_start_takes_no_other_choice_than_true_and_false(consent: Any, tmp_path: Path) -> None:
    with pytest.raises(dither.ConfigurationError, match="consent must be True, False or None"):
        dither.start(registry(), endpoint="https://example.org", key="k", data_dir=tmp_path / "d", consent=consent)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("choice", [*NO_CHOICES, None])
@pytest.mark.parametrize("metric", [None, "color"])
def test_what_is_no_choice_changes_nothing_and_is_said(
    choice: Any, metric: str | None, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    for consent in (None, True):
        telemetry = start(consent)
        if consent:
            telemetry.color.record("red")
        before = telemetry.status()
        with caplog.at_level(logging.WARNING, "dither"):
            assert not telemetry.set_consent(choice, metric)
        assert telemetry.status() == before
        assert caplog.messages.pop() == "set_consent takes True or False, and got neither: nothing has changed"
        caplog.clear()
        telemetry.close()
    telemetry = start()
    assert telemetry.status().silent == NOT_ASKED
    telemetry.close()


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
    telemetry.close()


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
    assert telemetry.flush(1) == dither.FlushResult(0, 0, "")
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
    telemetry.close()


def test_a_refusal_that_can_be_kept_nowhere_holds_and_is_written_when_telemetry_is_closed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    with locked(tmp_path / "d"), monkeypatch.context() as patched:
        patched.setattr("dither.device.refusals.Refusals.note", lambda *_: False)
        assert not telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        assert telemetry.status().counts["failed"] == 1
        telemetry.dark.record(True)
        assert telemetry.flush(0.1) == dither.FlushResult(0, 0, REFUSED)
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    assert telemetry.status().waiting == 0
    telemetry.close()


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
        patched.setattr("dither.device.connected.connect", full)
        telemetry = start(True)
        assert "disk is full" in telemetry.status().silent
        assert telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


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


def test_what_a_new_registry_asks_is_said_until_the_person_agrees_again(start: Start) -> None:
    start(True).close()
    telemetry = start(True, registry(reports=4))
    assert telemetry.status().asks == {
        "color": ["its epsilon for life rises from 6 to 8", "its number of reports rises from 3 to 4"],
        "dark": ["its epsilon for life rises from 6 to 8", "its number of reports rises from 3 to 4"],
    }
    telemetry.color.record("red")
    assert telemetry.status().counts == {"not-agreed": 1}
    assert telemetry.status().metrics["color"] == dither.MetricStatus("not-agreed")
    assert telemetry.status().ask
    telemetry.set_consent(True)
    assert not telemetry.status().ask
    telemetry.color.record("red")
    assert telemetry.status().asks == {}
    assert telemetry.status().waiting == 1
    telemetry.close()


def test_after_close_a_choice_is_kept_and_begins_nothing(start: Start) -> None:
    telemetry = start(True)
    telemetry.close()
    assert telemetry.set_consent(True)
    assert telemetry.status().silent == CLOSED
    telemetry.color.record("red")
    telemetry = start()
    status = telemetry.status()
    assert (status.silent, status.waiting, status.spent, status.counts) == ("", 0, {"color": 0.0, "dark": 0.0}, {})
    telemetry.close()


def test_while_another_process_reads_forgetting_is_tried_again_by_itself(start: Start, tmp_path: Path) -> None:
    telemetry = start(True)
    telemetry.color.record("red")
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        telemetry.forget()
        assert telemetry.status().erasing
        assert telemetry.status().waiting == 0
        reader.execute("COMMIT")
    wait_until(lambda: not telemetry.status().erasing)
    telemetry.close()


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
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        telemetry.forget()
        assert telemetry.status().erasing
        assert telemetry.status().silent == silent
        if restarts:
            telemetry.close()
        reader.execute("COMMIT")
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
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        telemetry.forget()
        telemetry.close()
        reader.execute("COMMIT")
    telemetry = start(True)
    wait_until(lambda: not telemetry.status().erasing)
    telemetry.close()


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
    telemetry.close()


def test_a_choice_that_cannot_be_kept_is_counted_and_raised_only_in_tests(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
    telemetry = Telemetry(Settings(registry(), DryRun(), tmp_path, None))
    assert not telemetry.set_consent(True)
    assert telemetry.status().counts == {"failed": 1}
    telemetry.close()
    with pytest.raises(dither.DitherError, match="cannot be used"):
        Telemetry(Settings(registry(), DryRun(), tmp_path, True, strict=True))


# Strictness.


def test_strict_telemetry_refuses_what_is_not_listed_and_never_quotes_it() -> None:
    strict = Telemetry(Settings(registry(), DryRun(), None, True, strict=True))
    others: list[Any] = ["marker", 7, None, ["red"], b"red"]
    for answer in others:
        with pytest.raises(dither.InvalidAnswer) as caught:
            strict.color.record(answer)
        assert str(caught.value) == "what came is no answer that color asks for: it would be sent as another one"
    strict.color.record("other")
    for answer in NO_FLAGS:
        with pytest.raises(dither.InvalidAnswer):
            strict.dark.record(answer)
    strict.dark.record(np.True_)
    assert strict.status().waiting == 2
    strict.close()
    strict = Telemetry(Settings(registry(kind="choices", color="ticks_max = 2"), DryRun(), None, True, strict=True))
    strict.color.record([])  # nothing is ticked: an answer
    assert strict.status().waiting == 1
    strict.close()


NO_FLAGS: list[Any] = [1, 0, 1.0, "yes", "True", b"1", None, float("nan"), [], [True], np.int64(1), ...]


@pytest.mark.parametrize("answer", NO_FLAGS, ids=repr)
def test_what_is_neither_true_nor_false_is_sent_as_false_counted_and_said_once(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """So a report leaves in any case, and one of the same law for every such answer."""
    telemetry = Telemetry(Settings(registry(), DryRun(), None, True))
    assert telemetry.dark.metric.read(answer) == telemetry.dark.metric.read(False)
    with caplog.at_level(logging.WARNING, "dither"):
        telemetry.dark.record(answer)
        telemetry.color.record("red")
    assert caplog.messages == ["dark takes True and False: anything else is sent as False"]
    assert telemetry.status().counts == {"unlisted": 1}
    assert telemetry.flush(5).sent == 2
    telemetry.close()


def test_of_a_flag_that_is_no_flag_one_warning_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    asked = registry(reports=100, epsilon="0.1", expires=EXPIRES)
    telemetry = Telemetry(Settings(asked, DryRun(), None, True, clock=clock))
    with caplog.at_level(logging.WARNING, "dither"):
        for _ in range(5):
            telemetry.dark.record(None)
            telemetry.flush(5)
            clock.travel(1)
    assert len(caplog.messages) == 1
    assert telemetry.status().counts == {"accepted": 5, "unlisted": 5}
    telemetry.close()


@pytest.mark.parametrize("answer", [True, False, np.True_, np.False_], ids=repr)
def test_a_flag_takes_true_and_false_and_numpys(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Settings(registry(), DryRun(), None, True))
    assert telemetry.dark.metric.read(answer) == (int(answer),)
    with caplog.at_level(logging.WARNING, "dither"):
        telemetry.dark.record(answer)
    assert caplog.messages == []
    assert telemetry.status().counts == {}
    assert telemetry.status().waiting == 1
    telemetry.close()


def test_otherwise_it_is_other_and_counted() -> None:
    telemetry = Telemetry(Settings(registry(reports=1), DryRun(), None, True))
    telemetry.color.record("marker")
    telemetry.color.record(7)  # silent, so nothing of it is sent
    assert telemetry.status().counts == {"unlisted": 1, "answered": 1}
    telemetry.close()
