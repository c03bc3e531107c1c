"""Any order of steps, any of which may fail, on both stores; and bugs that must not survive it.

Hypothesis draws short runs; chance walks go further. Both are the same every time.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.faults.aggregator.faulty import FAULTS
from tests.faults.aggregator.world import KINDS, World, worlds
from tests.support.soaking import MEMORY, SOAK, scaled, thinned

pytestmark = pytest.mark.slow

Action = Callable[[World], None]
Made = Callable[[str, int, random.Random], AbstractContextManager[World]]

SHARDS = 2
WORK = [1, 2, 3, 30, 100, 200, 400, 1000]


def send(world: World) -> None:
    world.send(world.rng.randint(1, 4))


def fold(world: World) -> None:
    world.rng.choice([world.fold, world.fold, world.read, world.read, world.commit, world.commit, world.commit])()


def merge(world: World) -> None:
    what = world.rng.randrange(5)
    if what == 4:
        world.merge()
        world.fold()
    (world.merge, world.compact, world.replace, world.replace, world.replace)[what]()


def end_days(world: World) -> None:
    days = [world.seal, world.seal, world.merge_days, world.merge_days, world.erase]
    world.rng.choice([*days, world.record, world.choose_final, world.take, world.take])()


def forget(world: World) -> None:
    if world.rng.randrange(3):
        world.forget()
    else:
        world.keep_for(*(world.rng.choice([None, 0, 1, 5, 30]) for _ in range(2)))


def quarantine(world: World) -> None:
    world.rng.choice([world.mark, world.mark, world.repair, world.replay, world.replay, world.drop])()


def change_plans(world: World) -> None:
    what = world.rng.randrange(8)
    if what < 2:
        load(world)
    elif what < 4:
        world.load_late(world.rng.randrange(len(world.editions)), world.rng.choice([load, retire, retire]))
    elif what < 7:
        retire(world)
    else:
        world.contradict()


def load(world: World) -> None:
    world.load(world.rng.randrange(len(world.editions)))


def retire(world: World) -> None:
    world.retire(world.rng.randrange(3) > 0)


def travel(world: World) -> None:
    world.travel(world.rng.choice([1, 1, 1, 2, 4, -1, 8, -8]))
    if world.rng.randrange(2):
        world.seal()


def restart(world: World) -> None:
    world.rng.choice([world.refresh, world.refresh, world.restart])()


def settle(world: World) -> None:
    world.settle()
    world.check()


def move(world: World) -> None:
    kind, shards = world.rng.choice(KINDS), world.rng.randint(1, 4)
    if world.rng.randrange(2):
        world.move(kind, shards)
    else:
        world.back_up(kind, shards, seen=world.rng.choice([1, 5, 12, 20, 40]))


ACTIONS = (
    [send] * 6
    + [fold] * 8
    + [merge] * 4
    + [end_days] * 4
    + [forget] * 2
    + [quarantine] * 4
    + [change_plans] * 2
    + [travel] * 2
    + [restart]
    + [settle, move]
)
MET = {"new", "copy", "upload-conflict", "refused"} | {"committed", "overtaken", "merged", "merged too late"}
MET |= {"poison", "replayed", "dropped", "final", "given up", *FAULTS}
"""A number of runs must meet all of these, or they prove little."""
SEEDS = st.integers(0, 2**32 - 1)
"""An action draws all it needs from one number, because Hypothesis limits its own draws for one run."""


class Orderings(RuleBasedStateMachine):
    """Any order of the actions above. One rule: of several, Hypothesis leaves out most in each run."""

    kind: str
    made: Made

    def __init__(self) -> None:
        super().__init__()
        self._opened = ExitStack()
        self.world = self._opened.enter_context(self.made(self.kind, SHARDS, random.Random(0)))

    def teardown(self) -> None:
        with self._opened:
            if not self.world.failed:
                self.world.check()
                settle(self.world)

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        act(self.world, send, seed)

    @rule(action=st.sampled_from(ACTIONS), seed=SEEDS)
    def act(self, action: Action, seed: int) -> None:
        act(self.world, action, seed)


def act(world: World, action: Action, seed: int) -> None:
    """Take an action, and let it fail now and then."""
    rng = world.rng = random.Random(f"{seed} {len(world.steps)}")
    if rng.randrange(6) == 0 and action not in (settle, move):
        world.faults.order(rng.choice(FAULTS), rng.choice(WORK))
    action(world)


def run(made: Made, kind: str, examples: int, steps: int) -> None:
    """Run the machine, the same runs each time."""
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=tuple(Phase) if SOAK else (Phase.generate,),  # to shrink what fails takes minutes
        suppress_health_check=list(HealthCheck),
    )
    machine = type("Machine", (Orderings,), {"kind": kind, "made": staticmethod(made)})
    run_state_machine_as_test(machine, settings=options)


def walk(made: Made, kind: str, seed: int, steps: int) -> World:
    """Take so many chance steps, and return the world, closed."""
    rng = random.Random(seed)
    with made(kind, SHARDS, rng) as world:
        for _ in range(steps):
            act(world, rng.choice(ACTIONS), rng.getrandbits(32))
        settle(world)
    return world


@pytest.mark.parametrize("kind", thinned(KINDS, 0))  # the next test has the other one
def test_no_order_of_steps_loses_or_doubles_a_report(kind: str) -> None:
    with worlds(MEMORY) as made:
        run(made, kind, scaled(1, 2_000), scaled(40, 100))


@pytest.mark.parametrize("kind", thinned(KINDS, 1))
def test_nothing_is_lost_or_doubled_in_a_long_run(kind: str) -> None:
    with worlds(MEMORY) as made:
        met: Counter[str] = Counter()
        for seed in thinned(range(500), 4, 0, 1, 2, 3):
            met += walk(made, kind, seed, scaled(150, 500)).met
            if not SOAK and met.keys() >= MET:
                break
    assert met.keys() >= MET, f"never met: {MET - met.keys()}"
