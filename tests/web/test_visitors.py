"""Many visitors, in browsers of their own and in Node, and one whose tabs are killed: nothing is counted twice."""

import json
import math
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from dither_aggregator.web.request_limits import Limits
from dither_shared.registry import Registry
from tests.aggregator.test_request_admission import Taking, taking
from tests.support.keys import write_key
from tests.support.node import ROOT
from tests.support.registries import registry_text
from tests.support.soaking import scaled
from tests.support.waiting import wait_until
from tests.support.web_pages import WEB, bundle, compiled, node, site
from tests.web.test_browsers import DELIVER, FLUSH, RECORD, START, STATUS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = pytest.mark.slow

REGISTRY = registry_text(device_epsilon="1000", reports=200, epsilon="2")
Served = tuple[str, Taking, dict[str, str]]
"""A site's origin, the aggregator that takes reports from it, and what `start()` needs for that."""
BROWSED, VISITORS = scaled(8, 2_000), scaled(40, 2_000)
"""In browsers, each with storage of its own, and in Node, where many are cheap."""
SCRIPT = ROOT / "tests" / "web" / "visitors.ts"
KILLS = scaled(12, 1_000)
CLOCK = "Date.now = ((now, day) => () => now() + day * 86_400_000)(Date.now.bind(Date), {day})"


def truth_of(visitors: int) -> dict[str, int]:
    return {"red": visitors // 2, "green": visitors // 3, "blue": visitors - visitors // 2 - visitors // 3}


@contextmanager
def open_site(directory: Path, source: Path = WEB / "src") -> Iterator[Served]:
    """Serve the SDK of a source, and an aggregator; yield the origin, the aggregator and what `start()` needs."""
    pages, reaches = directory / "site", list[str]()
    pages.mkdir()
    bundle(pages, source / "index.ts", base=source.parents[2])
    (pages / "metrics.json").write_text(compiled(REGISTRY), encoding="utf-8")
    asked = Registry.parse(REGISTRY)
    with site(pages, reaches) as url, taking(directory / "store", Limits(origins=(url,)), asked=asked) as to:
        reaches.append(to.url)
        yield url, to, {"endpoint": to.url, "key": write_key(to.service.store)}


def test_visitors_are_counted_and_estimates_hold(browser: "Browser", tmp_path: Path) -> None:
    with open_site(tmp_path) as (url, to, given):
        for colour, visitors in truth_of(BROWSED).items():
            for _ in range(visitors):
                person = browser.new_context()
                page = person.new_page()
                page.goto(url)
                page.evaluate(START, {**given, "consent": True})
                page.evaluate(RECORD, ["color", colour])
                assert page.evaluate(DELIVER) == {"waiting": 0, "accepted": 1}
                person.close()
        holds(to, BROWSED)


def test_visitors_in_node_are_counted_and_estimates_hold(tmp_path: Path) -> None:
    with open_site(tmp_path) as (_, to, given):
        asked = {**given, "registry": json.loads(compiled(REGISTRY)), "truth": truth_of(VISITORS)}
        assert int(node(SCRIPT, json.dumps(asked), within_s=3_600)) == VISITORS
        holds(to, VISITORS)


def holds(to: Taking, visitors: int) -> None:
    """Check that the ledger has each visitor once, and how far estimates are from the truth.

    The bound is six times the most that a share's standard error may be: fewer than one run of 10^8 is further off.
    """
    wait_until(lambda: sum(row.folded for row in to.service.store.ledger()) == visitors)
    (ledger,) = [row for row in to.service.store.ledger() if row.accepted]
    assert (ledger.accepted, ledger.folded, ledger.quarantined) == (visitors, visitors, 0)
    asked = requests.get(f"{to.url}/v1/metrics/color/estimates?window=today", timeout=60).json()
    assert asked["meta"]["n"] == visitors
    odds = math.e**2
    p, q = odds / (odds + 3), 1 / (odds + 3)  # of four values
    for row in asked["rows"]:
        share = truth_of(visitors).get(row["value"], 0) / visitors
        assert abs(row["estimate"] - share) < 6 * 0.5 / visitors**0.5 / (p - q)


class Killed:
    """One person's browser: each tab records an answer of a new day, begins to send, and is killed."""

    def __init__(self, person: "BrowserContext", served: Served) -> None:
        self._person, (self._url, self._to, self._given) = person, served
        assert person.browser
        self._processes = person.browser.new_browser_cdp_session()
        self._rng = random.Random(3)

    def accepted(self) -> int:
        """Return how many reports the aggregator has counted."""
        return sum(row.accepted for row in self._to.service.store.ledger())

    def open(self, day: int) -> "Page":
        page = self._person.new_page()
        page.add_init_script(CLOCK.replace("{day}", str(day)))
        page.goto(self._url)
        page.evaluate(START, {**self._given, "consent": True})
        return page

    def live(self, day: int) -> None:
        page = self.open(day)
        end: Callable[[Page], None] = self._rng.choice([self._while_recording, self._while_sending, self._unheard])
        end(page)
        page.close()

    def _kill(self, page: "Page") -> None:
        """End the processes of this browser that run pages, as the system does where memory is short."""
        running = self._processes.send("SystemInfo.getProcessInfo")["processInfo"]
        for process in running:
            if process["type"] == "renderer":
                os.kill(process["id"], signal.SIGKILL)

    def _while_recording(self, page: "Page") -> None:
        page.evaluate("() => void telemetry.color.record('red')")
        self._kill(page)

    def _while_sending(self, page: "Page") -> None:
        page.evaluate(RECORD, ["color", "red"])
        page.evaluate("() => void telemetry.flush(10)")
        page.evaluate("(ms) => new Promise((over) => setTimeout(over, ms))", self._rng.uniform(0, 30))
        self._kill(page)

    def _unheard(self, page: "Page") -> None:
        """The aggregator has the upload, and the tab is killed before it hears so."""
        came: list[int] = []

        def answer(route: "Route") -> None:
            came.append(route.fetch().status)
            route.abort()

        page.route(f"{self._to.url}/**", answer)
        page.evaluate(RECORD, ["color", "red"])
        page.evaluate("() => telemetry.flush(10).then(() => {})")
        self._kill(page)


def test_tabs_that_are_killed_count_nothing_twice_and_exceed_no_budget(browser: "Browser", tmp_path: Path) -> None:
    with open_site(tmp_path) as served, browser.new_context() as person:
        killed = Killed(person, served)
        for number in range(KILLS):
            killed.live(number // 3)
        for day in range(KILLS // 3 + 2, KILLS // 3 + 5):  # a day sends one report of a metric: two may wait
            last = killed.open(day)
            last.evaluate(FLUSH)
            status = last.evaluate(STATUS)
            last.close()
        charged, counted = status["spent"]["color"] / 2, killed.accepted()
    assert status["waiting"] == 0
    assert status["counts"]["accepted"] <= counted <= charged <= min(200, KILLS // 3 + 2)
    assert counted > KILLS // 12  # most days had a report


def test_a_device_that_sends_an_upload_again_under_another_id_is_seen(browser: "Browser", tmp_path: Path) -> None:
    """Planted: what was charged once is counted more than once."""
    source = tmp_path / "client" / "web" / "src"
    for path in (WEB / "src").rglob("*.ts"):
        copy = source / path.relative_to(WEB / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    device = source / "device.ts"
    text, leaves = device.read_text(encoding="utf-8"), "      upload.seen = this.#now;\n"
    assert text.count(leaves) == 1
    device.write_text(text.replace(leaves, "      upload.id = this.#newId();\n"), encoding="utf-8")
    with open_site(tmp_path, source) as served, browser.new_context() as person:
        killed = Killed(person, served)
        for number in range(9):
            killed.live(number // 3)
        last = killed.open(5)
        charged, counted = last.evaluate(STATUS)["spent"]["color"] / 2, killed.accepted()
    assert counted > charged
