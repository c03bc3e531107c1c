"""The web SDK says what the vectors say, and places texts, words and numbers where the Python SDK does."""

import json
import random
import shutil
from collections.abc import Collection, Iterator
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path
from typing import Any

import pytest

from dither_shared.domains.coded_words import Coded
from dither_shared.domains.number_ranges import Buckets, Range
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import GRR, PGR, Cells, Part, one_cell
from dither_shared.rng import SCALE, Rng
from dither_shared.text_normalization import UNSEEN, folded, normal, unseen
from dither_shared.words import alphabets
from dither_shared.words.alphabets import ALPHABETS, load
from tests.second.test_laws import TWO
from tests.support.node import ROOT, Device, run
from tests.support.soaking import scaled, thinned
from tests.web.tables import DOMAINS, MODULES, formed, newer, runs
from tests.web.test_laws import plan_of, planted

SCRIPT = Path(__file__).with_name("vectors.ts")
COUNTS = {
    "plans": 25,
    "answers": 290,
    "points": 100,
    "rappor": 15,
    "texts": 710,
    "uploads": 21,
    "compiled": 31,
    "devices": 555,
}
"""At least so many checks each: a vector that is not looked at would be none."""


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device() as one:
        yield one


# Vectors.


def failures(script: Path, names: Collection[str] = COUNTS) -> dict[str, list[str]]:
    held: dict[str, Any] = json.loads(run(script, *names))
    assert {name: each["count"] >= COUNTS[name] for name, each in held.items()} == dict.fromkeys(names, True)
    return {name: each["failures"] for name, each in held.items() if each["failures"]}


def test_every_vector_holds_in_node() -> None:
    assert failures(SCRIPT) == {}


@pytest.mark.parametrize(
    ("name", "old", "new", "seen"),
    thinned(
        [
            ("sha256.ts", "turned(early, 18)", "turned(early, 17)", {"plans", "compiled"}),
            ("domains/bloom.ts", "7, 12, 17, 22", "7, 12, 17, 21", {"rappor"}),
            ("domains/coded.ts", "code *= 2", "code *= 1", {"answers"}),
            ("domains/coded.ts", "state = 1;", "state = 0;", {"answers"}),
            ("domains/texts.ts", "return text.replace(FORMED,", "return text.replace(/^.*$/su,", {"texts"}),
            ("domains/texts.ts", ".replace(JOINED", ".replace(VARIED", {"texts"}),
            ("domains/values.ts", 'listed.indexOf("none")', "listed.length", {"answers"}),
            ("mechanisms/symbols.ts", "all - 1 - number, 3", "number, 3", {"points"}),
            ("mechanisms/sets.ts", "bit >> 3", "bit >> 2", {"uploads"}),
            ("device.ts", "RETIRED_DAYS = 30", "RETIRED_DAYS = 29", {"devices"}),
        ],
        *(0, 1, 3, 5, 7, 8, 9),  # one in each set of vectors
    ),
    ids=lambda one: one if isinstance(one, str) and one.endswith(".ts") else "",
)
def test_a_spoiled_rule_is_seen_in_the_vectors(tmp_path: Path, name: str, old: str, new: str, seen: set[str]) -> None:
    planted(tmp_path, name, old, new)
    room = Path("client", "web", "test")
    shutil.copytree(ROOT / room, tmp_path / room)
    script = tmp_path / "tests" / "web" / SCRIPT.name
    script.write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "tests" / "vectors").symlink_to(ROOT / "tests" / "vectors")
    assert failures(script, seen).keys() == seen


# Texts.


def test_tables_are_those_of_the_python_sdk() -> None:
    for name, made in MODULES.items():
        assert (DOMAINS / name).read_text(encoding="utf-8") == made(), f"python -m tests.web.tables writes {name}"


def test_runs_tell_what_unicode_14_forms_from_what_it_does_not_have() -> None:
    at, parts = 0, False
    for length in (*runs(), 0x110000):
        run_of_points = range(at, min(at + length, 0x110000))
        assert (formed() if parts else newer()).isdisjoint(run_of_points)
        at, parts = at + length, not parts


def wrong_texts(device: Device, texts: list[str]) -> list[str]:
    came = device.call("texts", texts=texts)
    expected = [
        [form := normal(text), folded(form.strip()), not unseen(form)] for text in texts
    ]  # as a text, as a word without capitals, and whether it is told
    return [text for text, one, other in zip(texts, came, expected, strict=True) if one != other]


def test_every_character_has_the_form_that_the_python_sdk_gives_it(device: Device) -> None:
    points = [point for point in (*range(0x32000), *range(0xE0000, 0xE0200)) if not 0xD800 <= point < 0xE000]
    step = scaled(27, 1)
    for place in range(0, len(points), 10_000):
        characters = map(chr, points[place : place + 10_000 : step])
        texts = [text for one in characters for text in (one, f"e{one}\u0301", f"\u0915{one}\u200d{one}")]
        assert wrong_texts(device, texts) == []


PIECES = [
    *"aeK*#09 \u0301\u0323\u0327\u0345\u00df\u0130\u0131\u03c2\u03a3\u0149\u1e9e\u1f88\u212a\u0958\u1100\u1161\u11a8",
    *"\uac00\u0f73\u2126\U0001d15e\u0627\u0646\U0001f469\U0001f52c\u13a0\uab70\u200c\u200d\ufe0e\ufe0f\u180b\u202e",
    *"\u3000\x85\x1c\n\u0378\U0001e4ec\U000105c9\U000105d2\ua7cb\u0264\u1c89\U00010d50",
    *UNSEEN[:3],
]


def test_texts_of_many_characters_have_the_same_forms(device: Device) -> None:
    draw = random.Random(42)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(1, 9))) for _ in range(scaled(6_000, 400_000))]
    for place in range(0, len(texts), 10_000):
        assert wrong_texts(device, texts[place : place + 10_000]) == []


def test_a_parted_text_is_seen_if_it_is_not(tmp_path: Path) -> None:
    script = planted(tmp_path, "domains/texts.ts", "(part) => part.normalize())", "(part) => part.normalize('NFD'))")
    with Device(script) as device:
        assert wrong_texts(device, ["Caf\u00e9"])


# Words.

WORDS = {
    "as they are": Coded("asked", (18, 34, 50)),
    "without capitals": Coded("asked", (16, 30, 44, 58, 72, 86), casefold=True, characters_max=20),
} | {name: Coded("asked", (16, 30, 44, 58, 72, 86), alphabet=load(name)[0]) for name in ALPHABETS}


@pytest.mark.parametrize("name", WORDS)
def test_words_have_the_buckets_of_the_python_sdk(device: Device, name: str) -> None:
    domain, kind = WORDS[name], KINDS["words"]
    cells = Cells((Part(PGR.for_design(1 << 17, 7, 7, TWO), 4 * domain.groups.count),))
    metric = device.metric(plan_of(cells, "words", domain.to_document()), alphabet=domain.table)
    draw = random.Random(7)
    letters = [*map(chr, range(0x20, 0x7F)), *PIECES]
    if domain.groups.alphabet:
        for script in domain.groups.alphabet.scripts:
            letters += (
                *script.groups,
                *script.pieces,
                *(text for words in script.words for text in draw.sample(words, 4)),
            )
    for _ in range(scaled(100, 5_000)):
        text = "".join(draw.choices(letters, k=draw.randint(0, 24)))
        cell = draw.randrange(cells.count)
        expected = domain.bucket(kind.read(text, domain), cell)
        came = device.call("value", metric=metric, cell=cell, answer=json.dumps(text), threshold="0")
        assert came == expected, text


def test_an_answer_that_is_no_text_is_no_half_of_a_character(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its character, DCFE, is the second half of U+1F4FE in JavaScript, which a script may have."""
    monkeypatch.setattr(alphabets, "_known", {})
    scripts = [
        {"groups": [group], "pieces": [], "after": "a", "lengths": ["abb"] * 2} for group in ("ab", "\U0001f4fe")
    ]
    domain = Coded("asked", (18, 34, 50), alphabet=alphabets.know({"scripts": scripts, "choice": "bbbb"}))
    cells = Cells((Part(PGR.for_design(1 << 17, 7, 7, TWO), 4 * domain.groups.count),))
    metric = device.metric(plan_of(cells, "words", domain.to_document()), alphabet=domain.table)
    for cell in range(cells.count):
        for answer, expression in ((None, "3"), ("\U0001f4fea", '"\U0001f4fea"')):
            expected = domain.bucket(KINDS["words"].read(answer, domain), cell)
            assert device.call("value", metric=metric, cell=cell, answer=expression, threshold="0") == expected


# Numbers.


class Noting(Rng):
    """Notes the threshold of its one coin, which does not fall."""

    def coin(self, threshold: int) -> bool:
        noted.append(threshold)
        return False


noted: list[int] = []


def floats_near(draw: random.Random, edges: list[int], decimals: int) -> Iterator[float | int]:
    """Yield numbers on edges, beside them by one bit, and anywhere, down to the smallest and up to the largest."""
    for edge in edges:
        number = edge / 10**decimals
        yield from (number, nextafter(number, inf), nextafter(number, -inf), edge // 10**decimals)
    yield from (0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.7976931348623157e308, 2**53 + 1, 10**19, 0.1 + 0.2)
    for _ in range(scaled(30, 3_000)):
        yield draw.uniform(edges[0] - 5, edges[-1] + 5) / 10**decimals


def as_expression(number: float) -> str:
    return f"{number}n" if isinstance(number, int) else repr(number)


@pytest.mark.parametrize("decimals", [0, 1, 3, 9])
def test_numbers_are_compared_as_the_fractions_that_they_are(device: Device, decimals: int) -> None:
    draw = random.Random(decimals)
    edges = [*sorted(draw.sample(range(-(10**6), 10**6), 11)), 10**18]
    buckets, ends = Buckets(tuple(edges), decimals, "s"), Range((edges[0], edges[-1]), decimals, "s")
    grr = device.metric(plan_of(one_cell(GRR.for_epsilon(13, TWO)), "number", buckets.to_document()))
    grid = device.metric(plan_of(one_cell(GRR.for_epsilon(65, TWO)), "number", ends.to_document()))
    for number in floats_near(draw, edges, decimals):
        arguments: dict[str, Any] = {"cell": 0, "answer": as_expression(number), "threshold": "0"}
        steps = Fraction(number) * 10**decimals
        assert device.call("value", metric=grr, **arguments) == sum(edge <= steps for edge in edges)
        part = min(max((steps - edges[0]) * SCALE // (edges[-1] - edges[0]), 0), SCALE)
        below, rest = divmod(int(part) * 64, SCALE)
        noted.clear()
        assert device.call("value", Noting(lambda count: 0), metric=grid, **arguments) == below
        assert noted == [rest]
