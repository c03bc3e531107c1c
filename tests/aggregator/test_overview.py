"""The first page, and changes: cards by tag, figures of quantiles, weeks with marked days, words that count."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from unittest.mock import patch

import numpy as np

from dither_aggregator.analysis import reading_cache
from dither_aggregator.analysis.reading_cache import Kept, NotReady
from dither_aggregator.counting import BadTally
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Tally
from dither_aggregator.store.document_kinds import Dashboard, DayMark
from dither_aggregator.web.pages.overview import all_lines, headline
from dither_shared.plan import Plan
from tests.support.aggregators import operators_app
from tests.support.number_pages import words
from tests.support.numeric import draw_numbers, hump, number_site
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Site, site


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
        assert "dotted: version 158" in words(weeks)
        one.store.put(DayMark(one.day(9), "version 159"))
        assert "dotted: 2 marked days" in words("".join(cards(one)))


def let_a_rare_value_rise(one: Site) -> None:
    """The first value leads in both weeks; the third moves from 5 % to 14 %, by some tens of standard errors."""
    for back in range(1, 15):
        rare = 600 if back > 7 else 1_800
        one.put(np.array([8_000, 3_400, rare, 600 - rare // 3]), np.random.default_rng(back), back)


def test_the_line_of_a_card_is_of_what_moved_and_days_point_to_it(tmp_path: Path) -> None:
    with site(tmp_path, 4) as one:
        let_a_rare_value_rise(one)
        card = words("".join(cards(one)))
        assert re.search(r"model 0 leads with .*model 2, 2 weeks: first \S+ %, last \S+ %.*model 2 rose by", card)
        moved = re.search(r"rose by between [\d.]+ and [\d.]+ points", card)
        assert moved
        days = words(one.client.get(f"/metrics/color/time?values=model+0&from={one.day(2)}&to={one.day(1)}").text)
        assert "By these two days it cannot be told to have moved." in days
        days = words(one.client.get("/metrics/color/time?values=model+2&values=model+0").text)
        assert "model 2 rose from" in days
        changes = words(one.client.get("/changes").text)
        assert re.search(rf"Something moved in 1 of 1 metric, in “.*?”: model 2 {moved[0]}, model \d fell by", changes)
        front = words(one.client.get("/").text)
        assert "1 of 2 metrics moved: “Which colour do people choose?” 1 could not be compared." in front


def test_where_two_days_tell_nothing_the_weeks_may(tmp_path: Path) -> None:
    """A share moves from 40 % to 50 %: in two days of 150 reports by less than both bands, in two weeks by 7 errors."""
    with site(tmp_path, 3) as one:
        for back in range(1, 15):
            many = 60 if back > 7 else 75
            one.put(np.array([many, 150 - many, 0]), np.random.default_rng(back), back)
        says = words(one.client.get("/metrics/color/time?values=model+0").text)
        assert re.search(r"model 0 rose by .* points in the last 7 days against the 7 before\.", says)


def test_a_band_is_explained_where_there_is_one(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        assert "A band holds" not in one.client.get("/").text
        for back in range(1, 22):
            one.put(np.full(12, 500), np.random.default_rng(back), back)
        assert "A band holds" in one.client.get("/").text


def test_a_damaged_week_is_left_out_and_comes_back_once_it_is_mended(tmp_path: Path) -> None:
    """Readings are kept: neither the first page nor what is kept of it may break by one day, or remember it."""
    with site(tmp_path, 4) as one, patch.object(one.store, "keeper", Kept(one.store)):
        for back in range(1, 29):
            one.put(np.array([300, 200, 100, 0]), np.random.default_rng(back), back)
        sound, damaged = one.store.tally, one.day(20)

        def tally(plan: Plan, epoch: date) -> Tally:
            if epoch == damaged:
                raise BadTally("a stored tally cannot be read: it is cut off")
            return sound(plan, epoch)

        with patch.object(one.store, "tally", tally):
            assert "3 weeks: first" in words("".join(cards(one)))
        assert "4 weeks: first" in words("".join(cards(one)))


def test_what_is_not_computed_yet_is_not_called_what_could_not_be_compared(tmp_path: Path) -> None:
    with site(tmp_path, 4) as one:
        let_a_rare_value_rise(one)
        with one.client.application.app_context():
            lines, found = all_lines(one.store)
        (other,) = (line.stored for line in lines if line.moved is None)
        assert "1 could not be compared." in headline(lines, found)
        waits = replace(found, untold=(), open=[(other, NotReady("not yet"))])
        assert "could not be compared" not in headline(lines, waits)


def test_days_open_with_the_newest_rev(tmp_path: Path) -> None:
    """It rose under the rev before; under the newest, which `/changes` is about, nothing moved."""
    values = ("a", "b")
    with site(tmp_path, 3, values=values) as one:
        before = one.store.plans("color")[0].plan
        one.store.load(
            registry(values=values, rev=2, epsilon="4.0", reports=1, device_epsilon="400.0", expires=EXPIRES)
        )
        after = one.store.plans("color")[0].plan
        assert after.digest != before.digest
        for back in range(1, 21):
            low = 1_500 if back > 11 else 2_500
            one.put(np.array([low, 5_000 - low, 0]), np.random.default_rng(back), back, after if back < 8 else before)
        says = words(one.client.get("/metrics/color/time?values=a").text)
        assert f" on {one.day(7)}, " in says
        assert f" on {one.day(1)}. By these two days it cannot be told to have moved, nor by the last 3 days" in says


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


def test_cards_are_sorted_by_what_moved_what_is_newest_or_their_names_and_searched(tmp_path: Path) -> None:
    """The metric "dark" moved from 30 % to 90 %, and has no report of the last day."""
    with site(tmp_path, 4) as one:
        dark = one.store.plans("dark")[0].plan
        for back in range(1, 15):
            one.put(np.array([2_000, 800, 200, 0]), np.random.default_rng(back), back)
            if back > 1:
                one.put(np.array([700, 300] if back > 7 else [100, 900]), np.random.default_rng(back), back, dark)

        def order(query: str) -> list[str]:
            return re.findall('title="(color|dark)"', one.client.get(f"/?{query}").text)

        assert order("sort=moved") == order("") == ["dark", "color"]
        assert order("sort=newest") == order("sort=name") == ["color", "dark"]
        assert (order("search=DARK"), order("search=neither")) == (["dark"], [])


# A page that comes soon.


def cards_of(page: str) -> dict[str, str]:
    """Return the cards of a page, by metric."""
    found = re.findall(r'<article class="card">.*?</article>', page, re.DOTALL)
    return {re.findall('title="(.*?)"', card)[0]: card for card in found}


def answer_of(card: str) -> str:
    (answer,) = re.findall('<p class="answer">(.*?)</p>', card)
    return str(answer)


def test_a_page_of_more_readings_than_its_time_allows_comes_at_once_and_is_whole_later(tmp_path: Path) -> None:
    """Its answers are those of the whole page; of all else it says that it is being computed."""
    with site(tmp_path, 12) as one:
        dark = one.store.plans("dark")[0].plan
        for back in range(1, 43):
            moved = np.array([900, *[100] * 11]) if back <= 7 else np.array([500, *[140] * 11])
            one.put(moved, np.random.default_rng(back), back)
            one.put(np.array([700, 300]), np.random.default_rng(back), back, dark)
        whole = one.client.get("/").text
        assert '<p class="move">' in whole
        assert whole.count("<svg") > 1
        one.forget()
        client = operators_app(one.store).test_client()
        one.store.keeper = keeper = Kept(one.store)
        visits = list[str]()
        with patch.object(reading_cache, "PROMPT_S", -1.0), patch.object(reading_cache, "PROMPT_LEAST", 2):
            while not visits or keeper.wanted:
                assert len(visits) < 40
                keeper.wanted = False
                visits.append(client.get("/").text)
        one.forget()
        one.store.keeper = Kept(one.store)
        with patch.object(reading_cache, "PROMPT_S", -1.0):  # a machine of any speed makes the readings of few metrics
            assert operators_app(one.store).test_client().get("/").text == whole
    assert visits[-1] == whole
    assert all('http-equiv="refresh"' in page for page in visits[:-1])
    assert "2 metrics are not computed yet: with them, others may stand out or have moved." in visits[0]
    open_ = "Being computed."
    waiting = [sum(answer_of(card) == open_ for card in cards_of(page).values()) for page in visits]
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] > waiting[-1] == 0
    for page in visits:
        for name, card in cards_of(page).items():
            assert answer_of(card) in (open_, answer_of(cards_of(whole)[name]))
            assert '<p class="move">' not in card or card.count("move") == cards_of(whole)[name].count("move")
