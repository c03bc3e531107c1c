"""Every page and state in a real Chromium: what axe finds, what overflows, how large it is, what the console says."""

import gzip
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from dither_aggregator.store import Tally
from dither_aggregator.store.records import DayMark
from tests.support.sites import Site, site, zipf

pytestmark = pytest.mark.slow

WIDE = "W" * 200
TURNED = "a value \N{RIGHT-TO-LEFT OVERRIDE}turned round"
VALUES = (*(f"model {number}" for number in range(298)), WIDE, TURNED)
D = len(VALUES) + 1
LOOKS = list(product((390, 1280), ("light", "dark")))
Pages = tuple[str, dict[str, str]]
"""The address of the pages, and the id of each metric's snapshot."""
BYTES_MAX, PACKED_MAX, NODES_MAX, HEIGHT_MAX = 300_000, 60_000, 5_000, 6_000


class Quiet(WSGIRequestHandler):
    def log_message(self, *said: object) -> None:
        pass


class Threaded(ThreadingMixIn, WSGIServer):
    """A server that closes what a page opened also where Chromium drops the connection, as werkzeug's does not."""

    daemon_threads = True


@contextmanager
def served(one: Site) -> Iterator[str]:
    server = Threaded(("127.0.0.1", 0), Quiet)
    server.set_app(one.client.application)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two weeks and today of a metric with many values, one of which moved, long and turned ones among them."""
    with site(tmp_path_factory.mktemp("states"), D, 'mechanism = "oue"', values=VALUES) as one:
        rng, before = np.random.default_rng(3), zipf(D)
        before[D - 3 : D - 1] += 0.1
        after = before.copy()
        after[0] += 0.1
        dark = one.store.plans("dark")[0].plan
        for back in range(15):
            shares = after if back <= 7 else before
            one.put(rng.multinomial(900 if back == 0 else 3_000, shares / shares.sum()), rng, back)
            one.put(np.array([700, 300]), rng, back, dark)
        for back, text in ((0, WIDE[:80]), (1, TURNED), (6, "version 158"), (6, "a fair"), (7, "outage"), (14, "v")):
            one.store.add_mark(DayMark(one.store.today() - timedelta(days=back), text))
        with served(one) as url:
            yield url


STATES = {
    "/": "In 1 of 1 metric something stands out",
    "/?search=nothing": "No metric has",
    "/metrics/color": "values stand out from the noise",
    "/metrics/color?search=W": "Search",
    "/metrics/color?window=today": "More reports may come",
    "/metrics/color?epoch=2020-01-01": "No reports of these days",
    "/metrics/dark": "say yes, between",
    "/metrics/color/time": "days with reports",
    "/metrics/color/time?from=2020-01-01&to=2020-01-02": "No reports of these days are counted",
    "/metrics/dark/time": "days with reports",
    "/changes": "Something moved in 1 of 2 metrics",
    "/compare": "Compare two windows",
    "/compare?metric=color&search=W": "values moved",
    "/compare?metric=dark": "cannot be told to have moved",
    "/compare?metric=color&window=today": "nothing is told of a window that is not over",
    "/plan": "Give two of reports, epsilon and share",
    "/plan?n=12000&epsilon=1": "stands out from the noise four times in five",
    "/plan?kind=table&d=3&arms=3&n=60000&epsilon=2": "between an arm and all others is told four times in five",
    "/plan?kind=flag&n=100&share_percent=1": "epsilon",
    "/pipeline": "accepted",
    "/help/reading": "How to read these pages",
    "/metrics/none": "There is nothing at this address",
    "/metrics/color?level=7": "The request is not what this address takes",
}
"""Addresses of all pages and states, with what each of them says."""


def opened(browser: Browser, url: str, width: int, **how: object) -> tuple[Page, list[str]]:
    context = browser.new_context(viewport={"width": width, "height": 900}, **how)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith(url[:20]) else None)
    page.goto(url)
    return page, [each for each in complaints if "Failed to load resource" not in each]  # a 404 page is one


OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()])
    return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
        .filter(([_, b]) => a.left < b.right - 1 && b.left < a.right - 1)
        .filter(([_, b]) => a.top < b.bottom - 3 && b.top < a.bottom - 3)
        .map(([two, _]) => one + ' | ' + two))
})"""


def address_of(pages: Pages, path: str) -> str:
    """Return the address of a page; a snapshot is named by its metric."""
    url, ids = pages
    return url + (f"/s/{ids[path.removeprefix('/s/')]}" if path.startswith("/s/") else path)


def check_looks(browser: Browser, url: str, says: str, looks: Sequence[tuple[int, str]]) -> None:
    """Find a page that says this accessible, within its width, without complaints or overlaps, in each look."""
    for width, scheme in looks:
        page, complaints = opened(browser, url, width, color_scheme=scheme)
        with closing(page.context):
            assert says in page.locator("main").inner_text().replace("\N{NO-BREAK SPACE}", " ")
            assert complaints == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OVERLAPS) == []
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


def check_size(browser: Browser, url: str) -> None:
    """Find a page small enough."""
    page, _ = opened(browser, url, 1280)
    with closing(page.context):
        content = page.content().encode()
        assert len(content) <= BYTES_MAX
        assert len(gzip.compress(content)) <= PACKED_MAX
        assert page.locator("*").count() <= NODES_MAX
        assert page.evaluate("document.documentElement.scrollHeight") <= HEIGHT_MAX


@pytest.mark.parametrize("path", STATES)
def test_a_page_is_accessible_and_fits(browser: Browser, address: str, path: str) -> None:
    for width, scheme in LOOKS:
        page, complaints = opened(browser, address + path, width, color_scheme=scheme)
        with closing(page.context):
            assert STATES[path] in page.locator("main").inner_text().replace("\N{NO-BREAK SPACE}", " ")
            assert complaints == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("path", STATES)
def test_a_page_is_no_larger_than_need_be(browser: Browser, address: str, path: str) -> None:
    check_size(browser, address + path)


@pytest.mark.parametrize("path", ["/metrics/color", "/metrics/color/time?values=" + WIDE, "/compare?metric=color"])
@pytest.mark.parametrize("width", [320, 2560])
def test_labels_overlap_nothing(browser: Browser, address: str, path: str, width: int) -> None:
    page, _ = opened(browser, address + path, width)
    with closing(page.context):
        assert page.locator("svg text").count() > 3
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [320, 2560])
def test_no_page_is_wider_than_its_screen(browser: Browser, address: str, width: int) -> None:
    page, _ = opened(browser, address, width)
    with closing(page.context):
        wide = []
        for path in STATES:
            page.goto(address + path)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append(path)
        assert wide == []


def test_a_turning_character_is_shown_as_an_escape(browser: Browser, address: str) -> None:
    page, _ = opened(browser, f"{address}/metrics/color?search=turned", 390)
    with closing(page.context):
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page.content()
        assert r"a value \u{202e}turned round" in page.locator("table.found").inner_text()


@pytest.mark.parametrize("how", [{"forced_colors": "active"}, {"reduced_motion": "reduce"}, {}])
def test_marks_are_seen_in_forced_colours_and_in_print(browser: Browser, address: str, how: dict[str, str]) -> None:
    page, complaints = opened(browser, f"{address}/metrics/color", 1280, **how)
    with closing(page.context):
        if not how:
            page.emulate_media(media="print")
        dot = page.locator("circle.dot").first.evaluate("element => getComputedStyle(element).fill")
        behind = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
        assert dot != behind
        assert complaints == []


def test_everything_is_reached_by_keyboard(browser: Browser, address: str) -> None:
    page, _ = opened(browser, f"{address}/metrics/color", 1280)
    with closing(page.context):
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.outerHTML"))
        wanted = page.locator("main a, main select, main input:not([type=hidden]), main button, nav a")
        assert {each.evaluate("element => element.outerHTML") for each in wanted.all()} <= reached


def test_a_page_that_says_what_is_wrong_with_a_day_is_accessible_and_fits(browser: Browser, tmp_path: Path) -> None:
    with site(tmp_path, D, 'mechanism = "oue"', values=VALUES) as one:
        counts = one.store.tally(one.plan, one.day(1)).counts + 2_000
        counts[1 + D - 2] = 0  # of the value that turns round
        for back in (1, 2):
            one.hold(one.plan, Tally(2_000, counts), back)
        with served(one) as url:
            check_looks(browser, f"{url}/metrics/color", "Data quality: on ", LOOKS)
            check_looks(browser, f"{url}/help/reading", "data quality", LOOKS[:1])
            check_size(browser, f"{url}/metrics/color")


def test_fifty_thousand_values_are_a_page_of_the_same_size(browser: Browser, tmp_path: Path) -> None:
    d = 50_001
    with site(tmp_path, d) as one:
        rng, shares = np.random.default_rng(4), np.zeros(d)
        shares[:100] = zipf(101)[:100]
        for back in range(1, 15):
            one.put(rng.multinomial(3_000, shares), rng, back)
        with served(one) as url:
            for path in ("/", "/metrics/color", "/metrics/color/time", "/compare?metric=color", "/changes"):
                test_a_page_is_no_larger_than_need_be(browser, url, path)
        assert one.store.today() - timedelta(days=1) == one.store.sealed()
