"""Pages of numbers in a real Chromium: axe, sizes, overlaps, contrast, print, forced colours, and the crosshair."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.aggregator.test_snapshot_page import keep
from tests.support.browsing import CONTRAST, Pages, Tab, address_of, axe_of, check_state, served
from tests.support.numeric import FORMS, hump, number_site, put_numbers, two_weeks
from tests.support.soaking import thinned

pytestmark = pytest.mark.slow

SCALED = "reports = 3\nepsilon = 4"
OTHERS = {
    "wide": f'unit = "{"W" * 20}"\nlow = -{10**15}\nhigh = {10**15}\nbuckets = 256\n{SCALED}',
    "tiny": f'unit = "a\\u202eb"\nlow = 0\nhigh = 0.00001\nbuckets = 20\n{SCALED}',
    "script": f'unit = "<script>x()"\nlow = 1\nhigh = {10**9}\nbuckets = 40\nscale = "log"\n{SCALED}',
    "few": f'unit = "s"\nlow = 0\nhigh = 10\nbuckets = 11\n{SCALED}',
    "others": f'unit = "s"\nlow = 0\nhigh = 10\nbuckets = 12\n{SCALED}',
    "nothing": f'unit = "s"\nlow = 0\nhigh = 10\nbuckets = 13\n{SCALED}',
    "faint": 'unit = "s"\nlow = 0\nhigh = 10\nmemoize = true\nepsilon_permanent = 0.2\nepsilon = 0.1',
}
STATES = {
    "/": "median ",
    "/metrics/load": "The median is",
    "/metrics/load?window=today": "More reports may come. The median is",
    "/metrics/load?epoch=2020-01-01": "No reports of these days",
    "/metrics/age": "tell no quantiles",
    "/metrics/memo": "Each device says one bit",
    "/metrics/cold": "of the reports held a number",
    "/metrics/wide": "The median is",
    "/metrics/tiny": "The median is",
    "/metrics/script": "The median is",
    "/metrics/few": "2,999 reports are too few to tell",
    "/metrics/others": "Too few of these reports hold a number",
    "/metrics/nothing": "No reports of these days",
    "/metrics/faint": "Too few reports to tell: ",
    "/metrics/load/time": "days can be told",
    "/metrics/script/time?values=mean&values=q5&values=median": "days can be told",
    "/metrics/few/time": "No single day tells enough",
    "/compare?metric=load": "statistics moved",
    "/compare?metric=cold": "statistics moved",
    "/compare?metric=script": "can be told to have moved",
    "/changes": "Something moved",
    "/s/load": "a snapshot: it never changes",
    "/s/age": "a snapshot: it never changes",
}
"""Addresses of all states with what each of them says; a snapshot is addressed by its metric."""
SEEN = thinned([*STATES], 0, 1, 4, 5, 7, 8, 9, 10, 14, 15, 17, 20, 21)
"""One of each kind of page and of each sort of number; a soak sees all."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """All states; yield the address, and the id of each snapshot."""
    rng = np.random.default_rng(11)
    with number_site(tmp_path_factory.mktemp("states"), {**FORMS, **OTHERS}) as one:
        two_weeks(one, rng)
        for metric in ("wide", "tiny", "script", "faint"):
            for back in (1, 2):
                put_numbers(one, metric, hump(one.store.plans(metric)[0].plan), 20_000, rng, days_ago=back)
        put_numbers(one, "few", hump(one.store.plans("few")[0].plan), 2_999, rng)
        others = hump(one.store.plans("others")[0].plan) * 0
        others[-1] = 1.0
        put_numbers(one, "others", others, 20_000, rng)
        day = one.store.sealed()
        kept = [one.store.plans(metric)[0] for metric in ("load", "age")]
        ids = {each.plan.metric: keep(one.store, each, one.tallies[each.plan.digest, day]) for each in kept}
        with served(one) as url:
            yield url, ids


@pytest.mark.parametrize("path", SEEN)
def test_a_page_is_accessible_fits_and_is_no_larger_than_need_be(tab: Tab, pages: Pages, path: str) -> None:
    check_state(tab, address_of(pages, path), STATES[path], axe_of(path, SEEN))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_of_the_shape_can_be_told_from_the_page(tab: Tab, pages: Pages, scheme: str) -> None:
    page = tab.visit(address_of(pages, "/metrics/load"), 1280, scheme)
    for mark in (".bar", ".interval"):
        assert page.locator(f".shape {mark}").first.evaluate(CONTRAST) >= 3, mark


@pytest.mark.parametrize("how", [{"forced_colors": "active"}, {"media": "print"}])
def test_the_shape_is_seen_in_forced_colours_and_in_print(tab: Tab, pages: Pages, how: dict[str, str]) -> None:
    page = tab.visit(address_of(pages, "/metrics/load"), 390, **how)
    mark = page.locator(".shape .bar").nth(4).evaluate("element => getComputedStyle(element).stroke")
    behind = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
    assert mark != behind
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.complaints == []


@pytest.mark.parametrize("metric", ["load", "memo"])
def test_the_crosshair_reads_the_bars_in_the_order_of_the_axis(tab: Tab, pages: Pages, metric: str) -> None:
    page = tab.visit(address_of(pages, f"/metrics/{metric}"), 390)
    plot = page.locator(".plot.shape")
    titles = plot.locator("title").all_text_contents()
    plot.focus()
    for key, said in (("Home", titles[0]), ("ArrowRight", titles[1]), ("End", titles[-1])):
        page.keyboard.press(key)
        assert page.locator(".words-of-mark").inner_text() == said
        assert page.locator("p.heard").inner_text() == said
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
