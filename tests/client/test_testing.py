"""`dither.testing` in an app's own tests, in this process, and in a fresh project, in a pytest of its own."""

import gzip
import inspect
import json
import random
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

import dither
from dither.device import Device
from dither.sending import connection
from dither.sending.connection import ANSWER_BYTES_MAX
from dither.sending.sender import Sender
from dither.sending.transport import HttpTransport, Outcome
from dither.starting import start
from dither.status import NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from dither.testing import FakeAggregator, Recorded, TelemetryForTests, aggregator, plugin
from dither.testing.aggregator import GRACE_DAYS, HUGE_BYTES
from dither_shared.registry import Registry, utc_today
from dither_shared.wire import PATH
from dither_shared.wire.problems import PROBLEMS
from dither_shared.wire.writing import encode_upload, new_upload_id
from tests.support import aggregators
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, make, record
from tests.support.keys import write_key
from tests.support.registries import registry, registry_text

pytest_plugins = ["pytester", "dither.testing"]

START: dict[str, Any] = {"endpoint": "https://telemetry.example.org", "key": "k"}
LIVES_DAYS = 180


@pytest.fixture
def dither_registry(request: pytest.FixtureRequest) -> Registry:
    """Return the registry of this module's tests, with what `with_registry` changes."""
    changes = {"expires": utc_today() + timedelta(days=LIVES_DAYS), **getattr(request, "param", {})}
    presence = changes.pop("presence", "public")
    return Registry.parse(registry_text(**changes).replace('"public"', f'"{presence}"'))


def with_registry(*changes: dict[str, object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("dither_registry", changes, ids=str, indirect=True)


def uploaders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dither-uploader"]


# The telemetry of a test.


def test_what_the_app_recorded_is_shown_in_order(telemetry: TelemetryForTests) -> None:
    assert telemetry.recorded() == []
    telemetry.color.record("red")
    telemetry.dark.record(True)
    telemetry.color.record("blue")
    assert telemetry.recorded() == [
        Recorded("color", "red"),
        Recorded("dark", True),
        Recorded("color", "blue", "answered"),
    ]


@with_registry({"kind": "choices", "color": "ticks_max = 2"})
def test_a_list_is_shown_as_it_was_when_it_was_recorded(telemetry: TelemetryForTests) -> None:
    answer = ["red"]
    telemetry.color.record(answer)
    answer.append("blue")
    assert telemetry.recorded() == [Recorded("color", ["red"])]


def test_an_answer_that_is_not_listed_raises_and_is_not_recorded(telemetry: TelemetryForTests) -> None:
    with pytest.raises(dither.InvalidAnswer):
        telemetry.color.record("pink")
    assert telemetry.recorded() == []


@pytest.mark.usefixtures("no_network")
def test_a_flush_without_a_fake_sends_nothing_and_says_so_at_once(telemetry: TelemetryForTests) -> None:
    assert telemetry.flush() == dither.FlushResult(0, 0, "")
    telemetry.color.record("red")
    for _ in range(2):
        result = telemetry.flush(timeout=3_600)
        assert (result.sent, result.waiting) == (0, 1)
        assert "the network is refused in tests: in one that takes fake_aggregator" in result.detail


@pytest.mark.usefixtures("no_network")
def test_nothing_leaves_by_itself_and_no_thread_waits(telemetry: TelemetryForTests) -> None:
    others = uploaders()  # of earlier tests, which have not ended yet
    for _ in range(3):
        telemetry.color.record("red")
        telemetry.travel(days=1)
    assert [each for each in uploaders() if each not in others] == []


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    attempts: list[object] = []

    def refuse(_: socket.socket, address: object) -> None:
        attempts.append(address)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert attempts == []


def test_a_day_later_the_next_period_begins(telemetry: TelemetryForTests) -> None:
    for days in (0, 0.25, 0.75):
        telemetry.travel(days)
        telemetry.color.record("red")
    assert [one.silence for one in telemetry.recorded()] == ["", "answered", ""]


@with_registry({"period": "7d"})
def test_a_periods_days_later_the_next_one_begins_whatever_day_it_is(telemetry: TelemetryForTests) -> None:
    telemetry.color.record("red")
    telemetry.travel(days=7)
    telemetry.color.record("red")
    assert telemetry.recorded() == [Recorded("color", "red")] * 2


@with_registry({"schedule": "spread", "reports": 2}, {"schedule": "early", "reports": 2})
def test_what_is_spread_over_the_year_answers_from_the_first_day_until_it_is_spent(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator
) -> None:
    for _ in range(3):
        telemetry.color.record("red")
        telemetry.flush()
        telemetry.travel(days=1)
    assert [one.silence for one in telemetry.recorded()] == ["", "", "spent"]
    assert fake_aggregator.reports == {"color": 2}


@with_registry({"presence": "hidden"})
def test_where_presence_is_hidden_an_answer_leaves_when_its_period_has_closed(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator
) -> None:
    telemetry.color.record("red")
    assert telemetry.flush() == dither.FlushResult(0, 2, "")  # "none" waits, of the other metric
    telemetry.travel(days=1)
    assert telemetry.flush() == dither.FlushResult(2, 2, "")
    telemetry.travel(days=1)
    assert telemetry.flush().sent == 2
    assert fake_aggregator.reports == {"color": 2, "dark": 2}
    assert telemetry.recorded() == [Recorded("color", "red")]


def test_a_test_can_travel_past_expiry(telemetry: TelemetryForTests, fake_aggregator: FakeAggregator) -> None:
    telemetry.color.record("red")
    telemetry.travel(days=LIVES_DAYS)
    telemetry.color.record("red")
    assert [one.silence for one in telemetry.recorded()] == ["", "expired"]
    telemetry.travel(days=GRACE_DAYS)  # the aggregator's clock goes along
    assert telemetry.flush() == dither.FlushResult(0, 0, "410 expired")
    assert telemetry.status().counts == {"dropped": 1, "expired": 1}
    assert fake_aggregator.reports == {}


def test_an_upload_that_was_not_answered_is_given_up_after_six_days(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator
) -> None:
    fake_aggregator.fail_next("unavailable", times=1_000)
    telemetry.color.record("red")
    telemetry.flush(0.05)
    telemetry.travel(days=6.1)
    telemetry.flush(5)
    assert telemetry.status().counts == {"given-up": 1}


def test_the_app_is_given_the_tests_telemetry_however_it_imports_start(telemetry: TelemetryForTests) -> None:
    assert dither.start(registry(), consent=True, **START) is telemetry
    assert start(registry(), consent=True, **START) is telemetry


def test_start_still_checks_what_it_is_given(telemetry: TelemetryForTests, tmp_path: Path) -> None:
    with pytest.raises(dither.RegistryError, match="cannot be read"):
        dither.start(tmp_path / "none.toml", consent=True, **START)
    with pytest.raises(TypeError, match="endpoint"):
        dither.start(registry(), key="k")  # type: ignore[call-arg]  # that is the mistake


def test_an_app_that_closes_and_starts_again_finds_its_device_again(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator
) -> None:
    for _ in range(2):
        started = dither.start(registry(), consent=True, **START)
        started.color.record("red")
        started.close()
        started.dark.record(True)
    assert telemetry.recorded() == [
        Recorded("color", "red"),
        Recorded("dark", True, "closed"),
        Recorded("color", "red", "answered"),
        Recorded("dark", True, "closed"),
    ]
    assert dither.start(registry(), consent=True, **START).flush().sent == 1
    telemetry.set_consent(False)
    assert telemetry.status().silent == REFUSED  # and no longer "closed"


def test_the_environment_does_not_agree_in_the_persons_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITHER_DRY_RUN", "1")
    telemetry = TelemetryForTests(registry(), consent=None)
    with plugin.standing_in(telemetry):
        assert dither.start(registry(), **START).status().silent == NOT_ASKED
    telemetry._end_test()


def test_the_person_has_agreed_unless_the_app_says_that_they_have_not(telemetry: TelemetryForTests) -> None:
    dither.start(registry(), **START).color.record("red")
    dither.start(registry(), consent=False, **START).dark.record(True)
    assert telemetry.recorded() == [Recorded("color", "red"), Recorded("dark", True, REFUSED)]


@pytest.mark.parametrize(("dither_consent", "why"), [(None, NOT_ASKED), (False, REFUSED)])
def test_a_person_who_has_not_agreed_is_silent_until_they_do(telemetry: TelemetryForTests, why: str) -> None:
    telemetry.color.record("red")
    started = dither.start(registry(), **START)
    assert (started.status().silent, started.status().waiting) == (why, 0)
    started.set_consent(True)
    started.color.record("red")
    dither.start(registry(), consent=False, **START).dark.record(True)  # what the person chose goes before
    assert telemetry.recorded() == [Recorded("color", "red", why), Recorded("color", "red"), Recorded("dark", True)]


def test_toggling_consent_and_forgetting_refresh_nothing(telemetry: TelemetryForTests) -> None:
    telemetry.color.record("red")
    telemetry.set_consent(False)
    assert telemetry.status().silent == REFUSED
    telemetry.set_consent(True)
    telemetry.color.record("red")
    telemetry.forget()
    telemetry.dark.record(True)
    telemetry.travel(days=30)
    telemetry.dark.record(True)
    assert [one.silence for one in telemetry.recorded()] == ["", "answered", "forgotten", ""]


def test_the_persons_choice_for_one_metric_is_kept(telemetry: TelemetryForTests) -> None:
    telemetry.set_consent(False, "color")
    telemetry.color.record("red")
    telemetry.dark.record(True)
    assert telemetry.recorded() == [Recorded("color", "red", "refused"), Recorded("dark", True)]


def test_what_the_app_has_kept_is_the_tests_own_meanwhile_and_itself_again_after_it() -> None:
    kept = dither.start(registry(schedule="spread"), data_dir=":memory:", consent=True, **START)
    handle = kept.dark
    before = kept.status()
    assert (before.silent, before.waiting, before.counts, any(before.spent.values())) == ("", 0, {}, False)
    for answer in (True, False):  # the second finds what is kept of the first, too
        telemetry = TelemetryForTests(registry())
        with plugin.standing_in(telemetry):
            handle.record(answer)
            kept.set_consent(False)
            kept.set_consent(True)
            kept.dark.record(answer)
        assert telemetry.recorded() == [Recorded("dark", answer), Recorded("dark", answer, "answered")]
        assert type(kept) is Telemetry
        assert kept.status() == before
        telemetry._end_test()
    kept.dark.record(True)
    assert sum(kept.status().counts.values()) + kept.status().waiting == 1  # unscheduled, or recorded
    assert dither.start(registry(), consent=False, **START) is not telemetry
    kept.close()


# The fake aggregator, beside the real one.


EXPECTED = registry(expires=EXPIRES)
DARK = EXPECTED.metrics["dark"].plan


class Both:
    """The real aggregator and the fake one, asked the same."""

    def __init__(self, real: str, fake: FakeAggregator, clock: Clock) -> None:
        self.urls = real, fake.url
        self.fake = fake
        self.clock = clock
        self.session = requests.Session()
        self.session.trust_env = False

    def answer(self, body: bytes, method: str = "POST", path: str = PATH, **headers: Any) -> dict[str, Any]:
        """Return the fake's answer, which must be the real one's but for its words."""
        given: dict[str, Any] = {"Authorization": f"Bearer {self.fake.key}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        real, fake = [
            self.session.request(method, url + path, data=body, headers=given, timeout=30) for url in self.urls
        ]
        documents = [{**answer.json(), "detail": ""} for answer in (real, fake)]
        assert documents[1] == documents[0]
        assert fake.status_code == real.status_code
        for header in ("Content-Type", "WWW-Authenticate", "Retry-After"):
            assert fake.headers.get(header) == real.headers.get(header)
        return {**documents[1], "status": fake.status_code}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    clock = Clock()
    with (
        aggregators.aggregator(EXPECTED, tmp_path_factory.mktemp("store"), clock) as (url, service),
        FakeAggregator(EXPECTED, key=write_key(service.store), clock=clock) as fake,
    ):
        asked = Both(url, fake, clock)
        yield asked
        asked.session.close()


def upload(reports: list[int], plan: str = DARK.digest, metric: str = "dark") -> bytes:
    return encode_upload(new_upload_id(random.getrandbits), [(metric, plan, list(reports))])


def test_an_upload_is_received_once_as_the_real_one_receives_it(both: Both) -> None:
    before = both.fake.reports.get("dark", 0)
    body = upload([1, 0])
    first = both.answer(body)
    assert (first["status"], first["accepted"], first["duplicate"]) == (202, 2, False)
    again = both.answer(gzip.compress(body), Content_Encoding="gzip")
    assert (again["status"], again["accepted"], again["duplicate"]) == (202, 2, True)
    conflict = both.answer(body.replace(b"[1,0]", b"[0,0]"))
    assert conflict["status"] == 409
    assert both.fake.reports["dark"] == before + 2


def test_a_bad_group_is_refused_as_the_real_one_refuses_it(both: Both) -> None:
    document = json.loads(upload([1]))
    document["groups"] += [
        {"metric": "dark", "plan": "0" * 16, "reports": [1, 1]},
        {"metric": "none", "plan": "0" * 16, "reports": [1]},
        {"metric": "dark", "plan": DARK.digest, "reports": [2]},
    ]
    answer = both.answer(json.dumps(document).encode())
    assert [refused["reason"] for refused in answer["rejected"]] == ["unknown-plan", "unknown-metric", "bad-report"]
    assert both.answer(json.dumps(document).encode())["duplicate"]


BIG = b" " * (256 * 1024 + 1)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (upload([1]).strip()[:-1], {}, 400),
        (upload([1]), {"Authorization": None}, 401),
        (upload([1]), {"Authorization": "Basic abc"}, 401),
        (upload([1]), {"Authorization": "Bearer "}, 401),
        (upload([1]), {"Authorization": "Bearer wrong"}, 401),
        (upload([1]), {"Content_Type": "text/plain"}, 415),
        (upload([1]), {"Content_Type": None}, 415),
        (upload([1]), {"Content_Type": "Application/JSON; charset=utf-8"}, 202),
        (upload([1]), {"Content_Encoding": "br"}, 415),
        (upload([1]), {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(upload([1]))[:-3], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b" " * 2_000_000), {"Content_Encoding": "gzip"}, 413),
        (BIG, {}, 413),
        (BIG * 7, {}, 413),
        (upload([1] * 2001), {}, 413),
        (upload([2]), {}, 422),
        (upload([1], plan="f" * 16), {}, 422),
        (upload([1], metric="none"), {}, 422),
        (upload([1]).ljust(100_000), {}, 202),
    ],
    ids=lambda value: "body" if isinstance(value, bytes) else str(value)[:40],
)
def test_what_the_real_one_takes_or_refuses_the_fake_does(
    both: Both, body: bytes, headers: dict[str, Any], status: int
) -> None:
    before = both.fake.reports.get("dark", 0)
    assert both.answer(body, **headers)["status"] == status
    assert both.fake.reports.get("dark", 0) - before == (status == 202)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", PATH, 405), ("POST", "/v1/report", 404)])
def test_other_addresses_are_refused_in_words(both: Both, method: str, path: str, status: int) -> None:
    assert both.answer(b"", method, path)["status"] == status


VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "uploads.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["spoiled"], ids=lambda vector: vector["name"])
def test_spoiled_uploads_are_refused_as_the_real_one_refuses_them(both: Both, vector: dict[str, str]) -> None:
    assert both.answer(vector["body"].encode("latin-1"))["status"] == PROBLEMS[vector["problem"]][0]


def test_a_body_without_a_length_is_refused(both: Both) -> None:
    head = f"POST {PATH} HTTP/1.0\r\nAuthorization: Bearer {both.fake.key}\r\nContent-Type: application/json\r\n"
    for length, status in (("", b" 411 "), ("Content-Length: minus\r\n", b" 400 ")):
        with socket.create_connection(("127.0.0.1", int(both.fake.url.rpartition(":")[2])), timeout=10) as connection:
            connection.sendall(f"{head}{length}\r\n".encode())
            assert status in connection.recv(1_000).partition(b"\r\n")[0]


def test_an_expired_metric_is_refused_after_the_same_grace(tmp_path: Path) -> None:
    clock = Clock()
    with (
        aggregators.aggregator(EXPECTED, tmp_path, clock) as (url, service),
        FakeAggregator(EXPECTED, key=write_key(service.store), clock=clock) as fake,
    ):
        both = Both(url, fake, clock)
        clock.travel(100 + GRACE_DAYS - 1)
        assert both.answer(upload([1]))["status"] == 202
        clock.travel(1)
        assert both.answer(upload([1]))["status"] == 410
        both.session.close()


# Its failures, and what the SDK makes of them.

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
    "bad-tally": KEPT,
    "key-waiting": KEPT,
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
    clock = Clock()
    device, asked = make(clock)
    with FakeAggregator(asked, clock=clock) as fake:
        sending = Sending(fake, device, asked, clock)
        yield sending
        sending.transport.idle()


def test_every_failure_has_its_place_in_the_table() -> None:
    assert set(OUTCOMES) == {*aggregator._FAILURES, *PROBLEMS}


def names(*outcomes: Outcome) -> list[str]:
    return [name for name, outcome in OUTCOMES.items() if outcome in outcomes]


COUNTED = {"lose-receipt", "truncate"}


@pytest.mark.parametrize("failure", names(KEPT))
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


@pytest.mark.parametrize("failure", names(DROPPED))
def test_a_definite_refusal_drops_the_upload_and_counts_it(sending: Sending, failure: str) -> None:
    sending.fake.fail_next(failure)
    assert sending.sender.attempt() is DROPPED
    assert sending.sender.attempt() is None
    assert sending.device.counters() == {"dropped": 1}
    assert sending.device.spent()["color"] == 2_000_000
    assert sending.fake.reports == {}


@pytest.mark.parametrize("failure", names(STOPPED))
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
    read: list[int] = []
    real = connection._first_bytes

    def content(response: requests.Response) -> bytes:
        read.append(len(answer := bytes(real(response))))
        return answer

    monkeypatch.setattr("dither.sending.connection._first_bytes", content)
    sending.fake.fail_next("huge")
    assert sending.sender.attempt() is KEPT
    assert read == [ANSWER_BYTES_MAX]
    assert HUGE_BYTES > 100 * ANSWER_BYTES_MAX


def test_failures_come_in_turn_and_so_often(both: Both) -> None:
    both.fake.fail_next("unavailable", times=2)
    both.fake.fail_next("captive-portal")
    url = both.fake.url + PATH
    assert [both.session.post(url, b"", timeout=10).status_code for _ in range(4)] == [503, 503, 200, 401]


def test_a_flush_goes_on_until_the_aggregator_is_back() -> None:
    asked = registry()
    with FakeAggregator(asked) as fake:
        fake.fail_next("close", times=2)
        telemetry = dither.start(asked, endpoint=fake.url, key=fake.key, data_dir=":memory:", consent=True)
        telemetry.color.record("red")
        assert telemetry.flush(30) == dither.FlushResult(1, 0, "")
        assert len(fake.uploads) == 3
        telemetry.close()


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
    monkeypatch.setattr(aggregator, "HANG_S", 1.0)
    fake_aggregator.fail_next("hang")
    telemetry.color.record("red")
    began = time.monotonic()
    assert telemetry.flush(0.1).waiting == 1
    assert time.monotonic() - began < 0.8
    assert telemetry.flush(30) == dither.FlushResult(1, 0, "")
    assert fake_aggregator.reports == {"color": 1}


def test_the_end_of_the_context_ends_what_hangs() -> None:
    with FakeAggregator(registry()) as fake:
        fake.fail_next("hang")
        connection = socket.create_connection(("127.0.0.1", int(fake.url.rpartition(":")[2])), timeout=3)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while not fake.uploads:
            time.sleep(0.01)
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


def test_an_address_before_the_context_is_a_mistake_that_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"with FakeAggregator\(\.\.\.\) as"):
        _ = FakeAggregator(registry()).url


def test_a_wrong_key_is_refused_over_the_real_sdk(fake_aggregator: FakeAggregator) -> None:
    telemetry = dither.start(registry(), endpoint="https://telemetry.example.org", key="production", consent=True)
    telemetry.color.record("red")
    assert telemetry.flush() == dither.FlushResult(0, 1, "401 key-wrong")
    telemetry.close()


# A fresh project.


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project as on a CI machine, whose app sends to an aggregator that is not there."""
    monkeypatch.delenv("DITHER_TELEMETRY")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it has none of our own
    monkeypatch.setenv("PYTHONPATH", aggregators.ENVIRONMENT["PYTHONPATH"])
    for variable in ("CI", "DO_NOT_TRACK", "DITHER_DRY_RUN"):
        monkeypatch.setenv(variable, "1")
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(pytester.path / "home"))
    pytester.makeconftest('pytest_plugins = ["dither.testing"]')
    text = registry_text(values=("light", "dark")).replace("[metric.color]", "[metric.theme]")
    (pytester.path / "metrics.toml").write_text(text, encoding="utf-8")
    return pytester


def run(project: pytest.Pytester, passed: int = 0, failed: int = 0, errors: int = 0, fresh: bool = False) -> str:
    """Run the project's tests, in a process of their own if asked; return what pytest said. Warnings are errors."""
    how = project.runpytest_subprocess if fresh else project.runpytest_inprocess
    result = how("-q", "-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=passed, failed=failed, errors=errors)
    assert not (project.path / "home").exists()  # nothing was written
    return result.stdout.str()


def example(documented: object) -> str:
    """Return the indented lines of a docstring."""
    lines = (inspect.getdoc(documented) or "").splitlines()
    return textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))


def test_the_documented_fixtures_run_as_shown(project: pytest.Pytester) -> None:
    shown = [example(fixture) for fixture in (plugin.telemetry, plugin.fake_aggregator, plugin.dither_consent)]
    project.makepyfile("\n".join(["import pytest", "from dither.testing import Recorded", *shown]))
    run(project, passed=3, fresh=True)


def test_the_documented_aggregator_runs_as_shown_and_without_pytest(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DO_NOT_TRACK", "DITHER_DRY_RUN"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("DITHER_TELEMETRY", "1")
    within = f"""
{example(FakeAggregator.fail_next)}
telemetry.theme.record("dark")
print(telemetry.flush(30).sent, fake.reports, len(fake.uploads), "pytest" in sys.modules)
telemetry.close()
"""
    program = f"import sys, dither\nfrom dither.testing import FakeAggregator\n{example(FakeAggregator)}"
    result = project.run(sys.executable, "-W", "error", "-c", program + textwrap.indent(within, "    "))
    assert (result.ret, result.outlines) == (0, ["1 {'theme': 1} 4 False"])


APP = """
import dither
SETTINGS = dict(endpoint="https://telemetry.example.org", key="k", consent=True)
"""
APPS = {
    "in_main": "def telemetry(): return dither.start('metrics.toml', **SETTINGS)",
    "by_name": "from dither import start\ndef telemetry(): return start('metrics.toml', **SETTINGS)",
    "on_import": "_started = dither.start('metrics.toml', **SETTINGS)\ndef telemetry(): return _started",
    "once": "import functools\n@functools.cache\ndef telemetry(): return dither.start('metrics.toml', **SETTINGS)",
    "by_handle": "class A: theme = dither.start('metrics.toml', **SETTINGS).theme\ndef telemetry(): return A",
}


def test_apps_that_start_telemetry_in_their_own_way_need_no_change(project: pytest.Pytester) -> None:
    project.makepyfile(
        **{name: f"{APP}{way}\ndef main(theme): telemetry().theme.record(theme)" for name, way in APPS.items()}
    )
    project.makeconftest(
        f"""
        import {", ".join(APPS)}  # before the plugin
        from dither.testing import Recorded

        pytest_plugins = ["dither.testing"]
        """
    )
    project.makepyfile(
        f"""
        import {", ".join(APPS)}
        import dither, pytest
        from dither.testing import Recorded

        APPS = {", ".join(APPS)}

        @pytest.mark.parametrize("app", APPS)
        @pytest.mark.parametrize("theme", ["light", "dark"])
        def test_main(telemetry, app, theme):
            app.main(theme)
            assert telemetry.recorded() == [Recorded("theme", theme)]
            assert telemetry.status().waiting == 1

        @pytest.mark.parametrize("app", APPS)
        def test_afterwards_nothing_is_left(app):
            app.main("dark")
            started = dither.start("metrics.toml", **app.SETTINGS)
            assert type(started) is dither.Telemetry
            assert "is set" in started.status().silent
        """
    )
    run(project, passed=15, fresh=True)


def test_misuse_is_said_in_the_apps_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_value(telemetry):
            telemetry.theme.record("pink")

        def test_metric(telemetry):
            telemetry.colour.record("dark")

        def test_network(telemetry):
            telemetry.theme.record("dark")
            assert telemetry.flush().sent == 1
        """
    )
    said = run(project, failed=3)
    assert "no answer that theme asks for" in said
    assert "the registry has no metric 'colour'; it has theme, dark" in said
    assert "the network is refused in tests: in one that takes fake_aggregator" in said


TRY = "def test_it(telemetry): assert telemetry.theme.metric.name == 'theme'"


def test_a_missing_registry_is_named_with_the_ways_out(project: pytest.Pytester) -> None:
    (project.path / "metrics.toml").rename(project.path / "questions.toml")
    project.makepyfile(TRY)
    said = run(project, errors=1)
    assert "metrics.toml: cannot be read: No such file or directory" in said
    assert f"the ini option dither_registry names, relative to {project.path}" in said
    assert "Traceback" not in said
    assert "plugin.py" not in said


def test_the_ini_option_says_where_the_registry_is_from_any_directory(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = project.mkdir("src")
    (project.path / "metrics.toml").rename(place / "questions.toml")
    project.makeini("[pytest]\ndither_registry = src/questions.toml\n")
    (project.mkdir("tests") / "test_it.py").write_text(TRY, encoding="utf-8")
    monkeypatch.chdir(project.path / "tests")
    run(project, passed=1)


@pytest.mark.parametrize("returned", ["'questions.toml'", "dither.Registry.load('questions.toml')"])
def test_a_projects_own_fixture_says_what_the_registry_is(project: pytest.Pytester, returned: str) -> None:
    (project.path / "metrics.toml").rename(project.path / "questions.toml")
    project.makepyfile(
        f"""
        import dither, pytest

        @pytest.fixture
        def dither_registry():
            return {returned}

        def test_both(telemetry, fake_aggregator):
            telemetry.theme.record("dark")
            assert telemetry.flush().sent == fake_aggregator.reports["theme"]
        """
    )
    run(project, passed=1)


def test_a_test_with_the_fake_alone_uses_the_real_start(project: pytest.Pytester) -> None:
    project.makepyfile(
        app=APP,
        test_it="""
        import dither
        from app import SETTINGS

        def test_delivery(fake_aggregator):
            started = dither.start("metrics.toml", **{**SETTINGS, "key": fake_aggregator.key})
            assert type(started) is dither.Telemetry
            started.theme.record("dark")
            assert started.flush(30) == dither.FlushResult(1, 0, "")
            assert fake_aggregator.reports == {"theme": 1}
            started.close()

        def test_a_file(fake_aggregator, monkeypatch, tmp_path):
            monkeypatch.setenv("DITHER_DATA_DIR", str(tmp_path))
            dither.start("metrics.toml", **SETTINGS).close()
            assert [path.name for path in tmp_path.glob("*/*")] == ["device.sqlite3"]
        """,
    )
    run(project, passed=2)


def test_importing_dither_loads_neither_this_nor_pytest() -> None:
    code = "import dither, sys; print('dither.testing' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
