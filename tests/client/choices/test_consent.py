"""Consent, through the telemetry object: whose choice counts, and what it begins and ends."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.sending.transport import DryRun
from dither.session import Settings
from dither.status import CLOSED, NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from tests.client.choices.conftest import Start
from tests.support.registries import registry


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


def test_until_the_person_is_asked_nothing_is_made_or_kept(start: Start, tmp_path: Path) -> None:
    telemetry = start()
    telemetry.color.record("red")
    silent = dither.MetricStatus("not-agreed")
    assert telemetry.status() == dither.Status(NOT_ASKED, metrics={"color": silent, "dark": silent}, ask=True)
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


def test_what_the_app_says_drops_what_waits_as_a_refusal_does(start: Start) -> None:
    """In its slot, and built; what a connection has charged stays charged."""
    telemetry = start(True)
    telemetry.color.record("red")
    with telemetry._session._any_device() as device:
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


@pytest.mark.parametrize(("choice", "metric"), [("no", "color"), *((choice, None) for choice in (*NO_CHOICES, None))])
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


@pytest.mark.parametrize("choice", ["no", 1, None])
def test_in_an_apps_tests_what_is_no_choice_raises(choice: Any, tmp_path: Path) -> None:
    with closing(Telemetry(Settings(registry(), DryRun(), tmp_path / "d", True, strict=True))) as telemetry:
        with pytest.raises(dither.ConfigurationError, match="set_consent takes True or False, got a "):
            telemetry.set_consent(choice)
        assert telemetry.status().silent == ""


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


def test_after_close_a_choice_is_kept_and_begins_nothing(start: Start) -> None:
    telemetry = start(True)
    telemetry.close()
    assert telemetry.set_consent(True)
    assert telemetry.status().silent == CLOSED
    telemetry.color.record("red")
    telemetry = start()
    status = telemetry.status()
    assert (status.silent, status.waiting, status.spent, status.counts) == ("", 0, {"color": 0.0, "dark": 0.0}, {})
