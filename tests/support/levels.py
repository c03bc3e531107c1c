"""How often intervals of combined numbers miss: sums, means, ratios and differences of small worlds, by exact laws.

A world is a mechanism with devices of some answers, each of which reports a few times: with one memo where these are
kept, with fresh noise else. Truths are those of the population that devices are drawn from.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither_aggregator.analysis.functional import Functionals, IntervalEstimate, difference
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting import Counts
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.mechanism import MemoizedPure
from tests.support.laws import answers, draw_reports, law, supports

ANSWERS_MAX = 12
Interval = IntervalEstimate | None


@dataclass(frozen=True)
class World:
    """Devices of a population, and statements about it."""

    mechanism: PureMechanism
    devices: int
    times: int = 1
    """How often each device reports."""
    seed: int = 1

    @cached_property
    def answered(self) -> list[tuple[int, ...]]:
        """The answers that somebody may have."""
        every, rng = answers(self.mechanism), np.random.default_rng(self.seed)
        if len(every) <= ANSWERS_MAX:
            return every
        return [every[place] for place in rng.choice(len(every), ANSWERS_MAX, replace=False)]

    @cached_property
    def shares(self) -> Floats:
        """The share of each in the population."""
        return np.asarray(np.random.default_rng([self.seed, 1]).dirichlet(np.full(len(self.answered), 0.5)))

    def held(self, weights: Floats) -> Floats:
        """Return what each answer has of a functional."""
        return np.array([float(weights[list(answer)].sum()) for answer in self.answered])

    def draw(self, runs: int) -> Iterator["Drawn"]:
        """Yield what is counted of two windows: the second has the same devices, each with the next answer."""
        rng = np.random.default_rng([self.seed, 2])
        people = rng.multinomial(self.devices, self.shares, size=runs)
        windows = [
            draw_reports(self.mechanism, self.answered, each, self.times, rng)
            for each in (people, np.roll(people, 1, axis=1))
        ]
        for one, other in zip(*windows, strict=True):
            yield Drawn(self, *(self._read(counts) for counts in (one, other)))

    def _read(self, counts: Counts) -> Functionals:
        return Functionals(self.mechanism, counts, self.devices * self.times, self.times)

    def is_enough(self, weights: Floats) -> bool:
        """Tell whether so many devices have a nearly normal sum: 40 + 25 times the square of a report's skewness.

        It is the larger one of two: all answers are as frequent, or only those that have nothing of the sum.
        """
        memo = self.mechanism.permanent if self.times > 1 and isinstance(self.mechanism, MemoizedPure) else None
        nobody = [answer for answer, held in zip(self.answered, self.held(weights), strict=True) if not held]
        worlds = [each for each in (self.answered, nobody) if each]
        worst = max(abs(skewness(memo or self.mechanism, each, weights)) for each in worlds)
        return self.devices >= 40 + 25 * worst**2


@dataclass(frozen=True)
class Drawn:
    """Two windows of one run."""

    world: World
    one: Functionals
    other: Functionals

    def told(self, weights: Floats) -> Iterator[tuple[str, Interval, float]]:
        """Yield statements: the name, the interval or None where it cannot be told, and what is true."""
        world, d = self.world, len(weights)
        shares, later = world.shares, np.roll(world.shares, 1)
        whole, back = np.asarray(np.arange(d) < (d + 1) // 2, dtype=np.float64), weights[::-1].copy()
        true = float(shares @ world.held(weights))
        yield "sum", IntervalEstimate.of(self.one.estimate(weights), self.one.variance(weights), 0.05), true
        part = whole * (np.arange(d) % 2 == 0)
        yield "ratio", self.one.ratio(part, whole), float(shares @ world.held(part)) / float(shares @ world.held(whole))
        moved = float(shares @ world.held(weights) - later @ world.held(weights))
        yield "windows", difference((self.one, weights), (self.other, weights)), moved
        other = float(shares @ world.held(weights) - later @ world.held(back))
        yield "metrics", difference((self.one, weights), (self.other, back)), other


def weights_of(d: int, seed: int) -> dict[str, Floats]:
    """Return weights over values: of one, of neighbours, of some at random, of any numbers, and those of a mean."""
    rng, places = np.random.default_rng(seed), np.arange(d)
    some = rng.choice(d, max(1, d // 2), replace=False)
    return {
        "one": (places == 0) * 1.0,
        "neighbours": (places < max(min(2, d - 1), d // 3)) * 1.0,
        "at random": np.isin(places, some) * 1.0,
        "any": rng.normal(size=d),
        "a mean": places / max(d - 1, 1),
    }


def skewness(mechanism: PureMechanism, answered: list[tuple[int, ...]], weights: Floats) -> float:
    """Return that of a report's w, where all answers are given equally often."""
    chances: dict[int, float] = {}
    for answer in answered:
        for report, chance in law(mechanism, answer).items():
            chances[report] = chances.get(report, 0.0) + float(chance) / len(answered)
    values = np.array(
        [sum(a for v, a in enumerate(weights) if supports(mechanism, report, v)) for report in chances],
        dtype=np.float64,
    )
    law_of_all = np.array(list(chances.values()))
    away = values - law_of_all @ values
    spread = float(law_of_all @ away**2)
    return float(law_of_all @ away**3) / spread**1.5 if spread > 1e-12 else 0.0
