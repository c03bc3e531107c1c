"""Who is let in by a real `dither serve`: every address with every key, sessions, and what is open before a key is."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from itsdangerous import TimestampSigner

from dither.sending.transport import HttpTransport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_aggregator.store import SQLiteStore
from dither_aggregator.web import problems
from dither_aggregator.web.addresses import EMBED
from dither_aggregator.web.authentication import COOKIE, SESSION_S
from dither_aggregator.web.problems import API, CONTENT_TYPE, DOCUMENT
from dither_aggregator.web.reader_process import reading_app
from dither_shared.registry import Registry
from dither_shared.wire import PATH
from tests.support.aggregators import dither, serve
from tests.support.locked import ADMIN, ADMIN_ADDRESS, HURRIED, READ, REVOKED, WEAK, WRONG, Locked
from tests.support.registries import registry_text
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    home = tmp_path_factory.mktemp("locked")
    (home / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    with serve(home / "metrics.toml", home / "data", settings=HURRIED) as served:
        one = Locked(served, home)
        one.keys = {WEAK: served.key, WRONG: "dither_read_00000000_" + "a" * 32}
        made = one.all_made(("read", ""), ("admin", ""), ("admin", ""))
        for name, (_, key) in zip((READ, ADMIN, REVOKED), made, strict=True):
            one.keys[name] = key
        assert dither("keys", "revoke", made[-1][0], "--data", one.data).returncode == 0
        wait_until(lambda: one.ask("GET", "/v1/marks", REVOKED).status_code == 401)
        yield one


FOR_ADMINS = ("/pipeline", "/metrics/color/share")
"""Pages that a read key does not get."""


def addresses(directory: Path) -> list[tuple[str, str]]:
    """Return the methods and addresses of everything that the application answers, from its own table."""
    with closing(SQLiteStore.create(directory, "example")) as store:
        rules = list(reading_app(store).url_map.iter_rules())
    found = []
    for rule in rules:
        path = rule.rule.replace("<path:filename>", "dither.css").replace("<id_>", "0" * 64)
        path = path.replace("<signed>", "x").replace("<name>", "color").replace("<metric>", "color")
        assert "<" not in path
        found += [(method, path) for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})]
    return found


def test_every_address_wants_a_key_that_is_for_it(locked: Locked, tmp_path: Path) -> None:
    """The addresses that need no key are listed here: the login page, what it is drawn with, and signed links."""
    found = addresses(tmp_path / "other")
    assert len(found) > 30
    assert {(method, path) for method, path in found if path.startswith(ADMIN_ADDRESS)}
    for method, path in found:
        body: dict[str, Any] = {"data": b"{}"} if method == "POST" else {}
        for key in (None, WRONG, REVOKED, WEAK, READ, ADMIN):
            answer = locked.ask(method, path, key, **body)
            status, told = answer.status_code, f"{method} {path} with {key}: {answer.status_code}"
            if (method, path) == ("POST", "/logout"):
                assert (status, answer.headers["Location"]) == (303, "/login"), told
            elif path.startswith(EMBED):  # whatever key is shown: the link is the key
                assert (status, "this link was changed" in answer.text) == (403, True), told
                continue
            elif path in ("/login", "/static/dither.css"):
                assert status == 200, told
            elif path == PATH:
                assert status == {None: 401, WRONG: 401, REVOKED: 401, WEAK: 415}.get(key, 403), told
            elif path.startswith(ADMIN_ADDRESS):
                assert status == {None: 401, WRONG: 401, REVOKED: 401, WEAK: 403, READ: 403}.get(key, status), told
                assert key != ADMIN or status in (200, 400), told
            elif key in (READ, ADMIN):
                refused = path in FOR_ADMINS and key == READ
                assert status == 403 if refused else status in (200, 400, 404), told
                assert answer.headers["Cache-Control"] == "no-store", told
            elif key is None and not path.startswith((API, DOCUMENT)):
                assert (status, urlsplit(answer.headers["Location"]).path) == (303, "/login"), told
                assert answer.content == b""
            else:
                assert status == (403 if key == WEAK else 401), told
            if status in (401, 403) and path not in FOR_ADMINS:
                assert answer.headers["Content-Type"] == CONTENT_TYPE
                assert ("WWW-Authenticate" in answer.headers) == (status == 401), told
                slug = answer.json()["type"].rpartition(":")[2]
                assert slug in {401: ("key-missing", "key-wrong"), 403: ("key-scope",)}[status]


@pytest.mark.parametrize("path", ["/static/../v1/marks", "/static/%2e%2e/v1/marks", "//v1/marks", "/%761/marks"])
def test_no_detour_leads_past_authentication(locked: Locked, path: str) -> None:
    with closing(HTTPConnection("127.0.0.1", urlsplit(locked.served.url).port or 0, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status in (303, 401, 404), path
        assert b"rows" not in answer.read()


def test_headers_of_owasp_are_there(locked: Locked) -> None:
    session = locked.session(READ)
    for path in ("/", "/metrics/color", "/pipeline", "/login", "/metrics/none"):
        headers = locked.ask("GET", path, headers=session).headers
        policy = dict(each.partition(" ")[::2] for each in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "camera=()" in headers["Permissions-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Server" not in headers
    for path in ("/v1/metrics", "/v1/none"):
        headers = locked.ask("GET", path, READ).headers
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_live_figures_are_an_admins_by_key_and_by_session(locked: Locked) -> None:
    """And the operator's before any read or admin key is made: README's first hour."""
    assert locked.upload(locked.keys[WEAK]).status_code == 202

    def n(key: str | None = None, headers: dict[str, str] | None = None) -> int:
        answer = locked.ask("GET", "/v1/metrics/dark/estimates?window=today", key, headers=headers or {})
        told: int = answer.json()["meta"]["n"]
        return told

    wait_until(lambda: n(ADMIN) > 0)
    assert n(headers=locked.session(ADMIN)) > 0
    assert n(READ) == n(headers=locked.session(READ)) == 0
    for key, status in ((READ, 403), (ADMIN, 200)):
        page = locked.ask("GET", "/pipeline", headers=locked.session(key))
        assert page.status_code == status
        assert ('href="/pipeline"' in locked.ask("GET", "/", headers=locked.session(key)).text) == (status == 200)


# Sessions.


def test_who_logs_in_gets_where_it_wanted(locked: Locked) -> None:
    first = locked.ask("GET", "/metrics/color?window=28")
    assert first.headers["Location"] == "/login?next=%2Fmetrics%2Fcolor%3Fwindow%3D28"
    form = locked.ask("GET", first.headers["Location"])
    assert 'name="next" value="/metrics/color?window=28"' in form.text
    assert "Log out" not in form.text
    entered = locked.login(locked.keys[READ], "/metrics/color?window=28")
    assert (entered.status_code, entered.headers["Location"]) == (303, "/metrics/color?window=28")
    session = {"Cookie": entered.headers["Set-Cookie"].partition(";")[0]}
    page = locked.ask("GET", "/metrics/color?window=28", headers=session)
    assert (page.status_code, "Log out" in page.text) == (200, True)
    assert locked.ask("GET", "/v1/marks", headers=session).status_code == 200  # what pages lead to


def test_a_session_is_a_signed_id_that_only_this_site_is_sent(locked: Locked) -> None:
    key = locked.keys[READ]
    value, *flags = locked.login(key).headers["Set-Cookie"].split("; ")
    assert flags == [f"Max-Age={SESSION_S}", "Path=/", "HttpOnly", "SameSite=Lax"]
    assert value.startswith(f"{COOKIE}={key.split('_')[2]}.")
    assert key.split("_")[3] not in value
    for host, proto in (("telemetry.example.org", ""), ("10.0.0.5", ""), ("localhost", "https")):
        said = locked.login(key, Host=host, **({"X-Forwarded-Proto": proto} if proto else {}))
        if said.status_code != 421:  # a name that nobody allowed
            assert said.headers["Set-Cookie"].endswith("; Secure"), host


def test_a_session_is_worth_what_its_key_is(locked: Locked) -> None:
    id_, locked.keys["short"] = locked.made("read")
    session = locked.session("short")
    assert locked.ask("GET", "/", headers=session).status_code == 200
    assert dither("keys", "revoke", id_, "--data", locked.data).returncode == 0
    wait_until(lambda: locked.ask("GET", "/", headers=session).status_code == 303)
    assert locked.ask("GET", "/v1/marks", headers=session).status_code == 401


def test_sessions_that_are_spoiled_or_old_are_none(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = locked.session(READ)["Cookie"]
    id_, stamp, signature = cookie.partition("=")[2].split(".")
    with closing(SQLiteStore(locked.data)) as store:
        signed_by = {key.id: store.signing_secret(b"session " + key.digest) for key in store.keys.listed()}
        listed = store.keys.listed()
    admin = next(key for key in listed if key.scope == "admin" and key.state == "active")
    write = next(key for key in listed if key.scope == "write")

    def genuine(id_: str, ago_s: int = 0, of: str = "") -> str:
        signer = TimestampSigner(signed_by[of or id_], salt="dither session", digest_method=sha256)
        with monkeypatch.context() as patched:
            patched.setattr(TimestampSigner, "get_timestamp", lambda self: int(time.time()) - ago_s)
            return signer.sign(id_).decode()

    def status(value: str) -> int:
        return locked.ask("GET", "/", headers={"Cookie": f"theme=dark; {COOKIE}={value}"}).status_code

    assert (status(genuine(id_)), status(genuine(id_, SESSION_S - 60))) == (200, 200)
    assert status(genuine(admin.id)) == 200
    for spoiled in (
        f"{admin.id}.{stamp}.{signature}",
        f"{id_}.{stamp}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}",
        f"{id_}.{stamp}",
        id_,
        "",
        genuine(id_, SESSION_S + 60),
        genuine(write.id),
        genuine("00000000", of=id_),
        genuine(admin.id, of=id_),
    ):
        assert status(spoiled) == 303, spoiled


def test_logging_out_takes_the_cookie_away_and_no_get_does(locked: Locked) -> None:
    session = locked.session(READ)
    assert locked.ask("GET", "/logout", headers=session).status_code in (404, 405)
    assert locked.ask("GET", "/", headers=session).status_code == 200
    left = locked.ask("POST", "/logout", headers=session)
    assert (left.status_code, left.headers["Location"]) == (303, "/login")
    assert left.headers["Set-Cookie"].startswith(f"{COOKIE}=; Max-Age=0; ")


@pytest.mark.parametrize("name", [WEAK, WRONG, REVOKED])
def test_a_key_that_may_not_read_gives_no_session(locked: Locked, name: str) -> None:
    answer = locked.login(locked.keys[name], "/pipeline")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login?wrong=yes&next=%2Fpipeline")
    assert "Set-Cookie" not in answer.headers
    page = locked.ask("GET", answer.headers["Location"])
    assert "This is not a read or admin key" in page.text


@pytest.mark.parametrize(
    "place",
    ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "elsewhere", "/\tx", "/\u20ac"],
)
def test_logging_in_leads_nowhere_else(locked: Locked, place: str) -> None:
    assert locked.login(locked.keys[READ], place).headers["Location"] == "/"


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"}, False),
        ({"Origin": "https://elsewhere.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "{url}"}, True),
        ({}, True),
    ],
)
@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_forms_of_other_sites_are_refused(locked: Locked, path: str, headers: dict[str, str], taken: bool) -> None:
    said = {name: value.format(url=locked.served.url) for name, value in headers.items()}
    answer = locked.ask("POST", path, data={"key": locked.keys[READ]}, headers=said)
    assert answer.status_code == (303 if taken else 400), answer.text
    assert ("Set-Cookie" in answer.headers) == taken


@pytest.mark.parametrize("body", [b"key", b"\xff=1", b"a=1&b=2&c=3&d=4&e=5"])
def test_what_is_no_form_is_refused(locked: Locked, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert locked.ask("POST", "/login", data=body, headers=headers).status_code == 400
    assert locked.ask("POST", "/login", data=b"key=x", headers={"Content-Type": "text/plain"}).status_code == 400


def test_a_session_changes_nothing_and_posts_nothing(locked: Locked) -> None:
    session = locked.session(ADMIN)
    mark = json.dumps({"day": "2026-11-20", "text": "version 158"})
    assert locked.ask("POST", f"{ADMIN_ADDRESS}marks/add", data=mark, headers=session).status_code == 401
    assert locked.ask("GET", f"{ADMIN_ADDRESS}keys", headers=session).status_code == 401
    posted = locked.ask("POST", "/v1/metrics/color/estimates", data=b"{}", headers=session)
    assert posted.status_code == 401


# Uploads.


def test_a_key_that_waits_has_uploads_come_again(locked: Locked) -> None:
    (id_, old), (_, new) = locked.all_made(("write", "version 157"), ("write", "version 158"))
    assert (locked.upload(old).status_code, locked.upload(new).status_code) == (202, 202)
    assert dither("keys", "revoke", id_, "--wait", "--data", locked.data).returncode == 0
    wait_until(lambda: locked.upload(old).status_code == 503)
    answer = locked.upload(old)
    assert answer.json()["type"].endswith(":key-waiting")
    assert int(answer.headers["Retry-After"]) == problems.WAITING_RETRY_AFTER_S
    assert locked.upload(new).status_code == 202
    assert dither("keys", "revoke", id_, "--data", locked.data).returncode == 0
    wait_until(lambda: locked.upload(old).status_code == 401)
    assert locked.upload(new).status_code == 202


@pytest.mark.parametrize("how", [("--wait",), ()], ids=["waiting", "revoked"])
def test_an_installed_app_loses_nothing_when_its_next_version_has_the_next_key(
    locked: Locked, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """The SDK keeps what it could not send with the old key, and sends it with the next one when it may."""
    (id_, old), (_, new) = locked.all_made(("write", ""), ("write", ""))
    assert dither("keys", "revoke", id_, *how, "--data", locked.data).returncode == 0
    wait_until(lambda: locked.upload(old).status_code == (503 if how else 401))
    asked = Registry.load(locked.home / "metrics.toml")

    def version(key: str, after_s: float = 0.0) -> tuple[int, int]:
        transport = HttpTransport(locked.served.url, key)
        settings = Settings(asked, transport, tmp_path, True, clock=lambda: time.time() + after_s)
        with closing(Telemetry(settings)) as device:
            if key == old:
                device.color.record("red")
            result = device.flush(20)
        return result.sent, result.waiting

    assert version(old) == (0, 1)
    if how:  # it was told when to come again
        assert version(new) == (0, 1)
    assert version(new, after_s=2 * problems.WAITING_RETRY_AFTER_S) == (1, 0)


def test_the_day_of_the_last_use_is_written_by_the_watcher(locked: Locked) -> None:
    id_, text = locked.made("write")

    def last_used() -> object:
        with closing(SQLiteStore(locked.data)) as store:
            return store.keys.by_id[id_].last_used

    assert locked.upload(text).status_code == 202
    wait_until(lambda: last_used() is not None)
    with closing(SQLiteStore(locked.data)) as store:
        assert last_used() == store.clock_day()
