"""Days and levels that a reader chooses: what they cost, on every door, and that intervals hold for who tries all."""

import re
from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.inference import Floats, Z, read_level
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.analysis.reading import Window, days_to_choose, windows_together
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.sites import Site, site

D, DAYS = 12, 14
TOGETHER = 16 * 17 // 2
"""All windows of 16 days: 14 and today, rounded up to a power of two."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two weeks of a metric with values and of a flag, in which nothing happens."""
    with site(tmp_path_factory.mktemp("chosen"), D) as made:
        rng, dark = np.random.default_rng(5), made.store.plans("dark")[0].plan
        for back in range(1, DAYS + 1):
            made.put(np.full(D, 300), rng, back)
            made.put(np.array([700, 300]), rng, back, dark)
        yield made


def told(one: Site, address: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = one.client.get(f"/v1/{address}")
    assert answer.status_code == 200, answer.text
    document = answer.get_json()
    return document["meta"], document["rows"]


def widths(rows: list[dict[str, Any]]) -> Floats:
    return np.array([row["upper"] - row["lower"] for row in rows])


def days(one: Site, first: int, last: int) -> str:
    return f"from={one.day(first)}&to={one.day(last)}"


# The price.


def test_the_window_that_looks_best_holds_its_truth() -> None:
    """A reader of 32 days looks at every window and picks the one whose interval lies farthest from the truth.

    There are 1,000 seeded stores with one share. Intervals of single windows fail in most. Those that pay may fail in
    5 % at most; if that were only just true, more fail than are allowed here once in a million times.
    """
    stores, number, n, rng = 1_000, 32, 2_000, np.random.default_rng(7)
    mechanism = pure(registry(epsilon="4.0").metrics["dark"].plan)
    share, together = 0.3, number * (number + 1) // 2
    rate = float(mechanism.q) + share * float(mechanism.p - mechanism.q)
    sums = np.cumsum(np.pad(rng.binomial(n, rate, (stores, number)), ((0, 0), (1, 0))), axis=1)
    missed = {1: np.zeros(stores, np.bool_), together: np.zeros(stores, np.bool_)}
    for length in range(1, number + 1):
        counts = sums[:, length:] - sums[:, :-length]
        for paid, any_missed in missed.items():
            read = estimate_shares(mechanism, counts.ravel(), length * n, together=paid)
            outside = (read.lower > share) | (read.upper < share)
            any_missed |= outside.reshape(counts.shape).any(axis=1)
    assert missed[1].mean() > 0.8
    assert missed[together].sum() <= binom.isf(1e-6, stores, 0.05)


@pytest.mark.parametrize("metric", ["color", "dark"])
def test_chosen_days_pay_for_all_windows(one: Site, metric: str) -> None:
    meta, rows = told(one, f"metrics/{metric}/estimates?{days(one, 9, 3)}")
    alone, narrow = told(one, f"metrics/{metric}/estimates?{days(one, 7, 1)}")
    assert (meta["together"], alone["together"]) == (TOGETHER, 1)
    assert [row["n"] for row in rows] == [row["n"] for row in narrow]
    assert np.all(widths(rows) > 1.3 * widths(narrow))
    each, _ = told(one, f"metrics/{metric}/estimates?{days(one, 9, 3)}&intervals=each")
    assert each["together"] == TOGETHER


def test_offered_windows_cost_what_they_did(one: Site) -> None:
    sealed, (stored,) = one.store.sealed(), one.store.plans("color")
    for window in (Window.ending(sealed, 7), Window.ending(sealed, 28), Window.ending(one.store.today(), 1)):
        assert windows_together(one.store, stored, window) == 1
    for query in ("", "window=28", "window=1", "window=today", f"epoch={one.day(1)}", days(one, 1, 1), days(one, 7, 1)):
        meta, _ = told(one, f"metrics/color/estimates?{query}")
        assert meta["together"] == 1, query
    usual, preset = (told(one, f"metrics/color/estimates?{query}")[1] for query in ("", days(one, 7, 1)))
    assert usual == preset


def test_a_single_day_pays_as_any_window_of_days_does(one: Site) -> None:
    """A reader who picks the best day of many is misled just as by the best window."""
    _, offered = told(one, "metrics/color/estimates?window=1")
    for query in (f"epoch={one.day(4)}", days(one, 4, 4), f"epoch={one.day(2)}"):
        meta, rows = told(one, f"metrics/color/estimates?{query}")
        assert meta["together"] == TOGETHER, query
        assert np.all(widths(rows) > 1.3 * widths(offered))
    page = one.page(f"epoch={one.day(4)}")
    (words,) = (each for each in page.states if each.startswith("You chose"))
    assert words.startswith("You chose this day, so every interval holds for every window of days")


def test_the_last_day_of_another_rev_is_offered_by_its_page(one: Site) -> None:
    """Nobody chose it for what it shows: the page of a metric without reports leads to it."""
    (stored,) = one.store.plans("color")
    held = {key: one.tallies.pop(key) for key in list(one.tallies) if key[1] > one.day(6)}
    one.forget()
    try:
        assert windows_together(one.store, stored, Window.ending(one.day(6), 1)) == 1
        assert windows_together(one.store, stored, Window.ending(one.day(7), 1)) == TOGETHER
    finally:
        one.tallies.update(held)
        one.forget()


def test_the_price_is_that_of_the_days_that_are_kept_in_steps(one: Site) -> None:
    (stored,) = one.store.plans("color")
    assert days_to_choose(one.store, stored) == 16
    one.hold(one.plan, one.tallies[one.plan.digest, one.day(1)], 16)
    try:
        assert days_to_choose(one.store, stored) == 32
    finally:
        del one.tallies[one.plan.digest, one.day(16)]


def test_groups_of_metrics_pay_as_well(one: Site) -> None:
    meta, rows = told(one, f"estimates?{days(one, 9, 3)}")
    _, own = told(one, f"metrics/color/estimates?{days(one, 9, 3)}")
    assert meta["together"] == TOGETHER
    ends = {row["value"]: (row["lower"], row["upper"]) for row in rows if row["metric"] == "color"}
    assert ends == {row["value"]: (row["lower"], row["upper"]) for row in own}


def test_a_chosen_comparison_pays_for_all_pairs_of_windows(one: Site) -> None:
    usual, narrow = told(one, "compare?metric=color")
    after = f"metric=color&{days(one, 7, 1)}"
    same, also = told(one, f"compare?{after}&base_from={one.day(14)}&base_to={one.day(8)}")
    assert (usual["together"], same["together"], narrow) == (1, 1, also)
    meta, rows = told(one, f"compare?metric=color&{days(one, 6, 2)}&base_from={one.day(13)}&base_to={one.day(9)}")
    assert meta["together"] == comb(18, 4)
    assert np.all(widths(rows) > 1.5 * widths(narrow))
    assert meta["detectable_difference"] > 1.4 * usual["detectable_difference"]
    page = one.client.get(f"/compare?metric=color&{days(one, 6, 2)}&base_from={one.day(13)}&base_to={one.day(9)}").text
    assert "every verdict holds for every two windows of days that you could have chosen" in page
    assert "every verdict holds" not in one.client.get("/compare?metric=color").text


def test_chosen_days_of_a_series_pay_for_all_days(one: Site) -> None:
    meta, all_ = told(one, f"metrics/color/series?values=model 0&{days(one, 14, 1)}")
    of_usual, usual = told(one, "metrics/color/series?values=model 0")
    for query in (days(one, 4, 2), days(one, 4, 4), f"epoch={one.day(4)}"):
        of_few, few = told(one, f"metrics/color/series?values=model 0&{query}")
        chosen = [row for row in all_ if row["from"] in {each["from"] for each in few}]
        assert [(row["lower"], row["upper"]) for row in few] == [(row["lower"], row["upper"]) for row in chosen]
        assert of_few["together"] == meta["together"] == 16
    assert len(usual) == of_usual["together"] == DAYS
    level = 100 - 5 * 16 / DAYS  # with which 16 intervals hold at once that each are as wide as those of the shown days
    _, as_wide = told(one, f"metrics/color/series?values=model 0&{days(one, 14, 1)}&level={level:.3f}")
    assert widths(as_wide) == pytest.approx(widths(usual), rel=1e-4)
    assert np.all(widths(all_) >= widths(usual))
    page = one.client.get(f"/metrics/color/time?values=model 0&{days(one, 4, 2)}").text
    assert "every interval holds for all days that you could have chosen" in page


def test_the_page_says_what_the_choice_costs_and_where_it_costs_nothing(one: Site) -> None:
    seen = one.page(f"{days(one, 9, 3)}&level=90")
    (words,) = (each for each in seen.states if each.startswith("You chose these days"))
    assert words.startswith(
        "You chose these days, so every interval holds for every window of days that you could have"
    )
    meta, rows = told(one, f"metrics/color/estimates?{days(one, 9, 3)}&level=90")
    _, offered = told(one, "metrics/color/estimates?level=90")
    wider = float(re.findall(r"about ([0-9.]+) times as wide", words)[0])
    assert meta["level"] == 90
    assert abs(np.median(widths(rows) / widths(offered)) - wider) < 0.1
    (link,) = re.findall(r'intervals of <a href="(.*?)"', seen.html)
    assert "from=" not in link
    again = one.client.get(link.replace("&amp;", "&"))
    assert again.status_code == 200
    assert "You chose these days" not in again.text
    assert "You chose" not in one.page(f"epoch={one.day(1)}").html


# Levels.


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("95", "95"),
        (".95", "95"),
        ("0.95", "95"),
        ("99.9", "99.9"),
        (".999", "99.9"),
        ("50.0", "50"),
        (".5", "50"),
        ("90", "90"),
    ],
)
def test_a_level_is_a_percentage_or_a_share(text: str, level: str) -> None:
    assert f"{read_level(text)}" == level


REFUSED = ("7", "49", ".49", "99.95", "100", "1", "95%", "1e1", "-95", "\N{ARABIC-INDIC DIGIT NINE}5", "95 ")


@pytest.mark.parametrize("text", REFUSED)
def test_any_other_level_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"from 50 to 99.9, or a share from 0.5 to 0.999, got"):
        read_level(text)


DOORS = (
    *("metrics/color/estimates?", "metrics/dark/estimates?", "metrics/color/groups?", "metrics/color/series?"),
    *("compare?metric=color&", "estimates?", "query?q=share(dark%20=%20%22yes%22)&"),
)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_any_level(one: Site, door: str) -> None:
    found = {level: told(one, f"{door}level={level}") for level in ("50", ".9", "95", "99.9")}
    assert [meta["level"] for meta, _ in found.values()] == [50, 90, 95, 99.9]
    assert told(one, door.rstrip("?&"))[1] == found["95"][1]
    spread = [
        float(np.sum(widths([row for row in rows if row.get("upper") is not None]))) for _, rows in found.values()
    ]
    assert spread == sorted(spread)
    refused = one.client.get(f"/v1/{door}level=49")
    assert refused.status_code == 400
    assert "level must be a percentage from 50 to 99.9, or a share from 0.5 to 0.999" in refused.text


@pytest.mark.parametrize(
    "path", ["/metrics/color?", "/metrics/color/time?", "/compare?metric=color&", "/ask?q=share(dark%3D%22yes%22)&"]
)
def test_every_page_takes_any_level(one: Site, path: str) -> None:
    page = one.client.get(f"{path}level=.999")
    assert page.status_code == 200
    assert "99.9" in page.text
    assert '<option value="99.9" selected>' in page.text
    for link in re.findall(r'href="(/v1/[^"]*)"', page.text):
        if "level=" in link and "format" not in link:
            assert one.client.get(link.replace("&amp;", "&")).get_json()["meta"]["level"] == 99.9
    assert one.client.get(f"{path}level=49").status_code == 400


@pytest.mark.parametrize(
    ("level", "says", "below"), [("80", "80 of 100", "20 of 100"), ("80.123", "80.123 %", "19.877 %")]
)
def test_sentences_say_a_level_as_pages_if_these_are_a_whole_number(
    one: Site, level: str, says: str, below: str
) -> None:
    says, below = (f"{each} such pages" if "of" in each else f"{each} of such pages" for each in (says, below))
    for path in ("/metrics/color", "/metrics/color/time?values=model 0", "/metrics/color?values=model 0"):
        text = one.client.get(f"{path}{'&' if '?' in path else '?'}level={level}").text.replace(
            "\N{NO-BREAK SPACE}", " "
        )
        assert f"On {says} every interval" in text, path
        assert not re.search(r"\d\.\d+ of 100", text), path
    assert any(below in state for state in one.page(f"level={level}").states)


def test_the_question_has_its_level_in_the_form(one: Site) -> None:
    page = one.client.get("/ask?q=share(dark%3D%22yes%22)&level=80.5").text
    offered = re.findall(r'<option value="([0-9.]+)"( selected)?>', page)
    assert offered == [("80", ""), ("80.5", " selected"), ("95", ""), ("99", "")]
    assert "with their 80.5 % intervals" in page
    assert re.findall(r'href="/ask\?q=[^"]*?level=80.5', page)
    assert '<option value="95" selected>' in one.client.get("/ask").text


def test_a_flag_has_the_interval_of_its_level(one: Site) -> None:
    (row,) = told(one, "metrics/dark/estimates?level=.9")[1]
    assert row["upper"] - row["estimate"] == pytest.approx(1.6449 * row["std_error"], rel=1e-3)
    (usual,) = told(one, "metrics/dark/estimates")[1]
    assert usual["upper"] - usual["estimate"] == pytest.approx(Z * usual["std_error"], rel=1e-9)
