"""Analyses on the page and over the API: units, charts, CSV, addresses, refusals, and how far they are."""

import csv
import io
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis.reading_cache import Computing, Kept
from dither_aggregator.analysis.tables import regression
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.dashboard import analyses
from dither_aggregator.ask.language import parse
from dither_aggregator.web.process_messages import ReadRequest
from dither_aggregator.web.reader_process import reading_app, respond
from dither_shared.registry import Registry
from tests.aggregator.ask.test_analyses import METRICS, SHARES, three_clouds
from tests.aggregator.ask.test_questions_page import headline
from tests.support.aggregators import sqlite_store
from tests.support.drawn_tables import draw_table, shape_of
from tests.support.registries import metrics_text
from tests.support.sites import Site, site_of
from tests.support.soaking import scaled

REGRESSION = 'regress(crashed = "yes" on version, memory)'
CLUSTERS = "clusters(usage, k = 3)"


@pytest.fixture(scope="module", autouse=True)
def _fewer_fits() -> Iterator[None]:
    """Fit clusters to fewer tables that noise makes of one: how many there are is told, and nothing else of them."""
    with patch.object(regression, "BOOTSTRAPS", scaled(6, regression.BOOTSTRAPS)):
        yield


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A day of a million devices: version 157 crashes more, and the usage has three clouds."""
    registry = Registry.parse(metrics_text(METRICS, device_epsilon=400))
    with site_of(registry, tmp_path_factory.mktemp("site")) as made:
        rng, asking = np.random.default_rng(44), Asking(made.store)
        plans = {name: stored.plan for name, stored in asking.plans.items()}
        crashes = np.full(shape_of(plans["stability"]), 1.0)
        crashes[1], crashes[1, 2], crashes[-1], crashes[:, -1], crashes[:, :, -1], crashes[..., -1] = (
            *(0.3, 0.9),
            *(0, 0, 0, 0),
        )
        up = np.array([[3.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
        tables = {"stability": crashes, "usage": three_clouds(asking), "pair": up}
        for name, shares in tables.items():
            made.hold(plans[name], draw_table(plans[name], [shares / shares.sum()], [10**6], rng))
        made.put(np.round(1e6 * SHARES).astype(np.int64), rng, 1, plans["browser"])
        yield made


def page(one: Site, q: str, status: int = 200, **more: str) -> str:
    answer = one.client.get("/ask", query_string={"q": q, **more})
    assert answer.status_code == status, answer.text
    return answer.text


def rows_of(html: str) -> dict[str, str]:
    """Return the table's answers, by the name of the row."""
    found = re.findall(r'<tr><th scope="row"><bdi>(.*?)</bdi>.*?</th><td>(.*?)</td>', html)
    return {unescape(name): unescape(re.sub("<.*?>", "", text)).replace("\xa0", " ") for name, text in found}


def ask(one: Site, q: str, **more: str) -> tuple[int, Any]:
    answer = one.client.get("/v1/query", query_string={"q": q, **more})
    return answer.status_code, answer.get_json()


def test_a_regressions_coefficients_are_points_and_its_intercept_is_a_share(one: Site) -> None:
    html = page(one, REGRESSION)
    rows = rows_of(html)
    assert list(rows) == ["intercept", "version = 156", "version = 157", "memory = 8 GB"]
    points = r"\+\d+(\.\d+)? \([\d.]+ to [\d.]+ points\)"
    assert re.fullmatch(points, rows["version = 157"]), rows
    assert re.fullmatch(
        r"2\d(\.\d+)? % \([\d.]+ to [\d.]+\); crashed = yes among .* none of these groups", rows["intercept"]
    )
    assert headline(html).startswith("version = 156: ")
    marks = [float(each) for each in re.findall(r'<circle class="dot" cx="([\d.]+)%"', html)]
    (zero,) = {float(each) for each in re.findall(r'<line class="zero" x1="([\d.]+)%"', html)}
    assert [mark > zero for mark in marks] == [
        not each.startswith("\N{MINUS SIGN}") for each in list(rows.values())[1:]
    ]
    assert "family <code>regression</code>" in html


def test_log_odds_have_intervals_where_all_columns_were_asked_at_once(one: Site) -> None:
    rows = rows_of(page(one, 'logistic(up = "yes" on lang)'))
    (low, high) = re.findall(r"[\d.]+", rows["lang = en"].partition("(")[2])[:2]
    assert float(low) < np.log(3) < float(high)
    assert rows["lang = en"].endswith("; log odds")


def test_a_model_shows_no_interval_and_says_what_it_is(one: Site) -> None:
    html = page(one, 'logistic(crashed = "yes" on version, memory)')
    assert all("a model, without an interval" in each and "(" not in each for each in rows_of(html).values())
    assert "Intervals hold" not in html
    assert '<circle class="dot"' not in html


def test_clusters_are_told_in_the_units_of_their_columns(one: Site) -> None:
    html = page(one, CLUSTERS)
    rows = rows_of(html)
    assert len(rows) == 9
    assert re.fullmatch(r"44\.\d % ?; a model, without an interval", rows["cluster 1: share"])
    assert re.fullmatch(r"6\.\d+ h; noise moves it by about [\d.]+ h", rows["cluster 1: hours"])
    assert "Intervals hold" not in html
    status, document = ask(one, CLUSTERS)
    assert (status, [row["unit"] for row in document["rows"][:3]]) == (200, ["", "h", "1"])
    assert all(row["lower"] is None for row in document["rows"])


def test_a_top_says_which_ranks_are_open(one: Site) -> None:
    html = page(one, "top(browser, 3)")
    rows = rows_of(html)
    assert len(rows) == html.count('<circle class="dot"') == 3
    assert all(re.search(r"%.*; rank \d+", each) for each in rows.values())


@pytest.mark.parametrize("q", [REGRESSION, CLUSTERS, 'logistic(up = "yes" on lang)', "top(version, 2)"])
def test_csv_json_and_the_link_have_the_same_rows(one: Site, q: str) -> None:
    html = page(one, q)
    _, document = ask(one, q)
    links = [unescape(each) for each in re.findall(r'href="((?:/v1/query|/ask)\?[^"]*)"', html)]
    (table,) = (each for each in links if "format=csv" in each and "bom" not in each)
    read = list(csv.DictReader(io.StringIO(one.client.get(table).text)))
    assert [(row["name"], row["note"], float(row["estimate"])) for row in read] == [
        (row["name"], row["note"], row["estimate"]) for row in document["rows"]
    ]
    assert [row["name"] for row in document["rows"]] == list(rows_of(html))
    assert page(one, q) == one.client.get(next(each for each in links if each.startswith("/ask?"))).text


def test_analyses_that_are_fixed_together_pay_for_their_rows_alone(one: Site) -> None:
    (_, free), posted = (
        ask(one, REGRESSION),
        one.client.post("/v1/query", json={"questions": [REGRESSION, "top(version, 2)"]}),
    )
    fixed = posted.get_json()["rows"]
    assert {row["together"] for row in fixed} == {4 + 3}
    assert {row["family"] for row in fixed} == {"asked"}
    for narrow, wide in zip(fixed[1:4], free["rows"][1:], strict=True):
        assert wide["family"] == "regression"
        assert 0 < narrow["upper"] - narrow["lower"] < (wide["upper"] - wide["lower"]) / 3


@pytest.mark.parametrize(
    ("q", "says"),
    [
        ("regress(crashed on version, memory, locale, version)", "coefficients are more than noise leaves apart"),
        ('regress(crashed = "yes" on browser)', "a table of both would"),
        ("clusters(stability, k = 3)", "clusters are of 2 to 4 columns of numbers"),
        ("clusters(usage, k = 40)", "a number from 2 to 12"),
        ("top(load_time, 3)", "is not of listed values"),
    ],
)
def test_what_cannot_be_analysed_is_refused_with_its_place(one: Site, q: str, says: str) -> None:
    html = page(one, q, 400)
    assert says in headline(html)
    assert "<mark>" in html
    status, problem = ask(one, q)
    assert status == 400
    assert re.match(r"q: at character \d+: ", problem["detail"])


def test_what_tells_nothing_says_how_many_devices_would(one: Site) -> None:
    html = page(one, "mean(load_time)\nshare(load_time > 2 s)")
    assert headline(html) == "None of 2 answers can be told."
    assert len(re.findall(r"</code>: It would tell something from about [\d,]+ reports", html)) == 2


def test_the_smallest_fleet_is_told_before_anything_is_read(one: Site) -> None:
    with patch.object(one.store, "tally", None):
        html = page(one, f"{REGRESSION}\n{CLUSTERS}", fleet="true")
    assert headline(html).startswith("Nothing was asked")
    assert len(re.findall(r"</code>: It would tell something from about [\d,]+ reports", html)) == 1
    assert "</code>: It tells nothing of fewer than 300 reports in a window" in html
    assert '<button name="fleet" value="true">' in html
    assert "at most 5 questions at once" in headline(page(one, "\n".join([REGRESSION] * 6), 400, fleet="true"))
    assert "<mark>" in page(one, "share(dark = ", 400, fleet="true")


def test_examples_are_of_each_analysis_that_the_registry_can_answer(one: Site, tmp_path: Path) -> None:
    asking = Asking(one.store)
    found = analyses(asking)
    assert [each.partition("(")[0] for each in found] == ["top", "regress", "logistic", "clusters"]
    shown = re.findall(r'<code dir="ltr">(.*?)</code>', one.client.get("/ask").text)
    shown = [unescape(each) for each in shown]
    for text in found:
        assert list(asking.answer(parse(text)))
        assert text in shown
    for name, kinds in {"browser": ["top"], "load_time": [], "pair": ["regress", "logistic"]}.items():
        alone = Registry.parse(metrics_text({name: METRICS[name]}, device_epsilon=400))
        with sqlite_store(alone, tmp_path / name) as store:
            assert [each.partition("(")[0] for each in analyses(Asking(store))] == kinds


def test_the_page_says_how_far_clusters_are_and_then_shows_them(one: Site) -> None:
    """No request waits for them: a process of their own makes them, and says after each fit how far it is."""
    said, fits = list[str](), 1 + regression.BOOTSTRAPS
    app = reading_app(one.store, 2_000)
    try:
        one.store.keeper = kept = Kept(one.store)
        html = app.test_client().get("/ask", query_string={"q": CLUSTERS}).text
        assert headline(html) == "Being computed."
        assert kept.wanted
        assert 'data-refresh="5"' in html
        asked = app.test_client().get("/v1/query", query_string={"q": CLUSTERS})
        assert (asked.status_code, asked.get_json()["type"]) == (503, "urn:dither:problem:being-computed")
        one.store.keeper = Computing(one.store, lambda made: one.store.keep_readings([made]), alone=True)
        with patch("dither_aggregator.ask.answering.tell_progress", said.append):
            app.test_client().get("/ask", query_string={"q": CLUSTERS})
        one.store.keeper = Kept(one.store)
        shown = app.test_client().get("/ask", query_string={"q": CLUSTERS}).text
    finally:
        one.store.keeper = None
    assert said == [f"fit {done} of {fits} done" for done in range(1, fits + 1)]
    assert rows_of(shown) == rows_of(page(one, CLUSTERS))


def test_clusters_that_are_posted_are_made_by_a_process_that_answers(one: Site) -> None:
    """The process that makes pages ahead knows addresses alone: it would never make what a body asks."""
    app = reading_app(one.store, 2_000)
    body = b'{"questions": ["clusters(usage, k = 2)"]}'
    try:
        one.store.keeper = Kept(one.store)
        posted = respond(app, ReadRequest("POST", "/v1/query", b"", [(b"content-length", b"%d" % len(body))], body))
        got = respond(app, ReadRequest("GET", "/v1/query", b"q=clusters(usage,%20k=2)", [], b""))
    finally:
        one.store.keeper = None
    assert posted.is_long
    assert got.wanted
