"""With hidden metrics the thread looks at each midnight, whatever becomes of sending; no answer makes it look."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device
from dither.sending import upload_thread
from dither.sending.transport import Answer, Outcome
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.faults.apps import Taker, start
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.registries import registry, registry_text

HIDDEN = registry(reports=40, epsilon="0.5", device_epsilon="40", presence="hidden", expires=EXPIRES)
WITHIN_S = 20.0


class Refusing(Taker):
    """An aggregator that does not know the key."""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        return Answer(Outcome.STOPPED, "the aggregator does not know the key")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the days of all looks; a thread compares the clock without a pause between."""
    days: list[int] = []
    look = Device.look

    def look_and_note(self: Device, *arguments: Callable[[], float]) -> object:
        found = look(self, *arguments)
        days.append(self._file.day)
        return found

    monkeypatch.setattr(Device, "look", look_and_note)
    monkeypatch.setattr(upload_thread, "CLOCK_EVERY_S", 0.005)
    return days


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_thread_looks_at_midnight_though_an_upload_is_planned_for_later(tmp_path: Path, looks: list[int]) -> None:
    clock = Clock()
    with start(HIDDEN, tmp_path, Taker(), clock):
        for _ in range(3):
            clock.travel(1)
            wait_for(lambda: looks[-1] == clock.now // 86_400)


def test_a_midnight_in_the_middle_of_a_look_is_not_slept_over(
    tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, look, travelled = Clock(), Device.look, threading.Event()

    def look_over_midnight(self: Device, *arguments: Callable[[], float]) -> object:
        found = look(self, *arguments)
        if threading.current_thread() is not threading.main_thread() and not travelled.is_set():
            clock.travel(1)
            travelled.set()
        return found

    monkeypatch.setattr(Device, "look", look_over_midnight)
    with start(HIDDEN, tmp_path, Taker(), clock):
        wait_for(lambda: travelled.is_set() and looks[-1] == clock.now // 86_400)


def test_a_thread_looks_when_the_clock_was_set_back_though_all_had_expired(tmp_path: Path, looks: list[int]) -> None:
    """As on a machine that begins in 2040 until it has heard the time."""
    clock = Clock()
    clock.travel(5_000)
    with start(HIDDEN, tmp_path, Taker(), clock) as telemetry:
        assert telemetry.flush(WITHIN_S).waiting == 0
        assert telemetry.status().metrics["color"].silent == "expired"
        clock.travel(-5_000)
        wait_for(lambda: looks[-1] == clock.now // 86_400)
        telemetry.color.record("red")
        assert telemetry.status().metrics["color"].silent == "answered"


def test_a_thread_looks_on_when_the_key_was_refused(tmp_path: Path, looks: list[int]) -> None:
    """And sends nothing: else the first upload under another key would tell of answers."""
    clock, refusing = Clock(), Refusing()
    with start(HIDDEN, tmp_path, refusing, clock) as telemetry:
        clock.travel(1)
        assert "key" in telemetry.flush(WITHIN_S).detail
        clock.travel(1)
        wait_for(lambda: looks[-1] == clock.now // 86_400)
        assert telemetry.flush(WITHIN_S).sent == 0
        assert telemetry.status().metrics["color"].silent == "wrong-key"


def test_a_thread_that_cannot_be_started_is_tried_again_by_a_public_answer_and_no_hidden_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    text = registry_text(expires=EXPIRES, presence="hidden").replace('presence = "hidden"', 'presence = "public"', 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        telemetry = start(Registry.parse(text), tmp_path, Taker(), Clock())
        assert telemetry.status().silent == ""
        assert "no thread" in telemetry.flush(1).detail
    telemetry.dark.record(True)
    assert not runs(telemetry)
    telemetry.color.record("red")
    assert runs(telemetry)
    telemetry.close()


class Held:
    """The looks of the thread, of which the first is over when it is told to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on, self.looks = threading.Event(), threading.Event(), 0
        look = Device.look

        def held(device: Device, *arguments: Callable[[], float]) -> object:
            found = look(device, *arguments)
            if threading.current_thread().name == "dither-uploader":
                self.looks += 1
                self.begun.set()
                assert self.goes_on.wait(WITHIN_S)
            return found

        monkeypatch.setattr(Device, "look", held)

    def answered_meanwhile(self, telemetry: Telemetry, record: Callable[[], None]) -> int:
        """Record in the middle of that look, and return how many there were when the thread waits."""
        assert self.begun.wait(WITHIN_S)
        record()
        assert not self.goes_on.is_set()
        self.goes_on.set()
        uploader_ = telemetry._session.uploader
        assert uploader_
        wait_for(lambda: uploader_._changed._waiters)  # type: ignore[attr-defined]
        return self.looks


def test_an_answer_in_the_middle_of_a_look_asks_for_no_other_where_a_moment_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with start(registry(expires=EXPIRES), tmp_path, Taker(), Clock()) as telemetry:
        telemetry.color.record("red")
        assert held.answered_meanwhile(telemetry, lambda: telemetry.dark.record(True)) == 1


def test_an_answer_in_the_middle_of_a_look_that_found_nothing_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = registry_text(expires=EXPIRES, presence="hidden").replace('presence = "hidden"', 'presence = "public"', 1)
    held = Held(monkeypatch)
    with start(Registry.parse(text), tmp_path, Taker(), Clock()) as telemetry:
        assert held.answered_meanwhile(telemetry, lambda: telemetry.color.record("red")) == 2


def runs(telemetry: Telemetry) -> bool:
    return telemetry._session.uploader is not None and telemetry._session.uploader._thread is not None


@pytest.mark.parametrize("silent", ["http://example.org is no https address", "DO_NOT_TRACK is set"])
def test_a_start_that_is_off_hides_who_has_answered(tmp_path: Path, silent: str) -> None:
    """No thread looks where telemetry is off, so the start closes what is open: in the file, and in its log."""
    clock, rows = Clock(), []
    for answers in (False, True):
        directory = tmp_path / str(answers)
        with start(HIDDEN, directory, Taker(), clock) as telemetry:
            if answers:
                telemetry.dark.record(True)
        Telemetry(Settings(HIDDEN, Taker(), directory, consent=True, silent=silent, clock=clock)).close()
        with closing(sqlite3.connect(directory / FILE_NAME)) as db:
            rows.append(db.execute("SELECT metric, leaves, replaceable FROM slot").fetchall())
    assert rows[0] == rows[1]
    assert [row[2] for row in rows[0]] == [0, 0]
