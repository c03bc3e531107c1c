"""How sure somebody can become: never below what the mechanisms' own code lets them, in figures and in words."""

from decimal import Decimal
from fractions import Fraction
from math import exp, isclose, tanh

import pytest

from dither_shared.accounting import moves, percent_above, percent_below, sure, unsure
from dither_shared.mechanisms import GRR, OUE, PGR, SUE, MemoizedTwoLevel, PrivSet, PureMechanism, SubsetSelection
from tests.support.laws import answers, law

E2 = Decimal(2)
SMALL: list[PureMechanism] = [
    *(GRR.for_epsilon(d, E2) for d in (2, 3, 5)),
    SubsetSelection.for_weight(4, 2, E2),
    PGR.for_design(7, 2, 3, E2),
    PrivSet.for_weight(3, 2, 1, E2),
    OUE.for_epsilon(3, E2),
    SUE.for_epsilon(3, E2, 2),
    MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(3, Decimal(3)), E2),
]
PRIORS = [Fraction(1, 1000), Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)]


def posteriors(mechanism: PureMechanism, prior: Fraction) -> list[Fraction]:
    """Return each posterior probability of an answer, over all reports, answers and ways to share the rest.

    The rest lies on one other answer: a mixture of others is no better for whoever guesses.
    """
    laws = [law(mechanism, answer) for answer in answers(mechanism)]
    return [
        prior * one[y] / (prior * one[y] + (1 - prior) * other[y])
        for one in laws
        for other in laws
        if other is not one
        for y in one
    ]


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_nobody_becomes_surer_or_less_sure_than_is_said_and_somebody_as_much(mechanism: PureMechanism) -> None:
    for prior in PRIORS:
        found = posteriors(mechanism, prior)
        assert max(found) == sure(mechanism.exp_epsilon, prior)
        assert min(found) == unsure(mechanism.exp_epsilon, prior)


@pytest.mark.parametrize("epsilon", ["0.01", "2", "20"])
def test_no_guess_moves_further_than_is_said_and_one_as_far(epsilon: str) -> None:
    exp_epsilon = GRR.for_epsilon(2, Decimal(epsilon)).exp_epsilon
    said = moves(exp_epsilon)
    assert isclose(said, tanh(float(epsilon) / 4), rel_tol=1e-14)
    for place in range(1, 997):
        prior = Fraction(place, 997)
        assert sure(exp_epsilon, prior) - prior < said
        assert prior - unsure(exp_epsilon, prior) < said
    most = Fraction(1 / (1 + exp(float(epsilon) / 2)))
    assert said - (sure(exp_epsilon, most) - most) < Fraction(1, 10**15)
    assert said - (1 - most - unsure(exp_epsilon, 1 - most)) < Fraction(1, 10**15)


def test_tanh_of_half_of_epsilon_would_be_caught() -> None:
    """It is how far two answers' probabilities of a report differ, which is more."""
    assert moves(GRR.for_epsilon(2, E2).exp_epsilon) < Fraction(tanh(1))


def test_a_probability_is_shown_downward_and_never_as_nothing() -> None:
    for place in range(1, 1000):
        probability = Fraction(place, 997 * 10)
        shown = percent_below(probability)
        assert shown == "below 1" if probability < Fraction(1, 100) else Fraction(shown) / 100 <= probability
    assert (percent_below(Fraction(1, 100)), percent_below(Fraction("0.50099"))) == ("1.0", "50.0")


def test_odds_of_a_smaller_epsilon_would_be_caught() -> None:
    mechanism = SMALL[0]
    assert max(posteriors(mechanism, Fraction(1, 2))) > sure(mechanism.exp_epsilon * (1 - Fraction(1, 10**15)))


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (Fraction("0.881"), "88.1"),
        (Fraction("0.8810000000000000000001"), "88.2"),
        (Fraction(1, 10**9), "0.1"),
        (Fraction(99, 100), "99.0"),
        (Fraction("0.9900000000000000000001"), "above 99"),
    ],
)
def test_a_probability_is_shown_upward_and_never_as_certain(probability: Fraction, words: str) -> None:
    assert percent_above(probability) == words


def test_rounding_to_the_nearest_would_be_caught() -> None:
    shown = [Fraction(percent_above(Fraction(place, 7919))) / 100 for place in range(1, 7840)]
    assert all(one >= Fraction(place, 7919) for place, one in enumerate(shown, 1))
    assert any(Fraction(f"{100 * place / 7919:.1f}") / 100 < Fraction(place, 7919) for place in range(1, 7840))
