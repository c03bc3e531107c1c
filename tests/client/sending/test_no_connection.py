"""An attempt for which there was no connection for certain: nothing of the request can have left."""

from pathlib import Path

import pytest

from dither.sending.transport import HttpTransport, Outcome
from tests.support.certificates import Certificate, certificate
from tests.support.peers import Aggregator, Proxy, Speaker, running
from tests.support.posting import BODY, ID, nothing
from tests.support.servers import Reply, accepted, scripted


def not_connected(url: str) -> str:
    """Post, assert that no connection stood, and return the detail."""
    stood: list[int] = []
    transport = HttpTransport(url, "k")
    answer = transport.post(ID, BODY, lambda: stood.append(1))
    transport.idle()
    assert (answer.outcome, answer.connected, stood) == (Outcome.KEPT, False, [])
    return answer.detail


def test_a_refused_connection_and_an_unknown_host_are_no_connection() -> None:
    with scripted(Reply()) as (url, _):
        pass
    for endpoint in (url, "https://telemetry.invalid"):
        answer = HttpTransport(endpoint, "k").post(ID, BODY, nothing)
        assert (answer.outcome, answer.connected) == (Outcome.KEPT, False)


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
