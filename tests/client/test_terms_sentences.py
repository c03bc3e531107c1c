"""The terms in words: complete, true to the numbers, and to be translated."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.terms_sentences import terms_of
from dither_shared.registry import Registry
from dither_shared.terms import Terms
from tests.support.numbers import FRESH, MEMO, numbers_text
from tests.support.registries import registry, registry_text

EXPIRES = date(2027, 3, 1)
EXAMPLES = Path(__file__).parents[2] / "client" / "examples"


def said(asked: Registry, metric: str = "color") -> list[str]:
    return [str(sentence) for sentence in terms_of(asked) if sentence.metric == metric]


def test_their_type_has_a_public_name() -> None:
    assert {type(sentence) for sentence in terms_of(registry())} == {dither.Sentence}


def test_the_sentences_of_a_choice() -> None:
    assert said(registry(expires=EXPIRES)) == [
        "Which colour do people choose?",
        "One of red, green, blue.",
        "Anything else is sent as “other”.",
        "The true answer would tell little about you.",
        "It is not hidden that your device answers this.",
        "At most one report a day.",
        "At most 3 reports in all, before 2027-03-01.",
        "After one report, an even guess between two answers is at most 88.1\N{NO-BREAK SPACE}% sure.",
        "After all reports about it, a guess at your answer could be nearly certain.",
    ]


def test_what_is_true_of_all_metrics_stands_at_both_ends() -> None:
    sentences = terms_of(registry(device_epsilon="4.0", reports=1))
    assert [sentence.metric for sentence in sentences[1:-3]] == ["color"] * 9 + ["dark"] * 8
    assert str(sentences[0]) == "Your device adds random noise to each answer before anything leaves it."
    assert str(sentences[-3]).startswith("After all reports about all questions, an even guess between two answers")
    assert sentences[-3].facts == {"percent": "98.3"}  # of odds of e^4


def test_that_a_browser_begins_anew_is_said_where_the_registry_says_so() -> None:
    text = registry_text(quiet_days=1)
    plain = [str(one) for one in terms_of(Registry.parse(text))]
    evicted = [str(one) for one in terms_of(Registry.parse(text.replace("quiet_days", "evicted = true\nquiet_days")))]
    (new,) = set(evicted) - set(plain)
    assert evicted.index(new) == len(evicted) - 3
    assert new.endswith("after 7 days without a visit: up to 34 times in a year.")


CHANGES: dict[str, dict[str, Any]] = {
    "values": {"values": ("red", "green")},
    "sensitivity": {},
    "question": {},
    "presence": {"presence": "hidden"},
    "report": {"epsilon": "1.0"},
    "permanent": {"epsilon_permanent": "3.0"},
    "charges": {"reports": 2},
    "lifetime": {"reports": 1, "epsilon": "0.5"},
    "period_days": {"period": "7d"},
    "expires": {"expires": date(2027, 2, 1)},
    "kind": {"kind": "text"},
    "cells": {"kind": "text", "epsilon_permanent": "4.0"},
    "linked": {"epsilon_permanent": "3.0"},
    "measures": {},
}


def test_whatever_is_agreed_to_is_said() -> None:
    """Each field of the terms changes a sentence where it changes."""
    assert CHANGES.keys() == Terms._fields.keys()  # type: ignore[attr-defined]
    text = registry_text(expires=EXPIRES)
    before = Registry.parse(text)
    for field, changes in CHANGES.items():
        changed = text
        if field == "sensitivity":
            changed = text.replace('"low"', '"high"')
        elif field == "question":
            changed = text.replace("Which colour", "What colour")
        elif field == "measures":
            changed = re.sub('kind = "choice"|values = .*', "", text).replace(
                "[metric.color]", '[metric.color]\nkind = "flag"\nmeasures = "returned"'
            )
            changed = changed.replace('"1d"', '"7d"')
        after = Registry.parse(changed) if changed != text else registry(**{"expires": EXPIRES, **changes})
        terms = [Terms.of(each.metrics["color"]) for each in (before, after)]
        assert getattr(terms[0], field) != getattr(terms[1], field)
        assert said(before) != said(after), field


def test_a_memo_is_said_to_be_a_lasting_mark() -> None:
    sentences = said(registry(epsilon_permanent="3.0", answers=1, expires=EXPIRES, kind="text"))
    assert "One answer in all, before 2027-03-01: later ones repeat it." in sentences
    assert "An answer that you repeat repeats its noise: reports of your device can be linked." in sentences
    assert any(sentence.startswith("Reports show which of ") for sentence in sentences)
    assert "Among 200 people with your answer, about 200 could be recognised by what their reports repeat." in sentences
    assert any(sentence.startswith("After all reports of one answer, an even guess") for sentence in sentences)


def test_of_several_memos_it_is_said_how_far_all_together_link() -> None:
    values = tuple(f"v{number}" for number in range(20))
    asked = registry(epsilon="1", epsilon_permanent="2", values=values, color='mechanism = "grr"')
    recognised = [each.facts["people"] for each in terms_of(asked) if "recognised" in each.template]
    assert recognised == [21, 2, 34]
    assert not [each for each in terms_of(registry()) if "recognised" in each.template]


def test_a_long_list_is_cut_and_a_tables_columns_are_told_apart() -> None:
    many = said(registry(values=tuple(f"v{number}" for number in range(20))))
    assert many[1] == "One of v0, v1, v2, v3, v4, v5, v6, v7, …."
    columns = '= { a = ["x", "y"], b = ["u"] }'
    table: dict[str, Any] = {**FRESH, "kind": "table", "unit": None, "columns": columns}
    assert said(Registry.parse(numbers_text(both=table)), "both")[1:5] == [
        "One answer in each of a: x, y; b: u.",
        "A missing answer, or anything else, is sent as “other”.",
        "One report tells all of them.",
        "Its odds are those of a whole answer, all columns together.",
    ]


def test_a_translation_has_the_same_facts() -> None:
    (sentence,) = [each for each in terms_of(registry(expires=EXPIRES)) if "in all" in each.template][:1]
    assert sentence.template == "At most {number} reports in all, before {day}."
    german = {sentence.template: "Insgesamt höchstens {number} Meldungen, vor dem {day}."}
    assert german[sentence.template].format_map(sentence.facts) == (
        "Insgesamt höchstens 3 Meldungen, vor dem 2027-03-01."
    )


def test_braces_of_a_registrys_own_words_are_its_words() -> None:
    text = registry_text(values=("{x}", "}")).replace("Which colour", "Which {colour}")
    assert said(Registry.parse(text))[:2] == ["Which {colour} do people choose?", "One of {x}, }."]
    memo = Registry.parse(numbers_text(size={**MEMO, "unit": "{MB}", "low": 0, "high": 8}))
    assert "{MB}" in said(memo, "size")[1]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/metrics.toml")), ids=lambda path: path.parent.name)
def test_the_sentences_are_short(path: Path) -> None:
    lengths = [len(str(sentence)) for sentence in terms_of(Registry.load(path))]
    assert max(lengths) <= 240
    assert sum(lengths) / len(lengths) <= 80


def test_they_are_there_before_the_person_chose_and_after_they_refused() -> None:
    with dither.start(registry(), endpoint="https://example.org", key="k", data_dir=":memory:") as telemetry:
        before = telemetry.terms()
        telemetry.set_consent(False)
        assert telemetry.terms() == before == terms_of(registry())
