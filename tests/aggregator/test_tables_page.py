"""Pages of tables: what they say in every state, that page and API agree, and that what is shown first was selected."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.estimands import estimate, read
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables import rows, statistics
from dither_aggregator.analysis.tables.reading import TablesReading
from dither_aggregator.analysis.tables.rows import TableRow
from dither_aggregator.web.charts.shares import draw
from dither_aggregator.web.pages.tables import TablesPart, tables_part
from tests.support.drawn_numbers import DAY
from tests.support.drawn_tables import Floats, alone, draw_table, shape_of, stored_table, table_site
from tests.support.reading_api import faults
from tests.support.sites import Site
from tests.support.soaking import exceed, scaled
from tests.support.tables import table

STABILITY = """
columns.crashed = ["no", "yes"]
columns.version = ["156", "157", "158"]
columns.load = { low = 0, high = 10, unit = "s", asks = ["mean"] }
"""


def lone(rev: int) -> str:
    """Return two columns, under a rev: plans that differ in nothing but their names have the same digest."""
    return f'rev = {rev}\ncolumns.a = ["x", "y"]\ncolumns.b = ["u", "v"]'


ARMS = '{ arm = ["control", "treatment"] }'
VERSIONS = (0.2, 0.4, 0.38, 0.02)


def stability(better: float = 0.0) -> Floats:
    """People on 158 crash more and wait longer; `better` is what an arm takes off both."""
    shares = np.zeros((3, 4, 3))
    for version, part in enumerate(VERSIONS):
        new = version == 2
        crash, load = 0.1 + 0.3 * new - 0.08 * bool(better), 0.3 + 0.2 * new - better
        shares[:, version] = part * np.multiply.outer([1 - crash, crash, 0.0], [1 - load, load, 0.0])
    return shares


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A day each: an experiment with effects, one without, few reports; devices with nothing to say; today."""
    rng = np.random.default_rng(5)
    metrics = {"stability": STABILITY, **{name: lone(rev) for rev, name in enumerate(("still", "few", "nobody"), 1)}}
    with table_site(tmp_path_factory.mktemp("tables"), metrics, ARMS) as made:
        for name, arms, n, back in (
            ("stability", (stability(), stability(0.1)), (40_000, 40_000), 1),
            ("stability", (stability(), stability(0.1)), (4_000, 4_000), 0),
            ("still", (alone((0.5, 0.4, 0.1), (0.3, 0.7, 0.0)),) * 2, (9_000, 9_000), 1),
            ("few", (alone((0.5, 0.4, 0.1), (0.3, 0.7, 0.0)),) * 2, (140, 150), 1),
        ):
            plan = made.store.plans(name)[0].plan
            made.hold(plan, draw_table(plan, arms, n, rng), back)
        yield made


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Devices of which half, and nearly all, have nothing to say."""
    rng = np.random.default_rng(6)
    metrics = {name: lone(rev) + '\npresence = "hidden"' for rev, name in enumerate(("half", "silent"), 1)}
    with table_site(tmp_path_factory.mktemp("hidden"), metrics) as made:
        for name, silent in (("half", 0.5), ("silent", 0.999)):
            plan = made.store.plans(name)[0].plan
            shares = np.append((1 - silent) * alone((0.5, 0.4, 0.1), (0.3, 0.7, 0.0)).ravel(), silent)
            made.hold(plan, draw_table(plan, [shares], [20_000], rng), 1)
        yield made


def text(html: str) -> str:
    plain = unescape(re.sub("<[^>]*>", " ", html)).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"\s+", " ", plain)


def lines(html: str) -> list[list[str]]:
    """Return the cells of the table of rates."""
    (found,) = re.findall(r'aria-label="The same numbers"><table.*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    rows = re.findall("<tr>(.*?)</tr>", found, re.DOTALL)
    return [[text(cell).strip() for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", row)] for row in rows]


def rows_of(one: Site, name: str) -> list[dict[str, Any]]:
    answer = one.client.get(f"/v1/metrics/{name}/estimates?intervals=simultaneous")
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.get_json()["rows"]
    return rows


# The page's words.


def test_a_page_opens_with_what_goes_together_and_what_differs_by_the_public_column(one: Site) -> None:
    page = one.page(metric="stability")
    less = (
        r"With arm “treatment” the mean of “load” is \d\.\d+ s, against \d\.\d+ s with “control” \(.* to .* s lower\)\."
    )
    crashes = (
        r" With arm “treatment”, “crashed” is “yes” in [\d.]+ %, against [\d.]+ % with “control” \(.* points less\)\."
    )
    assert re.fullmatch(
        less + crashes + r" All 3 pairs of the other columns are related, most clearly “(crashed|version)” and “\w+”\.",
        page.headline,
    )


@pytest.mark.parametrize("version_first", [False, True])
def test_what_happened_is_told_by_what_it_happened_to(tmp_path: Path, version_first: bool) -> None:
    """Crashes by version, whichever column the registry has first, and whichever of the two tests is the clearer."""
    columns = ['columns.crashed = ["no", "yes"]', 'columns.version = ["157", "158"]']
    shares = np.array([[0.3, 0.6, 0.0], [0.07, 0.03, 0.0], [0.0, 0.0, 0.0]])
    columns, shares = (columns[::-1], shares.T) if version_first else (columns, shares)
    with table_site(tmp_path, {"crash": "\n".join(columns)}) as made:
        plan = made.store.plans("crash")[0].plan
        made.hold(plan, draw_table(plan, (shares,), (40_000,), np.random.default_rng(8)), 1)
        headline = made.page(metric="crash").headline
    figures = r"in [\d.]+ %, against [\d.]+ % of all others \([\d.]+ to [\d.]+ points more\)\."
    assert re.fullmatch(rf"With version “157”, “crashed” is “yes” {figures}", headline)


@pytest.mark.parametrize("seed", range(5))
def test_an_experiment_tells_what_happened_and_not_what_did_not(tmp_path: Path, seed: int) -> None:
    """Yes and no differ alike, and noise decides which of them is the clearer."""
    arms = [np.array([[0.5 - more, 0.0, 0.0], [0.5 + more, 0.0, 0.0], [0.0, 0.0, 0.0]]) for more in (0.0, 0.08)]
    lines = {"crash": 'columns.crashed = ["no", "yes"]\ncolumns.one = ["x", "y"]'}
    with table_site(tmp_path, lines, ARMS) as made:
        plan = made.store.plans("crash")[0].plan
        made.hold(plan, draw_table(plan, arms, (15_000, 15_000), np.random.default_rng(seed)), 1)
        assert "“crashed” is “yes” in" in made.page(metric="crash").headline


def test_a_card_writes_a_mean_in_its_unit_beside_its_arm(one: Site) -> None:
    html = one.client.get("/").text
    assert re.search(r"<bdi>arm treatment</bdi><svg.*?</svg><b>\d\.\d+\N{NO-BREAK SPACE}s</b>", html)


def test_what_goes_together_is_named_the_clearest_first(one: Site) -> None:
    page = one.page(metric="stability")
    (named,) = re.findall(r"These are related, the clearest first: (.*?)\.</p>", page.html, re.DOTALL)
    pairs = re.findall(r"(\w+) and (\w+)", text(named))
    assert len(pairs) == 3
    assert f"most clearly “{pairs[0][0]}” and “{pairs[0][1]}”." in page.headline
    assert "These are related, the clearest first" not in one.page(metric="still").html


def test_the_pair_of_the_headline_is_shown_and_each_can_be_asked_for(one: Site) -> None:
    shown = text(one.page(metric="stability").html)
    assert "load by arm" in shown  # what the headline is of
    page = one.page("of=crashed&by=version", "stability").html
    assert next(cells for cells in lines(page) if cells[:2] == ["158", "yes"])[-1] == "higher than all others"
    means = lines(one.page("of=load&by=version", "stability").html)
    assert [cells[:2] for cells in means] == [[version, "mean"] for version in ("156", "157", "158", "other")]
    assert all(cells[2].endswith(" s") for cells in means)
    arms = lines(one.page("of=crashed&by=arm", "stability").html)
    assert ["treatment", "yes", "lower than the other"] in [[cells[0], cells[1], cells[-1]] for cells in arms]


def test_outcomes_side_by_side_are_drawn_on_one_axis(one: Site) -> None:
    html = one.page("of=crashed&by=version", "stability").html
    drawn = html.partition('<div class="multiples">')[2].partition("</div>\n<details")[0]
    axes = [
        re.findall(r'<text class="axis" x="([^"]*)"[^>]*>(.*?)</text>', each) for each in drawn.split("<figure>")[1:]
    ]
    assert len(axes) > 1
    assert all(axis == axes[0] for axis in axes)


def test_a_place_of_the_matrix_that_is_empty_is_explained(one: Site) -> None:
    empty = "An empty place has too few reports to tell."
    assert empty not in one.page(metric="stability").html
    reading = read(one.store, one.store.plans("stability")[0], one.store.sealed(), View(simultaneous=True, days=7))
    assert isinstance(reading, TablesReading)
    told = [row for row in reading.rows if (row.statistic, row.group_column) != ("association", "load")]
    assert len(told) < len(reading.rows)
    with patch("dither_aggregator.web.pages.metric.read", return_value=replace(reading, rows=told)):
        assert empty in one.page(metric="stability").html


def test_where_nothing_goes_together_the_page_says_so_and_has_no_verdict(one: Site) -> None:
    page = one.page(metric="still")
    assert page.headline.startswith(
        "No column can be told to differ by “arm”. “a” and “b” cannot be told to be related."
    )
    assert {cells[-1] for cells in lines(page.html)} == {""}


def test_too_few_reports_none_and_today_are_said(one: Site) -> None:
    assert one.page(metric="few").headline == "290 reports are too few to tell: each of 1 questions needs 300."
    assert one.page(metric="nobody").headline == "No reports of these days are counted."
    today = one.page("window=today", "stability")
    assert today.headline == "More reports may come. Nothing is called found yet."
    assert "higher than" not in today.html
    assert "told</span>" not in today.html


def test_shares_are_of_devices_with_something_to_say(hidden: Site) -> None:
    rows = {row["value"]: row for row in rows_of(hidden, "half")}
    assert rows["a = x"]["lower"] < 0.5 < rows["a = x"]["upper"]
    assert "Too few of these reports say anything" in hidden.page(metric="silent").headline


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("of=none", "of must be one of crashed, version, load"),
        ("by=load", "by must be one of arm, crashed, version"),
        ("of=version&by=version", "of and by must be two columns"),
    ],
)
def test_a_column_that_is_none_is_refused_by_name(one: Site, query: str, why: str) -> None:
    answer = one.client.get(f"/metrics/stability?{query}")
    assert answer.status_code == 400
    assert why in unescape(answer.text)


def test_who_is_asked_what_adds_up(one: Site) -> None:
    said = text(one.page(metric="stability").html)
    assert "arm = control 40,000 arm = treatment 40,000" in said


def test_page_and_api_give_the_same_numbers(one: Site) -> None:
    by_name = {row["value"]: row for row in rows_of(one, "stability")}
    for cells in lines(one.page("of=crashed&by=version", "stability").html):
        group, label, estimate_, interval, _ = cells
        row = by_name[f"crashed = {label} | version = {group}"]
        exact = (row["estimate"], row["lower"], row["upper"])
        for shown, number in zip((estimate_, *interval.split(" to ")), exact, strict=True):
            digits = shown.rstrip(" %").replace("\N{MINUS SIGN}", "-")
            assert abs(float(digits) - 100 * number) <= 0.5001 * 10.0 ** -len(digits.partition(".")[2])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "All 3 pairs of the other columns are related"),
        ("/metrics/stability/time", "days have reports"),
        ("/metrics/stability/time?values=crashed = yes", "days have reports"),
        ("/compare?metric=stability", "0 reports · after: "),
        ("/changes", "What moved"),
    ],
)
def test_other_pages_take_tables(one: Site, path: str, said: str) -> None:
    answer = one.client.get(path)
    assert answer.status_code == 200, text(answer.text)
    assert said in text(answer.text)


MEAN = '{ low = 0, high = 1, asks = ["mean"] }'


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        (f"columns.a = {MEAN}\ncolumns.b = {MEAN}", ""),
        (f'columns.a = ["x"]\ncolumns.b = {MEAN}', "of=a"),
    ],
    ids=("only means", "the only groups"),
)
def test_a_column_that_no_other_one_groups_has_a_page(tmp_path: Path, columns: str, query: str) -> None:
    with table_site(tmp_path, {"alone": columns}) as made:
        plan = made.store.plans("alone")[0].plan
        shares = alone(*(np.full(size, 1 / size) for size in shape_of(plan)))
        made.hold(plan, draw_table(plan, (shares,), (9_000,), np.random.default_rng(6)))
        assert "a cannot be told by group: no other column has groups." in text(made.page(query, "alone").html)


def test_a_point_beyond_a_cut_interval_is_on_the_axis() -> None:
    rows = [TableRow("a", -0.02, 0.01, 0.0, 0.05, "rate", "a"), TableRow("b", 1.03, 0.02, 0.9, 1.0, "rate", "a")]
    marks = draw(rows, 0.0).marks
    assert [mark.x for mark in marks] == [0.0, 100.0]
    assert [mark.told for mark in marks] == [False, True]  # no dot below zero
    assert marks[1].x_high < 100


# The API.


@pytest.fixture(scope="module")
def described(one: Site) -> dict[str, Any]:
    document: dict[str, Any] = one.client.get("/openapi.json").get_json()
    return document


@pytest.mark.parametrize("query", ["", "intervals=each", "window=today", "epoch=2020-01-01", "level=80", "offset=5"])
def test_answers_are_as_described(one: Site, described: dict[str, Any], query: str) -> None:
    answer = one.client.get(f"/v1/metrics/stability/estimates?{query}").get_json()
    assert faults(described, "/v1/metrics/{metric}/estimates", "get", answer) == []
    if answer["rows"]:
        answer["rows"][0]["statistic"], answer["rows"][0]["verdict"] = "rates", "more"
        assert len(faults(described, "/v1/metrics/{metric}/estimates", "get", answer)) == 2


@pytest.mark.parametrize("address", ["metrics/{metric}/values", "metrics/{metric}/series", "compare", "changes"])
def test_other_answers_are_as_described(one: Site, described: dict[str, Any], address: str) -> None:
    query = "?metric=stability" * (address == "compare")
    answer = one.client.get(f"/v1/{address.replace('{metric}', 'stability')}{query}").get_json()
    assert faults(described, f"/v1/{address}", "get", answer) == []
    if "{metric}" in address:
        assert answer["rows"]


def test_no_two_rows_have_one_name_whatever_the_labels_are() -> None:
    columns = 'a = ["x", "x | b = z", "\\"q\\"", "x & b = z", "x | b = z, less all others"], b = ["z", "w"]'
    stored = stored_table(table(columns, 'arm = ["1", "2 | b = z"]', epsilon=8))
    shares = alone((0.2,) * 4 + (0.1, 0.1), (0.5, 0.3, 0.2))
    tally = draw_table(stored.plan, (shares, shares), (9_000, 9_000), np.random.default_rng(3))
    names = [row.value for row in estimate(stored, DAY, tally).rows]
    assert len(names) > 100
    assert len(set(names)) == len(names)


# The pair that is shown first was selected.

FIVE = "a = ['x', 'y'], b = ['u', 'v'], c = ['s', 't'], d = ['p', 'q'], e = ['n', 'm']".replace("'", '"')
NULL = alone(*((0.5, 0.4, 0.1),) * 5)
PAGES, SPOILED_PAGES = scaled(15, 120), scaled(40, 120)


def false_max(pages: int) -> float:
    """One page in twenty may have a verdict: more pages have one with a chance of less than 1e-7."""
    return float(binom.isf(1e-7, pages, 0.05))


def shown_parts(seeds: int, salt: int) -> Iterator[TablesPart]:
    """Yield pages of devices whose columns do not go together; a reading is kept, so another salt draws others."""
    stored = stored_table(table(FIVE, epsilon=4))
    for seed in range(seeds):
        tally = draw_table(stored.plan, [NULL], [6_000], np.random.default_rng([seed, salt]))
        reading = estimate(stored, DAY, tally, View(simultaneous=True))
        assert isinstance(reading, TablesReading)
        yield tables_part(reading, {})


def verdicts(seeds: int, salt: int) -> Iterator[bool]:
    return (any(line.verdict for line in part.lines) for part in shown_parts(seeds, salt))


@pytest.mark.slow
def test_of_columns_that_do_not_go_together_few_pages_have_a_verdict() -> None:
    """At most one in twenty, of the pair that looks clearest of ten."""
    assert not exceed(verdicts(PAGES, 23), false_max(PAGES))


@pytest.mark.slow
def test_verdicts_of_the_clearest_pair_by_itself_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pairs, and the one that looks clearest: its groups would often seem to differ."""
    every = frozenset((a, b) for a in range(5) for b in range(5))
    monkeypatch.setattr(statistics.TableStatistics, "_associated", every)
    monkeypatch.setattr(statistics, "holm", lambda p_values, alpha: p_values <= alpha)
    monkeypatch.setattr(rows, "beyond_zero", lambda lower, upper: 1 if lower + upper > 0 else -1)  # else it is that
    assert exceed(verdicts(SPOILED_PAGES, 24), false_max(SPOILED_PAGES))


@pytest.mark.slow
def test_intervals_of_the_pair_that_is_shown_hold_at_once_on_nearly_all_pages() -> None:
    """95 %: fewer pages would hold all with a chance of less than 1e-6."""
    held = [
        all(line.row.lower <= truth <= line.row.upper for line in part.lines for truth in [_truth(line.outcome)])
        for part in shown_parts(PAGES, 23)
    ]
    assert sum(held) >= binom.ppf(1e-6, PAGES, 0.95)


def _truth(label: str) -> float:
    return {"other": 0.1}.get(label, 0.5 if label in "xuspn" else 0.4)
