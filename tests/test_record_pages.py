"""The pipeline's page and a snapshot's in a real Chromium: they fit, can be read, and are what their numbers say."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from dither_aggregator import upkeep
from dither_aggregator.counting import folding
from dither_aggregator.counting.folding import Counts
from dither_aggregator.service import Service
from dither_shared.shapes import ReportShape
from dither_shared.wire.writing import encode_upload, new_upload_id
from tests.support.aggregators import http_server, sqlite_store, web_app
from tests.support.clocks import Clock
from tests.support.stores import answer, append, body_of, fold_all
from tests.test_pages import ASKED, BRIGHTNESS, opened, reports

pytestmark = pytest.mark.slow

LOOKS = list(product((390, 1280), ("light", "dark")))
PATHS = ("/pipeline", "/s/{color}", "/s/{dark}")
CONTRAST = """elements => elements.map(element => {
    const parts = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    const light = text => parts(text).map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0)
    let behind = element
    while (behind && getComputedStyle(behind).backgroundColor == 'rgba(0, 0, 0, 0)') behind = behind.parentElement
    const both = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light)
    return (Math.max(...both) + .05) / (Math.min(...both) + .05)
})"""


@dataclass
class Record:
    """A running aggregator with a snapshot of each metric, and something to look at."""

    url: str
    ids: dict[str, str]

    def address(self, path: str) -> str:
        return self.url + path.format(**self.ids)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    clock, fold = Clock(), folding.fold

    def fail(shape: ReportShape, packed: bytes) -> Counts:
        raise ValueError("a packed report lies beyond the mechanism's symbols")

    with (
        sqlite_store(ASKED, tmp_path_factory.mktemp("record"), clock) as store,
        pytest.MonkeyPatch.context() as patched,
    ):
        for metric in ("color", "dark"):
            append(store, encode_upload(new_upload_id(random.getrandbits), [(metric, *reports(ASKED, metric))]))
        fold_all(store)
        clock.travel(1)
        upkeep.maintain(store, 0)
        for metric in ("color", "dark"):
            upkeep.finalize(store, metric)
        patched.setattr(folding, "fold", fail)
        append(store, body_of(ASKED, {"dark": [1, 0, 1]}))
        fold_all(store)
        patched.setattr(folding, "fold", fold)
        append(store, body_of(ASKED, {"dark": [1]}))
        refused = [("dark", "0" * 16, [1, 0]), ("nothing", "0" * 16, [1])]
        answer(store, encode_upload(new_upload_id(random.getrandbits), refused))
        clock.now += 1_000
        finals = {stored.plan.metric: store.finals(stored.plan) for stored in store.plans()}
        with Service(store) as service:
            server = http_server(web_app(service))
            with server.in_background():
                yield Record(server.url, {metric: next(iter(of.values())).snapshot for metric, of in finals.items()})


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_and_can_be_read(browser: Browser, record: Record, path: str, width: int, scheme: str) -> None:
    page, complaints = opened(browser, record.address(path), width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    background, text = page.locator("body").evaluate(BRIGHTNESS), page.locator("h1").evaluate(BRIGHTNESS)
    assert abs(background - text) > 0.7
    assert (background < 0.5) == (scheme == "dark")
    contrasts = page.locator("main :is(p, th, td, a, code, figcaption)").evaluate_all(CONTRAST)
    assert min(contrasts) >= 4.5
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_what_to_look_at_is_said_beside_its_hint(browser: Browser, record: Record, width: int) -> None:
    page, _ = opened(browser, record.address("/pipeline"), width, "light")
    headline = page.locator(".headline").inner_text()
    assert headline.startswith("3,004 accepted = 3,000 folded + 1 pending + 3 quarantined: it balances, and 2 signs")
    rows = page.locator("table.signs tbody tr").all_inner_texts()
    marked = [row.split("\t")[0] for row in rows if "look here" in row]
    assert marked == ["folding", "quarantine"]
    assert [text.partition(":")[0] for text in page.locator("p.warning").all_inner_texts()] == marked
    refused = [row.split("\t")[:4] for row in page.locator("table.refused tbody tr").all_inner_texts()]
    assert refused == [
        ["unknown plan of the metric", "dark", "1", "2"],
        ["unknown metric", "none of this store", "1", "1"],
    ]
    page.context.close()


@pytest.mark.parametrize("path", PATHS[:2])
def test_tables_that_are_too_wide_are_reached_with_the_keyboard(browser: Browser, record: Record, path: str) -> None:
    page, _ = opened(browser, record.address(path), 320, "light")
    reached: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('aria-label') || ''"))
    for region in page.locator(".wide").all():
        assert region.get_attribute("aria-label") in reached
    page.context.close()


def test_a_snapshots_plot_shows_what_its_table_says(browser: Browser, record: Record) -> None:
    page, _ = opened(browser, record.address("/s/{color}"), 390, "dark")
    table = [row.split("\t") for row in page.locator("table.shown tbody tr").all_inner_texts()]
    assert page.locator("text.label").all_text_contents() == [row[0] for row in table]
    assert page.locator("text.value").all_text_contents() == [row[1] for row in table]
    assert len(table) > 4
    page.context.close()


@pytest.mark.parametrize("metric", ["color", "dark"])
def test_the_svg_draws_everything_within_its_frame(browser: Browser, record: Record, metric: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(record.address("/pipeline"))
    answer = page.goto(record.address(f"/s/{{{metric}}}.svg"))
    assert answer
    assert answer.status == 200
    marks = page.locator("circle, line, rect, text").all()
    assert len(marks) > 5
    for mark in marks:
        box = mark.bounding_box()
        assert box
        assert box["x"] >= -0.5
        assert box["x"] + box["width"] <= 800.5
    assert not [each for each in complaints if "favicon" not in each and "404" not in each]
    context.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_page_prints_and_keeps_its_words_in_forced_colours(browser: Browser, record: Record, path: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, forced_colors="active")
    page = context.new_page()
    page.goto(record.address(path))
    assert page.locator("h1").is_visible()
    for mark in page.locator("circle.dot").all()[:3]:
        assert mark.is_visible()
    page.emulate_media(media="print", forced_colors="none")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    context.close()
