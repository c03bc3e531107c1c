"""Schedules of answers, faults, releases and choices: what two devices live through, drawn by hypothesis or a walk."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.faults.life import Pair
from tests.faults.questions import NAMES, Question
from tests.faults.witness import FATES, watched
from tests.support.clocks import DAY_S
from tests.support.soaking import MEMORY

ANSWERS = [("a", "a"), ("a", "b"), ("b", "a"), ("c", "b"), (None, "a"), ("z", "c")]
ONE_SIDED = [("a", ...), (..., "b"), (..., "c"), ("b", ...)]
METRICS_MAX = 4
Step = Callable[[Pair, random.Random], None]
DAYS = [0.001, 0.3, 1, 2, 8, 8, 40]
JUMPS = [*[-1, -0.1, 0.1, 1, -8, 8] * 8, -366, 366]
CHOICES = [*["agree", "allow all"] * 4, *["refuse it"] * 3, "refuse it, allow all", "refuse", "refuse, agree", "forget"]


def record(pair: Pair, rng: random.Random) -> None:
    name, question = rng.choice(pair.questions)
    pair.record(name, rng.choice(ANSWERS if question.presence == "public" else ANSWERS + ONE_SIDED))


def wake(pair: Pair, rng: random.Random) -> None:
    name, question = rng.choice(pair.questions)
    answers = ANSWERS if question.presence == "public" else ANSWERS + ONE_SIDED
    (pair.wake if rng.randrange(2) else pair.end_unlooked)(rng.choice(DAYS), name, rng.choice(answers))


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
    name = rng.choice([name for name, _ in pair.questions] if rng.randrange(4) else NAMES)
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
    def wake(self, rng: random.Random) -> None:
        wake(self.pair, rng)

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


def live_shortly(examples: int, steps: int) -> None:
    """Run the machine, the same lives each time."""
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Life, settings=options)


# Lives with a clock that goes to and fro.

STRAYS = [0.1, 0.9, 1, 2, 8, 29, 31, 40, 366, 4_000]
"""Days by which a clock strays."""
ANSWERED = [
    *["accepted", "unheard", "unreached", "killed-standing", "killed-after", "too-large", "portal", "portal away"],
    *[f"receipt {days}" for days in (0, 0, 0.9, -0.9, 1.1, -1.1, 366, -366, 4_000, -4_000)],
]
"""Answers by a hostile server and a captive portal among them: a receipt's Date is so many days off the clock."""
HOSTILE_YEARS = (1, 11)


def stray_far(pair: Pair, rng: random.Random) -> None:
    """Set the clock, as often as not to where it was right, or nearly."""
    if rng.randrange(2):
        pair.jump(rng.choice([-1, 1, 1]) * rng.choice(STRAYS))
    else:
        pair.jump(rng.choice([0, 0, 0.01, 1]) - pair.ahead_days())


def be_answered(pair: Pair, rng: random.Random) -> None:
    pair.attempt(rng.choice(ANSWERED))


def go_on(pair: Pair, rng: random.Random) -> None:
    pair.live(rng.randrange(1, 4), [rng.choice(ANSWERS + ONE_SIDED) for _ in range(3)], sends=bool(rng.randrange(2)))


def forget(pair: Pair, rng: random.Random) -> None:
    pair.forget()


TO_AND_FRO = [stray_far] * 6 + [record] * 5 + [be_answered] * 5 + [go_on] * 2 + [travel] * 2 + [wake, die]


def live_to_and_fro(seed: int, steps: int = 24) -> Counter[str]:
    """Take so many chance steps with a clock that strays, set it right, and return why the devices were silent."""
    rng = random.Random(f"to and fro {seed}")
    kinds = [*TO_AND_FRO, *[forget] * rng.randrange(2)]
    asked = {
        name: Question(
            charges=rng.choice([3, 20, 60]),
            epsilon="0.1",
            permanent=rng.choice(["", "", "0.2"]),
            presence=rng.choice(["public", "hidden"]),
            period=rng.choice([1, 1, 7]),
            schedule=rng.choice(["early", "early", "spread"]),
        )
        for name in rng.sample(NAMES, 2)
    }
    with a_life() as pair:
        pair.upgrade(tuple(sorted(asked.items())), 60, 365 * rng.choice(HOSTILE_YEARS))
        pair.agree()
        for _ in range(steps):
            rng.choice(kinds)(pair, rng)
        pair.put_right()
        return pair.said


# Lives of chance steps.

STEPS = [record] * 6 + [wake] * 2 + [live] * 8 + [travel] * 5 + [stray] + [attempt] * 8
STEPS += [release] * 3 + [choose] * 2 + [die] * 2


def live_by_chance(seed: int, steps: int, kinds: Sequence[Step] | None = None) -> None:
    """Take so many chance steps of these kinds, or of all.

    Odd seeds leave some kinds out, so that there are more of the others.
    """
    rng = random.Random(seed)
    if kinds is None:
        every = list(dict.fromkeys(STEPS))
        left_out = rng.sample(every, rng.randrange(len(every) // 2 + 1)) if seed % 2 else ()
        kinds = [kind for kind in STEPS if kind not in left_out]
    with a_life() as pair:
        for _ in range(steps):
            rng.choice(kinds)(pair, rng)


def live_long(seed: int, years: int, silences: Set[str]) -> Pair:
    """Take chance steps for so many years of the true clock, and return the devices, closed.

    A walk goes on for up to as many years again until a device has been silent for each of these reasons: some are
    seldom met.
    """
    rng = random.Random(seed)
    with a_life() as pair:
        began = pair.true_now()
        while (lived := (pair.true_now() - began) / (365.25 * DAY_S)) < 2 * years:
            if lived >= years and silences <= pair.said.keys():
                break
            rng.choice(STEPS)(pair, rng)
    return pair
