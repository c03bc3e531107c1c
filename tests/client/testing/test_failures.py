"""The fake aggregator's failures, and what the SDK makes of them."""

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import Device
from dither.sending import connection
from dither.sending.connection import ANSWER_BYTES_MAX
from dither.sending.transport import HttpTransport, Outcome
from dither.sending.upload_thread import Sender
from dither.testing import FakeAggregator, TelemetryForTests, aggregator
from dither.testing.aggregator import HUGE_BYTES
from dither_shared.registry import Registry
from dither_shared.wire import PATH
from dither_shared.wire.reading import PROBLEMS
from tests.support.clocks import Clock
from tests.support.devices import begun, record
from tests.support.registries import registry
from tests.support.soaking import thinned
from tests.support.waiting import wait_until

pytest_plugins = ["dither.testing"]

KEPT, DROPPED, STOPPED, TOO_LARGE = Outcome.KEPT, Outcome.DROPPED, Outcome.STOPPED, Outcome.TOO_LARGE
OUTCOMES = {
    "hang": KEPT,
    "close": KEPT,
    "lose-receipt": KEPT,
    "truncate": KEPT,
    "redirect": KEPT,
    "captive-portal": KEPT,
    "huge": KEPT,
    "malformed": DROPPED,
    "key-missing": STOPPED,
    "key-wrong": STOPPED,
    "key-scope": STOPPED,
    "origin-not-allowed": STOPPED,
    "link-refused": STOPPED,
    "not-found": KEPT,
    "method-not-allowed": KEPT,
    "upload-conflict": DROPPED,
    "expired": DROPPED,
    "retired": DROPPED,
    "gone": DROPPED,
    "length-required": DROPPED,
    "too-large": TOO_LARGE,
    "unsupported-media-type": DROPPED,
    "host-not-allowed": KEPT,
    "refused": DROPPED,
    "not-done": DROPPED,
    "headers-too-large": DROPPED,
    "too-many": KEPT,
    "failed": KEPT,
    "bad-tally": KEPT,
    "key-waiting": KEPT,
    "being-computed": KEPT,
    "not-computed": KEPT,
    "read-failed": KEPT,
    "unavailable": KEPT,
    "backlog-full": KEPT,
    "disk-full": KEPT,
}
"""DESIGN.md, "The wire": what the SDK does after each answer."""


class Sending:
    """A device with one report, and what sends it to a fake, an attempt at a time."""

    def __init__(self, fake: FakeAggregator, device: Device, asked: Registry, clock: Clock) -> None:
        self.fake, self.device, self.asked, self.clock = fake, device, asked, clock
        self.transport = HttpTransport(fake.url, fake.key)
        self.sender = Sender(device, self.transport, clock)
        record(device, asked)


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    monkeypatch.setattr("dither.sending.connection.READ_TIMEOUT_S", 0.3)
    device, asked, clock = begun()
    with FakeAggregator(asked, clock=clock) as fake:
        sending = Sending(fake, device, asked, clock)
        yield sending
        sending.transport.idle()


def test_every_failure_has_its_place_in_the_table() -> None:
    assert set(OUTCOMES) == {*aggregator._FAILURES, *PROBLEMS}


def names(*outcomes: Outcome) -> list[str]:
    return [name for name, outcome in OUTCOMES.items() if outcome in outcomes]


COUNTED = {"lose-receipt", "truncate"}


# Each that is no answer of ours, and three that are: their words are the table's, above.
@pytest.mark.parametrize("failure", thinned(names(KEPT), *range(7), 7, 10, -1))
def test_what_says_nothing_definite_keeps_the_upload_until_it_is_counted_once(sending: Sending, failure: str) -> None:
    sending.fake.fail_next(failure)
    assert sending.sender.attempt() is KEPT
    assert sending.fake.reports == ({"color": 1} if failure in COUNTED else {})
    assert sending.device.waiting() == 1
    assert sending.sender.attempt() is Outcome.ACCEPTED
    assert sending.fake.reports == {"color": 1}
    assert sending.device.counters() == {"accepted": 1}
    assert len(sending.fake.uploads) == 2
    assert len({request.body for request in sending.fake.uploads}) == 1
    assert {request.path for request in sending.fake.uploads} == {PATH}  # the redirect was not followed


@pytest.mark.parametrize("failure", thinned(names(DROPPED), 0, 1, 3))
def test_a_definite_refusal_drops_the_upload_and_counts_it(sending: Sending, failure: str) -> None:
    sending.fake.fail_next(failure)
    assert sending.sender.attempt() is DROPPED
    assert sending.sender.attempt() is None
    assert sending.device.counters() == {"dropped": 1}
    assert sending.device.spent()["color"] == 2_000_000
    assert sending.fake.reports == {}


@pytest.mark.parametrize("failure", thinned(names(STOPPED), 0, 1))
def test_a_wrong_key_stops_until_the_next_start(failure: str) -> None:
    asked = registry()
    with FakeAggregator(asked) as fake:
        fake.fail_next(failure)
        telemetry = dither.start(asked, endpoint=fake.url, key=fake.key, data_dir=":memory:", consent=True)
        telemetry.color.record("red")
        said = f"{PROBLEMS[failure][0]} {failure}"
        assert telemetry.flush() == dither.FlushResult(0, 1, said)
        assert telemetry.flush() == dither.FlushResult(0, 1, said)
        assert len(fake.uploads) == 1
        telemetry.close()


def test_what_is_too_large_is_halved_under_new_ids_or_dropped(sending: Sending) -> None:
    record(sending.device, sending.asked, "dark", True)
    sending.fake.fail_next("too-large", times=2)
    assert [sending.sender.attempt() for _ in range(4)] == [TOO_LARGE, TOO_LARGE, Outcome.ACCEPTED, None]
    assert sending.device.counters() == {"accepted": 1, "dropped": 1}
    assert len({json.loads(request.body)["upload"] for request in sending.fake.uploads}) == 3
    assert sending.fake.reports == {"dark": 1}


def test_a_duplicate_is_told_that_it_is_one(sending: Sending) -> None:
    sending.fake.fail_next("lose-receipt")
    built = sending.device.next_upload()
    assert built is not None
    stood: list[str] = []
    assert sending.transport.post(built.id, built.body, lambda: stood.append("first")).outcome is KEPT
    assert sending.transport.post(built.id, built.body, lambda: stood.append("second")).duplicate
    assert stood == ["first", "second"]


@pytest.mark.parametrize(("retry_after", "planned_s"), [(7, 60), (61, 600), (None, 60)])
def test_retry_after_is_heeded(sending: Sending, retry_after: int | None, planned_s: float) -> None:
    sending.fake.fail_next("unavailable", retry_after=retry_after)
    sending.sender.attempt()
    planned = sending.device.look().when
    assert planned is not None
    assert planned_s <= planned - sending.clock.now <= planned_s + 120  # and jitter of at most a minute, doubled


def test_much_more_than_an_answer_is_not_read(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[connection._Answer] = []

    class Kept(connection._Answer):
        def __init__(self, file: io.RawIOBase) -> None:
            super().__init__(file)
            answers.append(self)

    monkeypatch.setattr("dither.sending.connection._Answer", Kept)
    sending.fake.fail_next("huge")
    assert sending.sender.attempt() is KEPT
    assert [answer._left for answer in answers] == [0]
    assert HUGE_BYTES > 100 * ANSWER_BYTES_MAX


def test_a_flush_ends_when_the_aggregator_asks_to_wait_and_so_do_later_ones(tmp_path: Path) -> None:
    asked = registry()
    with FakeAggregator(asked) as fake:
        fake.fail_next("unavailable", retry_after=3_600)
        for _ in range(3):
            telemetry = dither.start(asked, endpoint=fake.url, key=fake.key, data_dir=tmp_path, consent=True)
            telemetry.color.record("red")
            assert telemetry.flush(30) == dither.FlushResult(0, 1, "503 unavailable")
            assert telemetry.status().sending.outcome == "503 unavailable"
            telemetry.close()
        assert len(fake.uploads) == 1


def test_a_flush_does_not_wait_for_one_that_hangs_longer_than_it_is_told_to(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    monkeypatch.setattr(aggregator, "HANG_S", 30.0)
    monkeypatch.setattr(fake_aggregator, "_ended", told)
    fake_aggregator.fail_next("hang")
    telemetry.color.record("red")
    began = time.monotonic()
    assert telemetry.flush(0.1).waiting == 1
    assert time.monotonic() - began < 10
    told.set()
    assert telemetry.flush(30) == dither.FlushResult(1, 0, "")
    assert fake_aggregator.reports == {"color": 1}


def test_the_end_of_the_context_ends_what_hangs() -> None:
    with FakeAggregator(registry()) as fake:
        fake.fail_next("hang")
        connection = socket.create_connection(("127.0.0.1", int(fake.url.rpartition(":")[2])), timeout=3)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        wait_until(lambda: fake.uploads, 20)
    assert connection.recv(1) == b""  # within 3 seconds, not 5
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"failure": "unavailble"}, "failure must be one of hang, close, .*unavailable, got 'unavailble'"),
        ({"failure": "hang", "times": 0}, "times must be from 1 to 1000, got 0"),
        ({"failure": "close", "retry_after": 60}, "retry_after must be left out: nothing is replied with 'close'"),
    ],
    ids=str,
)
def test_a_failure_that_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FakeAggregator(registry()).fail_next(**arguments)


def test_a_wrong_key_is_refused_over_the_real_sdk(fake_aggregator: FakeAggregator) -> None:
    telemetry = dither.start(registry(), endpoint="https://telemetry.example.org", key="production", consent=True)
    telemetry.color.record("red")
    assert telemetry.flush() == dither.FlushResult(0, 1, "401 key-wrong")
    telemetry.close()
