"""Where presence is hidden, one device records and the other has nothing to say: nobody who sees uploads can tell.

`Pair` compares when something is due, and the groups with their plans, after every step.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.life import Pair, Question, watched

HIDDEN = Question(charges=5, presence="hidden")
MEMO = replace(HIDDEN, permanent="2")
LONG = replace(HIDDEN, period=360)
OTHERS = {
    "rev": replace(HIDDEN, rev=2),
    "values": replace(HIDDEN, values="abz"),
    "period": replace(HIDDEN, period=7),
    "charges": replace(HIDDEN, charges=3),
    "permanent": replace(HIDDEN, permanent="2"),
}


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    with watched():
        devices = Pair(home)
        devices.travel(1)
        yield devices
        devices.close()


def ask(pair: Pair, *, agreed: bool = True, **questions: Question) -> None:
    pair.upgrade(tuple(questions.items()), device_epsilon=16, days=360)
    if agreed:
        pair.agree()


@pytest.mark.parametrize("question", [HIDDEN, MEMO, LONG])
def test_who_has_nothing_to_say_sends_as_much(pair: Pair, question: Question) -> None:
    ask(pair, hue=question)
    for day in range(120):
        pair.record("hue", [("a", ...), (..., "b"), ("c", "a"), ("b", ...)][day % 4])
        pair.attempt("accepted")
        pair.travel(1)
    assert pair.left["hue"] == (5 if question is HIDDEN else 119 if question is MEMO else 1)


@pytest.mark.parametrize("answered", ["before", "after"])
@pytest.mark.parametrize("key", ["rev", "values", "period", "charges", "permanent"])
def test_a_release_within_a_period_does_not_tell_who_has_answered(pair: Pair, key: str, answered: str) -> None:
    ask(pair, hue=HIDDEN)
    if answered == "before":
        pair.record("hue", ("a", ...))
    ask(pair, hue=OTHERS[key])
    if answered == "after":
        pair.record("hue", ("a", ...))
    for _ in range(8):
        pair.travel(1)
        pair.attempt("accepted")


def opt_out_of_one(pair: Pair) -> None:
    pair.refuse_metric("hue", refused=True)
    pair.refuse_metric("hue", refused=False)


def opt_out(pair: Pair) -> None:
    pair.refuse()
    pair.agree()


def forget(pair: Pair) -> None:
    pair.forget()
    pair.travel(31)


@pytest.mark.parametrize("withdrawal", [opt_out_of_one, opt_out, forget])
def test_taking_back_within_a_period_does_not_tell_who_has_answered(
    pair: Pair, withdrawal: Callable[[Pair], None]
) -> None:
    ask(pair, hue=LONG)
    pair.record("hue", ("a", ...))
    withdrawal(pair)
    pair.travel(110)  # the period, which began on day 20520, closes on day 20880
    pair.attempt("accepted")


def test_an_answer_does_not_decide_whether_another_metric_may_begin(pair: Pair) -> None:
    """Which reservation of a metric counts must not depend on its having been recorded since the release."""
    ask(pair, hue=HIDDEN)
    ask(pair, hue=replace(HIDDEN, charges=2), size=Question(charges=12))
    pair.record("hue", ("a", ...))
    pair.record("size", ("a", "b"))


def test_an_answer_before_a_release_does_not_decide_what_is_sent_together(pair: Pair) -> None:
    """A "none" of the plan before waits for its period to close; looking at it must build nothing."""
    public = Question(charges=20)
    ask(pair, hue=LONG, size=public, tone=public)
    pair.record("hue", ("a", ...))
    ask(pair, hue=replace(LONG, rev=2), size=public, tone=public)
    pair.record("size", ("a", "b"))
    pair.record("tone", ("b", "a"))
    assert pair.attempt("accepted") is not None
