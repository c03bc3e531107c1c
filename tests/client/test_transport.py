import json
import os
import time
from pathlib import Path

import pytest

from dither.sending.transport import Answer, HttpTransport, Outcome, check_endpoint, read_answer
from dither_shared.errors import ConfigurationError
from dither_shared.wire import PROBLEM_PREFIX, encode_upload
from tests.support.servers import Reply, accepted, problem, scripted

ID = "AAECAwQFBgcICQoLDA0ODw"
BODY = encode_upload(ID, [("dark", "0" * 16, [1])])
RECEIPT = accepted(BODY)


def read(status: int, content: bytes, retry_after: str = "") -> Answer:
    return read_answer(status, {"Retry-After": retry_after} if retry_after else {}, content, ID)


def ours(slug: str = "x") -> bytes:
    return json.dumps({"type": PROBLEM_PREFIX + slug}).encode()


def test_a_receipt_for_this_upload_ends_it() -> None:
    assert read(202, RECEIPT) == Answer(Outcome.ACCEPTED, "accepted", rejected=0)
    rejected = json.dumps({"upload": ID, "rejected": [{"count": 2}, {"count": 1}, {"count": "9"}, 4]}).encode()
    assert read(202, rejected).rejected == 3


@pytest.mark.parametrize("status", [400, 409, 410, 411, 414, 415, 422, 431])
def test_a_definite_refusal_in_our_words_ends_it(status: int) -> None:
    assert read(status, ours()).outcome is Outcome.DROPPED


def test_a_definite_413_asks_for_halves() -> None:
    assert read(413, ours("too-large")).outcome is Outcome.TOO_LARGE
    assert read(413, b"<html>").outcome is Outcome.KEPT


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_stops_sending(status: int) -> None:
    assert read(status, ours("key-wrong")) == Answer(Outcome.STOPPED, f"{status} key-wrong")


@pytest.mark.parametrize("status", [404, 405, 408, 429, 500, 502, 503, 504, 507])
def test_other_statuses_keep_it(status: int) -> None:
    assert read(status, ours()).outcome is Outcome.KEPT


@pytest.mark.parametrize("status", [200, 202, 204, 301, 302, 400, 401, 403, 409, 410, 413, 422, 500, 503])
@pytest.mark.parametrize(
    "content",
    [b"", b"<html>Welcome to the hotel</html>", RECEIPT[:-1], b"[]", b'{"type": "about:blank"}', b"\xff", b"[" * 9999],
)
def test_without_a_document_of_ours_nothing_ends_it(status: int, content: bytes) -> None:
    assert read(status, content).outcome is Outcome.KEPT


def test_a_receipt_for_another_upload_does_not_end_it() -> None:
    assert read(202, RECEIPT.replace(ID.encode(), b"BBBBBBBBBBBBBBBBBBBBBA")).outcome is Outcome.KEPT
    assert read(200, RECEIPT).outcome is Outcome.KEPT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 0),
        ("0", 60),
        ("60", 60),
        ("61", 600),
        ("3600", 3600),
        ("7200", 21_600),
        ("99999", 86_400),
        ("-5", 0),
        ("soon", 0),
        ("9" * 5000, 0),
        ("1.5", 0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0),
    ],
)
def test_retry_after_is_rounded_up_to_a_few_steps(header: str, seconds: float) -> None:
    assert read(503, ours(), header).retry_after_s == seconds


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://telemetry.example.org",
        "https://example.org:8443/dither/",
        "http://127.0.0.1:8080",
        "http://[::1]:80",
        "http://localhost:1",
        "http://127.9.9.9",
    ],
)
def test_https_and_loopback_are_accepted(endpoint: str) -> None:
    assert check_endpoint(endpoint) == endpoint.rstrip("/") + "/v1/reports"


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("http://example.org", "must be https beyond this machine"),
        ("http://10.0.0.1:8080", "must be https"),
        ("http://localhost.example.org", "must be https"),
        ("ftp://example.org", "must be like"),
        ("example.org", "must be like"),
        ("https://", "must be like"),
        ("https://user:pass@example.org", "must be like"),
        ("https://example.org?x=1", "must be"),
        ("https://example.org:99999", "must be like"),
        ("http://[::1", "must be like"),
        ("", "must be like"),
        ("https://example.org/?", "must be like"),
        ("https://:p@example.org", "must be like"),
        (None, "must be like"),
        (5, "must be like"),
    ],
)
def test_other_endpoints_are_refused(endpoint: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_endpoint(endpoint)


def test_a_password_in_an_endpoint_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_endpoint("https://someone:marker@example.org")
    assert "marker" not in str(caught.value)


def post(*replies: Reply) -> tuple[Answer, list[str], dict[str, str]]:
    with scripted(*replies) as (url, requests):
        transport = HttpTransport(url, "the-key")
        answer = transport.post(ID, BODY)
        transport.idle()
        assert requests[0].body == BODY
        return answer, [request.path for request in requests], requests[0].headers


def test_headers_are_constant_and_carry_the_key() -> None:
    answer, paths, headers = post(Reply(body=accepted))
    assert answer.outcome is Outcome.ACCEPTED
    assert paths == ["/v1/reports"]
    del headers["Host"]
    assert headers == {
        "User-Agent": "dither",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Content-Length": "512",
        "Authorization": "Bearer the-key",
    }


def test_a_redirect_is_not_followed() -> None:
    answer, paths, _ = post(Reply(307, b"", {"Location": "/elsewhere"}), Reply(body=accepted))
    assert (answer.outcome, paths) == (Outcome.KEPT, ["/v1/reports"])


@pytest.mark.parametrize("location", ["\xff\xfe://[", "http://[", "\x00", ""])
def test_a_redirect_to_nowhere_keeps_it(location: str) -> None:
    answer, paths, _ = post(Reply(301, b"", {"Location": location}))
    assert (answer.outcome, len(paths)) == (Outcome.KEPT, 1)


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "\u20ac", None, b"k"])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match="key must be the one that the aggregator printed"):
        HttpTransport("https://example.org", key)


def test_cookies_are_not_kept() -> None:
    with scripted(Reply(body=accepted, headers={"Set-Cookie": "id=1; Path=/"})) as (url, requests):
        transport = HttpTransport(url, "k")
        transport.post(ID, BODY)
        transport.post(ID, BODY)
        transport.idle()
        assert "Cookie" not in requests[1].headers


def test_half_an_answer_and_too_much_of_one_keep_it() -> None:
    assert post(Reply(body=accepted, cut=5))[0].outcome is Outcome.KEPT
    assert post(Reply(400, b" " * 10_000_000 + ours()))[0].outcome is Outcome.KEPT


def test_no_server_keeps_it() -> None:
    with scripted(Reply()) as (url, _):
        pass
    transport = HttpTransport(url, "k")
    answer = transport.post(ID, BODY)
    assert answer.outcome is Outcome.KEPT
    assert "ConnectionError" in answer.detail
    transport.idle()


def test_a_slow_server_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.sending.connection.READ_TIMEOUT_S", 0.05)
    assert post(Reply(body=accepted, delay_s=0.5))[0] == Answer(Outcome.KEPT, "no answer (ReadTimeout)")


def test_the_environments_proxy_is_not_used_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert post(Reply(body=accepted))[0].outcome is Outcome.ACCEPTED


def test_a_netrc_entry_does_not_replace_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n", encoding="utf-8")
    os.chmod(netrc, 0o600)  # noqa: PTH101
    monkeypatch.setenv("NETRC", str(netrc))
    # As for a host beyond this machine.
    monkeypatch.setattr("dither.sending.transport.is_loopback", lambda host: host == "")
    monkeypatch.setattr("dither.sending.transport.check_endpoint", lambda endpoint: endpoint + "/v1/reports")
    assert post(Reply(body=accepted))[2]["Authorization"] == "Bearer the-key"


def test_a_problem_over_http_is_understood() -> None:
    assert post(problem(409, "upload-conflict"))[0] == Answer(Outcome.DROPPED, "409 upload-conflict")


def test_beyond_this_machine_the_environments_proxy_and_certificates_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As requests does: the proxy gets a CONNECT for the host, and the file of certificates is opened."""
    with scripted(Reply()) as (url, requests):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("https_proxy", url)
        transport = HttpTransport("https://telemetry.invalid", "k")
        answer = transport.post(ID, BODY)
        transport.idle()
    assert [request.path for request in requests] == ["telemetry.invalid:443"]
    assert "ProxyError" in answer.detail
    assert answer.connected  # there was a connection, if only to the proxy
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    assert HttpTransport("https://telemetry.invalid", "k").post(ID, BODY).detail == "no answer (OSError)"


def test_a_refused_connection_and_an_unknown_host_are_no_connection() -> None:
    with scripted(Reply()) as (url, _):
        pass
    for endpoint in (url, "https://telemetry.invalid"):
        answer = HttpTransport(endpoint, "k").post(ID, BODY)
        assert (answer.outcome, answer.connected) == (Outcome.KEPT, False)


def test_an_answer_that_comes_drop_by_drop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.sending.connection.ANSWER_TIMEOUT_S", 0.2)
    started = time.monotonic()
    assert post(Reply(body=accepted, drip_s=0.05))[0].outcome is Outcome.KEPT
    assert time.monotonic() - started < 5
