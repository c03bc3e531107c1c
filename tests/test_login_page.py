"""Logging in and out in a real Chromium: the form, the cookie, and what a page leads to."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.aggregators import aggregator
from tests.support.browsing import CONTRAST_MIN, FAINT, LOOKS, check_axe
from tests.support.registries import registry
from tests.support.soaking import thinned

pytestmark = pytest.mark.slow

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An aggregator whose pages need a key, and a read key."""
    with aggregator(registry(), tmp_path_factory.mktemp("login")) as (address, service):
        yield address, service.store.create_key("read")[1]


def context(browser: Browser, width: int, scheme: str) -> BrowserContext:
    return browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]


def check_look(page: Page, look: tuple[int, str]) -> None:
    """Find that every text stands out, light and dark; axe sees one look whole, as in browsing.py, or a soak all."""
    page.wait_for_load_state()  # a click waits for the page's address, and not for its style sheet
    width, own = look
    for scheme in sorted(SCHEMES, key=own.__eq__):  # its own is the last, and stays
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(FAINT, CONTRAST_MIN) == [], (width, scheme)
    if look in thinned(LOOKS, 0):
        check_axe(page)


# At each width, in one of its two schemes: each page is looked at in both.
@pytest.mark.parametrize(("width", "scheme"), thinned(LOOKS, 0, 2))
def test_a_reader_logs_in_gets_where_it_wanted_and_logs_out(
    browser: Browser, locked: tuple[str, str], width: int, scheme: str
) -> None:
    url, key = locked
    with context(browser, width, scheme) as visited:
        page = visited.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"{url}/changes?")
        assert page.locator("h1").inner_text() == "Log in"
        for wrong in ("wrong", key[:-1]):
            page.get_by_label("Key").fill(wrong)
            with page.expect_navigation(wait_until="load"):
                page.get_by_role("button", name="Log in").click()
            assert "not a read or admin key" in page.get_by_role("alert").inner_text()
        check_look(page, (width, scheme))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_label("Key").fill(key)
        with page.expect_navigation(wait_until="load"):
            page.get_by_role("button", name="Log in").click()
        assert page.url == f"{url}/changes"
        (cookie,) = visited.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/")
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        check_look(page, (width, scheme))
        with page.expect_navigation(wait_until="load"):
            page.get_by_role("link", name="Metrics").click()
        assert page.url == f"{url}/"
        with page.expect_navigation(wait_until="load"):
            page.get_by_role("button", name="Log out").click()
        assert page.locator("h1").inner_text() == "Log in"
        assert visited.cookies() == []
        page.go_back()  # nothing of what was read is kept
        page.reload()
        assert page.locator("h1").inner_text() == "Log in"
        assert complaints == []


def test_a_form_of_another_site_logs_nobody_in(browser: Browser, locked: tuple[str, str]) -> None:
    """localhost is another site than 127.0.0.1, and a browser says so."""
    url, key = locked
    elsewhere = url.replace("127.0.0.1", "localhost")
    with context(browser, 390, "light") as visited:
        page = visited.new_page()
        page.route(
            f"{elsewhere}/trap",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f'<form method="post" action="{url}/login"><input name="key" value="{key}"><button>Go</button>',
            ),
        )
        page.goto(f"{elsewhere}/trap")
        with page.expect_navigation(wait_until="load"):
            page.get_by_role("button", name="Go").click()
        assert page.url == f"{url}/login"
        assert "this form was not sent from a page of this site" in page.content()
        assert visited.cookies() == []
