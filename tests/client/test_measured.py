"""Metrics that the device answers itself, as an app meets them."""

import asyncio
from pathlib import Path

import pytest

import dither
from dither.cli import main
from dither.commands.metrics.diff import compare
from dither.commands.metrics.docs import page
from dither.telemetry import NANOSECONDS, OwnUse
from dither.terms_sentences import terms_of
from dither.testing.offline_telemetry import TelemetryForTests
from dither.writing import to_markdown
from dither_shared.errors import InvalidAnswer
from dither_shared.measures import TIME_UNITS
from dither_shared.registry import Registry
from tests.support.measured import measured, measured_text

HIDDEN = """
[metric.secret]
rev = 1
kind = "flag"
question = "Secret?"
epsilon = 1
reports = 100
schedule = "early"
presence = "hidden"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = 2027-06-30
"""


def waiting(telemetry: TelemetryForTests) -> set[str]:
    """Return the metrics of which a report waits."""
    return set(telemetry.preview().cost)


def test_active_answers_what_the_device_measures() -> None:
    with TelemetryForTests(measured()) as telemetry:
        assert waiting(telemetry) == set()
        telemetry.active()
        assert waiting(telemetry) == {"weeks", "since"}  # it cannot know yet what it did in the period before
        assert telemetry.recorded() == []


def test_any_answer_that_is_recorded_is_a_use() -> None:
    with TelemetryForTests(measured("theme", "weeks")) as telemetry:
        telemetry.theme.record("dark")
        telemetry.theme.record("light")  # of this period no answer counts any more; it was a use all the same
        assert waiting(telemetry) == {"theme", "weeks"}


def test_an_answer_whose_presence_is_hidden_is_no_use() -> None:
    """Else the file, and a report that waits, would tell that there was one."""
    registry = Registry.parse(measured_text("back") + HIDDEN)
    with TelemetryForTests(registry) as telemetry:
        telemetry.secret.record(True)
        assert waiting(telemetry) == set()
        device = telemetry._session.device
        assert device is not None
        with device._file.peek():
            assert device._file.execute("SELECT * FROM used_days").fetchone() is None


def test_a_session_is_measured_in_the_metrics_unit_and_is_a_use(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = iter((0, 90 * 10**9))
    monkeypatch.setattr("dither.telemetry.time.perf_counter_ns", lambda: next(passed))
    with TelemetryForTests(measured("lasts", "weeks")) as telemetry:
        with pytest.raises(KeyError), telemetry.session():
            raise KeyError
        (recorded,) = telemetry.recorded()
        assert (recorded.metric, recorded.answer, recorded.silence) == ("lasts", 90, "")
        assert waiting(telemetry) == {"lasts", "weeks"}


def test_there_is_nothing_to_record_of_what_the_device_measures() -> None:
    with TelemetryForTests(measured("weeks")) as telemetry:
        assert type(telemetry.weeks) is OwnUse
        assert telemetry.flush().detail == (
            "nothing to send: weeks: unused (the device itself answers, once it was used, or has kept days for a whole "
            "period): call telemetry.active(), or session() where it measures one"
        )
        with pytest.raises(InvalidAnswer, match=r"weeks is answered by the device itself: call telemetry\.active"):
            telemetry.weeks.record(3)  # type: ignore[arg-type]  # a type checker refuses it, too
        assert waiting(telemetry) == set()


def test_a_session_of_an_async_function_lasts_until_it_was_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("dither.telemetry.time.perf_counter_ns", lambda: now)
    with TelemetryForTests(measured("lasts")) as telemetry:

        @telemetry.session()
        async def work() -> int:
            nonlocal now
            await asyncio.sleep(0)
            now += 30 * 10**9
            return 7

        assert asyncio.run(work()) == 7
        assert [recorded.answer for recorded in telemetry.recorded()] == [30]


def test_a_session_that_began_before_consent_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.toml").write_text(measured_text("lasts"), encoding="utf-8")
    monkeypatch.setenv("DITHER_TELEMETRY", "1")
    with dither.start(
        tmp_path / "metrics.toml", endpoint="http://127.0.0.1:9", key="k" * 43, data_dir=tmp_path / "data"
    ) as telemetry:
        with telemetry.session():
            assert telemetry.set_consent(True)
        telemetry.lasts.record(3)  # the device answers: it is said in the log, and reaches neither report nor app
        assert telemetry.status().waiting == 0
        with telemetry.session():
            pass
        assert telemetry.status().waiting == 1


@pytest.mark.parametrize("consent", [None, False])
def test_nothing_is_kept_before_consent(tmp_path: Path, consent: bool | None) -> None:
    (tmp_path / "metrics.toml").write_text(measured_text(), encoding="utf-8")
    with dither.start(
        tmp_path / "metrics.toml",
        endpoint="http://127.0.0.1:9",
        key="k" * 43,
        data_dir=tmp_path / "data",
        consent=consent,
    ) as telemetry:
        telemetry.active()
        with telemetry.session():
            pass
    assert not (tmp_path / "data").exists()


def test_a_session_may_be_measured_in_every_unit_of_time() -> None:
    assert tuple(NANOSECONDS) == TIME_UNITS


def test_terms_say_what_is_kept_and_what_a_report_tells() -> None:
    sentences = [str(sentence) for sentence in terms_of(measured("back", "lasts")) if sentence.metric == "back"]
    assert "Your device itself works out whether it was used in the period before, too." in sentences
    assert "For that it keeps the day of first use, and which of the last 62 days had use." in sentences
    assert "That a report comes tells that the app was used in these 7 days." in sentences
    since = [str(sentence) for sentence in terms_of(measured("since"))]
    assert "First used means: after you first agreed to telemetry of this app." in since
    assert not any("answer changes" in sentence for sentence in since)
    lasts = [str(sentence) for sentence in terms_of(measured("lasts"))]
    assert not any("62" in sentence for sentence in lasts)


def test_the_page_for_users_does_not_contradict_itself() -> None:
    told = to_markdown(page(measured("back", "since", "lasts")))
    assert "should tell nothing about you" not in told
    assert "answer changes" not in told
    assert told.count("That a report comes tells that the app was used in that period.") == 3
    assert "First used means: after you first agreed" in told
    assert "should tell nothing about you" in to_markdown(page(measured("theme")))


def test_what_a_quiet_device_drops_is_no_matter_of_what_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.toml").write_text(measured_text("since", quiet_days=1), encoding="utf-8")
    main(["metrics", "check", str(tmp_path / "metrics.toml")])
    shown = capsys.readouterr().out
    assert "record it on a later day" not in shown
    assert "e^1000 is more than a million : 1" in shown


def test_what_is_no_longer_measured_needs_another_rev() -> None:
    before = measured("back")
    after = Registry.parse(measured_text("back").replace('measures = "returned"\n', ""))
    said = "measures changes from returned to none; under the same rev: give it rev 2"
    assert [remark.detail for remark in compare(before, after) if remark.what == "meaning"] == [said]
