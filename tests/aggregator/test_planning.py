"""Planning: what is computed agrees with what a metric's page tells, and with simulated tallies."""

import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from html import unescape
from itertools import pairwise
from pathlib import Path
from re import DOTALL, findall, sub
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from flask.testing import FlaskClient

from dither.cli import main
from dither_aggregator.analysis import planning
from dither_aggregator.analysis.installs import Installs, outlook_of
from dither_aggregator.analysis.planning import (
    TEXT,
    WORDS,
    Planned,
    Question,
    ShareQuestion,
    TableQuestion,
    TextQuestion,
    Unplannable,
    neighbours,
    plan,
    registry_lines,
)
from dither_aggregator.analysis.planning_numbers import NumberQuestion
from dither_aggregator.analysis.pure import estimate_shares, significance_shares
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import POWER, detectable_share
from dither_shared.registry import Registry, utc_today
from dither_shared.words.groups import PROPOSED
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.registries import registry
from tests.support.sites import site
from tests.support.soaking import scaled, thinned

TALLIES = 200_000
SIGMAS_5 = 5 * (POWER * (1 - POWER) / TALLIES) ** 0.5

QUESTIONS = {
    "flag": (ShareQuestion("flag", 2), 3_000, "1"),
    "few values": (ShareQuestion("choice", 30), 12_000, "1"),
    "few counts": (ShareQuestion("choice", 300), 2_000, "10"),
    "many values": (ShareQuestion("choice", 50_001), 200_000, "2"),
    "choices": (ShareQuestion("choices", 40, ticks=3), 20_000, "2"),
    "memoized, one day": (ShareQuestion("choice", 40, epsilon_permanent=Decimal(3)), 20_000, "1.5"),
}


def mechanism_of(planned: Planned[ShareQuestion]) -> PureMechanism:
    return PureMechanism.of(planned.cells.mechanism)


def seen(planned: Planned[ShareQuestion], share: float) -> float:
    """Return how often a value with a true share stands out, by the intervals that pages show."""
    p, q = float(mechanism_of(planned).p), float(mechanism_of(planned).q)
    counts = np.random.default_rng(7).binomial(planned.n, q + share * (p - q), TALLIES)
    return float((estimate_shares(mechanism_of(planned), counts, planned.n, simultaneous=True).lower > 0).mean())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_value_of_the_detectable_share_stands_out_four_times_in_five(name: str) -> None:
    """200,000 tallies of a random sample of devices, seeded: 80 % within 5 sigma, 0.0045; false alarms 6e-7."""
    question, n, epsilon = QUESTIONS[name]
    planned = plan(question, n, Decimal(epsilon), None)
    assert planned.target is not None
    assert seen(planned, planned.target) == pytest.approx(POWER, abs=SIGMAS_5)


def test_a_detectable_share_by_the_normal_law_would_be_seen() -> None:
    question, n, epsilon = QUESTIONS["few counts"]
    planned = plan(question, n, Decimal(epsilon), None)
    assert abs(seen(planned, detectable_share(mechanism_of(planned), planned.question.d, n)) - POWER) > 10 * SIGMAS_5


# Two given, of every kind of question.

RANGES, MEMOIZED = NumberQuestion("number", 64), NumberQuestion("number", 16, days=7, epsilon_permanent=Decimal(4))
THREE_ARMS = TableQuestion("table", 3, arms=3)
OTHERS: dict[str, tuple[Question, int, str]] = {
    "ranges": (RANGES, 200_000, "1"),
    "memoized number": (MEMOIZED, 200_000, "1"),
    "mean": (NumberQuestion("number", 30, mean_alone=True), 200_000, "1"),
    "flags": (TableQuestion("table", 2), 200_000, "1"),
    "three arms": (THREE_ARMS, 200_000, "1"),
    "geometry": (TableQuestion("table", 30, columns=2), 200_000, "1"),
    "text": (TextQuestion(TEXT, 100), 100_000, "2"),
    "words": (TextQuestion(WORDS, PROPOSED), 100_000, "2"),
}
EVERY: dict[str, tuple[Question, int, str]] = {**QUESTIONS, **OTHERS}
Targets = dict[type[Question], tuple[float, ...]]
TARGETS: Targets = {
    ShareQuestion: (0.2, 0.03, 0.004),
    NumberQuestion: (0.3, 0.22, 0.18),
    TableQuestion: (0.4, 0.1, 0.01),
    TextQuestion: (0.2, 0.01, 0.001),
}
"""Shares, widths and effects that reports are computed for, at these epsilons."""
LARGER: Targets = {
    ShareQuestion: (0.5, 0.2, 0.1),
    NumberQuestion: (0.3, 0.22, 0.18),
    TableQuestion: (0.3, 0.1, 0.03),
    TextQuestion: (0.02,),
}
"""The same that an epsilon is computed for, of so many reports."""


@pytest.mark.parametrize("name", EVERY)
def test_the_reports_that_are_computed_reach_the_target_and_one_less_does_not(name: str) -> None:
    question, _, epsilon = EVERY[name]
    for target in TARGETS[type(question)]:
        planned = plan(question, None, Decimal(epsilon), target)
        assert (planned.computed, planned.target) == ("n", plan(question, planned.n, Decimal(epsilon), None).target)
        assert planned.target is not None
        assert planned.target <= target
        less = plan(question, planned.n - 1, Decimal(epsilon), None).target
        assert less is None or less > target


@pytest.mark.parametrize("name", EVERY)
def test_the_epsilon_that_is_computed_reaches_the_target_and_the_step_before_does_not(name: str) -> None:
    question, n, _ = EVERY[name]
    for target in LARGER[type(question)]:
        planned = plan(question, n, None, target)
        assert planned.computed == "epsilon"
        assert planned.target is not None
        assert planned.target <= target
        less = plan(question, n, planned.epsilon - Decimal("0.01"), None).target
        assert less is None or less > target


@pytest.mark.parametrize("question", [ShareQuestion("choice", 30), RANGES, THREE_ARMS])
def test_neighbours_have_half_and_twice_as_much(question: Question) -> None:
    planned = plan(question, 60_000, Decimal(1), None)
    around = {(each.n, each.epsilon): each.target for each in neighbours(planned)}
    epsilons = (Decimal(1), Decimal(1), Decimal(1), Decimal("0.50"), Decimal(2))
    assert list(around) == list(zip((30_000, 60_000, 120_000, 60_000, 60_000), epsilons, strict=True))
    assert around[60_000, Decimal(1)] == planned.target


def test_a_neighbours_epsilon_is_one_that_a_registry_takes() -> None:
    assert neighbours(plan(ShareQuestion("choice", 30), 12_000, Decimal("15.5"), None))[-1].epsilon == Decimal("7.75")
    memoized = plan(ShareQuestion("choice", 30, epsilon_permanent=Decimal(2)), 12_000, Decimal("1.2"), None)
    assert [each.epsilon for each in neighbours(memoized)][-1] == Decimal("0.60")


def test_more_reports_than_were_computed_show_the_share_too() -> None:
    """Each further count that must be passed undoes a part of the gain of more reports, if few are expected.

    Between the numbers that were tried up to 3 % more than the share may be needed.
    """
    question, _, epsilon = QUESTIONS["few counts"]
    undone = 0
    for share in np.geomspace(0.005, 0.2, 12):
        planned = plan(question, None, Decimal(epsilon), float(share))
        sizes = range(planned.n, 2 * planned.n, max(planned.n // scaled(50, 300), 1))
        needed = [significance_shares(mechanism_of(planned), n)[1] or 2.0 for n in sizes]
        assert max(needed) <= 1.03 * share
        undone += any(later > former for former, later in pairwise(needed))
    assert undone


def test_memoized_noise_that_comes_again_takes_more_reports() -> None:
    one, week = (
        plan(ShareQuestion("choice", 40, epsilon_permanent=Decimal(2), days=days), None, Decimal(1), 0.05)
        for days in (1, 7)
    )
    assert week.n > 1.5 * one.n
    assert (one.question.repeats, week.question.repeats) == (1, 4)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_lines_compile_to_the_mechanism_that_is_shown(name: str, tmp_path: Path) -> None:
    question, n, epsilon = QUESTIONS[name]
    planned = plan(question, n, Decimal(epsilon), None)
    (tmp_path / "values.txt").write_text("".join(f"value {number}\n" for number in range(1, question.d)))
    parsed = Registry.parse(
        registry_lines(planned, "example", planned.question.life(utc_today() + timedelta(days=180))), directory=tmp_path
    )
    parsed.check_dates(utc_today())
    (metric,) = parsed.metrics.values()
    assert metric.mechanism == mechanism_of(planned)
    assert metric.d == question.d
    assert metric.kind is KINDS[question.kind]
    assert metric.epsilon == planned.epsilon


@pytest.mark.parametrize(
    ("question", "asked", "detail"),
    [
        (ShareQuestion, {"kind": "text", "d": 30}, "the kind must be one of choice, choices, flag, got text"),
        (ShareQuestion, {"kind": "choice", "d": 1}, "d must be from 2 to 65,536, and 2 of a flag, got 1"),
        (ShareQuestion, {"kind": "flag", "d": 3}, "got 3"),
        (ShareQuestion, {"kind": "choices", "d": 4}, "ticks are of choices, and choices need them"),
        (ShareQuestion, {"kind": "choices", "d": 4, "ticks": 5}, "ticks must be from 2 to 4, got 5"),
        (ShareQuestion, {"kind": "choice", "d": 4, "epsilon_permanent": Decimal(21)}, "at most 20, got 21"),
        (NumberQuestion, {"kind": "choice", "d": 30}, "the kind must be number, got choice"),
        (NumberQuestion, {"kind": "number", "d": 1}, "d must be from 2 to 256 for a number, got 1"),
        (NumberQuestion, {"kind": "number", "d": 257}, "d must be from 2 to 256 for a number, got 257"),
        (
            NumberQuestion,
            {"kind": "number", "d": 12, "epsilon_permanent": Decimal(2)},
            "d must be 2, 4, 8 or 16 for a memoized number, a cohort each",
        ),
        (
            NumberQuestion,
            {"kind": "number", "d": 8, "epsilon_permanent": Decimal(2), "mean_alone": True},
            "a memoized number is asked everything",
        ),
        (NumberQuestion, {"kind": "number", "d": 8, "epsilon_permanent": Decimal(21)}, "at most 20, got 21"),
        (TableQuestion, {"kind": "choice", "d": 3}, "the kind must be table, got choice"),
        (TableQuestion, {"kind": "table", "d": 65}, "d must be from 2 to 64 for a column of a table, got 65"),
        (TableQuestion, {"kind": "table", "d": 3, "columns": 17}, "columns must be from 2 to 16, got 17"),
        (TableQuestion, {"kind": "table", "d": 3, "arms": 17}, "arms must be from 2 to 16, got 17"),
        (
            TableQuestion,
            {"kind": "table", "d": 3, "epsilon_permanent": Decimal(2)},
            "epsilon_permanent must be left out of a table",
        ),
    ],
)
def test_what_is_no_metric_is_refused(question: type[Question], asked: dict[str, Any], detail: str) -> None:
    with pytest.raises(Unplannable, match=detail):
        question(**asked)


# The page.


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with sqlite_store(registry(), tmp_path_factory.mktemp("planning")) as store:
        yield operators_app(store).test_client()


def headline(html: str) -> str:
    (text,) = findall(r'<p class="headline">(.*?)</p>', html)
    return unescape(text).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "n=12000&epsilon=1.0",
            "With 12,000 reports at epsilon 1.0, a value that 6.8 % have stands out from the noise",
        ),
        ("epsilon=1.0&share_percent=3", "With 60,379 reports at epsilon 1.0, a value that 3.0 % have stands out"),
        ("n=12000&share_percent=3", "With 12,000 reports at epsilon 1.99, a value that 3.0 % have stands out"),
        ("kind=flag&n=1000&epsilon=1", "a “yes” of 9.7 % is told from zero at least four times in five."),
        (
            "n=3&epsilon=1",
            "With 3 reports at epsilon 1, even a value that everybody has stands out from the noise less",
        ),
        (
            "kind=number&n=12000&epsilon=1.0",
            "the interval of the median is about 19 % of the range wide, that of the mean 9.0 %.",
        ),
        (
            "kind=number&epsilon=1.0&width_percent=10",
            "reports at epsilon 1.0, the interval of the median is about 10.0 % of the range",
        ),
        ("kind=number&n=12000&width_percent=10", "With 12,000 reports at epsilon 2.22, "),
        (
            "kind=number&n=2000&epsilon=1.0",
            "With 2,000 reports at epsilon 1.0, nothing is told: numbers need 3,000 reports.",
        ),
        ("kind=number&n=3000&epsilon=0.1", "nothing is told: how many of them are of numbers is too unsure."),
        (
            "kind=number&d=256&n=3000&epsilon=1",
            "the median is not told: it may lie anywhere in more than a third of the range.",
        ),
        ("kind=number&asks=mean&n=12000&epsilon=1.0", "the mean is told in an interval 3.8 % of the range wide."),
        ("kind=number&asks=mean&d=5000&n=200&epsilon=1.0", "nothing is told: numbers need 300 reports."),
        ("kind=number&d=16&epsilon_permanent=2&days=1&n=90000&epsilon=1.0", "the interval of the median is about 20 %"),
        ("kind=number&n=12000&epsilon=1.0&share_percent=3&ticks=9", "the interval of the median is about 19 %"),
        (
            "kind=table&d=2&n=20000&epsilon=1.0",
            "With 20,000 reports at epsilon 1.0, a difference of 13 points between an arm and",
        ),
        (
            "kind=table&d=2&epsilon=1.0&effect_percent=5",
            "With 125,173 reports at epsilon 1.0, a difference of 5.0 points",
        ),
        (
            "kind=table&d=2&n=1000000&effect_percent=5",
            "With 1,000,000 reports at epsilon 0.37, a difference of 5.0 points",
        ),
        ("kind=table&d=3&arms=3&n=3000&epsilon=4", "no difference between arms is told: 3,168 reports are needed."),
        (
            "kind=table&d=64&n=8000&epsilon=1",
            "even the largest difference between arms is told less than four times in five.",
        ),
        ("kind=table&n=6000000&epsilon=1&share_percent=3&width_percent=9&ticks=9", "a difference of 4.5 points"),
    ],
)
def test_two_given_give_the_third(query: str, says: str, client: FlaskClient) -> None:
    answer = client.get(f"/plan?{query}")
    assert answer.status_code == 200
    assert says in headline(answer.text)
    assert "[metric.planned]" in answer.text
    assert "kind=number" not in query or 'kind = "number"' in unescape(answer.text)
    assert "kind=table" not in query or "columns.column_1 = [" in answer.text


def test_nothing_given_is_a_form_with_an_example_that_can_be_sent(client: FlaskClient) -> None:
    html = client.get("/plan").text
    assert headline(html).startswith("Choose what is asked, and give two of reports, epsilon and what is to be told")
    inputs = dict(findall(r'<input name="(\w+)" value="(.*?)"', html))
    chosen = dict(findall(r'<select name="(\w+)">\s*<option selected>(.*?)</option>', html))
    sent = client.get("/plan", query_string={**inputs, **chosen})
    assert sent.status_code == 200
    assert headline(sent.text).startswith("With 12,000 reports at epsilon 1.0, a value that ")
    assert client.get("/plan", query_string={**inputs, **chosen}).data == sent.data


def figures(html: str) -> tuple[int, int]:
    """Return how many installs the page says that a plan's reports take, in a week and in a year."""
    week, year = findall(r"in a week take ([0-9,]+) installs?, .*?; ([0-9,]+) of them send as many", html)[0]
    return int(week.replace(",", "")), int(year.replace(",", ""))


def test_a_plan_says_how_many_installs_its_reports_take_by_its_own_lines(client: FlaskClient) -> None:
    """365 periods of a day in a year would be 52 weeks of reports; a period of 7 days has 53 of them in the year."""
    html = client.get("/plan?kind=choice&d=30&n=12000&epsilon=1").text
    assert figures(html) == (12_000 * 53, 12_000)
    ten = client.get("/plan?kind=choice&d=30&n=12000&epsilon=1&reports=10&on_percent=50").text
    assert figures(ten) == (12_000 * 53 * 2 / 10, 12_000 * 2 / 10)
    assert "reports = 10  # in a device" in unescape(ten)
    assert "device_epsilon = 10 " in ten


KINDS_ASKED = [
    "kind=flag",
    "kind=choice&d=4",
    "kind=choice&d=300",
    "kind=choices&d=40&ticks=3",
    "kind=text&d=100",
    "kind=words",
    "kind=words&alphabet=cjk",
    "kind=number&d=32",
    "kind=number&d=32&asks=mean",
    "kind=table&d=3",
    "kind=choice&d=4&epsilon_permanent=3&days=1",
]


@pytest.mark.parametrize("kind", thinned(KINDS_ASKED, 2, 3, 4, 6, 7, 9, 10))
def test_installs_stand_for_their_reports_of_a_week_and_the_lines_are_those_that_were_computed_with(
    kind: str, client: FlaskClient
) -> None:
    many = "installs=2000000&reports=4&stay_percent=90"
    html = unescape(client.get(f"/plan?{kind}&epsilon=1&{many}").text)
    lines = findall(r'<pre class="lines"[^>]*>(.*?)</pre>', html, DOTALL)[0]
    for key in ("values", "candidates"):
        number = int((findall(r"&d=(\d+)", kind) or ["0"])[0]) + (key == "candidates")
        lines = sub(rf"{key}_file = .*", f"{key} = {[f'value {place}' for place in range(1, number)]}", lines)
    now = outlook_of(Registry.parse(lines).metrics["planned"], Installs(2_000_000, stay=0.9), 1)
    assert headline(html).startswith(f"With {int(now.week.reports):,} reports at epsilon 1, ")
    assert f"2,000,000 installs: {now.verdict}.</strong>" in html
    assert f"They send {now.week.reports:,.0f} reports a week, {now.quarter.reports:,.0f} a quarter" in html
    assert f" and {now.whole.reports:,.0f} a year" in html
    assert f"</th><td>{now.week}</td><td>{now.quarter}</td><td>{now.whole}</td>" in html
    assert "<code>epsilon = 2" in html
    assert ("reports = 8" in html) == (not now.metric.memoized)


@pytest.mark.parametrize(
    "kind", thinned([each for each in KINDS_ASKED if "d=300" not in each and "text" not in each], 0, 3, 6)
)
def test_the_api_says_of_installs_what_the_command_says_of_its_lines(
    kind: str, client: FlaskClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "installs=2000000&reports=4&stay_percent=90&on_percent=50&smallest_percent=2"
    meta = client.get(f"/v1/plan?{kind}&epsilon=1&{many}").get_json()["meta"]
    path, number = tmp_path / "metrics.toml", int((findall(r"&d=(\d+)", kind) or ["0"])[0])
    values = f"values = {[f'value {place}' for place in range(1, number)]}"
    path.write_text(sub(r"values_file = .*", values, meta["registry"]), encoding="utf-8")
    crowd = ["--installs", "2M", "--on", "50", "--stay", "90", "--smallest", "2"]
    assert main(["metrics", "check", str(path), *crowd, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["installs"]
    assert {"metric": "planned", **meta["installs"]} == said
    assert meta["installs"]["quarter"]["days"] == 91
    html = unescape(client.get(f"/plan?{kind}&epsilon=1&{many}").text)
    assert f"2,000,000 installs: {said['verdict']}.</strong>" in html
    assert all(f"<p>Advice: {line}.</p>" in html for line in said["advice"])


def test_a_plan_without_installs_says_how_many_send_its_reports(client: FlaskClient) -> None:
    query = "kind=choice&d=30&epsilon=1&share_percent=5"
    meta = client.get(f"/v1/plan?{query}").get_json()["meta"]
    assert (meta["installs_week"], meta["installs_year"]) == figures(client.get(f"/plan?{query}").text)
    assert meta["installs"] is None


def test_too_few_installs_are_told_so_on_the_page(client: FlaskClient) -> None:
    html = client.get("/plan?kind=choice&d=30&epsilon=1&installs=100").text
    assert "<strong>100 installs: useless with so few installs, even if a year is read as one: " in html
    none = client.get("/plan?kind=choice&d=30&epsilon=1&installs=10")
    assert none.status_code == 400
    assert headline(none.text) == "10 installs send less than one report a week: ask for more reports."


def test_installs_beside_a_whole_plan_are_set_beside_what_it_takes(client: FlaskClient) -> None:
    html = client.get("/plan?kind=choice&d=30&epsilon=1&share_percent=5&installs=5000").text
    assert headline(html).startswith("With 21,907 reports at epsilon 1")
    assert figures(html) == (21_907 * 53, 21_907)
    assert "5,000 installs: " in html


def test_a_number_that_cannot_be_read_leaves_the_form_as_it_was_typed(client: FlaskClient) -> None:
    answer = client.get("/plan?kind=number&d=75&n=20,000&epsilon=2")
    assert answer.status_code == 400
    assert headline(answer.text) == "n must be a number from 1 to 1000000000000 in digits alone, got '20,000'"
    inputs = dict(findall(r'<input name="(\w+)" value="(.*?)"', answer.text))
    assert inputs == {
        "d": "75",
        "n": "20,000",
        "epsilon": "2",
        "on_percent": "100",
        "reports": "1",
        **dict.fromkeys(("installs", "stay_percent", "smallest_percent"), ""),
        **dict.fromkeys(("epsilon_permanent", "width_percent"), ""),
    }
    assert '<input type="hidden" name="kind" value="number">' in answer.text


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("n=3", "Give two of reports, epsilon and share, and leave the third empty"),
        ("n=3&epsilon=1&share_percent=2", "Give two of reports, epsilon and share, and leave the third empty"),
        ("n=10&share_percent=1", "No epsilon up to 20 lets 10 reports show so small a share"),
        (
            "epsilon=1&share_percent=0.00001",
            "Even 1,000,000,000,000 reports at epsilon 1 do not show so small a share.",
        ),
        ("n=10&epsilon=2&epsilon_permanent=2", "epsilon_permanent must be above epsilon, 2, got 2"),
        ("n=10&share_percent=5&epsilon_permanent=0.01", "epsilon_permanent must be above 0.01"),
        ("n=1000000000001&epsilon=1", "n must be a number from 1 to 1000000000000"),
        ("n=10&epsilon=0.001", "epsilon must be a number from 0.01 to 20"),
        ("n=10&epsilon=1e1", "epsilon must be a number from 0.01 to 20 with at most 6 decimals"),
        ("n=10&share_percent=100.1", "share_percent must be a number from 0.00000001 to 100"),
        ("d=65537&n=10&epsilon=1", "d must be a number from 2 to 65536"),
        ("kind=sketch", "kind must be choice or choices or flag"),
        ("kind=text&n=10&epsilon=1&epsilon_permanent=2", "only fresh texts are planned"),
        ("share=3", "there is no parameter 'share' here"),
        ("kind=number&n=9000", "Give two of reports, epsilon and width, and leave the third empty"),
        ("kind=number&n=9000&share_percent=9", "Give two of reports, epsilon and width, and leave the third empty"),
        ("kind=number&n=2000&width_percent=9", "Fewer than 3,000 reports tell nothing of a number, got 2,000."),
        ("kind=number&n=3000&width_percent=4", "No epsilon up to 20 lets 3,000 reports show so narrow an interval"),
        (
            "kind=number&epsilon=1&width_percent=3",
            "one of the ranges, 3.33 % where d is 30: ask for a wider one, or more ranges (up to 256).",
        ),
        (
            "kind=number&d=16&epsilon=1&epsilon_permanent=3&width_percent=12.5",
            "never narrower than two of the steps, 12.5 % where d is 16: ask for a wider one, or fresh answers",
        ),
        ("kind=number&d=256&epsilon=1&width_percent=0.39", "ask for a wider one, or a low and a high that are closer."),
        ("kind=number&d=8&epsilon=1&epsilon_permanent=3&width_percent=9", "or more steps (up to 16), or fresh answers"),
        ("kind=number&asks=median&n=9000&epsilon=1", "asks must be everything or mean"),
        ("kind=number&n=9000&width_percent=0", "width_percent must be a number from 0.00000001 to 100"),
        ("kind=table&n=9000", "Give two of reports, epsilon and effect, and leave the third empty"),
        ("kind=table&d=2&n=9000&share_percent=9", "Give two of reports, epsilon and effect, and leave the third empty"),
        ("kind=table&d=2&n=600&effect_percent=9", "No epsilon up to 20 lets 600 reports show so small an effect"),
        ("kind=table&d=2&n=9000&effect_percent=1", "No epsilon up to 20 lets 9,000 reports show so small an effect"),
        (
            "kind=table&d=20&columns=16&n=90000&epsilon=1",
            "20,000 in all pairs of them, got 655,360,000,000,000,000,000 and 48,000; plan fewer",
        ),
        ("kind=table&d=2&n=90000&epsilon=1&epsilon_permanent=3", "epsilon_permanent must be left out of a table"),
        ("kind=table&d=2&columns=17&n=90000&epsilon=1", "columns must be a number from 2 to 16"),
        ("kind=table&d=2&arms=1&n=90000&epsilon=1", "arms must be a number from 2 to 16"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(query: str, detail: str, client: FlaskClient) -> None:
    answer = client.get(f"/plan?{query}")
    assert answer.status_code == 400
    assert detail in unescape(answer.text)
    assert "[metric.planned]" not in answer.text


def test_a_plan_tells_what_the_metric_s_page_will(tmp_path: Path) -> None:
    with site(tmp_path, 12, epsilon="2.0") as one:
        one.put(np.array([1_500, *np.full(11, 100)]), np.random.default_rng(1))
        (read,) = findall(
            r"A value that (.*?) have would stand out", one.page().html.replace("\N{NO-BREAK SPACE}", " ")
        )
        planned = headline(one.client.get("/plan?d=12&n=2600&epsilon=2.0").text)
    assert findall(r"a value that (.*?) have stands out", planned) == [read]


def test_the_lines_on_the_page_are_those_that_parse(client: FlaskClient, tmp_path: Path) -> None:
    html = client.get("/plan?kind=choices&d=9&ticks=3&n=12000&epsilon=1.5").text
    (lines,) = findall(r"<pre.*?>(.*?)</pre>", html, DOTALL)
    parsed = Registry.parse(unescape(lines))
    parsed.check_dates(utc_today())
    assert (parsed.app, parsed.metrics["planned"].epsilon) == ("example", Decimal("1.5"))
    assert f"<code>{parsed.metrics['planned'].mechanism.name}</code>" in html


@pytest.mark.parametrize(
    "query",
    [
        "d=50001&epsilon=0.01&share_percent=0.2",
        "d=50001&n=12000000&share_percent=0.001",
        "kind=choices&d=50001&ticks=64&n=1000000000&share_percent=0.3",
        "d=3&epsilon=20&share_percent=0.00005",
    ],
)
def test_a_plan_is_cheap(query: str, client: FlaskClient) -> None:
    """About 3 ms each: at most 100 detectable shares, whatever is asked."""
    with patch.object(planning, "significance_shares", wraps=significance_shares) as counted:
        assert client.get(f"/plan?{query}").status_code == 200
    assert counted.call_count <= 100


def test_lines_for_a_day_are_those_of_the_day() -> None:
    planned = plan(ShareQuestion("flag", 2), 100, Decimal(1), None)
    assert "expires = 2027-03-01" in registry_lines(planned, "example", planned.question.life(date(2027, 3, 1)))


def test_the_form_keeps_what_it_was_given(client: FlaskClient) -> None:
    html = client.get("/plan?kind=number&asks=mean&n=12000&width_percent=5.50").text
    assert '<input name="width_percent" value="5.50"' in html
    assert "<option selected>mean</option>" in html
    assert '<input type="hidden" name="kind" value="number">' in html


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("flag", {"share_percent"}),
        ("choice", {"d", "share_percent"}),
        ("choices", {"d", "ticks", "share_percent"}),
        ("number", {"d", "asks", "width_percent"}),
        ("table", {"d", "columns", "arms", "effect_percent"}),
        ("text", {"d", "share_percent"}),
        ("words", {"alphabet", "share_percent"}),
        ("nothing", {"d", "share_percent"}),
    ],
)
def test_the_form_of_a_kind_has_its_own_fields_alone(client: FlaskClient, kind: str, own: set[str]) -> None:
    html = client.get(f"/plan?kind={kind}").text
    fields = set(findall(r'<(?:input|select) name="(\w+)"', html))
    common = {"epsilon_permanent", "days", "n", "epsilon", "installs", "on_percent", "stay_percent", "reports"}
    assert fields == own | common | {"schedule", "smallest_percent"}
    assert html.count('aria-current="true"') == 1


def test_the_width_that_is_asked_for_is_in_the_answer_of_the_api(client: FlaskClient) -> None:
    answer = client.get("/v1/plan?kind=number&epsilon=1&width_percent=10").get_json()
    meta, (row, *_) = answer["meta"], answer["rows"]
    assert (meta["computed"], meta["share"], meta["width_percent"]) == ("n", None, 10.0)
    assert row["median_width_percent"] == pytest.approx(10, rel=1e-3)
    assert (row["mechanism"], row["d"], row["asks"]) == ("window and pgr", 30, "everything")
    assert (row["noise_floor"], row["critical_share"], row["detectable_share"]) == (None, None, None)
    alone = client.get("/v1/plan?kind=number&asks=mean&n=9000&epsilon=1").get_json()
    assert alone["meta"]["width_percent"] == alone["rows"][0]["mean_width_percent"]
    assert (alone["rows"][0]["d"], alone["rows"][0]["asks"]) == (None, "mean")


@pytest.mark.parametrize(
    "query", ["d=256&n=100000&width_percent=2", "d=256&n=4000&width_percent=0.5", "d=256&epsilon=20&width_percent=0.4"]
)
def test_a_plan_of_a_number_takes_few_designs(query: str, client: FlaskClient) -> None:
    """About 20 ms each, of 256 ranges: at most 30, whatever is asked."""
    with patch.object(NumberQuestion, "_compiled", autospec=True, side_effect=NumberQuestion._compiled) as counted:
        client.get(f"/plan?kind=number&{query}")
    assert 0 < counted.call_count <= 30


def test_the_page_and_the_api_have_the_same_plan_of_a_table(client: FlaskClient) -> None:
    query = "kind=table&d=3&columns=4&arms=3&epsilon=1.5&effect_percent=4"
    html, answer = unescape(client.get(f"/plan?{query}").text), client.get(f"/v1/plan?{query}").get_json()
    meta, (row, *others) = answer["meta"], answer["rows"]
    assert (meta["computed"], meta["share"], meta["width_percent"], meta["effect_percent"]) == ("n", None, None, 4.0)
    assert (row["kind"], row["d"], row["columns"], row["arms"], row["ticks"]) == ("table", 3, 4, 3, None)
    assert row["effect_percent"] == pytest.approx(4, rel=1e-4)
    assert f"With {row['n']:,} reports" in html
    assert meta["registry"] in html
    assert "two columns by lot" in html
    assert len(others) == 5
    assert '<input name="effect_percent" value="4"' in html


@pytest.mark.parametrize("query", ["d=16&n=1000000&effect_percent=5", "d=64&columns=2&arms=16&n=9&effect_percent=5"])
def test_a_plan_of_a_table_takes_few_designs_and_none_twice(query: str, client: FlaskClient) -> None:
    """At most 20, whatever is asked: each is compiled."""
    with patch.object(TableQuestion, "_compiled", autospec=True, side_effect=TableQuestion._compiled) as counted:
        client.get(f"/plan?kind=table&{query}")
    epsilons = [call.args[1] for call in counted.call_args_list]
    assert 0 < len(epsilons) == len(set(epsilons)) <= 20
