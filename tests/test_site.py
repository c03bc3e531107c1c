"""The site of `make docs`, built strictly: its links and anchors lead somewhere, and nothing comes from elsewhere."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.aggregators import ENVIRONMENT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LOADS = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src", "object": "data"}


class Parts(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADS and LOADS[tag] in given and given.get("rel") != "canonical":
            self.loads.add(given[LOADS[tag]])


def broken(top: Path) -> list[str]:
    """Return each link and each loaded file of a site that is not there."""
    pages = {page: Parts(page.read_text(encoding="utf-8")) for page in sorted(top.rglob("*.html"))}
    found = []
    for page, parts in pages.items():
        if page.name == "404.html":  # its addresses are those of a site at the top of a server
            continue
        for link in sorted(parts.links | parts.loads):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                found += [f"{page.name} loads {link}"] * (link in parts.loads)
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{page.name} leads to {link}")
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].ids:
                found.append(f"{page.name} leads to {link}, an anchor that is not there")
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("site").resolve()
    older = top / "0.0.9"
    older.mkdir()
    (older / "index.html").write_text("<p>An older version.</p>", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
        "deploy/site/mkdocs.yml",
    ]
    done = subprocess.run(
        [*command, "--site-dir", str(top)],
        cwd=ROOT,
        env={**ENVIRONMENT, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return next(path for path in top.iterdir() if path.is_dir() and path != older)


def test_every_link_and_anchor_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert broken(site) == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def test_a_dead_link_and_a_font_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<link href="https://fonts.example/a.css" rel="stylesheet"><a href="gone.html">x</a><a href="#gone">x</a>'
        '<h1 id="here"><a href="index.html#here">x</a></h1><a href="https://elsewhere.example/">x</a>',
        encoding="utf-8",
    )
    assert len(broken(tmp_path)) == 3


def test_each_page_of_a_room_is_in_it_and_is_found_by_search(site: Path) -> None:
    pages = [path for room in ("client", "shared", "aggregator", "deploy") for path in (ROOT / room).glob("*.md")]
    there = {re.sub("README.md$", "index.md", page.relative_to(ROOT).as_posix()) for page in pages}
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for page in there:
        assert (site / page).with_suffix(".html").is_file()
        assert page.removesuffix(".md") + ".html" in found
    reference = Parts((site / "reference.html").read_text(encoding="utf-8"))
    assert {"dither.start", "dither.Telemetry.flush", "dither.testing.crowd.ask_crowd"} <= reference.ids


def test_versions_lie_beside_each_other_and_the_top_leads_to_the_newest(site: Path) -> None:
    versions = json.loads((site.parent / "versions.json").read_text(encoding="utf-8"))
    assert [each["version"] for each in versions] == [site.name, "0.0.9"]
    assert f"url={site.name}/" in (site.parent / "index.html").read_text(encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.parent))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{site.name}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_asks_nobody_else_and_pages_fit_a_phone_and_a_desk(
    browser: "Browser", address: str, scheme: str
) -> None:
    tab = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    tab.set_default_timeout(0)  # beside busy programs a page's scripts take longer than half a minute
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    for page in ("index.html", "shared/choosing.html", "reference.html"):
        for width in (390, 1280):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.goto(f"{address}/{page}")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (page, width)
    assert tab.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    tab.wait_for_selector(".md-version__link", state="attached")
    tab.locator("input.md-search__input").fill("detectable share")
    tab.wait_for_selector(".md-search-result__item a")
    tab.close()
    assert errors == []
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "blob:"))} == {
        urlsplit(address).netloc
    }
