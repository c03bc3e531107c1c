import errno
import json
import os
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
import requests
import urllib3

from dither.sending.connection import Connection
from dither.sending.route import Route, check_endpoint
from dither.sending.transport import HEADERS, Answer, DryRun, HttpTransport, Outcome, read_answer
from dither.testing.telemetry import NoNetwork
from dither_shared.errors import ConfigurationError
from dither_shared.wire import GROUPS_MAX, PROBLEM_PREFIX
from dither_shared.wire.reading import Refusal, all_refused
from dither_shared.wire.writing import encode_upload
from tests.support.certificates import Certificate, certificate
from tests.support.peers import HANG_S, Aggregator, Proxy, Speaker, running
from tests.support.servers import Reply, accepted, problem, scripted

ID = "AAECAwQFBgcICQoLDA0ODw"
BODY = encode_upload(ID, [("dark", "0" * 16, [1])])
RECEIPT = accepted(BODY)


def read(status: int, content: bytes, retry_after: str = "") -> Answer:
    return read_answer(status, {"Retry-After": retry_after} if retry_after else {}, content, ID)


def ours(slug: str = "x", **fields: object) -> bytes:
    return json.dumps({"type": PROBLEM_PREFIX + slug, **fields}).encode()


def nothing() -> None:
    """Be there for a transport to call."""


def test_a_receipt_for_this_upload_ends_it() -> None:
    assert read(202, RECEIPT) == Answer(Outcome.ACCEPTED, "accepted", rejected=0)
    rejected = json.dumps({"upload": ID, "rejected": [{"count": 2}, {"count": 1}, {"count": "9"}, 4]}).encode()
    assert read(202, rejected).rejected == 3


def test_only_reasons_of_the_wire_are_repeated() -> None:
    """A server's other words are nobody's to log."""
    rejected = [{"reason": "your answer was red"}, {"reason": ["x"]}, {"reason": "unknown-plan", "count": 1}, 3]
    assert read(422, ours("refused", rejected=rejected)).detail == "422 refused: unknown-plan"
    assert read(422, ours("refused", rejected=rejected[:2])).detail == "422 refused"
    some = json.dumps({"upload": ID, "rejected": rejected}).encode()
    assert read(202, some) == Answer(Outcome.ACCEPTED, "accepted, but not all: unknown-plan", rejected=1)


@pytest.mark.parametrize("status", [400, 409, 410, 411, 414, 415, 422, 431])
def test_a_definite_refusal_in_our_words_ends_it(status: int) -> None:
    assert read(status, ours()).outcome is Outcome.DROPPED


RETIRED: dict[str, object] = {"group": 3, "reason": "retired", "count": 1}
ODD: list[object] = ["retired", True, -1, 50, 2**80, 3.0, "3", None, [3], {}]
NO_LISTS: list[object] = [None, 3, "retired", RETIRED, {"3": RETIRED}, [], True]


@pytest.mark.parametrize(
    ("rejected", "retired"),
    [
        ([RETIRED], (3,)),
        ([{**RETIRED, "group": group} for group in (9, 0, 49, 9)], (0, 9, 49)),
        ([{**RETIRED, "reason": reason} for reason in ("expired", "Retired", ["retired"], *ODD[1:])], ()),
        ([{**RETIRED, "group": group} for group in ODD], ()),
        ([{"reason": "retired"}, 3, "retired", None, [RETIRED], {}, RETIRED], (3,)),
        ([{**RETIRED, "group": group} for group in range(-999, 999)], tuple(range(GROUPS_MAX))),
        *((no_list, ()) for no_list in NO_LISTS),
    ],
)
def test_a_refusal_names_the_groups_whose_plans_are_retired(rejected: object, retired: tuple[int, ...]) -> None:
    assert read(202, json.dumps({"upload": ID, "rejected": rejected}).encode()).retired == retired
    assert read(422, ours("refused", rejected=rejected)).retired == retired
    # Without a list that can be read it is every group: that is what this type says.
    assert read(410, ours("retired", rejected=rejected)).retired == (retired or tuple(range(GROUPS_MAX)))
    assert read(410, ours("expired", rejected=rejected)).retired == retired
    for status in (403, 413, 503):
        assert read(status, ours("retired", rejected=rejected)).retired == ()
    assert read(410, json.dumps({"type": "about:blank", "rejected": rejected}).encode()).retired == ()


def test_what_the_aggregator_says_of_retired_plans_is_read() -> None:
    both = [Refusal(0, "retired", 1), Refusal(2, "expired", 1), Refusal(4, "retired", 2)]
    for refused, detail, retired in [
        (both, "422 refused: expired, retired", (0, 4)),
        (both[::2], "410 retired", (0, 4)),
    ]:
        refusal = all_refused(refused)
        answer = read(refusal.status, json.dumps(refusal.to_document()).encode())
        assert (answer.outcome, answer.detail, answer.retired) == (Outcome.DROPPED, detail, retired)


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
        ("https://exa mple.org", "must be like"),
        ("https://-example..org", "must be like"),
        ("https://exam\nple.org", "must be like"),
        ("https://[::1]x", "must be like"),
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
        answer = transport.post(ID, BODY, nothing)
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
        transport.post(ID, BODY, nothing)
        transport.post(ID, BODY, nothing)
        transport.idle()
        assert "Cookie" not in requests[1].headers


def test_half_an_answer_and_too_much_of_one_keep_it() -> None:
    assert post(Reply(body=accepted, cut=5))[0].outcome is Outcome.KEPT
    assert post(Reply(400, b" " * 10_000_000 + ours()))[0].outcome is Outcome.KEPT


def test_no_server_keeps_it() -> None:
    with scripted(Reply()) as (url, _):
        pass
    transport = HttpTransport(url, "k")
    answer = transport.post(ID, BODY, nothing)
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
    monkeypatch.setattr("dither.sending.route.is_loopback", lambda host: host == "")
    monkeypatch.setattr("dither.sending.route.check_endpoint", lambda endpoint: endpoint + "/v1/reports")
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
        answer = transport.post(ID, BODY, nothing)
        transport.idle()
    assert [request.path for request in requests] == ["telemetry.invalid:443"]
    assert "ProxyError" in answer.detail
    assert not answer.connected  # there was one to the proxy only, and nothing of the request was sent
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    assert HttpTransport("https://telemetry.invalid", "k").post(ID, BODY, nothing).detail == "no answer (OSError)"


def test_a_refused_connection_and_an_unknown_host_are_no_connection() -> None:
    with scripted(Reply()) as (url, _):
        pass
    for endpoint in (url, "https://telemetry.invalid"):
        answer = HttpTransport(endpoint, "k").post(ID, BODY, nothing)
        assert (answer.outcome, answer.connected) == (Outcome.KEPT, False)


def test_an_answer_that_comes_drop_by_drop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.sending.connection.ANSWER_TIMEOUT_S", 0.2)
    started = time.monotonic()
    assert post(Reply(body=accepted, drip_s=0.05))[0].outcome is Outcome.KEPT
    assert time.monotonic() - started < 5


# The moment when a connection stands.


@dataclass
class Road:
    """A transport, and the servers on its way."""

    transport: HttpTransport
    aggregator: Aggregator
    events: list[str]
    opening: list[str]
    """The events of a new connection before it stands."""
    threads: list[int] = field(default_factory=list)

    def stands(self) -> None:
        """Note that the connection stands, and that nothing has arrived on it."""
        self.threads.append(threading.get_ident())
        self.events.append("stands")
        self.aggregator.expect_nothing()

    def post(self, then: Callable[[], None] = nothing) -> Answer:
        """Post an upload; after the connection stands do something else."""

        def stands() -> None:
            self.stands()
            then()

        return self.transport.post(ID, BODY, stands)


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "telemetry.invalid")


@pytest.fixture
def _beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment count, as for a host beyond this machine, and only what a test puts there."""
    monkeypatch.setattr("dither.sending.route.is_loopback", lambda host: False)
    monkeypatch.setattr("dither.sending.route.check_endpoint", lambda endpoint: endpoint + "/v1/reports")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def road(way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch, keep: int = 99) -> Iterator[Road]:
    """Yield a transport whose aggregator is reached over plain HTTP, over TLS, or over TLS in a proxy's tunnel."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted.authority))
    events: list[str] = []
    with ExitStack() as stack:
        context = None if way == "plain" else trusted.server_context()
        aggregator = stack.enter_context(running(Aggregator(events, accepted, context, keep)))
        url = f"{'http' if way == 'plain' else 'https'}://127.0.0.1:{aggregator.port}"
        if way.endswith("tunnel"):
            of_proxy = None if way == "tunnel" else context
            proxy = stack.enter_context(running(Proxy(events, aggregator.port, context=of_proxy)))
            monkeypatch.setenv("HTTPS_PROXY", f"{'https' if of_proxy else 'http'}://127.0.0.1:{proxy.port}")
            url = f"https://telemetry.invalid:{aggregator.port}"
        transport = HttpTransport(url, "k")
        stack.callback(aggregator.leave)
        stack.callback(transport.idle)
        yield Road(transport, aggregator, events, ["CONNECT"] if way.endswith("tunnel") else [])


WAYS = pytest.mark.parametrize("way", ["plain", "tls", "tunnel", "tls-tunnel"])


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_the_connection_stands_before_anything_of_a_request_is_sent(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch) as sending:
        assert sending.post() == Answer(Outcome.ACCEPTED, "accepted")
    assert sending.events == [*sending.opening, "stands", "request"]
    assert sending.threads == [threading.get_ident()]
    (requests_seen,) = sending.aggregator.connections
    assert [request.endswith(BODY) for request in requests_seen] == [True]


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_is_used_again_stands_again(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch) as sending:
        assert [sending.post().outcome for _ in range(3)] == [Outcome.ACCEPTED] * 3
    assert sending.events == [*sending.opening, *["stands", "request"] * 3]
    assert [len(seen) for seen in sending.aggregator.connections] == [3]


RAISED = [
    RuntimeError("as it is"),
    OSError("as it is"),
    OSError(errno.EPIPE, "as it is"),
    OSError(errno.ECONNRESET, "as it is"),
    TimeoutError("as it is"),
    ssl.SSLError("as it is"),
    sqlite3.OperationalError("database is locked"),
    RemoteDisconnected("as it is"),
    requests.ConnectionError("as it is"),
    urllib3.exceptions.ProtocolError("as it is"),
    KeyboardInterrupt(),
]


@WAYS
@pytest.mark.parametrize("example", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.usefixtures("_beyond")
def test_what_stands_raises_leaves_as_it_is_and_nothing_is_sent(
    example: BaseException, way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = type(example)(*example.args)
    cause, context = ValueError("a cause"), KeyError("a context")

    def refuse() -> None:
        try:
            raise context
        except KeyError:
            raise error from cause

    with road(way, trusted, monkeypatch) as sending:
        for _ in range(2):  # on a new connection, and on one that has been used
            with pytest.raises(type(error)) as caught:
                sending.post(refuse)
            assert caught.value is error
            assert error.__cause__ is cause
            assert error.__context__ is context
            assert sending.aggregator.left.acquire(timeout=HANG_S)  # the connection was closed
            assert sending.post().outcome is Outcome.ACCEPTED
    attempt = ["stands", *sending.opening, "stands", "request"]
    assert sending.events == [*sending.opening, *attempt, *attempt]
    assert [len(seen) for seen in sending.aggregator.connections] == [0, 1, 1]


def test_the_connection_alone_passes_on_what_stands_raises() -> None:
    error = BrokenPipeError(errno.EPIPE, "as it is")

    def refuse() -> None:
        aggregator.expect_nothing()
        raise error

    with running(Aggregator([], accepted)) as aggregator:
        connection = Connection(Route(f"http://127.0.0.1:{aggregator.port}/v1/reports"), HEADERS, "k")
        with pytest.raises(BrokenPipeError) as caught:
            connection.post(BODY, refuse)
        assert caught.value is error
        status, _, content = connection.post(BODY, aggregator.expect_nothing)
        assert (status, content) == (202, RECEIPT)
        connection.close()
    assert [len(seen) for seen in aggregator.connections] == [0, 1]


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_the_server_has_closed_meanwhile_is_opened_again(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch, keep=1) as sending:
        for _ in range(2):
            assert sending.post().outcome is Outcome.ACCEPTED
            assert sending.aggregator.left.acquire(timeout=HANG_S)
            if way.endswith("tunnel"):  # the end comes over the proxy, later
                sending.transport.idle()
    assert sending.events == [*sending.opening, "stands", "request"] * 2
    assert [len(seen) for seen in sending.aggregator.connections] == [1, 1]


@WAYS
@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_breaks_after_it_stood_is_not_tried_again(
    way: str, used: int, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood: list[int] = []

    def stands() -> None:
        stood.append(1)
        sending.aggregator.hang_up()

    with road(way, trusted, monkeypatch) as sending:
        for _ in range(used):
            sending.post()
        answer = sending.transport.post(ID, BODY, stands)
    assert (answer.outcome, answer.connected) == (Outcome.KEPT, True)
    assert stood == [1]
    assert [len(seen) for seen in sending.aggregator.connections] == [used]


# There was no connection for certain.


def not_connected(url: str) -> str:
    """Post, assert that no connection stood, and return the detail."""
    stood: list[int] = []
    transport = HttpTransport(url, "k")
    answer = transport.post(ID, BODY, lambda: stood.append(1))
    transport.idle()
    assert (answer.outcome, answer.connected, stood) == (Outcome.KEPT, False, [])
    return answer.detail


@pytest.mark.usefixtures("_beyond")
@pytest.mark.parametrize("bundle", [False, True])
def test_a_certificate_that_is_not_trusted_is_no_connection(
    bundle: bool, trusted: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bundle:
        other = certificate(tmp_path, "127.0.0.1")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.authority))
    with running(Aggregator([], accepted, trusted.server_context())) as aggregator:
        assert not_connected(f"https://127.0.0.1:{aggregator.port}") == "no answer (SSLError)"
    assert not any(aggregator.connections)


@pytest.mark.usefixtures("_beyond")
def test_a_certificate_for_another_host_is_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = certificate(tmp_path, "telemetry.invalid")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(elsewhere.authority))
    with running(Aggregator([], accepted, elsewhere.server_context())) as aggregator:
        assert not_connected(f"https://127.0.0.1:{aggregator.port}") == "no answer (SSLError)"
    assert not any(aggregator.connections)


@pytest.mark.parametrize("words", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
@pytest.mark.usefixtures("_beyond")
def test_a_server_or_proxy_that_does_not_know_what_is_wanted_is_no_connection(
    words: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs up, one that says nothing for ever, one that answers with something else."""
    if words == b"":
        monkeypatch.setattr("dither.sending.connection.CONNECT_TIMEOUT_S", 0.05)
    with running(Speaker(words)) as server:
        not_connected(f"https://127.0.0.1:{server.port}")
        for scheme in ("http", "https"):
            monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://127.0.0.1:{server.port}")
            not_connected("https://telemetry.invalid")


@pytest.mark.parametrize("reply", ["403 Forbidden", "407 Proxy Authentication Required", "503 x", "x", "", "200 OK"])
@pytest.mark.usefixtures("_beyond")
def test_a_proxy_without_a_tunnel_is_no_connection(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a tunnel to nowhere."""
    with scripted(Reply()) as (url, _):
        closed = int(url.rpartition(":")[2])
    events: list[str] = []
    with running(Proxy(events, closed, reply)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        not_connected("https://telemetry.invalid")
    assert events == ["CONNECT"]
    assert not_connected("https://telemetry.invalid") == "no answer (ProxyError)"  # now there is no proxy at all
    assert events == ["CONNECT"]


def test_a_connection_that_is_not_made_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*args: object, **settings: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("urllib3.util.connection.create_connection", late)
    assert not_connected("http://127.0.0.1:9") == "no answer (ConnectTimeout)"


# The other transports.


def test_a_dry_run_stands_and_the_refused_network_does_not() -> None:
    stood: list[int] = []
    assert DryRun().post(ID, BODY, lambda: stood.append(1)).outcome is Outcome.ACCEPTED
    assert stood == [1]
    answer = NoNetwork().post(ID, BODY, lambda: stood.append(2))
    assert (answer.outcome, answer.connected, stood) == (Outcome.STOPPED, False, [1])
    with pytest.raises(ZeroDivisionError):
        DryRun().post(ID, BODY, lambda: stood.append(1 // 0))
