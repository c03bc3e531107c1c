"""`dither metrics check`: what it says of metrics that expire."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.registry import utc_today
from tests.support.examples import EXAMPLES
from tests.support.registries import registry_text


def written(directory: Path, expires: date) -> str:
    """Write a registry of two metrics, of which `dark` expires on that day and `color` in 180 days."""
    text = registry_text(expires=utc_today() + timedelta(days=180))
    first, name, rest = text.partition("[metric.dark]")
    rest = rest.replace(str(utc_today() + timedelta(days=180)), str(expires))
    path = directory / "metrics.toml"
    path.write_text(first + name + rest, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("days", "code"), [(-1, 1), (59, 1), (60, 1), (61, 0)])
def test_a_metric_that_expires_within_so_many_days_is_named_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, code: int
) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=days))
    assert main(["metrics", "check", path]) == (days < 0)
    capsys.readouterr()
    assert main(["metrics", "check", path, "--expires-within", "60d"]) == code
    shown = capsys.readouterr().out
    assert ("within 60 days dark will have expired" in shown) == bool(code)
    assert (f"expires soon: dark on {utc_today() + timedelta(days=days)}, in {days} days" in shown) == (
        days in (59, 60)
    )
    assert main(["metrics", "check", path, "--expires-within", "60d", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["expires_soon"] == ["dark"] * code


def test_without_being_asked_nothing_expires_too_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=1))
    assert main(["metrics", "check", path, "--json"]) == 0
    assert "expires_soon" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("days", [-1, 0])
def test_a_metric_that_has_expired_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int) -> None:
    path = written(tmp_path, day := utc_today() + timedelta(days=days))
    assert main(["metrics", "check", path]) == 1
    shown = capsys.readouterr().out
    assert f"expired: dark on {day}: devices are silent about it\n" in shown
    assert "of dark nothing arrives any more: ship a later date" in shown
    assert main(["metrics", "check", path, "--json"]) == 1


def certain(directory: Path, *, device_epsilon: str, epsilon: str, reports: int, known: str = "", **more: str) -> str:
    path = directory / "metrics.toml"
    text = registry_text(device_epsilon=device_epsilon, epsilon=epsilon, reports=reports, **more)  # type: ignore[arg-type]
    path.write_text(text.replace("[registry]\n", f"[registry]\n{known}"), encoding="utf-8")
    return str(path)


def test_it_says_what_guesses_of_one_in_two_and_of_one_in_ten_may_become(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """e : 1 is 73.1 % of 1 : 1 and 23.2 % of 1 : 9, e^2 : 1 is 88.1 % and 45.1 %, e^4 : 1 98.3 % and 85.9 %."""
    path = certain(tmp_path, device_epsilon="4", epsilon="1", reports=2)
    assert main(["metrics", "check", path, "--strict"]) == 0
    shown = capsys.readouterr().out
    one, two, four = (
        f"a guess of one in two is at most {even} % sure, one of one in ten {tenth} %\n"
        for even, tenth in (("73.2", "23.2"), ("88.1", "45.1"), ("98.3", "85.9"))
    )
    assert shown.count(f"  after one report {one}") == 2
    assert shown.count(f"  after all reports about it {two}") == 2
    assert shown.count(f"one device: after all reports about all questions {four}") == 1
    assert "note:" not in shown
    assert main(["metrics", "check", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["sure_device"], document["sure_device_of_one_in_ten"]) == (0.982014, 0.858487)
    assert (document["metrics"][0]["sure_report"], document["metrics"][0]["sure_lifetime"]) == (0.731059, 0.880798)
    assert document["certainties"] == []


@pytest.mark.parametrize(
    ("device_epsilon", "epsilon", "reports", "notes"),
    [
        ("4.59", "2.29", 1, []),  # e^4.59 : 1 is just below 99 %
        ("4.6", "2.3", 1, ["one device: after all reports about all questions an even guess may be 99.1 % sure"]),
        ("4.59", "2.0", 1, []),
        (
            "6",
            "3",
            1,
            [
                "color: after one report an even guess may be 95.3 % sure, above 95 %: epsilon 3, and e^3 is 20 : 1",
                "dark: after one report an even guess may be 95.3 % sure, above 95 %: epsilon 3, and e^3 is 20 : 1",
                "one device: after all reports about all questions an even guess may be 99.8 % sure",
            ],
        ),
        (
            "12",
            "1",
            6,
            [
                "color: after all reports about it an even guess may be 99.8 % sure, above 99 %: "
                "6 reports x epsilon 1 = 6, and e^6 is 403 : 1",
                "dark: after all",
                "one device: after all reports about all questions an even guess may be 99.9994 % sure, above 99 %: "
                "device_epsilon 12, and e^12 is 162,755 : 1",
            ],
        ),
    ],
)
def test_a_guess_that_becomes_nearly_certain_is_a_note_and_strictly_a_finding_unless_it_is_known(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    device_epsilon: str,
    epsilon: str,
    reports: int,
    notes: list[str],
) -> None:
    for known in ("", "nearly_certain = false\n", "nearly_certain = true\n"):
        path = certain(tmp_path, device_epsilon=device_epsilon, epsilon=epsilon, reports=reports, known=known)
        unknown = bool(notes) and "true" not in known
        assert main(["metrics", "check", path]) == 0
        assert main(["metrics", "check", path, "--strict"]) == unknown
        said = [line.removeprefix("note: ") for line in capsys.readouterr().out.splitlines() if line.startswith("note")]
        assert len(said) == 2 * len(notes)
        assert all(line.startswith(note) for line, note in zip(said, notes * 2, strict=True))
        assert main(["metrics", "check", path, "--strict", "--json"]) == unknown
        document = json.loads(capsys.readouterr().out)
        assert (document["certainties"], document["nearly_certain"]) == (said[: len(notes)], "true" in known)


def test_all_reports_of_a_memoized_answer_have_a_line_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = certain(
        tmp_path, device_epsilon="16", epsilon="1", reports=1, epsilon_permanent="4", known="linkable = true\n"
    )
    assert main(["metrics", "check", path]) == 0
    shown = capsys.readouterr().out
    assert shown.count("  after all reports of one answer a guess of one in two is at most 98.3 % sure") == 2
    assert "2 different answers x epsilon_permanent 4 = 8, and e^8 is 2,981 : 1" in shown


def test_a_compiled_registry_keeps_what_is_known(tmp_path: Path) -> None:
    for known in ("", "nearly_certain = true\n"):
        path = certain(tmp_path, device_epsilon="12", epsilon="1", reports=6, known=known)
        compiled = str(tmp_path / "metrics.json")
        assert main(["metrics", "compile", path, "--out", compiled]) == 0
        assert main(["metrics", "check", compiled, "--strict"]) == (not known)


@pytest.mark.parametrize("app", ["celery_app", "cli_app", "desktop_app", "django_app", "fastapi_app", "flask_app"])
def test_our_examples_pass_the_strict_check(app: str) -> None:
    assert main(["metrics", "check", str(EXAMPLES / app / "metrics.toml"), "--strict"]) == 0


def test_dates_and_lasting_noise_that_are_refused_are_said_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.toml"
    values = ", ".join(f'"v{number}"' for number in range(300))
    text = registry_text(
        device_epsilon="16", epsilon="1", epsilon_permanent="4", expires=utc_today() + timedelta(days=400)
    ).replace('"red", "green", "blue"', values)
    path.write_text(text, encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert ("metric.color: expires" in first, "metric.dark: expires" in second) == (True, True)
    assert "R(200) must be at most 0.25" in third


@pytest.mark.parametrize("days", ["60", "0d", "-1d", "2 months", "10000d"])
def test_what_is_no_number_of_days_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=1))
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "check", path, f"--expires-within={days}"])
    assert ended.value.code == 2
    assert "--expires-within: must be 1d to 9999d, got" in capsys.readouterr().err


def test_a_list_that_no_metric_names_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(written(tmp_path, utc_today() + timedelta(days=180)))
    path.write_text(path.read_text(encoding="utf-8") + '\n[values.spare]\nvalues = ["x"]\n', encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    assert "note: nothing names the list [values.spare]\n" in capsys.readouterr().out
    assert main(["metrics", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unused_lists"] == ["spare"]
