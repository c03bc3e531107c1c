"""Numbers on a device: what is recorded, timed, sent and warned of; a threshold that stays."""

import asyncio
import logging
import math
import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

import dither
from dither.device.recording import Slots
from dither.session import Settings
from dither.telemetry import NANOSECONDS, Number, Telemetry
from dither.testing import FakeAggregator, TelemetryForTests
from dither_shared.domains import Buckets, Thresholds
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.rng import Rng
from tests.faults.apps import Taker
from tests.shared.test_number_reading import NO_NUMBERS
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, classes, open_device, send
from tests.support.laws import NO_COINS
from tests.support.numbers import FRESH, MEMO, numbers

pytest_plugins = ["dither.testing"]

METRICS: dict[str, dict[str, object]] = {
    "load": {**FRESH, "low": Decimal("0.01"), "high": 60, "buckets": 20, "scale": "log"},
    "tabs": {**FRESH, "unit": "tabs", "edges": [1, 2, 5, 10], "presence": "hidden"},
    "size": {**FRESH, "unit": "MB", "low": 10, "high": 500, "asks": ["mean"]},
    "idle": {**MEMO, "unit": "h", "low": 0, "high": 24},
}


def asked(expires: object = EXPIRES, **changes: object) -> Registry:
    return numbers(**{name: {**keys, "expires": expires, **changes} for name, keys in METRICS.items()})


@pytest.fixture
def dither_registry() -> Registry:
    return asked(utc_today() + timedelta(days=180))


# From the app to an aggregator.


def test_a_report_names_its_cell_where_there_are_several_and_fits_its_shape() -> None:
    cells: dict[str, set[int | None]] = {name: set() for name in METRICS}
    for seed in range(30):
        clock, registry = Clock(), asked(presence="public")
        device = open_device(registry, None, clock, seed=seed)
        for metric in registry.metrics.values():
            assert device.record(metric, 3) == ""
        body = send(device)
        assert body
        for group in body["groups"]:
            cell, metric = group.get("cell"), registry.metrics[group["metric"]]
            cells[metric.name].add(cell)
            shape = metric.cells.mechanism_of(cell or 0).shape
            assert shape.to_wire(shape.from_wire(group["reports"][0])) == group["reports"][0]
    assert (cells["load"], cells["tabs"], cells["size"]) == ({0, 1}, {0, 1}, {None})
    assert cells["idle"] <= set(range(16))
    assert len(cells["idle"]) > 8


@pytest.mark.parametrize("name", METRICS)
def test_nothing_that_an_app_records_raises_and_strict_refuses_what_is_no_number(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for strict in (False, True):
        clock = Clock()
        started = Telemetry(Settings(asked(), Taker(), None, consent=True, strict=strict, clock=clock))
        assert isinstance(getattr(started, name), dither.Number)
        record: Callable[[object], None] = getattr(started, name).record
        with caplog.at_level(logging.WARNING, "dither"):
            for make in NO_NUMBERS:
                if strict:
                    with pytest.raises(dither.InvalidAnswer, match=name):
                        record(make())
                else:
                    record(make())
        counted = 0 if strict or asked().metrics[name].hidden else 1  # one in the period
        assert started.status().counts.get("unlisted", 0) == counted
        started.close()


def test_what_is_no_number_is_warned_of_once_where_it_is_taken_for_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    started = Telemetry(Settings(asked(), Taker(), None, consent=True, strict=False, clock=clock))
    with caplog.at_level(logging.WARNING, "dither"):
        for _ in range(3):
            for name in METRICS:
                getattr(started, name).record(math.nan)
            started.flush(5)
            clock.travel(1)
    assert [record.getMessage() for record in caplog.records] == [
        "size takes a number: anything else is sent as 10 MB",
        "idle takes a number: anything else is sent as 0 h",
    ]
    assert started.status().counts["unlisted"] >= 9
    started.close()


# A threshold that stays.


def bits_sent(answer: object, days: int = 30) -> list[tuple[str, int]]:
    """Return the classes of a device that records the same number every day."""
    clock, registry = Clock(), asked()
    device = open_device(registry, None, clock, seed=4)
    for _ in range(days):
        assert device.record(registry.metrics["idle"], answer) == ""
        send(device)
        clock.travel(1)
    return classes(device, "idle")


def number_in_own_step() -> Fraction:
    """Return the middle of the step of that device's cohort, found as its aggregator sees it."""
    clock, registry = Clock(), asked()
    device = open_device(registry, None, clock, seed=4)
    device.record(registry.metrics["idle"], 0)
    body = send(device)
    assert body
    domain = registry.metrics["idle"].asked.domain
    assert isinstance(domain, Thresholds)
    low, high = domain.edges[body["groups"][0]["cell"] :][:2]
    return Fraction(low + high, 2 * 10**domain.decimals)


def test_a_number_that_stays_has_one_answer_for_life() -> None:
    assert len(bits_sent(number_in_own_step())) == 1


def test_a_threshold_that_is_drawn_anew_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def anew(self: Slots, metric: Metric) -> Rng:
        return self._rng

    monkeypatch.setattr(Slots, "_rng_of_class", anew)
    assert len(bits_sent(number_in_own_step())) == 2


def test_a_number_that_moves_over_the_whole_range_costs_two_answers_and_no_more() -> None:
    clock, registry, rng = Clock(), asked(), random.Random(3)
    device = open_device(registry, None, clock, seed=4)
    for _ in range(40):
        assert device.record(registry.metrics["idle"], rng.uniform(-5, 30)) == ""
        send(device)
        clock.travel(1)
    assert {key for key, _ in classes(device, "idle")} == {"0", "1"}
    assert device.spent()["idle"] == 4_000_000


def test_a_device_above_one_number_is_above_every_larger_one() -> None:
    registry = asked()
    metric = registry.metrics["idle"]
    for seed in range(12):
        device = open_device(registry, None, Clock(), seed=seed)
        with device._file.transaction():
            cell = metric.cells.of_device(device._slots._cohort())
            bits = [
                metric.class_of(metric.read(Fraction(tenth, 10)), cell, device._slots._rng_of_class(metric))
                for tenth in range(-10, 260)
            ]
        assert bits == sorted(bits)
        assert set(bits) == {0, 1}


def test_the_thresholds_of_devices_are_spread_evenly_over_the_range() -> None:
    """2,000 devices at a third of the range: the share above is a third to 6 sigma (a false alarm of 2e-9)."""
    registry = asked()
    metric, n, above = registry.metrics["idle"], 2_000, 0
    for seed in range(n):
        rng = Rng(random.Random(seed).getrandbits)
        above += metric.class_of(metric.read(8), metric.cells.of_device(rng.uniform(128)), rng)
    assert abs(above - n / 3) < 6 * (n * 2 / 9) ** 0.5


# Timing.


class Watch:
    """A handle's clock, in nanoseconds, that a test moves; and what was recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unit: str = "ms") -> None:
        self.now, self.recorded = 10**15, list[object]()
        monkeypatch.setattr("dither.telemetry.perf_counter_ns", lambda: self.now)
        metric = numbers(took={**FRESH, "unit": unit, "low": 0, "high": 1000, "buckets": 10}).metrics["took"]
        self.handle = Number(metric, lambda _, answer: self.recorded.append(answer))

    def wait(self, nanoseconds: int) -> None:
        self.now += nanoseconds


@pytest.mark.parametrize("unit", NANOSECONDS)
def test_a_block_is_timed_in_the_metrics_unit_exactly(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, unit)
    with watch.handle.timing():
        watch.wait(1_500_000_001)
    assert watch.recorded == [Fraction(1_500_000_001, NANOSECONDS[unit])]


@pytest.mark.parametrize("unit", ["tabs", "sec", "S", "MS", "seconds", "d"])
def test_what_is_no_time_is_not_timed(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(dither.ConfigurationError, match=rf"one of ns, us, .*: took is in '{unit}'"):
        Watch(monkeypatch, unit).handle.timing()


def test_a_function_is_timed_and_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)

    @watch.handle.timing()
    def load(depth: int, *, fails: bool = False) -> int:
        """Load."""
        watch.wait(1_000_000)
        if fails:
            raise ValueError("mine")
        return load(depth - 1) + 1 if depth else 0

    assert (load(0), watch.recorded) == (0, [1])
    assert load(2) == 2
    assert watch.recorded[1:] == [1, 2, 3]
    with pytest.raises(ValueError, match="mine"):
        load(0, fails=True)
    assert watch.recorded[-1] == 1
    assert (load.__name__, load.__doc__) == ("load", "Load.")


def test_calls_of_an_async_function_that_overlap_are_timed_each(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)

    @watch.handle.timing()
    async def fetch(turns: int, *, fails: bool = False) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
            watch.wait(1_000_000)
        if fails:
            raise ValueError("mine")
        return turns

    async def everything() -> list[object]:
        return [*await asyncio.gather(fetch(1), fetch(3), fetch(2, fails=True), return_exceptions=True)]

    assert asyncio.iscoroutinefunction(fetch)
    results = asyncio.run(everything())
    assert results[:2] == [1, 3]
    assert isinstance(results[2], ValueError)
    assert sum(map(float, watch.recorded)) == 1 + 5 + 6  # type: ignore[arg-type]


def test_a_task_that_is_cancelled_is_timed_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)

    @watch.handle.timing()
    async def forever() -> None:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        watch.wait(5_000_000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert watch.recorded == [5]


def test_what_is_timed_is_sent(telemetry: TelemetryForTests, fake_aggregator: FakeAggregator) -> None:
    with telemetry.load.timing():
        pass
    (recorded,) = telemetry.recorded()
    assert isinstance(recorded.answer, Fraction)
    assert 0 < recorded.answer < 10
    telemetry.flush(10)
    assert fake_aggregator.reports == {"load": 1}


# The device's file.


def test_a_hidden_number_says_none_where_nothing_was_recorded() -> None:
    """The places beyond all buckets: "other" is that of no number, "none" of nothing to say."""
    metric = asked().metrics["tabs"]
    domain = metric.asked.domain
    assert isinstance(domain, Buckets)
    assert [metric.read(None), metric.nothing] == [(domain.size,), (domain.size + 1,)]
    assert [metric.class_of(read, 1, NO_COINS) for read in ((0,), metric.read(None), metric.nothing)] == [0, 5, 6]
    assert [metric.class_of(read, 0, NO_COINS) for read in ((0,), metric.read(None), metric.nothing)] == [0, 5, 5]
