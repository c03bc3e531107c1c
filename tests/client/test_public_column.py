"""The public column: a device's value of it is in the cell of its tables' reports, and nowhere else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import pytest

import dither
from dither.testing import FakeAggregator, TelemetryForTests
from dither_shared.registry import Registry
from tests.support.devices import EXPIRES
from tests.support.tables import tables

pytest_plugins = ["dither.testing"]

COLUMNS = 'crashed = ["no", "yes"], version = ["157", "158"]'
ARMS = 'arm = ["a", "b", "c"]'


def asked(expires: date = EXPIRES, reports: int = 300) -> Registry:
    return tables(COLUMNS, ARMS, expires=expires, reports=reports)


@pytest.fixture
def dither_registry() -> Registry:
    return asked(reports=3)


@contextmanager
def started(
    fake: FakeAggregator, public: Any, *, strict: bool = False, registry: Registry | None = None
) -> Iterator[Any]:
    telemetry = dither.start(
        registry or asked(),
        endpoint=fake.url,
        key=fake.key,
        data_dir=":memory:",
        consent=True,
        public=public,
        strict=strict,
    )
    try:
        yield telemetry
    finally:
        telemetry.close()


@pytest.fixture(autouse=True)
def _telemetry_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITHER_TELEMETRY", "1")


def cells(fake: FakeAggregator) -> list[int]:
    return [group["cell"] for upload in fake.uploads for group in json.loads(upload.body)["groups"]]


@pytest.mark.parametrize(("arm", "cell"), [("a", 0), ("b", 1), ("c", 2)])
def test_a_report_is_in_the_cell_of_its_devices_value_whatever_was_answered(arm: str, cell: int) -> None:
    for answer in ({"crashed": "yes", "version": "157"}, {"crashed": "no", "arm": "a"}, None):
        with FakeAggregator(asked()) as fake, started(fake, {"arm": arm}) as telemetry:
            telemetry.asked.record(answer)
            assert telemetry.flush(10).sent == 1
            assert cells(fake) == [cell]


def test_a_value_may_be_written_in_every_form() -> None:
    accented = tables(COLUMNS, 'arm = ["caf\u00e9", "b"]', expires=EXPIRES)
    with (
        FakeAggregator(accented) as fake,
        started(fake, {"arm": "cafe\u0301"}, strict=True, registry=accented) as telemetry,
    ):
        assert telemetry.status().silent == ""


@pytest.mark.parametrize("public", [None, {}, {"arm": "d"}, {"arm": "a", "os": "b"}, {"os": "a"}, "a", {"arm": ["a"]}])
def test_a_value_that_is_not_listed_turns_telemetry_off_and_strict_raises(public: object) -> None:
    why = 'public must be {"arm": "a"} or {"arm": "b"} or {"arm": "c"}'
    with FakeAggregator(asked()) as fake:
        with started(fake, public) as telemetry:
            telemetry.asked.record({"crashed": "yes"})
            assert telemetry.flush(1) == dither.FlushResult(0, 0, why)
            assert telemetry.status().silent == why
        with pytest.raises(dither.ConfigurationError, match="public must be"), started(fake, public, strict=True):
            pass
        assert fake.uploads == []


def test_a_registry_without_a_public_column_refuses_one() -> None:
    bare = tables(COLUMNS, expires=EXPIRES)
    with FakeAggregator(bare) as fake:
        with started(fake, {"arm": "a"}, registry=bare) as telemetry:
            assert telemetry.status().silent == "the registry has no public column: leave public out"
        with started(fake, None, registry=bare) as telemetry:
            assert telemetry.status().silent == ""


def test_a_test_of_an_app_sees_what_was_recorded_and_sends_it_in_its_arm(
    telemetry: TelemetryForTests, fake_aggregator: FakeAggregator
) -> None:
    app = dither.start(
        asked(reports=3), endpoint=fake_aggregator.url, key=fake_aggregator.key, consent=True, public={"arm": "c"}
    )
    answer = {"crashed": "yes", "version": "158"}
    app.asked.record(answer)
    answer["crashed"] = "no"
    assert telemetry.recorded()[0].answer == {"crashed": "yes", "version": "158"}
    assert telemetry.flush(10).sent == 1
    assert cells(fake_aggregator) == [2]
