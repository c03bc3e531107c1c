"""The axis below the shape of numbers: bars of one width, labels at edges that overlap nowhere."""

import re
from collections.abc import Iterator
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis.numbers import NumberRow
from dither_aggregator.web.charts import shape
from dither_aggregator.web.charts.scale import label_width
from dither_aggregator.web.charts.shape import draw_shape
from tests.support.number_pages import numbers, two_weeks_of_numbers
from tests.support.sites import Site


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
        (svg,) = re.findall(r'<div class="plot shape".*?</svg>', one.page(metric=metric).html, re.DOTALL)
        beneath = re.findall(r'<text class="axis" x="(.*?)%" y="195"[^>]*>(.*?)</text>', svg)
        x, labels = [float(place) for place, _ in beneath], constant([numbers(label)[0] for _, label in beneath])
        slopes = np.diff(labels) / np.diff(x)
        assert len(slopes) >= 3
        assert np.ptp(slopes) < 0.06 * slopes.mean()
