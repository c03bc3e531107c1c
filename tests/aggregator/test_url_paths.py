"""Addresses: which are answered, however they are written, below a path of a site, and where something fails."""

import json
import random
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import flask
import pytest
import requests

from dither.sending.transport import HttpTransport, Outcome
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.store import SQLiteStore, StoreUnavailable
from dither_aggregator.store.document_kinds import Keys
from dither_aggregator.web import endpoints, reader_process
from dither_aggregator.web.addresses import ADDRESSES, BasePath, is_known, read_base_path
from dither_aggregator.web.api import description
from dither_aggregator.web.problems import CONTENT_TYPE
from dither_aggregator.web.process_messages import Place, ReadRequest
from dither_aggregator.web.reader_process import reading_app
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.request_limits import Limits
from dither_shared.errors import ConfigurationError
from dither_shared.wire import PATH, PROBLEM_PREFIX
from dither_shared.wire.reading import PROBLEMS
from tests.support.aggregators import http_server, serve, sqlite_store, web_app
from tests.support.clocks import Clock
from tests.support.http import Connection
from tests.support.keys import bearer
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled
from tests.support.stores import body_of

ASKED = registry()
TRUSTED = [ip_network("127.0.0.1")]
BASE = "/telemetry"


@dataclass
class Below:
    """An aggregator in this process, below a path of a site, and its keys."""

    url: str
    """The address of the site."""
    health: str
    store: SQLiteStore
    keys: dict[str, str]

    def ask(self, method: str, path: str, key: str = "", **how: Any) -> requests.Response:
        headers = {**(bearer(self.keys[key]) if key else {}), **how.pop("headers", {})}
        return requests.request(method, self.url + path, headers=headers, allow_redirects=False, timeout=60, **how)

    def answers(self, asked: Iterable[tuple[str, str]]) -> Iterator[tuple[int, dict[bytes, bytes], bytes]]:
        """Yield status, headers and content of the answers to methods and paths, which are sent as they are."""
        made: Connection | None = None
        for method, path in asked:
            made = made or Connection(urlsplit(self.url).port or 0)
            made.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            status, content = made.content(bare=method == "HEAD")
            if ends := made.fields.get(b"connection") == b"close":
                made.socket.close()
            yield status, made.fields, content
            made = None if ends else made
        if made:
            made.socket.close()


@contextmanager
def below(directory: Path, *scopes: str) -> Iterator[Below]:
    with sqlite_store(ASKED, directory, Clock()) as store, WholeService(store) as service:
        keys = {scope: store.create_key(scope)[1] for scope in ("write", *scopes)}
        service.store.refresh()
        server = http_server(web_app(service), admission=Admission(service, Limits(), BasePath(BASE, TRUSTED)))
        assert server.health
        with server.in_background():
            yield Below(server.url, server.health, store, keys)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Below]:
    """Everybody on this machine may read."""
    with below(tmp_path_factory.mktemp("opened")) as made:
        yield made


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Below]:
    with below(tmp_path_factory.mktemp("locked"), "read", "admin") as made:
        yield made


# Which there are.


def test_every_address_is_known_before_the_gate_and_no_other(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        rules = {re.sub("<.*?>", "<>", rule.rule) for rule in reading_app(store).url_map.iter_rules()}
    assert rules == set(ADDRESSES)
    assert len(rules) == len(ADDRESSES)
    assert all(is_known(each.replace("<>", "color")) for each in ADDRESSES)
    assert not any(
        map(is_known, ("", "//", "/metrics/", "/metrics/a/b", "/s/a/b", "/static/a/b", "/v1/reports/", "/x"))
    )


UPLOADS = (
    *("/v1/reports", "//v1/reports", "/v1/reports/", "///v1//reports//", "/v1//reports", "//v1///reports"),
    *("/telemetry/v1/reports", "/telemetry//v1/reports/", "//telemetry/v1/reports", "/telemetry/v1/reports//"),
)


@pytest.mark.parametrize("path", UPLOADS)
def test_an_upload_is_taken_however_many_slashes_a_proxy_makes(locked: Below, path: str) -> None:
    body = body_of(ASKED, {"dark": [1]})
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    made = Connection(urlsplit(locked.url).port or 0)
    with closing(made.socket):
        made.send(f"{head}Authorization: Bearer {locked.keys['write']}\r\n\r\n".encode() + body)
        made.socket.shutdown(socket.SHUT_WR)  # a device's answer comes all the same
        assert made.answer()[0] == 202


@pytest.mark.parametrize(
    "path", ["/telemetri/v1/reports", "/v1/reports/x", "/x/v1/reports", "/v1/Reports", "//", "/v1"]
)
def test_a_device_at_another_address_is_told_so_and_keeps_its_upload(opened: Below, locked: Below, path: str) -> None:
    for aggregator in (opened, locked):
        answer = aggregator.ask("POST", path, "write", data=body_of(ASKED, {"dark": [1]}))
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, CONTENT_TYPE)
        assert answer.json()["type"] == f"{PROBLEM_PREFIX}not-found"
        assert "Retry-After" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["//v1/metrics", "/v1/metrics/", "/v1//metrics", "/%761/metrics", "/v1%2Fmetrics", "/v1/./metrics", "/V1/metrics",
     "/static/dither.css/", "/static/./dither.css", "/static/x/../dither.css"],
)  # fmt: skip
def test_every_other_address_has_one_spelling(opened: Below, path: str) -> None:
    """A rule of a proxy for an address would not hold for another spelling of it."""
    assert [opened.ask("GET", each).status_code for each in ("/v1/metrics", "/static/dither.css")] == [200, 200]
    ((status, _, body),) = opened.answers([("GET", path)])
    assert status == 404
    assert PROBLEMS["not-found"][1].encode() in body


# Below a path.


def placed(path: str, base: str = BASE, *said: str, peer: str = "127.0.0.1") -> tuple[str, str]:
    """Return the path of the site and the address that a request is for."""
    headers = [(b"x-forwarded-prefix", each.encode("latin-1")) for each in said]
    scope: dict[str, Any] = {"raw_path": path.encode(), "headers": headers, "client": (peer, 1)}
    BasePath(base, TRUSTED).place(scope)
    return scope["root_path"], scope["path"]


def test_a_path_of_the_site_may_be_left_or_taken_away() -> None:
    for path, address in {
        "/telemetry/metrics/dark": "/metrics/dark",
        "/metrics/dark": "/metrics/dark",
        "/telemetry": "/",
        "/telemetry/": "/",
        "/": "/",
        "/telemetry/telemetry": "/telemetry",
        "/telemetry2/": "/telemetry2/",
        "/telemetry//": "//",
        "//telemetry/": "//telemetry/",
    }.items():
        assert placed(path) == (BASE, address)
    assert placed("/telemetry/metrics/dark", "") == ("", "/telemetry/metrics/dark")


@pytest.mark.parametrize("path", ["/telemetry", "/a/b.c/d_e~f-g", "/telemetry/", "/..."])
def test_a_path_that_a_proxy_says_counts_where_it_is_trusted_and_a_path(path: str) -> None:
    root = path.removesuffix("/")
    assert placed(f"{root}/changes", "", path) == (root, "/changes")
    assert placed("/changes", "/other", path) == (root, "/changes")
    assert placed("/changes", "/other", path, peer="192.0.2.7") == ("/other", "/changes")
    assert placed("/changes", "/other", path, path) == ("/other", "/changes")
    assert placed("/changes", "/other", "") == ("/other", "/changes")
    assert placed("/changes", "/other", "/") == ("", "/changes")


@pytest.mark.parametrize(
    "path",
    ["telemetry", "//elsewhere.example", "/a//b", "/..", "/a/../b", "/.", "/a b", "/a%2f", "/\\x", "/a\r\nx: y",
     "/\xe9", "http://x", "/a?b", "/a#b", "/a,/b", '/"', "/<", "/" + "x" * 200, "/metrics", "/v1/x", "/static", "/s"],
)  # fmt: skip
def test_what_is_no_path_of_a_site_is_refused(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match="must"):
        read_base_path(path)
    base = BasePath("", TRUSTED)
    for _ in range(2):
        scope: dict[str, Any] = {"raw_path": b"/", "client": ("127.0.0.1", 1)}
        base.place({**scope, "headers": [(b"x-forwarded-prefix", path.encode("latin-1"))]})
    assert [record.getMessage() for record in caplog.records] == [
        "a trusted proxy sends an X-Forwarded-Prefix that is no path; the setting's counts"
    ]


def test_the_session_is_for_the_path_and_leads_nowhere_else(locked: Below) -> None:
    first = locked.ask("GET", f"{BASE}/metrics/dark?window=28")
    assert first.headers["Location"] == f"{BASE}/login?next=%2Fmetrics%2Fdark%3Fwindow%3D28"
    key = locked.keys["read"]
    for place, leads in {
        "/metrics/dark?window=28": f"{BASE}/metrics/dark?window=28",
        "/": f"{BASE}/",
        "/../other": f"{BASE}/",
        "/%2e%2e/other": f"{BASE}/",
        "/metrics/..\\..\\..\\other": f"{BASE}/",
        "/metrics/x%2f..%2F..%2f..%2fother": f"{BASE}/",
        "//elsewhere.example": f"{BASE}/",
    }.items():
        entered = locked.ask("POST", f"{BASE}/login", data={"key": key, "next": place})
        assert (entered.status_code, entered.headers["Location"]) == (303, leads)
        assert f"; Path={BASE}; " in entered.headers["Set-Cookie"]
    assert locked.ask("POST", f"{BASE}/login", data={"key": "x"}).headers["Location"].startswith(f"{BASE}/login?wrong=")
    left = locked.ask("POST", f"{BASE}/logout")
    assert left.headers["Location"] == f"{BASE}/login"
    assert f"; Path={BASE}; " in left.headers["Set-Cookie"]


def test_who_asks_through_a_proxy_that_says_a_path_is_no_operator(opened: Below) -> None:
    headers = {"X-Forwarded-Prefix": "/x"}
    assert opened.ask("GET", "/v1/metrics", headers=headers).status_code == 401
    assert opened.ask("GET", "/", headers=headers).headers["Location"] == "/x/login"


def test_a_server_below_a_path_says_so_and_devices_reach_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    with serve(tmp_path / "metrics.toml", tmp_path / "data", "--port", 0, "--base-path", f"{BASE}/") as served:
        assert served.url.endswith(BASE)
        transport = HttpTransport(served.url, served.key)
        assert (
            transport.post(
                "AAECAwQFBgcICQoLDA0ODw", body_of(ASKED, {"dark": [1]}, "AAECAwQFBgcICQoLDA0ODw"), lambda: None
            ).outcome
            == Outcome.ACCEPTED
        )
        transport.idle()
        assert f'href="{BASE}/changes"' in requests.get(served.url, timeout=60).text
        described = requests.get(f"{served.url}/openapi.json", timeout=60).json()
        assert described["servers"] == [{"url": BASE}]


# Faults.

SECRET = "secret words"


BESIDE = ("watcher", "auditor", "counter", "scheduler")
"""Threads that look at the store by themselves, for no request."""


def failing(where: Any, name: str, error: type[Exception]) -> tuple[Any, str, Callable[..., Any]]:
    """Return what has a function fail for whoever asks."""
    real = getattr(where, name)

    def fails(*given: Any, **named: Any) -> Any:
        if threading.current_thread().name in BESIDE:
            return real(*given, **named)
        raise error(SECRET)

    return where, name, fails


MARK = {"data": json.dumps({"day": "2026-11-20", "text": "version 158"})}
KINDS: dict[str, tuple[Any, str, str, str, str]] = {
    # what fails there, and a request that comes to it
    "an upload's key": (Keys, "find", "POST", PATH, "write"),
    "an upload's plan": (SQLiteStore, "find_plan", "POST", PATH, "write"),
    "an upload's commit": (SQLiteStore, "append", "POST", PATH, "write"),
    "a page": (SQLiteStore, "plans", "GET", "/", "read"),
    "a page of a metric": (SQLiteStore, "plans", "GET", "/metrics/dark", "admin"),
    "the pipeline": (SQLiteStore, "counted", "GET", "/pipeline", "admin"),
    "rows": (SQLiteStore, "plans", "GET", "/v1/metrics", "read"),
    "a file of rows": (SQLiteStore, "plans", "GET", "/v1/metrics?format=csv", "read"),
    "posted candidates": (SQLiteStore, "plans", "POST", "/v1/metrics/dark/estimates", "read"),
    "a snapshot": (SQLiteStore, "snapshot", "GET", f"/v1/snapshots/{'0' * 64}", "read"),
    "a snapshot's page": (SQLiteStore, "snapshot", "GET", f"/s/{'0' * 64}", "read"),
    "a change": (SQLiteStore, "put", "POST", "/v1/admin/marks/add", "admin"),
    "the journal": (SQLiteStore, "journal", "GET", "/v1/admin/journal", "admin"),
    "a login": (Keys, "find", "POST", "/login", ""),
    "a session": (Keys, "active", "GET", "/", "session"),
    "a key of a reader": (Keys, "find", "GET", "/v1/metrics", "read"),
    "the description": (description, "_document", "GET", "/openapi.json", "read"),
    "a file of pages": (flask.Flask, "send_static_file", "GET", "/static/dither.css", ""),
    "health": (endpoints, "findings", "GET", "/readyz", "health"),
    "metrics of health": (endpoints, "findings", "GET", "/metrics", "health"),
}


def ask_failing(locked: Below, kind: str) -> requests.Response:
    _, _, method, path, key = KINDS[kind]
    headers = {"Content-Type": "application/json"} | (bearer(locked.keys[key]) if key in locked.keys else {})
    body = (
        MARK["data"] if "marks" in path else body_of(ASKED, {"dark": [1]}) if path == PATH else '{"candidates": ["a"]}'
    )
    if path == "/login":
        return requests.post(locked.url + path, data={"key": "x"}, allow_redirects=False, timeout=60)
    if key == "session":
        headers["Cookie"] = "dither_session=x.y.z"
    url = locked.health if key == "health" else locked.url + BASE
    return requests.request(method, url + path, data=body if method == "POST" else None, headers=headers, timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_foresaw_is_a_fault_of_ours_at_every_address(
    kind: str, locked: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*failing(*KINDS[kind][:2], KeyError))
    answer = ask_failing(locked, kind)
    assert answer.status_code == 500, answer.text
    assert PROBLEMS["failed"][1] in answer.text.replace("&#39;", "'")
    assert "Retry-After" not in answer.headers
    for word in ("send the same bytes", "again later", SECRET, "Traceback"):
        assert word not in answer.text
    monkeypatch.undo()
    assert ask_failing(locked, kind).status_code < 500


@pytest.mark.parametrize("kind", [kind for kind, (where, *_) in KINDS.items() if where in (SQLiteStore, Keys)])
def test_a_fault_of_the_store_is_answered_so_that_the_request_comes_again(
    kind: str, locked: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*failing(*KINDS[kind][:2], StoreUnavailable))
    answer = ask_failing(locked, kind)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60"), answer.text


def test_an_unknown_address_is_one_also_where_nobody_can_read(
    opened: Below, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = reader_process._Desk(Place(str(tmp_path / "none"), "", None), lambda computed: None)
    for path, status in {"/": 503, "/nowhere": 404, "//v1/metrics": 404}.items():
        assert desk.answer(ReadRequest("GET", path, b"", [], b"")).status == status
    monkeypatch.setattr(*failing(reader_process, "respond", StoreUnavailable))
    for path, status in {"/v1/metrics": 503, f"/elsewhere{PATH}": 404, "/nowhere": 404}.items():
        assert opened.ask("POST", path, data="{}").status_code == status


def test_what_nobody_foresaw_in_a_reader_ends_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite_store(ASKED, tmp_path) as store:
        desk = reader_process._Desk(Place(str(tmp_path), store.generation, None), lambda computed: None)
    asked = ReadRequest("GET", "/v1/metrics", b"", [], b"")
    assert desk.answer(asked).status == 200
    monkeypatch.setattr(*failing(SQLiteStore, "refresh", KeyError))
    assert desk.answer(asked).status == 500
    monkeypatch.undo()
    assert desk.answer(asked).status == 200
    assert desk._opened
    desk._opened[0].close()


# Paths that are drawn.

METHODS = (
    "GET",
    "GET",
    "GET",
    "POST",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "PROPFIND",
    "NOTHING",
)
PARTS = (
    *("/", "//", "v1", "metrics", "dark", "color", "none", "time", "reports", "admin", "keys", "static", "dither.css"),
    *(
        "openapi.json",
        "s",
        "0" * 64,
        ".csv",
        "login",
        "telemetry",
        ".",
        "..",
        "%2e%2e",
        "%2F",
        "%5c",
        "%00",
        "%ff",
        "%",
    ),
    *("%C3%A9", "%u0041", "\\", ";", ":", "@", "~", "*", "+", "'", '"', "<", "{", "|", "x" * 4_000, "0", "-1"),
)


def drawn(number: int) -> Iterator[tuple[str, str]]:
    """Yield methods and paths: parts of addresses put together, and addresses with something done to them."""
    rng = random.Random("paths")
    known = [each.replace("<>", rng.choice(("dark", "0" * 64, "dither.css"))) for each in ADDRESSES]
    for _ in range(number):
        path = rng.choice(known)
        place = rng.randrange(len(path))
        match rng.randrange(9):
            case 0:
                path = "/" + "".join(rng.choices(PARTS, k=rng.randrange(7)))
            case 1:
                path = path[:place] + rng.choice(PARTS) + path[place:]
            case 2:
                path = path.replace("/", "//", rng.randrange(1, 3))
            case 3:
                path += rng.choice(("/", "//", ".json", ".csv", "/x", ";x", "%00", "%0d%0ax:y", "/..", "?x=1", "#x"))
            case 4:
                path = path[:place] + path[place].swapcase() + path[place + 1 :]
            case 5:
                path = f"{path[:place]}%{ord(path[place]):02x}{path[place + 1 :]}"
            case 6:
                path = path[:place] + path[place + 1 :]
            case 7:
                path = path.replace("/", rng.choice(("/./", "/x/../", "/%2e/", "\\")), 1)
        site = "http://x" if path[:1] in ("", "/") else ""  # or the path's begin would be a part of the name
        yield rng.choice(METHODS), rng.choice(("", "", BASE, site, "//")) + path
    for part in PARTS:
        yield "GET", f"/{part * (12_000 // len(part))}"
        yield "POST", f"/{part}{PATH}"


def is_answered(path: str) -> bool:
    return is_known(placed(path)[1])


def is_answered_to_monitors(path: str) -> bool:
    return unquote(path) in endpoints.HEALTH_ADDRESSES


def test_whatever_path_is_asked_for_is_answered_in_words(
    opened: Below, locked: Below, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown ones are a 404, with a key and without. Known ones may say more; nothing is a 500 or a 503."""
    asked, unknown = list(drawn(scaled(150, 60_000))), 0
    monitored = replace(opened, url=opened.health)
    for door, answered in ((opened, is_answered), (locked, is_answered), (monitored, is_answered_to_monitors)):
        for (method, path), (status, fields, body) in zip(asked, door.answers(asked), strict=True):
            told = f"{method} {path[:200]}: {status} {fields!r} {body[:300]!r}"
            assert status < 500, told
            assert b"Traceback" not in body, told
            if status == 400 and (method == "HEAD" or b"this is not HTTP" in body):
                continue
            if not answered(re.split("[?#]", path.removeprefix("http://x"))[0] or "/"):
                assert status == 404, told
                unknown += 1
            if status == 404 and method != "HEAD":
                assert PROBLEMS["not-found"][1].encode() in body, told
                is_page = fields[b"content-type"].startswith(b"text/html")
                assert is_page or json.loads(body)["type"] == f"{PROBLEM_PREFIX}not-found", told
    assert unknown > len(asked)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
