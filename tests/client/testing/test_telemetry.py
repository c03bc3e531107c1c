"""The telemetry of a test: what it shows, how its clock is moved, and that it stands in for the app's own."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.starting import start
from dither.status import NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from dither.testing import FakeAggregator, Recorded, TelemetryForTests, pytest_plugin
from dither.testing.aggregator import GRACE_DAYS
from tests.client.testing.conftest import LIVES_DAYS
from tests.support.registries import registry

pytest_plugins = ["dither.testing"]

START: dict[str, Any] = {"endpoint": "https://telemetry.example.org", "key": "k"}


def with_registry(*changes: dict[str, object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("dither_registry", changes, ids=str, indirect=True)


def uploaders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dither-uploader"]


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
    assert telemetry.flush().detail.startswith("nothing to send: color, dark: unrecorded ")
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
    result = telemetry.flush()
    assert (result.sent, result.waiting) == (0, 2)  # "none" waits, of the other metric
    assert result.detail.startswith("nothing to send: color, dark: hidden (")
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
    while not telemetry.status().spent["color"]:  # charged: an attempt has begun
        telemetry.flush(0.05)
    telemetry.travel(days=6.1)
    while not telemetry.status().counts:  # beside busy programs an attempt of before may hold up the next
        telemetry.flush(0.5)
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
    with pytest_plugin.standing_in(telemetry):
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
        with pytest_plugin.standing_in(telemetry):
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
