"""The alphabets: tables are those of the counts, every text can be coded, and only what a device writes is read."""

import importlib.resources
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.commands.metrics.compiling import document_of
from dither_aggregator.operations.registry_process import read_apart
from dither_aggregator.store.documents import Offered
from dither_shared.errors import InvalidParameter, RegistryError
from dither_shared.frozen import canonical_json, sha256
from dither_shared.registry import Registry
from dither_shared.words import alphabets
from dither_shared.words.alphabets import ALPHABETS, LENGTH_MAX, Alphabet, alphabet_of, codes_in, is_own, know, load
from dither_shared.words.code import NONE_BYTE, OTHER_BYTE, PREFIX_MAX, Groups, prefix_of
from dither_shared.words.prefixes import read_prefix
from tests.benchmarks.words.scripts import PACKAGES, SITES, unlisted
from tests.code_table import making
from tests.code_table.__main__ import TABLES, written
from tests.code_table.making import GIVEN, GROWN, grouped_words, pieces_of, tables
from tests.code_table.sources import APPS
from tests.support.registries import registry_text
from tests.support.soaking import scaled

TEXTS = (
    "",
    "a",
    "Привет",
    "北京",
    "com.google.android.apps",
    "comorg.",
    "Ж a",
    "日本語テスト",
    "नमस्ते",
    "\0",
    "🦉",
    "a\x7f",
)
COMMON = {
    "latin": "Straße année größer niño część",
    "cyrillic": "Россия Украина температура женщина",
    "greek": "Ελλάδα καρδιά πρόσωπο",
    "arabic": "مصر السعودية قلب",
    "hebrew": "ישראל פנים לב",
    "devanagari": "भारत चेहरा हृदय",
    "cjk": "中国 微笑 北京",
    "kana": "日本 ハート かお",
    "hangul": "한국 얼굴 하트",
    "identifier": "com.android.chrome org.gnome.maps python-dev",
    "domain": "example.com www.debian.org",
    "package": "com.android.chrome org.gnome.maps com.example.mobile",
    "site": "example.com www.debian.org",
}
"""Words of each alphabet."""


def alphabet(name: str) -> Alphabet:
    return alphabet_of(load(name)[0])


def bits(text: str, coded: Alphabet | None) -> int:
    typed = text.encode()
    return sum(more for _, more in (coded.codes_in(typed) if coded else codes_in(typed)))


def test_the_tables_are_those_of_the_counts() -> None:
    made = tables()
    assert set(made) == set(ALPHABETS) == {path.stem for path in TABLES.glob("*.json")}
    for name, document in made.items():
        assert (TABLES / f"{name}.json").read_text("utf-8") == written(document), name


def test_the_tables_take_little_room() -> None:
    assert sum(path.stat().st_size for path in TABLES.glob("*.json")) < 104 * 1024


DIGESTS = {
    "latin": "2f149f838924c01e",
    "cyrillic": "ac5ca01b8e0d85d0",
    "greek": "0b105f1c804148a2",
    "arabic": "0b384a7664168f7c",
    "hebrew": "a3005f94ad9f6a29",
    "devanagari": "882e14fa2a635b0d",
    "cjk": "8fb67a224966631f",
    "kana": "98a99edf52e5a957",
    "hangul": "f68ae132ff90c527",
    "identifier": "53f8d2aaac2faca9",
    "domain": "16d87c6947a6c61b",
    "package": "c104fdfe92eaefd8",
    "site": "204e655805a303ee",
    "any": "07703c93f114de31",
}
"""The beginnings of the digests by which plans name the tables: a better table takes another name."""


def test_a_table_keeps_the_digest_that_plans_have() -> None:
    assert {name: load(name)[0][:16] for name in ALPHABETS} == DIGESTS


def test_the_apps_that_are_listed_for_a_table_are_none_that_the_benchmark_looks_for() -> None:
    assert not {*APPS.read_text("utf-8").split()} & {*PACKAGES.split()}


def test_a_name_of_one_letter_is_not_listed() -> None:
    """Each letter is a character of the table: that x.com has one is no reason to count it among the listed."""
    assert unlisted("site", ["x.com", "facebook.com", "vk.com"]) == ["x.com", "vk.com"]


@pytest.mark.parametrize(
    ("name", "before", "names", "part", "part_of_others"),
    [("site", "domain", SITES, 0.7, 0.95), ("package", "identifier", PACKAGES, 0.67, 0.86)],
)
def test_names_are_shorter_than_in_the_table_before(
    name: str, before: str, names: str, part: float, part_of_others: float
) -> None:
    assert len(alphabet(name).scripts[0].pieces) == GROWN[name]
    others = [*unlisted(name, names.split())]
    assert len(names.split()) / 3 < len(others) < len(names.split())
    for those, least in ((names.split(), part), (others, part_of_others)):
        own, other = (sum(bits(each, alphabet(one)) for each in those) for one in (name, before))
        assert own < least * other


def test_pieces_are_what_comes_together_and_not_parts_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(making.PIECES, "site", (".com",))
    monkeypatch.setitem(making.GROWN, "site", 12)
    texts = [(f"{letter}network{letter}.com", 5.0) for letter in "abcdfghijlm"]
    assert pieces_of("site", texts) == [".com", "network"]


def test_words_are_those_that_save_the_most_and_the_usual_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(making.WORDS, "site", (1, 2))
    known = {"news": 1.0, "network": 1.0, "weather": 1.0, "cat": 5.0}
    texts = [("network.com", 2.0), ("weathers.com", 5.0), ("network.org", 1.0)]
    assert grouped_words("site", texts, known) == [["weather"], ["network", "news"]]
    assert grouped_words("cjk", texts, {}) == []


def test_a_word_is_the_code_of_its_group_and_its_place() -> None:
    script = {
        "groups": ["ab", "c"],
        "pieces": ["ca"],
        "words": ["abba acab baba caca"],
        "after": "aaaa",
        "lengths": ["ccccbb", "ccccbb"],
    }
    coded = Alphabet.from_document({"scripts": [script], "choice": "aa"})
    end, word = (0, 2), (7, 3)
    assert [*coded.codes_in(b"caca")] == [word, (3, 2), end]
    assert [*coded.codes_in(b"abbacacac")] == [word, (0, 2), word, (3, 2), (5, 3), end]
    assert [*coded.codes_in(b"cab")] == [(6, 3), (4, 3), (1, 1), end]
    for text in ("caca", "abab", "cabbac"):
        start = read_prefix(prefix_of(text.encode(), 60, coded), 60, alphabet=coded)
        assert (start.typed, start.ended, start.possible) == (text.encode(), True, True)
    # A device writes "ca" and "ca" as the word.
    assert not read_prefix(0b11011000 << 52, 60, alphabet=coded).possible
    for words in ("abba acab caca", "abba abba", "abba a", ""):
        with pytest.raises(InvalidParameter, match=r"groups of 2\^k characters or words, each once"):
            Alphabet.from_document({"scripts": [{**script, "words": [words]}], "choice": "aa"})


@pytest.mark.parametrize("name", ALPHABETS)
def test_codes_fill_each_row_and_no_character_has_two(name: str) -> None:
    coded = alphabet(name)
    for row in (coded.choice, *(row for script in coded.scripts for row in script.lengths)):
        assert max(row) <= LENGTH_MAX
        assert sum(Fraction(1, 1 << length) for length in row) == 1
    for script in coded.scripts:
        assert all(len(group).bit_count() == 1 for group in (*script.groups, *script.words))
        assert len(script.symbols) == sum(map(len, (*script.groups, *script.words))) + len(script.pieces)
        assert max(script.after) < len(script.lengths)
        assert {len(row) for row in script.lengths} == {script.end + 2}
    assert not (coded.others and any(script.pieces or script.words for script in coded.scripts))


@pytest.mark.parametrize("name", ALPHABETS)
def test_levels_can_be_searched_and_verification_has_its_part(name: str) -> None:
    _, levels, weights = load(name)
    assert Groups("homepage", levels).count == len(weights)
    least = 0.15 if name in GIVEN else 0.28
    assert least < weights[-1] / sum(weights) < 0.32


@pytest.mark.parametrize("name", ALPHABETS)
@settings(max_examples=scaled(10, 100))
@given(text=st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.sampled_from(TEXTS)))
def test_what_is_read_is_the_text_or_its_start(name: str, text: str) -> None:
    coded = alphabet(name)
    typed, whole = text.encode(), bits(text, coded)
    for length in (1, 18, 34, 50, PREFIX_MAX):
        start = read_prefix(prefix_of(typed, length, coded), length, alphabet=coded)
        assert start.possible
        assert typed.startswith(start.typed)
        assert start.ended == (whole <= length)
        first = read_prefix(prefix_of(typed, 18, coded), 18, alphabet=coded)
        if length > 18 and not first.ended:
            assert read_prefix(prefix_of(typed, length, coded), length - 18, first, coded) == start


@pytest.mark.parametrize("name", ALPHABETS)
def test_what_is_no_text_can_be_coded(name: str) -> None:
    for typed in (OTHER_BYTE, NONE_BYTE):
        start = read_prefix(prefix_of(typed, PREFIX_MAX, alphabet(name)), PREFIX_MAX, alphabet=alphabet(name))
        assert (start.typed, start.ended, start.possible) == (typed, True, True)


@pytest.mark.parametrize("name", ALPHABETS)
def test_any_bits_are_a_start_that_a_device_writes_or_refused(name: str) -> None:
    coded, draw = alphabet(name), random.Random(1)
    possible = 0
    for _ in range(scaled(300, 1_000)):
        length = draw.choice((18, 34, 66))
        prefix = draw.getrandbits(length)
        start = read_prefix(prefix, length, alphabet=coded)
        possible += start.possible
        if start.possible and start.ended:
            assert prefix_of(start.typed, length, coded) == prefix
        elif start.possible and start.typed:
            code = filled = 0
            for part, more in list(coded.codes_in(start.typed))[:-1]:
                code, filled = code << more | part, filled + more
            assert prefix >> length - filled == code
    assert possible > 30


@pytest.mark.parametrize("name", COMMON)
def test_words_of_an_alphabet_are_shorter_than_in_english(name: str) -> None:
    for word in COMMON[name].split():
        assert bits(word, alphabet(name)) < bits(word, None), word


def test_any_alphabet_costs_a_choice_more_than_that_of_the_word() -> None:
    for name in ("latin", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "cjk", "hangul"):
        for word in COMMON[name].split():
            assert 1 <= bits(word, alphabet("any")) - bits(word, alphabet(name)) <= 6, word


def test_an_app_alone_needs_the_compiled_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = registry_text(kind="words", reports=1, color='alphabet = "greek"')
    asked = Registry.parse(text)
    (tmp_path / "metrics.json").write_bytes(canonical_json(document_of(asked)))
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    monkeypatch.setattr(alphabets, "_known", {})
    with pytest.raises(RegistryError, match="greek has no table here: install dither-aggregator"):
        Registry.parse(text)
    assert Registry.load(tmp_path / "metrics.json").metrics["color"].plan == asked.metrics["color"].plan


def test_an_alphabet_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="install the one that has it"):
        alphabet_of("0" * 64)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Alphabet]:
    """The alphabets that a process knows: none at first."""
    known: dict[str, Alphabet] = {}
    monkeypatch.setattr(alphabets, "_known", known)
    return known


def another(change: str) -> dict[str, Any]:
    """Return the table of Greek, changed."""
    table: dict[str, Any] = json.loads(canonical_json(alphabet("greek").document))
    script = table["scripts"][0]
    rows = script["lengths"]
    match change:
        case "swapped":
            script["groups"][:2] = script["groups"][1::-1]
        case "no bits":
            script["lengths"] = ["`" * len(row) for row in rows]
        case "long codes":
            script["lengths"] = ["~" * len(row) for row in rows]
        case "unfilled":
            rows[0] = rows[0].replace(max(rows[0]), chr(ord(max(rows[0])) + 1), 1)
        case "few classes":
            del rows[2:]
        case "no scripts":
            table["scripts"] = []
        case "twice":
            script["groups"][1] = script["groups"][0]
        case "three":
            script["groups"][0] = "абв"
        case "no choice":
            table["choice"] = ""
        case "a text of groups":
            script["groups"] = "".join(script["groups"])
            script["after"] = "a" * len(script["groups"])
            script["lengths"] = [full_row(len(script["groups"]) + 2)] * 2
        case "no text of words":
            script["words"] = ""
        case "letters apart":
            script["after"] = [*script["after"]]
    return table


def full_row(symbols: int) -> str:
    """Return the lengths of a full code: of all symbols alike, as far as that goes."""
    longest = (symbols - 1).bit_length()
    short = (1 << longest) - symbols
    return chr(ord("a") + longest - 2) * short + chr(ord("a") + longest - 1) * (symbols - short)


NO_LISTS = ("a text of groups", "no text of words", "letters apart")
"""Tables of which a device in Python could make codes, and one in another language could not."""
BROKEN = ("no bits", "long codes", "unfilled", "few classes", "no scripts", "twice", "three", "no choice", *NO_LISTS)


@pytest.mark.parametrize("change", BROKEN)
def test_a_table_by_which_no_text_is_coded_is_refused(change: str, known: dict[str, Alphabet]) -> None:
    table = another(change)
    known.clear()
    with pytest.raises((InvalidParameter, ValueError)):
        know(table)
    assert not known


def compiled(table: object, of_plan: bool) -> str:
    """Return a compiled registry with another table, whose digest its plan may name; without one for None."""
    text = registry_text(kind="words", reports=1, color='alphabet = "greek"')
    document: dict[str, Any] = json.loads(canonical_json(document_of(Registry.parse(text))))
    metric = next(one for one in document["metrics"] if one["plan"]["metric"] == "color")
    metric["alphabet"] = table
    if table is None:
        del metric["alphabet"]
    if of_plan:
        metric["plan"]["domain"]["alphabet"] = sha256(table)
    del document["digest"]
    return json.dumps({**document, "digest": sha256(document)})


@pytest.mark.parametrize("table", [None, another("swapped")], ids=["none", "another"])
def test_a_compiled_registry_must_have_the_table_that_its_plan_names(table: object, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(compiled(table, of_plan=False), encoding="utf-8")
    with pytest.raises(RegistryError, match="must have the alphabet that its plan names"):
        Registry.load(tmp_path / "metrics.json")


REFUSED = r"metric\.color: its alphabet, .*, is not one of this dither's: install the dither that has it"


def test_a_device_takes_a_later_table_and_a_store_does_not(known: dict[str, Alphabet], tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(compiled(another("swapped"), of_plan=True), encoding="utf-8")
    later = Registry.load(tmp_path / "metrics.json")
    digest = sha256(another("swapped"))
    assert later.metrics["color"].plan.to_document()["domain"]["alphabet"] == digest  # type: ignore[index]
    assert digest in known
    assert not is_own(digest)
    assert is_own(load("greek")[0])
    with pytest.raises(RegistryError, match=REFUSED):
        Offered.of(later)
    with pytest.raises(RegistryError, match=REFUSED):
        read_apart(tmp_path / "metrics.json")
