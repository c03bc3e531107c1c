"""Years of two devices under any schedule of answers, faults, releases and choices, and bugs that must not survive it.

Hypothesis draws short lives and shrinks what fails; a walk goes on for ten years. Both are the same in every run.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import dither.device
from dither.device import BuiltUpload, Device
from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from dither.device.slots import Slots
from dither.device.withdrawal import forget
from dither_shared.registry import Metric
from dither_shared.wire import new_upload_id
from tests.faults.life import FATES, NAMES, Pair, Question, watched
from tests.faults.soaking import MEMORY, scaled
from tests.support.clocks import DAY_S

pytestmark = pytest.mark.slow

ANSWERS = [("a", "a"), ("a", "b"), ("b", "a"), ("c", "b"), (None, "a"), ("z", "c")]
ONE_SIDED = [("a", ...), (..., "b"), (..., "c"), ("b", ...)]
METRICS_MAX = 4
DAYS = [0.001, 0.3, 1, 2, 8, 8, 40]
JUMPS = [*[-1, -0.1, 0.1, 1, -8, 8] * 8, -366, 366]
CHOICES = [*["agree", "allow all"] * 4, "refuse it", "refuse it, allow all", "refuse", "refuse, agree", "forget"]


def record(pair: Pair, rng: random.Random) -> None:
    name, question = rng.choice(pair.questions)
    pair.record(name, rng.choice(ANSWERS if question.presence == "public" else ANSWERS + ONE_SIDED))


def live(pair: Pair, rng: random.Random) -> None:
    if rng.randrange(4) and pair.days_left() < 30:
        pair.renew(300)
    pair.live(rng.randrange(1, 8), [rng.choice(ANSWERS + ONE_SIDED) for _ in range(3)], sends=bool(rng.randrange(4)))


def travel(pair: Pair, rng: random.Random) -> None:
    pair.travel(rng.choice(DAYS))


def stray(pair: Pair, rng: random.Random) -> None:
    """Set the clock, and as a rule set it back."""
    days = rng.choice(JUMPS)
    pair.jump(days)
    if rng.randrange(4) or days > 1:
        pair.attempt(rng.choice(FATES))
        pair.jump(-days)


def attempt(pair: Pair, rng: random.Random) -> None:
    pair.attempt(rng.choice(FATES))


def release(pair: Pair, rng: random.Random) -> None:
    """Change a metric, or all."""
    asked = dict(pair.questions)
    for name in rng.sample(NAMES, rng.choice([1, 1, 1, METRICS_MAX])):
        asked[name] = Question(
            charges=rng.choice([1, 2, 3, 20, 60]),
            epsilon=rng.choice(["0.1", "0.1", "0.1", "2"]),
            permanent=rng.choice(["", "", "0.2", "3"]),
            presence=rng.choice(["public", "hidden"]),
            period=rng.choice([1, 1, 7, 90]),
            schedule=rng.choice(["early", "early", "spread"]),
            values=rng.choice(["abc", "abz"]),
            rev=rng.choice([1, 2]),
        )
    while len(asked) > METRICS_MAX or (rng.randrange(3) == 0 and len(asked) > 1):
        del asked[rng.choice(sorted(asked))]
    pair.upgrade(
        tuple(sorted(asked.items())), rng.choice([4, 16, 60, 600]), rng.choice([20, 200, 360]), rng.randrange(3) == 0
    )
    if rng.randrange(4):
        pair.agree()


def choose(pair: Pair, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    for choice in rng.choice(CHOICES).split(", "):
        if choice == "agree":
            pair.agree()
        elif choice == "refuse":
            pair.refuse()
        elif choice == "forget":
            pair.forget()
        elif choice == "refuse it":
            pair.refuse_metric(name, refused=True)
        else:
            for refused in pair.person.refused:
                pair.refuse_metric(refused, refused=False)


def die(pair: Pair, rng: random.Random) -> None:
    if rng.randrange(3):
        pair.crash()
    else:
        pair.lose_power()


@contextmanager
def a_life() -> Iterator[Pair]:
    """Yield two new devices."""
    with TemporaryDirectory(dir=MEMORY) as home, watched():
        pair = Pair(Path(home))
        try:
            yield pair
        finally:
            pair.close()


# Short lives.

RANDOM = st.randoms(use_true_random=False)


class Life(RuleBasedStateMachine):
    """Any schedule of the steps above."""

    def __init__(self) -> None:
        super().__init__()
        self._lived = ExitStack()
        self.pair = self._lived.enter_context(a_life())

    def teardown(self) -> None:
        self._lived.close()

    @rule(rng=RANDOM)
    def record(self, rng: random.Random) -> None:
        record(self.pair, rng)

    @rule(rng=RANDOM)
    def live(self, rng: random.Random) -> None:
        live(self.pair, rng)

    @rule(rng=RANDOM)
    def travel(self, rng: random.Random) -> None:
        travel(self.pair, rng)

    @rule(rng=RANDOM)
    def stray(self, rng: random.Random) -> None:
        stray(self.pair, rng)

    @rule(rng=RANDOM)
    def attempt(self, rng: random.Random) -> None:
        attempt(self.pair, rng)

    @rule(rng=RANDOM)
    def release(self, rng: random.Random) -> None:
        release(self.pair, rng)

    @rule(rng=RANDOM)
    def choose(self, rng: random.Random) -> None:
        choose(self.pair, rng)

    @rule(rng=RANDOM)
    def die(self, rng: random.Random) -> None:
        die(self.pair, rng)


def live_shortly(examples: int, steps: int, *phases: Phase) -> None:
    """Run the machine, the same lives each time."""
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=phases or tuple(Phase),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Life, settings=options)


def test_no_schedule_exceeds_a_budget_counts_twice_or_lets_an_answer_decide_a_silence() -> None:
    live_shortly(scaled(80, 3_000), scaled(40, 80))


# Long lives.

STEPS = [record] * 6 + [live] * 8 + [travel] * 5 + [stray] + [attempt] * 8 + [release] * 3 + [choose] * 2 + [die] * 2


def live_long(seed: int, years: int) -> Pair:
    """Take chance steps for so many years of the true clock, and return the devices, closed."""
    rng = random.Random(seed)
    with a_life() as pair:
        end = pair.true_now() + years * 365.25 * DAY_S
        while pair.true_now() < end:
            rng.choice(STEPS)(pair, rng)
    return pair


@pytest.mark.parametrize("seed", range(scaled(1, 60)))
def test_nothing_goes_wrong_in_ten_years(seed: int) -> None:
    pair = live_long(seed, years=10)
    assert pair.said.keys() >= {"", "answered", "forgotten", "not-agreed", "refused", "spent", "unscheduled", "waiting"}
    assert pair.left.total() > 30


# Bugs that a life does not survive.


class UsedUp(Exception):
    """In a planted bug: the answer is new, and no more are paid."""


def charge_nothing(patch: pytest.MonkeyPatch) -> None:
    charge = Budget.charge
    patch.setattr(Budget, "charge", lambda self, metric, micro, key: charge(self, metric, 0, key))


def charge_whatever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budget, "bears", lambda self, metric, spent: True)
    patch.setattr(Budget, "_affords", lambda self, metric, micro: True)


def charge_a_memo_what_it_gave(patch: pytest.MonkeyPatch) -> None:
    """When a memo cannot go on, charge the answers that it gave instead of all that it might have given."""
    prepare = Budget.prepare

    def prepare_cheaply(self: Budget, metric: Metric, today: int) -> tuple[int, int]:
        spent = self.spent().get(metric.name, 0)
        _, next_day = prepare(self, metric, today)
        self._file.execute("UPDATE metric SET spent = ? WHERE name = ?", spent, metric.name)
        return spent, next_day

    patch.setattr(Budget, "prepare", prepare_cheaply)


def fall_silent_when_a_memo_is_used_up(patch: pytest.MonkeyPatch) -> None:
    paid_class, fill = Budget.paid_class, Slots._fill

    def paid_or_raise(self: Budget, metric: Metric, key: str) -> tuple[str, int]:
        paid, micro = paid_class(self, metric, key)
        if paid != key:
            raise UsedUp
        return paid, micro

    def fill_or_not(self: Slots, metric: Metric, answer: Any, ends: int) -> None:
        with suppress(UsedUp):
            fill(self, metric, answer, ends)

    patch.setattr(Budget, "paid_class", paid_or_raise)
    patch.setattr(Slots, "_fill", fill_or_not)


def say_nothing_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slots, "open_periods", lambda self: False)


def forget_what_was_spent(patch: pytest.MonkeyPatch) -> None:
    def forget_all(file: DeviceFile) -> None:
        forget(file)
        with file.transaction():
            file.execute("DELETE FROM metric")

    patch.setattr(dither.device, "forget", forget_all)


def forget_metrics_that_left(patch: pytest.MonkeyPatch) -> None:
    agree_once = Device.agree_once

    def clean(self: Device) -> None:
        agree_once(self)
        with self._file.transaction():
            names = ", ".join(f"'{name}'" for name in self._budget._registry.metrics)
            self._file.execute(f"DELETE FROM metric WHERE name NOT IN ({names})")

    patch.setattr(Device, "agree_once", clean)


def refresh_at_new_terms(patch: pytest.MonkeyPatch) -> None:
    prepare = Budget.prepare

    def prepare_anew(self: Budget, metric: Metric, today: int) -> tuple[int, int]:
        self._file.execute(
            "UPDATE metric SET spent = 0 WHERE name = ? AND memo_key <> ?", metric.name, metric.plan.memo_key
        )
        return prepare(self, metric, today)

    patch.setattr(Budget, "prepare", prepare_anew)


def ask_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Agreement, "silence", lambda self, metric: "")


def keep_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dither.device, "drop", lambda file, reason, metric=None: None)


def send_before_the_disk_has_it(patch: pytest.MonkeyPatch) -> None:
    def next_upload(self: Device) -> BuiltUpload | None:
        with self._file.transaction():
            return self._outbox.next()

    patch.setattr(Device, "next_upload", next_upload)


def give_every_attempt_an_id(patch: pytest.MonkeyPatch) -> None:
    mark = Outbox.next

    def unfreeze(self: Outbox) -> BuiltUpload | None:
        upload = mark(self)
        if upload is None or upload.attempts == 1:
            return upload
        new_id = new_upload_id(self._rng.randbits)
        body = upload.body.replace(upload.id.encode(), new_id.encode())
        self._file.execute("UPDATE upload SET id = ?, body = ? WHERE id = ?", new_id, body, upload.id)
        return BuiltUpload(new_id, body, upload.reports, upload.attempts)

    patch.setattr(Outbox, "next", unfreeze)


def never_give_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dither.device.outbox.GIVE_UP_S", 10_000 * DAY_S)


BUGS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    charge_nothing: "told what costs",
    charge_whatever: "was agreed to",
    charge_a_memo_what_it_gave: "told what costs|depends on its answers",
    fall_silent_when_a_memo_is_used_up: "depends on its answers",
    say_nothing_by_itself: "depends on its answers",
    forget_what_was_spent: "was refreshed",
    forget_metrics_that_left: "was refreshed",
    refresh_at_new_terms: "was refreshed",
    ask_nobody: "and was recorded|were not agreed to",
    keep_what_was_refused: "was refused, and .* left|counted twice",
    send_before_the_disk_has_it: "told what costs",
    give_every_attempt_an_id: "counted twice|should",
    never_give_up: "counted twice",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_life_shows_a_planted_bug(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=BUGS[bug]):
        live_shortly(1_000, 40, Phase.generate)
