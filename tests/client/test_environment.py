import logging
from pathlib import Path

import pytest

import dither
from dither.device import FILE_NAME
from dither.starting import Environment
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted


def silent(**variables: str) -> str:
    return Environment.read(variables).silent


def test_do_not_track_goes_before_everything() -> None:
    for value in ("1", "true", "yes", "anything"):
        assert silent(DO_NOT_TRACK=value, DITHER_TELEMETRY="1") == "DO_NOT_TRACK is set"
    for value in ("", "0", "false", "False", " off "):
        assert silent(DO_NOT_TRACK=value) == ""


def test_dither_telemetry_0_is_silence() -> None:
    assert silent(DITHER_TELEMETRY="0") == "DITHER_TELEMETRY is 0"
    assert silent(DITHER_TELEMETRY="off") == "DITHER_TELEMETRY is 0"
    assert silent() == silent(DITHER_TELEMETRY="1") == silent(DITHER_TELEMETRY="") == ""


@pytest.mark.parametrize("word", ["disabled", "n", "maybe", "2"])
def test_a_word_that_dither_telemetry_does_not_take_refuses_and_overrules_nothing(word: str) -> None:
    assert "must be 1, true, yes, on to allow it" in silent(DITHER_TELEMETRY=word)
    in_ci = Environment.read({"DITHER_TELEMETRY": word, "CI": "1"})
    assert in_ci.nobody
    assert in_ci.silent == in_ci.mistake


@pytest.mark.parametrize("word", ["1", "true", "YES", " on "])
def test_four_words_overrule_ci(word: str) -> None:
    allowed = Environment.read({"DITHER_TELEMETRY": word, "CI": "1"})
    assert (allowed.silent, allowed.mistake, allowed.nobody) == ("", "", False)


def test_status_and_log_say_which_words_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DITHER_TELEMETRY", "disabled")
    with dither.start(registry(), endpoint="https://example.org", key="k", data_dir=":memory:") as telemetry:
        assert telemetry.status().silent.startswith("DITHER_TELEMETRY must be 1, true, yes, on")
    assert "telemetry is off: DITHER_TELEMETRY must be 1" in caplog.text


@pytest.mark.parametrize("variable", ["CI", "PYTEST_VERSION", "PYTEST_CURRENT_TEST"])
def test_ci_and_pytest_are_silence_unless_overruled(variable: str) -> None:
    assert f"{variable} is set" in silent(**{variable: "true"})
    assert silent(**{variable: "true", "DITHER_TELEMETRY": "1"}) == ""
    assert silent(**{variable: "false"}) == ""


def test_pytest_sets_one_of_them() -> None:
    assert Environment.read().silent == ""  # by tests/conftest.py
    import os

    variables = {name: value for name, value in os.environ.items() if name not in ("DITHER_TELEMETRY", "CI")}
    assert "PYTEST" in Environment.read(variables).silent


@pytest.mark.parametrize("variable", ["DO_NOT_TRACK", "DITHER_TELEMETRY"])
def test_in_silence_nothing_is_made_kept_or_sent_whatever_was_chosen(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1" if variable == "DO_NOT_TRACK" else "0")
    with scripted(Reply(body=accepted)) as (url, requests):
        telemetry = dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path / "d", consent=True)
        telemetry.color.record("red")
        assert telemetry.flush(1).sent == 0
        assert variable in telemetry.status().silent
        telemetry.close()
    assert requests == []
    assert list(tmp_path.iterdir()) == []


def test_the_environments_endpoint_and_directory_go_before_the_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DITHER_DATA_DIR", str(tmp_path / "here"))
    with scripted(Reply(body=accepted)) as (url, requests):
        monkeypatch.setenv("DITHER_ENDPOINT", url)
        telemetry = dither.start(
            registry(), endpoint="https://example.org", key="k", data_dir=tmp_path / "there", consent=True
        )
        telemetry.color.record("red")
        assert telemetry.flush(10).sent == 1
        telemetry.close()
        assert len(requests) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_the_environments_directory_has_a_folder_for_each_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITHER_DATA_DIR", str(tmp_path))
    for app in ("notes", "editor"):
        telemetry = dither.start(registry(app=app), endpoint="https://example.org", key="k", consent=True)
        telemetry.color.record("red")
        assert (telemetry.status().silent, telemetry.status().waiting) == ("", 1)
        telemetry.close()
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(f"*/{FILE_NAME}")) == [
        f"{app}/{FILE_NAME}" for app in ("editor", "notes")
    ]


def test_an_endpoint_of_the_environment_that_cannot_work_does_not_break_the_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DITHER_ENDPOINT", "http://example.org")
    telemetry = dither.start(registry(), endpoint="https://example.org", key="k", data_dir=":memory:", consent=True)
    assert "must be https" in telemetry.status().silent
    telemetry.close()


@pytest.fixture
def _logger() -> object:
    logger = logging.getLogger("dither")
    before = list(logger.handlers), logger.level
    yield
    logger.handlers[:], level = before
    logger.setLevel(level)


@pytest.mark.usefixtures("_logger")
def test_a_dry_run_shows_the_upload_and_sends_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DITHER_DRY_RUN", "1")
    with scripted(Reply(body=accepted)) as (url, requests):
        telemetry = dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path / "d")
        telemetry.color.record("red")
        assert telemetry.flush(10) == dither.FlushResult(1, 0, "not sent: a dry run")
        telemetry.close()
        assert requests == []
    assert list(tmp_path.iterdir()) == []
    assert 'dither: would send {"v":1,"upload":' in capsys.readouterr().err


@pytest.mark.usefixtures("_logger")
def test_debug_says_what_happens_and_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DITHER_DEBUG", "1")
    with scripted(Reply(body=accepted)) as (url, _):
        for _ in range(2):  # however often telemetry is started, each line comes once
            telemetry = dither.start(
                registry(values=("marker",)), endpoint=url, key="k", data_dir=":memory:", consent=True
            )
            telemetry.color.record("marker")
            telemetry.color.record("marker")
            telemetry.flush(10)
            telemetry.close()
    said = capsys.readouterr().err
    assert (
        said.splitlines()
        == ["dither: color: recorded", "dither: color: answered", "dither: an upload of 1 report: accepted"] * 2
    )
    assert "marker" not in said


def test_without_a_handler_of_the_apps_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("dither").handlers)
    telemetry = dither.start(registry(), endpoint="nowhere", key="k", consent=True)
    telemetry.close()
    assert capsys.readouterr() == ("", "")
