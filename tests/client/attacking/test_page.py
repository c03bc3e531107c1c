"""The page of attacks in a real Chromium: axe, sizes, contrast, and that plots say what tables say."""

from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from dither.attacking import memos as memo_linking
from dither.attacking.attacks import ATTACKS, attack, page
from dither.attacking.trials import Attack
from dither.auditing.memos import POPULATION, Crowd, Trace
from dither.writing import to_html, to_markdown
from dither_shared.rng import Rng
from tests.support.attacks import trial
from tests.support.browsing import TALL, Tab, check_looks
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

ASKED = trial(scaled(8, 40), scaled(20, 60))


@pytest.fixture(scope="module")
def attacks() -> list[Attack]:
    """Give what came of all attacks; one crowd of few lives again and again has as many points to draw as five."""
    with patch.object(memo_linking, "CROWDS", scaled(1, 5)), patch.object(Crowd, "lives", lives_again):
        return attack(ASKED, list(ATTACKS))


def lives_again(crowd: Crowd, rng: Rng) -> tuple[list[Trace], list[Trace]]:
    """Return a crowd of POPULATION, in which a few lives come again."""
    lives = [crowd._live(rng) for _ in range(scaled(10, POPULATION))] * (POPULATION // scaled(10, POPULATION))
    return [before for before, _ in lives], [after for _, after in lives]


@pytest.fixture(scope="module")
def file(attacks: list[Attack], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "attacks.html"
    path.write_text(to_html(page(attacks, ASKED)), encoding="utf-8")
    return path


def test_the_page_fits_and_axe_finds_nothing(tab: Tab, file: Path) -> None:
    seen = tab.visit(file.as_uri())
    for summary in seen.locator("summary").all():
        summary.click()
    assert seen.evaluate(TALL) == []
    check_looks(tab)
    assert tab.complaints == []


BOXES = """figure => [...figure.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect()
    return [box.x, box.y, box.width, box.height]
}).filter(([x, y, width, height]) => width > 0)"""


HEIGHTS = """dots => dots.map(dot => dot.getBoundingClientRect())
    .map(({y, width, height}) => width > 0 && height > 0 ? y : null)"""


def test_no_label_of_a_plot_lies_on_another_or_leaves_the_page(tab: Tab, file: Path) -> None:
    seen = tab.visit(file.as_uri())
    for width in (390, 1280):
        tab.look(width)
        figures = seen.locator("figure").all()
        assert len(figures) == len(ATTACKS)
        for figure in figures:
            boxes = figure.evaluate(BOXES)
            assert len(boxes) > 5
            for place, (x, y, wide, high) in enumerate(boxes):
                assert 0 <= x <= x + wide <= width
                for left, top, across, down in boxes[:place]:
                    shared = min(x + wide, left + across) - max(x, left), min(y + high, top + down) - max(y, top)
                    assert min(shared) < 2


def test_tables_have_every_number_and_dots_are_where_they_say(tab: Tab, file: Path, attacks: list[Attack]) -> None:
    seen = tab.visit(file.as_uri())
    for summary in seen.locator("summary").all():
        summary.click()
    compared = 0
    for found, figure in zip(attacks, seen.locator("figure").all(), strict=True):
        dots = figure.locator(".plot .dot").evaluate_all(HEIGHTS)
        points = [point for line in found.lines for point in line.points]
        assert len(dots) == len(points)
        if len(points) > len(found.lines):  # down the plot a larger share is higher
            heights = [(point.share, y) for point, y in zip(points, dots, strict=True) if y is not None]
            above = [share for share, _ in sorted(heights, key=lambda each: each[1]) if share >= found.least]
            assert all(one >= other - 0.02 for one, other in pairwise(above))
            compared += len(above) > 1  # else there is no order to be wrong
        for line in found.lines:
            table = seen.get_by_role("region", name=line.name, exact=True).first.inner_text()
            for point in line.points:
                low, high = point.interval
                assert f"{100 * point.share:.1f} %" in table
                assert f"{100 * low:.1f} to {100 * high:.1f} %" in table
    assert compared > 0


def test_markdown_has_the_tables(attacks: list[Attack]) -> None:
    text = to_markdown(page(attacks, ASKED))
    assert "| what the operator has | right | 95 % interval | at most |\n| --- |" in text.replace("\\", "")
    assert "<svg" not in text
