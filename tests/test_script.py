"""The pages' one script in a real Chromium: what it adds by pointer and by keyboard, and that nothing needs it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, Route

import dither_aggregator.web
from dither_aggregator.health.capacity import FreeSpace
from tests.support.browsing import CONTRAST_MIN, LOOKS, Tab, a_tab, check_axe, served
from tests.support.sites import site
from tests.support.soaking import thinned
from tests.test_record_pages import Record, record

__all__ = ["record"]

pytestmark = pytest.mark.slow

SCRIPT = Path(dither_aggregator.web.__file__).parent / "static" / "dither.js"
BYTES_MAX = 8_000
HOSTILE = "<img src=x onerror=alert(1)>"
TURNED = "a value \N{ARABIC NUMBER SIGN}turned round"
WIDE = "W" * 200
VALUES = (HOSTILE, TURNED, WIDE, *(f"model {number}" for number in range(60)))
D = len(VALUES) + 1
CHARTS = {
    "/metrics/color": 2,
    "/metrics/dark": 1,
    "/metrics/color/time": 2,
    "/compare?metric=color": 2,
    "/ask?q=share(dark+%3D+%22yes%22)+by+day": 1,
}
"""Pages with charts, and how many of them at least have marks to read."""
PATHS = (*CHARTS, "/", "/changes", "/plan", "/pipeline", "/help/reading", "/metrics/none")
SHAPES = "circle, rect.bar"
BOX = ".words-of-mark"
TEXTS = "selector => [...document.querySelectorAll(selector)].map(each => each.textContent)"
MIDDLE = """mark => {
    const box = mark.getBoundingClientRect()
    return [box.x + box.width / 2, box.y + (mark.tagName == 'rect' ? 0 : box.height / 2)]
}"""
"""The point of a mark that a line crosses, in pixels of the window: the middle of a dot, or of a bar's upper edge."""
REACHED = f"""mark => {{
    mark.scrollIntoView({{block: 'nearest', behavior: 'instant'}})
    return ({MIDDLE})(mark)
}}"""
"""The same, of a mark that is brought into the window first."""
CROSSED = f"""() => {{
    const one = selector => {{
        const [found, ...others] = document.querySelectorAll(selector)
        if (!found || others.length) throw Error(`not one ${{selector}}`)
        return found
    }}
    const [vertical, horizontal] = [...document.querySelectorAll('.crosshair line')].map({MIDDLE})
    const words = one('{BOX}'), box = words.getBoundingClientRect()
    return [words.textContent, one('p.heard').textContent, vertical[0], horizontal[1], box.left, box.right,
        document.documentElement.scrollWidth]
}}"""
"""The crosshair's words, what is heard, where its lines are, both ends of its box, and how wide the page is."""
MADE = f"""() => [document.querySelector('{BOX}').innerText,
    document.querySelector('[data-marks]').getAttribute('aria-label') || '',
    document.querySelectorAll('img, {BOX} *, .heard *').length]"""
"""The crosshair's words as they are seen, its chart's name, and how many elements were made of what they say."""
CONTRAST = """elements => elements.map(element => {
    const parts = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    const light = text => parts(text).map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0)
    let behind = element
    while (behind && getComputedStyle(behind).backgroundColor == 'rgba(0, 0, 0, 0)') behind = behind.parentElement
    const both = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light)
    return (Math.max(...both) + .05) / (Math.min(...both) + .05)
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two weeks of a metric with hostile, long and turned values, one of which moved."""
    with (
        site(tmp_path_factory.mktemp("script"), D, 'mechanism = "oue"', values=VALUES) as one,
        patch.object(one.store, "left", return_value=FreeSpace("disk", 1 << 40, 1 << 41)),
    ):
        rng, before = np.random.default_rng(5), np.full(D, 0.005)
        before[:6] = 0.15, 0.12, 0.1, 0.08, 0.06, 0.04
        after = before.copy()
        after[0] += 0.2
        dark = one.store.plans("dark")[0].plan
        for back in range(15):
            shares = after if back <= 7 else before
            one.put(rng.multinomial(3_000, shares / shares.sum()), rng, back)
            one.put(np.array([700, 300]), rng, back, dark)
        with served(one) as url:
            yield url


@dataclass
class Opened:
    """A page that is open in a tab, and what its script says."""

    tab: Tab

    @property
    def page(self) -> Page:
        return self.tab.page

    @property
    def heard(self) -> str:
        (text,) = self.page.evaluate(TEXTS, "p.heard")
        return str(text)

    @property
    def box(self) -> str:
        (text,) = self.page.evaluate(TEXTS, BOX)
        return str(text)


@contextmanager
def opened(tab: Tab, url: str, width: int = 1280, **media: str) -> Iterator[Opened]:
    """Open a page; on the way out, nothing may have been logged, refused by the policy, or asked for elsewhere."""
    tab.visit(url, width, **media)
    yield Opened(tab)
    tab.page.wait_for_timeout(20)  # a console message is told after the call that caused it
    assert tab.complaints == []


@pytest.fixture(scope="module")
def bare(browser: Browser) -> Iterator[Tab]:
    """Give a tab without scripts."""
    with a_tab(browser, java_script_enabled=False) as made:
        yield made


def titles(page: Page, plot: int) -> list[str]:
    """Return the words of a chart's marks in the order in which they are seen: by rows, or from left to right."""
    found: list[str] = (
        page.locator("[data-marks]")
        .nth(plot)
        .evaluate(
            """plot => [...plot.querySelectorAll('title')].map(title => {
                const mark = title.parentNode
                const box = (mark.querySelector('circle') || mark).getBoundingClientRect()
                return [plot.dataset.marks == 'rows' ? box.y : box.x + box.width / 2, title.textContent]
            }).sort((a, b) => a[0] - b[0]).map(pair => pair[1])"""
        )
    )
    return found


def middle(mark: Locator) -> tuple[float, float]:
    x, y = mark.evaluate(MIDDLE)
    return x, y


def test_the_script_is_small_and_has_nothing_that_the_policy_refuses() -> None:
    text = SCRIPT.read_text()
    assert len(text.encode()) <= BYTES_MAX
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|\bFunction\(|\.style\b|fetch\(", text
    )
    assert max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize("path", thinned(PATHS, 0, 2, 4, 7, 8))  # each kind of chart, a form, a table
def test_a_page_says_the_same_without_scripts(tab: Tab, bare: Tab, address: str, path: str) -> None:
    with opened(bare, address + path) as one:
        said = one.page.locator("main").inner_text()
        drawn = one.page.locator("svg title").all_text_contents()
        assert one.page.locator(".copying, .heard, [data-marks][tabindex]").count() == 0
    with opened(tab, address + path) as full:
        full.page.evaluate("document.querySelectorAll('.copying, .heard').forEach(added => added.remove())")
        assert full.page.locator("main").inner_text() == said
        assert full.page.locator("svg title").all_text_contents() == drawn


@pytest.mark.parametrize("path", thinned([*CHARTS], 0, 2, 3))  # by rows, from left to right, and both windows
def test_arrow_keys_read_every_mark_in_its_order(tab: Tab, address: str, path: str) -> None:
    with opened(tab, address + path) as one:
        plots = one.page.locator("[data-marks][tabindex]")
        assert plots.count() >= CHARTS[path]
        for place in range(plots.count()):
            marks = titles(one.page, place)
            plots.nth(place).focus()
            assert one.heard == ""
            read = []
            for _ in marks:
                one.page.keyboard.press("ArrowRight")
                box, heard = one.page.evaluate(TEXTS, f"{BOX}, p.heard")
                assert box == heard
                read.append(heard)
            assert read == marks
            for key, expected in (("ArrowRight", -1), ("Home", 0), ("ArrowUp", 0), ("End", -1), ("ArrowLeft", -2)):
                one.page.keyboard.press(key)
                assert one.heard == marks[max(expected, -len(marks))]


def test_a_chart_is_reached_and_left_by_keyboard_alone(tab: Tab, address: str) -> None:
    with opened(tab, f"{address}/metrics/color") as one:
        chart = one.page.locator("[data-marks]").first
        for _ in range(40):
            one.page.keyboard.press("Tab")
            if chart.evaluate("chart => chart == document.activeElement"):
                break
        assert chart.evaluate("chart => chart.matches(':focus-visible')")
        assert chart.evaluate("chart => getComputedStyle(chart).outlineStyle") == "solid"
        one.page.keyboard.press("End")
        assert one.page.locator(".crosshair").count() == 1
        one.page.keyboard.press("Escape")
        assert (one.page.locator(".crosshair").count(), one.heard) == (0, "")
        one.page.keyboard.press("ArrowDown")
        assert one.heard == titles(one.page, 0)[0]
        one.page.keyboard.press("Tab")
        assert one.page.locator(".crosshair").count() == 0
        assert not chart.evaluate("chart => chart == document.activeElement")


def test_keys_that_are_the_browsers_stay_the_browsers(tab: Tab, address: str) -> None:
    with opened(tab, f"{address}/metrics/color") as one:
        one.page.locator("[data-marks]").first.focus()
        for key in ("Alt+ArrowDown", "Control+End", "Meta+Home", "PageUp", "a"):
            one.page.keyboard.press(key)
        assert one.page.locator(".crosshair").count() == 0


@pytest.mark.parametrize(("width", "path"), thinned(tuple(product((320, 1280, 2560), CHARTS)), 0, 2, 8, 14))
def test_the_crosshair_goes_to_the_nearest_mark(tab: Tab, address: str, width: int, path: str) -> None:
    """The pointer is put on each mark; the lines cross there, and the box says that mark's words within the page.

    Charts of both kinds at the width at which the box has the least room, and one at each other; a soak has them all.
    """
    with opened(tab, address + path, width) as one:
        plot = one.page.locator("[data-marks]").first
        marks = plot.locator(SHAPES).element_handles()
        for mark, words in list(zip(marks, titles(one.page, 0), strict=True))[:12]:
            x, y = mark.evaluate(REACHED)
            one.page.mouse.move(x, y - 3)  # above: a bar of nothing lies on the chart's lower edge
            said, heard, across, down, left, right, whole = one.page.evaluate(CROSSED)
            assert said == words
            assert heard == ""
            assert across == pytest.approx(x, abs=1)
            assert down == pytest.approx(y, abs=1)
            assert 0 <= left <= right <= width
            assert whole <= width
        one.page.mouse.move(1, 1)
        assert one.page.locator(".crosshair").count() == 0


def test_the_pointer_anywhere_in_a_row_reads_that_row(tab: Tab, address: str) -> None:
    with opened(tab, f"{address}/metrics/color") as one:
        for place, words in enumerate(titles(one.page, 0)[:4]):
            _, y = middle(one.page.locator("circle.dot").nth(place))
            for end in ("text.label", "text.value"):
                one.page.mouse.move(middle(one.page.locator(end).nth(place))[0], y)
                assert one.box == words
        one.page.keyboard.press("Escape")
        assert one.page.locator(".crosshair").count() == 0


def test_a_finger_that_was_lifted_still_reads(browser: Browser, address: str) -> None:
    with a_tab(browser, has_touch=True) as touched, opened(touched, f"{address}/metrics/color", 390) as one:
        mark = one.page.locator("circle.dot").nth(2)
        mark.scroll_into_view_if_needed()
        one.page.touchscreen.tap(*middle(mark))
        assert one.box == titles(one.page, 0)[2]


def test_the_crosshair_stays_on_its_mark_when_the_width_changes(tab: Tab, address: str) -> None:
    with opened(tab, f"{address}/metrics/color") as one:
        one.page.locator("[data-marks]").first.focus()
        one.page.keyboard.press("Home")
        one.page.set_viewport_size({"width": 360, "height": 800})
        one.page.wait_for_timeout(100)
        dot, line = one.page.locator("circle.dot").first, one.page.locator(".crosshair line").first
        assert middle(line)[0] == pytest.approx(middle(dot)[0], abs=1)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_hostile_value_is_text(tab: Tab, address: str) -> None:
    for path in ("/metrics/color", "/compare?metric=color", "/metrics/color/time"):
        with opened(tab, address + path) as one:
            read = []
            one.page.locator("[data-marks]").first.focus()
            for _ in titles(one.page, 0):
                one.page.keyboard.press("ArrowDown")
                text, name, made = one.page.evaluate(MADE)
                read.append(text + name)
                assert made == 0
            assert HOSTILE in "".join(read)
            assert "\N{ARABIC NUMBER SIGN}" not in "".join(read)
    with opened(tab, f"{address}/metrics/color") as one:
        assert any(r"\u{600}turned" in words for words in titles(one.page, 0))


def test_a_question_is_completed_by_keyboard_alone_and_a_hostile_name_is_text(tab: Tab, address: str) -> None:
    with opened(tab, f"{address}/ask") as one:
        field = one.page.get_by_label("Question, or several, a line each")
        field.press_sequentially("share(col")
        offers = one.page.locator(".offers button")
        assert offers.all_inner_texts() == ["color"]
        one.page.keyboard.press("Tab")
        one.page.keyboard.press("Enter")
        assert field.input_value() == "share(color"
        assert field.evaluate("field => document.activeElement == field")
        field.press_sequentially(' = "<I')
        assert offers.all_inner_texts() == [f'"{HOSTILE}"']
        assert one.page.locator("img").count() == 0
        check_axe(one.page)
        one.page.keyboard.press("Tab")
        one.page.keyboard.press("Enter")
        field.press_sequentially(")")
        assert offers.count() == 0
        one.page.keyboard.press("Tab")
        one.page.keyboard.press("Tab")  # past the level
        one.page.keyboard.press("Enter")
        one.page.get_by_text("With 95 %").or_(one.page.locator("table.shown")).first.wait_for()
        assert field.input_value() == f'share(color = "{HOSTILE}")'
        assert one.page.locator("img").count() == 0


def test_the_address_of_a_view_is_copied(browser: Browser, address: str) -> None:
    url = f"{address}/compare?metric=color&level=80"
    with a_tab(browser, permissions=["clipboard-read", "clipboard-write"]) as asked, opened(asked, url) as one:
        one.page.get_by_role("button", name="Copy a link to this view").press("Enter")
        one.page.get_by_text("Copied.").wait_for()
        assert one.page.evaluate("navigator.clipboard.readText()") == url
        assert one.page.url == url


def test_where_there_is_no_clipboard_the_address_is_selected(browser: Browser, address: str) -> None:
    """On http under a name other than localhost a page has no clipboard."""
    context = browser.new_context()
    page = context.new_page()

    def from_here(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace("http://pages.test", address)))

    page.route("http://pages.test/**", from_here)
    page.goto("http://pages.test/metrics/color?level=80")
    assert not page.evaluate("isSecureContext")
    page.get_by_role("button", name="Copy a link to this view").click()
    page.get_by_text("The address is selected").wait_for()
    assert page.evaluate("getSelection().toString()") == "http://pages.test/metrics/color?level=80"
    assert page.evaluate("document.activeElement.readOnly")
    check_axe(page)
    context.close()


@pytest.mark.parametrize("path", thinned([*CHARTS], 0, 2))
def test_what_is_added_is_accessible(tab: Tab, address: str, path: str) -> None:
    with opened(tab, address + path) as one:
        one.page.locator("[data-marks]").first.focus()
        one.page.keyboard.press("Home")
        for width, scheme in LOOKS:
            tab.look(width, scheme)
            assert one.page.locator(BOX).evaluate_all(CONTRAST)[0] >= CONTRAST_MIN
            if (width, scheme) in thinned(LOOKS, 0):
                check_axe(one.page)
        names = [each.get_attribute("aria-label") for each in one.page.locator("[data-marks][tabindex]").all()]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("how", [{"forced_colors": "active"}, {"reduced_motion": "reduce"}, {"scheme": "dark"}])
def test_the_crosshair_is_seen_and_does_not_move_by_itself(tab: Tab, address: str, how: dict[str, str]) -> None:
    with opened(tab, f"{address}/metrics/color", 1280, **how) as one:
        one.page.locator("[data-marks]").first.focus()
        one.page.keyboard.press("Home")
        stroke = one.page.locator(".crosshair line").first.evaluate("line => getComputedStyle(line).stroke")
        behind = one.page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        edge = one.page.locator(BOX).evaluate("box => getComputedStyle(box).borderTopColor")
        assert behind not in (stroke, edge)
        assert one.page.evaluate("document.getAnimations().length") == 0
        tab.look(1280, media="print")
        assert not one.page.locator(".crosshair").is_visible()
        assert not one.page.locator(".copying").is_visible()


def test_a_snapshots_page_has_a_crosshair_too(tab: Tab, record: Record) -> None:
    """The page comes from a real server, behind its own headers."""
    with opened(tab, record.address("/s/{color}")) as one:
        one.page.locator("[data-marks]").first.focus()
        one.page.keyboard.press("End")
        assert one.heard == titles(one.page, 0)[-1]


def test_a_script_within_the_page_is_refused_and_noticed(tab: Tab, address: str) -> None:
    """Planted: were the policy laxer, or were refusals not seen here, the tests above would hold nothing."""
    planted = (
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'document.title = 1'}))"
    )
    page = tab.visit(address)
    page.evaluate(planted)
    page.wait_for_timeout(100)
    (complaint,) = tab.complaints
    assert "Content Security Policy" in complaint
    assert page.title() != "1"
