"""The first page, and changes: cards by tag, figures of quantiles, weeks with marked days, words that count."""

import re
from pathlib import Path

import numpy as np

from dither_aggregator.operations.administration import Administration
from dither_aggregator.store.dashboard import Dashboard
from dither_aggregator.store.document_kinds import DayMark
from tests.support.number_pages import words
from tests.support.numeric import draw_numbers, hump, number_site
from tests.support.sites import Site, site


def cards(one: Site, query: str = "") -> list[str]:
    html = one.client.get(f"/?{query}").text
    return re.findall(r'<article class="card">.*?</article>', html, re.DOTALL)


def test_cards_are_those_of_a_tag_and_a_hostile_tag_is_text(tmp_path: Path) -> None:
    hostile = "<b>&"
    with site(tmp_path, 12) as one:
        assert 'aria-label="tags"' not in one.client.get("/").text
        Administration(one.store).show(Dashboard.parse(f'[metric.color]\ntags = ["web", "{hostile}"]'))
        assert (len(cards(one)), len(cards(one, "tag=web")), len(cards(one, "tag=%3Cb%3E%26"))) == (2, 1, 1)
        assert "No metric with the tag “nobody's”" in words(one.client.get("/?tag=nobody%27s").text)
        assert hostile not in one.client.get("/").text


def test_a_quantile_is_told_by_both_ends_of_its_range_and_has_no_dot(tmp_path: Path) -> None:
    lines = 'unit = "s"\nedges = [0, 1, 2, 3, 5, 8]\nreports = 1\nepsilon = 4'
    with number_site(tmp_path, {"wait": lines}) as one:
        plan, rng = one.store.plans("wait")[0].plan, np.random.default_rng(1)
        for back in range(1, 22):
            one.hold(plan, draw_numbers(plan, hump(plan), 5_000, rng), back)
        (card,) = cards(one)
        figures = re.findall("<b>(.*?)</b>", card)
        assert all(" to " in each for each in figures)
        assert 'class="at"' not in card
        assert 'class="band"' in card
        assert 'class="curve"' not in card
        assert re.search(r"3 weeks: first \S+ to \S+ s, last \S+ to \S+ s", words(card))


def test_marked_days_are_on_the_weeks_of_a_card(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        for back in range(1, 22):
            one.put(np.full(12, 500), np.random.default_rng(back), back)
        assert 'class="mark"' not in cards(one)[0]
        for back in (8, 30, 0):
            one.store.put(DayMark(one.day(back), "version 158"))
        (weeks,) = re.findall(r'<figure class="weeks">.*?</figure>', "".join(cards(one)), re.DOTALL)
        assert re.findall(r'class="mark" d="M(\d+) 0V40"', weeks) == ["100"]  # a week before the last day of two


def test_a_band_is_explained_where_there_is_one(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        assert "A band holds" not in one.client.get("/").text
        for back in range(1, 22):
            one.put(np.full(12, 500), np.random.default_rng(back), back)
        assert "A band holds" in one.client.get("/").text


def test_one_metric_is_no_metrics(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        for back in range(1, 15):
            one.put(np.full(12, 500), np.random.default_rng(back), back)
        said = words(one.client.get("/changes").text)
        assert "1 metric looked at" in said


def test_cards_stand_under_their_owner_or_first_tag_and_what_has_none_comes_last(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        assert "<h3>" not in one.client.get("/").text
        Administration(one.store).show(Dashboard.parse('[metric.dark]\ntags = ["web", "<b>"]'))
        html = one.client.get("/?by=tag").text
        assert re.findall("<h2>(.*?)</h2>", html) == ["<bdi>web</bdi>", "No tag"]
        assert re.findall('<h3><a href="/metrics/(.*?)"', html) == ["dark", "color"]
        owners = one.store.plans("color")[0].owners
        assert owners
        assert re.findall("<h2><bdi>(.*?)</bdi></h2>", one.client.get("/?by=owner").text) == [owners[0]]
        assert re.findall("<h2>", one.client.get("/?by=owner&search=nobody").text) == []
        assert one.client.get("/?by=moon").status_code == 400
