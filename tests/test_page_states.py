"""Every page and state in a real Chromium: what axe finds, what overflows, how large it is, what the console says."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Page

from dither_aggregator.ask.language import quoted
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Tally
from dither_aggregator.store.document_kinds import Dashboard, DayMark
from tests.support.browsing import (
    CONTRAST_MIN,
    FAINT,
    FLAT,
    TALL,
    Tab,
    axe_of,
    check_looks,
    check_size,
    check_state,
    check_widths,
    served,
)
from tests.support.sites import site, zipf

pytestmark = pytest.mark.slow

WIDE = "W" * 200
TURNED = "a value \N{ARABIC NUMBER SIGN}turned round"
DASHBOARD = f"""
[group.color]
"Tens" = "model *0"
"{"W" * 80}" = "model ?"
[metric.color]
tags = ["web", "{"W" * 80}"]
"""
RIGHT_TO_LEFT = "\u05e2\u05d1\u05e8\u05d9\u05ea (2), \u0627\u0644\u0639\u0631\u0628\u064a\u0629 1.5 %"
VALUES = ("model 0", RIGHT_TO_LEFT, *(f"model {number}" for number in range(2, 298)), WIDE, TURNED)
"""The first two are among the largest."""
D = len(VALUES) + 1


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two weeks and today of a metric with many values, one of which moved, long and turned ones among them."""
    with site(tmp_path_factory.mktemp("states"), D, 'mechanism = "oue"', values=VALUES) as one:
        rng, before = np.random.default_rng(3), zipf(D)
        before[D - 3 : D - 1] += 0.1
        after = before.copy()
        after[0] += 0.1
        dark = one.store.plans("dark")[0].plan
        Administration(one.store).show(Dashboard.parse(DASHBOARD))
        for back in range(15):
            shares = after if back <= 7 else before
            one.put(rng.multinomial(900 if back == 0 else 3_000, shares / shares.sum()), rng, back)
            one.put(np.array([700, 300]), rng, back, dark)
        for back, text in ((0, WIDE[:80]), (1, TURNED), (6, "version 158"), (6, "a fair"), (7, "outage"), (14, "v")):
            one.store.put(DayMark(one.store.today() - timedelta(days=back), text))
        with served(one) as url:
            yield url


STATES = {
    "/": "metrics moved",
    "/?search=nothing": "No metric has",
    "/metrics/color": "values stand out from the noise",
    "/metrics/color?search=W": "Search",
    "/metrics/color?group=Tens": "of its 30 values are shown",
    "/metrics/color/privacy": "What this aggregator can and cannot see",
    "/metrics/color/share": "Show it on another site",
    "/?tag=web": "metrics moved",
    "/metrics/color?window=today": "More reports may come",
    "/metrics/color?epoch=2020-01-01": "No reports of these days",
    "/metrics/color?from=2026-11-11&to=2026-11-17&level=99.9": "for every window of days that you could have chosen",
    "/compare?metric=color&from=2026-11-14&to=2026-11-17&level=.9": "for every two windows of days",
    "/metrics/dark": "say yes.",
    "/metrics/color/time": "days have reports",
    "/metrics/color/time?from=2020-01-01&to=2020-01-02": "No reports of these days are counted",
    "/metrics/dark/time": "days have reports",
    "/changes": "Something moved in 1 of 2 metrics",
    "/compare": "Compare two windows",
    "/compare?metric=color&search=W": "values moved",
    "/compare?metric=dark": "cannot be told to have moved",
    "/compare?metric=color&window=today": "nothing is told of a window that is not over",
    "/ask": "any question costs no privacy",
    "/ask?q=share(dark+%3D+%22yes%22)+by+day": "the last of 14 days that can be told",
    f"/ask?q=share(color+in+%22*W*%22)%0Ashare(color+%3D+{quote(quoted(TURNED))})": "2 of 2 answers can be told",
    f"/ask?q=share(dark+%3D+%22yes%22)+%2B+share(%22{TURNED}%22+%3D+%22x%22)": "This cannot be asked",
    "/ask?q=top(color,+9)": "the first of 9 rows",
    "/ask?q=top(color,+9)%0Ashare(dark+%3D+%22yes%22)+/+mean(color)&fleet=true": "This cannot be asked",
    "/ask?q=top(color,+9)%0Ashare(dark+%3D+%22yes%22)&fleet=true": "the smallest fleets that would tell something",
    "/plan": "Choose what is asked",
    "/plan?n=12000&epsilon=1": "stands out from the noise four times in five",
    "/plan?kind=table&d=3&arms=3&n=60000&epsilon=2": "between an arm and all others is told four times in five",
    "/plan?kind=flag&n=100&share_percent=1": "epsilon",
    "/pipeline": "accepted",
    "/help/reading": "How to read these pages",
    "/metrics/none": "There is nothing at this address",
    "/metrics/color?level=7": "The request is not what this address takes",
}
"""Addresses of all pages and states, with what each of them says."""


@pytest.mark.parametrize("path", STATES)
def test_a_page_is_accessible_fits_and_is_no_larger_than_need_be(tab: Tab, address: str, path: str) -> None:
    check_state(tab, address + path, STATES[path], axe_of(path, STATES))


@pytest.mark.parametrize("path", ["/metrics/color", "/metrics/color/time?values=" + WIDE, "/compare?metric=color"])
def test_labels_overlap_nothing(tab: Tab, address: str, path: str) -> None:
    page = tab.visit(address + path)
    assert page.locator("svg text").count() > 3
    check_widths(tab)


def restyle(page: Page, style: str) -> None:
    """Add a rule to the style sheet of the page that is open."""
    page.evaluate("rule => document.styleSheets[0].insertRule(rule, document.styleSheets[0].cssRules.length)", style)


@pytest.mark.parametrize(
    "style",
    ["p { color: #999 }", ".plot text { fill: #999 }", "main input { color: #999 }", "main select { color: #999 }"],
)
def test_a_faint_text_would_be_caught(tab: Tab, address: str, style: str) -> None:
    page = tab.visit(f"{address}/metrics/color")
    assert page.evaluate(FAINT, CONTRAST_MIN) == []
    restyle(page, style)
    assert page.evaluate(FAINT, CONTRAST_MIN)


def test_no_style_asks_for_the_height_of_the_window(tab: Tab, address: str) -> None:
    """Most looks are at a low window, which has less to paint: nothing else may come of it."""
    page = tab.visit(f"{address}/metrics/color")
    assert page.evaluate(TALL) == []
    for style in ("p { margin-top: 5vh }", "p { width: 9.5dvmin }", "@media (min-height: 300px) { p { color: red } }"):
        restyle(page, style)
    assert len(page.evaluate(TALL)) == 3


def test_axe_looks_for_faint_texts_where_one_may_be_dimmed_or_lie_on_something_else(tab: Tab, address: str) -> None:
    """Styles that may make a text faint whose own colour is not; axe is asked then, and finds one that is dimmed."""
    moved = ("position: absolute", "position: relative; top: -3rem", "margin-top: -3rem !important", "rotate: 9deg")
    others = (
        "float: left",
        "filter: contrast(.4)",
        "text-shadow: 0 0 9px #fff",
        "background: linear-gradient(red, red)",
        "color: rgb(0 0 0 / 30%)",
        "background-color: rgb(0 0 0 / 10%)",
        "color: oklch(80% 0 0)",
        "-webkit-text-fill-color: #ddd",
    )
    page = tab.visit(f"{address}/metrics/color")
    for style in (*moved, *others, dimmed := "opacity: .4"):
        assert page.evaluate(FLAT)
        restyle(page, f"main p {{ {style} }}")
        assert not page.evaluate(FLAT), style
        if style != dimmed:
            page.evaluate("document.styleSheets[0].deleteRule(document.styleSheets[0].cssRules.length - 1)")
    for outer in ("html", "body"):
        restyle(page, f"{outer} {{ opacity: .4 }}")
        assert not page.evaluate(FLAT)
        page.evaluate("document.styleSheets[0].deleteRule(document.styleSheets[0].cssRules.length - 1)")
    assert page.evaluate(FAINT, CONTRAST_MIN) == []
    with pytest.raises(AssertionError, match="color-contrast"):
        check_looks(tab)


def test_a_character_that_nobody_prints_is_shown_as_an_escape(tab: Tab, address: str) -> None:
    page = tab.visit(f"{address}/metrics/color?search=turned", 390)
    assert "\N{ARABIC NUMBER SIGN}" not in page.content()
    assert r"a value \u{600}turned round" in page.locator("table.found").inner_text()


@pytest.mark.parametrize("how", [{"forced_colors": "active"}, {"reduced_motion": "reduce"}, {"media": "print"}])
def test_marks_are_seen_in_forced_colours_and_in_print(tab: Tab, address: str, how: dict[str, str]) -> None:
    page = tab.visit(f"{address}/metrics/color", 1280, **how)
    dot = page.locator("circle.dot").first.evaluate("element => getComputedStyle(element).fill")
    behind = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
    assert dot != behind
    assert tab.complaints == []


PAPER_WIDTH = 718
"""A4 between margins of a centimetre, at 96 dots an inch."""
ON_PAPER = """() => {
    const seen = selector => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility(
        {visibilityProperty: true, contentVisibilityAuto: true})).length
    const folded = 'details:not(.on-screen) :is(table tbody tr, dd)'
    return {pressed: seen('nav, form, button, select, input'),
        told: seen(folded), all: document.querySelectorAll(folded).length,
        behind: getComputedStyle(document.body).backgroundColor}
}"""
"""How much that can be pressed is seen, how much of what is folded away, and how much there is of that; the paper."""


@pytest.mark.parametrize(
    "path", ["/", "/metrics/color", "/metrics/color/time", "/changes", "/ask?q=top(color,+9)", "/pipeline"]
)
def test_paper_has_the_light_page_with_its_tables_and_nothing_to_press(tab: Tab, address: str, path: str) -> None:
    page = tab.visit(address + path, PAPER_WIDTH, "dark", media="print")
    seen = page.evaluate(ON_PAPER)
    assert seen["pressed"] == 0
    assert seen["told"] == seen["all"]
    assert seen["behind"] == "rgb(252, 252, 250)"
    assert tab.fits()
    if "q=" in path:
        assert page.locator("pre.on-paper").inner_text() == "top(color, 9)"


def test_everything_is_reached_by_keyboard(tab: Tab, address: str) -> None:
    page = tab.visit(f"{address}/metrics/color")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.outerHTML"))
    wanted = page.locator("main a, main select, main input:not([type=hidden]), main button, nav a")
    assert set(wanted.evaluate_all("elements => elements.map(element => element.outerHTML)")) <= reached


def test_a_page_that_says_what_is_wrong_with_a_day_is_accessible_and_fits(tab: Tab, tmp_path: Path) -> None:
    with site(tmp_path, D, 'mechanism = "oue"', values=VALUES) as one:
        counts = one.store.tally(one.plan, one.day(1)).counts + 2_000
        counts[1 + D - 2] = 0  # of the value that turns round
        for back in (1, 2):
            one.hold(one.plan, Tally(2_000, counts), back)
        with served(one) as url:
            check_state(tab, f"{url}/metrics/color", "Data quality: on ")
            help_ = tab.visit(f"{url}/help/reading#data-quality")  # what a link names is unfolded
            assert "Each closed day is checked by itself" in help_.locator("main").inner_text()
            check_looks(tab)
            check_widths(tab, (320, 2560))


def test_fifty_thousand_values_are_a_page_of_the_same_size(tab: Tab, tmp_path: Path) -> None:
    d = 50_001
    with site(tmp_path, d) as one:
        rng, shares = np.random.default_rng(4), np.zeros(d)
        shares[:100] = zipf(101)[:100]
        for back in (1, 7, 8):  # in both of the windows that are compared
            one.put(rng.multinomial(3_000, shares), rng, back)
        with served(one) as url:
            for path in ("/", "/metrics/color", "/metrics/color/time", "/compare?metric=color", "/changes"):
                tab.visit(url + path)
                check_size(tab)
        assert one.store.today() - timedelta(days=1) == one.store.sealed()
