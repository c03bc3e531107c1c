"""Pages of other origins that send uploads: what a browser asks, sends and may read, and nothing beside it."""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from dither_aggregator.arguments import settings
from dither_aggregator.ingest import process_counters
from dither_aggregator.web.addresses import ADDRESSES
from dither_aggregator.web.endpoints import health_findings
from dither_aggregator.web.request_limits import Limits
from dither_shared.wire import PATH, encode_upload, new_upload_id
from tests.aggregator.test_request_admission import ASKED, FEW, Taking, taking
from tests.support.http import slug, until
from tests.support.keys import write_key

APP, TOLD = "https://app.example", "Access-Control-Allow-Origin"
CHROMES = "chrome-extension://" + "abcdefghijklmnop" * 2
FIREFOXES = "moz-extension://0f5e2ab4-7c1d-4e3f-9a68-1b2c3d4e5f60"


@pytest.fixture
def to(tmp_path: Path) -> Iterator[Taking]:
    with taking(tmp_path, Limits(by_key=FEW, origins=(APP,))) as made:
        yield made


def asked(to: Taking, method: str, path: str = PATH, body: bytes = b"", **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.request(method, to.url + path, headers=named, data=body, timeout=30, allow_redirects=False)


def upload() -> bytes:
    return encode_upload(new_upload_id(random.getrandbits), [("dark", ASKED.metrics["dark"].plan.digest, [1])])


def with_key(body: bytes, key: str) -> bytes:
    return body.replace(b'{"v":1,', b'{"v":1,"key":"%s",' % key.encode(), 1)


def test_a_page_sends_its_key_in_the_body_and_nothing_of_it_is_stored(to: Taking, tmp_path: Path) -> None:
    key, body = write_key(to.service.store), upload()
    answer = asked(to, "POST", body=with_key(body, key), Content_Type="text/plain;charset=UTF-8", Origin=APP)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["duplicate"]) == (202, 1, False)
    assert answer.headers[TOLD] == APP
    assert answer.headers["Access-Control-Expose-Headers"] == "date, retry-after"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    answer = asked(to, "POST", body=body, Content_Type="application/json", Authorization=f"Bearer {key}")
    assert (answer.status_code, answer.json()["duplicate"]) == (202, True)  # the same upload, to the byte
    assert TOLD not in answer.headers
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"dither_write_" not in stored
    until(lambda: sum(row.folded for row in to.service.store.ledger()) == 1)


def test_errors_are_told_to_the_page_too_and_its_key_has_a_limit(to: Taking) -> None:
    key = write_key(to.service.store)
    simple = {"Content_Type": "text/plain", "Origin": APP}
    for body, status, problem in [
        (with_key(upload(), "dither_write_none"), 401, "key-wrong"),
        (upload(), 400, "malformed"),
        (b'{"v":1,"key":"%s",' % key.encode() + b" " * 300_000, 413, "too-large"),
        (with_key(b'{"v":1,"upload":1}', key), 400, "malformed"),
    ]:
        answer = asked(to, "POST", body=body, **simple)
        assert (answer.status_code, slug(answer.json())) == (status, problem)
        assert answer.headers[TOLD] == APP
    sent = [asked(to, "POST", body=with_key(upload(), key), **simple).status_code for _ in range(5)]
    assert sent == [202] * 3 + [429] * 2  # five at once, two of which were no uploads
    answer = asked(to, "POST", body=upload(), Content_Type="application/json", Origin=APP)
    assert (answer.status_code, answer.headers[TOLD]) == (401, APP)  # which is refused by its head


def test_a_browser_that_asks_first_is_told_what_it_may_send(to: Taking) -> None:
    answer = asked(to, "OPTIONS", Origin=APP, Access_Control_Request_Method="POST")
    assert (answer.status_code, answer.headers[TOLD]) == (204, APP)
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert answer.headers["Access-Control-Max-Age"] == "86400"


@pytest.mark.parametrize("origin", [CHROMES, FIREFOXES])
def test_an_extension_sends_as_a_page_does(tmp_path: Path, origin: str) -> None:
    with taking(tmp_path, Limits(origins=(settings.origin(origin),))) as to:
        key = write_key(to.service.store)
        for said, status in ((origin, 202), (origin.replace("-extension://", "-extension://a"), 403)):
            answer = asked(to, "POST", body=with_key(upload(), key), Content_Type="text/plain", Origin=said)
            assert (answer.status_code, answer.headers.get(TOLD)) == (status, origin if status == 202 else None)


def test_a_page_of_another_origin_sends_and_reads_nothing(to: Taking) -> None:
    key = write_key(to.service.store)
    near = (f"{APP}.evil", "null", "http://app.example", f"{APP}:8443", "https://APP.example", "*", f"{APP}, {APP}")
    for origin in near:
        first = asked(to, "OPTIONS", Origin=origin, Access_Control_Request_Method="POST")
        simple = asked(to, "POST", body=with_key(upload(), key), Origin=origin, Content_Type="text/plain")
        for answer in (first, simple):
            assert (answer.status_code, slug(answer.json())) == (403, "origin-not-allowed"), origin
            assert TOLD not in answer.headers
            assert answer.headers["Vary"] == "origin"
    assert all(row.accepted == 0 for row in to.service.store.ledger())


def test_health_tells_which_origins_were_refused_and_repeats_no_other_words(
    to: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_counters, "_shared", process_counters.Shared([0.0] * process_counters.SLOTS, 0))
    monkeypatch.setattr(process_counters, "_origins", {})

    def told() -> str:
        (check,) = (each for each in health_findings(to.service) if each.what == "origins")
        assert check.well  # else any stranger could have an alert sent
        return check.value

    assert told() == "none refused"
    for origin in ("https://old.example", "https://app.example.evil", "https://old.example", "see <b>x</b>"):
        asked(to, "OPTIONS", Origin=origin, Access_Control_Request_Method="POST")
    assert told() == "4 requests refused since the start; in the last day https://old.example, https://app.example.evil"
    for place in range(12):
        asked(to, "POST", body=upload(), Origin=f"http://{place}.example:80", Content_Type="text/plain")
    named = ", ".join(f"http://{place}.example:80" for place in range(11, 1, -1))
    assert told() == f"16 requests refused since the start; in the last day {named}"
    monkeypatch.setattr(process_counters, "ORIGIN_NAMED_S", -1.0)  # a day later
    assert told() == "16 requests refused since the start"


def test_who_says_no_origin_is_no_browser_and_shows_its_key_in_a_header(to: Taking) -> None:
    key = write_key(to.service.store)
    assert asked(to, "POST", body=with_key(upload(), key), Content_Type="text/plain").status_code == 401
    answer = asked(to, "POST", body=upload(), Content_Type="text/plain", Authorization=f"Bearer {key}", Origin=APP)
    assert (answer.status_code, slug(answer.json())) == (415, "unsupported-media-type")


def test_nothing_but_uploads_ever_says_who_may_read_it(to: Taking) -> None:
    for path in sorted({each.replace("<>", "dark") for each in ADDRESSES} - {PATH} | {"/nowhere"}):
        for answer in (
            asked(to, "GET", path, Origin=APP),
            asked(to, "OPTIONS", path, Origin=APP, Access_Control_Request_Method="GET"),
        ):
            assert not [name for name in answer.headers if name.lower().startswith("access-control")], path


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://app.example", APP),
        ("https://App.Example/", APP),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        (CHROMES, CHROMES),
        (FIREFOXES, FIREFOXES),
    ],
)
def test_an_origin_is_read_as_browsers_say_it(text: str, origin: str) -> None:
    assert settings.origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        *("*", "null", "", "app.example", "https://", "https://app.example/path", "https://a b", "ftp://app.example"),
        *("https://app.example:443", "http://app.example:80", "https://app.example:0", "https://\u00e4.example"),
        "https://*.example",
        *(CHROMES[:-1], CHROMES[:-1] + "q", f"{CHROMES}:80", f"{CHROMES}/popup.html", "chrome-extension://*"),
        *(FIREFOXES[:-1], FIREFOXES.replace("-4", "4"), "moz-extension://*", "file://", "extension://" + "a" * 32),
    ],
)
def test_what_is_no_exact_origin_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be an origin, as https://app\.example\.org"):
        settings.origin(text)
