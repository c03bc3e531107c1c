"""The web SDK in a real Chromium and a real Firefox, under a policy that allows nothing but its site and aggregator.

In pages, workers, service workers and frames; and where a Firefox keeps nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.web.request_limits import Limits
from tests.aggregator.test_request_admission import Taking, taking
from tests.pinned.comparing import VECTORS
from tests.support.firefox import AnyPage, Person, firefox
from tests.support.firefox import Page as FirefoxPage
from tests.support.keys import write_key
from tests.support.node import ROOT
from tests.support.registries import registry_text
from tests.support.soaking import thinned
from tests.support.waiting import wait_until
from tests.support.web_pages import WEB, bundle, compiled, node, site
from tests.web.test_answers import COUNTS

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
# An upload's random moment is drawn from the next two minutes and may come before `flush`: what it sent counts, too.
DELIVER = """async () => {
    await telemetry.flush(10_000);
    const { waiting, counts } = await telemetry.status();
    return { waiting, ...counts };
}"""
STATUS = "() => telemetry.status()"
DATABASES = "async () => (await indexedDB.databases()).map(({ name }) => name)"
WORKER = """import {{ start }} from "{sdk}";
self.onmessage = async ({{ data, ports: [port] }}) => {{
    const telemetry = start(data);
    telemetry.color.record("red");
    const flushed = await telemetry.flush(60);
    port.postMessage({{ flushed, status: await telemetry.status() }});
}};"""
ASK = """async ([kind, script, given, seesPage]) => {
    const { forbidden } = await import("/client/web/src/index.js");
    const registry = await (await fetch("/metrics.json")).json();
    let worker;
    if (kind == "worker") worker = new Worker(script, { type: "module" });
    else {
        const { installing } = await navigator.serviceWorker.register(script, { type: kind });
        worker = installing;
        await new Promise((active) => {
            worker.onstatechange = () => worker.state == "activated" && active();
        });
    }
    return new Promise((resolve, reject) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = ({ data }) => resolve(data);
        worker.onerror = ({ message }) => reject(new Error(message));
        const told = seesPage ? { forbidden: forbidden() } : {};
        worker.postMessage({ registry, ...told, ...given }, [port2]);
    });
}"""
FRAMED = """import { start } from "/client/web/src/index.js";
const registry = await (await fetch("/metrics.json")).json();
const telemetry = start({ registry, endpoint: "http://127.0.0.1:1", key: "k", consent: true });
telemetry.color.record("red");
const { silent } = await telemetry.status();
const kept = (await indexedDB.databases()).length;
parent.postMessage({ silent, kept }, "*");"""
FRAME = """(address) => new Promise((resolve) => {
    addEventListener("message", ({ data }) => resolve(data));
    document.body.append(Object.assign(document.createElement("iframe"), { src: address }));
})"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with the SDK, as modules and as one file, the vectors and what holds the one against the others."""
    directory = tmp_path_factory.mktemp("site")
    bundle(directory, SCRIPT, WEB / "src" / "index.ts")
    (directory / "worker.js").write_text(WORKER.format(sdk="/client/web/src/index.js"), encoding="utf-8")
    source = tmp_path_factory.mktemp("source") / "worker.ts"
    source.write_text(WORKER.format(sdk=WEB / "src" / "index.ts"), encoding="utf-8")
    esbuild = WEB / "node_modules" / "esbuild" / "bin" / "esbuild"
    node(esbuild, source, "--bundle", f"--outfile={directory / 'one-file.js'}")
    (directory / "framed.js").write_text(FRAMED, encoding="utf-8")
    (directory / "framed.html").write_text('<!doctype html><script type="module" src="framed.js"></script>')
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
def visiting(
    page: AnyPage, built: Path, directory: Path, origin: str = "", serves: Callable[[str], bool] = lambda _: True
) -> Iterator[Visited]:
    """Serve the site, and an aggregator that takes reports from its pages, or from those of another origin alone."""
    reaches: list[str] = []
    with site(built, reaches, serves) as url, taking(directory, Limits(origins=(origin or url,))) as to:
        reaches.append(to.url)
        yield Visited(page, url, to)


@pytest.fixture
def visited(page: AnyPage, built: Path, tmp_path: Path) -> Iterator[Visited]:
    with visiting(page, built, tmp_path) as one:
        yield one


def test_every_vector_holds_in_a_browser(built: Path, page: AnyPage) -> None:
    with site(built) as url:
        page.goto(url)
        came = page.evaluate(RUN, [*COUNTS])
    assert [failure for held in came.values() for failure in held["failures"]] == []
    assert {name: held["count"] >= COUNTS[name] for name, held in came.items()} == dict.fromkeys(COUNTS, True)


def test_a_page_sends_under_a_policy_that_allows_nothing_else_and_the_next_visit_goes_on(visited: Visited) -> None:
    page = visited.start()
    assert page.evaluate(RECORD, ["color", "red"]) == 1
    assert page.evaluate(DELIVER) == {"waiting": 0, "accepted": 1}
    assert visited.accepted() == 1
    assert page.evaluate("() => refused") == []
    assert page.evaluate("() => fetch('http://localhost:1').catch((error) => error.name)") == "TypeError"
    wait_until(lambda: page.evaluate("() => refused.length"), what="the policy refusing what is not the SDK's")
    status = page.evaluate(STATUS)
    assert (status["silent"], status["spent"]["color"], status["counts"]) == ("", 2, {"accepted": 1})
    # The next visit has the budget and the period.
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
    assert page.evaluate(DELIVER)["waiting"] == 0
    wait_until(lambda: visited.accepted() == 2, what="one report of each metric")
    status = other.evaluate(STATUS)
    assert status["spent"] == {"color": 2, "dark": 2}
    assert status["counts"]["accepted"] == 2


def test_nothing_is_kept_before_the_person_chose_and_a_page_of_another_origin_is_refused(
    page: AnyPage, built: Path, tmp_path: Path
) -> None:
    with visiting(page, built, tmp_path, "https://other.example") as visited:
        visited.start(asked=False)
        page.evaluate("() => telemetry.color.record('red')")
        assert page.evaluate(FLUSH)["sent"] == 0
        assert page.evaluate(DATABASES) == []
        assert page.evaluate("() => telemetry.setConsent(true)") is True
        assert page.evaluate(RECORD, ["color", "red"]) == 1
        result = page.evaluate(FLUSH)
        assert (result["sent"], result["waiting"]) == (0, 1)  # the refused page keeps its report
        assert visited.accepted() == 0


def test_what_was_due_leaves_with_the_page_and_is_counted_once_though_the_next_visit_sends_it_again(
    visited: Visited,
) -> None:
    """Firefox loses some requests of a page that another site's page follows, so there one of the same site does."""
    page = visited.start()
    page.evaluate(RECORD, ["color", "red"])
    wait_until(lambda: page.evaluate(STATUS)["spent"].get("color"), what="the report to be ready to leave")
    page.goto(visited.url if isinstance(page, FirefoxPage) else "about:blank")
    wait_until(lambda: visited.accepted() == 1, what="what the page left with")
    visited.start()
    assert page.evaluate(DELIVER) == {"waiting": 0, "accepted": 1}
    assert (page.evaluate(STATUS)["spent"], visited.accepted()) == ({"color": 2}, 1)


# Modules that hang or fail.


def test_a_refusal_and_forget_are_kept_on_a_first_visit_whose_modules_hang(
    page: AnyPage, built: Path, tmp_path: Path
) -> None:
    hangs, comes = threading.Event(), threading.Event()

    def serves(path: str) -> bool:
        if "/values-" in path:
            hangs.set()
            comes.wait(60)
        return True

    with visiting(page, built, tmp_path, serves=serves) as visited:
        for choice, silent in (("setConsent(false)", "refused"), ("forget()", "forgotten")):
            comes.clear()
            hangs.clear()
            page.goto(visited.url)
            given = {"endpoint": visited.to.url, "key": visited.key, "consent": True, "storage": silent}
            page.evaluate(START, given)
            page.evaluate("() => telemetry.color.record('red')")
            wait_until(hangs.is_set, what="the module that hangs")
            page.evaluate(f"() => telemetry.{choice}")
            page.goto(visited.url)  # which ends the page before
            comes.set()
            page.evaluate(START, given)
            page.evaluate("() => telemetry.color.record('red')")
            assert page.evaluate(FLUSH)["sent"] == 0
            status = page.evaluate(STATUS)
            assert (status["metrics"]["color"]["silent"], status["spent"]) == (silent, {})
        assert visited.accepted() == 0


def test_a_module_that_failed_is_not_fetched_again_because_of_an_answer(
    page: AnyPage, built: Path, tmp_path: Path
) -> None:
    asked: list[str] = []

    def serves(path: str) -> bool:
        asked.extend([path] if path.endswith(".js") else [])
        return "/values-" not in path or sum("/values-" in one for one in asked) > 1

    with visiting(page, built, tmp_path, serves=serves) as visited:
        visited.start()
        page.evaluate(STATUS)  # resolves when the page has begun
        before = list(asked)
        assert sum("/values-" in one for one in before) == 1
        for _ in range(2):
            assert page.evaluate(RECORD, ["color", "red"]) == 0
        assert asked == before
        status = page.evaluate(STATUS)
        assert (status["metrics"]["color"]["silent"], status["counts"]) == ("unloaded", {"unloaded": 2})
        visited.start()  # the next visit fetches it
        assert page.evaluate(RECORD, ["color", "red"]) == 1


# Workers and frames.


def ask(visited: Visited, kind: str, script: str, *, sees_page: bool = True, **more: object) -> Any:
    given = {"endpoint": visited.to.url, "key": visited.key, "consent": True, **more}
    return visited.page.evaluate(ASK, [kind, script, given, sees_page])


def test_a_worker_is_the_device_of_its_page_if_it_is_told_what_that_sees(visited: Visited) -> None:
    visited.page.goto(visited.url)
    came = ask(visited, "worker", "/worker.js", sees_page=False)
    assert came["flushed"]["detail"] == came["status"]["silent"]
    assert came["status"]["silent"].startswith("a worker is not told")
    came = ask(visited, "worker", "/worker.js", forbidden="Do Not Track is set")
    assert (came["status"]["silent"], visited.accepted()) == ("Do Not Track is set", 0)
    assert ask(visited, "worker", "/worker.js")["status"]["counts"] == {"accepted": 1}
    status = visited.start().evaluate(STATUS)
    assert (status["spent"], status["metrics"]["color"]["silent"]) == ({"color": 2}, "answered")
    assert visited.accepted() == 1


def test_a_service_worker_sends_if_it_is_one_file_and_says_so_if_it_may_load_no_modules(visited: Visited) -> None:
    """Browsers let none of them import later what it did not import at its start."""
    visited.page.goto(visited.url)
    came = ask(visited, "module", "/worker.js")
    assert came["flushed"] == {"sent": 0, "waiting": 0, "detail": came["status"]["silent"]}
    assert came["status"]["silent"].startswith("modules of dither-web cannot be loaded here: ")
    assert came["status"]["metrics"].keys() == {"color", "dark"}
    assert visited.accepted() == 0
    assert ask(visited, "classic", "/one-file.js")["status"]["counts"] == {"accepted": 1}
    assert visited.accepted() == 1


def test_a_page_in_a_frame_of_another_site_keeps_nothing(built: Path, page: AnyPage) -> None:
    with site(built) as url:
        page.goto(url)
        of_another = url.replace("localhost", "127.0.0.1") + "/framed.html"
        assert page.evaluate(FRAME, of_another) == {"silent": "the page is in a frame of another site", "kept": 0}
        # The same page in a frame of its own site speaks, and so what is silent is the frame.
        assert page.evaluate(FRAME, url + "/framed.html") == {"silent": "", "kept": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preference", "value", "silent"),
    thinned(
        [
            ("browser.privatebrowsing.autostart", True, "Global Privacy Control is set"),
            ("network.cookie.cookieBehavior", 2, "what this page keeps cannot be used now: "),
        ],
        0,
    ),
)
def test_a_firefox_that_forbids_telemetry_or_storage_is_silent_and_says_so(
    built: Path, preference: str, value: object, silent: str
) -> None:
    with firefox({preference: value}) as started, site(built) as url:
        page = Person(started, "default").new_page()  # BiDi's name of whoever has the profile
        page.goto(url)
        page.evaluate(START, {"endpoint": "http://127.0.0.1:1", "key": "k", "consent": True})
        assert page.evaluate(RECORD, ["color", "red"]) == 0
        assert page.evaluate(STATUS)["silent"].startswith(silent)
