"""The web SDK in workers, service workers and frames of two real browsers, and where a Firefox keeps nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.firefox import AnyPage, Person, firefox
from tests.support.registries import registry_text
from tests.support.web_pages import WEB, bundle, compiled, node, site
from tests.web.test_browsers import RECORD, START, STATUS, Visited, visiting

SCRIPT = """import {{ start }} from "{sdk}";
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
SENT = {"sent": 1, "waiting": 0, "detail": ""}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with the SDK, as modules and as one file."""
    directory = tmp_path_factory.mktemp("site")
    bundle(directory, WEB / "src" / "index.ts")
    (directory / "worker.js").write_text(SCRIPT.format(sdk="/client/web/src/index.js"), encoding="utf-8")
    source = tmp_path_factory.mktemp("source") / "worker.ts"
    source.write_text(SCRIPT.format(sdk=WEB / "src" / "index.ts"), encoding="utf-8")
    esbuild = WEB / "node_modules" / "esbuild" / "bin" / "esbuild"
    node(esbuild, source, "--bundle", f"--outfile={directory / 'one-file.js'}")
    (directory / "framed.js").write_text(FRAMED, encoding="utf-8")
    (directory / "framed.html").write_text('<!doctype html><script type="module" src="framed.js"></script>')
    (directory / "metrics.json").write_text(compiled(registry_text()), encoding="utf-8")
    return directory


@pytest.fixture
def visited(page: AnyPage, built: Path, tmp_path: Path) -> Iterator[Visited]:
    with visiting(page, built, tmp_path) as one:
        page.goto(one.url)
        yield one


def ask(visited: Visited, kind: str, script: str, *, sees_page: bool = True, **more: object) -> Any:
    given = {"endpoint": visited.to.url, "key": visited.key, "consent": True, **more}
    return visited.page.evaluate(ASK, [kind, script, given, sees_page])


def test_a_worker_is_the_device_of_its_page(visited: Visited) -> None:
    assert ask(visited, "worker", "/worker.js")["flushed"] == SENT
    status = visited.start().evaluate(STATUS)
    assert (status["spent"], status["metrics"]["color"]["silent"]) == ({"color": 2}, "answered")
    assert visited.accepted() == 1


def test_a_worker_that_is_not_told_what_its_page_sees_is_silent(visited: Visited) -> None:
    came = ask(visited, "worker", "/worker.js", sees_page=False)
    assert came["flushed"]["detail"] == came["status"]["silent"]
    assert came["status"]["silent"].startswith("a worker is not told")
    came = ask(visited, "worker", "/worker.js", forbidden="Do Not Track is set")
    assert (came["status"]["silent"], visited.accepted()) == ("Do Not Track is set", 0)


def test_a_service_worker_that_is_one_file_sends_as_a_page_does(visited: Visited) -> None:
    assert ask(visited, "classic", "/one-file.js")["flushed"] == SENT
    assert visited.accepted() == 1


def test_a_service_worker_that_may_load_no_modules_says_so(visited: Visited) -> None:
    """Browsers let none of them import later what it did not import at its start."""
    came = ask(visited, "module", "/worker.js")
    assert came["flushed"] == {"sent": 0, "waiting": 0, "detail": came["status"]["silent"]}
    assert came["status"]["silent"].startswith("modules of dither-web cannot be loaded here: ")
    assert came["status"]["metrics"].keys() == {"color", "dark"}
    assert visited.accepted() == 0


def test_a_page_in_a_frame_of_another_site_keeps_nothing(visited: Visited) -> None:
    of_another = visited.url.replace("localhost", "127.0.0.1") + "/framed.html"
    assert visited.page.evaluate(FRAME, of_another) == {"silent": "the page is in a frame of another site", "kept": 0}
    # The same page in a frame of its own site speaks, and so what is silent is the frame.
    assert visited.page.evaluate(FRAME, visited.url + "/framed.html") == {"silent": "", "kept": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preference", "value", "silent"),
    [
        ("browser.privatebrowsing.autostart", True, "Global Privacy Control is set"),
        ("network.cookie.cookieBehavior", 2, "what this page keeps cannot be used now: "),
    ],
    ids=["private window", "storage refused"],
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
