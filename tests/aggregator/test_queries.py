"""Days of a few values, two windows, what moved, a plan: page and API say the same, and each state has its words."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.store import Tally
from dither_aggregator.web.charts import points, precise, rough
from dither_aggregator.web.pages.presentation import form
from dither_aggregator.web.queries import SeriesAsked
from tests.support.aggregators import operators_app
from tests.support.reading_api import every_error
from tests.support.sites import Site, site

D, N = 30, 3_000


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two weeks and today: the first value rose from 30 to 50 %, the second fell as much; the flag stayed."""
    with site(tmp_path_factory.mktemp("computed"), D) as made:
        rng, dark = np.random.default_rng(2), made.store.plans("dark")[0].plan
        for back in range(15):
            counts = np.zeros(D, dtype=np.int64)
            counts[:3] = (1_500, 600, 900) if back <= 7 else (900, 1_200, 900)
            made.put(counts if back else counts // 5, rng, back)
            made.put(np.array([700, 300]), rng, back, dark)
        yield made


def table(html: str) -> list[list[str]]:
    """Return the texts of the rows of the page's own table."""
    found = re.findall(r'<table class="shown.*?</table>', html, re.DOTALL)
    rows = [row for each in found for row in re.findall("<tr>(.*?)</tr>", each.partition("<tbody>")[2], re.DOTALL)]
    return [
        [unescape(re.sub("<.*?>", "", cell)).strip() for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", row)]
        for row in rows
    ]


def ask(one: Site, address: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = one.client.get(address)
    assert answer.status_code == 200, answer.text
    document = answer.get_json()
    return document["meta"], document["rows"]


def headline(html: str) -> str:
    (said,) = re.findall(r'<p class="headline">(.*?)</p>', html)
    return unescape(re.sub("<.*?>", "", said)).replace("\N{NO-BREAK SPACE}", " ")


def test_what_moved_is_told_on_page_and_in_the_api(one: Site) -> None:
    html = one.client.get("/compare?metric=color").text
    with every_error():
        meta, rows = ask(one, "/v1/compare?metric=color")
    moved = {row["value"]: row for row in rows if row["verdict"] != "cannot be told to have moved"}
    assert {value: row["verdict"] for value, row in moved.items()} == {"model 0": "rose", "model 1": "fell"}
    assert headline(html).startswith(f"2 of {D} values moved.")
    assert (meta["n"], meta["base_n"]) == (7 * N, 7 * N)
    for name, before, after, change, interval in table(html):
        row = moved[name.split(" ro")[0].split(" fe")[0]]
        error = row["std_error"]
        assert (before, after) == (precise(row["before"], error), precise(row["after"], error))
        assert change == points(row["estimate"], error)
        assert interval == f"{points(row['lower'], error)} to {points(row['upper'], error)}"
        assert row["lower"] <= (0.2 if row["verdict"] == "rose" else -0.2) <= row["upper"]
    assert len(table(html)) == 2


def test_the_changes_are_those_of_the_metrics_that_moved(one: Site) -> None:
    html = one.client.get("/changes").text
    meta, rows = ask(one, "/v1/changes")
    assert headline(html).startswith("Something moved in 1 of 2 metrics, in “")
    assert (meta["metrics_moved"], meta["metrics_compared"]) == (1, 2)
    assert [(row["metric"], row["value"], row["verdict"]) for row in rows] == [
        ("color", row[0].rpartition(" ")[0], row[0].rpartition(" ")[2]) for row in table(html)
    ]
    assert {row["value"] for row in rows} == {"model 0", "model 1"}


@pytest.mark.parametrize("values", [("model 0", "model 2"), ("other",)])
def test_days_are_the_same_on_page_and_in_the_api(one: Site, values: tuple[str, ...]) -> None:
    query = "&".join(f"values={value}" for value in values)
    html = one.client.get(f"/metrics/color/time?{query}").text
    with every_error():
        meta, rows = ask(one, f"/v1/metrics/color/series?{query}")
    assert tuple(meta["values"]) == values
    assert len(rows) == 15 * len(values)
    assert sum(row["provisional"] for row in rows) == len(values)
    shown = table(html)
    assert len(shown) == 15
    for day, rev, n, *cells in shown:
        for value, cell in zip(values, cells, strict=True):
            (row,) = [each for each in rows if each["value"] == value and day.startswith(each["from"])]
            numbers = [precise(row[name], row["std_error"]) for name in ("estimate", "lower", "upper")]
            assert cell == "{} ({} to {})".format(*numbers)
            assert (rev, n) == (str(row["rev"]), f"{row['n']:,}")
            assert day.endswith("so far") is row["provisional"]


def test_a_few_values_are_read_as_all_are(one: Site) -> None:
    """Days of single values are read without their neighbours: the same numbers come out."""
    yesterday = one.store.today() - timedelta(days=1)
    _, rows = ask(one, f"/v1/metrics/color/series?values=model 1&from={yesterday}&to={yesterday}")
    _, all_ = ask(one, f"/v1/metrics/color/estimates?epoch={yesterday}&error_of=population")
    (same,) = [row for row in all_ if row["value"] == "model 1"]
    assert {name: rows[0][name] for name in ("estimate", "std_error", "lower", "upper", "n")} == {
        name: same[name] for name in ("estimate", "std_error", "lower", "upper", "n")
    }


def test_by_default_the_days_are_of_what_stands_out(one: Site) -> None:
    meta, _ = ask(one, "/v1/metrics/color/series")
    assert set(meta["values"]) == {"model 0", "model 1", "model 2"}
    assert ask(one, "/v1/metrics/dark/series")[0]["values"] == ["yes"]


def test_intervals_of_more_days_are_wider(one: Site) -> None:
    """All hold at once: each of 15 days has a smaller share of what may be missed than that of one day."""
    yesterday = one.store.today() - timedelta(days=1)
    (alone,) = ask(one, f"/v1/metrics/color/series?values=model 0&from={yesterday}&to={yesterday}")[1]
    together = ask(one, "/v1/metrics/color/series?values=model 0")[1]
    (same,) = [row for row in together if row["from"] == f"{yesterday}"]
    assert same["estimate"] == alone["estimate"]
    assert same["upper"] - same["lower"] > 1.1 * (alone["upper"] - alone["lower"])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/compare?metric=color&base_from=2020-01-01&base_to=2020-01-07", "no reports of the window before"),
        ("/compare?metric=color&from=2020-01-01&to=2020-01-07", "no reports of either window"),
        ("/compare?metric=color&window=today", "nothing is told of a window that is not over"),
        ("/compare?metric=dark", "The share of yes cannot be told to have moved: "),
        ("/metrics/color/time?from=2020-01-01&to=2020-01-07", "No reports of these days are counted"),
    ],
)
def test_every_state_has_its_words(one: Site, path: str, says: str) -> None:
    assert says in headline(one.client.get(path).text)


def test_days_that_are_chosen_of_a_few_are_said_to_be_too_sure(one: Site) -> None:
    assert "every verdict here is too sure" in one.client.get("/compare?metric=color&window=1").text
    assert "too sure" not in one.client.get("/compare?metric=color").text


@pytest.mark.parametrize(
    ("query", "got"),
    [
        ("window=7&from=2026-01-02&to=2026-01-03", "window beside from and to"),
        ("window=today&epoch=2026-01-02", "window beside epoch"),
        ("from=2026-01-02&to=2026-01-03&epoch=2026-01-02", "from and to beside epoch"),
        ("window=1&from=2026-01-02&to=2026-01-02&epoch=2026-01-02", "window beside from and to beside epoch"),
        ("window=7&to=2026-01-03", None),
        ("epoch=2026-01-02&from=2026-01-02", None),
    ],
)
def test_days_that_are_named_in_two_ways_are_refused(one: Site, query: str, got: str | None) -> None:
    says = f"the days must be one of window, from and to, epoch, got {got}" if got else "from and to go together"
    api = [f"/v1/metrics/color/{rows}?" for rows in ("estimates", "series", "quality")]
    for address in (
        *api,
        "/v1/compare?metric=color&",
        "/metrics/color?",
        "/metrics/color/time?",
        "/compare?metric=color&",
    ):
        answer = one.client.get(address + query)
        assert (answer.status_code, says in answer.text) == (400, True), address


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("compare?metric=none", "no metric"),
        ("compare?metric=color&window=7&base_from=2020-01-01", "go together"),
        ("compare?metric=color&base_from=2020-01-01", "base_from and base_to go together"),
        ("metrics/color/{}?from=2026-11-02&to=2026-11-01", "from must not be after to, got 2026-11-02 and 2026-11-01"),
        ("metrics/color/{}?from=2020-11-01&to=2026-11-01", "a window has at most 366 days, got 2,192"),
        ("metrics/color/{}?values=nothing", "has no value"),
        ("metrics/color/{}?values=nothing", "GET /v1/metrics/color/values lists them"),
        ("metrics/color/{}?" + "&".join(f"values=model {place}" for place in range(6)), "5 times at most"),
    ],
)
@pytest.mark.parametrize("api", [True, False])
def test_what_cannot_be_is_refused_in_words(one: Site, path: str, says: str, api: bool) -> None:
    answer = one.client.get(("/v1/" if api else "/") + path.format("series" if api else "time"))
    assert answer.status_code in (400, 404)
    assert says in answer.text


def test_windows_that_share_days_are_refused(one: Site) -> None:
    day = one.store.sealed()
    answer = one.client.get(f"/compare?metric=color&base_from={day}&base_to={day}")
    assert answer.status_code == 400
    assert "share days" in answer.text


@pytest.mark.parametrize("path", ["/metrics/color/time", "/compare?metric=color", "/changes"])
def test_a_page_leads_to_its_own_rows(one: Site, path: str) -> None:
    html = one.client.get(path).text
    document, csv = (unescape(found) for found in re.findall(r'<a href="([^"]*)">(?:JSON|CSV)</a>', html))
    rows = ask(one, document)[1]
    assert len(one.client.get(csv).text.splitlines()) == len(rows) + 1
    shown = {cells[0].split(" ro")[0].split(" fe")[0] for cells in table(html)}
    if path.endswith("time"):
        shown = set(re.findall(r'<text class="label" x="0" y="14">(model.*?)</text>', html))
    assert shown
    assert shown <= {row["value"] for row in rows}


def test_a_field_for_a_value_shows_all_of_it(one: Site) -> None:
    """One that is cut could be read as another value."""
    assert 'value="model 1" list="values" size="14"' in one.client.get("/metrics/color/time?values=model 1").text
    for longest, size in ((0, 14), (3, 14), (22, 22), (200, 30)):
        shown = form(SeriesAsked, {"values": ("x" * longest, "y")})
        assert [each.look["size"] for each in shown if each.name == "values"] == [size] * 3


def test_a_page_that_refuses_says_where_to_go_on(one: Site) -> None:
    for path, opens in (
        ("/metrics/color?level=12", "/metrics/color"),
        ("/?sort=size", "/"),
        ("/compare?window=x", "/compare"),
    ):
        answer = one.client.get(path)
        assert answer.status_code == 400
        assert f'<a href="{opens}">this page as it opens</a>' in answer.text
        assert one.client.get(opens).status_code == 200
    for path in ("/metrics/none", "/docs"):
        html = one.client.get(path).text
        assert '<a href="/">All metrics</a></p>' in html
    for path in ("/docs", "/v1", "/v1/nothing"):
        assert "/openapi.json all addresses of the API" in one.client.get(path).text


def test_windows_that_are_shorter_than_a_week_are_explained(tmp_path: Path) -> None:
    with site(tmp_path, D) as young:
        rng, counts = np.random.default_rng(7), np.full(D, 100, dtype=np.int64)
        for back in range(1, 8):
            young.put(counts, rng, back)
        why = "the later half of these days is compared with the earlier"
        assert why in young.client.get("/changes").text
        assert why in young.client.get("/compare?metric=color").text
        sealed = young.store.sealed()
        assert why not in young.client.get(f"/compare?metric=color&epoch={sealed}").text


def test_of_noise_nothing_moved_and_no_day_is_led_by_it(tmp_path: Path) -> None:
    with site(tmp_path, D) as nothing:
        rng, counts = np.random.default_rng(7), np.zeros(D, dtype=np.int64)
        counts[-1] = 500
        for back in range(1, 15):
            nothing.put(counts, rng, back)
        still = nothing.client.get("/changes").text
        assert headline(still).startswith("Nothing can be told to have moved")
        assert still.count("can be told to have moved") == 1
        assert "less than two weeks" not in still
        assert headline(nothing.client.get("/metrics/color/time").text).startswith("Nothing stands out")
        overview = nothing.client.get("/").text
        assert headline(overview) == "2 metrics. None can be told to have moved."
        assert f"None of {D - 1} values stands out from the noise" in overview


def test_damaged_counts_are_said_and_the_others_compared(one: Site) -> None:
    """And once they are mended nothing remembers them."""
    dark = one.store.plans("dark")[0].plan
    key = dark.digest, one.store.sealed()
    whole = one.tallies[key]
    client = operators_app(one.store).test_client()
    try:
        one.tallies[key] = Tally(whole.n, whole.counts + 10**6)
        one.forget()
        html = client.get("/changes").text
        assert headline(html).startswith("Something moved in 1 of 1 metric, in “")
        assert "The counts of 1 metric are damaged, the first: <code>dark</code>" in html
        assert "Its counts are damaged" in client.get("/").text
        assert client.get("/v1/changes").get_json()["meta"]["metrics_damaged"] == 1
    finally:
        one.tallies[key] = whole
        one.forget()
    assert headline(client.get("/changes").text).startswith("Something moved in 1 of 2 metrics, in “")
    assert "damaged" not in client.get("/").text


def test_days_that_are_not_closed_are_said(one: Site) -> None:
    late = one.store.today() - timedelta(days=6)
    with patch.object(one.store, "sealed", lambda: late):
        for path in ("/", "/changes", "/metrics/color", "/compare?metric=color", "/metrics/color/time"):
            assert f"The last closed day is {late}" in one.client.get(path).text, path


def test_a_plan_is_the_same_on_page_and_in_the_api(one: Site) -> None:
    html = one.client.get("/plan?n=12000&epsilon=1").text
    meta, rows = ask(one, "/v1/plan?n=12000&epsilon=1")
    assert meta["computed"] == "share"
    assert rows[0]["detectable_share"] == meta["share"]
    assert unescape(re.findall(r"<pre.*?>(.*?)</pre>", html, re.DOTALL)[0]).strip() == meta["registry"].strip()
    assert one.client.get("/v1/plan?n=12000").status_code == 400


def test_a_plan_of_a_number_is_the_same_on_page_and_in_the_api(one: Site) -> None:
    html = one.client.get("/plan?kind=number&n=12000&epsilon=1").text
    meta, (row, *_) = ask(one, "/v1/plan?kind=number&n=12000&epsilon=1")
    assert meta["computed"] == "width"
    assert row["median_width_percent"] == meta["width_percent"]
    for width in (row["mean_width_percent"], row["median_width_percent"]):
        assert f"<dd>{rough(width / 100)}</dd>" in html
    assert unescape(re.findall(r"<pre.*?>(.*?)</pre>", html, re.DOTALL)[0]).strip() == meta["registry"].strip()
