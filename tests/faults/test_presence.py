"""Nobody can tell the device that records from the one with nothing to say, if presence is hidden.

`Pair` compares after every step when something is due, the groups with their plans, and all that the files tell.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dither.device import FILE_NAME
from dither.sending.transport import Answer, Outcome
from dither.telemetry import Telemetry
from tests.faults.apps import start
from tests.faults.life import Pair
from tests.faults.questions import Question
from tests.faults.witness import watched
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.registries import registry
from tests.support.soaking import scaled

DAYS = scaled(30, 120)
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
    for day in range(120 if question is LONG else DAYS):  # until its period has closed
        pair.record("hue", [("a", ...), (..., "b"), ("c", "a"), ("b", ...)][day % 4])
        pair.attempt("accepted")
        pair.travel(1)
    assert pair.left["hue"] == (5 if question is HIDDEN else DAYS - 1 if question is MEMO else 1)


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


def test_a_sleep_over_midnight_does_not_tell_who_has_answered(pair: Pair) -> None:
    """The app records when the machine wakes up, half an hour before the thread looks."""
    ask(pair, hue=HIDDEN, size=Question(charges=20))
    pair.record("hue", ("a", ...))
    pair.wake(0.6, "hue", (..., "b"))
    pair.attempt("unreached")
    pair.wake(1, "hue", ("a", ...))
    pair.attempt("accepted")
    pair.wake(1, "hue", ("a", "b"))


def test_a_sleep_over_midnight_does_not_tell_it_by_what_is_counted_of_others(pair: Pair) -> None:
    """The answer opens the new period, and leaves the thread's look nothing to write but what was counted."""
    ask(pair, hue=HIDDEN, size=Question(charges=20))
    for _ in range(3):
        pair.record("size", ("a", "b"))
    pair.wake(1, "hue", ("a", ...))
    pair.crash()


def test_why_public_answers_are_not_taken_does_not_tell_whether_a_hidden_one_was(pair: Pair) -> None:
    """A count in memory is kept, or lost in a kill, on both."""
    ask(pair, hue=HIDDEN, size=Question(charges=20))
    for _ in range(3):
        pair.record("size", ("a", "b"))
    pair.record("hue", ("a", ...))
    pair.crash()
    pair.travel(1)
    pair.attempt("accepted")


def test_a_release_without_hidden_metrics_does_not_keep_who_has_answered(pair: Pair) -> None:
    """A replaceable slot is wiped when the period has closed, though an earlier upload keeps it from leaving."""
    ask(pair, hue=HIDDEN, size=Question(charges=20))
    pair.record("size", ("a", "b"))
    pair.attempt("unheard")
    pair.record("hue", ("a", ...))
    ask(pair, size=Question(charges=20))
    pair.travel(1)


class Nowhere:
    """A transport that gets no connection."""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        return Answer(Outcome.KEPT, "no answer (ConnectionError)", connected=False)

    def idle(self) -> None:
        pass


def test_when_a_period_has_closed_the_files_are_of_one_length(home: Path) -> None:
    """The log, too, in which an answer is a transaction more, and the "none" that it replaced can still be read."""
    clock = Clock()
    asked = registry(reports=40, epsilon="0.5", device_epsilon="40", presence="hidden", expires=EXPIRES)
    apps: list[Telemetry] = [start(asked, home / name, Nowhere(), clock) for name in "ab"]
    for _ in range(2):
        apps[0].dark.record(True)
        for app in apps:
            app.flush(60)  # no thread is in the middle of a look when the day ends
        clock.travel(1)
        assert [app.flush(60).waiting for app in apps] == [4, 4]
        files = [
            {name: (home / each / name).stat().st_size for name in (FILE_NAME, f"{FILE_NAME}-wal")} for each in "ab"
        ]
        assert files[0] == files[1]
    for app in apps:
        app.close()
