"""A choice reaches every process, and every telemetry object, that runs with the same device file."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import dither
from dither.device import FILE_NAME, Device
from dither.sending.transport import DryRun
from dither.sending.upload_thread import Uploader
from dither.session import Session, Settings
from dither.status import NOT_ASKED, REFUSED, Mode
from dither.telemetry import Telemetry
from tests.client.choices.conftest import Start
from tests.client.choices.test_keeping import locked
from tests.support.registries import registry
from tests.support.waiting import wait_until


@pytest.fixture
def answers_always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.telemetry.CATCH_UP_EVERY_S", 0.0)


def metrics_of(status: dither.Status) -> set[str]:
    return {metric.silent for metric in status.metrics.values()}


def test_an_agreement_reaches_whoever_was_not_asked(start: Start) -> None:
    one, other = start(), start()
    assert one.status().ask
    assert other.set_consent(True)
    status = one.status()
    assert (status.ask, status.silent, metrics_of(status)) == (False, "", {""})
    one.color.record("red")
    assert one.status().waiting == other.status().waiting == 1


@pytest.mark.usefixtures("answers_always_look")
def test_an_answer_and_a_flush_find_it_too_and_none_from_before_is_kept(start: Start) -> None:
    one, two, other = start(), start(False), start()
    one.color.record("red")
    two.color.record("red")
    other.set_consent(True)
    assert other.status().waiting == 0
    one.color.record("red")
    assert other.status().waiting == 1
    assert two.flush(10).sent == 1
    assert other.status().counts == {"accepted": 1}


def test_answers_look_once_in_a_while(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("dither.session.time.monotonic", lambda: now[0])
    one, other = start(), start()
    one.color.record("red")
    other.set_consent(True)
    now[0] += 0.9
    one.color.record("red")
    assert other.status().waiting == 0
    now[0] += 0.2
    one.color.record("red")
    assert other.status().waiting == 1


def test_a_refusal_reaches_whoever_was_not_asked(start: Start) -> None:
    one, other = start(), start()
    assert one.status().ask
    assert other.set_consent(False)
    status = one.status()
    assert (status.ask, status.silent, metrics_of(status)) == (False, REFUSED, {"refused"})


@pytest.mark.usefixtures("answers_always_look")
@pytest.mark.parametrize("said", [True, False])
def test_a_later_agreement_reaches_whoever_has_refused(said: bool, start: Start) -> None:
    """By `set_consent`, or by the argument that the app gives."""
    one, other = start(said), start()
    if said:
        one.set_consent(False)
    for _ in range(2):
        assert other.set_consent(True)
        status = one.status()
        assert (status.silent, metrics_of(status)) == ("", {""})
        assert one.set_consent(False)
        one.color.record("red")
        assert (one.status().silent, one.flush(1).sent) == (REFUSED, 0)
        assert other.status().silent == REFUSED
    other.set_consent(True)
    one.color.record("red")
    assert one.status().waiting == 1


@pytest.mark.usefixtures("answers_always_look")
def test_what_the_environment_forbids_stays_forbidden(start: Start) -> None:
    one, other = start(silent="DO_NOT_TRACK is set"), start()
    other.set_consent(True)
    one.color.record("red")
    status = one.status()
    assert (status.silent, metrics_of(status)) == ("DO_NOT_TRACK is set", {"off"})
    assert other.status().waiting == 0


@pytest.mark.usefixtures("answers_always_look")
@pytest.mark.parametrize("marked", [True, False])
def test_an_agreement_from_before_undoes_no_refusal_that_is_not_in_the_file(
    marked: bool, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file could not be written, and still says that the person agreed."""
    one, other = start(), start()
    other.set_consent(True)
    assert one.status().silent == ""
    with locked(tmp_path / "d"), monkeypatch.context() as patched:
        if not marked:
            patched.setattr("dither.device.agreement.Refusals.note", lambda *_: False)
        assert one.set_consent(False) == marked
    one.color.record("red")
    assert (one.status().silent, one.flush(0.1).sent) == (REFUSED, 0)
    assert other.status().silent == (REFUSED if marked else "")
    other.set_consent(True)  # after it, as the mark tells
    assert one.status().silent == ("" if marked else REFUSED)


@pytest.mark.usefixtures("answers_always_look")
def test_a_refusal_in_the_middle_of_a_look_holds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another thread or a signal handler, though it can be kept nowhere."""
    one, other = start(), start()
    other.set_consent(True)
    speak = Session.speak

    def refuse_meanwhile(session: Session) -> None:
        if session is one._session:
            with monkeypatch.context() as patched:
                patched.setattr("dither.device.Device.refuse", lambda _: 1 / 0)
                assert not one.set_consent(False)
        speak(session)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "speak", refuse_meanwhile)
        one.color.record("red")
    one.color.record("red")
    assert one.status().silent == REFUSED
    assert other.status().waiting == 0


@pytest.mark.usefixtures("answers_always_look")
def test_a_hidden_answer_begins_nothing(start: Start) -> None:
    """Else whether there is one would decide whether this process says something in every further period."""
    asked = registry(presence="hidden")
    one, other = start(None, asked), start(None, asked)
    other.set_consent(True)
    other.close()
    one.color.record("red")
    one.dark.record(True)
    assert one._session.device is None
    assert one._session.standing.mode is Mode.NOT_ASKED
    assert one.status().silent == ""


@pytest.mark.usefixtures("answers_always_look")
def test_a_file_that_cannot_be_used_is_tried_again_and_nothing_is_made_before(start: Start, tmp_path: Path) -> None:
    one = start()
    one.color.record("red")
    assert one.status().ask
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / FILE_NAME).write_bytes(b"x" * 5_000)
    one.color.record("red")
    assert one.status().ask
    (tmp_path / "d" / FILE_NAME).unlink()
    other = start()
    other.set_consent(True)
    assert one.status().silent == ""


def test_another_apps_file_says_nothing(start: Start, tmp_path: Path) -> None:
    one = start()
    with closing(Telemetry(Settings(registry(app="another"), DryRun(), tmp_path / "d", None))) as other:
        other.set_consent(True)
        assert one.status().ask
        assert one.status().silent == NOT_ASKED


def test_many_threads_begin_it_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = start(), start()
    made: list[Session] = []
    make = Session.make_uploader

    def noted(session: Session, device: Device) -> Uploader:
        made.append(session)
        return make(session, device)

    monkeypatch.setattr(Session, "make_uploader", noted)
    other.set_consent(True)
    threads = [threading.Thread(target=one.status) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: one.status().silent == "")
    assert made.count(one._session) == 1


def test_a_choice_is_read_of_a_file_that_another_process_writes(start: Start, tmp_path: Path) -> None:
    """A look waits for no writer."""
    one, other = start(), start()
    other.set_consent(True)
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert not one.status().ask
        writer.execute("ROLLBACK")
