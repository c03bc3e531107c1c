"""Memoized mechanisms: the exact law of repeated reports, and what they lose together."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import prod

import pytest

from dither_shared.exact import exp_below
from dither_shared.frozen import replaced
from dither_shared.mechanisms import (
    GRR,
    PGR,
    SUE,
    MemoizedTwoLevel,
    MemoizedUnary,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    Unary,
)
from dither_shared.rng import SCALE, keyed_rng
from tests.support.laws import Law, answers, largest_ratio, law, law_of_repeats
from tests.support.mechanisms import TWO_STAGES, TwoStages, memoized
from tests.support.soaking import scaled

E = Decimal(2)


@pytest.mark.parametrize("mechanism", [one for one in TWO_STAGES if isinstance(one, MemoizedTwoLevel)], ids=str)
def test_memoizing_changes_only_how_often_a_report_lies_inside(mechanism: MemoizedTwoLevel) -> None:
    permanent = mechanism.permanent.law
    assert mechanism.law == replaced(permanent, inside=mechanism.law.inside)
    assert permanent.share < mechanism.law.inside < permanent.inside


def of_repeats(mechanism: TwoStages, answer: tuple[int, ...], count: int) -> dict[tuple[int, ...], Fraction]:
    """Return the exact law of `count` reports of one memo."""
    return law_of_repeats(mechanism, law_of_memo(mechanism, answer), count)


def law_of_memo(mechanism: TwoStages, answer: tuple[int, ...]) -> Law:
    return law(mechanism.permanent, answer)


@pytest.mark.parametrize("mechanism", TWO_STAGES, ids=str)
class TestEveryMemo:
    def test_the_permanent_part_is_private_by_itself(self, mechanism: TwoStages) -> None:
        laws = [law_of_memo(mechanism, answer) for answer in answers(mechanism)]
        assert largest_ratio(laws) == mechanism.permanent.exp_epsilon

    def test_repeated_reports_never_exceed_the_permanent_epsilon(self, mechanism: TwoStages) -> None:
        exceeded = mechanism.exp_epsilon
        for count in (2, 3):
            if len(law_of_memo(mechanism, (0,))) ** count > scaled(300, 600):
                continue
            laws = [of_repeats(mechanism, answer, count) for answer in answers(mechanism)]
            ratio = max(max(one[y] for one in laws) / min(one[y] for one in laws) for y in laws[0])
            assert exceeded < ratio < mechanism.permanent.exp_epsilon
            exceeded = ratio

    def test_the_first_report_has_the_law_of_the_one_shot_mechanism(self, mechanism: TwoStages) -> None:
        """Memoizing costs no accuracy: p and q are those of fresh noise with the same epsilon, to rounding."""
        epsilon = Decimal(mechanism.charge) / 1_000_000
        one_shot = re_drawn(mechanism.permanent, epsilon)
        assert abs(mechanism.p - one_shot.p) < Fraction(1, 10**9)
        assert abs(mechanism.q - one_shot.q) < Fraction(1, 10**9)
        assert exp_below(epsilon) * (1 - Fraction(1, 10**9)) < mechanism.exp_epsilon <= exp_below(epsilon)


def re_drawn(mechanism: PureMechanism, epsilon: Decimal) -> PureMechanism:
    """Return the mechanism of the same design with another epsilon."""
    match mechanism:
        case GRR():
            return GRR.for_epsilon(mechanism.d, epsilon)
        case SubsetSelection():
            return SubsetSelection.for_weight(mechanism.d, mechanism.weight, epsilon)
        case PrivSet():
            return PrivSet.for_weight(mechanism.d, mechanism.ticks, mechanism.weight, epsilon)
        case PGR():
            return PGR.for_design(mechanism.d, mechanism.order, mechanism.dimension, epsilon)
        case Unary():
            return type(mechanism).for_epsilon(mechanism.d, epsilon, mechanism.ticks)
    raise AssertionError(mechanism)


def test_the_loss_of_repeated_grr_reports_is_the_closed_form() -> None:
    """ln((a b^r + k - 1) / (b^r + a + k - 2)), with a = e^epsilon_permanent and b the odds of the second stage."""
    mechanism = MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(4, Decimal(4)), Decimal(1))
    k, a = 4, mechanism.permanent.exp_epsilon
    keep = Fraction(mechanism.threshold_keep, SCALE)
    b = (keep + (1 - keep) / k) / ((1 - keep) / k)
    for count in (1, 2, 3, 4):
        laws = [of_repeats(mechanism, answer, count) for answer in answers(mechanism)[:2]]
        ratio = max(laws[0][series] / laws[1][series] for series in laws[0])
        assert ratio == (a * b**count + k - 1) / (b**count + a + k - 2)


def test_the_tightest_second_stage() -> None:
    wanted = exp_below(Decimal(1))
    for mechanism in memoized(Decimal(4), Decimal(1)):
        if isinstance(mechanism, MemoizedTwoLevel):
            assert MemoizedTwoLevel(mechanism.permanent, mechanism.threshold_keep + 1).exp_epsilon > wanted
        if isinstance(mechanism, MemoizedUnary):
            assert MemoizedUnary(mechanism.permanent, mechanism.threshold_flip - 1).exp_epsilon > wanted


def test_the_published_odds_would_waste_accuracy() -> None:
    """L-GRR's b = (c a - 1) / (a - c) leaves out (k - 2) terms: private, but far below the epsilon that was wanted."""
    k, permanent = 16, GRR.for_epsilon(16, E)
    a, c = permanent.exp_epsilon, exp_below(Decimal(1))
    published = (c * a - 1) / (a - c)
    keep = (published - 1) / (published - 1 + k)
    wrong = MemoizedTwoLevel(permanent, int(SCALE * keep))
    right = MemoizedTwoLevel.for_epsilon(permanent, Decimal(1))
    assert wrong.charge == 573_234
    assert right.charge == 1_000_000
    assert wrong.average_variance > 4 * right.average_variance


class Redrawn(MemoizedTwoLevel):
    """A planted bug: the permanent part is drawn again for every report."""

    def series(self, answer: tuple[int, ...], count: int) -> dict[tuple[int, ...], Fraction]:
        one = law(self, answer)
        chances = ((reports, [one[report] for report in reports]) for reports in product(one, repeat=count))
        return {reports: prod(chance, start=Fraction(1)) for reports, chance in chances}


def test_a_permanent_part_that_is_drawn_again_would_be_caught() -> None:
    """Three fresh reports at epsilon 1 cost 3, more than the 2 that are promised for any number of them."""
    redrawn = Redrawn.for_epsilon(GRR.for_epsilon(3, E), Decimal(1))
    laws = [redrawn.series((value,), 3) for value in range(3)]
    ratio = max(max(one[y] for one in laws) / min(one[y] for one in laws) for y in laws[0])
    assert ratio > redrawn.permanent.exp_epsilon
    kept = [of_repeats(redrawn, (value,), 3) for value in range(3)]
    assert max(kept[0][y] / kept[1][y] for y in kept[0]) < redrawn.permanent.exp_epsilon


def test_a_memo_is_the_same_for_a_device_and_an_answer_and_differs_between_them() -> None:
    mechanism = SUE.for_epsilon(64, Decimal(4))

    def draw(secret: bytes, context: bytes) -> int:
        return mechanism.randomize(1, keyed_rng(secret, context))

    memo = draw(b"s" * 32, b"theme 1")
    assert memo == draw(b"s" * 32, b"theme 1")
    assert len({memo, draw(b"t" * 32, b"theme 1"), draw(b"s" * 32, b"theme 2"), draw(b"s" * 32, b"color 1")}) == 4


def test_memos_over_devices_follow_the_law_of_the_permanent_part() -> None:
    """20,000 secrets: no count of a memo 6 sigma from its law (a false alarm of 1e-8)."""
    mechanism, runs = GRR.for_epsilon(4, E), 20_000
    secrets = (number.to_bytes(32, "big") for number in range(runs))
    counts = Counter(mechanism.randomize(2, keyed_rng(secret, b"m 2")) for secret in secrets)
    for report, exact in law(mechanism, (2,)).items():
        sigma = (runs * float(exact) * (1 - float(exact))) ** 0.5
        assert abs(counts[report] - runs * float(exact)) < 6 * sigma
