"""Combined numbers keep their level: sums, means, ratios, differences of windows and of metrics, of every mechanism.

Every case is drawn from exact laws. It is left out where devices are too few for a normal law (`World.is_enough`).
"""

from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.pure import change_chance, estimate_shares
from dither_aggregator.counting import support_counts
from dither_shared.mechanisms import MECHANISMS, PrivSet, PureMechanism
from tests.benchmarks import edges
from tests.support.laws import answers
from tests.support.levels import World, skewness, weights_of
from tests.support.mechanisms import memoized, one_shots
from tests.support.soaking import scaled, thinned
from tests.support.tallies import draw_tallies

PAGE = Path(__file__).parents[2] / "aggregator" / "estimates.md"

RUNS = scaled(5, 1_000)
EPSILONS = ("0.1", "0.5", "1", "2", "4", "8")
SIZES = ((300, 1), (3_000, 1), (1_000_000, 1), (3_000, 7), (1_000, 31))
"""Devices, and how often each reports."""


def designs(epsilon: str) -> list[PureMechanism]:
    """Return small designs of every mechanism, memoized ones with twice the epsilon for a device."""
    return [*one_shots(Decimal(epsilon)), *memoized(2 * Decimal(epsilon), Decimal(epsilon))]


WORLDS = [
    World(mechanism, *SIZES[(place + turn) % len(SIZES)], seed=place)
    for turn, epsilon in enumerate(EPSILONS)
    for place, mechanism in enumerate(designs(epsilon))
]
EACH = len(designs("1"))
FEW = thinned(WORLDS, *(EACH * turn + place for place, turn in enumerate((1, 5, 2, 4, 3, 2) * 8) if place < EACH))


def missed(world: World, kind: str) -> tuple[Counter[str], Counter[str]]:
    """Return how often each statement is told, and misses, with one kind of weights."""
    told, misses = Counter[str](), Counter[str]()
    weights = weights_of(world.mechanism.d, world.seed)[kind]
    if not world.is_enough(weights):
        return told, misses
    for drawn in world.draw(RUNS):
        for name, interval, true in drawn.told(weights):
            told[name] += interval is not None
            misses[name] += interval is not None and not interval.lower <= true <= interval.upper
    return told, misses


def test_the_worlds_have_every_mechanism() -> None:
    assert {world.mechanism.name for world in FEW} == {
        name for name, each in MECHANISMS.items() if issubclass(each, PureMechanism)
    }


@pytest.mark.slow
def test_combined_numbers_keep_their_level() -> None:
    """A statement misses in 8 % of each world at most, and in 6 % of all: more is 1e-9 of each.

    Sums do not hold too often either, if answers hold one value and so leave nothing open: 4 % miss at least.
    """
    every, of_all, tight = Counter[str](), Counter[str](), [0, 0]
    for place, world in enumerate(FEW):
        told, misses = missed(world, list(weights_of(2, 1))[place % 5])
        for name, number in told.items():
            assert misses[name] <= binom.isf(1e-9, number, 0.08), (name, world)
        every, of_all = every + told, of_all + misses
        if world.mechanism.ticks == 1:
            tight = [tight[0] + told["sum"], tight[1] + misses["sum"]]
    assert every["windows"] > 0.5 * RUNS * len(FEW)
    for name, number in every.items():
        assert of_all[name] <= binom.isf(1e-9, number, 0.06), name
    assert tight[1] >= binom.ppf(1e-9, tight[0], 0.04)


# Too small to be honest.


@pytest.mark.parametrize("mechanism", one_shots(Decimal("1.5")), ids=str)
def test_the_law_of_a_sum_is_that_of_every_report(mechanism: PureMechanism) -> None:
    """All answers of one value are as frequent, and of several ticks nobody has what is summed."""
    among = np.asarray(np.arange(mechanism.d) < (mechanism.d + 1) // 2, dtype=np.float64)
    nobody = mechanism.ticks > 1 or isinstance(mechanism, PrivSet)
    answered: list[tuple[int, ...]] = [()] if nobody else answers(mechanism)
    held = np.full(mechanism.d, 0.0 if nobody else 1 / mechanism.d)
    assert edges.skewness(mechanism, among, held) == pytest.approx(skewness(mechanism, answered, among), abs=1e-6)


def missed_sums(mechanism: PureMechanism, among: Floats, n: int, holders: float) -> int:
    """How often 95 % intervals of a sum miss, of 2,000, where so few of n devices have what is summed."""
    rng, share = np.random.default_rng(n), holders / n
    shares = (1 - share) * (1 - among) / (1 - among).sum() + share * among / among.sum()
    people = rng.multinomial(n, shares, size=2_000).astype(np.int64)
    made = [Functionals(mechanism, tally, n) for tally in draw_tallies(mechanism, people, rng)]
    return sum(abs(each.estimate(among) - share) > Z * np.sqrt(each.variance(among)) for each in made)


@pytest.mark.parametrize("d", thinned([2, 16], 0))
def test_the_fewest_devices_keep_the_level_of_a_sum_and_a_fortieth_of_them_do_not(d: int) -> None:
    """At the edge 8 % miss at most, more is 1e-7, whoever has what is summed. With 33 answers 23 % do."""
    mechanism = edges.mechanism_of(d, "4")
    among = np.asarray(np.arange(d) < max(1, round(d / 5)), dtype=np.float64)
    n, most = edges.needed(mechanism, among), binom.isf(1e-7, 2_000, 0.08)
    assert max(missed_sums(mechanism, among, n, holders) for holders in (0, 1, 3)) <= most
    assert d > 2 or missed_sums(mechanism, among, n // 40, 1) > most


def test_the_page_has_the_fewest_devices_as_they_are_printed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(edges.lines()) in page
    assert any("yes or no" in line for line in edges.lines())


@pytest.mark.parametrize(("d", "epsilon", "n"), [(2, "4", 20), (16, "2", 40)])
def test_shares_and_their_differences_hold_for_a_handful_of_devices(d: int, epsilon: str, n: int) -> None:
    """Whose counts are exact: 95 % intervals of each value, and of its move where nothing moved; 1e-7 exceed it."""
    mechanism, rng, runs = edges.mechanism_of(d, epsilon), np.random.default_rng(d), scaled(200, 400)
    shares = np.append(np.full(d - 1, 0.1 / (d - 1)), 0.9)
    missed = moved = np.zeros(d)
    for _ in range(runs):
        read = []
        for people in rng.multinomial(n, shares, size=2):
            support = support_counts(mechanism, draw_tallies(mechanism, people[np.newaxis], rng)[0], n)
            read.append((estimate_shares(mechanism, support, n), (support, n, 1)))
        (one, counts), (_, earlier) = read
        missed = missed + ((one.lower > shares) | (shares > one.upper))
        moved = moved + (change_chance(mechanism, earlier, counts) <= 0.05)
    assert max(missed.max(), moved.max()) <= binom.isf(1e-7 / d, runs, 0.05)
