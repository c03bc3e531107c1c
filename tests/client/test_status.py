"""Why each metric is silent and until when, what became of sending, and what the logger is told of it."""

import json
import logging
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import FILE_NAME
from dither.device.recording import EPOCH, HIDDEN, MEANINGS, NEXT_STEPS, UNRECORDED, UNUSED, Silence
from dither.sending.transport import HAS_PATH, Answer, DryRun, HttpTransport, Outcome, Transport
from dither.session import Settings
from dither.status import NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from dither_shared.wire import PROBLEM_PREFIX
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, problem, scripted

HOUR_S = 3_600.0
SPEAKS = dither.MetricStatus()
TODAY = EPOCH + timedelta(days=20_777)


def days(number: int) -> date:
    """Return the day so many days after the clock starts."""
    return TODAY + timedelta(days=number)


@contextmanager
def telemetry(
    clock: Clock,
    directory: Path | None = None,
    transport: Transport | None = None,
    asked: Registry | None = None,
    consent: bool | None = True,
    **changes: object,
) -> Iterator[Telemetry]:
    asked = asked or registry(**{"expires": EXPIRES, **changes})
    started = Telemetry(Settings(asked, transport or DryRun(), directory, consent, clock=clock))
    try:
        yield started
    finally:
        started.close()


def silent(device: Telemetry, metric: str = "color") -> dither.MetricStatus:
    """Return a metric's status."""
    return device.status().metrics[metric]


def test_a_metric_speaks_until_it_has_answered_and_again_in_the_next_period() -> None:
    clock = Clock()
    with telemetry(clock, period="7d") as device:
        assert device.status().metrics == {"color": SPEAKS, "dark": SPEAKS}
        device.color.record("red")
        assert device.status().metrics == {"color": dither.MetricStatus("answered", days(6)), "dark": SPEAKS}
        clock.travel(5)
        assert silent(device) == dither.MetricStatus("answered", days(6))
        device.flush(5)
        clock.travel(1)
        assert silent(device) == SPEAKS


def test_a_hidden_metric_speaks_until_it_was_answered_though_none_waits() -> None:
    clock = Clock()
    with telemetry(clock, presence="hidden", reports=20, epsilon="1") as device:
        assert device.status().waiting == 2
        assert silent(device) == SPEAKS
        device.color.record("red")
        assert silent(device) == dither.MetricStatus("answered", days(1))
        assert device.status().waiting == 2


def test_quiet_until_the_registrys_days_are_over(tmp_path: Path) -> None:
    clock = Clock()
    with telemetry(clock, tmp_path, quiet_days=3) as device:
        assert silent(device) == dither.MetricStatus("quiet", days(3))
        clock.travel(3)
        assert silent(device) == SPEAKS
        device.color.record("red")
        assert device.status().waiting == 1


def test_forgotten_for_thirty_days() -> None:
    clock = Clock()
    with telemetry(clock) as device:
        device.forget()
        assert device.status().metrics == dict.fromkeys(("color", "dark"), dither.MetricStatus("forgotten", days(30)))
        assert device.status().erasing is False
        clock.travel(29)
        assert silent(device).silent == "forgotten"
        clock.travel(1)
        assert silent(device) == SPEAKS


def test_expired_for_good() -> None:
    clock = Clock()
    with telemetry(clock) as device:
        clock.travel(99)
        assert silent(device) == SPEAKS
        clock.travel(1)
        assert silent(device) == dither.MetricStatus("expired")


def test_unscheduled_until_the_next_period_that_was_drawn() -> None:
    clock = Clock()
    with telemetry(clock, schedule="spread", reports=4, epsilon="1") as device:
        device.color.record("red")  # the draw, if today was not drawn
        seen = set()
        while (status := silent(device)).silent != "expired":
            assert status == SPEAKS or status.silent in ("unscheduled", "answered")
            seen.add(status.silent)
            if status.silent == "unscheduled" and status.until is None:
                clock.now += (EXPIRES - EPOCH).days * 86_400.0 - clock.now  # none is left
                continue
            if status.silent == "unscheduled":
                assert status.until is not None
                clock.now = (status.until - EPOCH).days * 86_400.0 - 1
                assert silent(device) == status
                clock.now += 1
                assert silent(device) == SPEAKS
            device.color.record("red")
            assert silent(device).silent in ("answered", "unscheduled")
            device.flush(5)
            clock.travel(1)
        assert "unscheduled" in seen


def test_spent_for_good() -> None:
    clock = Clock()
    with telemetry(clock, reports=1) as device:
        device.color.record("red")
        assert device.flush(5).sent == 1
        assert silent(device) == dither.MetricStatus("answered", days(1))
        clock.travel(1)
        assert silent(device) == dither.MetricStatus("spent")
        device.color.record("red")
        assert device.status().counts == {"accepted": 1, "spent": 1}


@pytest.mark.parametrize(
    "changes", [{"reports": 1}, {"reports": 3}, {"reports": 1, "schedule": "spread"}, MEMO, {"period": "3d"}], ids=str
)
def test_what_is_said_of_a_metric_is_what_its_next_answer_meets(changes: dict[str, Any]) -> None:
    """Also where what waits is built to make room for it, and where the metric was never asked."""
    clock = Clock()
    with telemetry(clock, transport=Unreachable(), **changes) as device:
        for _ in range(4):
            said, counts = silent(device).silent, Counter(device.status().counts)
            device.color.record("red")
            met = Counter(device.status().counts) - counts
            assert met == ({said: 1} if said else {})
            clock.travel(1)


def test_while_another_process_writes_everything_is_seen(tmp_path: Path) -> None:
    clock = Clock()
    with telemetry(clock, tmp_path, Unreachable()) as device:
        device.color.record("red")
        clock.travel(1)
        assert not device.flush(5).sent  # the clock stands still, so nothing is tried again meanwhile
        before = device.status()
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            took_s = list[float]()
            for _ in range(3):
                began = time.monotonic()
                assert device.status() == before
                took_s.append(time.monotonic() - began)
            assert min(took_s) < 0.2
            other.execute("ROLLBACK")


def test_waiting_while_an_older_report_cannot_leave() -> None:
    clock = Clock()
    with telemetry(clock, transport=Unreachable()) as device:
        for _ in range(2):
            device.color.record("red")
            device.flush(5)
            clock.travel(1)
        assert device.status().waiting == 2
        assert silent(device) == dither.MetricStatus("waiting")


def test_refused_of_one_metric_or_of_all(tmp_path: Path) -> None:
    clock = Clock()
    with telemetry(clock, tmp_path) as device:
        device.set_consent(False, metric="color")
        assert device.status().metrics == {"color": dither.MetricStatus("refused"), "dark": SPEAKS}
        device.set_consent(False)
        status = device.status()
        assert (status.silent, set(status.metrics.values())) == (REFUSED, {dither.MetricStatus("refused")})
    with telemetry(clock, tmp_path) as device:
        status = device.status()
        assert (status.silent, set(status.metrics.values())) == (REFUSED, {dither.MetricStatus("refused")})


def test_not_agreed_until_the_person_is_asked_and_where_a_metric_asks_for_more(tmp_path: Path) -> None:
    clock = Clock()
    with telemetry(clock, tmp_path, consent=None) as device:
        status = device.status()
        assert (status.silent, set(status.metrics.values())) == (NOT_ASKED, {dither.MetricStatus("not-agreed")})
        assert device.set_consent(True)
        assert silent(device) == SPEAKS
    with telemetry(clock, tmp_path, period="1d", reports=4) as device:
        assert silent(device) == dither.MetricStatus("not-agreed")


def test_clock_behind_until_it_has_caught_up() -> None:
    clock = Clock()
    with telemetry(clock) as device:
        device.color.record("red")
        clock.travel(-5)
        assert silent(device, "dark") == dither.MetricStatus("clock-behind", days(-1))
        clock.travel(4)
        assert silent(device, "dark") == SPEAKS


def test_the_first_reason_counts_and_is_the_one_that_an_answer_is_counted_under(tmp_path: Path) -> None:
    clock = Clock()
    with telemetry(clock, tmp_path, quiet_days=3) as device:
        device.forget()
        assert silent(device) == dither.MetricStatus("quiet", days(3))
        clock.travel(3)
        assert silent(device) == dither.MetricStatus("forgotten", days(30))
        device.set_consent(False, metric="color")
        assert silent(device) == dither.MetricStatus("refused")
        device.color.record("red")
        device.dark.record(True)
        assert device.status().counts == {"refused": 1, "forgotten": 1}


def test_where_telemetry_is_off_every_metric_is(tmp_path: Path) -> None:
    (tmp_path / "device.sqlite3").write_bytes(b"x" * 5_000)
    with telemetry(Clock(), tmp_path) as device:
        assert set(device.status().metrics.values()) == {dither.MetricStatus("off")}


# A wrong key.


@pytest.mark.parametrize("reply", [problem(401, "key-missing"), problem(403, "key-wrong")])
def test_a_wrong_key_is_why_nothing_leaves_until_the_next_start(reply: Reply, tmp_path: Path) -> None:
    """Answers are taken, and wait. A metric that is silent for another reason says that one."""
    clock = Clock()
    wrong = dither.MetricStatus("wrong-key")
    detail = f"{reply.status} {json.loads(as_bytes(reply))['type'].removeprefix(PROBLEM_PREFIX)}"
    with scripted(reply) as (url, requests):
        with telemetry(clock, tmp_path, HttpTransport(url, "k")) as device:
            device.color.record("red")
            assert device.flush(5) == dither.FlushResult(0, 1, detail)
            assert device.status().metrics == {"color": wrong, "dark": wrong}
            assert device.status().sending == dither.Sending(detail, moment(clock()), None)
            device.dark.record(True)
            assert device.status().waiting == 2
            device.set_consent(False, metric="dark")
            assert silent(device, "dark") == dither.MetricStatus("refused")
            assert device.flush(5) == dither.FlushResult(0, 1, detail)
            device.set_consent(True)  # another choice is no other key
            assert silent(device) == wrong
            assert device.status().sending == dither.Sending(detail, moment(clock()), None)
        assert len(requests) == 1
    with telemetry(clock, tmp_path) as device:
        assert silent(device) == dither.MetricStatus("answered", days(1))


def as_bytes(reply: Reply) -> bytes:
    assert isinstance(reply.body, bytes)
    return reply.body


# A plan that is retired.


def receipt(*retired: str) -> Callable[[bytes], bytes]:
    """Return what makes a receipt that refuses these metrics' groups as retired."""

    def make(body: bytes) -> bytes:
        groups = json.loads(body)["groups"]
        document: dict[str, Any] = json.loads(accepted(body))
        document["rejected"] = [
            {"group": place, "reason": "retired", "count": 1}
            for place, group in enumerate(groups)
            if group["metric"] in retired
        ]
        return json.dumps(document).encode()

    return make


def all_retired(body: bytes) -> bytes:
    """Return a problem document that refuses every group as retired, and says which."""
    places = range(len(json.loads(body)["groups"]))
    rejected = [{"group": place, "reason": "retired", "count": 1} for place in places]
    return json.dumps({"type": f"{PROBLEM_PREFIX}retired", "rejected": rejected}).encode()


def test_a_plan_that_a_receipt_refuses_as_retired_is_silent_for_thirty_days() -> None:
    clock = Clock()
    retired = dither.MetricStatus("retired", days(30))
    replies = Reply(body=receipt("color")), Reply(body=accepted)
    with scripted(*replies) as (url, _), telemetry(clock, None, HttpTransport(url, "k")) as device:
        device.color.record("red")
        device.dark.record(True)
        assert device.flush(5) == dither.FlushResult(1, 0, "accepted, but not all: retired")
        status = device.status()
        assert status.metrics == {"color": retired, "dark": dither.MetricStatus("answered", days(1))}
        assert status.counts == {"accepted": 1, "dropped": 1}
        clock.travel(29)
        assert silent(device) == retired
        device.color.record("red")
        assert device.status().counts["retired"] == 1
        clock.travel(1)
        assert silent(device) == SPEAKS
        device.color.record("red")
        assert device.flush(5).sent == 1


@pytest.mark.parametrize("body", [all_retired, as_bytes(problem(410, "retired"))])
def test_plans_that_a_410_refuses_as_retired_are_silent_and_what_waits_under_them_is_dropped(
    body: bytes | Callable[[bytes], bytes], tmp_path: Path
) -> None:
    clock = Clock()
    retired = dither.MetricStatus("retired", days(31))
    with scripted(Reply(410, body)) as (url, requests):
        with telemetry(clock, tmp_path, Unreachable()) as device:
            device.color.record("red")
            device.flush(5)
            clock.travel(1)
            device.color.record("red")  # waits behind the upload
            device.dark.record(True)
            assert device.status().waiting == 3
        with telemetry(clock, tmp_path, HttpTransport(url, "k")) as device:
            clock.now += HOUR_S
            device.flush(5)
            assert silent(device) == retired
            groups = [[group["metric"] for group in json.loads(request.body)["groups"]] for request in requests]
            assert groups == [["color"], ["dark"]]  # the color that waited behind it is dropped unsent
            assert silent(device, "dark") == retired
            assert device.status().waiting == 0
            assert device.status().counts == {"dropped": 3}
    with telemetry(clock, tmp_path) as device:  # it is kept
        assert silent(device) == retired


@pytest.mark.parametrize("change", [{"values": ("red", "green")}, {"epsilon": "1"}, {"rev": 2}])
def test_a_retired_metric_speaks_again_as_soon_as_there_is_another_plan(change: dict[str, Any], tmp_path: Path) -> None:
    clock = Clock()
    reply = Reply(body=receipt("color"))
    with scripted(reply) as (url, _), telemetry(clock, tmp_path, HttpTransport(url, "k")) as device:
        device.color.record("red")
        device.flush(5)
        assert silent(device).silent == "retired"
    clock.travel(1)
    with telemetry(clock, tmp_path, **change) as device:
        device.set_consent(True)
        assert silent(device) == SPEAKS
        device.color.record("red")
        assert device.flush(5).sent == 1


# Sending.


class Unreachable:
    """A transport without a connection, for certain."""

    def __init__(self) -> None:
        self.attempts = 0

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        self.attempts += 1
        return Answer(Outcome.KEPT, "no answer (ConnectionError)", connected=False)

    def idle(self) -> None:
        pass


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def test_sending_says_the_last_outcome_when_it_was_and_when_the_next_attempt_is() -> None:
    clock = Clock()
    replies = problem(503, "unavailable", **{"Retry-After": "60"}), Reply(body=accepted)
    with scripted(*replies) as (url, _), telemetry(clock, None, HttpTransport(url, "k")) as device:
        assert device.status().sending == dither.Sending("", None, None)
        device.color.record("red")
        sending = device.status().sending
        assert (sending.outcome, sending.last) == ("", None)
        assert sending.next is not None
        assert moment(clock()) <= sending.next <= moment(clock() + HOUR_S)
        assert device.flush(5) == dither.FlushResult(0, 1, "503 unavailable")
        sending = device.status().sending
        assert (sending.outcome, sending.last) == ("503 unavailable", moment(clock()))
        assert sending.next is not None
        assert moment(clock() + 60) <= sending.next <= moment(clock() + 60 + 120)
        clock.now += 180
        assert device.flush(5) == dither.FlushResult(1, 0, "")
        assert device.status().sending == dither.Sending("accepted", moment(clock()), None)


def test_a_flush_without_a_connection_returns_at_once_and_so_do_all_until_the_wait_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any process: an offline command line pays nothing for its flush, and no pause between attempts."""
    monkeypatch.setattr("dither.sending.upload_thread.PAUSE_S", 60.0)
    monkeypatch.setattr("dither.sending.upload_thread.jitter", lambda most: most)
    clock = Clock()
    away = Unreachable()
    unsent = dither.FlushResult(0, 1, "no answer (ConnectionError)")
    began = time.monotonic()
    with telemetry(clock, tmp_path, away) as device:
        device.color.record("red")
        assert device.flush(30) == unsent
        next_attempt = device.status().sending.next
        assert next_attempt is not None
        for _ in range(3):
            assert device.flush(30) == unsent
    for _ in range(3):
        with telemetry(clock, tmp_path, away) as device:
            assert device.flush(30) == unsent
            assert device.status().sending.next == next_attempt
            assert device.status().spent["color"] == 0
    assert away.attempts == 1
    assert time.monotonic() - began < 30  # each flush by itself may take that long
    clock.now += 180
    with telemetry(clock, tmp_path, away) as device:
        assert device.flush(30) == unsent
        assert away.attempts == 2
    clock.now += 300
    with telemetry(clock, tmp_path) as device:
        flushed = device.flush(30)  # the thread, which finds it due, may have its answer first
        assert (flushed.sent, flushed.waiting) == (1, 0)
        assert flushed.detail in ("not sent: a dry run", "")


def test_a_flush_that_was_too_short_for_an_answer_holds_the_next_ones_back(tmp_path: Path) -> None:
    """The server may hang: an app that flushes at each of its short lives would wait each time."""
    clock = Clock()
    with scripted(Reply(body=accepted, delay_s=2.0)) as (url, requests):
        with telemetry(clock, tmp_path, HttpTransport(url, "k")) as device:
            device.color.record("red")
            assert device.flush(0.3) == dither.FlushResult(0, 1, "no answer yet")
            sending = device.status().sending
            assert sending.outcome == "no answer yet"
            assert sending.next is not None
        with telemetry(clock, tmp_path, HttpTransport(url, "k")) as device:
            began = time.monotonic()
            assert device.flush(30) == dither.FlushResult(0, 1, "no answer yet")
            assert time.monotonic() - began < 15
        assert len(requests) == 1


def test_after_an_hour_of_failures_the_same_way_there_is_one_warning_and_not_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    away = Unreachable()
    with caplog.at_level(logging.WARNING, "dither"), telemetry(clock, transport=away) as device:
        device.color.record("red")
        for attempt in range(12):
            device.flush(5)
            said = ["telemetry could not send for an hour: no answer (ConnectionError)"]
            assert caplog.messages == (said if attempt > 1 else [])
            clock.now += 6 * HOUR_S if attempt else HOUR_S - 1
    assert away.attempts == 12


# A flush that sends nothing.


README = Path(__file__).parents[2] / "client" / "README.md"


def test_the_page_has_a_row_for_each_reason_that_a_flush_may_name() -> None:
    assert NEXT_STEPS.keys() == MEANINGS.keys() == {*Silence, HIDDEN, UNRECORDED, UNUSED}
    page = README.read_text(encoding="utf-8")
    for word, step in NEXT_STEPS.items():
        meaning = MEANINGS[word]
        assert f"| `nothing to send: ...: {word}` | {meaning[0].upper()}{meaning[1:]}: {step}. |\n" in page
    assert HAS_PATH.split(":", 1)[0].removeprefix("; ") in page


def flushed(**changes: object) -> tuple[dither.FlushResult, Telemetry]:
    telemetry = Telemetry(Settings(registry(**{"expires": EXPIRES, **changes}), DryRun(), None, True, clock=Clock()))
    return telemetry.flush(5), telemetry


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, r"color, dark: unrecorded \(no answer was recorded\): call its record\(\) before flush\(\)"),
        (
            {"presence": "hidden"},
            r"color, dark: hidden \(whether there is an answer is hidden\): its report leaves when",
        ),
        ({"expires": days(0)}, r"color, dark: expired \(the metric has expired\): give it a later day"),
        (
            {"schedule": "spread", "reports": 1},
            "color(, dark)?: un(scheduled|recorded)",
        ),  # today is drawn once in some hundred times,
    ],
)
def test_a_flush_that_has_nothing_to_send_says_why_and_what_to_do(changes: dict[str, object], said: str) -> None:
    result, telemetry = flushed(**changes)
    telemetry.close()
    assert result.sent == 0
    assert re.match(f"nothing to send: {said}", result.detail)


def test_a_flush_on_the_quiet_day_names_the_day_after_and_development(tmp_path: Path) -> None:
    settings = Settings(registry(quiet_days=2, expires=EXPIRES), DryRun(), tmp_path, True, clock=Clock())
    telemetry = Telemetry(settings)
    telemetry.color.record("red")
    step = "wait until that day; on your own machine start(development=True) takes the wait away"
    quiet = f"nothing to send: color, dark: quiet until {days(2)} (the device is new): {step}"
    assert telemetry.flush(5) == dither.FlushResult(0, 0, quiet)
    telemetry.close()


def test_of_a_hidden_metric_a_flush_says_the_same_whatever_was_recorded() -> None:
    said = set()
    for answers in ([], ["red"], ["red", "blue"]):
        _, telemetry = flushed(presence="hidden")
        for answer in answers:
            telemetry.color.record(answer)
        said.add(telemetry.flush(5))
        telemetry.close()
    assert len(said) == 1


def test_a_flush_after_a_refusal_of_one_metric_tells_them_apart() -> None:
    _, telemetry = flushed()
    telemetry.set_consent(True)
    telemetry.set_consent(False, metric="dark")
    telemetry.color.record("red")
    assert telemetry.flush(5) == dither.FlushResult(1, 0, "not sent: a dry run")
    again = telemetry.flush(5).detail
    telemetry.close()
    assert f"color: answered until {days(1)} (this period was answered): its report has left" in again
    assert "; dark: refused (the person refused): set_consent(True, metric)" in again


def test_of_many_metrics_a_few_are_named() -> None:
    metrics = "".join(
        f"[metric.m{number}]\nrev = 1\nkind = 'flag'\nquestion = 'x'\nepsilon = 1\nreports = 1\npresence = 'public'\n"
        f"period = '1d'\nowners = ['a']\nsensitivity = 'low'\nexpires = {EXPIRES}\n"
        for number in range(9)
    )
    many = Registry.parse(
        f"[registry]\napp = 'x'\ndevice_epsilon = 9\nquiet_days = 0\n{metrics}".replace(
            "reports = 1\n", "reports = 1\nschedule = 'early'\n"
        )
    )
    telemetry = Telemetry(Settings(many, DryRun(), None, True, clock=Clock()))
    assert telemetry.flush(5).detail.startswith("nothing to send: m0, m1, m2 and 6 more: unrecorded ")
    telemetry.close()
