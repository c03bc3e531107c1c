"""Every mechanism: its own code's exact law against what it declares."""

import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import replaced
from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    MemoizedTwoLevel,
    MemoizedUnary,
    OneShot,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    from_document,
)
from dither_shared.mechanisms.pgr import prime_for
from dither_shared.mechanisms.privset import unrank
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.rng import SCALE, Rng
from tests.support.laws import answers, largest_ratio, law, supports
from tests.support.mechanisms import SMALL, KeepOrUniform

E = Decimal(2)


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
class TestEveryMechanism:
    def test_the_largest_ratio_is_the_declared_one(self, mechanism: PureMechanism) -> None:
        laws = [law(mechanism, answer) for answer in answers(mechanism)]
        assert all(sum(one.values()) == 1 for one in laws)
        assert largest_ratio(laws) == mechanism.exp_epsilon

    def test_support_probabilities_are_p_and_q(self, mechanism: PureMechanism) -> None:
        """So (support - q) / (p - q) has the truth for its mean, whatever the answers are."""
        for answer in answers(mechanism):
            probabilities = law(mechanism, answer)
            for value in range(mechanism.d):
                supported = sum(pr for report, pr in probabilities.items() if supports(mechanism, report, value))
                assert supported == (mechanism.p if value in answer else mechanism.q)

    def test_average_variance_is_that_of_the_exact_law(self, mechanism: PureMechanism) -> None:
        """One report of an answer that holds as many values as it may."""
        answer, d = answers(mechanism)[-1], mechanism.d
        probabilities, total = law(mechanism, answer), Fraction(0)
        for value in range(d):
            hit = sum(pr for report, pr in probabilities.items() if supports(mechanism, report, value))
            total += hit * (1 - hit) / (mechanism.p - mechanism.q) ** 2
        assert mechanism.average_variance == total / d

    def test_reports_are_exactly_the_declared_shape_and_parameters_make_it_again(
        self, mechanism: PureMechanism
    ) -> None:
        reports = law(mechanism, answers(mechanism)[0])
        for report in reports:
            assert mechanism.shape.from_wire(mechanism.shape.to_wire(report)) == report
        design = mechanism.first_stage
        assert len(reports) == (design.outputs if isinstance(design, OneShot) else 2**mechanism.d)
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


def test_subsets_are_unranked_in_lexicographic_order() -> None:
    for size, count in ((5, 2), (6, 3), (4, 0), (5, 5), (7, 1)):
        assert [tuple(unrank(size, count, rank)) for rank in range(comb(size, count))] == list(
            combinations(range(size), count)
        )


@pytest.mark.parametrize(("order", "dimension"), [(2, 3), (3, 4), (5, 3), (7, 3)])
def test_points_have_ranks_and_hyperplanes_that_share_as_many(order: int, dimension: int) -> None:
    design = PGR.for_design(2, order, dimension, E)
    points = [design.unrank(rank) for rank in range(design.outputs)]
    in_order = replaced(design, prime=0)
    assert [in_order.unrank(rank) for rank in range(design.outputs)] == sorted(points)
    assert [in_order.rank(point) for point in sorted(points)] == list(range(design.outputs))
    assert len({tuple(point) for point in points}) == design.outputs
    for rank, point in enumerate(points):
        scaled = [3 * coordinate % order if order > 3 else coordinate for coordinate in point]
        assert design.rank(point) == design.rank(scaled) == rank
    planes = [{u for u in range(design.outputs) if supports(design, u, v)} for v in range(design.outputs)]
    assert {len(plane) for plane in planes} == {design.law.share * design.outputs}
    shared = {len(one & other) for place, one in enumerate(planes) for other in planes[:place]}
    assert shared == {design.law.overlap * design.law.share * design.outputs}


def test_points_of_these_numbers_are_pinned() -> None:
    for space in json.loads((Path(__file__).parents[1] / "vectors" / "points.json").read_text(encoding="utf-8")):
        design = PGR.for_design(2, space["order"], space["dimension"], E)
        assert design.prime == space["prime"]
        assert [[number, design.unrank(number)] for number, _ in space["points"]] == space["points"]
        assert [design.rank(vector) for _, vector in space["points"]] == [number for number, _ in space["points"]]


def test_points_are_numbered_by_cubes_of_places_counted_from_the_end() -> None:
    """7 points: 11 is the prime, for 7 is 1 modulo 3. 8, 9 and 7 are cubed once more; 7 twice."""
    assert [place**3 % 11 for place in range(7)] == [0, 1, 8, 5, 9, 4, 7]
    assert [8**3 % 11, 9**3 % 11, 7**3 % 11] == [6, 3, 2]
    design = PGR.for_design(2, 2, 3, E)
    places = [design.outputs - 1 - number for number in range(7)]
    ranks = [replaced(design, prime=0).rank(design.unrank(number)) for number in range(7)]
    assert (design.prime, places, ranks) == (11, [6, 5, 4, 3, 2, 1, 0], [2, 4, 3, 5, 6, 1, 0])


def test_primes_are_the_least_that_cubing_permutes() -> None:
    def permutes(size: int) -> bool:
        is_prime = all(size % divisor for divisor in range(2, size))
        return is_prime and len({place**3 % size for place in range(size)}) == size

    for size in range(7, 400):
        assert prime_for(size) == next(filter(permutes, itertools.count(size)))


# Planted bugs.


def test_the_threshold_of_keep_or_uniform_would_be_caught() -> None:
    """The classic wrong threshold: it belongs to a mechanism whose other branch may send the answer too."""
    e, d = exp_below(E), 5
    wrong = GRR(d, int(SCALE * (e - 1) / (e + d - 1)))
    assert wrong.exp_epsilon < e * Fraction(9, 10)


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


def test_a_mechanism_for_several_values_has_a_class_of_them() -> None:
    """The default takes exactly one: answers of several would fail on the device, which says nothing."""
    with pytest.raises(TypeError, match=r"^Half serves several values and has no class_of$"):
        type("Half", (PureMechanism,), {"serves_several": True})
