"""The guides for pages, done as their readers do: the tutorial from its first line to its last, and the Django site."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dither.cli import main
from dither_aggregator.web.request_limits import Limits
from dither_shared.registry import Registry
from tests.aggregator.test_request_admission import taking
from tests.support.examples import gunicorn, point, shipped
from tests.support.firefox import AnyPage
from tests.support.keys import write_key
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.support.web_pages import WEB
from tests.test_tutorial import Reader, blocks_of, desk
from tests.web.test_package import IN_ONE_BROWSER, unpack

pytestmark = pytest.mark.slow

TUTORIAL = WEB / "tutorial.md"
CLICK = "(selector) => document.querySelector(selector).click()"
ASKS = "() => document.querySelector('dialog').open"
STATE = "() => document.getElementById('state')?.textContent ?? ''"

CHARGED = """() => new Promise((resolve) => {
    const opening = indexedDB.open("dither:blog", 1);
    opening.onupgradeneeded = () => opening.transaction.abort();  // nothing is kept yet, and this makes nothing
    opening.onerror = (event) => { event.preventDefault(); resolve(0); };
    opening.onsuccess = () => {
        const kept = opening.result.transaction("device").objectStore("device").get("state");
        kept.onsuccess = () => {
            opening.result.close();
            resolve(JSON.parse(kept.result ?? "{}").metrics?.found?.spent ?? 0);
        };
    };
})"""
"""Micro-epsilon that the site's device was charged, as it is kept. A device of the test's might send, and then end."""


@dataclass
class WebReader(Reader):
    """Somebody who does what the web page's tutorial says. `refused` is what the check said of the registry."""

    pages: int = field(default_factory=free_port)
    refused: str = ""
    line: str = ""
    """The last line of the page, as the tutorial shows it."""

    def read(self, language: str, text: str) -> None:
        text = text.replace("8000", str(self.pages))
        if language in ("html", "js"):
            text = text.replace("8080", str(self.port))
            (name,) = re.findall(r"\A(?:<!--|//) (\S+)", text)
            (self.directory / name).write_text(text, encoding="utf-8")
        elif language == "json":
            self.line = text.strip()
        else:
            super().read(language, text)

    def run(self, command: str) -> None:
        if command.startswith("python -m http.server"):
            # The reader has put the key into the page by now.
            page = self.directory / "site" / "page.js"
            page.write_text(page.read_text().replace("the key that serve printed", self.key), encoding="utf-8")
            server = subprocess.Popen(
                command.split(),
                cwd=self.directory,
                env=self.environment,
                stderr=subprocess.DEVNULL,
                executable=sys.executable,
            )
            self.stack.callback(server.wait)
            self.stack.callback(server.terminate)
            wait_until(self.is_served)
        elif command.endswith("--web") and not self.refused:
            done = subprocess.run(
                command.split(), cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout) == (2, "")
            self.output = self.refused = done.stderr
        else:
            super().run(command)

    def is_served(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.pages}", timeout=10):
                return True
        except OSError:
            return False

    def edit(self, lines: str) -> None:
        text = (self.directory / "metrics.toml").read_text(encoding="utf-8")
        if "evicted" in lines:
            first, second = lines.splitlines()
            (self.directory / "metrics.toml").write_text(
                text.replace(first, f"{first}\n{second}\n#", 1), encoding="utf-8"
            )
        else:
            super().edit(lines)


@pytest.fixture(scope="module")
def followed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebReader]:
    """Follow the tutorial, up to where its page is opened in a browser."""
    empty = desk(tmp_path_factory.mktemp("reader"))
    shutil.copy(package, empty)
    with ExitStack() as stack:
        reader = WebReader(empty, stack, free_port())
        for language, text in blocks_of(TUTORIAL):
            reader.read(language, text)
        assert len(reader.ran) >= 6
        yield reader


@IN_ONE_BROWSER
def test_a_visitor_of_the_tutorials_page_is_asked_once_and_counted_once_a_day(
    followed: WebReader, page: AnyPage
) -> None:
    def counted() -> Any:
        return followed.reading()["meta"]["n"]

    before = counted()
    page.goto(f"http://127.0.0.1:{followed.pages}")
    wait_until(lambda: page.evaluate(ASKS))
    terms = page.evaluate("() => [...document.querySelectorAll('#terms li')].map(({ textContent }) => textContent)")
    assert "Which theme do people use?" in terms
    assert [term for term in terms if term.startswith("In a browser all of this begins anew")]
    page.evaluate(CLICK, "#yes")
    wait_until(lambda: page.evaluate(STATE) == followed.line)
    wait_until(lambda: counted() == before + 1)
    page.goto(f"http://127.0.0.1:{followed.pages}")
    wait_until(lambda: '"answered"' in page.evaluate(STATE))
    assert not page.evaluate(ASKS)
    assert '"spent":{"theme":1}' in page.evaluate(STATE)


@IN_ONE_BROWSER
def test_readers_of_the_django_site_report_from_their_browsers(package: Path, page: AnyPage, tmp_path: Path) -> None:
    changes = {"quiet_days = 1": "quiet_days = 0", 'presence = "public"': 'presence = "public"\nschedule = "early"'}
    directory, port = shipped("django_page", tmp_path, changes), free_port()
    unpack(package, directory / "static" / "dither-web")
    registry = directory / "metrics.toml"
    assert main(["metrics", "check", str(registry), "--web"]) == 0
    assert main(["metrics", "compile", str(registry), "--out", str(directory / "static" / "metrics.json")]) == 0
    origin = f"http://localhost:{port}"
    with taking(tmp_path / "store", Limits(origins=(origin,)), asked=Registry.load(registry)) as to:
        point(directory / "blog.py", to.url, write_key(to.service.store))
        with gunicorn(directory / "blog.py", tmp_path / "log", "--bind", f"127.0.0.1:{port}", workers=1):
            page.goto(origin)
            wait_until(lambda: page.evaluate(ASKS))
            page.evaluate(CLICK, "#agree")
            page.evaluate(CLICK, "button[value=yes]")
            wait_until(lambda: page.evaluate(CHARGED) == 1_000_000)
            page.goto("about:blank")  # what was ready to leave leaves with the page
            wait_until(lambda: sum(row.accepted for row in to.service.store.ledger()) == 1, 180)
