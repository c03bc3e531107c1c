"""The web SDK's reports have exactly the laws of the Python SDK's; spoiled in one place, they do not.

Python decides every coin and every integer that the SDK asks for (tests/web/device.ts), so that each sequence of
decisions is run once. No law is estimated, and no bound is one of chance.
"""

import hmac
import shutil
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dither_shared.cells import DEVICE, Cells, Part, one_cell
from dither_shared.domains import Domain
from dither_shared.domains.columns import Columns
from dither_shared.domains.numbers import Buckets, Range, Thresholds
from dither_shared.domains.texts import Hashed
from dither_shared.domains.values import Values
from dither_shared.frozen import frozen
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    SUE,
    Mechanism,
    Memoized,
    MemoizedTwoLevel,
    PrivSet,
    SquareWave,
    SubsetSelection,
)
from dither_shared.rng import Rng
from tests.second.test_laws import CELLS, FOUR, FRESH, MEMOS, TWO
from tests.support.laws import law_of, law_of_class, repeats
from tests.support.node import DEVICE as SCRIPT
from tests.support.node import NOTHING, ROOT, SECRET, Device, NodeError

Law = dict[int | str, Fraction]


@frozen
class Asked:
    """A metric, and answers as expressions of JavaScript with the same ones in Python; None stands for nothing."""

    kind: str
    domain: Domain
    cells: Cells
    answers: tuple[tuple[str, object], ...]
    hidden: bool = False

    @property
    def plan(self) -> dict[str, Any]:
        """The plan's document."""
        return plan_of(self.cells, self.kind, self.domain.to_document(), presence="hidden" if self.hidden else "public")

    def law(self, answer: object, cell: int) -> Law:
        """Return the law of a report of an answer in a cell."""
        kind, mechanism = KINDS[self.kind], self.cells.mechanism_of(cell)
        read = kind.nothing(self.domain) if answer is NOTHING else kind.read(answer, self.domain)
        shape: Any = mechanism.shape

        def draw(rng: Rng) -> Any:
            return shape.to_wire(mechanism.randomize(kind.class_of(read, self.domain, self.cells, cell, rng), rng))

        return possible(law_of(draw))


def plan_of(cells: Cells, kind: str = "choice", domain: object = None, presence: str = "public") -> dict[str, Any]:
    values = {"domain": "values", "values": ["a", "b", "other"]}
    return {
        "metric": "asked", "rev": 1, "presence": presence, "kind": kind, "domain": domain or values,
        "cells": cells.to_document(),
    }  # fmt: skip


def possible(law: Any) -> Law:
    """Return a law without what has no probability, as a coin that never falls."""
    return {outcome: probability for outcome, probability in law.items() if probability}


THREE, UNLISTED = ("a", "b", "other"), (("'a'", "a"), ("'b'", "b"), ("'c'", "c"), ("null", None), ("true", True))
NOTHING_SAID = (("NOTHING", NOTHING),)
FLAGS = (("true", True), ("false", False), ("undefined", None), ("'yes'", "yes"), ("1", 1))
SEVERAL = (
    ("[]", []), ("['b', 'a']", ["b", "a"]), ("new Set(['c', 'a', 'd'])", ["c", "a", "d"]), ("['other', 'b']", ["b", 5]),
    ("'b'", "b"), ("null", None),
)  # fmt: skip
NUMBERS = tuple((text, float(text)) for text in ("-1e9", "0", "0.3", "2.5", "7", "1e300")) + (
    ("Infinity", float("inf")), ("-Infinity", float("-inf")), ("NaN", None), ("'5'", "5"), ("true", True), ("7n", 7),
)  # fmt: skip
WINDOW, MEAN = SquareWave.for_reach(4, 1, TWO), SquareWave.for_reach(3, 1, TWO)
EDGES, ENDS = Buckets((3, 25, 70), 1, "s"), Range((0, 5), 0, "s")
COLUMNS = (Values(("no", "yes", "other")), Buckets((0, 1), 0, ""), ENDS)
QUESTIONS = ((0, 1), (0, 2), (1, 2))
ROWS = (
    ("({a: 'yes', b: 0.5, c: 2.5})", {"a": "yes", "b": 0.5, "c": 2.5}),
    ("({a: 'no', b: 1, c: 5})", {"a": "no", "b": 1, "c": 5}),
    ("({a: 'who', b: '1', c: NaN})", {"a": "who", "b": "1", "c": None}),
    ("({c: 0})", {"c": 0}),
    ("({get a() { throw 1 }})", {}),
    ("null", {}),
)
ASKED = {
    "flag": Asked("flag", Values(("no", "yes")), one_cell(GRR.for_epsilon(2, TWO)), FLAGS),
    "hidden flag": Asked(
        "flag", Values(("no", "yes", "none")), one_cell(GRR.for_epsilon(3, TWO)), (*FLAGS, *NOTHING_SAID), True
    ),
    "choice": Asked("choice", Values(THREE), one_cell(SubsetSelection.for_weight(3, 2, TWO)), UNLISTED),
    "hidden choice": Asked(
        "choice", Values((*THREE, "none")), one_cell(PGR.for_design(4, 3, 3, TWO)), (*UNLISTED, *NOTHING_SAID), True
    ),
    "choice, bits": Asked("choice", Values(THREE), one_cell(OUE.for_epsilon(3, TWO)), UNLISTED),
    "choices": Asked("choices", Values(("a", "b", "c", "other")), one_cell(PrivSet.for_weight(4, 2, 2, TWO)), SEVERAL),
    "choices, bits": Asked("choices", Values(("a", "b", "c", "other")), one_cell(SUE.for_epsilon(4, TWO, 2)), SEVERAL),
    "number": Asked("number", EDGES, Cells((Part(WINDOW, weight=2), Part(GRR.for_epsilon(5, TWO)))), NUMBERS),
    "hidden number": Asked(
        "number", EDGES, Cells((Part(WINDOW, weight=2), Part(PGR.for_design(6, 2, 3, TWO)))),
        (*NUMBERS, *NOTHING_SAID), True,
    ),
    "a number's mean": Asked("number", ENDS, one_cell(MEAN), NUMBERS),
    "text": Asked(
        "text", Hashed("asked", 7), Cells((Part(PGR.for_design(7, 2, 3, TWO), 4),)),
        (("'Caf\\u00e9'", "Caf\u00e9"), ("'Cafe\\u0301'", "Cafe\u0301"), ("'\\u202e'", "\u202e"), ("5", 5)),
    ),
    "table": Asked(
        "table", Columns(("a", "b", "c"), COLUMNS, QUESTIONS, False, ("arm", "x", "y")),
        Cells(
            (Part(GRR.for_epsilon(12, TWO)), Part(SubsetSelection.for_weight(9, 2, TWO)), Part(GRR.for_epsilon(12, TWO))),
            public=2,
        ),
        ROWS,
    ),
    "hidden table": Asked(
        "table", Columns(("a", "b", "c"), COLUMNS, ((0, 1, 2),), True), one_cell(GRR.for_epsilon(37, TWO)),
        (*ROWS, *NOTHING_SAID), True,
    ),
}  # fmt: skip


# What is wrong: one name for each law that is another one.


def wrong_reports(device: Device, asked: Asked) -> Iterator[str]:
    metric = device.metric(asked.plan)
    for cell in range(asked.cells.count):
        for text, answer in asked.answers:
            call = partial(device.call, "report", metric=metric, cell=cell, answer=text, secret="")
            if possible(law_of(call)) != asked.law(answer, cell):
                yield f"{text} in cell {cell}"


def first_law(mechanism: Mechanism, law: dict[int, Fraction]) -> Law:
    shape: Any = mechanism.shape
    return {shape.to_wire(report): probability for report, probability in law.items()}


def drawn(device: Device, metric: int, value: Any, memos: dict[int | str, Any] | None = None) -> Law:
    """Return the law of the report or memo of a value, as on the wire; also note what each is."""

    def draw(rng: Rng) -> Any:
        report, written = device.call("draw", rng, metric=metric, cell=0, value=as_json(value))
        if memos is not None:
            memos[written] = report
        return written

    return dict(law_of(draw))


def as_json(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def wrong_mechanisms(device: Device) -> Iterator[str]:
    for mechanism, values in FRESH:
        metric = device.metric(plan_of(one_cell(mechanism)))
        for value, seen in values.items():
            if drawn(device, metric, value) != first_law(mechanism, law_of_class(mechanism, seen)):
                yield f"{mechanism.name} of {value}"
    for memoized, values in MEMOS:
        metric = device.metric(plan_of(one_cell(memoized)))
        for value, seen in values.items():
            yield from wrong_memos(device, metric, memoized, value, seen)


def wrong_memos(device: Device, metric: int, mechanism: Memoized, value: Any, seen: int) -> Iterator[str]:
    permanent: Any = law_of(partial(mechanism.permanent.randomize, seen))
    memos: dict[int | str, Any] = {}
    if drawn(device, metric, value, memos) != first_law(mechanism, permanent):
        yield f"the memo of {mechanism.name}"
    shape: Any = mechanism.shape
    for first in list(permanent)[:2]:
        call = partial(device.call, "repeat", metric=metric, cell=0, memo=memos.get(shape.to_wire(first), 0))
        if law_of(call) != first_law(mechanism, repeats(mechanism, first)):
            yield f"the fresh noise of {mechanism.name}"


def wrong_cells(device: Device) -> Iterator[str]:
    for cells in CELLS:
        metric = device.metric(plan_of(cells))
        for place in range(cells.public):
            call = partial(device.call, "cell", metric=metric, place=place)
            if cells.drawn == DEVICE:
                if [call(cohort=number) for number in range(128)] != [*map(cells.of_device, range(128))]:
                    yield "a device's cell"
            elif law_of(partial(call, cohort=0)) != law_of(partial(cells.draw, public=place)):
                yield "a report's cell"


def wrong_coins(device: Device) -> Iterator[str]:
    """Try coins on both sides of thresholds, and integers below each bound by all first draws."""
    top = (1 << 64) - 1
    for threshold in (0, 1, 1 << 53, (1 << 63) + 1, top, top + 1):
        for bits in {0, min(max(0, threshold - 1), top), min(threshold, top), min(threshold + 1, top), top}:
            if device.call("coin", threshold=str(threshold), bits=[(64, str(bits))]) != (bits < threshold):
                yield f"a coin of {threshold} at {bits}"
    for size in (1, 2, 3, 5, 8, 9, 13):
        count = (size - 1).bit_length()
        for first in range(1 << count):
            came = device.call("below", size=size, bits=[(count, str(first)), (count, "0")])
            if int(came) != (first if first < size else 0):
                yield f"{first} below {size}"


def wrong(device: Device) -> Iterator[str]:
    yield from wrong_coins(device)
    yield from wrong_cells(device)
    yield from wrong_mechanisms(device)
    for name, asked in ASKED.items():
        for each in wrong_reports(device, asked):
            yield f"{name}: {each}"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device() as one:
        yield one


def test_coins_and_integers_are_compared_exactly(device: Device) -> None:
    assert [*wrong_coins(device)] == []


def test_cells_are_drawn_by_their_shares(device: Device) -> None:
    assert [*wrong_cells(device)] == []


def test_every_mechanism_and_memo_has_the_law_of_the_python_one(device: Device) -> None:
    assert [*wrong_mechanisms(device)] == []


@pytest.mark.parametrize("name", ASKED)
def test_a_report_of_every_kind_has_the_law_of_the_python_one(device: Device, name: str) -> None:
    assert [*wrong_reports(device, ASKED[name])] == []
