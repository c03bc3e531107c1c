"""Saved questions: who pays for a late one, what moved, and where they are shown."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from scipy.stats import binom

from dither_aggregator.analysis.differences import dashboard_of
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import Computing
from dither_aggregator.ask import answering, dashboard
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.dashboard import intervals_of_fixed, saved_questions
from dither_aggregator.ask.language import Query
from dither_aggregator.health.status import Audit
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store.document_kinds import Dashboard
from dither_aggregator.web.reader_process import reading_app
from dither_shared.registry import Registry
from tests.aggregator.ask.test_asking import BROWSERS, METRICS, World
from tests.support.aggregators import dither, sqlite_store
from tests.support.browsing import served
from tests.support.node import NODE, ROOT
from tests.support.registries import metrics_text
from tests.support.sites import Site, site
from tests.support.soaking import scaled

QUESTIONS = """
[question]
"Dark <b>" = 'share(dark = "yes")'
"First model" = 'share(color = "model 0")'
"Dark by day" = 'share(dark = "yes") by day last 14 days'
"Wrong" = 'share(dark = yes)'
"""
LATE = QUESTIONS + '"Late" = \'share(dark = "no")\''
GRAFANA = ROOT / "deploy" / "monitoring" / "grafana-questions.json"
SELECTORS = ROOT / "tests" / "web" / "vite" / "selectors.js"
DAYS, RUNS = 14, scaled(10, 1_000)
MISSES_MAX = int(binom.isf(1e-6, RUNS, 0.05))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    """Two weeks in which half of the people say yes, and two in three in the second; the models stay."""
    with site(tmp_path, 6) as made:
        Administration(made.store).show(Dashboard.parse(QUESTIONS))
        rng, dark = np.random.default_rng(1), made.store.plans("dark")[0].plan
        for back in range(1, DAYS + 1):
            yes = 4_000 if back <= 7 else 3_000
            made.put(np.array([6_000 - yes, yes]), rng, back, dark)
            made.put(np.array([1_800, 1_800, 1_200, 600, 600, 0]), rng, back)
        yield made


def rows(one: Site) -> dict[str, list[dict[str, Any]]]:
    """Return the API's rows by their title."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in one.client.get("/v1/questions").get_json()["rows"]:
        found.setdefault(row["title"], []).append(row)
    return found


def test_questions_that_were_there_before_any_report_pay_for_their_number_alone(one: Site) -> None:
    assert len(dashboard_of(one.store).fixed) == 4
    assert intervals_of_fixed(Asking(one.store), dashboard_of(one.store)) == 1 + 1 + DAYS + 1
    Administration(one.store).show(Dashboard.parse(LATE))
    found = rows(one)
    assert [found[title][0]["fixed"] for title in ("Dark <b>", "Late")] == [True, False]
    early, late = (found[title][0]["upper"] - found[title][0]["lower"] for title in ("Dark <b>", "Late"))
    assert late > 1.8 * early


def test_a_question_that_is_taken_away_is_counted_still(one: Site) -> None:
    before = rows(one)["Dark <b>"][0]
    Administration(one.store).show(Dashboard.parse('[question]\n"Dark <b>" = \'share(dark = "yes")\''))
    assert rows(one)["Dark <b>"][0]["lower"] == before["lower"]


@pytest.mark.parametrize("step", ["answer", "windows"])
def test_a_question_that_fails_takes_no_other_down(
    one: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    whole = getattr(Asking, step)

    def fails(asking: Asking, question: Query, *rest: object) -> object:
        if question.text == 'share(dark = "yes")':
            raise IndexError(question.text.upper())  # an exception's words may hold what was sent
        return whole(asking, question, *rest)

    monkeypatch.setattr(Asking, step, fails)
    assert "by a fault of the aggregator" in one.client.get("/").text
    assert one.client.get("/changes").status_code == 200
    found = rows(one)
    assert found["Dark <b>"][0]["estimate"] is None
    assert found["First model"][0]["estimate"] is not None
    assert "IndexError" in caplog.text
    assert "SHARE(DARK" not in caplog.text


def test_a_question_of_a_tables_column_is_late_once_the_table_has_reports() -> None:
    text = Dashboard.parse("[question]\nx = 'share(crashed = \"yes\")'\ny = 'mean(load_time)'")
    kept = text.following(Dashboard(), ["stability"], ["crashed", "version"])
    assert kept.fixed == ("mean(load_time)",)


def test_what_moved_is_told_on_the_first_page_and_among_changes(one: Site) -> None:
    found = rows(one)
    assert [found[title][0]["verdict"] for title in ("Dark <b>", "First model", "Dark by day", "Wrong")] == [
        *("rose", "", "", ""),
    ]
    assert found["Dark <b>"][0]["change_lower"] < 1 / 6 < found["Dark <b>"][0]["change_upper"]
    assert found["Dark by day"][0]["change"] is None
    assert "expected a value in double quotes" in found["Wrong"][0]["untold"]
    html = one.client.get("/").text
    cards = re.findall(r'<article class="card">(.*?)</article>', html, re.S)[:4]
    assert "Dark &lt;b&gt;" in cards[0]
    assert re.search(r'class="move">rose by between 1[\d.]+ and [\d.]+\spoints<', cards[0])
    assert 'class="move"' not in cards[1]
    assert 'class="band"' in cards[2]
    assert "This cannot be asked: expected a value" in unescape(cards[3])
    (link,) = re.findall(r'href="(/ask[^"]*)"', cards[0])
    assert one.client.get(unescape(link)).status_code == 200
    changes = one.client.get("/changes").text
    assert re.search(r"Dark &lt;b&gt;</bdi></a> rose by", changes)
    assert "First model" not in changes


def test_monitors_are_told_how_many_moved(one: Site) -> None:
    """The process that computes pages keeps the figure of what readers are told; a server only reads it."""
    assert Audit.of(one.store).questions_moved == 0
    try:
        one.store.keeper = Computing(one.store, lambda made: one.store.keep_readings([made]), alone=True)
        assert reading_app(one.store).test_client().get("/").status_code == 200
    finally:
        one.store.keeper = None
    assert Audit.of(one.store).questions_moved == 1


def test_the_command_tells_what_moved(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(metrics_text(METRICS, device_epsilon=400), encoding="utf-8")
    (tmp_path / "dashboard.toml").write_text("[question]\nDark = 'share(dark = \"yes\")'", encoding="utf-8")
    with sqlite_store(Registry.load(tmp_path / "metrics.toml"), tmp_path / "data") as store:
        Administration(store).show_beside(tmp_path / "metrics.toml")
    asked = dither("ask", "--saved", "--data", tmp_path / "data")
    assert "Dark\nshare(dark = " in asked.stdout
    assert "cannot be told: no report of dark" in asked.stdout
    moved = dither("ask", "--moved", "--data", tmp_path / "data")
    assert (moved.returncode, moved.stdout) == (1, "")
    fleet = dither("ask", "--saved", "--fleet", "--data", tmp_path / "data")
    assert "--fleet and --weights are of a QUESTION" in fleet.stderr


def test_saved_questions_hold_together_and_so_do_what_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of twelve is wrong in 5 % of runs at most, in a still world; with a larger alpha far more often."""
    world = World()
    monkeypatch.setattr(answering, "tally_of", world.tally_of)
    asked = Registry.parse(metrics_text(METRICS, device_epsilon=400))
    listed = "\n".join(f'"{value}" = \'share(browser = "{value}")\'' for value in BROWSERS[:12])
    with sqlite_store(asked, tmp_path) as store:
        Administration(store).show(Dashboard.parse(f"[question]\n{listed}"))
        asking, day = Asking(store), store.sealed()
        windows = Window.ending(day - timedelta(days=7), 7), Window.ending(day, 7)
        misses, moves = wrong(asking, world, windows)
        monkeypatch.setattr(dashboard, "intervals_of_fixed", lambda *_: 0.2)  # each at .25
        misses_alone, moves_alone = wrong(asking, world, windows, enough=MISSES_MAX + 1)
    assert max(misses, moves) <= MISSES_MAX
    assert min(misses_alone, moves_alone) > MISSES_MAX


def wrong(asking: Asking, world: World, windows: tuple[Window, Window], enough: int = RUNS) -> tuple[int, int]:
    """Return in how many runs any interval misses, and in how many any verdict is told though nothing moved.

    No further run is made when both are enough.
    """
    shares = dict(zip(asking.plans["browser"].plan.values, world.shares["browser"], strict=True))
    misses = moves = 0
    for _ in range(RUNS):
        found = saved_questions(asking, windows)
        assert len(found) == 12
        ends = [(one.answers[0].lower or 0.0, shares[one.title], one.answers[0].upper or 0.0) for one in found]
        misses += any(not lower <= truth <= upper for lower, truth, upper in ends)
        moves += any(one.verdict for one in found)
        if min(misses, moves) >= enough:
            break
    return misses, moves


def grafana_answer(url: str, target: dict[str, Any], variables: dict[str, str]) -> Any:
    """Return the document that a target asks for."""
    query = {each["key"]: each["value"] for each in target["url_options"]["params"]}
    for name, value in variables.items():
        query = {key: text.replace(f"${{{name}}}", value) for key, text in query.items()}
    answer = requests.request(target["url_options"]["method"], url + target["url"], params=query, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def selected(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the libraries of Grafana's data sources select of documents."""
    ran = subprocess.run(
        [str(NODE), str(SELECTORS)], input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


READ: dict[str, Callable[[Any], Any]] = {
    "number": lambda value: None if value is None else float(value),
    "string": lambda value: None if value is None else str(value),
    "timestamp": lambda value: None if value is None else datetime.fromisoformat(value),
}


def test_every_query_of_the_dashboard_for_grafana_has_rows_of_its_columns(one: Site) -> None:
    """By JSONata, as Infinity reads them, and by a JSONPath for each column, as the older data source does.

    That one takes no columns of different lengths: each row must have each field, also one that is not told.
    """
    dashboard = json.loads(GRAFANA.read_text(encoding="utf-8"))
    variables = {each["name"]: each["query"] for each in dashboard["templating"]["list"] if each["type"] == "textbox"}
    targets = [(panel["title"], target) for panel in dashboard["panels"] for target in panel["targets"]]
    with served(one) as url:
        asked = [
            {
                "json": grafana_answer(url, target, variables),
                "root": target["root_selector"],
                "columns": [column["selector"] for column in target["columns"]],
            }
            for _, target in targets
        ]
    found = {}
    for (title, target), one_of, document in zip(targets, selected(asked), asked, strict=True):
        assert one_of["rows"] == document["json"]["rows"]
        by_path = [dict(zip(document["columns"], each, strict=True)) for each in zip(*one_of["paths"], strict=True)]
        assert by_path == [{name: row[name] for name in document["columns"]} for row in one_of["rows"]]
        found[title] = [
            {column["text"]: READ[column["type"]](row[column["selector"]]) for column in target["columns"]}
            for row in one_of["rows"]
        ]
    assert all(found.values())
    assert [row["moved"] for row in found["Saved questions"] if row["question"] == "Dark <b>"] == ["rose"]
    assert {row["metric"] for row in found["What moved"]} == {"dark"}
    (series,) = (rows for title, rows in found.items() if title == "$question")
    assert len(series) >= 2
    told = [row for row in series if row["lower"] is not None]
    assert told
    assert all(row["lower"] < row["estimate"] < row["upper"] for row in told), told


def test_rows_of_a_saved_analysis_have_their_names_and_notes(one: Site) -> None:
    Administration(one.store).show(Dashboard.parse("[question]\nLargest = 'top(color, 2)'\n"))
    found = rows(one)["Largest"]
    asked = one.client.get("/v1/query", query_string={"q": "top(color, 2)"}).get_json()["rows"]
    assert [row["name"] for row in found] == [row["name"] for row in asked]
    assert all(row["name"] and row["note"].startswith("rank 1") for row in found)
