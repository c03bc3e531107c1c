"""Who may send how often: a real server, and clients at several loopback addresses."""

import logging
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from dither.sending.transport import HttpTransport, Outcome
from dither.sending.upload_thread import Sender
from dither_aggregator.health.capacity import Capacity, FreeSpaceFloor
from dither_aggregator.ingest import service as service_module
from dither_aggregator.ingest.service import Service, WholeService
from dither_aggregator.store.document_kinds import ID_BYTES
from dither_aggregator.web import http_messages
from dither_aggregator.web import http_server as server_module
from dither_aggregator.web.http_messages import Peers, peers_of
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.request_limits import Clients, Limits, Rate
from dither_shared.registry import Registry
from dither_shared.wire import PATH, encode_upload, new_upload_id
from tests.support.aggregators import http_server, serve, sqlite_store, web_app
from tests.support.clocks import Clock
from tests.support.devices import make, record
from tests.support.http import Connection, slug, until, was_read
from tests.support.keys import write_key
from tests.support.registries import registry, registry_text

ASKED = registry()
FEW = Rate.parse("0.01:5")
"""So few that none come back while a test runs."""
HELD_BACK_S = 0.05
ADMIN_KEY = f"dither_admin_{'0' * 2 * ID_BYTES}_{'a' * 32}"
PROXY = (ip_network("127.0.0.1"),)


class Taking:
    """A running aggregator with limits."""

    def __init__(self, url: str, service: Service, admission: Admission, opened: ExitStack) -> None:
        self.url, self.service, self.admission = url, service, admission
        self._opened = opened

    def connect(self, source: str = "127.0.0.1") -> Connection:
        made = Connection(int(self.url.rsplit(":", 1)[1]), source)
        self._opened.callback(made.socket.close)
        return made

    def post(self, source: str = "127.0.0.1", key: str = "", passed_on: str = "", times: int = 1) -> list[int]:
        """Send uploads from an address; return the statuses."""
        made = self.connect(source)
        return [self.send(made, key, passed_on)[0] for _ in range(times)]

    def send(self, made: Connection, key: str = "", passed_on: str = "") -> tuple[int, str]:
        """Send one; return the status, and how the problem is called."""
        made.send(request(key or write_key(self.service.store), passed_on))
        status, document = made.answer()
        return status, slug(document) if status >= 400 else ""


def request(key: str, passed_on: str = "") -> bytes:
    body = encode_upload(new_upload_id(random.getrandbits), [("dark", ASKED.metrics["dark"].plan.digest, [1])])
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", "Content-Type: application/json"]
    lines += [f"X-Forwarded-For: {passed_on}"] if passed_on else []
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@contextmanager
def taking(
    directory: Path, limits: Limits, capacity: Capacity | None = None, asked: Registry = ASKED
) -> Iterator[Taking]:
    with sqlite_store(asked, directory) as store, WholeService(store, capacity) as service, ExitStack() as opened:
        admission = Admission(service, limits)
        server = http_server(web_app(service), admission=admission)
        with server.in_background():
            yield Taking(server.url, service, admission, opened)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "REFRESH_EVERY_S", 0.1)
    monkeypatch.setattr(server_module, "HELD_BACK_S", HELD_BACK_S)


def test_others_go_on_while_one_address_floods(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_address=FEW, this_machine=True)) as to:
        flood, good = to.connect("127.0.0.2"), [to.connect(f"127.0.0.{last}") for last in range(3, 13)]
        for sender in good:
            flood.send(b"".join(request(write_key(to.service.store)) for _ in range(8)))
            statuses = [flood.answer()[0] for _ in range(8)]
            assert statuses == ([202] * 5 + [429] * 3 if sender is good[0] else [429] * 8)
            assert to.send(sender)[0] == 202
        assert to.admission.hits == {"address": 75}
        until(lambda: sum(row.folded for row in to.service.store.ledger()) == 15)


def test_a_429_says_when_and_why(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_address=FEW, this_machine=True)) as to:
        assert to.post(times=5) == [202] * 5
        made = to.connect()
        made.send(request(write_key(to.service.store)))
        status, document = made.answer()
        assert (status, slug(document), document["limit"]) == (429, "too-many", "address")
        assert 95 <= document["retry_after_s"] == int(made.fields[b"retry-after"]) <= 100
        assert made.fields[b"content-type"] == b"application/problem+json"


def test_a_wrong_key_costs_its_address_and_not_the_key(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(FEW, FEW, this_machine=True)) as to:
        assert to.post("127.0.0.2", key="wrong", times=7) == [401] * 5 + [429] * 2
        assert to.post("127.0.0.3", times=2) == [202, 202]
        assert to.post("127.0.0.4", times=4) == [202, 202, 202, 429]
        assert to.admission.hits == {"address": 2, "key": 1}


def test_without_a_proxy_this_machine_has_no_limit_unless_told(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_address=FEW)) as to:
        assert to.post(passed_on="203.0.113.9", times=10) == [202] * 10


def test_behind_a_trusted_proxy_each_client_has_a_limit_and_this_machine_too(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_address=FEW, trusted_proxies=PROXY)) as to:
        assert to.post(passed_on="203.0.113.9", times=6) == [202] * 5 + [429]
        assert to.post(passed_on="203.0.113.10") == [202]
        assert to.post(times=6) == [202] * 5 + [429]
        for forged in range(5):  # whoever is no proxy says what it likes
            assert to.post("127.0.0.2", passed_on=f"198.51.100.{forged}") == [202]
        assert to.post("127.0.0.2", passed_on="203.0.113.11") == [429]


def test_forged_addresses_do_not_help_a_client_of_a_proxy(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_address=FEW, trusted_proxies=PROXY)) as to:
        made = to.connect()
        statuses = [to.send(made, passed_on=f"198.51.100.{forged}, 203.0.113.9")[0] for forged in range(7)]
        assert statuses == [202] * 5 + [429] * 2


@pytest.mark.parametrize("planted", ["anybody", "leftmost"])
def test_a_planted_bug_is_seen(planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def client_of(self: Clients, address: str, headers: list[tuple[bytes, bytes]]) -> Peers:
        said = dict(headers).get(b"x-forwarded-for", address.encode()).decode().split(", ")
        return peers_of(said[0] if planted == "leftmost" else said[-1])

    monkeypatch.setattr(Clients, "client_of", client_of)
    shows = {
        "leftmost": test_forged_addresses_do_not_help_a_client_of_a_proxy,
        "anybody": test_behind_a_trusted_proxy_each_client_has_a_limit_and_this_machine_too,
    }
    with pytest.raises(AssertionError):
        shows[planted](tmp_path)


def test_the_bounds_of_connections_go_by_the_real_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "CONNECTIONS_MAX", 4)
    with taking(tmp_path, Limits(by_address=FEW, trusted_proxies=PROXY)) as to:
        held = [to.connect() for _ in range(3)]
        for last, each in enumerate(held):
            assert to.send(each, passed_on=f"203.0.113.{last}")[0] == 202
        assert to.post(passed_on="203.0.113.9") == [202]
        assert held[0].closed()


def test_who_has_many_networks_of_one_site_has_a_limit_and_leaves_its_neighbours_theirs(tmp_path: Path) -> None:
    """A site, of 48 bits, has four times as much as a network of 64; one that asks too often uses up its own alone."""
    with taking(tmp_path, Limits(by_address=FEW, trusted_proxies=PROXY)) as to:
        assert to.post(passed_on="2001:db8:1:1::7", times=30) == [202] * 5 + [429] * 25
        others = [to.post(passed_on=f"2001:db8:1:{network:x}::7")[0] for network in range(2, 40)]
        assert others == [202] * 15 + [429] * 23
        assert to.post(passed_on="2001:db8:2:1::7", times=6) == [202] * 5 + [429]


# Logins.


def log_in(to: Taking, key: str, passed_on: str, cookie: str = "") -> tuple[int, bytes]:
    """Log in, or with a cookie look; return the status, and where it leads or what cookie is set."""
    asked = f"GET /help/reading HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n"
    body = f"key={key}"
    if not cookie:
        asked = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        asked += "Content-Type: application/x-www-form-urlencoded\r\n"
    made = to.connect()
    made.send(f"{asked}X-Forwarded-For: {passed_on}\r\nConnection: close\r\n\r\n{'' if cookie else body}".encode())
    head = b"".join(iter(lambda: made.socket.recv(65_536), b"")).partition(b"\r\n\r\n")[0]
    fields = {name.lower(): value for name, value in (line.split(b": ", 1) for line in head.split(b"\r\n")[1:])}
    return int(head.split()[1]), fields.get(b"set-cookie", fields.get(b"location", b""))


def test_logins_that_fail_are_limited_by_address_by_site_and_in_all(tmp_path: Path) -> None:
    limits = Limits(trusted_proxies=PROXY, failed_logins=FEW, all_failed_logins=Rate.parse("0.02:40"))
    with taking(tmp_path, limits) as to:
        key = to.service.store.create_key("read", "of the tests")[1]
        until(lambda: log_in(to, key, "192.0.2.1")[0] == 303)
        status, cookie = log_in(to, key, "192.0.2.1")
        assert (status, cookie[:8]) == (303, b"dither_s")

        def fail(passed_on: str, times: int) -> list[int]:
            found = [log_in(to, "wrong", passed_on) for _ in range(times)]
            assert all(place.startswith(b"/login?wrong") for status, place in found if status == 303)
            return [status for status, _ in found]

        assert fail("198.51.100.7", 7) == [303] * 5 + [429] * 2
        assert log_in(to, key, "198.51.100.7")[0] == 429  # the right one neither: nobody tells it apart
        assert [log_in(to, key, "192.0.2.1")[0] for _ in range(20)] == [303] * 20  # what does not fail costs nothing
        of_one_site = [fail(f"2001:db8:1:{network:x}::7", 1)[0] for network in range(30)]
        assert of_one_site == [303] * 20 + [429] * 10
        from_everywhere = [fail(f"203.0.113.{last}", 1)[0] for last in range(20)]
        assert from_everywhere == [303] * 15 + [429] * 5
        assert log_in(to, key, "192.0.2.2")[0] == 429
        assert log_in(to, "", "192.0.2.2", cookie.decode().partition(";")[0])[0] == 200  # a session goes on
        made = to.connect()
        made.send(f"GET /v1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        assert made.answer()[0] == 200
        assert to.admission.hits == {"login": 2 + 1 + 10 + 5 + 1}


def test_many_logins_at_a_time_are_as_many_as_one_after_the_other(tmp_path: Path) -> None:
    """All heads are there before the first body is: whether too many failed is asked again when it came."""
    with taking(tmp_path, Limits(trusted_proxies=PROXY, failed_logins=FEW)) as to:
        made = [to.connect() for _ in range(12)]
        head = "POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 9\r\n"
        for each in made:
            each.send(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n".encode())
        until(lambda: all(was_read(each.socket) for each in made))
        for each in made:
            each.send(b"key=wrong")
        statuses = [int(each.socket.recv(65_536).split()[1]) for each in made]
        assert sorted(statuses) == [303] * 5 + [429] * 7


def test_what_is_no_upload_is_not_limited(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(FEW, FEW, this_machine=True)) as to:
        made = to.connect()
        for _ in range(10):
            made.send(b"GET /v1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert made.answer()[0] == 200


def test_registries_come_a_few_at_a_time_and_then_one_a_second(tmp_path: Path) -> None:
    with taking(tmp_path, Limits(long_bodies=FEW)) as to:
        to.service.store.register_key("admin", ADMIN_KEY, "")
        body = b'{"registry": "[t"}'
        made = to.connect()
        answers = []
        for _ in range(7):
            made.send(change("registry/load") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answers.append(made.answer())
        assert [status for status, _ in answers] == [422] * 5 + [429] * 2
        asks = f"POST /v1/metrics/color/estimates HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
        for length, status in ((18, 400), (70_000, 429)):  # a long list of candidates is one more, a short one is none
            made.send(f"{asks}Content-Length: {length}\r\n\r\n".encode() + b'{"candidates": []}'.ljust(length))
            answers.append(made.answer())
            assert answers[-1][0] == status, answers[-1]
        assert (slug(answers[-1][1]), answers[-1][1]["limit"]) == ("too-many", "long")
        assert 0 < answers[-1][1]["retry_after_s"] == int(made.fields[b"retry-after"]) <= 100
        assert to.admission.hits == {"long": 3}


def test_candidates_without_a_key_are_refused_before_their_body_where_reading_needs_one(tmp_path: Path) -> None:
    with taking(tmp_path, Limits()) as to:
        to.service.store.register_key("admin", ADMIN_KEY, "")
        made = to.connect()
        head = "POST /v1/metrics/color/estimates HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n"
        made.send(f"{head.format(1_000_000)}\r\n".encode())  # and no body
        status, document = made.answer()
        assert (status, slug(document)) == (401, "key-missing")
        again, body = to.connect(), b'{"candidates": []}'
        again.send(f"{head.format(len(body))}Authorization: Bearer {ADMIN_KEY}\r\n\r\n".encode() + body)
        assert again.answer()[0] != 401


@pytest.mark.parametrize("path", ["keys/create", "registry/load"])
def test_who_sends_a_refused_change_again_at_once_is_held_back_and_no_device_is(path: str, tmp_path: Path) -> None:
    with taking(tmp_path, Limits(by_key=FEW)) as to:
        made = to.connect()
        began = time.monotonic()
        for _ in range(4):
            made.send(change(path, "wrong") + b"Content-Length: 0\r\n\r\n")
            assert made.answer()[0] == 401
        assert time.monotonic() - began >= 4 * HELD_BACK_S
        began = time.monotonic()
        assert to.post(times=405)[5:] == [429] * 400
        assert time.monotonic() - began < 400 * HELD_BACK_S


def change(path: str, key: str = ADMIN_KEY) -> bytes:
    return f"POST /v1/admin/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n".encode()


@pytest.mark.parametrize(
    ("path", "key", "length", "answer"),
    [
        ("keys/create", "wrong", b"Content-Length: 9", (401, "key-wrong")),
        ("registry/load", "wrong", b"Content-Length: 2000000", (401, "key-wrong")),
        ("registry/load", "", b"Content-Length: 2000000", (429, "too-many")),
        ("quarantine/drop", "", b"Content-Length: 65537", (413, "too-large")),
        ("quarantine/drop", "", b"Transfer-Encoding: chunked", (411, "length-required")),
    ],
)
def test_a_change_that_cannot_be_is_refused_before_its_body(
    path: str, key: str, length: bytes, answer: tuple[int, str], tmp_path: Path
) -> None:
    with taking(tmp_path, Limits()) as to, to.service.loading:
        to.service.store.register_key("admin", ADMIN_KEY, "")
        made = to.connect()
        made.send(change(path, key or ADMIN_KEY) + length + b"\r\n\r\n")
        status, document = made.answer()
        assert (status, slug(document)) == answer


@pytest.mark.parametrize(
    ("capacity", "status", "problem"),
    [
        (Capacity(backlog_max=3, floor=FreeSpaceFloor.parse("off")), 503, "backlog-full"),
        (Capacity(floor=FreeSpaceFloor.parse("100000TB,99.9999%")), 507, "disk-full"),
    ],
    ids=["backlog", "disk"],
)
def test_a_store_without_room_is_told_of_before_the_body(
    capacity: Capacity, status: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_store(ASKED, tmp_path) as store, Service(store, capacity=capacity) as service, ExitStack() as opened:
        admission = Admission(service, Limits())
        server = http_server(web_app(service), admission=admission)
        with server.in_background():
            to = Taking(server.url, service, admission, opened)
            until(lambda: to.post() == [status])
            made = to.connect()
            made.send(request(write_key(store)).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            assert (made.answer()[0], made.fields[b"retry-after"]) == (status, b"600")
            assert to.send(to.connect(), key="wrong") == (401, "key-wrong")
            assert to.admission.hits[problem] >= 2
            assert list(service.trouble()) == [problem]
            backlog = store.backlog()
    assert (backlog >= 3) == (problem == "backlog-full")  # what came before the watcher looked


def test_what_was_refused_is_said_in_numbers_and_without_addresses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), taking(tmp_path, Limits(by_address=FEW, this_machine=True)) as to:
        assert to.post("127.0.0.9", times=8)[5:] == [429] * 3
        to.admission.look()
        to.admission.look()
        key = write_key(to.service.store)
    said = [record.getMessage() for record in caplog.records if "limits" in record.getMessage()]
    assert len(said) == 1
    assert "(address)" in said[0]
    assert "127.0.0.9" not in caplog.text
    assert key not in caplog.text


@pytest.mark.parametrize("limit", ["address", "key", "backlog-full", "disk-full"])
def test_the_sdk_keeps_what_is_refused_and_sends_the_same_bytes_again(limit: str, tmp_path: Path) -> None:
    """DESIGN, "The wire": Retry-After is rounded up, and jitter comes on top."""
    one = Rate.parse("0.01:1")
    capacity = {
        "backlog-full": Capacity(backlog_max=1, floor=FreeSpaceFloor.parse("off")),
        "disk-full": Capacity(floor=FreeSpaceFloor.parse("100000TB,99.9999%")),
    }.get(limit, Capacity(floor=FreeSpaceFloor.parse("off")))
    limits = Limits(one if limit == "key" else None, one if limit == "address" else None, this_machine=True)
    planned: set[float] = set()
    with sqlite_store(ASKED, tmp_path) as store, Service(store, capacity=capacity) as service, ExitStack() as opened:
        admission = Admission(service, limits)
        server = http_server(web_app(service), admission=admission)
        with server.in_background():
            to = Taking(server.url, service, admission, opened)
            if limit != "disk-full":
                assert to.post() == [202]
            until(lambda: to.post()[0] >= 429)
            for seed in range(3):
                clock = Clock()
                device, asked = make(clock, seed=seed)
                record(device, asked)
                transport = HttpTransport(server.url, write_key(store))
                sender = Sender(device, transport, clock)
                before = device.next_upload()
                assert sender.attempt() is Outcome.KEPT
                transport.idle()
                after = device.next_upload()
                assert before is not None
                assert after is not None
                assert (before.id, before.body) == (after.id, after.body)
                when = device.look().when
                assert when is not None
                assert 600 <= when - clock.now <= 720
                planned.add(when - clock.now)
    assert len(planned) == 3


def test_serve_keeps_to_its_flags(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    flags = ("--port", 0, "--limit-address", "0.01:5", "--limit-key", "0.01:7")
    with serve(path, tmp_path / "data", *flags) as served, ExitStack() as opened:
        statuses = []
        for source, times in (("127.0.0.2", 6), ("127.0.0.3", 3)):
            made = Connection(int(served.url.rsplit(":", 1)[1]), source)
            opened.callback(made.socket.close)
            for _ in range(times):
                made.send(request(served.key))
                status, document = made.answer()
                statuses.append(document["limit"] if status == 429 else status)
        assert statuses == [202] * 5 + ["address"] + [202, 202, "key"]
        assert "refused by limits: 2" not in served.stop()  # the first is said at once, the second a minute later
