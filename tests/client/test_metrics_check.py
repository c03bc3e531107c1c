"""`dither metrics check`: what it says of metrics that expire, and of pages in browsers."""

import json
import random
from datetime import date, timedelta
from pathlib import Path

import pytest

from dither.cli import main
from dither.device.recording import day_number, draw_periods
from dither_shared.registry import Registry, utc_today
from dither_shared.rng import Rng
from dither_shared.terms import Evictions, evictions
from tests.support.examples import EXAMPLES
from tests.support.registries import registry_text
from tests.support.soaking import thinned


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


@pytest.mark.parametrize(("ticks", "noted"), [(2, True), (4, True), (5, False)])
def test_choices_are_told_whose_shares_are_too_low(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ticks: int, noted: bool
) -> None:
    """Its values are four and "other"."""
    path = tmp_path / "metrics.toml"
    assert main(["metrics", "new", str(path), "--app", "notes", "--metric", "used=choices"]) == 0
    text = path.read_text(encoding="utf-8")
    assert (
        "ticks_max = 2  # of an answer with more those listed first count: values listed last then read too low" in text
    )
    path.write_text(text.replace("ticks_max = 2", f"ticks_max = {ticks}"), encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    line = f"note: used: an answer with more than {ticks} values keeps those listed first: the shares of values listed "
    assert (line in capsys.readouterr().out) is noted


@pytest.mark.parametrize(
    ("schedule", "reports", "quiet_days", "noted"),
    [("early", 1, 1, True), ("early", 1, 0, False), ("early", 2, 1, False), ("spread", 1, 1, False)],
)
def test_what_is_asked_once_and_dropped_on_the_first_day_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], schedule: str, reports: int, quiet_days: int, noted: bool
) -> None:
    path = tmp_path / "metrics.toml"
    text = registry_text(schedule=schedule, reports=reports, quiet_days=quiet_days, epsilon="1", device_epsilon="4")
    path.write_text(text, encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    line = "note: color, dark: quiet_days = 1 drops what is recorded on a device's first day; "
    assert (line in capsys.readouterr().out) is noted


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
            "400",
            "1",
            1,
            [
                "one device: after all reports about all questions an even guess may be all but 100 % sure, "
                "above 99 %: device_epsilon 400, and e^400 is more than a million : 1"
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


def test_hidden_presence_says_what_it_does_not_hide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, words = (tmp_path / "metrics.toml", "not hidden is who runs the app in a period, as each device that does")
    for presence, lines in (("hidden", 2), ("public", 0)):  # of both metrics
        path.write_text(registry_text(presence=presence, device_epsilon="90"), encoding="utf-8")
        for command in (["metrics", "check"], ["privacy"]):
            assert main([*command, str(path)]) == 0
            assert capsys.readouterr().out.count(words) == (lines if command[0] == "metrics" else min(lines, 1))


def test_an_answer_that_stays_for_ever_is_said_where_it_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "answers = 1: a device repeats its first answer for ever, also where it has changed; 2 tell one change"
    for answers, said in ((1, True), (2, False)):
        text = registry_text(epsilon="1", epsilon_permanent="2", device_epsilon="9").replace(
            "answers = 2", f"answers = {answers}"
        )
        (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
        assert main(["metrics", "check", str(tmp_path / "metrics.toml")]) == 0
        shown = capsys.readouterr().out
        assert (words in shown) is said
        life = "1 answer" if answers == 1 else "2 different answers"
        assert f"2 an answer, however often it is repeated, and {2 * answers} for life of {life}, plan " in shown


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


# Pages in browsers.


def lived(registry: Registry, visited: int) -> int:
    """Return what is charged in a year of a browser that deletes what was kept, day by day, in micro-epsilon."""
    total, first, last = 0, 0, -1
    charged: dict[str, set[int]] = {}
    for day in range(365):
        if day % (visited + 7) >= visited:
            continue  # away
        if not charged or day - last > 7:  # the storage has gone
            first, charged = day, {name: set() for name in registry.metrics}
        last = day
        for name, metric in registry.metrics.items():
            new = day // metric.period_days not in charged[name] and len(charged[name]) < metric.charges
            if day - first >= registry.quiet_days and new:
                charged[name].add(day // metric.period_days)
                total += metric.charge
    return total


@pytest.mark.parametrize(("quiet_days", "reports"), thinned([(0, 40), (1, 3), (5, 1)], 1))
def test_a_year_of_evictions_is_what_a_browser_that_deletes_charges_at_most(quiet_days: int, reports: int) -> None:
    asked = Registry.parse(registry_text(device_epsilon="400", quiet_days=quiet_days, reports=reports))
    lives = {visited: lived(asked, visited) for visited in range(1, 366)}
    most = evictions(asked)
    assert most.micro == max(lives.values()) == lives[most.days]
    assert most.devices == -(-365 // (most.days + 7))
    weekly = Registry.parse(registry_text(device_epsilon="400", quiet_days=quiet_days, reports=reports, period="7d"))
    assert evictions(weekly).micro >= max(lived(weekly, visited) for visited in range(1, 366))


def test_drawn_periods_cost_on_average_no_more_with_evictions_than_without() -> None:
    """400 people visit on 2 days in 9: 6 standard errors, one run of 10^8; "early" would be 82 reports each."""
    text = registry_text(device_epsilon="400", reports=10, schedule="spread", expires=date(2027, 6, 30))
    metric, rng = Registry.parse(text).metrics["color"], Rng(random.Random(5).getrandbits)
    first = day_number(date(2026, 6, 30))
    visits = [range(first + life, min(first + life + 2, first + 365)) for life in range(0, 365, 9)]
    people = [sum(len({*draw_periods(metric, rng)}.intersection(days)) for days in visits) for _ in range(400)]
    mean = 10 * sum(map(len, visits)) / 365
    assert abs(sum(people) / 400 - mean) < 6 * (mean / 400) ** 0.5
    assert mean < 10


def test_a_registry_for_pages_is_refused_unless_it_says_that_storage_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.toml"
    text = registry_text(device_epsilon="8.0", quiet_days=1, epsilon="2.0", reports=2)
    path.write_text(text, encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    assert "browser" not in capsys.readouterr().out
    assert main(["metrics", "check", str(path), "--web"]) == 2
    shown = capsys.readouterr().err
    assert "must be at least what a person may be charged in a year" in shown
    assert "296 as 37 devices, got 8.0; ask less, or say evicted = true" in shown
    path.write_text(text.replace("quiet_days", "evicted = true\nquiet_days"), encoding="utf-8")
    assert main(["metrics", "check", str(path), "--web"]) == 0
    shown = capsys.readouterr().out
    assert "a person may be charged 296 in a year, as 37 devices: visits on 3 days, then 7 days away" in shown
    assert main(["metrics", "check", str(path), "--web", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["web"] == {"epsilon": 296.0, "devices": 37, "days": 3}


def test_hidden_metrics_and_missing_quiet_days_are_noted_for_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.toml"
    text = registry_text(quiet_days=0, presence="hidden").replace("quiet_days", "evicted = true\nquiet_days")
    path.write_text(text, encoding="utf-8")
    assert main(["metrics", "check", str(path), "--web"]) == 0
    shown = capsys.readouterr().out
    assert "note: in a browser color, dark says none or an answer only for periods with a visit" in shown
    assert "note: without quiet_days every visit in a private window" in shown


def test_little_for_a_year_of_evictions_needs_no_word(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    text = registry_text(device_epsilon="8.0", quiet_days=1, epsilon="0.05", reports=1)
    path.write_text(text, encoding="utf-8")
    assert evictions(Registry.parse(text)) == Evictions(4_100_000, 41, 2)
    assert main(["metrics", "check", str(path), "--web"]) == 0
