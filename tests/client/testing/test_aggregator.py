"""The fake aggregator answers as the real one does, which is asked the same."""

import gzip
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from dither.testing import FakeAggregator
from dither.testing.aggregator import GRACE_DAYS
from dither_shared.wire import PATH, encode_upload, new_upload_id
from dither_shared.wire.reading import PROBLEMS
from tests.support import aggregators
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.keys import write_key
from tests.support.registries import registry

EXPECTED = registry(expires=EXPIRES)
DARK = EXPECTED.metrics["dark"].plan


class Both:
    """The real aggregator and the fake one, asked the same."""

    def __init__(self, real: str, fake: FakeAggregator, clock: Clock) -> None:
        self.urls = real, fake.url
        self.fake = fake
        self.clock = clock
        self.session = requests.Session()
        self.session.trust_env = False

    def answer(self, body: bytes, method: str = "POST", path: str = PATH, **headers: Any) -> dict[str, Any]:
        """Return the fake's answer, which must be the real one's but for its words."""
        given: dict[str, Any] = {"Authorization": f"Bearer {self.fake.key}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        real, fake = [
            self.session.request(method, url + path, data=body, headers=given, timeout=30) for url in self.urls
        ]
        documents = [{**answer.json(), "detail": ""} for answer in (real, fake)]
        assert documents[1] == documents[0]
        assert fake.status_code == real.status_code
        for header in ("Content-Type", "WWW-Authenticate", "Retry-After"):
            assert fake.headers.get(header) == real.headers.get(header)
        return {**documents[1], "status": fake.status_code}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    clock = Clock()
    with (
        aggregators.aggregator(EXPECTED, tmp_path_factory.mktemp("store"), clock) as (url, service),
        FakeAggregator(EXPECTED, key=write_key(service.store), clock=clock) as fake,
    ):
        asked = Both(url, fake, clock)
        yield asked
        asked.session.close()


def upload(reports: list[int], plan: str = DARK.digest, metric: str = "dark") -> bytes:
    return encode_upload(new_upload_id(random.getrandbits), [(metric, plan, list(reports))])


def test_an_upload_is_received_once_as_the_real_one_receives_it(both: Both) -> None:
    before = both.fake.reports.get("dark", 0)
    body = upload([1, 0])
    first = both.answer(body)
    assert (first["status"], first["accepted"], first["duplicate"]) == (202, 2, False)
    again = both.answer(gzip.compress(body), Content_Encoding="gzip")
    assert (again["status"], again["accepted"], again["duplicate"]) == (202, 2, True)
    conflict = both.answer(body.replace(b"[1,0]", b"[0,0]"))
    assert conflict["status"] == 409
    assert both.fake.reports["dark"] == before + 2


def test_a_bad_group_is_refused_as_the_real_one_refuses_it(both: Both) -> None:
    document = json.loads(upload([1]))
    document["groups"] += [
        {"metric": "dark", "plan": "0" * 16, "reports": [1, 1]},
        {"metric": "none", "plan": "0" * 16, "reports": [1]},
        {"metric": "dark", "plan": DARK.digest, "reports": [2]},
    ]
    answer = both.answer(json.dumps(document).encode())
    assert [refused["reason"] for refused in answer["rejected"]] == ["unknown-plan", "unknown-metric", "bad-report"]
    assert both.answer(json.dumps(document).encode())["duplicate"]


BIG = b" " * (256 * 1024 + 1)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (upload([1]).strip()[:-1], {}, 400),
        (upload([1]), {"Authorization": None}, 401),
        (upload([1]), {"Authorization": "Basic abc"}, 401),
        (upload([1]), {"Authorization": "Bearer "}, 401),
        (upload([1]), {"Authorization": "Bearer wrong"}, 401),
        (upload([1]), {"Content_Type": "text/plain"}, 415),
        (upload([1]), {"Content_Type": None}, 415),
        (upload([1]), {"Content_Type": "Application/JSON; charset=utf-8"}, 202),
        (upload([1]), {"Content_Encoding": "br"}, 415),
        (upload([1]), {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(upload([1]))[:-3], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b" " * 2_000_000), {"Content_Encoding": "gzip"}, 413),
        (BIG, {}, 413),
        (BIG * 7, {}, 413),
        (upload([1] * 2001), {}, 413),
        (upload([2]), {}, 422),
        (upload([1], plan="f" * 16), {}, 422),
        (upload([1], metric="none"), {}, 422),
        (upload([1]).ljust(100_000), {}, 202),
    ],
    ids=lambda value: "body" if isinstance(value, bytes) else str(value)[:40],
)
def test_what_the_real_one_takes_or_refuses_the_fake_does(
    both: Both, body: bytes, headers: dict[str, Any], status: int
) -> None:
    before = both.fake.reports.get("dark", 0)
    assert both.answer(body, **headers)["status"] == status
    assert both.fake.reports.get("dark", 0) - before == (status == 202)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", PATH, 405), ("POST", "/v1/report", 404)])
def test_other_addresses_are_refused_in_words(both: Both, method: str, path: str, status: int) -> None:
    assert both.answer(b"", method, path)["status"] == status


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "uploads.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["spoiled"], ids=lambda vector: vector["name"])
def test_spoiled_uploads_are_refused_as_the_real_one_refuses_them(both: Both, vector: dict[str, str]) -> None:
    assert both.answer(vector["body"].encode("latin-1"))["status"] == PROBLEMS[vector["problem"]][0]


def test_a_body_without_a_length_is_refused(both: Both) -> None:
    head = f"POST {PATH} HTTP/1.0\r\nAuthorization: Bearer {both.fake.key}\r\nContent-Type: application/json\r\n"
    for length, status in (("", b" 411 "), ("Content-Length: minus\r\n", b" 400 ")):
        with socket.create_connection(("127.0.0.1", int(both.fake.url.rpartition(":")[2])), timeout=10) as connection:
            connection.sendall(f"{head}{length}\r\n".encode())
            assert status in connection.recv(1_000).partition(b"\r\n")[0]


def test_an_expired_metric_is_refused_after_the_same_grace(tmp_path: Path) -> None:
    clock = Clock()
    with (
        aggregators.aggregator(EXPECTED, tmp_path, clock) as (url, service),
        FakeAggregator(EXPECTED, key=write_key(service.store), clock=clock) as fake,
    ):
        both = Both(url, fake, clock)
        clock.travel(100 + GRACE_DAYS - 1)
        assert both.answer(upload([1]))["status"] == 202
        clock.travel(1)
        assert both.answer(upload([1]))["status"] == 410
        both.session.close()


def test_failures_come_in_turn_and_so_often(both: Both) -> None:
    both.fake.fail_next("unavailable", times=2)
    both.fake.fail_next("captive-portal")
    url = both.fake.url + PATH
    assert [both.session.post(url, b"", timeout=10).status_code for _ in range(4)] == [503, 503, 200, 401]


def test_an_address_before_the_context_is_a_mistake_that_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"with FakeAggregator\(\.\.\.\) as"):
        _ = FakeAggregator(registry()).url
