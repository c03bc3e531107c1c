"""Pages of numbers: what they say in every state, and that HTML, SVG, CSV, API and snapshot give the same numbers."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import estimate, read
from dither_aggregator.analysis.numbers import QUANTILES, NumberRow, NumbersReading
from dither_aggregator.analysis.reading import View
from dither_aggregator.store import Tally
from dither_aggregator.web.charts import SHARES, Measure, beside, label_width
from dither_aggregator.web.pages.numbers import NumberWords, numbers_part
from dither_shared.domains import Buckets
from dither_shared.frozen import replaced
from tests.aggregator.test_queries import table
from tests.aggregator.test_snapshot_page import keep
from tests.support.number_pages import ask, facts, numbers, share_of, two_weeks_of_numbers, words
from tests.support.numeric import FORMS, hump, number_site, put_numbers
from tests.support.reading_api import every_error
from tests.support.sites import Seen, Site

HOSTILE = {
    "wide": f'unit = "{"W" * 20}"\nlow = -{10**15}\nhigh = {10**15}\nbuckets = 20\nreports = 3\nepsilon = 4',
    "turned": 'unit = "a\\u202eb"\nlow = 0\nhigh = 0.00001\nbuckets = 20\nreports = 3\nepsilon = 4',
    "script": 'unit = "<script>x()</script>"\nlow = 1\nhigh = 1000\nbuckets = 16\nreports = 3\nepsilon = 4',
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with two_weeks_of_numbers(tmp_path_factory.mktemp("numbers")) as made:
        yield made


# The same numbers everywhere.


@pytest.mark.parametrize("metric", FORMS)
def test_mean_and_quantiles_of_the_page_are_the_apis(one: Site, metric: str) -> None:
    html = one.page(metric=metric).html
    with every_error():
        _, rows = ask(one, f"/v1/metrics/{metric}/estimates")
    shown = table(html)[: len([row for row in rows if row["statistic"] in ("mean", "quantile")])]
    domain = cast("Any", one.store.plans(metric)[0].plan.domain)
    first, last = (edge / 10**domain.decimals for edge in (domain.edges[0], domain.edges[-1]))
    for (name, seems, interval), row in zip(shown, rows, strict=False):
        assert name == Measure("s").called(row["value"])
        if row["statistic"] == "mean":
            best = row["estimate"] if row["fitted"] is None else row["fitted"]
            assert numbers(seems) == pytest.approx([best], abs=row["std_error"] / 5)
            assert numbers(interval) == pytest.approx([row["lower"], row["upper"]], abs=row["std_error"] / 5)
            assert row["lower"] <= row["estimate"] <= row["upper"]
            continue
        assert numbers(interval) == [end for end in (row["lower"], row["upper"]) if first < end < last]
        assert numbers(seems) == [end for end in (row["low"], row["high"]) if end is not None and first < end < last]
        assert row["lower"] <= row["estimate"] <= row["upper"]
    assert len(shown) == (1 if metric == "age" else 9)


@pytest.mark.parametrize("metric", ["load", "cold"])
def test_the_band_of_how_many_are_below_an_edge_has_the_ends_of_the_api(one: Site, metric: str) -> None:
    """Read back out of the SVG: the lines of 0 and 100 % give the scale, and the band goes there and back."""
    html = one.page(metric=metric).html
    _, rows = ask(one, f"/v1/metrics/{metric}/estimates")
    drawn = re.search(r'<details class="cumulative">.*?</details>', html, re.DOTALL)
    assert drawn
    lines = [float(each) for each in re.findall(r'<line class="\w+" [^>]*y1="(.*?)"', drawn[0])]
    band = [tuple(map(float, each.split(","))) for each in re.findall('points="(.*?)"', drawn[0])[0].split()]
    above = [row for row in rows if row["statistic"] == "share_above"]
    assert len(band) == 2 * len(above)
    shares = [(lines[0] - y) / (lines[0] - lines[-1]) for _, y in band]
    most = [min(1 - row["lower"], 1.0) for row in above]
    least = [max(1 - row["upper"], 0.0) for row in above]
    assert shares == pytest.approx([*most, *reversed(least)], abs=0.001)
    assert [x for x, _ in band[: len(above)]] == [x for x, _ in reversed(band[len(above) :])]


@pytest.mark.parametrize("metric", ["load", "memo", "cold"])
def test_bars_and_table_of_the_shape_are_the_apis(one: Site, metric: str) -> None:
    """Bars are read back out of the SVG: heights by the lines of the axis."""
    html = one.page(metric=metric).html
    _, rows = ask(one, f"/v1/metrics/{metric}/estimates")
    statistic = "share_above" if metric == "memo" else "share"
    stored = one.store.plans(metric)[0]
    reading = cast("NumbersReading", read(one.store, stored, one.store.sealed(), View(simultaneous=True, days=7)))
    drawn = [row for row in rows if row["statistic"] == statistic]
    if reading.blocks:  # ranges are merged: shares of bars are the sums of theirs
        assert len(reading.blocks) < len(drawn)
        assert sum(row["estimate"] for row in drawn) == pytest.approx(sum(row.estimate for row in reading.blocks))
        drawn = [vars(row) for row in reading.blocks]
    (svg,) = re.findall(r'<svg[^>]*aria-label="The shape of the numbers.*?</svg>', html, re.DOTALL)
    lines = [float(y) for y in re.findall(r'<line class="(?:zero|tick)".*? y1="(.*?)"', svg)]
    labels = [share_of(label) for label in re.findall(r'<text class="axis"[^>]*text-anchor="end">(.*?)</text>', svg)]
    slope = (labels[1] - labels[0]) / (lines[1] - lines[0])
    bars = re.findall(r'<rect class="bar".*? y="(.*?)" height="(.*?)"><title>(.*?)</title></rect>', svg)
    ends = re.findall(r'<line class="interval".*? y1="(.*?)" y2="(.*?)"/>', svg)
    assert len(bars) == len(ends) == len(drawn)
    for (y, height, title), (y_high, y_low), row in zip(bars, ends, drawn, strict=True):
        assert unescape(title).startswith(f"{row['value']}: fitted ")
        assert -slope * float(height) == pytest.approx(row["fitted"], abs=2e-4)
        shares = [labels[0] + slope * (float(place) - lines[0]) for place in (y, y_low, y_high)]
        assert shares == pytest.approx([row["fitted"], row["lower"], row["upper"]], abs=2e-4)
    listed = [row for row in rows if row["statistic"] in ("share", "share_above")]
    below = table(html)[-len(listed) :]
    for (name, raw, interval, fitted), row in zip(below, listed, strict=True):
        assert name == row["value"]
        assert share_of(raw) == pytest.approx(row["estimate"], abs=6e-3)
        assert share_of(fitted) == pytest.approx(row["fitted"], abs=6e-3)
        assert [share_of(end) for end in interval.split(" to ")] == pytest.approx(
            [row["lower"], row["upper"]], abs=6e-3
        )


@pytest.mark.parametrize("metric", FORMS)
def test_csv_has_the_rows_of_the_api_and_its_own_columns(one: Site, metric: str) -> None:
    _, rows = ask(one, f"/v1/metrics/{metric}/estimates")
    made = list(csv.DictReader(io.StringIO(one.client.get(f"/v1/metrics/{metric}/estimates?format=csv").text)))
    assert list(made[0])[-4:] == ["statistic", "low", "high", "fitted"]
    for line, row in zip(made, rows, strict=True):
        assert line["value"].removeprefix("'") == row["value"]  # a spreadsheet might run "-40.5 to"
        for name in ("estimate", "std_error", "lower", "upper", "low", "high", "fitted"):
            assert line[name] == ("" if row[name] is None else str(row[name]))


def test_what_may_lie_beyond_the_edges_is_said_to(one: Site) -> None:
    plan = one.store.plans("load")[0].plan
    said, beyond = NumberWords.of(plan), NumberRow("q99", 60.0, 1.0, 7.8, 60.0, "quantile", 60.0, None)
    assert [said.interval(beyond), said.seems(beyond)] == ["7.8\xa0s or more", "60\xa0s or more"]
    below = NumberRow("q5", 0.01, 0.0, 0.01, 0.01, "quantile", None, 0.01)
    assert [said.interval(below), said.seems(below)] == ["below 0.01\xa0s"] * 2
    assert said.interval(replace(below, upper=0.5)) == "at most 0.5\xa0s"


# Days and changes.


@pytest.mark.parametrize("metric", FORMS)
def test_days_are_the_same_on_page_and_in_the_api(one: Site, metric: str) -> None:
    html = one.client.get(f"/metrics/{metric}/time").text
    with every_error():
        meta, rows = ask(one, f"/v1/metrics/{metric}/series")
    assert meta["unit"] == one.store.plans(metric)[0].plan.domain.unit
    assert meta["values"] == (["mean"] if metric == "age" else ["median", "q90"])
    shown = table(html)
    assert len(shown) == 15
    measure = Measure(meta["unit"])
    for day, _, n, *cells in shown:
        for value, cell in zip(meta["values"], cells, strict=True):
            found = [row for row in rows if row["value"] == value and day.startswith(row["from"])]
            if not found:
                assert cell == ""
                continue
            row, untold = found[0], found[0]["verdict"] == "untold"
            error = row["upper"] - row["lower"] if untold else row["std_error"]
            ends = [measure.end(row[name], error) for name in ("lower", "upper")]
            seems = "untold" if untold else measure.precise(row["estimate"], error)
            assert cell == f"{seems} ({ends[0]} to {ends[1]})"
            assert n == f"{row['n']:,}"
    assert "can be told. If the bands of two days do not meet" in words(html)
    assert metric == "age" or "90 % are below" in words(html)


@pytest.mark.parametrize("metric", FORMS)
def test_what_moved_is_the_same_on_page_and_in_the_api(one: Site, metric: str) -> None:
    """The numbers rose by a tenth of the axis: the mean of all, and the median, are told to have risen."""
    html = one.client.get(f"/compare?metric={metric}").text
    with every_error():
        meta, rows = ask(one, f"/v1/compare?metric={metric}")
    assert (meta["unit"], meta["detectable_difference"]) == (rows[0]["unit"], None)
    measure, shown = Measure(meta["unit"]), table(html)
    told = {row["value"]: row["verdict"] for row in rows}
    assert "fell" not in told.values()
    assert told["mean" if metric in ("age", "memo") else "median"] == "rose"
    assert len(shown) == len(rows)
    for (name, before, after, change, interval), row in zip(shown, rows, strict=True):
        error = row["std_error"]
        assert name == f"{measure.level(row['value']) or row['value']} {row['verdict']}"
        assert (before, after) == (measure.precise(row["before"], error), measure.precise(row["after"], error))
        assert change == measure.points(row["estimate"], error)
        ends = [measure.end_in_points(row[end], error) for end in ("lower", "upper")]
        assert interval == f"{ends[0]} to {ends[1]}"
        assert row["lower"] <= row["estimate"] <= row["upper"]
    moved = [row for row in ask(one, "/v1/changes")[1] if row["metric"] == metric]
    assert moved
    assert {row["unit"] for row in moved} == {meta["unit"]}


def test_days_under_another_unit_are_not_on_the_same_axis(one: Site) -> None:
    """An older plan in milliseconds knows the median, too; planted back, its days would be points a thousand high."""
    stored = one.store.plans("load")[0]
    domain = cast("Any", stored.plan.domain)
    plan = replaced(stored.plan, domain=Buckets(domain.edges, domain.decimals, "ms"))
    older = replace(stored, plan=plan, current=False)
    one.tallies |= {
        (plan.digest, day): tally for (digest, day), tally in one.tallies.items() if digest == stored.plan.digest
    }
    try:
        with patch.object(one.store, "plans", lambda name=None: [stored, older]):
            _, rows = ask(one, "/v1/metrics/load/series?values=median")
        assert plan.digest != stored.plan.digest
        assert {row["from"] for row in rows} != set()
        assert len(rows) == len({row["from"] for row in rows})
    finally:
        one.tallies = {key: tally for key, tally in one.tallies.items() if key[0] != plan.digest}


def test_a_quantile_whose_interval_ends_at_zero_is_not_told_to_have_moved(tmp_path: Path) -> None:
    """It left the open range, which begins, for estimates, at the first edge: so the interval of its move does at 0.

    Half of the numbers lie below the axis before, none after; noise turns that about in no case that counts (1e-9)."""
    with number_site(tmp_path, {"load": FORMS["load"]}) as made:
        rng, plan = np.random.default_rng(1), made.store.plans("load")[0].plan
        low, high = np.zeros(67), np.zeros(67)
        low[0], high[1] = 1.0, 1.0
        for back in range(1, 15):
            put_numbers(made, "load", high if back <= 7 else low, 50_000, rng, days_ago=back)
        assert plan.domain.name == "buckets"
        rows = {row["value"]: row for row in ask(made, "/v1/compare?metric=load")[1]}
        assert rows["median"]["estimate"] == 0
        assert rows["median"]["lower"] == 0 < rows["median"]["upper"]
        assert rows["median"]["verdict"] == "cannot be told to have moved"


def test_quantiles_that_cannot_be_told_have_rows_in_comparisons_and_series(tmp_path: Path) -> None:
    """3,150 reports a week leave some quantiles untold: each has its row, with an interval and nothing else.

    No quantile, told or not, has a standard error, nor its move or its day."""
    with number_site(tmp_path, {"load": FORMS["load"]}) as made:
        rng, plan = np.random.default_rng(7), made.store.plans("load")[0].plan
        for back in range(1, 15):
            put_numbers(made, "load", hump(plan), 450, rng, days_ago=back)
        untold = ask(made, "/v1/metrics/load/estimates")[0]["untold"]
        assert untold
        compared = [row for row in ask(made, "/v1/compare?metric=load")[1] if row["value"] in QUANTILES]
        assert {row["value"] for row in compared} == set(QUANTILES)
        assert {row["value"] for row in compared if row["verdict"] == "untold"} >= set(untold)
        for back in (1, 2):
            put_numbers(made, "load", hump(plan), 3_100, rng, days_ago=back)
        names = "&".join(f"values={name}" for name in (*untold, "median"))
        days = ask(made, f"/v1/metrics/load/series?{names}")[1]
        assert len(days) == 2 * (len(untold) + 1)
        assert any(row["verdict"] == "untold" for row in days)
        for row in (*compared, *days):
            assert row["std_error"] is None
            assert (row["estimate"] is None) == (row["verdict"] == "untold")
            assert row["lower"] < row["upper"]
        assert "untold (" in words(made.client.get(f"/metrics/load/time?{names}").text)
        assert "Not told, because in one of the windows" in words(made.client.get("/compare?metric=load").text)


# Sentences for every state.


STATES = {
    "load": ["Numbers below 0.01 s are counted as 0.01 s, and those above 60 s as 60 s. "],
    "memo": ["Each device says one bit, so a peak at a single value cannot be told."],
    "age": ["This metric asks for the mean alone: its reports tell no quantiles."],
    "cold": [
        "of the reports held a number; everything else on this page is about those.",
        "is left open by the ranges",
    ],
}


@pytest.mark.parametrize("metric", STATES)
def test_every_form_says_what_is_to_be_known(one: Site, metric: str) -> None:
    html = one.page(metric=metric).html
    said = " ".join(facts(html))
    for sentence in STATES[metric]:
        assert sentence in said
    assert ("Noise alone reaches about this far" in words(html)) == (metric in ("load", "cold"))
    assert ('class="plot shape"' in html) == (metric != "age")
    headline = one.page(metric=metric).headline
    half = "The median is .* to .*; nine in ten are below .* to .*"
    assert re.fullmatch(r"The mean is .* \(.* to .*\)\." if metric == "age" else half, headline)


def test_no_share_below_zero_is_said_of_people(one: Site) -> None:
    """A raw share may be negative; a sentence says at most how many there are. A plain page would say it here."""
    reading = cast("NumbersReading", read(one.store, one.store.plans("load")[0], one.store.sealed(), View(days=7)))
    rows = [
        replace(row, estimate=-0.01, std_error=0.01, lower=-0.03, upper=0.01) if row.value == "below 0.01 s" else row
        for row in reading.rows
    ]
    said = numbers_part(replace(reading, rows=rows)).sentences
    assert "At most 1.0\xa0% are below 0.01 s." in said
    assert not any("\N{MINUS SIGN}" in each for each in said)


def test_today_is_provisional(one: Site) -> None:
    seen = one.page("window=today", "load")
    assert seen.headline.startswith("More reports may come. The median is ")
    assert "Provisional: more reports may come." in seen.states


def test_few_reports_none_and_no_numbers_are_words_and_no_drawing(tmp_path: Path) -> None:
    with number_site(tmp_path, FORMS) as made:
        rng, plan = np.random.default_rng(2), made.store.plans("load")[0].plan
        assert made.page(metric="load").headline == "No reports of these days are counted."
        assert made.client.get("/").text.count("No reports in these days.") == len(made.store.plans())
        some = "Today has some: its page shows them under “today so far”."
        assert some not in made.client.get("/").text
        put_numbers(made, "load", hump(plan), 100, rng, days_ago=0)
        first = made.client.get("/").text
        assert first.count(some) == 1
        assert "100 reports so far, all of today: estimates follow when the day is over" in first
        assert "The first 100 reports came today: estimates follow when the day is over." in first
        put_numbers(made, "load", hump(plan), 2_999, rng)
        put_numbers(made, "age", hump(made.store.plans("age")[0].plan), 299, rng)
        assert "so far, all of today" not in made.client.get("/").text
        for metric, least in (
            ("load", "2,999 reports are too few to tell: numbers need 3,000."),
            ("age", "299 reports"),
        ):
            seen = made.page(metric=metric)
            assert seen.headline.startswith(least)
            assert "<figure>" not in seen.html
        assert "No single day tells enough" in made.client.get("/metrics/load/time").text
        assert ask(made, "/v1/metrics/load/estimates?values=median&values=0.01 to 0.0115 s")[1] == []
        put_numbers(made, "load", np.append(np.zeros(66), 1.0), 20_000, rng)
        assert made.page(metric="load").headline.startswith("Too few of these reports hold a number")
        assert "are too few to tell: numbers need 3,000." in made.client.get("/").text


def test_a_comparison_names_the_window_that_is_too_small(tmp_path: Path) -> None:
    with number_site(tmp_path, {"load": FORMS["load"]}) as made:
        rng, plan = np.random.default_rng(2), made.store.plans("load")[0].plan
        put_numbers(made, "load", hump(plan), 20_000, rng, days_ago=1)
        put_numbers(made, "load", hump(plan), 700, rng, days_ago=10)
        html = made.client.get("/compare?metric=load").text
        assert Seen(html).headline == "700 reports are too few to tell: numbers need 3,000."


def test_untold_quantiles_are_named_and_asking_for_them_is_no_error(tmp_path: Path) -> None:
    """At so small an epsilon no quantile can be told; the mean is still shown, and no drawing is missing."""
    faint = FORMS["memo"].replace("= 4", "= 0.2").replace("epsilon = 2", "epsilon = 0.1")
    with number_site(tmp_path, {"faint": faint}) as made:
        plan = made.store.plans("faint")[0].plan
        put_numbers(made, "faint", hump(plan), 5_000, np.random.default_rng(3))
        meta, rows = ask(made, "/v1/metrics/faint/estimates?values=q99&values=mean")
        assert "q99" in meta["untold"]
        assert [(row["value"], row["verdict"]) for row in rows] == [("mean", None), ("q99", "untold")]
        assert (rows[1]["estimate"], rows[1]["std_error"]) == (None, None)
        assert rows[1]["lower"] < rows[1]["upper"]
        made_csv = made.client.get("/v1/metrics/faint/estimates?values=q99&format=csv").text
        (line,) = csv.DictReader(io.StringIO(made_csv))
        assert (line["estimate"], line["std_error"], line["verdict"]) == ("", "", "untold")
        assert float(line["lower"]) < float(line["upper"])
        said = " ".join(facts(made.page(metric="faint").html))
        assert "Too few reports to tell: " in said
        assert "99 % are below" in said
        assert made.page(metric="faint").headline.startswith("The mean is ")


# Units and numbers that are long, turned round, or markup.


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with number_site(tmp_path_factory.mktemp("hostile"), HOSTILE) as made:
        rng = np.random.default_rng(4)
        for stored in made.store.plans():
            for back in (1, 2):
                put_numbers(made, stored.plan.metric, hump(stored.plan), 20_000, rng, days_ago=back)
        yield made


@pytest.mark.parametrize("path", ["/", "/metrics/{}", "/metrics/{}/time", "/compare?metric={}", "/changes"])
@pytest.mark.parametrize("metric", HOSTILE)
def test_a_units_characters_are_shown_and_do_nothing(hostile: Site, metric: str, path: str) -> None:
    html = hostile.client.get(path.format(metric)).text
    assert "<script>x" not in html
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in html
    if metric == "turned" and "{}" in path:
        assert "a\\u{202e}b" in html


def test_a_long_number_in_a_long_unit_leaves_its_label_room() -> None:
    text = beside("+44,340,283,828,783 " + "W" * 20, "95 % are below")
    assert text.endswith("…")
    assert label_width(text) + label_width("95 % are below") <= 20
    assert beside("+0.55 s", "mean") == "+0.55 s"


def test_no_number_above_zero_is_written_as_zero() -> None:
    measure = Measure("s")
    assert measure.end(0.0123, 5.0) == "0.012\xa0s"
    assert measure.end_in_points(-0.00041, 5.0) == "\N{MINUS SIGN}0.00041\xa0s"
    assert measure.precise(0.0, 5.0) == "0\xa0s"
    assert Measure("s").called("q5") == "5\xa0% are below"
    assert Measure("").called("q5") == "q5"
    assert Measure("s").level("q75") == "the 75\xa0% quantile"


def test_intervals_that_do_not_meet_are_not_written_as_if_they_did() -> None:
    """Rounded outward, both of a pair would end at 38 %, or at 4 s."""
    shares = ((0.29, 0.3771), (0.3799, 0.485))
    finer = SHARES.finer(*shares)
    assert [SHARES.about(sum(ends) / 2, *ends, finer) for ends in shares] == [
        "33.4\xa0% (29.0 to 37.8)",
        "43.2\xa0% (37.9 to 48.5)",
    ]
    seconds = ((1.2, 3.95), (4.05, 9.3))
    finer = Measure("s").finer(*seconds)
    assert [Measure("s").ends(*ends, finer=finer) for ends in seconds] == ["1.20 to 3.95\xa0s", "4.0 to 9.3\xa0s"]
    assert SHARES.finer((0.1, 0.2), (0.5, 0.6)) == 0


# Snapshots.


@pytest.mark.parametrize("metric", FORMS)
def test_a_snapshot_of_numbers_agrees_with_itself_and_says_no_shares(one: Site, metric: str) -> None:
    stored, day = one.store.plans(metric)[0], one.store.sealed()
    tally: Tally = one.tallies[stored.plan.digest, day]
    id_ = keep(one.store, stored, tally)
    html, drawn = one.client.get(f"/s/{id_}").text, one.client.get(f"/s/{id_}.svg").text
    made = list(csv.DictReader(io.StringIO(one.client.get(f"/s/{id_}.csv").text)))
    reading = cast("NumbersReading", estimate(stored, day, tally))
    every = [*reading.rows, *reading.untold]
    assert [line["value"].removeprefix("'") for line in made] == [row.value for row in every]
    assert [float(line["lower"]) for line in made] == pytest.approx([row.lower for row in every])
    untold = {row.value for row in reading.untold}
    for line in made:
        assert (line["error_of"], line["estimate"] == "") == ("population", line["value"] in untold)
        assert (line.get("verdict") == "untold") == (line["value"] in untold)
    for text in (html, drawn):
        assert "Estimated share" not in text
        assert "that nobody has" not in text
        assert "pure noise" not in text
    assert "This version of dither estimates other numbers" not in html
    assert Seen(html).headline.startswith("The mean is " if metric == "age" else "The median is ")
    said = NumberWords.of(stored.plan)
    own = {said.measure.called(row.value): said.interval(row) for row in reading.distinct}
    for name, _, together, alone in table(html):
        assert alone == own[name]
        assert together
    assert 'class="interval"' in html
    assert "circle" in drawn
