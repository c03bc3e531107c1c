"""RAPPOR: its own code's exact law, its published parameters, a year of reports."""

from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.kinds.text_memo import BEARABLE, K_CHOICES, choose_rappor
from dither_shared.mechanisms import RAPPOR, from_document
from dither_shared.mechanisms.automatic_choice import INDIFFERENT
from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS
from dither_shared.rng import SCALE
from dither_shared.shapes import Bits
from tests.support.laws import largest_ratio, law_of_class, law_of_repeats, repeats
from tests.support.soaking import thinned

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
M = 128
SMALL = [
    *(RAPPOR.of_probabilities(k, h, HALF, QUARTER, 3 * QUARTER) for k, h in ((2, 1), (4, 1), (4, 2), (2, 2))),
    RAPPOR.of_probabilities(4, 2, Fraction("0.45"), Fraction("0.39"), Fraction("0.61")),
    RAPPOR.of_probabilities(2, 1, QUARTER, QUARTER / 8, 1 - QUARTER / 8),
    RAPPOR.of_probabilities(4, 1, HALF, HALF, 3 * QUARTER),
    RAPPOR.for_epsilon(4, 1, Decimal(1), Decimal(3)),
    RAPPOR.for_epsilon(4, 2, Decimal("0.5"), Decimal(6)),
]


def patterns(mechanism: RAPPOR) -> list[int]:
    """Return every pattern that h hashes can set in k bits."""
    sizes = range(1, mechanism.h + 1)
    return [sum(1 << bit for bit in bits) for size in sizes for bits in combinations(range(mechanism.k), size)]


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
class TestRappor:
    def test_the_largest_ratio_of_a_report_is_at_most_the_declared_one(self, mechanism: RAPPOR) -> None:
        """And exactly that, with room for two disjoint patterns of h bits."""
        ratio = largest_ratio([law_of_class(mechanism, pattern) for pattern in patterns(mechanism)])
        assert ratio == mechanism.exp_epsilon if mechanism.k >= 2 * mechanism.h else ratio <= mechanism.exp_epsilon

    def test_the_largest_ratio_of_a_memo_is_at_most_the_permanent_one(self, mechanism: RAPPOR) -> None:
        ratio = largest_ratio([law_of_class(mechanism.permanent, pattern) for pattern in patterns(mechanism)])
        declared = mechanism.permanent.exp_epsilon
        assert ratio == declared if mechanism.k >= 2 * mechanism.h else ratio <= declared

    def test_bits_are_sent_with_p_star_and_q_star(self, mechanism: RAPPOR) -> None:
        for pattern in patterns(mechanism):
            probabilities = law_of_class(mechanism, pattern)
            for bit in range(mechanism.k):
                sent = sum(pr for report, pr in probabilities.items() if report >> bit & 1)
                assert sent == (mechanism.q_star if pattern >> bit & 1 else mechanism.p_star)

    def test_repeated_reports_never_exceed_the_permanent_epsilon(self, mechanism: RAPPOR) -> None:
        memos = [law_of_class(mechanism.permanent, pattern) for pattern in patterns(mechanism)]
        laws = [law_of_repeats(mechanism, one, 2) for one in memos]
        reachable = [pair for pair in laws[0] if laws[0][pair]]
        ratio = max(max(one[y] for one in laws) / min(one[y] for one in laws) for y in reachable)
        assert ratio <= mechanism.permanent.exp_epsilon
        assert all(not one[y] for one in laws for y in one if y not in reachable)

    def test_parameters_make_the_same_mechanism_again(self, mechanism: RAPPOR) -> None:
        assert from_document(mechanism.to_document()) == mechanism
        assert mechanism.shape == Bits(mechanism.k)


def test_twice_as_many_bits_in_the_exponent_would_be_caught() -> None:
    """2 h bits differ, but each contributes one of two factors, not both."""
    mechanism = SMALL[1]
    wrong = (mechanism.q_star * (1 - mechanism.p_star) / (mechanism.p_star * (1 - mechanism.q_star))) ** (
        2 * mechanism.h
    )
    assert largest_ratio([law_of_class(mechanism, pattern) for pattern in patterns(mechanism)]) != wrong


@pytest.mark.parametrize(
    ("name", "epsilon", "permanent"),
    [
        ("chromium_string", 2_043_303, 4_394_450),
        ("chromium_coarse", 2_043_303, 4_394_450),
        ("chromium_etld_plus_one", 2_043_303, 4_394_450),
        ("google_default", 1_074_286, 4_394_450),
        ("google_demo", 1_021_652, 2_197_225),
        ("google_typical", 972_767, 4_947_051),
    ],
)
def test_published_parameters_have_their_epsilons(name: str, epsilon: int, permanent: int) -> None:
    mechanism = PARAMETER_SETS[name].mechanism
    assert (mechanism.charge, mechanism.permanent.charge) == (epsilon, permanent)
    assert PARAMETER_SETS[name].provenance


def test_published_parameters_are_rounded_toward_less_privacy_loss() -> None:
    typical = PARAMETER_SETS["google_typical"].mechanism
    assert Fraction(typical.threshold_prr - 1, SCALE) < Fraction("0.225") <= Fraction(typical.threshold_prr, SCALE)
    assert Fraction(typical.threshold_irr_0 - 1, SCALE) < Fraction("0.39") <= Fraction(typical.threshold_irr_0, SCALE)
    assert Fraction(typical.threshold_irr_1, SCALE) <= Fraction("0.61") < Fraction(typical.threshold_irr_1 + 1, SCALE)


@pytest.mark.parametrize("h", [1, 2])
@pytest.mark.parametrize(
    ("epsilon", "permanent"),
    [("1", "4"), ("0.5", "6"), ("2", "2.1"), ("4", "8"), ("0.1", "20"), ("4", "4.01"), ("16", "20"), ("2", "2.000001")],
)
def test_wanted_epsilons_are_met_from_below(epsilon: str, permanent: str, h: int) -> None:
    mechanism = RAPPOR.for_epsilon(64, h, Decimal(epsilon), Decimal(permanent))
    for ratio, wanted in ((mechanism.exp_epsilon, epsilon), (mechanism.permanent.exp_epsilon, permanent)):
        e = exp_below(Decimal(wanted))
        assert e * (1 - Fraction(1, 10**8)) < ratio <= e
    assert mechanism.charge == Decimal(epsilon) * 10**6
    assert mechanism.permanent.charge == Decimal(permanent) * 10**6


@pytest.mark.parametrize(
    ("epsilon", "permanent"), thinned([("1", "4"), ("2", "2.1"), ("4", "8"), ("5", "5.5"), ("6", "7")], 0, 4)
)
def test_no_other_noise_of_the_same_epsilons_is_noticeably_less(epsilon: str, permanent: str) -> None:
    """Against a grid of p and q with the same permanent part: none with at most this epsilon has 1 % less variance."""
    mechanism = RAPPOR.for_epsilon(64, 1, Decimal(epsilon), Decimal(permanent))
    wanted, flip = exp_below(Decimal(epsilon)), Fraction(mechanism.threshold_prr, SCALE)

    def spread(p_star: Fraction, q_star: Fraction) -> Fraction:
        return p_star * (1 - p_star) / (q_star - p_star) ** 2

    ours = spread(mechanism.p_star, mechanism.q_star)
    for p, q in combinations([Fraction(part, 100) for part in range(101)], 2):
        p_star, q_star = flip * q + (1 - flip) * p, (1 - flip) * q + flip * p
        if q_star * (1 - p_star) <= wanted * p_star * (1 - q_star):
            assert spread(p_star, q_star) > ours * Fraction(99, 100)


@pytest.mark.parametrize("candidates", [1, 100, 1_000, 10_000, 100_000])
def test_the_chosen_size_is_the_shortest_within_three_percent(candidates: int) -> None:
    chosen = choose_rappor(Decimal(1), Decimal(4), candidates, M)
    assert chosen.h == 1  # at equal epsilon more hashes only add noise

    def error(k: int) -> Fraction:
        return 1 / ((1 - Fraction(1, k)) * max(1 - Fraction(candidates, 128 * k), Fraction(1, 10)))

    fitted_whole = [k for k in K_CHOICES if candidates < BEARABLE * 128 * k] or [K_CHOICES[-1]]
    best = min(error(k) for k in fitted_whole)
    assert chosen.k == min(k for k in fitted_whole if error(k) <= best * INDIFFERENT)


def test_longer_lists_never_get_fewer_bits() -> None:
    sizes = [choose_rappor(Decimal(1), Decimal(4), 2**power, M).k for power in range(17)]
    assert sizes == sorted(sizes)


# A year of reports.


def of_reports(mechanism: RAPPOR, count: int) -> Fraction:
    """Return the exact largest ratio of `count` reports of one memo, for two texts with disjoint bits.

    Given the Bloom bit, a bit's reports are a mixture of two binomials, and bits are independent. Their number of ones
    says all; its likelihood ratio is monotone, so its extremes are at none and at all.
    """

    def chance(ones: int, bloom: int) -> Fraction:
        flip = Fraction(mechanism.threshold_prr, SCALE)
        set_ = 1 - flip if bloom else flip
        p, q = Fraction(mechanism.threshold_irr_0, SCALE), Fraction(mechanism.threshold_irr_1, SCALE)
        return set_ * q**ones * (1 - q) ** (count - ones) + (1 - set_) * p**ones * (1 - p) ** (count - ones)

    ratios = [chance(ones, 1) / chance(ones, 0) for ones in range(count + 1)]
    assert ratios == sorted(ratios)
    return (ratios[-1] / ratios[0]) ** mechanism.h


def test_a_year_of_reports_never_exceeds_the_permanent_epsilon() -> None:
    mechanism = PARAMETER_SETS["chromium_string"].mechanism
    losses = [of_reports(mechanism, count) for count in (1, 2, 7, 30, 365)]
    assert losses[0] == mechanism.exp_epsilon
    assert losses == sorted(losses)
    assert losses[-1] < mechanism.permanent.exp_epsilon
    assert losses[-1] > mechanism.permanent.exp_epsilon * (1 - Fraction(1, 10**9))  # by then the memo is known


def test_the_mixture_is_that_of_the_code() -> None:
    """The closed form of one and two reports is what enumeration finds."""
    mechanism = SMALL[1]
    assert of_reports(mechanism, 1) == mechanism.exp_epsilon
    chances = {bloom: law_of_class(mechanism.permanent, bloom) for bloom in (0b0001, 0b0010)}
    series = {
        bloom: sum(weight * repeats(mechanism, memo)[0b0001] ** 2 for memo, weight in memos.items())
        for bloom, memos in chances.items()
    }
    assert series[0b0001] / series[0b0010] == of_reports(mechanism, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 3},
        {"k": 512},
        {"h": 0},
        {"h": 17},
        {"threshold_prr": 0},
        {"threshold_prr": SCALE // 2},
        {"threshold_irr_0": 0},
        {"threshold_irr_0": SCALE // 2},
        {"threshold_irr_1": SCALE},
    ],
)
def test_edges_that_the_proof_does_not_cover_are_refused(changes: dict[str, int]) -> None:
    good = {"k": 32, "h": 2, "threshold_prr": 9, "threshold_irr_0": 3, "threshold_irr_1": SCALE // 2}
    RAPPOR(**good)
    with pytest.raises(InvalidParameter):
        RAPPOR(**{**good, **changes})


def test_a_permanent_epsilon_that_is_too_close_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="must be above epsilon"):
        RAPPOR.for_epsilon(32, 1, Decimal(2), Decimal(1))
