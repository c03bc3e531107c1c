"""`--installs`: the same figures of a check, of `dither privacy` and of a new registry."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dither.cli import main
from dither_aggregator.analysis.installs import Installs, outlook_of
from dither_shared.registry import Registry, utc_today
from tests.support.registries import registry_text

CHOOSING = (Path(__file__).parents[2] / "shared" / "choosing.md").read_text(encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> str:
    text = registry_text(
        epsilon="1",
        reports=2,
        schedule="spread",
        device_epsilon="4",
        quiet_days=1,
        expires=utc_today() + timedelta(days=365),
    )
    (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
    return str(tmp_path / "metrics.toml")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def test_check_and_privacy_say_the_same(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    crowd = ["--installs", "5000", "--on", "50%", "--stay", "80"]
    checked, privacy = (said(capsys, *command, path, *crowd) for command in (["metrics", "check"], ["privacy"]))
    begin = "with 5,000 installs, telemetry on in 50 % of them, of which 80 % are there a month later:\n"
    shown = checked[checked.index(begin) : checked.index("reports are averages")]
    assert shown in privacy
    registry = Registry.load(path)
    now = outlook_of(registry.metrics["color"], Installs(5000, 0.5, 0.8), registry.quiet_days)
    reports, shares = (
        ", ".join(f"{written(shown)} in {name}" for name, shown in now.windows.items())
        for written in (lambda shown: f"{shown.reports:,.0f}", str)
    )
    assert f"color: reports: {reports}\n  detectable share: {shares}\n  a share near one half: +- " in shown
    assert f" from 1.4 times that\n  {now.verdict}\n" in shown
    assert "  reports = 4: a week " in shown
    assert "a guess may become 98.3 % sure over a life, not 88.1 %\n" in shown
    documents = [
        json.loads(said(capsys, *command, path, *crowd, "--json"))
        for command in (["metrics", "check"], ["privacy"], ["privacy", "--metric", "color"])
    ]
    of_color = documents[0]["installs"][0]
    assert of_color == documents[1][0]["installs"] == documents[2][0]["installs"]
    assert (of_color["metric"], of_color["installs_needed"]) == ("color", now.needed)
    assert of_color["week"]["reports"] == pytest.approx(now.week.reports, abs=1e-3)
    assert [change["lines"] for change in of_color["changes"]][:2] == ["reports = 4", 'schedule = "early"']


def test_without_installs_nothing_is_said_of_them(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "metrics", "check", path) + said(capsys, "privacy", path, "--json")
    assert "a week" not in shown
    assert '"installs"' not in shown


def test_too_few_installs_are_told_what_would_help(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "metrics", "check", path, "--installs", "60")
    assert "  useless with so few installs, even if a year is read as one: " in shown
    assert "  what would help: epsilon = 2\n" in shown
    least = said(capsys, "metrics", "check", path, "--installs", "1")
    assert "what would help: to ask for less: fewer values, or a flag\n" in least
    assert "useless" not in said(capsys, "metrics", "check", path, "--installs", "1000000")


@pytest.mark.parametrize(
    ("kind", "help_"),
    [
        ("words", 'a list: kind = "text" with candidates, or better "choice" or "choices" with values'),
        ("text", 'a short list: kind = "choice" or "choices" with values'),
        ("number", 'asks = ["mean"]'),
        ("flag", "more installs, or to read what you count anyway"),
    ],
)
def test_each_kind_is_told_what_less_it_may_ask(
    kind: str, help_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "metrics.toml")
    shown = said(capsys, "metrics", "new", path, "--app", "notes", "--metric", f"a={kind}", "--installs", "2")
    assert f"  what would help: {help_}\n" in shown


@pytest.mark.parametrize(("crowd", "few"), [(["999"], True), (["1000"], False), (["1999", "--on", "50"], True)])
def test_few_installs_are_told_to_use_something_else(
    crowd: list[str], few: bool, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "at fewer than about 1,000 installs use something else for everything but one or two flags"
    new = ["metrics", "new", str(tmp_path / "new.toml"), "--app", "notes"]
    for command in (["metrics", "check", path], new):
        assert (line in said(capsys, *command, "--installs", *crowd)) is few
    assert f"**{line[0].upper()}{line[1 : line.index(' for ')]}**" in CHOOSING


def test_a_mean_is_told_in_its_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.toml"
    said(capsys, "metrics", "new", str(path), "--app", "notes", "--metric", "a=number")
    text = path.read_text(encoding="utf-8")
    mean = text.replace('buckets = 32\nscale = "log"', 'asks = ["mean"]').replace("low = 1\n", "low = 0\n")
    path.write_text(mean, encoding="utf-8")
    registry = Registry.load(path)
    week = outlook_of(registry.metrics["a"], Installs(10**6), registry.quiet_days).week.told
    assert week
    begin = f"  the mean of 0 to 10,000 ms: +- {float(f'{5_000 * week.part:.2g}'):g} in a week, +- "
    shown = said(capsys, "metrics", "check", str(path), "--installs", "1M")
    assert begin in shown
    assert "hold together" not in shown
    path.write_text(text, encoding="utf-8")
    whole = said(capsys, "metrics", "check", str(path), "--installs", "1M")
    assert "; a page has 9 intervals that hold together, with noise 1.4 times as wide\n" in whole
    none = said(capsys, "metrics", "check", str(path), "--installs", "1000")
    assert "  the mean of 1 to 10,000 ms: nothing in a week, nothing in a quarter" in none


def test_a_new_registry_is_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "metrics.toml")
    shown = said(capsys, "metrics", "new", path, "--app", "notes", "--metric", "a=flag", "--installs", "2000")
    assert shown[: shown.index("reports are averages")] in said(capsys, "metrics", "check", path, "--installs", "2000")


@pytest.mark.parametrize(("kind", "stands_in"), [("flag", False), ("choice", True), ("number", True)])
def test_a_new_registry_s_figures_are_said_to_be_of_what_stands_in(
    kind: str, stands_in: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "metrics.toml")
    shown = said(capsys, "metrics", "new", path, "--app", "notes", "--metric", f"a={kind}", "--installs", "2000")
    assert ("these figures are of the values that stand in the file for yours: " in shown) is stands_in


def test_a_compiled_registry_has_figures_and_no_changes(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = f"{path.removesuffix('.toml')}.json"
    assert main(["metrics", "compile", path, "--out", compiled]) == 0
    capsys.readouterr()
    of_both = [
        json.loads(said(capsys, "privacy", each, "--installs", "5000", "--json"))[0]["installs"]
        for each in (path, compiled)
    ]
    assert of_both[0]["changes"]
    assert not of_both[1]["changes"]
    assert of_both[0] | {"changes": [], "advice": []} == of_both[1]


@pytest.mark.parametrize("written", ["2000", "2_000", "2,000", "2k", "2K", "2.0k", "0.002M"])
def test_a_number_is_written_as_people_do(written: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "with 2,000 installs:\n" in said(capsys, "metrics", "check", path, "--installs", written)


def test_the_share_that_is_looked_for_is_judged(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    crowd = ["--installs", "50k", "--smallest"]
    assert "\n  a share of 3 % shows in a quarter, not in a week: " in said(capsys, "privacy", path, *crowd, "3")
    rare = said(capsys, "privacy", path, *crowd, "0.1%")
    assert "\n  a share of 0.1 % does not show with so few installs, even if a year is read as one: " in rare
    assert "  what would help: to ask for less" in rare


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--installs", "0"], "must be a whole number from 1 to"),
        (["--installs", "many"], "must be a whole number from 1 to"),
        (["--installs", "9" * 5000], "must be a whole number from 1 to"),
        (["--installs", "5", "--on", "0"], "must be a percentage above 0 and at most 100, got '0'"),
        (["--installs", "5", "--stay", "nan"], "must be a percentage"),
        (["--installs", "2_00"], "such as 2000, 2_000, 2k or 1.5M, got '2_00'"),
        (["--installs", "1.2345k"], "such as 2000, 2_000, 2k or 1.5M"),
        (["--installs", "1.5"], "must be a whole number"),
        (["--installs", "10001M"], "must be a whole number"),
        (["--installs", "2kk"], "must be a whole number"),
        (["--installs", "5", "--smallest", "0"], "must be a percentage"),
        (["--smallest", "5"], "--smallest is of installs: add --installs 5000"),
        (["--stay", "50"], "--stay is of installs: add --installs 5000"),
        (["--on", "50"], "--on is of installs: add --installs 5000"),
    ],
)
@pytest.mark.parametrize("command", [["metrics", "check"], ["privacy"]])
def test_installs_that_cannot_be_are_refused(
    command: list[str], arguments: list[str], message: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*command, path, *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert message in capsys.readouterr().err
