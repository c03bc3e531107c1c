"""Texts have one form, whatever Python runs, and hold no character that nobody sees."""

import random
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dither_shared import text_normalization
from dither_shared.domains import Columns, Values
from dither_shared.errors import RegistryError
from dither_shared.files import line_of_item
from dither_shared.kinds import KINDS
from dither_shared.registry import Metric, Registry
from dither_shared.text_normalization import COMPOSED_MAX, folded, newer, normal, unseen
from tests.pinned.comparing import load
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled
from tests.support.tables import table

SHARED = Path(__file__).parents[2] / "shared"
PYTHONS = [sys.executable, *map(str, sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python")))]
"""This one, and those that are there with other versions of Unicode."""
FORMS = """
import hashlib, sys
from dither_shared.text_normalization import folded, normal, unseen

digest = hashlib.sha256()
newer = [*range(0x10EC0, 0x10F00), *range(0x1E4D0, 0x1E500), *range(0x10D40, 0x10D90), *range(0x105C0, 0x105F8)]
for point in [*range(0x80, 0xD800, STEP), *range(0xE000, 0x32000, STEP), *newer]:
    one = chr(point)
    for text in (one, f"a{one}\\u0301\\u0327", f"{one}\\u0307\\u0323"):
        form = normal(text)
        digest.update(f"{form}\\0{folded(form)}\\0{unseen(form)}\\0{form.strip()}\\0".encode())
print(digest.hexdigest())
"""
DIGESTS = {
    1: "33887565ca80f17aab7f14878f08a60fd046e9bd0ff52eed486df17b9e2e70e2",
    97: "b048ce82268f9a99cb4b7f3daad31a8eaed4612fb1be5fd7fdfaa166e0133bad",
}
"""By step, as Python 3.11 gives them, whose Unicode is 14."""
WAYS = [("Café", "Cafe\u0301"), ("q\u0323\u0307", "q\u0307\u0323"), ("Å", "\u212b"), ("한", "\u1112\u1161\u11ab")]
"""Words, each as NFC has it and in another way."""
HELD = [
    "1\ufe0f\u20e3",
    "❤\ufe0f\u200d🔥",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u0646\u200c\u0645",
    "☎\ufe0f",
]
"""Texts that people write with joiners and choices of a form."""
HIDDEN = {
    "a\u202eb": "U+202E",
    "zero\u200bwidth": "U+200B",
    "soft\u00adhyphen": "U+00AD",
    "\u2066inside\u2069": "U+2066",
    "mark\u200f": "U+200F",
    "\ufeffbegins": "U+FEFF",
    "hangul\u3164": "U+3164",
    "tag\U000e0041": "U+E0041",
    "fire\u200dfox": "U+200D",
    "fire\ufe0ffox": "U+FE0F",
    "日\u200d\u200d本": "U+200D",
    "☎\ufe0f\ufe0f": "U+FE0F",
    "本\u3000\u200d本": "U+200D",
    "\ue000": "U+E000",
}


def strange(seed: int, n: int) -> Iterator[str]:
    """Yield texts of letters, marks, what is hidden, and characters drawn from all there are."""
    chance = random.Random(seed)
    marks = "\u0301\u0307\u0323\u0327\u0345\u1161\u11a8\u0c3e\u200c\u200d\ufe0f"
    for _ in range(n):
        drawn = [chance.randrange(most) for most in (0x3000, 0x3000, 0x3000, 0x20000, sys.maxunicode + 1)]
        parts = [*"aeΣ ", *marks, *map(chr, drawn)]
        text = "".join(chance.choices(parts, k=chance.randrange(1, 9)))
        yield text.encode("utf-8", "replace").decode()


# One form.


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_gives_a_text_the_same_form(python: str) -> None:
    """Later versions of Unicode have marks, letters and capitals that this one does not."""
    step = scaled(97, 1)
    code = FORMS.replace("STEP", str(step))
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=SHARED)
    assert done.stdout.strip() == DIGESTS[step]


def test_no_later_version_is_asked_for_what_unicode_14_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compose(text: str) -> str:
        asked.append(text)
        return unicodedata.normalize("NFC", text)

    monkeypatch.setattr(text_normalization, "_compose", compose)
    assert normal("e\u0301\U0001e4ec\u0301e") == "é\U0001e4ec\u0301e"
    assert asked == ["e\u0301", "\u0301e"]
    for text in strange(1, scaled(2_000, 200_000)):
        normal(text)
    assert not any(map(newer().search, asked))


def test_the_characters_that_unicode_14_does_not_have_are_those_of_its_table() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    runs = [each.span() for each in re.finditer(f"(?:{newer().pattern})+", every)]
    assert sum(after - first for first, after in runs) == 829_834
    if unicodedata.unidata_version == "14.0.0":
        assert {unicodedata.category(each) for first, after in runs for each in every[first:after:97]} == {"Cn"}
    assert [[first, after - 1] for first, after in runs] == load("texts")["newer"]


def test_a_form_is_its_own_form_and_that_of_its_parts() -> None:
    for text in strange(2, scaled(3_000, 300_000)):
        form = normal(text)
        assert normal(form) == form
        assert normal(unicodedata.normalize("NFD", form)) == form
        assert folded(folded(form)) == folded(form)
        assert len(text) <= COMPOSED_MAX * len(form)


@pytest.mark.parametrize(
    "text", [*HELD, "Café", "5\N{NO-BREAK SPACE}%", "\u0600", "\U0001fae8", "नमस्ते", "\u1820\u180b"]
)
def test_what_people_write_is_seen(text: str) -> None:
    assert unseen(normal(text)) == ""


@pytest.mark.parametrize("text", HIDDEN)
def test_what_hides_or_turns_others_round_is_found(text: str) -> None:
    assert unseen(normal(text)) == HIDDEN[text]


# Answers.


def metric(kind: str, values: str = "", **keys: object) -> Metric:
    """Return a metric of some kind that lists values, where it lists any."""
    lines = "".join(f"\n{key} = {value}" for key, value in keys.items())
    text = registry_text(kind=kind).replace('values = ["red", "green", "blue"]', f"{values}{lines}")
    return Registry.parse(text).metrics["color"]


LISTING = [
    lambda word: metric("choice", f'values = ["{word}", "b"]'),
    lambda word: metric("choices", f'values = ["{word}", "b"]', ticks_max=2),
    lambda word: metric("text", f'candidates = ["{word}", "b"]'),
    lambda word: metric("words"),
    lambda word: metric("words", casefold="true"),
    lambda word: metric("text", memoize="true", epsilon_permanent=4, answers=2, mechanism='"rappor"'),
]


@pytest.mark.parametrize("word", [*WAYS, *((each, unicodedata.normalize("NFD", each)) for each in HELD)], ids=ascii)
@pytest.mark.parametrize("asked", LISTING, ids=["choice", "choices", "text", "words", "folded", "memoized"])
def test_every_way_to_write_a_word_is_one_answer(asked: Callable[[str], Metric], word: tuple[str, str]) -> None:
    plans, answers = set(), set()
    for way in word:
        each = asked(way)
        plans.add(each.plan.digest)
        for said in word:
            assert each.takes(said)
            answers.add(each.read(said))
    assert (len(plans), len(answers)) == (1, 1)
    assert answers != {asked(word[0]).read("of none")}


def test_whatever_a_text_is_made_of_all_ways_to_write_it_are_one_answer_of_every_kind() -> None:
    said = [metric("text"), metric("words"), metric("words", casefold="true")]
    several = 0
    for text in strange(7, scaled(1_500, 150_000)):
        ways = {text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD") if not newer().search(text))}
        several += len(ways) > 1
        for asked in said:
            assert len({asked.read(way) for way in ways}) == len({asked.takes(way) for way in ways}) == 1, ascii(text)
        values = Values((normal(text), "other"))
        assert {values.index(way) for way in ways} == {0}
        columns = Columns(("a", "b"), (values, values), ((0, 1),), hidden=False)
        assert {KINDS["table"].read({"a": way}, columns) for way in ways} == {(0, 1)}
    assert several > 200


def test_every_way_to_write_a_word_is_one_answer_of_a_columns() -> None:
    for one, other in WAYS:
        asked, same = (table(f'a = ["{word}"], b = ["x"]') for word in (one, other))
        assert asked.plan.digest == same.plan.digest
        assert asked.read({"a": one}) == asked.read({"a": other}) != asked.read({"a": "y"})
        assert asked.takes({"a": other})


def test_a_form_of_200_characters_is_taken_however_many_it_is_written_with() -> None:
    for asked in (metric("words"), metric("text")):
        assert asked.read("e\u0301" * 200) == "é" * 200
        assert asked.names("e\u0301" * 201) == ("other",)
    assert metric("words").read(f"{' ' * 300}x{' ' * 300}") == "x"


@pytest.mark.parametrize("kind", ["text", "words"])
def test_a_text_that_nobody_sees_is_other(kind: str) -> None:
    asked = metric(kind)
    for text in HIDDEN:
        assert not asked.takes(text)
        assert asked.names(text) == ("other",)
    assert asked.names("\ud800") == ("?",)


def test_half_of_a_surrogate_pair_is_no_listed_value() -> None:
    assert metric("choice", 'values = ["?", "a"]').names("\ud800") == ("other",)


def test_signs_that_some_languages_have_within_or_behind_a_word_are_other() -> None:
    """As the page of limits says."""
    for text in ("\u0d05\u0d35\u0d28\u0d4d\u200d", "\u0647\u200d", "\u182c\u1820\u1837\u180e\u1820"):
        assert metric("text").names(text) == ("other",)


# Values.


def refused(text: str, path: Path | None = None) -> str:
    """Return why a registry is refused."""
    with pytest.raises(RegistryError) as error:
        Registry.parse(text, "m.toml", path)
    return str(error.value)


@pytest.mark.parametrize("text", HIDDEN)
def test_a_value_that_nobody_sees_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    lines = registry_text().replace('["red", "green", "blue"]', f'[\n  "red", # "one"\n\n  "{text}"]')
    line = lines[: lines.index(text)].count("\n") + 1
    said = f"must be texts that can be seen, got {HIDDEN[text]} in line {line}"
    assert refused(lines) == f"m.toml: metric.color: values {said}"
    for word in (ascii(text)[1:-1], text):
        assert text not in refused(lines.replace(text, word.replace("\\x", "\\u00")))
    (tmp_path / "colors.txt").write_text(f"red\ngreen\n{text}\n", encoding="utf-8")
    of_file = registry_text().replace('values = ["red", "green", "blue"]', 'values_file = "colors.txt"')
    said = f"values_file must be texts that can be seen, got {HIDDEN[text]} in line 3 of {tmp_path}/colors.txt"
    assert refused(of_file, tmp_path) == f"m.toml: metric.color: {said}"
    assert f"a must be texts that can be seen, got {HIDDEN[text]} in line 1" in refused_column(text)


def refused_column(text: str) -> str:
    with pytest.raises(RegistryError) as error:
        table(f'a = ["x", "{text}"], b = ["y"]')
    return str(error.value)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            b"red\n\ngreen",
            'values_file must be text of 1 to 200 characters with no space around it, got "" in line 2 of ',
        ),
        (b"red\ngreen \n", 'got "green " in line 2 of '),
        (b"red\r\n\r\n", 'got "" in line 2 of '),
        (b"red\n" + b"x" * 201, "in line 2 of "),
        (b"a\tb\nred", "in line 1 of "),
        (b"red\nother\n", 'values_file must leave out "other", got it in line 2 of '),
        (b"red\ngreen\nred\n", 'must be different texts, got "red" twice, in line 1 of '),
        ("Café\nx\nCafe\u0301\n".encode(), 'got "Café" twice, in line 1 of '),
        (b"red\n\nbl\xffue\n", "/colors.txt, line 3, cannot be read: "),
        (b"red\nbl\x0cue\n", "without control characters, got \"'bl\\x0cue'\" in line 2 of "),
        ("red\nbl\x85ue\n".encode(), "in line 2 of "),
        ("red\ngreen\u2028blue\nyellow".encode(), "in line 2 of "),
    ],
)
def test_every_mistake_of_a_file_of_values_names_its_line(lines: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "colors.txt").write_bytes(lines)
    message = refused(
        registry_text().replace('values = ["red", "green", "blue"]', 'values_file = "colors.txt"'), tmp_path
    )
    assert said in message
    if "twice" in said:
        assert message.endswith(f"and in line 3 of {tmp_path}/colors.txt")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ('["Caf\\u00e9",\n"x",\n"Cafe\\u0301"]', 'got "Café" twice, in line {} and in line {+2}'),
        ('[\n\'red\',\n"""\n blue"""]', 'got " blue" in line {+2}'),
        ('["red", # "x" is none\n"other"]', 'must leave out "other", got it in line {+1}'),
        ('["red",\n7]', "got 7 as item 2"),
    ],
)
def test_a_mistake_of_a_list_names_its_line(values: str, said: str) -> None:
    """The key is looked for in its own table: another metric may have the same list."""
    text = registry_text() + registry_text().partition("[metric.dark]")[0].partition("[metric.color]")[2].replace(
        'values = ["red", "green", "blue"]', f"values = {values}"
    ).join(["[metric.other]", ""])
    line = text[: text.rindex(f"values = {values}")].count("\n") + 1
    for more in range(3):
        said = said.replace(f"{{+{more}}}" if more else "{}", str(line + more))
    assert said in refused(text)


TWICE = '["red",\n"red"]'
OTHERS = 'columns = { a = ["x",\n"y"], b = ["z"] }\nvalues = ["v",\n"w"]\n'
"""Lists of another table, which are below and have the same names."""


@pytest.mark.parametrize(
    ("where", "key", "text"),
    [
        ("metric.t.columns", "a", f"[metric.t]\ncolumns.a = {TWICE}"),
        ("metric.t.columns", "a", f'[metric.t]\ncolumns = {{ b = {{ edges = [1], a = ["y"] }}, a = {TWICE} }}'),
        ("metric.t.columns", "a", f"[metric.t.columns]\na = {TWICE}"),
        ("metric.t", "values", f'[metric.t]\n"values" = {TWICE}'),
        ("metric.t", "values", f"[ 'metric' . t ]\nquestion = 'values = [1]'\nvalues = {TWICE}"),
        ("values.of", "values", f"values.of.values = {TWICE}"),
        ("values.of", "values", f"[values]\nof = {{ values = {TWICE} }}"),
        ("registry.public", "arm", f"[registry]\npublic.arm = {TWICE}"),
    ],
)
def test_a_list_is_found_however_its_key_is_written(where: str, key: str, text: str) -> None:
    text = f"{text}\n[metric.u]\n{OTHERS}"
    line = text[: text.index(TWICE)].count("\n") + 1
    assert [line_of_item(text, where, key, number) for number in (0, 1, 2)] == [line, line + 1, 0]
    assert line_of_item(text, where, "candidates", 0) == line_of_item(text, "metric.v", key, 0) == 0


def test_marks_without_an_end_take_no_time() -> None:
    """Putting 200,000 of them in order takes Python half a minute."""
    marks = "a" + "\u0301\u0316" * 100_000
    began = time.process_time()
    assert "text of 1 to 200 characters" in refused(registry_text().replace('"red"', f'"{marks}"'))
    assert "text of 1 to 300 characters" in refused(registry_text().replace('question = "', f'question = "{marks}'))
    assert normal(marks) == marks
    assert len(normal("e\u0301\u0323" * 400)) == 800
    assert time.process_time() - began < 5


def test_a_form_that_the_registry_does_not_write_is_listed_in_its_own() -> None:
    assert metric("choice", 'values = ["Cafe\\u0301"]').values == ("Café", "other")
    assert registry().metrics["color"].plan == metric("choice", 'values = ["red", "green", "blue"]').plan


def test_a_unit_has_the_form_of_all_texts() -> None:
    asked = [metric("number", unit=f'"{unit}"', edges="[1, 2, 3]") for unit in ("\u212b", "\u00c5")]
    assert asked[0].plan == asked[1].plan


def test_two_forms_of_a_files_name_are_two_files(tmp_path: Path) -> None:
    for name, value in (("caf\u00e9", "composed"), ("cafe\u0301", "apart")):
        (tmp_path / name).write_text(f"{value}\n", encoding="utf-8")
        of_file = registry_text().replace('values = ["red", "green", "blue"]', f'values_file = "{name}"')
        assert Registry.parse(of_file, directory=tmp_path).metrics["color"].values == (value, "other")


def test_other_and_none_in_so_many_letters_are_what_their_domain_makes_of_them() -> None:
    listed = registry(presence="hidden").metrics["color"]
    assert listed.read("none") == listed.nothing != listed.read("other") == listed.read("violet")
    public = registry().metrics["color"]
    assert public.read("none") == public.read("violet")
    for kind, more in (("text", {"color": "candidates_expected = 9"}), ("words", {})):
        told = registry(kind=kind, presence="hidden", epsilon="4", **more).metrics["color"]
        assert told.read("none") != told.nothing
        assert told.read("other") != told.read(5)
