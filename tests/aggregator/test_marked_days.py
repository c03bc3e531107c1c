"""Marked days: a metric's days and the API show what the operator named, as text and, where there is room, drawn."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import Point
from dither_aggregator.analysis.reading import Window
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.web import charts as series_module
from dither_aggregator.web.charts import (
    MARK_HEIGHT,
    MARK_PERCENT,
    MARK_TOP,
    MarkLabel,
    draw_series,
    label_width,
)
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Site, site

HOSTILE = '<script>alert("1")</script> \N{RIGHT-TO-LEFT OVERRIDE}turned'
ADDRESS = "/metrics/color/time?values=model 0"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    """Ten days of a list of ten values."""
    with site(tmp_path, 10) as made:
        rng, counts = np.random.default_rng(5), np.array([600, *[0] * 8, 400])
        for back in range(1, 11):
            made.put(counts, rng, back)
        yield made


def mark(one: Site, days_ago: int, text: str) -> date:
    day = one.store.today() - timedelta(days=days_ago)
    one.store.put(DayMark(day, text))
    return day


def listed(html: str) -> list[str]:
    found = re.search('<ul class="marks">(.*?)</ul>', html, re.DOTALL)
    items = re.findall("<li>(.*?)</li>", found[1]) if found else []
    return [unescape(re.sub("<.*?>", "", item)) for item in items]


def test_a_mark_in_the_window_is_drawn_and_listed_and_others_are_not(one: Site) -> None:
    assert "Marked days" not in one.client.get(ADDRESS).text
    day, _, _ = mark(one, 4, "version 158"), mark(one, 90, "long ago"), mark(one, -3, "to come")
    html = one.client.get(ADDRESS).text
    assert listed(html) == [f"{day} version 158"]
    assert re.findall('<text class="axis named" [^>]*text-anchor[^>]*>(.*?)</text>', html) == ["version 158"]
    assert html.count('<line class="mark"') == 3  # the value's panel, that of the reports, and beside the label
    assert "not that it moved a share" in html


def test_days_without_reports_have_their_marks_too(one: Site) -> None:
    one.store.put(DayMark(date(2020, 1, 2), "version 1"))
    html = one.client.get("/metrics/color/time?from=2020-01-01&to=2020-01-03").text
    assert "No reports of these days are counted" in html
    assert listed(html) == ["2020-01-02 version 1"]


def test_a_hostile_text_is_text(one: Site) -> None:
    day = mark(one, 3, HOSTILE)
    html = one.client.get(ADDRESS).text
    assert html.count("<script") == 1  # the page's own
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in html
    assert listed(html) == [f'{day} <script>alert("1")</script> \\u{{202e}}turned']
    assert "<bdi>&lt;script&gt;" in html


def test_a_text_that_a_spreadsheet_might_run_is_quoted_in_csv(one: Site) -> None:
    mark(one, 3, "=1+1")
    (row,) = csv.DictReader(io.StringIO(one.client.get("/v1/marks?format=csv").text))
    assert row["text"] == "'=1+1"


def test_of_very_many_marks_the_latest_are_shown(one: Site) -> None:
    first = one.store.today() - timedelta(days=9)
    for number in range(103):
        one.store.put(DayMark(first if number < 3 else first + timedelta(days=2), f"number {number:03}"))
    html = one.client.get(ADDRESS).text
    assert len(listed(html)) == 100
    assert listed(html)[0].endswith("number 003")
    assert '3 earlier marks of these days are left out here; <a href="/v1/marks">' in html


def test_the_api_has_every_mark_by_day(one: Site) -> None:
    assert one.client.get("/v1/marks").get_json() == {"meta": {"app": "example"}, "rows": []}
    later, sooner = mark(one, 1, "version 158"), mark(one, 400, HOSTILE)
    assert one.client.get("/v1/marks").get_json()["rows"] == [
        {"day": f"{sooner}", "text": HOSTILE},
        {"day": f"{later}", "text": "version 158"},
    ]
    answer = one.client.get("/v1/marks?format=csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="marks.csv"'
    assert next(csv.reader(io.StringIO(answer.text))) == ["day", "text"]


# The drawing.

FIRST = date(2026, 11, 1)
WINDOW = Window(FIRST, FIRST + timedelta(days=27))


def points(revs: tuple[int, ...] = (1,)) -> list[Point]:
    """Return four weeks of a value, under one plan after the other."""
    days = WINDOW.days // len(revs)
    return [
        Point(
            "red", 0.5, 0.1, 0.3, 0.7, True, f"plan {rev}", rev, FIRST + timedelta(days=place * days + back), 100, False
        )
        for place, rev in enumerate(revs)
        for back in range(days)
    ]


def overlaps(labels: Sequence[MarkLabel]) -> bool:
    """Whether two labels of a line lie over each other on a phone, or one leaves its plot."""
    boxes = [
        (label.y, *((label.x - width, label.x) if label.ends else (label.x, label.x + width)))
        for label in labels
        for width in (MARK_PERCENT * label_width(label.text),)
    ]
    return any(low < 0 or high > 100 for _, low, high in boxes) or any(
        one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
        for place, one in enumerate(boxes)
        for other in boxes[place + 1 :]
    )


TEXTS = ("v", "version 158", "W" * 80, "\N{SNOWMAN} a fair, in a town with a long name")


def test_labels_overlap_nothing_and_a_mark_without_room_keeps_its_line() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        days = sorted(int(day) for day in rng.integers(0, 28, 1 + seed % 25))
        marks = sorted({(FIRST + timedelta(days=day), TEXTS[int(rng.integers(4))]) for day in days})
        chart = draw_series(points(), WINDOW, marks)
        assert not overlaps(chart.labels)
        assert len(chart.marks) == len(set(days))
        assert chart.labels[0].text[0] == marks[-1][1][0]
        lowest = max(label.y for label in chart.labels)
        assert lowest <= MARK_TOP + 2 * MARK_HEIGHT
        assert all(bar.y > lowest for bar in chart.bars)
        assert {round(bar.y + bar.height, 2) for bar in chart.bars} == {chart.reports_height}


def test_labels_that_may_overlap_are_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug that is planted: labels are thought to be a tenth as wide."""
    monkeypatch.setattr(series_module, "label_width", lambda label: label_width(label) / 10)
    with pytest.raises(AssertionError):
        test_labels_overlap_nothing_and_a_mark_without_room_keeps_its_line()


def test_plans_that_begin_are_marked_before_what_the_operator_named() -> None:
    begins = FIRST + timedelta(days=14)
    marks = [(begins, f"version {number}") for number in range(20)]
    chart = draw_series(points((1, 2)), WINDOW, marks)
    assert chart.labels[0].text == "rev 2"
    assert 1 < len(chart.labels) < 20
    assert len(chart.marks) == 1


def test_the_page_lists_where_a_plan_begins(tmp_path: Path) -> None:
    with site(tmp_path, 10) as one:
        rng, counts = np.random.default_rng(5), np.array([600, *[0] * 8, 400])
        for back in (6, 5):
            one.put(counts, rng, back)
        values = tuple(f"model {number}" for number in range(9))
        one.store.load(
            registry(values=values, rev=2, epsilon="5.0", reports=1, device_epsilon="400.0", expires=EXPIRES)
        )
        new = one.store.plans("color")[0].plan
        for back in (4, 3):
            one.put(counts, rng, back, new)
        begins = mark(one, 4, "version 158")
        html = one.client.get(ADDRESS).text
        assert listed(html) == [f"{begins} rev 2 begins", f"{begins} version 158"]
        assert html.count('<line class="mark"') == 4  # two labels
