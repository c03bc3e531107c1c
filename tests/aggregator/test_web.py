"""The HTTP addresses, over a real server on loopback."""

import gzip
import hashlib
import json
import random
import re
import socket
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from dither_aggregator.ingest.service import Service
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, StoreUnavailable
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.web.endpoints import answer_health
from dither_aggregator.web.problems import CONTENT_TYPE
from dither_shared.wire import PATH, encode_upload, new_upload_id
from dither_shared.wire.reading import PROBLEMS
from tests.support.aggregators import aggregator
from tests.support.clocks import Clock
from tests.support.keys import write_key
from tests.support.registries import registry
from tests.support.waiting import wait_until

EXPIRES = date(2026, 11, 20) + timedelta(days=100)
ASKED = registry(expires=EXPIRES)
DARK = ASKED.metrics["dark"].plan


class Client:
    """Requests to one aggregator."""

    def __init__(self, url: str, service: Service, clock: Clock) -> None:
        self.url, self.service, self.clock = url, service, clock
        self.session = requests.Session()
        self.session.trust_env = False

    def post(self, body: bytes, **headers: str | None) -> requests.Response:
        given = {"Authorization": f"Bearer {write_key(self.service.store)}", "Content-Type": "application/json"}
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.session.post(self.url + PATH, data=body, headers={**given, **changed}, timeout=30)

    def get(self, path: str) -> requests.Response:
        return self.session.get(self.url + path, timeout=30)

    def health(self, path: str = "/readyz") -> tuple[int, dict[str, Any]]:
        answer = answer_health(self.service, {"method": "GET", "path": path})
        return answer.status, json.loads(answer.content)

    def folded(self) -> None:
        wait_until(lambda: not self.service.store.backlog())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    clock = Clock()
    with aggregator(ASKED, tmp_path_factory.mktemp("store"), clock) as (url, service):
        made = Client(url, service, clock)
        yield made
        made.session.close()


def upload(reports: list[int], upload_id: str = "", plan: str = DARK.digest) -> bytes:
    return encode_upload(upload_id or new_upload_id(random.getrandbits), [("dark", plan, list(reports))])


def test_an_upload_is_acknowledged_with_a_receipt(client: Client) -> None:
    body = upload([1, 0], "AAECAwQFBgcICQoLDA0ODw")
    answer = client.post(body)
    receipt = {"upload": "AAECAwQFBgcICQoLDA0ODw", "accepted": 2, "duplicate": False, "rejected": []}
    assert (answer.status_code, answer.json()) == (202, receipt)
    again = client.post(gzip.compress(body), Content_Encoding="gzip")
    assert (again.status_code, again.json()) == (202, {**receipt, "duplicate": True})
    conflict = client.post(upload([0, 0], "AAECAwQFBgcICQoLDA0ODw"))
    assert (conflict.status_code, conflict.json()["type"]) == (409, "urn:dither:problem:upload-conflict")


def test_a_bad_group_does_not_spoil_its_neighbour(client: Client) -> None:
    document = json.loads(upload([1]))
    document["groups"] += [{"metric": "dark", "plan": "0" * 16, "reports": [1, 1]}]
    answer = client.post(json.dumps(document).encode())
    assert answer.status_code == 202
    assert answer.json()["rejected"] == [{"group": 1, "reason": "unknown-plan", "count": 2}]
    assert answer.json()["accepted"] == 1


BIG = b" " * (256 * 1024 + 1)


@pytest.mark.parametrize(
    ("body", "headers", "status", "slug"),
    [
        (b"", {}, 400, "malformed"),
        (upload([1]).strip()[:-1], {}, 400, "malformed"),
        (b"\x00\xff", {}, 400, "malformed"),
        (upload([1]), {"Authorization": None}, 401, "key-missing"),
        (upload([1]), {"Authorization": "Basic abc"}, 401, "key-missing"),
        (upload([1]), {"Authorization": "Bearer "}, 401, "key-missing"),
        (upload([1]), {"Authorization": "Bearer wrong"}, 401, "key-wrong"),
        (upload([1]), {"Authorization": "Bearer w\xe4rong"}, 401, "key-wrong"),
        (upload([1]), {"Content_Type": "text/plain"}, 415, "unsupported-media-type"),
        (upload([1]), {"Content_Type": None}, 415, "unsupported-media-type"),
        (upload([1]), {"Content_Encoding": "br"}, 415, "unsupported-media-type"),
        (upload([1]), {"Content_Encoding": "gzip"}, 400, "malformed"),
        (gzip.compress(upload([1]))[:-3], {"Content_Encoding": "gzip"}, 400, "malformed"),
        (gzip.compress(b" " * 2_000_000), {"Content_Encoding": "gzip"}, 413, "too-large"),
        (BIG, {}, 413, "too-large"),
        (BIG * 7, {}, 413, "too-large"),
        (upload([1] * 2001), {}, 413, "too-large"),
        (upload([2]), {}, 422, "refused"),
        (upload([1], plan="f" * 16), {}, 422, "refused"),
        (upload([1]), {"X_Padding": "x" * 20_000}, 431, "headers-too-large"),
    ],
    ids=lambda value: "body" if isinstance(value, bytes) else str(value)[:40],
)
def test_bad_uploads_are_refused_in_words_and_move_nothing(
    client: Client, body: bytes, headers: dict[str, str | None], status: int, slug: str
) -> None:
    before = client.service.store.ledger()
    answer = client.post(body, **headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, CONTENT_TYPE)
    document = answer.json()
    assert (document["type"], document["status"]) == (f"urn:dither:problem:{slug}", status)
    assert document["title"]
    assert document["detail"]
    client.folded()
    after = client.service.store.ledger()
    assert [row.accepted for row in after] == [row.accepted for row in before]


def raw(client: Client, request: bytes) -> tuple[int, dict[str, Any]]:
    host, port = client.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


POST = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET http://[::1/v1/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (POST + b"Content-Length: minus\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (POST + b"Content-Length: 99999999999\r\n\r\n", 413),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_what_is_not_even_http_is_refused_in_words(client: Client, request_bytes: bytes, status: int) -> None:
    answered, document = raw(client, request_bytes)
    assert answered == status
    assert document["type"].startswith("urn:dither:problem:")


def test_a_body_without_a_length_is_refused_and_a_chunked_one_taken(client: Client) -> None:
    authorized = POST + b"Authorization: Bearer " + write_key(client.service.store).encode() + b"\r\n"
    status, document = raw(client, authorized + b"\r\n")
    assert (status, document["type"]) == (411, "urn:dither:problem:length-required")
    assert document["detail"] == "send Content-Length, or the body in chunks"
    body = upload([1])
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    status, document = raw(client, authorized + chunked)
    assert (status, document["accepted"]) == (202, 1)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/reports", 405),
        ("DELETE", "/", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/metrics/none", 404),
        ("GET", "/v1/metrics/none/estimates", 404),
        ("GET", "/v1/metrics/dark/estimates?plan=none", 404),
        ("GET", "/v1/metrics/dark/estimates?epoch=yesterday", 400),
        ("GET", "/v1/metrics/dark/estimates?epoch=2026-02-30", 400),
        ("GET", "/v1/metrics/dark/estimates?epoch=20261120", 400),
        ("GET", "/v1/metrics/dark/estimates?epoch=2026-W47-5", 400),
        ("GET", "/v1/metrics/dark/estimates?format=xml", 400),
        ("GET", "/metrics/dark?epoch=%00", 400),
        ("GET", "/metrics/%FF%00..%2F", 404),
        ("GET", "/static/../store.py", 404),
    ],
)
def test_bad_addresses_are_refused_in_words(client: Client, method: str, path: str, status: int) -> None:
    answer = client.session.request(method, client.url + path, timeout=10)
    kind = CONTENT_TYPE if path.startswith("/v1/") else "text/html; charset=utf-8"  # errors of pages are pages
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, kind)
    assert (
        PROBLEMS["malformed" if status == 400 else "not-found" if status == 404 else "method-not-allowed"][1]
        in answer.text
    )


def test_a_wrong_method_is_told_the_right_ones(client: Client) -> None:
    answer = client.get("/v1/reports")
    assert "POST" in answer.headers["Allow"]
    assert answer.json()["detail"] == "it takes POST alone"
    assert "it takes GET alone" in client.session.delete(client.url + "/", timeout=10).text


def packed(data: bytes, form: int = 0, width: int = 8, size: int = 2) -> bytes:
    """Return what a count vector of two is kept as."""
    return struct.pack("<BBI", form, width, size) + zlib.compress(data)


Damaged = tuple[Client, Path]
"""An aggregator with counts that nobody else asks for, and its store's file."""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    clock, directory = Clock(), tmp_path_factory.mktemp("damaged")
    with aggregator(ASKED, directory, clock) as (url, service):
        client = Client(url, service, clock)
        client.post(upload([1, 0]))
        client.folded()
        yield client, directory / "store.sqlite3"
        client.session.close()


@pytest.mark.parametrize(
    "damage",
    [
        "n = n + 1",
        "n = -3",
        "n = 4611686018427387904",
        "counts = x'00ff'",
        "counts = ''",
        "counts = 'text'",
        "counts = substr(counts, 1, 9)",
        f"counts = x'{packed(bytes(1), size=1, width=1).hex()}'",
        f"counts = x'{packed(bytes(15), width=8).hex()}'",
        f"counts = x'{packed(bytes(16), width=3).hex()}'",
        f"counts = x'{packed((5).to_bytes(8, 'little') + (-3).to_bytes(8, 'little', signed=True)).hex()}'",
        f"counts = x'{packed(b'9' * 10, form=1, width=1).hex()}'",
    ],
)
def test_counts_that_are_damaged_are_refused_in_words(damage: str, damaged: Damaged) -> None:
    client, store = damaged
    with closing(sqlite3.connect(store)) as db:
        (sound,) = db.execute("SELECT n, counts FROM segment")
        with db:
            db.execute(f"UPDATE segment SET {damage}")
        try:
            answer = client.get("/v1/metrics/dark/estimates?window=today")
            assert (answer.status_code, answer.json()["type"]) == (500, "urn:dither:problem:bad-tally")
            assert client.get("/metrics/dark?window=today").status_code == 500
            assert client.health("/livez")[0] == 200
        finally:
            with db:
                db.execute("UPDATE segment SET n = ?, counts = ?", sound)
    assert client.get("/metrics/dark?window=today").status_code == 200


def test_pages_load_nothing_from_elsewhere(client: Client) -> None:
    for path in ("/", "/metrics/dark", "/static/dither.css", "/static/dither.js"):
        answer = client.get(path)
        assert answer.status_code == 200
        policy = dict(each.split(" ", 1) for each in answer.headers["Content-Security-Policy"].split("; "))
        assert (policy["default-src"], policy["script-src"], "connect-src" in policy) == ("'none'", "'self'", False)
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert "http:" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https:" not in answer.text
        assert answer.headers["Content-Encoding"] == "gzip"
        scripts = [] if path.startswith("/static") else ['<script src="/static/dither.js" defer></script>']
        assert re.findall("<script.*", answer.text) == scripts
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_final_day_has_a_snapshot_whose_id_is_its_digest(tmp_path: Path) -> None:
    clock = Clock()
    with aggregator(ASKED, tmp_path, clock) as (url, service):
        client = Client(url, service, clock)
        client.post(upload([1] * 20 + [0] * 30))
        client.folded()
        day = service.store.today().isoformat()
        assert client.get("/v1/metrics/dark/snapshots").json()["rows"] == []
        clock.travel(1)
        service.store.seal(0)
        service.store.merge(0)
        assert maintenance.unfinalized(service.store) == ["dark"]
        assert maintenance.finalize(service.store, "dark") == 1
        assert maintenance.finalize(service.store, "dark") == 0
        answered = client.get(f"/v1/metrics/dark/estimates?epoch={day}").json()
        reading, rows = answered["meta"], answered["rows"]
        (listed,) = client.get("/v1/metrics/dark/snapshots").json()["rows"]
        assert (listed["epoch"], listed["plan"], listed["rev"]) == (day, DARK.digest, 1)
        assert listed["snapshot"] == reading["snapshot"]
        answer = client.get(f"/v1/snapshots/{reading['snapshot']}")
        assert hashlib.sha256(answer.content).hexdigest() == reading["snapshot"]
        document = answer.json()
        kept = document["estimates"]["rows"]
        shown = [{name: row[name] for name in kept[0]} for row in rows]
        assert kept == shown
        assert "std_error" not in kept[0]  # ends as uneven as these say more than an error
        assert (document["tally"]["n"], document["tally"]["digest"]) == (50, reading["tally"])
        assert {row["snapshot"] for row in rows} == {reading["snapshot"]}
        assert reading["snapshot"][:12] in client.get(f"/metrics/dark?epoch={day}").text
        clock.travel(40)
        service.store.put(Retention(tallies_days=30))
        maintenance.maintain(service.store, 0)
        gone = client.get(f"/v1/metrics/dark/estimates?epoch={day}")
        assert (gone.status_code, gone.json()["snapshot"]) == (410, reading["snapshot"])
        assert client.get(f"/metrics/dark?epoch={day}").status_code == 410
        assert client.get(f"/v1/snapshots/{reading['snapshot']}").content == answer.content
        assert client.get("/v1/snapshots/nothing").status_code == 404
        assert client.get("/v1/metrics/nothing/snapshots").status_code == 404
        client.session.close()


def test_a_final_day_whose_counts_are_not_what_was_recorded_is_not_shown(tmp_path: Path) -> None:
    clock = Clock()
    with aggregator(ASKED, tmp_path, clock) as (url, service):
        client = Client(url, service, clock)
        for reports in ([1] * 20, [0] * 30):
            client.post(upload(reports))
            client.folded()
        day = service.store.today().isoformat()
        clock.travel(1)
        service.store.seal(0)
        service.store.merge(0)
        maintenance.finalize(service.store, "dark")
        for damage in ("UPDATE tally SET n = 20", "DELETE FROM tally"):
            with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as db, db:
                db.execute(damage)
            answer = client.get(f"/v1/metrics/dark/estimates?epoch={day}")
            assert (answer.status_code, answer.json()["type"]) == (500, "urn:dither:problem:bad-tally")
            assert client.get(f"/metrics/dark?epoch={day}").status_code == 500
        client.session.close()


def test_a_lossy_store_says_so_on_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with aggregator(ASKED, tmp_path, clock) as (url, service):  # one of its own: a watcher remembers what it saw
        client = Client(url, service, clock)
        assert "may lose reports" not in client.get("/").text
        monkeypatch.setattr(service.store, "lossy", "redis://10.0.0.7:6379: appendfsync is everysec")
        for path in ("/", "/metrics/dark"):
            assert "may lose reports that it has accepted" in client.get(path).text
            assert "10.0.0.7" not in client.get(path).text  # who reads pages need not know where the store is
        assert client.get("/v1/metrics").json()["meta"]["lossy"] is True
        client.session.close()


def test_it_says_that_it_is_alive_and_ready(client: Client) -> None:
    assert client.health("/livez") == (200, {"status": "alive"})
    status, ready = client.health()
    assert (status, ready.pop("status"), ready.pop("trouble"), ready.pop("backlog")) == (200, "ready", {}, 0)
    assert [check for check in ready.pop("checks") if not check["ok"]] == []
    assert ready.pop("keys").keys() == {"taken", "wrong"}
    assert ready == {}
    assert client.health("/")[0] == 404
    for path in ("/livez", "/readyz", "/version", "/metrics"):
        assert client.get(path).status_code == 404


def test_a_store_that_cannot_be_written_is_unavailable_and_recovers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable("/var/lib/dither/store.sqlite3: database or disk is full")

    body = upload([1])
    monkeypatch.setattr(SQLiteStore, "append", full)
    answer = client.post(body)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert answer.json()["type"] == "urn:dither:problem:unavailable"
    code, ready = client.health()
    assert (code, ready["status"]) == (503, "not ready")
    assert ready["trouble"] == {"writer": "uploads cannot be written; the log says why"}
    monkeypatch.undo()
    assert client.post(body).json()["duplicate"] is False
    assert client.health()[0] == 200


def test_a_commit_that_failed_is_not_held_against_a_store_for_ever(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told that it is not ready sends nothing, so that no commit would ever succeed."""

    def full(*_: object) -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(SQLiteStore, "append", full)
    assert client.post(upload([1])).status_code == 503
    assert client.health()[0] == 503
    monkeypatch.setattr("dither_aggregator.ingest.service.WRITER_FAILED_FOR_S", 0.1)
    wait_until(lambda: client.health()[0] == 200)


def test_a_fold_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither_aggregator.ingest.service.RETRY_S", 0.05)
    fold, fails = Store.fold, iter([True, True])

    def unlucky(self: Store, shard: int) -> bool:
        if next(fails, False):
            raise StoreUnavailable("locked")
        return fold(self, shard)

    monkeypatch.setattr(Store, "fold", unlucky)
    clock = Clock()
    with aggregator(ASKED, tmp_path, clock) as (url, service):
        client = Client(url, service, clock)
        client.post(upload([1]))
        client.folded()
        wait_until(lambda: service.trouble() == {})  # the fold is over a moment before it says so
        client.session.close()
