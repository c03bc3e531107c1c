"""Answers that a metric does not ask for: raised where telemetry is strict, else sent as another one and counted."""

import logging
from typing import Any

import numpy as np
import pytest

import dither
from dither.sending.transport import DryRun
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.devices import EXPIRES
from tests.support.registries import registry, registry_text


def test_strict_telemetry_refuses_what_is_not_listed_and_never_quotes_it() -> None:
    strict = Telemetry(Settings(registry(), DryRun(), None, True, strict=True))
    others: list[Any] = ["marker", 7, None, ["red"], b"red"]
    for answer in others:
        with pytest.raises(dither.InvalidAnswer) as caught:
            strict.color.record(answer)
        assert str(caught.value) == (
            'what came is no answer that color asks for (red, green, blue); it would be sent as "other"'
        )
    strict.color.record("other")
    for answer in NO_FLAGS:
        with pytest.raises(dither.InvalidAnswer, match=r"; it takes True and False: .* sent as False$"):
            strict.dark.record(answer)
    strict.dark.record(np.True_)
    assert strict.status().waiting == 2
    strict.close()
    strict = Telemetry(Settings(registry(kind="choices", color="ticks_max = 2"), DryRun(), None, True, strict=True))
    strict.color.record([])  # nothing is ticked: an answer
    assert strict.status().waiting == 1
    strict.close()


def test_strict_telemetry_names_a_few_of_many_values_and_of_a_table_those_of_the_column() -> None:
    many = registry(values=tuple(f"v{number}" for number in range(20)))
    strict = Telemetry(Settings(many, DryRun(), None, True, strict=True))
    with pytest.raises(dither.InvalidAnswer, match=r"asks for \(v0, v1, v2, v3, v4, v5, v6, v7, \.\.\.\); it"):
        strict.color.record("v20")
    strict.close()
    strict = Telemetry(Settings(TABLE, DryRun(), None, True, strict=True))
    with pytest.raises(
        dither.InvalidAnswer, match=r"what came in b is no answer that color asks for \(b: blue, black\);"
    ):
        strict.color.record({"a": "red", "b": "bleu"})
    strict.close()


TABLE = Registry.parse(
    registry_text(kind="table", expires=EXPIRES).replace(
        'values = ["red", "green", "blue"]', 'columns = { a = ["red"], b = ["blue", "black"] }'
    )
)


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        (registry(), "blu", "what came is not asked for: it is sent as “other”; did you mean blue?"),
        (registry(), "marker", "what came is not asked for: it is sent as “other”; listed are red, green, blue?"),
        (registry(), 7, "what came is not asked for: it is sent as “other”; listed are red, green, blue?"),
        (registry(kind="choices", color="ticks_max = 2"), ["red", "gren"], "; did you mean green?"),
        (registry(presence="hidden"), "blu", "it is sent as “other”; did you mean blue?"),
        (TABLE, {"a": "red", "b": "marker"}, "what came in b is not asked for: it takes a dict of a, b: "),
        (TABLE, {"a": "red", "b": "marker"}, "; listed are b: blue, black?"),
    ],
)
def test_in_development_an_answer_that_is_not_listed_is_a_warning_with_the_nearest(
    asked: Registry, answer: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry(Settings(asked, DryRun(), None, True, development=True))
    with caplog.at_level(logging.WARNING, "dither"):
        telemetry.color.record(answer)
        telemetry.color.record(answer)
    assert len(caplog.messages) == 2  # a loop that goes on being wrong goes on being told
    assert caplog.messages[0].startswith("color: ")
    assert said in caplog.messages[0]
    assert "marker" not in caplog.text
    telemetry.close()
    caplog.clear()
    shipped = Telemetry(Settings(asked, DryRun(), None, True))
    with caplog.at_level(logging.WARNING, "dither"):
        shipped.color.record(answer)
    assert "did you mean" not in caplog.text
    shipped.close()


class Spiteful(str):
    """A text whose own methods raise."""

    def __hash__(self) -> int:
        raise RuntimeError("marker")

    def __len__(self) -> int:
        raise RuntimeError("marker")


def test_in_development_an_answer_whose_own_methods_raise_lets_nothing_out() -> None:
    telemetry = Telemetry(Settings(registry(), DryRun(), None, True, development=True))
    telemetry.color.record(Spiteful("blu"))
    telemetry.color.record({"a": 1})
    assert telemetry.status().waiting == 1
    telemetry.close()


NO_FLAGS: list[Any] = [1, 0, 1.0, "yes", "True", b"1", None, float("nan"), [], [True], np.int64(1), ...]


@pytest.mark.parametrize("answer", NO_FLAGS, ids=repr)
def test_what_is_neither_true_nor_false_is_sent_as_false_counted_and_said_once(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """So a report leaves in any case, and one of the same law for every such answer."""
    telemetry = Telemetry(Settings(registry(), DryRun(), None, True))
    assert telemetry.dark.metric.read(answer) == telemetry.dark.metric.read(False)
    with caplog.at_level(logging.WARNING, "dither"):
        telemetry.dark.record(answer)
        telemetry.color.record("red")
    assert caplog.messages == ["dark takes True and False: anything else is sent as False"]
    assert telemetry.status().counts == {"unlisted": 1}
    assert telemetry.flush(5).sent == 2
    telemetry.close()


def test_otherwise_it_is_other_and_counted() -> None:
    telemetry = Telemetry(Settings(registry(reports=1), DryRun(), None, True))
    telemetry.color.record("marker")
    telemetry.color.record(7)  # silent, so nothing of it is sent
    assert telemetry.status().counts == {"unlisted": 1, "answered": 1}
    telemetry.close()


HIDING = ["re\u200bd", "\u202ered", "red\u00ad", "\ufeffred", "r\u200ded", "red\ufe0f"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [*(("choice", text) for text in HIDING), *((kind, HIDING[0]) for kind in ("choices", "text", "words", "table"))],
    ids=ascii,
)
def test_a_text_with_what_nobody_sees_is_other_and_is_said_nowhere(
    kind: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = {
        "choice": 'values = ["red", "blue"]',
        "choices": 'values = ["red", "blue"]\nticks_max = 2',
        "table": 'columns = { a = ["red"], b = ["blue"] }',
    }
    asked = Registry.parse(
        registry_text(kind=kind, expires=EXPIRES).replace('values = ["red", "green", "blue"]', lines.get(kind, ""))
    )
    answer: Any = {"a": text, "b": "blue"} if kind == "table" else [text] if kind == "choices" else text
    assert asked.metrics["color"].names(answer)[0] in ("other", "a = other")
    telemetry = Telemetry(Settings(asked, DryRun(), None, True))
    with caplog.at_level(logging.DEBUG, "dither"):
        telemetry.color.record(answer)
    assert telemetry.status().counts == {"unlisted": 1}
    assert telemetry.status().waiting == 1
    telemetry.close()
    strict = Telemetry(Settings(asked, DryRun(), None, True, strict=True))
    with pytest.raises(dither.InvalidAnswer) as refused:
        strict.color.record(answer)
    strict.close()
    assert text not in f"{refused.value} {caplog.text}"
