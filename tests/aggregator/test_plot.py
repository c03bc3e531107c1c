import re
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import Point
from dither_aggregator.analysis.numbers import NumberRow
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.shares import ShareRow as Row
from dither_aggregator.web.charts import (
    LABEL_EM,
    PANEL_HEIGHT,
    draw_series,
    end,
    end_in_points,
    label_width,
    percent,
    precise,
    shorten_apart,
)
from dither_aggregator.web.forest_plots import draw
from dither_aggregator.web.pages import numbers as shape
from dither_aggregator.web.pages.numbers import draw_shape
from tests.support.number_pages import numbers, two_weeks_of_numbers
from tests.support.sites import Site

ROWS = [Row("a" * 50, 0.4, 0.02, 0.36, 0.44), Row("b", 0.1, 0.02, 0.06, 0.14), Row("c", -0.01, 0.02, -0.05, 0.03)]


def test_everything_lies_within_the_plot() -> None:
    plot = draw(ROWS, 0.02)
    for mark in plot.marks[:2]:
        assert 0 <= mark.x_low < mark.x < mark.x_high <= 100
    below = plot.marks[2]  # a share below zero has no dot, and of its interval the part above
    assert (below.told, below.x_low) == (False, 0)
    assert 0 < below.x_high < 100
    assert all(0 <= tick.x <= 100 for tick in plot.ticks)
    assert plot.noise_x >= 0
    assert plot.marks[0].label == "a" * 22 + "…"
    assert plot.marks[-1].y < plot.height


def test_the_axis_has_zero_and_round_numbers() -> None:
    plot = draw(ROWS, 0.02)
    assert [tick.label.replace("\xa0", " ") for tick in plot.ticks] == ["0 %", "20 %", "40 %"]
    assert [tick.zero for tick in plot.ticks] == [True, False, False]


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.1, 1, 40])
def test_any_scale_has_a_few_different_labels(scale: float) -> None:
    rows = [Row("a", scale, scale / 10, scale * 0.8, scale * 1.2)]
    labels = [tick.label for tick in draw(rows, scale / 10).ticks]
    assert 3 <= len(set(labels)) == len(labels) <= 6


def test_numbers_have_the_digits_that_their_error_leaves() -> None:
    assert [precise(0.12345, error).replace("\xa0", " ") for error in (0.1, 0.01, 0.001, 0.0001)] == [
        "12 %",
        "12.3 %",
        "12.35 %",
        "12.345 %",
    ]
    assert percent(-0.0001, 1) == "0.0\xa0%"
    assert percent(-0.05, 1) == "\N{MINUS SIGN}5.0\xa0%"


def test_an_end_that_is_not_zero_is_not_shown_as_zero() -> None:
    nbsp, minus = "\N{NO-BREAK SPACE}", "\N{MINUS SIGN}"
    assert [end(share, 0.06) for share in (0.0004, -0.0004, 0.3, 0.0)] == [
        f"0.04{nbsp}%",
        f"{minus}0.04{nbsp}%",
        f"30{nbsp}%",
        f"0{nbsp}%",
    ]
    assert end(1e-9, 0.06) == f"0.0000{nbsp}%"
    assert [end_in_points(share, 0.06) for share in (0.0004, -0.1)] == ["+0.04", f"{minus}10"]


def test_an_estimate_outside_of_its_cut_interval_stays_in_its_panel() -> None:
    """Rates of tables are raw, and their intervals end at 0 %."""
    days = Window.ending(date(2026, 11, 2), 2)
    shares = ((0.2, 0.1, 0.3), (-0.4, 0.0, 0.1))
    points = [
        Point(
            "a", estimate, 0.1, lower, upper, True, "p", 1, days.first + timedelta(days=place), 300, provisional=False
        )
        for place, (estimate, lower, upper) in enumerate(shares)
    ]
    (panel,) = draw_series(points, days).panels
    assert all(0 <= float(place.split(",")[1]) <= PANEL_HEIGHT for place in panel.runs[0].line.split())
    assert panel.dots[1].y > panel.dots[1].y_low


# The axis below the shape of numbers: bars of one width, labels at edges that overlap nowhere.


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with two_weeks_of_numbers(tmp_path_factory.mktemp("numbers")) as made:
        yield made


def shares(edges: list[float | None]) -> list[NumberRow]:
    return [NumberRow(f"{at}", 0.1, 0.01, 0.08, 0.12, "share", *each, 0.1) for at, each in enumerate(pairwise(edges))]


AXES: dict[str, list[float | None]] = {
    "log": [None, *(0.01 * 1.145**place for place in range(65)), None],
    "few": [None, 0.0, 1.0, None],
    "long": [None, *(float(place * 10**12 - 10**14) for place in range(200)), None],
    "near": [None, *(100 + place / 100 for place in range(30)), None],
    "closed": [float(place) for place in range(17)],
}


def overlapping(drawn: shape.Shape) -> bool:
    """Return whether labels overlap on a screen of 320 pixels, of which the plot has 275, at 12 pixels an em."""
    ends = []
    for name in drawn.names:
        width, x = 12 * label_width(name.label), 2.75 * name.x
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[name.anchor]
        ends.append((left, left + width))
    return any(right > left for (_, right), (left, _) in pairwise(ends))


@pytest.mark.parametrize("axis", AXES)
def test_bars_are_equally_wide_and_labels_stand_at_edges(axis: str) -> None:
    rows = shares(AXES[axis])
    drawn = draw_shape(rows)
    assert len({bar.width for bar in drawn.bars}) == 1
    assert drawn.bars[-1].x + drawn.bars[-1].width <= 100
    step = (100 - shape.MARGIN) / len(rows)
    for name in drawn.names:
        at = round((name.x - shape.MARGIN) / step)
        assert name.x == pytest.approx(shape.MARGIN + step * at, abs=0.001)
        edge = rows[at].low if at < len(rows) else rows[-1].high
        assert edge is not None
        assert numbers(name.label)[0] == pytest.approx(edge, rel=0.005)
    assert not overlapping(drawn)
    assert len({name.label for name in drawn.names}) == len(drawn.names)


def test_labels_that_overlap_would_be_seen() -> None:
    with patch.object(shape, "NAME_PERCENT", 0.1):
        assert overlapping(draw_shape(shares(AXES["long"])))


def test_the_axis_is_logarithmic_where_the_edges_are(one: Site) -> None:
    """The labels of a logarithmic scale are a constant factor apart, those of a linear one a constant step."""
    for metric, constant in (("load", np.log), ("cold", np.asarray)):
        (figure,) = re.findall(r'<div class="plot shape".*?</figure>', one.page(metric=metric).html, re.DOTALL)
        beneath = re.findall(r'<text class="axis" x="(.*?)%" y="195"[^>]*>(.*?)</text>', figure)
        x, labels = [float(place) for place, _ in beneath], constant([numbers(label)[0] for _, label in beneath])
        slopes = np.diff(labels) / np.diff(x)
        assert len(slopes) >= 3
        assert np.ptp(slopes) < 0.06 * slopes.mean()


def test_labels_of_different_texts_differ_and_one_text_has_one_label() -> None:
    long = "a value with a very long name that no label holds, number"
    texts = ["red", f"{long} 1", f"{long} 2", "red", f"x & {long} 1", f"x & {long} 2", f"{long} 1"]
    labels = shorten_apart(texts)
    assert [labels[0], labels[3]] == ["red", "red"]
    assert labels[1] == labels[6]
    assert len(set(labels)) == len(set(texts))
    assert all(label_width(label) <= LABEL_EM for label in labels)
    same = shorten_apart([f"{'w' * 40}{middle}{'w' * 40}" for middle in "ab"])
    assert [label[:2] for label in same] == ["1.", "2."]
