"""The pages that plan and explain, in a real Chromium: phone and desktop, light and dark, by keyboard, on paper."""

import pytest

from tests import test_pages
from tests.support.browsing import WIDTHS, Tab, check_looks, check_widths

pytestmark = pytest.mark.slow

url = test_pages.url

PATHS = [
    "/plan",
    "/plan?kind=choices&d=50001&ticks=5&n=12000&epsilon=1.0",
    "/plan?d=40&epsilon_permanent=2&epsilon=1&share_percent=0.002",
    "/help/reading",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_guide_fits_and_says_nothing_on_the_console(tab: Tab, url: str, path: str) -> None:
    page = tab.visit(url + path)
    check_looks(tab, axe=())
    check_widths(tab)
    assert page.locator("h1").count() == 1
    for width in WIDTHS:
        tab.look(width, media="print", forced_colors="active")
        assert tab.fits(), width
    assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_plan_is_made_by_keyboard_alone(tab: Tab, url: str, width: int) -> None:
    page = tab.visit(f"{url}/plan", width, "light")
    page.get_by_label("reports").fill("")
    page.get_by_label("detectable share in %").fill("3")
    with page.expect_navigation(wait_until="load"):
        page.keyboard.press("Enter")
    headline = page.locator(".headline").inner_text().replace("\xa0", " ")
    assert headline == (
        "With 60,205 reports at epsilon 1.0, a value that 3.0 % have stands out from the noise four times in five."
    )
    assert page.get_by_label("reports").input_value() == ""
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("link", name="How to read these words").press("Enter")
    assert page.locator("h1").inner_text() == "How to read these pages"
    assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_noise_and_truth_lie_within_their_picture(tab: Tab, url: str, width: int) -> None:
    page = tab.visit(f"{url}/help/reading", width, "dark")
    box = page.locator("figure svg[role=img]").bounding_box()
    assert box
    for mark in page.locator("circle.dot, line.truth").all():
        inner = mark.bounding_box()
        assert inner
        assert box["x"] - 8 <= inner["x"] <= box["x"] + box["width"] + 8
    assert tab.complaints == []


CONTRAST = """element => {
    const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(part => {
        const share = part / 255
        return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    const light = text => rgb(text).reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0)
    const style = getComputedStyle(element)
    const own = element instanceof SVGElement && style.stroke != 'none' ? style.stroke : style.color
    const [a, b] = [light(own), light(getComputedStyle(document.body).backgroundColor)]
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_and_words_can_be_told_from_the_page(tab: Tab, url: str, scheme: str) -> None:
    page = tab.visit(f"{url}/help/reading", 1280, scheme)
    for selector, least in (("line.truth", 3), ("line.interval", 3), (".words dt", 4.5), ("figcaption", 4.5)):
        assert page.locator(selector).first.evaluate(CONTRAST) >= least, selector
