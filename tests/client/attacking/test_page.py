"""The page of attacks in a real Chromium: axe, sizes, contrast, and that plots say what tables say."""

from itertools import pairwise, product
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from dither.attacking.attacks import ATTACKS, attack
from dither.attacking.page import page
from dither.attacking.trials import Attack
from dither.writing.page import to_html, to_markdown
from tests.support.attacks import trial
from tests.test_pages import BRIGHTNESS

pytestmark = pytest.mark.slow

LOOKS = list(product((390, 1280), ("light", "dark")))
ASKED = trial(40, 60)


@pytest.fixture(scope="module")
def attacks() -> list[Attack]:
    return attack(ASKED, list(ATTACKS))


@pytest.fixture(scope="module")
def file(attacks: list[Attack], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "attacks.html"
    path.write_text(to_html(page(attacks, ASKED)), encoding="utf-8")
    return path


def opened(browser: Browser, file: Path, width: int, scheme: str) -> tuple[Page, list[str]]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=True  # type: ignore[arg-type]
    )  # fmt: skip
    seen = context.new_page()
    complaints: list[str] = []
    seen.on("console", lambda message: complaints.append(message.text))
    seen.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
    seen.goto(file.as_uri())
    return seen, complaints


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_page_fits_and_axe_finds_nothing(browser: Browser, file: Path, width: int, scheme: str) -> None:
    seen, complaints = opened(browser, file, width, scheme)
    for summary in seen.locator("summary").all():
        summary.click()
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    results = Axe().run(seen)
    assert results.violations_count == 0, results.generate_report()
    background, text = seen.locator("body").evaluate(BRIGHTNESS), seen.locator("h1").evaluate(BRIGHTNESS)
    assert abs(background - text) > 0.7
    assert (background < 0.5) == (scheme == "dark")
    assert complaints == []
    seen.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_no_label_of_a_plot_lies_on_another_or_leaves_the_page(browser: Browser, file: Path, width: int) -> None:
    seen, _ = opened(browser, file, width, "light")
    figures = seen.locator("figure").all()
    assert len(figures) == len(ATTACKS)
    for figure in figures:
        boxes = [box for each in figure.locator("text").all() if (box := each.bounding_box())]
        assert len(boxes) > 5
        for box in boxes:
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        for place, one in enumerate(boxes):
            for other in boxes[:place]:
                across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
                down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
                assert min(across, down) < 2
    seen.context.close()


def test_tables_have_every_number_and_dots_are_where_they_say(
    browser: Browser, file: Path, attacks: list[Attack]
) -> None:
    seen, _ = opened(browser, file, 1280, "light")
    for summary in seen.locator("summary").all():
        summary.click()
    for found, figure in zip(attacks, seen.locator("figure").all(), strict=True):
        dots = figure.locator(".plot .dot").all()
        points = [point for line in found.lines for point in line.points]
        assert len(dots) == len(points)
        if len(points) > len(found.lines):  # down the plot a larger share is higher
            heights = [
                (point.share, box["y"]) for point, dot in zip(points, dots, strict=True) if (box := dot.bounding_box())
            ]
            above = [share for share, _ in sorted(heights, key=lambda each: each[1]) if share >= found.least]
            assert all(one >= other - 0.02 for one, other in pairwise(above))
        for line in found.lines:
            table = seen.get_by_role("region", name=line.name, exact=True).first
            for point in line.points:
                low, high = point.interval
                assert f"{100 * point.share:.1f} %" in table.inner_text()
                assert f"{100 * low:.1f} to {100 * high:.1f} %" in table.inner_text()
    seen.context.close()


def test_markdown_has_the_tables(attacks: list[Attack]) -> None:
    text = to_markdown(page(attacks, ASKED))
    assert "| what the operator has | right | 95 % interval | at most |\n| --- |" in text.replace("\\", "")
    assert "<svg" not in text
