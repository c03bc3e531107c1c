"""The web SDK in a real Chromium and a real Firefox, under a policy that allows nothing but its site and aggregator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.web.request_limits import Limits
from tests.aggregator.test_request_admission import Taking, taking
from tests.pinned.comparing import VECTORS
from tests.support.firefox import AnyPage
from tests.support.firefox import Page as FirefoxPage
from tests.support.keys import write_key
from tests.support.node import ROOT, run
from tests.support.registries import registry_text
from tests.support.waiting import wait_until
from tests.support.web_pages import WEB, bundle, compiled, site

SCRIPT = ROOT / "tests" / "web" / "vectors.ts"

RUN = """async (names) => {
    const { runVectors } = await import("/tests/web/vectors.js");
    const texts = await Promise.all(names.map(async (name) => (await fetch(`/vectors/${name}.json`)).text()));
    return runVectors(Object.fromEntries(names.map((name, place) => [name, texts[place]])));
}"""
START = """async (given) => {
    globalThis.refused = [];
    addEventListener("securitypolicyviolation", ({ blockedURI, violatedDirective }) =>
        refused.push(`${violatedDirective} ${blockedURI}`));
    const { start } = await import("/client/web/src/index.js");
    const registry = await (await fetch("/metrics.json")).json();
    globalThis.telemetry = start({ registry, ...given });
}"""
RECORD = "async ([metric, answer]) => { telemetry[metric].record(answer); return (await telemetry.status()).waiting }"
FLUSH = "() => telemetry.flush(10_000)"
STATUS = "() => telemetry.status()"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with the SDK, the vectors and what holds the one against the others."""
    directory = tmp_path_factory.mktemp("site")
    bundle(directory, SCRIPT, WEB / "src" / "index.ts")
    (directory / "vectors").symlink_to(VECTORS)
    (directory / "metrics.json").write_text(compiled(registry_text()), encoding="utf-8")
    return directory


class Visited:
    """A page that may send to a real aggregator."""

    def __init__(self, page: AnyPage, url: str, to: Taking) -> None:
        self.page, self.url, self.to = page, url, to
        self.key = write_key(to.service.store)

    def start(self, page: AnyPage | None = None, *, asked: bool = True) -> AnyPage:
        """Visit the site, whose page starts the SDK; the person was asked and agreed."""
        page = page or self.page
        page.goto(self.url)
        page.evaluate(START, {"endpoint": self.to.url, "key": self.key, **({"consent": True} if asked else {})})
        return page

    def accepted(self) -> int:
        return sum(row.accepted for row in self.to.service.store.ledger())


@contextmanager
def visiting(page: AnyPage, built: Path, directory: Path, origin: str = "") -> Iterator[Visited]:
    """Serve the site, and an aggregator that takes reports from its pages, or from those of another origin alone."""
    reaches: list[str] = []
    with site(built, reaches) as url, taking(directory, Limits(origins=(origin or url,))) as to:
        reaches.append(to.url)
        yield Visited(page, url, to)


@pytest.fixture
def visited(page: AnyPage, built: Path, tmp_path: Path) -> Iterator[Visited]:
    with visiting(page, built, tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def in_node() -> dict[str, Any]:
    """Hold the vectors against the SDK in Node."""
    held: dict[str, Any] = json.loads(run(SCRIPT))
    return held


def test_a_browser_makes_of_the_vectors_what_node_makes(built: Path, page: AnyPage, in_node: dict[str, Any]) -> None:
    with site(built) as url:
        page.goto(url)
        came = page.evaluate(RUN, [*in_node])
    assert [failure for held in came.values() for failure in held["failures"]] == []
    assert came == in_node
    assert all(held["count"] for held in came.values())


def test_a_page_sends_under_a_policy_that_allows_nothing_else(visited: Visited) -> None:
    page = visited.start()
    assert page.evaluate(RECORD, ["color", "red"]) == 1
    assert page.evaluate(FLUSH) == {"sent": 1, "waiting": 0, "detail": ""}
    assert visited.accepted() == 1
    assert page.evaluate("() => refused") == []
    assert page.evaluate("() => fetch('http://localhost:1').catch((error) => error.name)") == "TypeError"
    wait_until(lambda: page.evaluate("() => refused.length"), what="the policy refusing what is not the SDK's")
    status = page.evaluate(STATUS)
    assert (status["silent"], status["spent"]["color"], status["counts"]) == ("", 2, {"accepted": 1})


def test_the_next_visit_goes_on_with_the_budget_and_the_period(visited: Visited) -> None:
    page = visited.start()
    page.evaluate(RECORD, ["color", "red"])
    page.evaluate(FLUSH)
    visited.start()
    assert page.evaluate(RECORD, ["color", "blue"]) == 0
    status = page.evaluate(STATUS)
    assert status["metrics"]["color"]["silent"] == "answered"
    assert (status["spent"]["color"], status["metrics"]["dark"]["silent"]) == (2, "")
    assert page.evaluate(FLUSH)["sent"] == 0
    assert visited.accepted() == 1


def test_two_tabs_are_one_device(visited: Visited) -> None:
    page = visited.start()
    other = visited.start(visited.page.context.new_page())
    page.evaluate(RECORD, ["color", "red"])
    other.evaluate(RECORD, ["color", "green"])
    other.evaluate(RECORD, ["dark", True])
    assert page.evaluate(FLUSH)["detail"] == ""
    wait_until(lambda: visited.accepted() == 2, what="one report of each metric")
    status = other.evaluate(STATUS)
    assert status["spent"] == {"color": 2, "dark": 2}
    assert status["counts"]["accepted"] == 2


def test_nothing_is_kept_before_the_person_chose(visited: Visited) -> None:
    databases = "async () => (await indexedDB.databases()).map(({ name }) => name)"
    page = visited.start(asked=False)
    page.evaluate("() => telemetry.color.record('red')")
    assert page.evaluate(FLUSH)["sent"] == 0
    assert page.evaluate(databases) == []
    assert page.evaluate("() => telemetry.setConsent(true)") is True
    assert page.evaluate(RECORD, ["color", "red"]) == 1


def record_and_arm(visited: Visited) -> None:
    """Record an answer; return when it may leave with the page."""
    page = visited.start()
    page.evaluate(RECORD, ["color", "red"])
    wait_until(lambda: page.evaluate(STATUS)["spent"].get("color"), what="the report to be ready to leave")


def test_what_was_due_leaves_with_the_page(visited: Visited) -> None:
    """Firefox loses some requests of a page that another site's page follows, so there one of the same site does."""
    record_and_arm(visited)
    visited.page.goto(visited.url if isinstance(visited.page, FirefoxPage) else "about:blank")
    wait_until(lambda: visited.accepted() == 1, what="what the page left with")


def test_what_a_page_left_with_is_sent_again_at_the_next_visit_and_counted_once(visited: Visited) -> None:
    """Whether a browser has lost that request or not: a page cannot know. Its random moment may come before `flush`."""
    record_and_arm(visited)
    visited.page.goto("about:blank")
    page = visited.start()
    result = page.evaluate(FLUSH)
    assert (result["waiting"], result["detail"]) == (0, "")
    status = page.evaluate(STATUS)
    assert (status["spent"], status["counts"], visited.accepted()) == ({"color": 2}, {"accepted": 1}, 1)


def test_a_page_of_another_origin_is_refused_and_keeps_its_report(page: AnyPage, built: Path, tmp_path: Path) -> None:
    with visiting(page, built, tmp_path, "https://other.example") as visited:
        visited.start()
        page.evaluate(RECORD, ["color", "red"])
        result = page.evaluate(FLUSH)
        assert (result["sent"], result["waiting"]) == (0, 1)
        assert visited.accepted() == 0
