"""A kind and a mechanism from outside, made of public classes alone: from registry to page, over both stores."""

import csv
import io
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import cast

import pytest
import requests

from dither.handles import HANDLES, Handle
from dither.sending.transport import HttpTransport
from dither.settings import Settings
from dither.telemetry import Telemetry
from dither_aggregator.service import WholeService
from dither_aggregator.web import create_app
from dither_aggregator.web.server import HttpServer
from dither_shared.domains import OTHER, Values
from dither_shared.frozen import as_dict, frozen
from dither_shared.kinds import KINDS, Asked, Offer
from dither_shared.kinds.listed import Listed
from dither_shared.mechanisms import MECHANISMS, PureMechanism
from dither_shared.registry import Registry, utc_today
from dither_shared.reports import Symbols
from dither_shared.rng import SCALE, Rng
from dither_shared.tables import Table
from tests.support.redis_servers import running_redis
from tests.support.stores import Place, RedisPlace, SQLitePlace

pytestmark = pytest.mark.slow

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SATURDAY = date(2026, 11, 21)
DEVICES = 150


@frozen
class Half(PureMechanism):
    """Send the answer with probability 1/2, else any value: p = 1/2 + 1/(2 d), q = 1/(2 d)."""

    name = "half"
    ticks = 1
    d: int

    def parameters(self) -> dict[str, int]:
        return as_dict(self)

    @property
    def p(self) -> Fraction:
        return Fraction(1, 2) + self.q

    @property
    def q(self) -> Fraction:
        return Fraction(1, 2 * self.d)

    @property
    def exp_epsilon(self) -> Fraction:
        return self.p / self.q

    @property
    def shape(self) -> Symbols:
        return Symbols(self.d)

    def class_of(self, values: object) -> int:
        (value,) = cast("tuple[int]", values)
        return value

    def randomize(self, answer: int, rng: Rng) -> int:
        keep, other = rng.coin(SCALE // 2), rng.uniform(self.d)
        return answer if keep else other


class Weekday(Listed):
    """The day of the week of a date."""

    name = "weekday"
    meaning = "for a day of the week"

    def _values(self, table: Table, folder: Path | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        return (*DAYS, OTHER, *unlisted)

    def _mechanism(self, table: Table, d: int) -> PureMechanism:
        return Half(d)

    def takes(self, answer: object, domain: Values) -> bool:
        return isinstance(answer, date)

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        return (answer.weekday() if isinstance(answer, date) else domain.index(OTHER),)

    def offer(self, asked: Asked) -> Offer:
        return Offer("A day of the week.")


class WeekdayHandle(Handle):
    def record(self, day: date) -> None:
        self._record(self.metric, day)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setitem(KINDS, Weekday.name, Weekday())
    monkeypatch.setitem(HANDLES, Weekday.name, WeekdayHandle)
    monkeypatch.setitem(cast("dict[str, type[Half]]", MECHANISMS), Half.name, Half)
    return Registry.parse(f"""
[registry]
app = "toys"
device_epsilon = 10
quiet_days = 0

[metric.day]
kind = "weekday"
rev = 1
question = "On which day do people start a week?"
epsilon = 2.2
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {utc_today() + timedelta(days=100)}
""")


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        with closing(SQLitePlace(tmp_path / "store")) as place:
            yield place
    else:
        with running_redis(tmp_path / "redis") as server, closing(RedisPlace(server)) as place:
            yield place


def answers_of(asked: Registry, url: str, key: str) -> Counter[str]:
    """Let each device answer; return what they said before any noise."""
    rng, truth = random.Random(5), Counter[str]()
    for _ in range(DEVICES):
        answer: object = SATURDAY if rng.random() < 0.6 else SATURDAY + timedelta(days=rng.randrange(7))
        with closing(Telemetry(Settings(asked, HttpTransport(url, key), None, consent=True))) as telemetry:
            telemetry.day.record(answer)
            assert telemetry.flush(20).sent == 1
        truth.update(asked.metrics["day"].names(answer))
    return truth


def test_a_kind_and_a_mechanism_from_outside_work_from_the_registry_to_the_page(asked: Registry, place: Place) -> None:
    """Of 8 estimates none is 6 standard errors off the truth: a false alarm of 2e-8 in a run."""
    store = place.make(asked, "toys")
    with WholeService(store) as service:
        server = HttpServer(create_app(service), "127.0.0.1", 0)
        with server.in_background():
            truth = answers_of(asked, server.url, store.key)
            deadline = time.monotonic() + 60
            while store.backlog():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            address = f"{server.url}/v1/metrics/day/estimates"
            reading = requests.get(address, timeout=30).json()
            table = list(csv.DictReader(io.StringIO(requests.get(f"{address}?format=csv", timeout=30).text)))
            page = requests.get(f"{server.url}/metrics/day", timeout=30).text
    plan = asked.metrics["day"].plan
    tally = store.tally(plan, store.today())
    p, q = float(plan.pure.p), float(plan.pure.q)
    assert (reading["n"], tally.n) == (DEVICES, DEVICES)
    assert [row["value"] for row in reading["rows"]] == [row["value"] for row in table] == [*DAYS, OTHER]
    for row, count in zip(reading["rows"], tally.counts.tolist(), strict=True):
        assert row["estimate"] == pytest.approx((count / DEVICES - q) / (p - q))
        assert abs(row["estimate"] - truth[row["value"]] / DEVICES) < 6 * sqrt(p * (1 - p) / DEVICES) / (p - q)
    assert "On which day do people start a week?" in page
    assert "saturday" in page
    assert "half" in page
