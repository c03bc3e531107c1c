"""The pipeline's page and a snapshot's in a real Chromium: they fit, can be read, and are what their numbers say."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dither_aggregator import counting
from dither_aggregator.counting import Counts
from dither_aggregator.ingest.service import Service
from dither_aggregator.operations import maintenance
from dither_shared.shapes import ReportShape
from dither_shared.wire import encode_upload, new_upload_id
from tests.support.aggregators import http_server, sqlite_store, web_app
from tests.support.browsing import Tab, check_state
from tests.support.clocks import Clock
from tests.support.stores import answer, append, body_of, fold_all
from tests.test_pages import ASKED, reports

pytestmark = pytest.mark.slow

PATHS = ("/pipeline", "/s/{color}", "/s/{dark}")


@dataclass
class Record:
    """A running aggregator with a snapshot of each metric, and something to look at."""

    url: str
    ids: dict[str, str]

    def address(self, path: str) -> str:
        return self.url + path.format(**self.ids)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    clock, fold = Clock(), counting.fold

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
        maintenance.maintain(store, 0)
        for metric in ("color", "dark"):
            maintenance.finalize(store, metric)
        patched.setattr(counting, "fold", fail)
        append(store, body_of(ASKED, {"dark": [1, 0, 1]}))
        fold_all(store)
        patched.setattr(counting, "fold", fold)
        append(store, body_of(ASKED, {"dark": [1]}))
        refused = [("dark", "0" * 16, [1, 0]), ("nothing", "0" * 16, [1])]
        answer(store, encode_upload(new_upload_id(random.getrandbits), refused))
        clock.now += 1_000
        finals = {stored.plan.metric: store.finals(stored.plan) for stored in store.plans()}
        with Service(store) as service:
            server = http_server(web_app(service))
            with server.in_background():
                yield Record(server.url, {metric: next(iter(of.values())).snapshot for metric, of in finals.items()})


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_and_can_be_read(tab: Tab, record: Record, path: str) -> None:
    check_state(tab, record.address(path), "")


@pytest.mark.parametrize("width", [390, 1280])
def test_what_to_look_at_is_said_beside_its_hint(tab: Tab, record: Record, width: int) -> None:
    page = tab.visit(record.address("/pipeline"), width, "light")
    headline = page.locator(".headline").inner_text()
    assert headline.startswith("3,004 accepted = 3,000 folded + 1 pending + 3 quarantined: it balances, and 2 health")
    rows = page.locator("table.checks tbody tr").all_inner_texts()
    marked = [row.split("\t")[0] for row in rows if "look here" in row]
    assert marked == ["folding", "quarantine"]
    assert [text.partition(":")[0] for text in page.locator("p.warning").all_inner_texts()] == marked
    refused = [row.split("\t")[:4] for row in page.locator("table.refused tbody tr").all_inner_texts()]
    assert refused == [
        ["unknown plan of the metric", "dark", "1", "2"],
        ["unknown metric", "none of this store", "1", "1"],
    ]


@pytest.mark.parametrize("path", PATHS[:2])
def test_tables_that_are_too_wide_are_reached_with_the_keyboard(tab: Tab, record: Record, path: str) -> None:
    page = tab.visit(record.address(path), 320, "light")
    reached: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('aria-label') || ''"))
    for region in page.locator(".wide").all():
        assert region.get_attribute("aria-label") in reached


def test_a_snapshots_plot_shows_what_its_table_says(tab: Tab, record: Record) -> None:
    page = tab.visit(record.address("/s/{color}"), 390, "dark")
    table = [row.split("\t") for row in page.locator("table.shown tbody tr").all_inner_texts()]
    assert page.locator("text.label").all_text_contents() == [row[0] for row in table]
    assert page.locator("text.value").all_text_contents() == [row[1] for row in table]
    assert len(table) > 4


@pytest.mark.parametrize("metric", ["color", "dark"])
def test_the_svg_draws_everything_within_its_frame(tab: Tab, record: Record, metric: str) -> None:
    page = tab.visit(record.address("/pipeline"))
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
    assert not [each for each in tab.complaints if "favicon" not in each and "404" not in each]
