"""Tables on a device: what is recorded, sent, warned of and refused, column by column."""

import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
import pytest

import dither
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry, utc_today
from dither_shared.rng import SCALE, Rng
from tests.faults.apps import Taker
from tests.shared.test_number_reading import NO_NUMBERS
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, open_device, send
from tests.support.numbers import numbers
from tests.support.tables import domain_of

pytest_plugins = ["dither.testing"]

TABLE: dict[str, object] = {"kind": "table", "unit": None, "reports": 9, "schedule": "early"}
PEOPLE = '= { sex = ["f", "m"], age = { edges = [20, 40, 60] }, liking = { low = 0, high = 10, asks = ["mean"] } }'
METRICS: dict[str, dict[str, object]] = {
    "stability": {**TABLE, "columns": '= { crashed = ["no", "yes"], version = ["157", "158"] }'},
    "people": {**TABLE, "columns": PEOPLE},
    "secret": {**TABLE, "columns": PEOPLE, "presence": "hidden"},
}
OTHERS = ["sex = other", "age = other", "liking = other"]


def asked(expires: object = EXPIRES) -> Registry:
    return numbers(**{name: {**keys, "expires": expires} for name, keys in METRICS.items()})


PEOPLE_ASKED = asked().metrics["people"]


@pytest.fixture
def dither_registry() -> Registry:
    return asked(utc_today() + timedelta(days=180))


def started(*, strict: bool = False, directory: Path | None = None, clock: Clock | None = None) -> Telemetry:
    settings = Settings(asked(), Taker(), directory, consent=True, strict=strict, clock=clock or Clock())
    return Telemetry(settings)


def test_the_columns_of_the_tests_are_asked_at_once_and_in_pairs() -> None:
    questions = {name: domain_of(metric).questions for name, metric in asked().metrics.items()}
    assert questions == {"stability": ((0, 1),), **dict.fromkeys(("people", "secret"), ((0, 1), (0, 2), (1, 2)))}


# From the app to an aggregator.


def test_a_report_tells_one_pair_of_columns_and_fits_its_shape() -> None:
    cells: dict[str, set[int | None]] = {name: set() for name in METRICS}
    for seed in range(30):
        clock, registry = Clock(), asked()
        device = open_device(registry, None, clock, seed=seed)
        for metric in registry.metrics.values():
            assert device.record(metric, {"sex": "f", "crashed": "yes", "age": 3}) == ""
        clock.travel(1)
        while body := send(device):
            for group in body["groups"]:
                cell, metric = group.get("cell"), registry.metrics[group["metric"]]
                cells[metric.name].add(cell)
                shape = metric.cells.mechanism_of(cell or 0).shape
                assert shape.to_wire(shape.from_wire(group["reports"][0])) == group["reports"][0]
    assert cells == {"stability": {None}, "people": {0, 1, 2}, "secret": {0, 1, 2}}


def test_a_hidden_table_says_none_in_every_pair_where_nothing_was_recorded() -> None:
    metric, rng = asked().metrics["secret"], Rng(random.Random(1).getrandbits)
    assert metric.nothing == ()
    assert metric.names({}) != ("none",)  # an answer without columns is one
    for cell in range(3):
        last = domain_of(metric).symbols(cell) - 1
        assert metric.class_of(metric.nothing, cell, rng) == last
        assert metric.class_of(metric.read(None), cell, rng) == last - 1


# Answers that an app may record.


class Raising:
    """Raises whatever it is asked."""

    def _raise(self, *_: object) -> NoReturn:
        raise ValueError("private")

    __hash__ = __eq__ = __repr__ = __str__ = __float__ = __index__ = as_integer_ratio = _raise


class Fragile(Mapping[str, object]):
    """A mapping that raises for one column, or for all."""

    def __init__(self, answers: dict[str, object], *raises: str) -> None:
        self._answers, self._raises = answers, raises

    def __getitem__(self, name: str) -> object:
        if name in self._raises:
            raise OSError("private")
        return self._answers[name]

    def __iter__(self) -> Iterator[str]:
        if self._raises:
            raise OSError("private")
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


GOOD: list[tuple[object, list[str]]] = [
    ({"sex": "f", "age": 41, "liking": 5}, ["sex = f", "age = 40 to 60", "liking = 5"]),
    (MappingProxyType({"sex": "m"}), ["sex = m", "age = other", "liking = other"]),
    ({"age": np.int64(20), "liking": np.float32(2.5)}, ["sex = other", "age = 20 to 40", "liking = 2.5"]),
    ({"age": Fraction(59, 3), "liking": Decimal("1e-400")}, ["sex = other", "age = below 20", "liking = 0"]),
    ({"age": 10**400, "liking": -(10**400)}, ["sex = other", "age = 60 or more", "liking = 0"]),
    ({"age": -math.inf, "liking": math.inf}, ["sex = other", "age = below 20", "liking = 10"]),
    ({"age": Decimal("1e999999"), "liking": 11}, ["sex = other", "age = 60 or more", "liking = 10"]),
    (Fragile({"sex": "m", "age": 30}), ["sex = m", "age = 20 to 40", "liking = other"]),
    ({}, OTHERS),
]
WRONG: list[tuple[object, list[str], str]] = [
    ({"sex": "x", "age": 41}, ["sex = other", "age = 40 to 60", "liking = other"], "what came in sex is"),
    ({"sex": b"f"}, OTHERS, "what came in sex is"),
    ({"sex": None}, OTHERS, "what came in sex is"),
    ({"sex": "other"}, OTHERS, ""),
    ({"sex": Raising(), "age": 3}, ["sex = other", "age = below 20", "liking = other"], "what came in sex is"),
    ({"sex": "f", "liking": Raising()}, ["sex = f", "age = other", "liking = other"], "what came in liking is"),
    ({"sex": "f", "agee": 3}, ["sex = f", "age = other", "liking = other"], "what came in a column that it does not"),
    ({3: "f", "age": 3}, ["sex = other", "age = below 20", "liking = other"], "what came in a column that it does not"),
    (Fragile({"sex": "f", "age": 3}, "sex"), ["sex = other", "age = below 20", "liking = other"], "what came is"),
    (None, OTHERS, "what came is"),
    ("f", OTHERS, "what came is"),
    ([("sex", "f")], OTHERS, "what came is"),
    (Raising(), OTHERS, "what came is"),
]


@pytest.mark.parametrize(("answer", "told"), GOOD)
def test_a_mapping_of_its_columns_is_taken_whatever_numbers_it_holds(answer: object, told: list[str]) -> None:
    assert PEOPLE_ASKED.takes(answer)
    assert list(PEOPLE_ASKED.names(answer)) == told


@pytest.mark.parametrize(("answer", "told", "said"), WRONG)
def test_what_is_wrong_is_other_in_its_own_column_and_strict_says_in_which(
    answer: object, told: list[str], said: str
) -> None:
    assert list(PEOPLE_ASKED.names(answer)) == told
    assert PEOPLE_ASKED.takes(answer) is (said == "")
    strict = started(strict=True)
    if said:
        with pytest.raises(dither.InvalidAnswer, match=f"^{said}.* no answer that people asks for") as caught:
            strict.people.record(answer)
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    else:
        strict.people.record(answer)
    strict.close()
    usual = started()
    usual.people.record(answer)
    assert usual.status().counts.get("unlisted", 0) == (said != "")
    assert usual.status().metrics["people"].silent == "answered"
    usual.close()


@pytest.mark.parametrize(("column", "make"), [("liking", NO_NUMBERS[0]), *(("age", make) for make in NO_NUMBERS)])
def test_what_is_no_number_is_other_in_a_column_of_numbers(column: str, make: Callable[[], object]) -> None:
    assert not PEOPLE_ASKED.takes({column: make()})
    assert PEOPLE_ASKED.read({"sex": "m", column: make()}) == (1, 4, SCALE + 1)


def test_what_is_not_asked_is_warned_of_once_with_the_columns(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    telemetry = started(clock=clock)
    with caplog.at_level(logging.WARNING, "dither"):
        for _ in range(3):
            telemetry.stability.record({"crash": "private"})
            telemetry.stability.record({"crash": "private"})
            telemetry.people.record({"sex": "f"})
            telemetry.flush(5)
            clock.travel(1)
    assert [record.getMessage() for record in caplog.records] == [
        "stability takes a dict of crashed, version: columns that are missing or not as listed are “other”"
    ]
    assert telemetry.status().counts["unlisted"] == 3
    telemetry.close()


def test_a_planted_reader_that_lets_one_column_spoil_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from dither_shared.kinds import table

    monkeypatch.setattr(table, "_read", lambda domain, column, given: domain.domains[column].index(given["sex"]))
    assert list(PEOPLE_ASKED.names(WRONG[0][0])) != WRONG[0][1]


# The device's file.
