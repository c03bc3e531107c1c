"""An upload over HTTP: what its request carries, and which answers keep it."""

import os
import time
from pathlib import Path

import pytest

from dither.sending.transport import HAS_PATH, Answer, DryRun, HttpTransport, Outcome, check_key
from dither.testing.offline_telemetry import NoNetwork
from dither_shared.errors import ConfigurationError
from tests.support.posting import BODY, ID, nothing, ours
from tests.support.servers import Reply, accepted, problem, scripted


def post(*replies: Reply) -> tuple[Answer, list[str], dict[str, str]]:
    with scripted(*replies) as (url, requests):
        transport = HttpTransport(url, "the-key")
        answer = transport.post(ID, BODY, nothing)
        transport.idle()
        assert requests[0].body == BODY
        return answer, [request.path for request in requests], requests[0].headers


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (problem(404, "not-found"), "404 not-found"),
        (problem(405, "method-not-allowed"), "405 method-not-allowed"),
        (Reply(200, b"<html>"), "200 without an answer of ours"),
    ],
)
@pytest.mark.parametrize("path", ["", "/", "/v1/reports", "/telemetry/"])
def test_an_answer_from_elsewhere_says_that_the_endpoint_has_a_path(reply: Reply, detail: str, path: str) -> None:
    with scripted(reply) as (url, _):
        answer = HttpTransport(url + path, "the-key").post(ID, BODY, nothing)
    assert answer.detail == detail + (HAS_PATH if path.strip("/") else "")


def test_behind_a_path_of_its_own_an_answer_of_ours_says_nothing_of_it() -> None:
    with scripted(problem(401, "key-wrong")) as (url, _):
        assert HttpTransport(f"{url}/telemetry", "the-key").post(ID, BODY, nothing).detail == "401 key-wrong"


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


def test_a_receipt_comes_with_the_servers_date() -> None:
    date = post(Reply(body=accepted))[0].date
    assert date
    assert abs(date - time.time()) < 60
    assert post(Reply(200, b"<html>Welcome</html>"))[0].date is None


@pytest.mark.parametrize("location", ["\xff\xfe://[", "http://[", "\x00", ""])
def test_a_redirect_to_nowhere_keeps_it(location: str) -> None:
    answer, paths, _ = post(Reply(301, b"", {"Location": location}))
    assert (answer.outcome, len(paths)) == (Outcome.KEPT, 1)


def test_an_empty_key_is_refused_with_where_to_look() -> None:
    with pytest.raises(ConfigurationError, match="got an empty one: is there a key where it is read from"):
        check_key(" \n")


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


def test_a_slow_server_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.sending.connection.READ_TIMEOUT_S", 0.05)
    assert post(Reply(body=accepted, delay_s=0.5))[0] == Answer(Outcome.KEPT, "no answer (ReadTimeout)")


def test_a_netrc_entry_does_not_replace_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n", encoding="utf-8")
    os.chmod(netrc, 0o600)  # noqa: PTH101
    monkeypatch.setenv("NETRC", str(netrc))
    # As for a host beyond this machine.
    monkeypatch.setattr("dither.sending.route.is_loopback", lambda host: host == "")
    monkeypatch.setattr("dither.sending.route.check_endpoint", lambda endpoint: endpoint + "/v1/reports")
    assert post(Reply(body=accepted))[2]["Authorization"] == "Bearer the-key"


def test_a_dry_run_stands_and_the_refused_network_does_not() -> None:
    stood: list[int] = []
    assert DryRun().post(ID, BODY, lambda: stood.append(1)).outcome is Outcome.ACCEPTED
    assert stood == [1]
    answer = NoNetwork().post(ID, BODY, lambda: stood.append(2))
    assert (answer.outcome, answer.connected, stood) == (Outcome.STOPPED, False, [1])
    with pytest.raises(ZeroDivisionError):
        DryRun().post(ID, BODY, lambda: stood.append(1 // 0))
