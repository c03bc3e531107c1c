"""One attempt: when it charges, what it says, and what it does with each answer."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from dither.device import Device
from dither.sending.transport import Answer, Outcome
from dither.sending.upload_thread import BACKOFF_MAX_S, BACKOFF_S, Sender
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import begun, make, record

KEPT = Answer(Outcome.KEPT, "503 unavailable")
UNREACHED = Answer(Outcome.KEPT, "no answer (ConnectionError)", connected=False)
ACCEPTED = Answer(Outcome.ACCEPTED, "accepted")


class Scripted:
    """A transport that gives the answers in turn; `before` is called while the connection is made."""

    def __init__(self, *answers: Answer, before: Callable[[], object] = lambda: None) -> None:
        self.left: list[bytes] = []
        """The bodies whose first byte has left."""
        self._answers = list(answers)
        self._before = before

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        self._before()
        answer = self._answers.pop(0)
        if answer.connected:
            stands()
            self.left.append(body)
        return answer

    def idle(self) -> None:
        pass


def one_report(directory: Path | None = None) -> tuple[Device, Registry, Clock]:
    device, asked, clock = begun(directory)
    record(device, asked)
    return device, asked, clock


def test_an_attempt_charges_when_a_connection_stands_and_not_before() -> None:
    device, _, clock = one_report()
    transport = Scripted(UNREACHED, KEPT, ACCEPTED, before=lambda: spent.append(device.spent()["color"]))
    spent: list[int] = []
    sender = Sender(device, transport, clock)
    assert [sender.attempt() for _ in range(4)] == [Outcome.KEPT, Outcome.KEPT, Outcome.ACCEPTED, None]
    assert spent == [0, 0, 2_000_000]
    assert device.spent() == {"color": 2_000_000}
    assert sender.sent == 1
    assert len(transport.left) == 2
    assert len(set(transport.left)) == 1


@pytest.mark.parametrize("how", ["all", "one", "forget", "drop"])
def test_what_is_taken_back_while_the_connection_is_made_does_not_leave(how: str) -> None:
    device, _, clock = one_report()
    take_back: dict[str, Callable[[], object]] = {
        "all": device.refuse,
        "one": lambda: device.refuse_metric("color", refused=True),
        "forget": device.forget,
        "drop": device.drop,
    }
    transport = Scripted(ACCEPTED, before=take_back[how])
    sender = Sender(device, transport, clock)
    assert sender.attempt() is None
    assert (transport.left, sender.sent, sender.detail) == ([], 0, "")
    assert device.spent() == {"color": 0}
    assert device.counters() == {"forgotten" if how == "forget" else "refused": 1}
    assert sender.attempt() is None  # the lock was let go


def test_an_answer_to_what_was_taken_back_counts_nothing(tmp_path: Path) -> None:
    device, _, clock = one_report(tmp_path)
    other, _ = make(clock, tmp_path, seed=2)
    sender = Sender(device, TaskHandlers(other.refuse), clock)
    assert sender.attempt() is Outcome.ACCEPTED
    assert sender.sent == 0
    assert device.counters() == {"refused": 1}
    assert device.spent() == {"color": 2_000_000}


class TaskHandlers:
    """A transport that accepts, after something has happened beside it."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        self._meanwhile()
        return ACCEPTED

    def idle(self) -> None:
        pass


@pytest.mark.parametrize("answer", [KEPT, UNREACHED])
def test_the_wait_doubles_up_to_six_hours(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.sending.upload_thread.jitter", lambda most: most)
    device, _, clock = one_report()
    sender = Sender(device, Scripted(*[answer] * 12), clock)
    waits = []
    for _ in range(12):
        sender.attempt()
        look = device.look()
        assert look.when is not None
        assert look.held_until == (0 if answer is KEPT else look.when)
        waits.append(look.when - clock())
    doubled = [BACKOFF_S * 2.0**times for times in range(1, 13)]
    assert waits == [min(BACKOFF_MAX_S, wait_s) for wait_s in doubled]


def test_what_the_aggregator_asks_for_comes_before_the_wait_and_holds_flushes_back() -> None:
    device, _, clock = one_report()
    sender = Sender(device, Scripted(Answer(Outcome.KEPT, "429 slow-down", retry_after_s=3_600.0)), clock)
    sender.attempt()
    look = device.look()
    assert look.held_until == clock() + 3_600
    assert look.when is not None
    assert look.held_until <= look.when <= look.held_until + 2 * BACKOFF_S


@pytest.mark.parametrize(
    "answer",
    [
        KEPT,
        UNREACHED,
        ACCEPTED,
        Answer(Outcome.DROPPED, "422 refused"),
        Answer(Outcome.STOPPED, "403 key-wrong"),
        Answer(Outcome.TOO_LARGE, "413 too-large"),
    ],
    ids=lambda answer: answer.detail,
)
@pytest.mark.parametrize("metrics", [1, 2])
def test_every_outcome_is_kept_for_status_in_the_words_of_the_flush(answer: Answer, metrics: int) -> None:
    device, asked, clock = one_report()
    if metrics == 2:
        record(device, asked, "dark", True)
    sender = Sender(device, Scripted(answer), clock)
    assert sender.attempt() is answer.outcome
    assert device.sending().outcome == answer.detail
    assert sender.detail == ("" if answer is ACCEPTED else answer.detail)


def test_a_flush_that_did_not_wait_for_the_answer_makes_no_other_failure_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server hangs: each attempt fails the same way, and the app has given up waiting before each does."""
    device, _, clock = one_report()
    transport = Scripted(
        *[Answer(Outcome.KEPT, "no answer (ReadTimeout)")] * 6, before=lambda: sender.put_off_present()
    )
    sender = Sender(device, transport, clock)
    with caplog.at_level(logging.WARNING, "dither"):
        for _ in range(6):
            sender.attempt()
            clock.now += 1_800
    assert caplog.messages == ["telemetry could not send for an hour: no answer (ReadTimeout)"]
