"""Every mechanism: its own code's exact law against what it declares."""

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from math import comb, prod
from typing import Any

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below, from_micro, to_micro
from dither_shared.frozen import replaced
from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    SUE,
    MemoizedTwoLevel,
    MemoizedUnary,
    OneShot,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    Unary,
    choose,
    from_document,
    serving,
)
from dither_shared.mechanisms.privset import unrank
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.rng import SCALE, Rng, keyed_rng
from tests.support.laws import Law, answers, largest_ratio, law, repeats, supports

EPSILONS = [Decimal(text) for text in ("0.01", "0.5", "1", "2", "4", "7.123456", "20")]
E = Decimal(2)


def one_shots(epsilon: Decimal) -> list[PureMechanism]:
    """Small ones: every way through the code, and few enough reports to enumerate."""
    return [
        *(GRR.for_epsilon(d, epsilon) for d in (2, 3, 5)),
        *(SubsetSelection.for_weight(d, w, epsilon) for d, w in ((2, 1), (4, 1), (4, 2), (5, 2), (5, 4), (18, 2))),
        *(PGR.for_design(d, r, t, epsilon) for d, r, t in ((7, 2, 3), (5, 2, 3), (9, 3, 3), (15, 2, 4))),
        *(PrivSet.for_weight(*a, epsilon) for a in ((2, 2, 1), (3, 2, 1), (3, 2, 2), (4, 1, 2), (4, 3, 1), (5, 2, 2))),
        *(kind.for_epsilon(d, epsilon) for kind in (OUE, SUE) for d in (2, 3, 4)),
        *(
            kind.for_epsilon(d, epsilon, ticks)
            for kind in (OUE, SUE)
            for d, ticks in ((2, 2), (3, 2), (4, 2), (4, 3), (4, 4))
        ),
    ]


TwoStages = MemoizedTwoLevel | MemoizedUnary


def memoized(permanent: Decimal, epsilon: Decimal) -> list[TwoStages]:
    return [
        *(
            MemoizedTwoLevel.for_epsilon(one_shot, epsilon)
            for one_shot in (
                GRR.for_epsilon(2, permanent),
                GRR.for_epsilon(4, permanent),
                SubsetSelection.for_weight(4, 2, permanent),
                PGR.for_design(7, 2, 3, permanent),
                PrivSet.for_weight(3, 2, 1, permanent),
                PrivSet.for_weight(4, 2, 2, permanent),
            )
        ),
        *(
            MemoizedUnary.for_epsilon(kind.for_epsilon(d, permanent, ticks), epsilon)
            for kind in (OUE, SUE)
            for d, ticks in ((2, 1), (3, 1), (3, 2))
        ),
    ]


TWO_STAGES = [
    *memoized(Decimal(2), Decimal(1)),
    *memoized(Decimal(4), Decimal("0.5")),
    *memoized(Decimal(8), Decimal(7)),
]
SMALL = [*one_shots(Decimal("0.5")), *one_shots(Decimal(2)), *one_shots(Decimal(8)), *TWO_STAGES]


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
class TestEveryMechanism:
    def test_the_largest_ratio_is_the_declared_one(self, mechanism: PureMechanism) -> None:
        laws = [law(mechanism, answer) for answer in answers(mechanism)]
        assert all(sum(one.values()) == 1 for one in laws)
        assert largest_ratio(laws) == mechanism.exp_epsilon

    def test_support_probabilities_are_p_and_q(self, mechanism: PureMechanism) -> None:
        for answer in answers(mechanism):
            probabilities = law(mechanism, answer)
            for value in range(mechanism.d):
                supported = sum(pr for report, pr in probabilities.items() if supports(mechanism, report, value))
                assert supported == (mechanism.p if value in answer else mechanism.q)

    def test_the_estimate_is_unbiased_in_exact_arithmetic(self, mechanism: PureMechanism) -> None:
        given = answers(mechanism)
        weights = [Fraction(place + 1, sum(range(1, len(given) + 1))) for place in range(len(given))]
        laws = [law(mechanism, answer) for answer in given]
        for value in range(mechanism.d):
            expected = sum(
                weight * probability
                for weight, one in zip(weights, laws, strict=True)
                for report, probability in one.items()
                if supports(mechanism, report, value)
            )
            truth = sum(weight for weight, answer in zip(weights, given, strict=True) if value in answer)
            assert (expected - mechanism.q) / (mechanism.p - mechanism.q) == truth

    def test_average_variance_is_that_of_the_exact_law(self, mechanism: PureMechanism) -> None:
        """One report of an answer that holds as many values as it may."""
        answer, d = answers(mechanism)[-1], mechanism.d
        probabilities, total = law(mechanism, answer), Fraction(0)
        for value in range(d):
            hit = sum(pr for report, pr in probabilities.items() if supports(mechanism, report, value))
            total += hit * (1 - hit) / (mechanism.p - mechanism.q) ** 2
        assert mechanism.average_variance == total / d

    def test_reports_are_exactly_the_declared_shape(self, mechanism: PureMechanism) -> None:
        reports = law(mechanism, answers(mechanism)[0])
        for report in reports:
            assert mechanism.shape.from_wire(mechanism.shape.to_wire(report)) == report
        design = mechanism.first_stage
        assert len(reports) == (design.outputs if isinstance(design, OneShot) else 2**mechanism.d)

    def test_parameters_make_the_same_mechanism_again(self, mechanism: PureMechanism) -> None:
        document = mechanism.to_document()
        assert from_document(document) == mechanism
        assert ("memo" in document) == mechanism.memoized


@pytest.mark.parametrize("mechanism", [one for one in SMALL if isinstance(one, TwoLevel)], ids=str)
def test_a_two_level_law_is_what_enumeration_counts(mechanism: TwoLevel) -> None:
    for answer in answers(mechanism):
        probabilities = law(mechanism, answer)
        likelier = {report for report, pr in probabilities.items() if pr == max(probabilities.values())}
        others = probabilities.keys() - likelier
        assert len({probabilities[report] for report in others}) == 1
        assert mechanism.law.inside == sum(probabilities[report] for report in likelier)
        assert mechanism.law.share == Fraction(len(likelier), len(probabilities))
        for value in range(mechanism.d):
            within, without = (
                Fraction(sum(supports(mechanism, report, value) for report in reports), len(reports))
                for reports in (likelier, others)
            )
            assert within == (mechanism.law.held if value in answer else mechanism.law.overlap)
            assert without == (0 if value in answer else mechanism.law.overlap_outside)


@pytest.mark.parametrize("mechanism", [one for one in TWO_STAGES if isinstance(one, MemoizedTwoLevel)], ids=str)
def test_memoizing_changes_only_how_often_a_report_lies_inside(mechanism: MemoizedTwoLevel) -> None:
    permanent = mechanism.permanent.law
    assert mechanism.law == replaced(permanent, inside=mechanism.law.inside)
    assert permanent.share < mechanism.law.inside < permanent.inside


def of_repeats(mechanism: TwoStages, answer: tuple[int, ...], count: int) -> dict[tuple[int, ...], Fraction]:
    """Return the exact law of `count` reports of one memo."""
    memos = law_of_memo(mechanism, answer)
    kernels = {memo: repeats(mechanism, memo) for memo in memos}
    reports = list(next(iter(kernels.values())))
    return {
        series: sum(
            (weight * prod(kernels[memo][report] for report in series) for memo, weight in memos.items()), Fraction(0)
        )
        for series in product(reports, repeat=count)
    }


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
            if len(law_of_memo(mechanism, (0,))) ** count > 600:
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


# Any size and epsilon.


def for_epsilon(name: str, d: int, epsilon: Decimal) -> PureMechanism:
    if name == "grr":
        return GRR.for_epsilon(d, epsilon)
    if name == "privset":
        return PrivSet.for_epsilon(d, epsilon, min(d, 3), bits_max=4096)
    if name == "ss":
        return SubsetSelection.for_epsilon(d, epsilon)
    return choose(d, epsilon, name=name) if name == "pgr" else {"oue": OUE, "sue": SUE}[name].for_epsilon(d, epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [2, 3, 16, 128, 1024, 65_536])
@pytest.mark.parametrize("name", serving(None) | serving(2))
def test_declared_epsilon_is_just_below_the_wanted_one(name: str, d: int, epsilon: Decimal) -> None:
    mechanism = for_epsilon(name, d, epsilon)
    wanted = exp_below(epsilon)
    assert wanted * (1 - Fraction(1, 10**8)) < mechanism.exp_epsilon <= wanted
    assert mechanism.charge == to_micro(epsilon)
    assert from_micro(mechanism.charge) == float(epsilon)


@pytest.mark.parametrize("ticks", [2, 3, 7, 64])
@pytest.mark.parametrize("d", [3, 16, 128])
@pytest.mark.parametrize("name", ["oue", "sue", "privset"])
@pytest.mark.parametrize("permanent", [None, Decimal(6)])
def test_declared_epsilon_of_several_ticks_is_just_below_the_wanted_one(
    name: str, d: int, ticks: int, permanent: Decimal | None
) -> None:
    most = min(ticks, d)
    if name == "privset" and permanent is not None and d + most > 64:
        return  # not one of its reports may be memoized
    mechanism = choose(d, Decimal(2), ticks=most, permanent=permanent, name=name)
    wanted = exp_below(Decimal(2))
    assert wanted * (1 - Fraction(1, 10**8)) < mechanism.exp_epsilon <= wanted
    assert mechanism.charge == 2_000_000


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [3, 128, 65_536])
def test_thresholds_are_the_tightest(d: int, epsilon: Decimal) -> None:
    """One step further would exceed the wanted epsilon."""
    wanted = exp_below(epsilon)
    grr, oue, sue = GRR.for_epsilon(d, epsilon), OUE.for_epsilon(d, epsilon), SUE.for_epsilon(d, epsilon)
    subset = SubsetSelection.for_epsilon(d, epsilon)
    assert GRR(d, grr.threshold + 1).exp_epsilon > wanted
    assert SubsetSelection(d, subset.weight, subset.threshold + 1).exp_epsilon > wanted
    assert OUE(d, 1, oue.threshold_p, oue.threshold_q - 1).exp_epsilon > wanted
    assert SUE(d, 1, sue.threshold_p + 1, sue.threshold_q - 1).exp_epsilon > wanted
    for one_shot in (PGR.for_design(7, 2, 3, epsilon), PGR.for_design(30, 5, 3, epsilon)):
        assert PGR(one_shot.d, one_shot.order, 3, one_shot.threshold + 1).exp_epsilon > wanted


def test_the_tightest_second_stage() -> None:
    wanted = exp_below(Decimal(1))
    for mechanism in memoized(Decimal(4), Decimal(1)):
        if isinstance(mechanism, MemoizedTwoLevel):
            assert MemoizedTwoLevel(mechanism.permanent, mechanism.threshold_keep + 1).exp_epsilon > wanted
        if isinstance(mechanism, MemoizedUnary):
            assert MemoizedUnary(mechanism.permanent, mechanism.threshold_flip - 1).exp_epsilon > wanted


def test_subsets_are_unranked_in_lexicographic_order() -> None:
    for size, count in ((5, 2), (6, 3), (4, 0), (5, 5), (7, 1)):
        assert [tuple(unrank(size, count, rank)) for rank in range(comb(size, count))] == list(
            combinations(range(size), count)
        )


@pytest.mark.parametrize(("order", "dimension"), [(2, 3), (3, 4), (5, 3), (7, 3)])
def test_points_have_ranks_and_hyperplanes_that_share_as_many(order: int, dimension: int) -> None:
    design = PGR.for_design(2, order, dimension, E)
    points = [design.unrank(rank) for rank in range(design.outputs)]
    assert points == sorted(points)
    assert len({tuple(point) for point in points}) == design.outputs
    for rank, point in enumerate(points):
        scaled = [3 * coordinate % order if order > 3 else coordinate for coordinate in point]
        assert design.rank(point) == design.rank(scaled) == rank
    planes = [{u for u in range(design.outputs) if supports(design, u, v)} for v in range(design.outputs)]
    assert {len(plane) for plane in planes} == {design.law.share * design.outputs}
    shared = {len(one & other) for place, one in enumerate(planes) for other in planes[:place]}
    assert shared == {design.law.overlap * design.law.share * design.outputs}


# Planted bugs.


def test_the_threshold_of_keep_or_uniform_would_be_caught() -> None:
    """The classic wrong threshold: it belongs to a mechanism whose other branch may send the answer too."""
    e, d = exp_below(E), 5
    wrong = GRR(d, int(SCALE * (e - 1) / (e + d - 1)))
    assert wrong.exp_epsilon < e * Fraction(9, 10)


class KeepOrUniform(GRR):
    """A planted bug: the other branch is uniform over all values, the answer included."""

    def randomize(self, answer: int, rng: Rng) -> int:
        keep, other = rng.coin(self.threshold), rng.uniform(self.d)
        return answer if keep else other


class Swapped(OUE):
    """A planted bug: p and q have changed places."""

    def randomize(self, answer: int, rng: Rng) -> int:
        noise, kept = rng.coins(self.threshold_p, self.d), rng.coins(self.threshold_q, self.d)
        return noise ^ (noise ^ kept) & answer


class OffTheHyperplane(PGR):
    """A planted bug: vectors off the hyperplane may be zero elsewhere too, and on it too."""

    def randomize(self, answer: int, rng: Rng) -> int:
        on = rng.coin(self.threshold)
        point = rng.uniform(self.outputs)
        return answer if on else point


class SometimesInTheClear(SubsetSelection):
    """A planted bug: the answer is in every subset."""

    def randomize(self, answer: int, rng: Rng) -> int:
        others = rng.uniform(self.d - 1)
        return self.shape.of([answer, others + (others >= answer)])


PLANTED: list[Callable[[], PureMechanism]] = [
    lambda: KeepOrUniform.for_epsilon(3, E),
    lambda: Swapped.for_epsilon(3, E),
    lambda: OffTheHyperplane.for_design(7, 2, 3, E),
    lambda: SometimesInTheClear.for_weight(4, 2, E),
]


@pytest.mark.parametrize("make", PLANTED, ids=lambda make: type(make()).__name__)
def test_planted_bugs_are_caught(make: Callable[[], PureMechanism]) -> None:
    mechanism = make()
    supported = sum(pr for report, pr in law(mechanism, (1,)).items() if supports(mechanism, report, 1))
    assert supported != mechanism.p


def test_a_report_that_only_one_answer_has_is_caught() -> None:
    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio([law(SometimesInTheClear.for_weight(4, 2, E), (value,)) for value in range(4)])


def test_ticks_times_epsilon_would_be_caught_where_answers_must_overlap() -> None:
    """OUE over 3 values of which 2 may be ticked: two answers cannot differ in four bits."""
    one = OUE.for_epsilon(3, Decimal(1))
    two = OUE(3, 2, one.threshold_p, one.threshold_q)
    naive = one.exp_epsilon**2
    exact = largest_ratio([law(two, answer) for answer in answers(two)])
    assert exact == two.exp_epsilon != naive
    assert exact < naive


def test_a_multi_hot_code_of_one_bit_has_its_own_epsilon() -> None:
    """The two factors of one flip differ: OUE with e^eps = 7 has 3.5 in one direction and 7/4 in the other."""
    assert OUE(2, 2, SCALE // 2, SCALE // 8).exp_epsilon == 4**2


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


# Samplers with real coins.

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


@pytest.mark.parametrize("mechanism", SAMPLED, ids=str)
def test_the_sampler_follows_its_law_with_real_coins(mechanism: PureMechanism) -> None:
    """Seeded, 20,000 draws for each of 3 answers: no count 6 sigma from its law.

    Over seeds, with at most 64 reports to watch, a false alarm of 3 x 64 x 2e-9 = 4e-7.
    """
    assert _farthest(mechanism, Rng(random.Random(7).getrandbits), 20_000) < 6


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


class CountingRng(Rng):
    """Notes what is drawn, and answers each kind of question with the next of some given numbers."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        super().__init__(source.getrandbits)
        object.__setattr__(self, "drawn", [])

    drawn: list[tuple[str, int, int]]

    def coin(self, threshold: int) -> bool:
        self.drawn.append(("coin", threshold, 1))
        return super().coin(threshold)

    def coins(self, threshold: int, count: int) -> int:
        self.drawn.append(("coins", threshold, count))
        return super().coins(threshold, count)

    def uniform(self, size: int) -> int:
        self.drawn.append(("uniform", size, 1))
        return super().uniform(size)


@pytest.mark.parametrize("mechanism", SAMPLED, ids=str)
def test_what_is_drawn_does_not_depend_on_the_answer_or_on_the_coins(mechanism: PureMechanism) -> None:
    seen = set()
    for seed in range(40):
        for answer in answers(mechanism):
            rng = CountingRng(seed)
            mechanism.randomize(mechanism.class_of(answer), rng)
            seen.add(tuple(rng.drawn))
    assert len(seen) == 1


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


# Edges.

HALF = SCALE // 2
OUTSIDE: list[Callable[[], PureMechanism]] = [
    *(partial(GRR, *a) for a in ((1, HALF), (2, SCALE), (2, HALF), (4, SCALE // 4), (3, -1))),
    *(partial(OUE, *a) for a in ((1, 1, HALF, 1), (3, 1, HALF, 0), (3, 1, SCALE, 1), (3, 1, 5, 5), (3, 1, 4, 5))),
    *(partial(OUE, *a) for a in ((3, 0, HALF, 5), (3, 4, HALF, 5))),
    *(partial(SubsetSelection, *a) for a in ((1, 1, HALF), (4, 0, HALF), (4, 4, HALF), (4, 2, HALF), (4, 2, SCALE))),
    *(
        partial(PrivSet, *a)
        for a in ((1, 1, 1, HALF), (4, 0, 1, HALF), (4, 5, 1, HALF), (4, 2, 0, HALF), (4, 2, 5, HALF))
    ),
    *(partial(PrivSet, *a) for a in ((4, 2, 1, SCALE // 3), (4, 2, 1, SCALE))),
    *(partial(PGR, *a) for a in ((7, 4, 3, HALF), (8, 2, 3, HALF + 1), (7, 2, 2, HALF), (7, 1, 3, HALF))),
    *(partial(PGR, *a) for a in ((7, 2, 3, SCALE * 3 // 7), (7, 2, 3, SCALE), (7, 1451, 3, HALF), (1, 2, 3, HALF))),
    *(partial(MemoizedTwoLevel, GRR.for_epsilon(3, E), a) for a in (0, SCALE)),
    *(partial(MemoizedUnary, OUE.for_epsilon(3, E), a) for a in (0, HALF)),
]


@pytest.mark.parametrize("make", OUTSIDE, ids=str)
def test_edges_that_the_proofs_do_not_cover_are_refused(make: Callable[[], PureMechanism]) -> None:
    with pytest.raises(InvalidParameter):
        make()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"mechanism": "laplace", "parameters": {}}, "one of"),
        ({"mechanism": "grr", "parameters": {"d": 2}}, "does not take"),
        ({"mechanism": "grr", "parameters": {"d": 2, "threshold": HALF + 1, "threshold_keep": 1}}, "does not take"),
        (
            {"mechanism": "grr", "memo": {"d": 2, "threshold": HALF + 1}, "parameters": {"threshold_flip": 1}},
            "does not",
        ),
        ({"mechanism": "oue", "memo": {"d": 2}, "parameters": {"threshold_flip": 1}}, "does not take"),
        ({"mechanism": "rappor", "parameters": {"k": 2}}, "does not take"),
    ],
)
def test_a_stored_plan_that_is_not_one_of_ours_is_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        from_document(document)
