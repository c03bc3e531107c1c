"""What the person chooses, through the telemetry object."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import FILE_NAME
from dither.sending.transport import DryRun
from dither.settings import Settings
from dither.status import CLOSED, NOT_ASKED, REFUSED
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.registries import registry

Start = Callable[..., Telemetry]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(consent: bool | None = None, asked: Registry | None = None, silent: str = "") -> Telemetry:
        return Telemetry(Settings(asked or registry(), DryRun(), tmp_path / "d", consent, silent))

    return begin


def test_until_the_person_is_asked_nothing_is_made_or_kept(start: Start, tmp_path: Path) -> None:
    telemetry = start()
    telemetry.color.record("red")
    assert telemetry.status() == dither.Status(NOT_ASKED, 0, {}, {})
    assert telemetry.status().ask
    assert telemetry.preview() == dither.Preview(b"", {})
    telemetry.forget()
    telemetry.close()
    assert list(tmp_path.iterdir()) == []


def test_a_choice_goes_before_what_start_is_given_and_is_remembered(start: Start) -> None:
    telemetry = start()
    telemetry.set_consent(True)
    telemetry.color.record("red")
    assert telemetry.status().waiting == 1
    telemetry.close()
    telemetry = start(False)
    assert telemetry.status().silent == ""
    telemetry.set_consent(False)
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
    telemetry = start(False)
    assert telemetry.status().silent == REFUSED
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().waiting == 1
    telemetry.close()


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
    assert telemetry.status().spent == {"color": 2.0}
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
    telemetry.set_consent(True)
    assert telemetry.status().silent == "DO_NOT_TRACK is set"
    telemetry.close()
    telemetry = start()
    assert telemetry.status().silent == NOT_ASKED
    telemetry.close()
    telemetry = start(silent="DO_NOT_TRACK is set")
    telemetry.set_consent(False)
    assert telemetry.status().silent == "DO_NOT_TRACK is set"
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


def test_only_true_agrees(start: Start) -> None:
    words: list[Any] = ["no", "false", 1, "yes", []]
    for word in words:
        telemetry = start()
        telemetry.set_consent(word)
        assert telemetry.status().silent == REFUSED
        telemetry.close()
    started = dither.start(registry(), endpoint="https://example.org", key="k", data_dir=":memory:", consent="no")  # type: ignore[arg-type]
    assert started.status().silent == REFUSED
    started.close()


def test_a_refusal_holds_at_once_though_the_file_cannot_be_written(start: Start, tmp_path: Path) -> None:
    """And is written when telemetry is closed."""
    telemetry = start(True)
    telemetry.color.record("red")
    with closing(sqlite3.connect(tmp_path / "d" / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("dither.device.file.DURABLE_WAIT_S", 0.05)
            telemetry.set_consent(False)
        assert telemetry.status().silent == REFUSED
        assert telemetry.status().counts["failed"] == 1
        telemetry.dark.record(True)
        assert telemetry.flush(0.1) == dither.FlushResult(0, 0, REFUSED)
        other.execute("COMMIT")
    telemetry.close()
    telemetry = start(True)
    assert telemetry.status().silent == REFUSED
    telemetry.close()


@pytest.mark.parametrize("how", ["endpoint", "key", "folder"])
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
def test_a_folder_that_is_none_is_said(data_dir: object) -> None:
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
        "color": ["its epsilon for life rises from 6 to 8"],
        "dark": ["its epsilon for life rises from 6 to 8"],
    }
    telemetry.color.record("red")
    assert telemetry.status().counts == {"not-agreed": 1}
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
    telemetry.set_consent(True)
    assert telemetry.status().silent == CLOSED
    telemetry.color.record("red")
    telemetry = start()
    assert telemetry.status() == dither.Status("", 0, {}, {})
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
    telemetry.set_consent(True)
    assert telemetry.status().counts == {"failed": 1}
    telemetry.close()
    with pytest.raises(dither.DitherError, match="cannot be used"):
        Telemetry(Settings(registry(), DryRun(), tmp_path, True, strict=True))


# Strictness.


def test_strict_telemetry_refuses_what_is_not_listed_and_never_quotes_it() -> None:
    strict = Telemetry(Settings(registry(), DryRun(), None, True, strict=True))
    for answer in ("marker", 7, None, ["red"], b"red"):
        with pytest.raises(dither.InvalidAnswer) as caught:
            strict.color.record(answer)
        assert str(caught.value) == 'what came is no answer that color asks for: it would be sent as "other"'
    strict.color.record("other")
    for answer in (1, 0, "yes", None, float("nan"), []):
        with pytest.raises(dither.InvalidAnswer):
            strict.dark.record(answer)
    strict.dark.record(True)
    assert strict.status().waiting == 2
    strict.close()


def test_otherwise_it_is_other_and_counted() -> None:
    telemetry = Telemetry(Settings(registry(reports=1), DryRun(), None, True))
    telemetry.color.record("marker")
    telemetry.color.record(7)
    assert telemetry.status().counts == {"unlisted": 2, "answered": 1}
    telemetry.close()
