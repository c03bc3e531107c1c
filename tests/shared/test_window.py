"""The window: its exact law against what it declares, its sampler, and the edges of its proof."""

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.mechanisms import SquareWave, from_document
from dither_shared.mechanisms.window import PLACES_MAX, half_width
from dither_shared.rng import SCALE, Rng
from tests.support.laws import Law, largest_ratio, law_of_class
from tests.support.mechanisms import CountingRng
from tests.support.soaking import scaled

EPSILONS = [Decimal(text) for text in ("0.01", "0.5", "1", "2", "4", "7.123456", "20")]
SMALL = [
    *(SquareWave.for_reach(d, reach, epsilon) for d, reach in ((2, 0), (2, 1), (3, 2), (5, 1)) for epsilon in EPSILONS),
    *(SquareWave.for_epsilon(d, epsilon) for d in (3, 5) for epsilon in EPSILONS),
]


def laws(window: SquareWave) -> list[Law]:
    """Return the law of every class: the places, and what has none."""
    return [law_of_class(window, answer) for answer in range(window.d + 1)]


def check_levels(window: SquareWave) -> None:
    """Every report has the one probability in the answer's window, and the other one outside; without a place 1 / K."""
    inside = Fraction(window.threshold, SCALE) / window.width
    outside = (1 - Fraction(window.threshold, SCALE)) / (window.outputs - window.width)
    *placed, without = laws(window)
    for answer, one in enumerate(placed):
        assert one == {y: inside if y in window.window_of(answer) else outside for y in range(window.outputs)}
    assert without == dict.fromkeys(range(window.outputs), Fraction(1, window.outputs))


@pytest.mark.parametrize("window", SMALL, ids=str)
def test_the_largest_ratio_is_the_declared_one_and_every_answer_has_every_report(window: SquareWave) -> None:
    every = laws(window)
    assert largest_ratio(every) == largest_ratio(every[:-1]) == window.exp_epsilon
    check_levels(window)


@pytest.mark.parametrize("window", SMALL, ids=str)
def test_documents_and_the_wire_keep_what_it_is(window: SquareWave) -> None:
    assert from_document(window.to_document()) == window
    assert all(window.shape.from_wire(window.shape.to_wire(y)) == y for y in range(window.outputs))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [2, 3, 34, 66, 258, PLACES_MAX])
def test_epsilon_is_the_wanted_one_but_for_the_rounding_of_a_threshold(d: int, epsilon: Decimal) -> None:
    """One step of the threshold moves e^epsilon by a part of 1 / ((1 - T) 2^64): most where T is nearly 1."""
    window = SquareWave.for_epsilon(d, epsilon)
    outside = 1 - window.threshold / SCALE
    assert window.exp_epsilon <= exp_below(epsilon)
    assert window.exp_epsilon > exp_below(epsilon) * (1 - Fraction(4 / outside) / SCALE)
    assert window.reach >= 1


HALF_WIDTHS = {
    "0.000001": 0.499999666666778,
    "0.5": 0.358155424611167,
    "1": 0.256082937501473,
    "2": 0.129337066745766,
    "4": 0.030427703824354,
}
"""(eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)) by another route: `decimal` of 50 digits."""


@pytest.mark.parametrize("epsilon", HALF_WIDTHS)
def test_the_half_width_is_that_of_the_paper(epsilon: str) -> None:
    assert float(half_width(Decimal(epsilon))) == pytest.approx(HALF_WIDTHS[epsilon], abs=1e-14)


# Planted bugs.


class OffByOne(SquareWave):
    """A report outside that is beside the window is taken for one below."""

    def randomize(self, answer: int, rng: Rng) -> int:
        inside, within = rng.coin(self.threshold), rng.uniform(self.width)
        outside, anywhere = rng.uniform(self.outputs - self.width), rng.uniform(self.outputs)
        if answer == self.d:
            return anywhere
        return answer + within if inside else outside + self.width * (outside > answer)


class Narrow(SquareWave):
    """The window ends one report too early."""

    def randomize(self, answer: int, rng: Rng) -> int:
        inside, within = rng.coin(self.threshold), rng.uniform(self.width - 1)
        outside = rng.uniform(self.outputs - self.width)
        return answer + within if inside else outside + self.width * (outside >= answer)


class OfItsOwn(SquareWave):
    """An answer without a place is sent as a symbol of its own."""

    def randomize(self, answer: int, rng: Rng) -> int:
        return self.outputs if answer == self.d else super().randomize(answer, rng)


class Nowhere(SquareWave):
    """An answer without a place is sent as from the first one: private, but the estimate takes it for a number."""

    def randomize(self, answer: int, rng: Rng) -> int:
        return super().randomize(answer % self.d, rng)


@pytest.mark.parametrize("spoiled", [OffByOne, Narrow, OfItsOwn, Nowhere])
def test_a_planted_bug_is_found_in_the_law(spoiled: type[SquareWave]) -> None:
    with pytest.raises(AssertionError):
        check_levels(spoiled.for_reach(5, 1, Decimal(1)))


def test_a_symbol_of_its_own_is_an_infinite_epsilon() -> None:
    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio(laws(OfItsOwn.for_reach(5, 1, Decimal(1))))


# Samplers with real coins.


def farthest(window: SquareWave, runs: int = 20_000) -> float:
    """Return the largest distance of a report's count from its law, in sigmas, over five classes."""
    rng, worst = Rng(random.Random(7).getrandbits), 0.0
    declared = SquareWave(window.d, window.reach, window.threshold)
    for answer in (0, 1, window.d // 2, window.d - 1, window.d):
        counts = Counter(window.randomize(answer, rng) for _ in range(runs))
        assert set(counts) <= set(range(window.outputs))
        for report in range(window.outputs):
            p = probability(declared, answer, report)
            worst = max(worst, abs(counts[report] - runs * p) / (runs * p * (1 - p)) ** 0.5)
    return worst


def probability(window: SquareWave, answer: int, report: int) -> float:
    if answer == window.d:
        return 1 / window.outputs
    inside = window.threshold / SCALE
    if report in window.window_of(answer):
        return inside / window.width
    return (1 - inside) / (window.outputs - window.width)


@pytest.mark.parametrize(
    "window", [SquareWave.for_epsilon(18, Decimal(1)), SquareWave.for_reach(9, 2, Decimal(2))], ids=str
)
def test_the_sampler_follows_its_law_with_real_coins(window: SquareWave) -> None:
    """Seeded, 20,000 draws for each of 5 classes: no count 6 sigma from its law, over seeds a false alarm of 4e-7."""
    assert farthest(window) < 6


@pytest.mark.parametrize("spoiled", [OffByOne, Narrow, Nowhere])
def test_a_spoiled_sampler_is_caught_with_real_coins(spoiled: type[SquareWave]) -> None:
    assert farthest(spoiled.for_reach(9, 2, Decimal(2)), scaled(5_000, 20_000)) > 6


def test_what_is_drawn_does_not_depend_on_the_answer_or_on_the_coins() -> None:
    window, seen = SquareWave.for_epsilon(6, Decimal(1)), set()
    for seed in range(40):
        for answer in range(window.d + 1):
            rng = CountingRng(seed)
            window.randomize(answer, rng)
            seen.add(tuple(rng.drawn))
    assert len(seen) == 1


# Edges.

HALF = SCALE // 2
OUTSIDE: list[Callable[[], SquareWave]] = [
    *(
        partial(SquareWave, *a)
        for a in ((1, 0, HALF), (PLACES_MAX + 1, 0, HALF), (5, -1, HALF), (5, PLACES_MAX + 1, HALF))
    ),
    *(partial(SquareWave, *a) for a in ((2, 0, HALF), (5, 1, SCALE * 3 // 7), (5, 1, SCALE), (5, 1, 0), (5, 1, -1))),
]


@pytest.mark.parametrize("make", OUTSIDE, ids=str)
def test_edges_that_the_proof_does_not_cover_are_refused(make: Callable[[], SquareWave]) -> None:
    with pytest.raises(InvalidParameter):
        make()


def test_the_first_threshold_that_the_proof_covers_is_taken() -> None:
    assert SquareWave(5, 1, SCALE * 3 // 7 + 1).exp_epsilon > 1
