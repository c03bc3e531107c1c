"""The web SDK's reports have exactly the laws of the Python SDK's; spoiled in one place, they do not.

Every coin and every integer that the SDK asks for is decided (tests/web/device.ts), so that each series of decisions
is run once. No law is estimated, and no bound is one of chance.
"""

import hmac
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from dither_shared.domains import Domain, Values
from dither_shared.domains.columns import Columns
from dither_shared.domains.hashed_texts import Hashed
from dither_shared.domains.number_ranges import Buckets, Range, Thresholds
from dither_shared.frozen import frozen
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import (
    DEVICE,
    GRR,
    OUE,
    PGR,
    SUE,
    Cells,
    Mechanism,
    Memoized,
    MemoizedTwoLevel,
    Part,
    PrivSet,
    SquareWave,
    SubsetSelection,
    one_cell,
)
from dither_shared.rng import Rng
from tests.second.test_laws import CELLS, FOUR, FRESH, MEMOS, TWO
from tests.support.laws import law_of, law_of_class, repeats
from tests.support.node import DEVICE as SCRIPT
from tests.support.node import NOTHING, ROOT, SECRET, Device, NodeError
from tests.support.soaking import thinned

Law = dict[int | str, Fraction]
Answers = tuple[tuple[str, object], ...]


@frozen
class Asked:
    """A metric, and answers as expressions of JavaScript with the same ones in Python; None stands for nothing."""

    kind: str
    domain: Domain
    cells: Cells
    answers: Answers
    hidden: bool = False

    @property
    def plan(self) -> dict[str, Any]:
        """The plan's document."""
        return plan_of(self.cells, self.kind, self.domain.to_document(), presence="hidden" if self.hidden else "public")


def plan_of(cells: Cells, kind: str = "choice", domain: object = None, presence: str = "public") -> dict[str, Any]:
    values = {"domain": "values", "values": ["a", "b", "other"]}
    return {
        "metric": "asked", "rev": 1, "presence": presence, "kind": kind, "domain": domain or values,
        "cells": cells.to_document(),
    }  # fmt: skip


def possible(law: Iterable[tuple[Any, Fraction]]) -> Law:
    """Return a law without what has no probability, as a coin that never falls."""
    found: Law = defaultdict(Fraction)
    for outcome, probability in law:
        if probability:
            found[outcome] += probability
    return dict(found)


THREE, UNLISTED = ("a", "b", "other"), (("'a'", "a"), ("'b'", "b"), ("'c'", "c"), ("null", None), ("true", True))
NOTHING_SAID = (("NOTHING", NOTHING),)
FLAGS = (("true", True), ("false", False), ("undefined", None), ("'yes'", "yes"), ("1", 1))
SEVERAL: Answers = (
    ("[]", []), ("['b', 'a']", ["b", "a"]), ("new Set(['c', 'a', 'd'])", ["c", "a", "d"]), ("['other', 'b']", ["b", 5]),
    ("'b'", "b"), ("null", None),
)  # fmt: skip
NUMBERS = (
    *((text, float(text)) for text in ("-1e9", "0", "0.3", "2.5", "7", "1e300")),
    ("Infinity", float("inf")), ("-Infinity", float("-inf")), ("NaN", None), ("'5'", "5"), ("true", True), ("7n", 7),
)  # fmt: skip
WINDOW, MEAN = SquareWave.for_reach(4, 1, TWO), SquareWave.for_reach(3, 1, TWO)
EDGES, ENDS = Buckets((3, 25, 70), 1, "s"), Range((0, 5), 0, "s")
COLUMNS = (Values(("no", "yes", "other")), Buckets((0, 1), 0, ""), ENDS)
QUESTIONS, TWELVE = ((0, 1), (0, 2), (1, 2)), GRR.for_epsilon(12, TWO)
ROWS: Answers = (
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
            tuple(map(Part, (TWELVE, SubsetSelection.for_weight(9, 2, TWO), TWELVE))),
            public=2,
        ),
        ROWS,
    ),
    "hidden table": Asked(
        "table", Columns(("a", "b", "c"), COLUMNS, ((0, 1, 2),), True), one_cell(GRR.for_epsilon(37, TWO)),
        (*ROWS, *NOTHING_SAID), True,
    ),
}  # fmt: skip


@cache
def law_here(name: str, place: int, cell: int) -> Law:
    """Return the law of a report of one of the answers above in a cell."""
    asked = ASKED[name]
    kind, mechanism, answer = KINDS[asked.kind], asked.cells.mechanism_of(cell), asked.answers[place][1]
    read = kind.nothing(asked.domain) if answer is NOTHING else kind.read(answer, asked.domain)
    shape: Any = mechanism.shape

    def draw(rng: Rng) -> Any:
        return shape.to_wire(mechanism.randomize(kind.class_of(read, asked.domain, asked.cells, cell, rng), rng))

    return possible(law_of(draw).items())


# Generators of names: one for each law that is not the Python one.


def wrong_reports(device: Device, name: str) -> Iterator[str]:
    asked = ASKED[name]
    metric = device.metric(asked.plan)
    for cell in range(asked.cells.count):
        for place, (text, _) in enumerate(asked.answers):
            law = device.law("report", metric=metric, cell=cell, answer=text, secret="")
            if possible(law) != law_here(name, place, cell):
                yield f"{name}: {text} in cell {cell}"


def first_law(mechanism: Mechanism, law: dict[int, Fraction]) -> Law:
    shape: Any = mechanism.shape
    return {shape.to_wire(report): probability for report, probability in law.items()}


def drawn(device: Device, metric: int, value: Any, memos: dict[int | str, Any] | None = None) -> Law:
    """Return the law of the report or memo of a value, as on the wire; also note what each is."""
    law = device.law("draw", metric=metric, cell=0, value=as_json(value))
    if memos is not None:
        memos.update((written, report) for (report, written), _ in law)
    return possible((written, probability) for (_, written), probability in law)


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
        law = device.law("repeat", metric=metric, cell=0, memo=memos.get(shape.to_wire(first), 0))
        if possible(law) != first_law(mechanism, repeats(mechanism, first)):
            yield f"the fresh noise of {mechanism.name}"


def wrong_cells(device: Device) -> Iterator[str]:
    for cells in CELLS:
        metric = device.metric(plan_of(cells))
        for place in range(cells.public):
            asked: dict[str, Any] = {"metric": metric, "place": place}
            if cells.drawn == DEVICE:
                came = [device.call("cell", cohort=number, **asked) for number in range(128)]
                if came != [*map(cells.of_device, range(128))]:
                    yield "a device's cell"
            elif possible(device.law("cell", cohort=0, **asked)) != law_of(partial(cells.draw, public=place)):
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


def wrong(device: Device, of: str) -> Iterator[str]:
    """Yield what is wrong where a module of this name may be at fault."""
    if not of.startswith("domains"):
        yield from wrong_coins(device)
        yield from wrong_cells(device)
        yield from wrong_mechanisms(device)
    for name in sorted(ASKED, key=lambda name: ("table" in name) != of.endswith("columns.ts")):
        yield from wrong_reports(device, name)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device() as one:
        yield one


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """Start Node once for all copies with a bug, each of which it becomes in its turn."""
    with Device(planted(tmp_path_factory.mktemp("copy"), "report.ts", "", "")) as one:
        yield one


def test_coins_and_integers_are_compared_exactly(device: Device) -> None:
    assert [*wrong_coins(device)] == []


def test_cells_are_drawn_by_their_shares(device: Device) -> None:
    assert [*wrong_cells(device)] == []


def test_every_mechanism_and_memo_has_the_law_of_the_python_one(device: Device) -> None:
    assert [*wrong_mechanisms(device)] == []


@pytest.mark.parametrize("name", ASKED)
def test_a_report_of_every_kind_has_the_law_of_the_python_one(device: Device, name: str) -> None:
    assert [*wrong_reports(device, name)] == []


def test_a_law_is_that_of_the_decisions_that_are_made_here(device: Device) -> None:
    for name in ("hidden flag", "a number's mean"):
        metric = device.metric(ASKED[name].plan)
        for text, _ in ASKED[name].answers:
            asked: dict[str, Any] = {"metric": metric, "cell": 0, "answer": text, "secret": ""}
            here = law_of(partial(device.call, "report", **asked))
            assert possible(here.items()) == possible(device.law("report", **asked))


class Noting(Rng):
    """Notes what is drawn: integers with their bound, coins without their threshold, which may be a number's part."""

    def coin(self, threshold: int) -> bool:
        noted.append(2)
        return super().coin(threshold)

    def uniform(self, size: int) -> int:
        noted.append(-size)
        return 0


noted: list[int] = []


def draws(device: Device, asked: Asked, falls: int) -> set[tuple[int, ...]]:
    """Return what is drawn for each answer, where every coin falls or none does: one series of draws if all is well."""
    metric, found = device.metric(asked.plan), set()
    for text, _ in asked.answers:
        noted.clear()
        device.call("report", Noting(lambda count: falls), metric=metric, cell=0, answer=text, secret="")
        found.add(tuple(noted))
    return found


@pytest.mark.parametrize("name", ASKED)
def test_the_same_coins_are_drawn_whatever_the_answer(device: Device, name: str) -> None:
    for falls in (0, (1 << 64) - 1):
        assert len(draws(device, ASKED[name], falls)) == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "asked"),
    [
        ("mechanisms/symbols.ts", "const near =", "if (!value) return 0;\n    const near =", "hidden number"),
        ("domains/columns.ts", "for (const column of", "if (!question.nothing) for (const column of", "hidden table"),
    ],
)  # fmt: skip
def test_fewer_coins_for_some_answers_are_seen(
    copies: Device, tmp_path: Path, name: str, old: str, new: str, asked: str
) -> None:
    copies.become(planted(tmp_path, name, old, new))
    assert len(draws(copies, ASKED[asked], 0)) > 1


# Memos.


def bits_of_memo(context: str, secret: bytes = SECRET) -> Rng:
    """Return coins as the SDK draws a memo's: HMAC-SHA-256 of the context and a counter."""
    blocks = b"".join(hmac.digest(secret, f"{context}\n{count}".encode(), "sha256") for count in range(64))
    place = 0

    def randbits(count: int) -> int:
        nonlocal place
        taken = blocks[place : place + (count + 7) // 8]
        place += len(taken)
        return int.from_bytes(taken, "big") >> (-count & 7)

    return Rng(randbits)


KEEPS = Rng(lambda count: 0)
"""Every coin falls, so that a memo is kept."""


@pytest.mark.parametrize(("mechanism", "values"), MEMOS[:4], ids=lambda one: getattr(one, "name", ""))
def test_a_memo_is_drawn_by_the_device_s_secret_and_nothing_else(
    device: Device, mechanism: Memoized, values: dict[Any, int]
) -> None:
    key = "a" * 64
    metric = device.metric(plan_of(Cells((Part(mechanism, 2),), DEVICE)), key)
    for value in values:
        of = f"{sorted(value)}".replace(" ", "") if isinstance(value, frozenset) else str(value)
        for cell in (0, 1):
            _, memo = device.call(
                "draw", bits_of_memo(f"{key} {cell} {of}"), metric=metric, cell=0, value=as_json(value)
            )
            kept = partial(device.call, "report of class", KEEPS, metric=metric, cell=cell, secret=SECRET.hex())
            assert kept(**{"class": of}) == memo


def wrong_repeats(device: Device) -> Iterator[str]:
    """Hold reports of a memoized answer: fresh noise on the memo that each of 100 secrets tells."""
    mechanism, key, memos = MEMOS[0][0], "c" * 64, set()
    metric = device.metric(plan_of(one_cell(mechanism)), key)
    for number in range(100):
        secret = number.to_bytes(32, "big")
        memo, _ = device.call("draw", bits_of_memo(f"{key} 0 0", secret), metric=metric, cell=0, value=0)
        law = device.law("report", metric=metric, cell=None, answer="'a'", secret=secret.hex())
        if possible(law) != possible(repeats(mechanism, memo).items()):
            yield f"a report of the memo {memo}"
        memos.add(memo)
    assert memos == {0, 1, 2}


def test_each_report_has_fresh_noise_on_the_memo_of_its_secret(device: Device) -> None:
    assert [*wrong_repeats(device)] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("repeat(made, permanent, coins)", "repeat(made, permanent, lasting)"),
        ("JSON.parse(memoClass) as Value, lasting)", "JSON.parse(memoClass) as Value, coins)"),
        ("keyedBlocks(secret, context)", "keyedBlocks(secret.fill(0), context)"),
    ],
    ids=["noise that is repeated", "a memo that is not", "a memo of everybody"],
)
def test_a_memo_that_is_none_is_seen(copies: Device, tmp_path: Path, old: str, new: str) -> None:
    copies.become(planted(tmp_path, "report.ts", old, new))
    assert next(wrong_repeats(copies), "")


STEPS = Thresholds((0, 10, 25, 70, 100), 1, "s")
ABOVE = Asked(
    "number", STEPS,
    Cells((Part(MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(2, FOUR), TWO), 4),), DEVICE), NUMBERS,
)  # fmt: skip


def test_a_memoized_number_is_compared_with_the_threshold_that_the_secret_tells(device: Device) -> None:
    key = "b" * 64
    metric = device.metric(ABOVE.plan, key)
    drawn_once = bits_of_memo(f"{key} class").randbits(64)
    for text, answer in NUMBERS:
        placed = KINDS["number"].read(answer, STEPS)
        assert isinstance(placed, tuple)
        for cell in range(4):
            part = placed[1]
            for threshold in {0, max(part - 1, 0), min(part, (1 << 64) - 1), (1 << 64) - 1}:
                arguments: dict[str, Any] = {"metric": metric, "cell": cell, "answer": text}
                value = device.call("value", threshold=str(threshold), **arguments)
                assert value == STEPS.passes(placed, cell, Rng(lambda count, drawn=threshold: drawn))  # type: ignore[misc]
            of = device.call("class", secret=SECRET.hex(), **arguments)
            assert of == str(int(STEPS.passes(placed, cell, Rng(lambda count: drawn_once))))


def test_the_system_s_coins_use_all_bits_and_repeat_none(device: Device) -> None:
    # Each of 64 bits is set in 256 draws but with probability 2^-249; two of them are equal with less than 2^-48.
    drawn = [int(one) for one in device.call("system", count=64, times=256)]
    assert len(set(drawn)) == 256
    assert max(drawn) < 1 << 64
    for bit in range(64):
        assert {one >> bit & 1 for one in drawn} == {0, 1}


def test_what_is_not_known_is_never_recorded_by_another_s_rules(device: Device) -> None:
    flag = ASKED["flag"].plan
    (part,) = flag["cells"]["parts"]
    for spoiled in (
        {**flag, "kind": "mood"},
        {**flag, "domain": {"domain": "toString"}},
        {**flag, "cells": {**flag["cells"], "parts": [{**part, "mechanism": "laplace"}]}},
    ):
        with pytest.raises(NodeError, match=r"unknown (kind mood|toString|laplace)"):
            device.metric(spoiled)


# Bugs.

PLANTED = {
    "a coin too many": ("coins.ts", "this.bits64() < threshold", "this.bits64() <= threshold"),
    "a coin off by one": ("coins.ts", "this.bits64() < threshold", "this.bits64() < threshold - 1n"),
    "a coin of floats": ("coins.ts", "this.bits64() < threshold", "Number(this.bits64()) < Number(threshold)"),
    "a coin of random()": ("coins.ts", "this.bits64() < threshold", "Math.random() * 2 ** 64 < Number(threshold)"),
    "a modulo": ("coins.ts", "if (drawn < bound) return drawn", "return drawn % bound"),
    "a bit too many": ("coins.ts", "(bound - 1n).toString", "bound.toString"),
    "no weights": ("report.ts", "if (left < cells * weight)", "if (left < cells)"),
    "another order of public values": ("report.ts", "publicIndex * each", "publicIndex"),
    "the answer among the others": ("mechanisms/symbols.ts", "other + Number(other >=", "other + Number(other >"),
    "one other too few": ("mechanisms/symbols.ts", "other = below(coins, d - 1)", "other = below(coins, d - 2)"),
    "a coin turned round": ("mechanisms/symbols.ts", "return truth ?", "return !truth ?"),
    "a window too narrow": ("mechanisms/symbols.ts", "const width = 2 * reach + 1", "const width = 2 * reach"),
    "the number's place where it has none": ("mechanisms/symbols.ts", "if (value === undefined) return anywhere;", ""),
    "a vector too few": ("mechanisms/symbols.ts", "1 + below(coins, others - 1)", "1 + below(coins, others - 2)"),
    "points in order": ("mechanisms/symbols.ts", "walk(all - 1 - number, 3, prime, all)", "number"),
    "numbers in order": ("mechanisms/symbols.ts", "all - 1 - walk(place, (2 * prime - 1) / 3, prime, all)", "place"),
    "swapped thresholds": ("mechanisms/sets.ts", "set.has(bit) ? one : zero", "set.has(bit) ? zero : one"),
    "a float of a threshold": ("report.ts", "BigInt(text) : Number(text)", "BigInt(Number(text)) : Number(text)"),
    "a subset too light": ("mechanisms/sets.ts", "subset(d - 1, weight, coins)]", "subset(d - 1, weight - 1, coins)]"),
    "no dummies": ("mechanisms/sets.ts", "held.length < ticks; dummy++", "held.length < 1; dummy++"),
    "a memo that is always kept": ("report.ts", "return kept ? memo : other", "return memo"),
    "flips of the memo swapped": (
        "mechanisms/sets.ts", "SCALE - threshold_flip, threshold_flip", "threshold_flip, SCALE - threshold_flip",
    ),
    "the edge below": ("domains/numbers.ts", "edge * denominator <= numerator", "edge * denominator < numerator"),
    "a float of a number": ("domains/numbers.ts", ": answer; // beyond", ": Math.round(Number(answer)); // beyond"),
    "one tick too many": ("domains/values.ts", "slice(0, integers.ticks)", "slice(0, integers.ticks + 1)"),
    "no normal form": ("domains/texts.ts", "return text.replace(FORMED, (part) => part.normalize());", "return text;"),
    "the rows of a text": ("domains/texts.ts", "|${cell}`", "|0`"),
    "the first column fastest": ("domains/columns.ts", "place * symbols + symbol", "place + size * symbol"),
}  # fmt: skip
"""`make test` plants one of each sort in each module; a soak all."""


def planted(place: Path, name: str, old: str, new: str) -> Path:
    """Return the script of a copy of the SDK with a bug."""
    shutil.copytree(ROOT / "client" / "web" / "src", place / "client" / "web" / "src")
    script = place / "tests" / "web" / SCRIPT.name
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    spoiled = place / "client" / "web" / "src" / name
    text = spoiled.read_text(encoding="utf-8")
    assert old in text
    spoiled.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return script


@pytest.mark.parametrize("bug", thinned([*PLANTED], 0, 3, 4, 6, 8, 11, 14, 16, 19, 21, 22, 24, 26, 27))
def test_a_planted_bug_is_another_law(copies: Device, tmp_path: Path, bug: str) -> None:
    copies.become(planted(tmp_path, *PLANTED[bug]))
    try:
        found = next(wrong(copies, PLANTED[bug][0]), "")
    except NodeError as error:  # as where a number that is none comes of it
        found = str(error)
    assert found
