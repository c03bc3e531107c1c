"""The whole SDK meets every row of the design's table of answers, and servers that are none of ours.

Answers without an end are in tests/client/sending/test_hostile_aggregator.py.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dither.sending.transport import HttpTransport, Outcome
from dither.sending.upload_thread import Sender
from dither.telemetry import Telemetry
from dither_shared.wire import PROBLEM_PREFIX
from tests.faults.apps import ASKED, start
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.servers import Reply, Request, accepted, problem, scripted

EPSILON = 0.5
OURS = Reply(body=accepted)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a slow server for tenths of a second and not for tens, and between the attempts of a flush for less."""
    monkeypatch.setattr("dither.sending.upload_thread.PAUSE_S", 0.02)
    monkeypatch.setattr("dither.sending.connection.CONNECT_TIMEOUT_S", 0.4)
    monkeypatch.setattr("dither.sending.connection.READ_TIMEOUT_S", 0.4)
    monkeypatch.setattr("dither.sending.connection.EXCHANGE_TIMEOUT_S", 0.4)


@contextmanager
def an_app(home: Path, url: str, clock: Clock | None = None) -> Iterator[Telemetry]:
    """Yield telemetry with a report of each of two metrics."""
    telemetry = start(ASKED, home / "d", HttpTransport(url, "k"), clock or Clock())
    telemetry.color.record("red")
    telemetry.dark.record(True)
    try:
        yield telemetry
    finally:
        telemetry.close()


@contextmanager
def hung() -> Iterator[str]:
    """Yield the address of a server that takes connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@contextmanager
def replying(reply: Reply) -> Iterator[str]:
    """Yield the address of a server that always replies so."""
    with scripted(reply) as (url, _):
        yield url


def metrics(request: Request) -> list[str]:
    return [group["metric"] for group in json.loads(request.body)["groups"]]


def spent(telemetry: Telemetry) -> dict[str, float]:
    return dict(telemetry.status().spent)


BOTH = {"color": EPSILON, "dark": EPSILON}

# Answers that end an upload.


def test_a_refusal_in_our_words_drops_and_counts(home: Path) -> None:
    with scripted(problem(409, "x"), OURS) as (url, requests), an_app(home, url) as telemetry:
        result = telemetry.flush(5)
        assert (result.sent, result.waiting, result.detail) == (0, 0, "409 x")
        assert telemetry.status().counts == {"dropped": 2}
        assert telemetry.flush(5).detail.startswith("nothing to send: ")
        assert len(requests) == 1
        assert spent(telemetry) == BOTH


def test_a_receipt_ends_it_also_if_it_was_counted_before(home: Path) -> None:
    def duplicate(body: bytes) -> bytes:
        return json.dumps({**json.loads(accepted(body)), "duplicate": True}).encode()

    with scripted(Reply(body=duplicate)) as (url, requests), an_app(home, url) as telemetry:
        assert telemetry.flush(5).waiting == 0
        assert telemetry.status().counts == {"accepted": 2}
        assert len(requests) == 1


@pytest.mark.parametrize("count", [1, 10**9, -1])
def test_groups_that_a_receipt_refuses_are_not_counted_as_sent(home: Path, count: int) -> None:
    def partly(body: bytes) -> bytes:
        refused = [{"group": 0, "reason": "expired", "count": count}]
        return json.dumps({**json.loads(accepted(body)), "rejected": refused}).encode()

    with scripted(Reply(body=partly)) as (url, _), an_app(home, url) as telemetry:
        result = telemetry.flush(5)
        assert result.waiting == 0
        assert 0 <= result.sent <= 2
        assert count != 1 or result.sent == 1


# A definite 413.


def test_a_group_that_is_too_large_by_itself_is_dropped(home: Path) -> None:
    with scripted(problem(413, "too-large")) as (url, requests), an_app(home, url) as telemetry:
        assert telemetry.flush(5).waiting == 0
        assert [len(metrics(request)) for request in requests] == [2, 1, 1]
        assert telemetry.status().counts == {"dropped": 2}


def test_what_was_never_connected_before_is_halved(home: Path) -> None:
    with scripted(OURS) as (nobody, _):
        pass
    with an_app(home, nobody) as telemetry:
        assert telemetry.flush(0.3).waiting == 2
    with scripted(problem(413, "too-large"), OURS) as (url, requests):
        telemetry = start(ASKED, home / "d", HttpTransport(url, "k"), Clock(Clock().now + 200))
        assert telemetry.flush(5).sent == 2
        assert len(requests) == 3
        telemetry.close()


# A wrong key.


def test_a_wrong_key_stops_until_the_next_start_which_sends_the_same_bytes(home: Path) -> None:
    with scripted(problem(401, "key-wrong"), OURS) as (url, requests):
        with an_app(home, url) as telemetry:
            assert telemetry.flush(5).waiting == 2
            assert telemetry.flush(5).detail == "401 key-wrong"
            assert len(requests) == 1
        telemetry = start(ASKED, home / "d", HttpTransport(url, "another"), Clock())
        assert telemetry.flush(5).sent == 2
        assert requests[1].body == requests[0].body
        telemetry.close()


# Answers that keep it.

PORTAL = b"<html><body>Welcome to the hotel's network. Please accept the terms.</body></html>"
IN_TIME = "nothing in time"
KEPT: dict[str, Reply] = {
    "503 of ours": problem(503, "x"),
    "200 of nobody": Reply(200, PORTAL),
    "401 of nobody": Reply(401, PORTAL),
    "a receipt of another upload": Reply(202, lambda body: accepted(body).replace(b'"upload": "', b'"upload": "x')),
    "a receipt that was promised longer": Reply(202, accepted, cut=3),
    "a redirect": Reply(302, PORTAL, {"Location": "http://127.0.0.1:9/login"}),
    "10 MB of a page": Reply(200, PORTAL * 120_000),
    "10 MB before a refusal": Reply(400, b" " * 10_000_000 + json.dumps({"type": PROBLEM_PREFIX + "x"}).encode()),
    "10 MB of a redirect": Reply(302, PORTAL * 120_000, {"Location": "/login"}),
    IN_TIME: Reply(202, accepted, delay_s=0.8),
    "compressed nonsense": Reply(202, b"\x1f\x8bnonsense", {"Content-Encoding": "gzip"}),
}
"""One of each sort: `client/sending` has every status, and what else ends nothing."""


@pytest.mark.parametrize("name", KEPT)
def test_anything_else_keeps_it_and_the_same_bytes_are_sent_again(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != IN_TIME:  # a busy machine's answer is late, too, and would be asked for again
        monkeypatch.setattr("dither.sending.connection.READ_TIMEOUT_S", 10.0)
        monkeypatch.setattr("dither.sending.connection.EXCHANGE_TIMEOUT_S", 10.0)
    with scripted(KEPT[name], OURS) as (url, requests), an_app(home, url) as telemetry:
        assert telemetry.flush(20).sent == 2
        assert len(requests) == 2
        assert requests[0].body == requests[1].body
        assert {request.path for request in requests} == {"/v1/reports"}
        assert telemetry.status().counts == {"accepted": 2}
        assert spent(telemetry) == BOTH


@pytest.mark.parametrize("name", ["10 MB of a redirect", IN_TIME])
def test_a_flush_is_over_when_its_time_is_whatever_comes_back(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds are for a busy machine: who waited for the server would take as long as it may."""
    for timeout in ("CONNECT_TIMEOUT_S", "READ_TIMEOUT_S", "EXCHANGE_TIMEOUT_S"):
        monkeypatch.setattr(f"dither.sending.connection.{timeout}", 20.0)
    with hung() if name == IN_TIME else replying(KEPT[name]) as url, an_app(home, url) as telemetry:
        for timeout_s in (0.0, 0.3):
            began = time.monotonic()
            result = telemetry.flush(timeout_s)
            assert time.monotonic() - began < timeout_s + 2
            assert (result.sent, result.waiting) == (0, 2)


@pytest.mark.parametrize(("header", "least_s", "most_s"), [("61", 600, 720), ("", 0, 120)])
def test_the_next_attempt_waits_as_long_as_the_server_asks_rounded_up(
    home: Path, header: str, least_s: int, most_s: int
) -> None:
    reply = problem(503, "unavailable", **({"Retry-After": header} if header else {}))
    clock = Clock()
    with scripted(reply) as (url, requests), an_app(home, url, clock) as telemetry:
        device = telemetry._session.device
        assert device
        assert Sender(device, HttpTransport(url, "k"), clock).attempt() is Outcome.KEPT
        assert len(requests) == 1
        planned = device.look().when
        assert planned
        assert least_s <= planned - clock.now <= most_s


# The host's end.

EXIT = """
import sys
from pathlib import Path
from dither.sending.transport import HttpTransport
from tests.faults.apps import ASKED, start
from tests.support.clocks import Clock
telemetry = start(ASKED, Path(sys.argv[1]), HttpTransport(sys.argv[2], "k"), Clock())
telemetry.color.record("red")
telemetry.dark.record(True)
{then}
import time
print(time.time())
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["", "telemetry.flush(0.5); telemetry.close()"])
def test_a_program_ends_at_once_though_the_server_hangs(home: Path, then: str) -> None:
    with hung() as url:
        done = subprocess.run(
            [sys.executable, "-c", EXIT.format(then=then), home / "d", url],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=30,
        )  # fmt: skip
        ended = time.time()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 5  # a busy machine's; who waited for the server would take its 30 s
    with scripted(OURS) as (url, requests):
        telemetry = start(ASKED, home / "d", HttpTransport(url, "k"), Clock(Clock().now + 200))
        assert telemetry.flush(5).sent == 2
        assert len(requests) == 1
        telemetry.close()
