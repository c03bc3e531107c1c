"""Pages of tables in a real Chromium: axe, sizes, overlaps, the crosshair, and choosing a pair."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests.aggregator.test_snapshot_page import keep
from tests.aggregator.test_tables_page import ARMS, STABILITY, lone, stability
from tests.support.browsing import Pages, Tab, address_of, axe_of, check_state, served
from tests.support.drawn_tables import alone, draw_pairs, draw_table, shape_of, table_site
from tests.support.soaking import thinned

pytestmark = pytest.mark.slow

WIDE = "W" * 200
MANY = "\n".join(
    f"columns.c{column} = {json.dumps([f'value {value}' for value in range(size)])}"
    for column, size in enumerate((30, 12, 4, 3, 2, 2, 2, 1))
)
HOSTILE = f"""
columns.c{"x" * 60} = ["{WIDE}", "a \\u05d0 turned", "<script>x()</script>"]
columns.b = ["-1", "=2", "{WIDE[1:]}"]
columns.n = {{ low = -1000000000000000, high = 1000000000000000, unit = "{"W" * 20}", asks = ["mean"] }}
"""
LIKERT = ("never", "rarely", "sometimes", "often", "always")
SURVEY = "\n".join(f"columns.question_{place} = {json.dumps(LIKERT)}" for place in range(1, 17))
STATES = {
    "/": "3 pairs of the other columns are related",
    "/metrics/stability": "All 3 pairs of the other columns are related",
    "/metrics/stability?of=crashed&by=arm": "lower than the other",
    "/metrics/stability?of=load&by=version": "mean of load",
    "/metrics/stability?window=today": "Nothing is called found yet",
    "/metrics/stability?of=none": "of must be one of crashed, version, load",
    "/metrics/still": "cannot be told to be related",
    "/metrics/few": "are too few to tell",
    "/metrics/nobody": "No reports of these days",
    "/metrics/many": "pairs of the other columns",
    "/metrics/many?of=c0&by=c1": "c0 by c1",
    "/metrics/many?of=c1&by=c0": "c1 by c0",
    "/metrics/survey": "1 of 120 pairs of the other columns is related, most clearly “question_3” and “question_7”",
    "/metrics/survey?of=question_16&by=question_1": "question_16 by question_1",
    "/metrics/hostile": "columns",
    "/metrics/hostile?of=n&by=b": "mean of n",
    "/metrics/stability/time?values=crashed = yes": "days",
    "/compare?metric=stability": "What moved",
    "/changes": "What moved",
    "/ask?q=regress(stability.crashed+%3D+%22yes%22+on+stability.version)": "the first of",
    "/ask?q=share(stability.crashed+in+%22*%22+%7C+version+%3D+%22157%22)+-+mean(load)": "answer",
    "/ask?q=regress(still.crashed+%3D+%22yes%22+on+nothing)": "This cannot be asked",
    "/s/stability": "a snapshot: it never changes",
}
"""Addresses of all states with what each of them says; a snapshot is addressed by its metric."""
SEEN = thinned([*STATES], 0, 1, 2, 3, 6, 9, 12, 14, 15, 16, 17, 19, 22)
"""One of each kind of page and of each sort of table; a soak sees all."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """All states; yield the address, and the id of each snapshot."""
    rng = np.random.default_rng(11)
    others = {name: lone(rev) for rev, name in enumerate(("still", "few", "nobody"), 1)}
    metrics = {"stability": STABILITY, **others, "many": MANY, "hostile": HOSTILE, "survey": SURVEY}
    with table_site(tmp_path_factory.mktemp("states"), metrics, ARMS) as one:
        arms = (stability(), stability(0.1))
        for back, n in ((0, 4_000), (1, 40_000), (2, 40_000), (9, 40_000)):
            plan = one.store.plans("stability")[0].plan
            one.hold(plan, draw_table(plan, arms, (n, n), rng), back)
        for name, n in (("still", 9_000), ("few", 140), ("many", 60_000), ("hostile", 40_000)):
            plan = one.store.plans(name)[0].plan
            shares = alone(*(np.full(size, 1 / size) for size in shape_of(plan)))
            one.hold(plan, draw_table(plan, (shares, shares), (n, n), rng), 1)
        plan = one.store.plans("survey")[0].plan
        leaning = np.full((6, 6), 0.4 / 30)
        np.fill_diagonal(leaning, 0.1)
        one.hold(plan, draw_pairs(plan, 120 * 20_000, rng, {(2, 6): leaning}), 1)
        stored, day = one.store.plans("stability")[0], one.store.sealed()
        ids = {"stability": keep(one.store, stored, one.tallies[stored.plan.digest, day])}
        with served(one) as url:
            yield url, ids


@pytest.mark.parametrize("path", SEEN)
def test_a_page_is_accessible_fits_and_is_no_larger_than_need_be(tab: Tab, pages: Pages, path: str) -> None:
    check_state(tab, address_of(pages, path), STATES[path], axe_of(path, SEEN))


def test_a_reader_chooses_a_pair_in_the_form_and_in_the_matrix(tab: Tab, pages: Pages) -> None:
    page = tab.visit(address_of(pages, "/metrics/stability"), 1280)
    page.locator("select[name=of]").select_option("load")
    page.locator("select[name=by]").select_option("arm")
    with page.expect_navigation(wait_until="load"):
        page.locator("form:has(select[name=of]) button:not(.copy)").first.click()
    assert page.locator("h2", has_text="load by arm").count() == 1
    with page.expect_navigation(wait_until="load"):
        page.locator(".matrix a").first.click()
    assert page.locator("h2", has_text=" by ").count() == 1


def test_the_crosshair_reads_each_group(tab: Tab, pages: Pages) -> None:
    page = tab.visit(address_of(pages, "/metrics/stability?of=crashed&by=arm"), 390)
    plot = page.locator(".multiples .plot").first
    titles = plot.locator("title").all_text_contents()
    plot.focus()
    page.keyboard.press("Home")
    assert page.locator("p.heard").first.inner_text() == titles[0]
