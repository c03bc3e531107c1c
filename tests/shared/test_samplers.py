"""Samplers with real coins follow their laws, and what they draw says nothing of the answer."""

import random
from collections import Counter
from decimal import Decimal

import pytest

from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    SUE,
    MemoizedTwoLevel,
    MemoizedUnary,
    PrivSet,
    PureMechanism,
    SubsetSelection,
)
from dither_shared.rng import Rng
from tests.support.laws import answers, law
from tests.support.mechanisms import CountingRng, KeepOrUniform
from tests.support.soaking import scaled, thinned

E = Decimal(2)


SAMPLED = [
    GRR.for_epsilon(4, Decimal(1)),
    SubsetSelection.for_weight(6, 2, Decimal(1)),
    PGR.for_design(13, 3, 3, Decimal(1)),
    OUE.for_epsilon(4, Decimal(1)),
    SUE.for_epsilon(4, Decimal(1), 2),
    PrivSet.for_weight(5, 2, 2, Decimal(1)),
    MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(4, E), Decimal(1)),
    MemoizedUnary.for_epsilon(OUE.for_epsilon(4, E), Decimal(1)),
]


@pytest.mark.parametrize("mechanism", thinned(SAMPLED, 0, 1, 2, 4, 6, 7), ids=str)  # each way to draw
def test_the_sampler_follows_its_law_with_real_coins(mechanism: PureMechanism) -> None:
    """Seeded, draws for each of 3 answers: no count 6 sigma from its law.

    Over seeds, with at most 64 reports to watch, a false alarm of 3 x 64 x 2e-9 = 4e-7.
    """
    assert _farthest(mechanism, Rng(random.Random(7).getrandbits), scaled(10_000, 20_000)) < 6


def test_a_spoiled_sampler_is_caught_with_real_coins() -> None:
    rng = Rng(random.Random(7).getrandbits)
    assert _farthest(KeepOrUniform.for_epsilon(4, Decimal(1)), rng, 20_000, GRR.for_epsilon(4, Decimal(1))) > 6


def _farthest(mechanism: PureMechanism, rng: Rng, runs: int, declared: PureMechanism | None = None) -> float:
    """Return the largest distance of a report's count from its law, in sigmas."""
    worst = 0.0
    for answer in answers(mechanism)[-3:]:
        key = mechanism.class_of(answer)
        counts = Counter(mechanism.randomize(key, rng) for _ in range(runs))
        for report, exact in law(declared or mechanism, answer).items():
            probability = float(exact)
            sigma = (runs * probability * (1 - probability)) ** 0.5
            worst = max(worst, abs(counts[report] - runs * probability) / sigma)
    return worst


@pytest.mark.parametrize("mechanism", SAMPLED, ids=str)
def test_what_is_drawn_does_not_depend_on_the_answer_or_on_the_coins(mechanism: PureMechanism) -> None:
    seen = set()
    for seed in range(scaled(15, 40)):
        for answer in answers(mechanism):
            rng = CountingRng(seed)
            mechanism.randomize(mechanism.class_of(answer), rng)
            seen.add(tuple(rng.drawn))
    assert len(seen) == 1
