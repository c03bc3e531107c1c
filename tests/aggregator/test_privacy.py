"""The privacy page of a metric: odds, who can be linked, what fakes can move, never below the truth."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.store import SQLiteStore
from dither_aggregator.web.pages.metric import Privacy, privacy_of
from dither_shared.frozen import replaced
from tests.support.aggregators import sqlite_store
from tests.support.clocks import Clock
from tests.support.laws import pure
from tests.support.number_pages import words
from tests.support.registries import registry
from tests.support.sites import Site, site

CITIES = tuple(f"city {number}" for number in range(38))


def box(one: Site, metric: str = "color") -> str:
    """Return the words of the page, to which the metric's own leads."""
    (address,) = re.findall(r'href="([^"]*)">All that can be seen</a>', one.page(metric=metric).html)
    html = one.client.get(unescape(address)).text
    found = re.search(r'<section class="privacy">(.*?)</section>', html, re.DOTALL)
    assert found
    words = re.sub(r"\s+", " ", unescape(re.sub("<.*?>", " ", found[1]))).strip()
    return words.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def test_a_metrics_page_says_in_one_line_what_a_guess_can_become(tmp_path: Path) -> None:
    with site(tmp_path, 39, epsilon="1.0", epsilon_permanent="2.0", answers=3) as one:
        said = words(one.page().html)
    assert "answer can become at most 73.2 % sure; from all that a device ever reports, above 99 %." in said


def rows_of(text: str) -> str:
    """Return the table's part of the words."""
    return text.partition("whatever else is known ")[2]


def test_odds_of_a_report_and_a_life_are_said(tmp_path: Path) -> None:
    with site(tmp_path, 12, epsilon="2.0") as one:
        text = box(one)
    assert "fifty-fifty can become at most 88.1 % sure from one report" in text
    assert "sure from all that the device ever reports" not in text
    assert rows_of(text).startswith(
        "a guess of one report 1 : 1 (50 %) 88.1 % 1 : 9 (10 %) 45.1 % 1 : 99 (1 %) 7.0 % ε 2 "
    )
    for word in ("nearly certain", "memoized", "joined", "cohort"):
        assert word not in text


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    asked = registry(values=CITIES, epsilon="1.0", epsilon_permanent="2.0", answers=3, device_epsilon="100.0")
    with sqlite_store(asked, tmp_path, Clock()) as opened:
        yield opened


def privacy(store: SQLiteStore, metric: str = "color", n: int = 0) -> Privacy:
    return privacy_of(next(each for each in store.plans(metric) if each.current), store.plans(), n)


def test_a_memo_has_a_column_and_a_mark(store: SQLiteStore) -> None:
    shown = privacy(store)
    assert [(stage.name, stage.epsilon, stage.sure()) for stage in shown.stages] == [
        ("one report", 1.0, "73.2\xa0%"),
        ("one answer, repeated", 2.0, "88.1\xa0%"),
        ("a whole life", 6.0, "above 99\xa0%"),
    ]
    assert [stage.nearly_certain for stage in shown.stages] == [False, False, True]
    assert (shown.linked, shown.linked_together) == (35, 49)  # 34.7, and with a flag's memo 48.2
    assert (privacy(store, "dark").linked, privacy(store, "dark").linked_together) == (2, 49)


def test_an_older_plan_is_not_part_of_what_a_device_sends_now(store: SQLiteStore) -> None:
    store.load(registry(rev=2, values=CITIES, epsilon="1.0", epsilon_permanent="2.0", device_epsilon="100.0"))
    assert len(store.plans()) == 4
    assert privacy(store).linked_together == 49


def test_what_memos_mean_is_said(tmp_path: Path) -> None:
    with site(tmp_path, 39, epsilon="1.0", epsilon_permanent="2.0", answers=3) as one:
        text = box(one)
    assert rows_of(text).startswith(
        "a guess of one report one answer, repeated a whole life 1 : 1 (50 %) 73.2 % 88.1 % above 99 % "
    )
    assert "Above 99 % is nearly certain" in text
    assert "When an answer changed is not hidden." in text
    assert "of 200 devices with the same answer, the reports of about 35 could be joined over time" in text
    assert "and of about 49 by the app's metrics together." in text


def test_a_text_says_its_cohort_and_no_bound(tmp_path: Path) -> None:
    with site(tmp_path, 12, kind="text", epsilon="1.0", epsilon_permanent="4.0", answers=1) as one:
        text, flag = box(one), box(one, "dark")
    assert "the device's cohort, one of 128 that it keeps" in text
    assert "the reports of nearly all could be joined over time" in text
    assert re.search(r"it weighs at least [\d.]+ times as much, and we do not know a limit\.", text)
    assert re.search(r"raise it by at least [\d.]+ percentage points and lower it by at least [\d.]+", text)
    assert "up to" not in text
    assert "cohort" not in flag


def test_fresh_reports_are_joined_by_what_travels_with_them(store: SQLiteStore) -> None:
    plan = registry(reports=1).metrics["color"].plan
    other = replace(store.plans("color")[0], plan=replaced(plan, metric="sky"), reservation=1)
    shown = privacy_of(other, store.plans(), 0)
    assert (shown.linked, shown.linked_together) == (None, 49)


def test_what_made_up_reports_move_is_a_bound(tmp_path: Path) -> None:
    with site(tmp_path, 12, epsilon="2.0") as one:
        one.put(np.full(12, 100), np.random.default_rng(1))
        text = box(one)
        mechanism = pure(one.plan)
    up, down = float((1 - mechanism.q) / (mechanism.p - mechanism.q)), float(mechanism.p / (mechanism.p - mechanism.q))
    said = re.search(
        r"weigh ([\d.]+) times .* raise it by up to ([\d.]+) percentage points and lower it by up to ([\d.]+); "
        r"with 10 of the 1,200 shown, raise it by up to ([\d.]+) and lower it by up to ([\d.]+)\.",
        text,
    )
    assert said
    few = 10 / 1_200 * 100
    for shown, truth in zip(map(float, said.groups()), (max(up, down), up, down, few * up, few * down), strict=True):
        assert truth <= shown < truth + 0.1


def test_ten_made_up_reports_are_not_said_to_be_of_fewer(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.array([9, *np.zeros(11, np.int64)]), np.random.default_rng(1))
        assert "percentage points" in box(one)
        assert "shown" not in box(one)
