"""Pages of which a part is not computed yet, in a real Chromium: what they say, how they look, and that they go on."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from playwright.sync_api import Browser

from dither_aggregator.analysis.reading_cache import Kept
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web.problems import REFRESH_S
from tests.aggregator.test_reading_cache import computing, counted, keeper
from tests.support.browsing import Tab, a_tab, check_state, served
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Site, site_of

pytestmark = pytest.mark.slow

STATES = {
    "/": "Being computed.",
    "/changes": "being computed.\n\nOnce it is computed, others may be told to have moved.",
    "/metrics/color": "Being computed.",
    "/metrics/color/time": "Being computed.",
    "/metrics/color/time?values=red": "Being computed: 0 of 4 days done.",
    "/compare?metric=color": "Being computed.",
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Four days of a text and a flag, of which nothing is computed yet."""
    asked = registry(kind="text", reports=1, epsilon="4", candidates=("red", "green"), expires=EXPIRES)
    rng = random.Random(2)
    with site_of(asked, tmp_path_factory.mktemp("open")) as made:
        texts = counted(asked.metrics["color"], rng.choices(["red", "green", "blue"], [5, 3, 2], k=300), rng)
        flags = counted(asked.metrics["dark"], rng.choices([True, False], [1, 3], k=300), rng)
        for back in (1, 2, 3, 4):
            made.hold(asked.metrics["color"].plan, texts, back)
            made.hold(asked.metrics["dark"].plan, flags, back)
        yield made


@contextmanager
def waiting(one: Site) -> Iterator[str]:
    with keeper(one.store, Kept(one.store)), served(one) as url:
        yield url


@pytest.mark.parametrize("path", STATES)
def test_what_is_not_computed_yet_is_said_in_every_look(one: Site, tab: Tab, path: str) -> None:
    with waiting(one) as url:
        check_state(tab, url + path, STATES[path])
        tab.visit(url + "/")
        assert "say yes" in tab.page.locator("main").inner_text()
        assert "1 metric is not computed yet: with it, others may" in tab.page.locator(".headline").inner_text()


def test_what_could_not_be_computed_is_said_and_the_page_does_not_ask_again(one: Site, tab: Tab) -> None:
    kept = list[KeptReading]()
    with (
        keeper(one.store, computing(one.store, kept)),
        patch("dither_aggregator.analysis.texts._read_rows", side_effect=ZeroDivisionError),
    ):
        for _ in range(2):
            one.client.get("/")
    with waiting(one) as url:
        failed = "It could not be computed: it failed with ZeroDivisionError; it is tried again after"
        check_state(tab, url + "/", failed)
        assert tab.page.locator("[data-refresh]").count() == 0
        check_state(tab, url + "/pipeline", "color: it failed with ZeroDivisionError")
    one.store.keep_readings([entry._replace(content=b"") for entry in kept])


def test_a_page_shows_what_was_computed_meanwhile_by_itself_but_not_while_somebody_types(
    one: Site, browser: Browser
) -> None:
    with waiting(one) as url, a_tab(browser) as tab:
        # The test moves the page's clock: by itself the page could go between what is typed and what is asked of it.
        tab.page.clock.install()
        page = tab.visit(url + "/metrics/color")
        page.evaluate("window.same = true")
        page.locator("input[name=search]").fill("re")
        page.locator("h1").click()
        page.clock.run_for(3000 * REFRESH_S)
        assert page.evaluate("window.same")
        page = tab.visit(url + "/metrics/color")
        with keeper(one.store, computing(one.store)):
            one.client.get("/metrics/color")
        page.clock.run_for(1000 * REFRESH_S)
        page.get_by_text("stand out from the noise").wait_for()
        assert page.locator("[data-refresh]").count() == 0
