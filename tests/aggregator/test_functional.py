"""Functionals: their estimates, variances and covariances are those of the exact law, for every mechanism."""

import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import ceil
from typing import cast

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.functional import (
    Functionals,
    answers_part,
    apart,
    difference,
    noise_of,
    on_points,
    rows_centred,
    share_variance,
    ticked_together,
)
from dither_aggregator.analysis.inference import ErrorOf, Floats, Z, normal_from
from dither_shared.frozen import replaced
from dither_shared.mechanisms import GRR, MECHANISMS, OUE, PGR, PureMechanism, SquareWave, SubsetSelection, choose
from dither_shared.mechanisms.mechanism import MemoizedPure
from tests.support.laws import Law, answers, law, law_of_class, repeats, supports
from tests.support.mechanisms import memoized, one_shots
from tests.support.soaking import scaled, thinned
from tests.support.tallies import draw_tallies

HUGE = 10**12
"""So many reports that rounding their expected counts to integers is nothing."""
E = Decimal("1.5")
SMALL: list[PureMechanism] = [*one_shots(E), *memoized(Decimal(3), E)]
Weights = dict[tuple[int, ...], Fraction]


def test_every_mechanism_of_listed_values_is_enumerated() -> None:
    """One that is registered beside them must be added here; RAPPOR and the window are read as rows of counts."""
    listed = {name for name, each in MECHANISMS.items() if issubclass(each, PureMechanism)}
    assert {each.name for each in SMALL} == listed


def drawn(mechanism: PureMechanism, rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], Weights]:
    """Return two lists of weights over the values, and shares of a few answers."""
    one, other = (tuple(rng.randint(-3, 3) for _ in range(mechanism.d)) for _ in "ab")
    some = rng.sample(answers(mechanism), min(3, len(answers(mechanism))))
    parts = [rng.randint(1, 9) for _ in some]
    return one, other, {answer: Fraction(part, sum(parts)) for answer, part in zip(some, parts, strict=True)}


def counted(mechanism: PureMechanism, shares: Weights) -> Functionals:
    """Return the functionals of reports whose answers have these shares, from their expected counts."""
    counts = [Fraction(0)] * mechanism.shape.size
    for answer, share in shares.items():
        for report, probability in law(mechanism, answer).items():
            held = [value for value in range(mechanism.d) if supports(mechanism, report, value)]
            for place in [report] if mechanism.geometry else held:
                counts[place] += share * probability
    whole = np.array([round(HUGE * count) for count in counts], dtype=np.int64)
    if mechanism.shape.raises is not None:  # dummies, and what rounding left
        whole[-1] += HUGE * mechanism.shape.raises - whole.sum()
    return Functionals(mechanism, whole, HUGE)


def exact(mechanism: PureMechanism, one: tuple[int, ...], other: tuple[int, ...], shares: Weights, r: int) -> Floats:
    """Return the covariance of the reports and of the population, times n, where each device sends r reports.

    By enumeration of every report of every answer and, where memos repeat, of every pair of reports of one memo.
    """

    @cache
    def w(weights: tuple[int, ...], report: int) -> Fraction:
        held = sum(a for value, a in enumerate(weights) if supports(mechanism, report, value))
        return (held - mechanism.q * sum(weights)) / (mechanism.p - mechanism.q)

    def mean(of: Law, weights: tuple[int, ...]) -> Fraction:
        return sum((p * w(weights, report) for report, p in of.items()), Fraction(0))

    noise = answer_part = Fraction(0)
    means = [Fraction(0), Fraction(0)]
    for answer, share in shares.items():
        of_answer = law(mechanism, answer)
        k_one, k_other = (Fraction(sum(weights[value] for value in answer)) for weights in (one, other))
        assert (mean(of_answer, one), mean(of_answer, other)) == (k_one, k_other)
        second = sum((p * w(one, report) * w(other, report) for report, p in of_answer.items()), Fraction(0))
        noise += share * (second - k_one * k_other)
        if isinstance(mechanism, MemoizedPure) and r > 1:
            memos = law(mechanism.permanent, answer)
            both = sum(
                (p * mean(of, one) * mean(of, other) for memo, p in memos.items() for of in [repeats(mechanism, memo)]),
                Fraction(0),
            )
            noise += share * (r - 1) * (both - k_one * k_other)
        answer_part += share * k_one * k_other
        means = [means[0] + share * k_one, means[1] + share * k_other]
    return np.array([float(noise), float(noise + r * (answer_part - means[0] * means[1]))])


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_estimates_and_errors_are_those_of_the_exact_law(mechanism: PureMechanism) -> None:
    """Answers of several values leave E[k_a k_b] open: a variance is at least, a covariance at most, the true one."""
    rng = random.Random(1)
    for r in thinned((1, 3), -1):
        for _ in range(scaled(1, 2)):
            one, other, shares = drawn(mechanism, rng)
            a, b = np.array(one, dtype=np.float64), np.array(other, dtype=np.float64)
            made = replace(counted(mechanism, shares), repeats=r)
            truth = sum(share * sum(one[value] for value in answer) for answer, share in shares.items())
            assert made.estimate(a) == pytest.approx(float(truth), abs=1e-8)
            true = [exact(mechanism, one, each, shares, r) for each in (one, other)]
            for place, error_of in enumerate(cast("tuple[ErrorOf, ...]", ("reports", "population"))):
                variance, covariance = (float(each[place]) for each in true)
                told = made.variance(a, error_of) * HUGE, made.covariance(a, b, error_of) * HUGE
                close = 1e-6 * max(1.0, variance)
                if mechanism.ticks == 1:
                    assert told == pytest.approx((variance, covariance), abs=close)
                else:
                    assert told[0] >= variance - close
                    assert told[1] <= covariance + close


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_a_functional_of_one_value_has_the_closed_forms_variance(mechanism: PureMechanism) -> None:
    """Also where the estimate lies below nothing or above all, as few reports have it."""
    rng = np.random.default_rng(1)
    size, raises, n = mechanism.shape.size, mechanism.shape.raises, 12
    for repeats_max in (1, 8):
        counts = rng.integers(0, n + 1, size)
        if raises is not None:
            counts = rng.multivariate_hypergeometric([n] * size, n * raises)
        made = Functionals(mechanism, counts, n, repeats_max)
        for error_of in cast("tuple[ErrorOf, ...]", ("reports", "population")):
            closed = share_variance(mechanism, np.clip(made.shares, 0, 1), n, error_of, repeats_max)
            each = [made.variance(weights, error_of) for weights in np.eye(mechanism.d)]
            assert each == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize(("d", "order", "dimension"), [(13, 3, 3), (25, 5, 3), (40, 3, 4), (9, 2, 5)])
def test_one_value_has_the_law_that_a_transform_finds(d: int, order: int, dimension: int) -> None:
    """Weights that are equal, and not the same array, go through the transform; so do those of half the value."""
    mechanism = PGR.for_design(d, order, dimension, E)
    for value in (0, d // 2, d - 1):
        one = np.zeros(d)
        one[value] = 1.0
        for got, expected in zip(noise_of(mechanism, one, one), noise_of(mechanism, one, one.copy()), strict=True):
            assert got == pytest.approx(expected, abs=1e-12)
        assert on_points(mechanism, one) == pytest.approx(2 * on_points(mechanism, one / 2), abs=1e-12)


@pytest.mark.parametrize("mechanism", [each for each in SMALL if each.ticks > 1 and each.d > 2], ids=str)
def test_what_is_ticked_together_lies_between_its_bounds_and_reaches_them(mechanism: PureMechanism) -> None:
    """Two values that exclude each other, or that always come together, reach the ends: no bound is tighter."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        devices = rng.random((40, mechanism.d)) < rng.random(mechanism.d)
        one, other = rng.integers(-3, 4, (2, mechanism.d)).astype(np.float64)
        least, most = ticked_together(one, other, devices.mean(axis=0))
        assert least - 1e-12 <= float(np.mean((devices @ one) * (devices @ other))) <= most + 1e-12
    together, apart = np.array([1.0, 1, 0]), np.array([1.0, -1, 0])
    nested = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=np.float64)
    exclusive = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=np.float64)
    shares = np.array([0.5, 0.25, 0.0])
    for weights, low, high in ((together, exclusive, nested), (apart, nested, exclusive)):
        ends = [float(np.mean((devices @ weights) ** 2)) for devices in (low, high)]
        assert ticked_together(weights, weights, shares) == pytest.approx(ends)


def test_rows_of_two_cells_covary_as_every_report_says() -> None:
    """A window and points of the same places, with a share of the reports each, and any weights."""
    parts = (SquareWave.for_reach(4, 1, E), PGR.for_design(4, 2, 3, E))
    rng, answered, cells = np.random.default_rng(5), np.array([0.1, 0.2, 0.3, 0.4]), (0.4, 0.6)
    rates: list[float] = []
    cell: list[int] = []
    exact = np.zeros((3, 3))
    weights = rng.normal(size=(sum(each.shape.size for each in parts), 3))
    for number, (part, share) in enumerate(zip(parts, cells, strict=True)):
        chances = np.zeros(part.shape.size)
        for answer, held in enumerate(answered):
            for report, probability in law_of_class(part, answer).items():
                chances[report] += held * float(probability)
        own = weights[len(cell) : len(cell) + len(chances)]
        centred = own - chances @ own
        exact += share * centred.T @ (centred * chances[:, np.newaxis])
        rates += (share * chances).tolist()
        cell += [number] * len(chances)
    made = rows_centred(weights, np.array(rates), np.array(cell))
    assert np.allclose((made.T * rates) @ made, exact, atol=1e-12)


# Intervals of sums.

RUNS = scaled(150, 3_000)
SUMS = (
    (GRR.for_epsilon(16, Decimal(2)), 2_000),
    (SubsetSelection.for_epsilon(30, Decimal(1)), 3_000),
    (PGR.for_design(53, 7, 3, Decimal(2)), 3_000),
    (OUE.for_epsilon(30, Decimal(1)), 3_000),
)


def misses(mechanism: PureMechanism, n: int, quadrature: bool = False) -> list[int]:
    """How often intervals of sums miss what the population has: of neighbours, of every second value, of both signs.

    The spoiled ones add the variances of values up, as if their errors had nothing in common.
    """
    rng, d = np.random.default_rng(mechanism.d), mechanism.d
    shares = rng.dirichlet(np.full(d, 0.5))
    some = np.arange(d)
    weights = [(some < 8) * 1.0, (some % 2) * 1.0, rng.normal(size=d), np.where(some < d // 2, 1.0, -1.0)]
    missed = [0] * len(weights)
    for tally in draw_tallies(mechanism, rng.multinomial(n, shares, size=RUNS).astype(np.int64), rng):
        made = Functionals(mechanism, tally, n)
        for place, each in enumerate(weights):
            variance = made.variance(each)
            if quadrature:
                variance = float(each**2 @ share_variance(mechanism, np.clip(made.shares, 0, 1), n, "population"))
            missed[place] += abs(made.estimate(each) - float(each @ shares)) > Z * np.sqrt(variance)
    return missed


@pytest.mark.parametrize(("mechanism", "n"), SUMS, ids=["grr", "ss", "pgr", "oue"])
def test_intervals_of_sums_hold_as_often_as_they_say(mechanism: PureMechanism, n: int) -> None:
    """5 % miss; more or fewer than the bounds do with 6e-8 each, so that all 16 together stray with 1e-6 each way."""
    for missed in misses(mechanism, n):
        assert binom.ppf(6e-8, RUNS, 0.05) <= missed <= binom.isf(6e-8, RUNS, 0.05)


FEW = (
    GRR.for_epsilon(16, Decimal(8)),
    PGR.for_design(53, 7, 3, Decimal(2)),
    SUMS[1][0],
    OUE.for_epsilon(30, Decimal(4)),
)
FEW_RUNS = scaled(40, 3_000)


def misses_of_few(mechanism: PureMechanism, n: int, wald: bool = False) -> int:
    """How often intervals miss, where that is most: of a rare value, of neighbours, of all values and of both signs."""
    rng, d = np.random.default_rng(n), mechanism.d
    some, shares = np.arange(d), rng.dirichlet(np.full(d, 0.5))
    weights = [
        (some == np.abs(shares - 0.5 / n).argmin()) * 1.0,
        (some < d // 5) * 1.0,
        rng.normal(size=d),
        np.where(some < d // 2, 1.0, -1.0),
    ]
    missed = [0] * len(weights)
    for tally in draw_tallies(mechanism, rng.multinomial(n, shares, size=FEW_RUNS).astype(np.int64), rng):
        made = Functionals(mechanism, tally, n)
        for place, each in enumerate(weights):
            ends = made.interval(each, 0.05)
            assert ends is not None
            half = Z * np.sqrt(made.variance(each))
            lower, upper = (made.estimate(each) - half, made.estimate(each) + half) if wald else ends
            missed[place] += not lower <= float(each @ shares) <= upper
    return max(missed)


@pytest.mark.parametrize("mechanism", FEW, ids=["grr", "pgr", "ss", "oue"])
@pytest.mark.parametrize("n", [20, 300])
def test_intervals_of_few_reports_miss_no_more_than_they_say(mechanism: PureMechanism, n: int) -> None:
    """6 % may: each of 32 counts is more than this with 3e-8. Wald's intervals would be caught."""
    assert misses_of_few(mechanism, n) <= binom.isf(3e-8, FEW_RUNS, 0.06)


def test_the_normal_law_of_few_reports_would_be_caught() -> None:
    assert misses_of_few(FEW[0], 20, wald=True) > binom.isf(3e-8, FEW_RUNS, 0.06)


def test_memos_of_few_devices_tell_no_sum() -> None:
    mechanism, *_ = (each for each in memoized(Decimal(8), Decimal(4)) if each.supports_one)
    counts = np.full(mechanism.d, 300)
    n, weights = int(counts.sum()), (np.arange(mechanism.d) % 2).astype(np.float64)
    few = Functionals(mechanism, counts, n, repeats=31)
    assert few.interval(weights, 0.05) is None
    assert difference((few, weights), (few, weights)) is None
    for times, told in ((1_000, False), (10_000, True)):  # by the noise of one report the former were enough
        many = Functionals(mechanism, times * counts, times * n, repeats=31)
        assert (many.interval(weights, 0.05) is not None) == told
        assert (many.ratio(weights, np.ones(mechanism.d)) is not None) == told


def test_sums_of_variances_would_be_caught() -> None:
    """The planted bug: yes less no, whose errors are each other's opposite, as if they did not know of each other."""
    missed = misses(GRR.for_epsilon(2, Decimal(1)), 3_000, quadrature=True)
    assert max(missed) > binom.isf(6e-8, RUNS, 0.05)


# Neighbours in the registry's order.

LIST = choose(264, Decimal(4), name=PGR.name)
IN_ORDER = replaced(LIST, prime=0)
"""The planted bug: points in lexicographic order, in which neighbours are on few lines."""


def skewness(mechanism: PureMechanism, run: slice) -> float:
    """Return the skewness of w over all points alike, for the sum of a run of values."""
    weights = np.zeros(mechanism.d)
    weights[run] = 1
    away = on_points(mechanism, weights) - on_points(mechanism, weights).mean()
    third, second = float((away**3).mean()), float((away**2).mean())
    return abs(third) / float(second**1.5)


@pytest.mark.parametrize(
    ("d", "epsilon"),
    thinned(
        [(d, epsilon) for d in (33, 100, 264, 1025, 5000) for epsilon in ("0.5", "1", "2", "4", "6")], 0, 6, 12, 18, 23
    ),
)
def test_a_sum_of_neighbours_is_about_as_skew_as_one_of_values_at_random(d: int, epsilon: str) -> None:
    """A report that supports w of d values is about binomial, with this skewness where no order shows."""
    mechanism = choose(d, Decimal(epsilon), name=PGR.name)
    q, width = float(mechanism.q), d // 5
    usual = (1 - 2 * q) / (width * q * (1 - q)) ** 0.5
    for first in range(0, d - width + 1, (d - width) // 4):
        assert skewness(mechanism, slice(first, first + width)) < 1.1 + usual
    assert d < 264 or skewness(replaced(mechanism, prime=0), slice(0, width)) > 3 * (1.1 + usual)


def test_intervals_of_neighbours_hold_with_few_reports_and_in_lexicographic_order_they_would_not() -> None:
    """300 reports of a list of 264, the first fifth of it: runs stray beyond the ends with 1e-6."""
    runs, rng = scaled(200, 2_000), np.random.default_rng(4)
    weights = (np.arange(264) < 53).astype(np.float64)
    held = {}
    for mechanism in (LIST, IN_ORDER):
        answers = rng.multinomial(300, np.full(264, 1 / 264), size=runs).astype(np.int64)
        each = [Functionals(mechanism, tally, 300) for tally in draw_tallies(mechanism, answers, rng)]
        held[mechanism] = sum(abs(one.estimate(weights) - 53 / 264) <= Z * one.variance(weights) ** 0.5 for one in each)
    assert binom.ppf(1e-6, runs, 0.945) <= held[LIST] <= binom.isf(1e-6, runs, 0.96)
    assert held[IN_ORDER] < binom.ppf(1e-6, runs, 0.9)


# Two windows, or two metrics, of the same devices.

FLAG = GRR.for_epsilon(2, Decimal(4))
PAIRED = scaled(1_000, 20_000)


def missed_moves(parts: tuple[float, ...], opposed: float | None = None) -> dict[str, int]:
    """How often intervals of a difference miss it: of two flags of 4,000 devices, shares as given, by their relation.

    Each device answers both, from the exact law. With `opposed` all differences are reckoned with that much.
    """
    rng, n, (one, other) = np.random.default_rng(7), 4_000, parts
    relations = {
        "opposite": np.array([max(0.0, one + other - 1), min(one, 1 - other), min(other, 1 - one)]),
        "equal": np.array([min(one, other), max(0.0, one - other), max(0.0, other - one)]),
        "independent": np.array([one * other, one * (1 - other), other * (1 - one)]),
    }
    missed = {}
    for name, yes in relations.items():
        both, first, second, _ = rng.multinomial(n, [*yes, max(0.0, 1 - yes.sum())], size=PAIRED).T
        told = []
        for held in (both + first, both + second):
            count = rng.binomial(held, float(FLAG.p)) + rng.binomial(n - held, float(FLAG.q))
            share = (count / n - float(FLAG.q)) / float(FLAG.p - FLAG.q)
            error = np.sqrt(share_variance(FLAG, np.clip(share, 0, 1), n, "population"))
            told.append((share, error, answers_part(share, error, n, 1)))
        (share, error, part), (old, old_error, old_part) = told
        reach = Z * apart(error, old_error, part * old_part if opposed is None else opposed)
        missed[name] = int((np.abs(share - old - (one - other)) > reach).sum())
    return missed


@pytest.mark.parametrize("parts", [(0.5, 0.5), (0.3, 0.3), (0.1, 0.9)])
def test_a_difference_holds_however_the_answers_of_the_same_devices_go_together(parts: tuple[float, float]) -> None:
    """Two metrics, or two windows: at most 5 % miss, more would be 1e-7 in each of nine cases.

    As if other devices answered, they miss up to three times as often where answers are opposite.
    """
    assert max(missed_moves(parts).values()) <= binom.isf(1e-7, PAIRED, 0.052)  # Wald's intervals miss 5.2 % by skew
    assert missed_moves(parts, opposed=0.0)["opposite"] > binom.isf(1e-7, PAIRED, 0.052)


def test_errors_that_noise_rules_hardly_add_up_and_those_of_answers_do() -> None:
    """N1 + N2 + (s1 + s2)^2 lies between V1 + V2 and (SE1 + SE2)^2, and reaches both ends."""
    error = np.array([0.02, 0.02])
    for part, total in ((0.0, np.hypot(*error)), (1.0, error.sum()), (0.5, np.sqrt(2 * 0.02**2 + 2 * 0.01**2))):
        assert apart(error[0], error[1], part**2) == pytest.approx(total)
    assert answers_part(np.array(-0.1), np.array(0.02), 100, 1) == 0
    assert answers_part(np.array(0.5), np.array(0.06), 100, 1) == pytest.approx(0.05 / 0.06)
    assert answers_part(np.array(0.5), np.array(0.04), 100, 9) == 1


# Ratios, differences of them, products.

SURELY = Functionals(GRR.for_epsilon(4, Decimal(2)), np.array([700, 500, 450, 350]), 2_000)
FEW_IN_WHOLE = Functionals(SURELY.mechanism, np.array([60, 52, 148, 140]), 400)
PART, WHOLE, REST = np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 0, 0]), np.array([0.0, 0, 1, 1])


def test_a_ratio_ends_where_its_difference_from_zero_is_z_errors() -> None:
    found, negative = SURELY.ratio(PART, WHOLE), SURELY.ratio(-PART, -WHOLE)
    assert found is not None
    assert found == negative
    assert found.estimate == pytest.approx(SURELY.estimate(PART) / SURELY.estimate(WHOLE))
    for end in (found.lower, found.upper):
        beyond = PART - end * WHOLE
        assert abs(SURELY.estimate(beyond)) == pytest.approx(Z * np.sqrt(SURELY.variance(beyond)), rel=0.01)
    # A ratio of any two functionals has no ends at 0 and 1.
    above = SURELY.ratio(2 * WHOLE, PART)
    assert above is not None
    assert above.lower > 1


def test_a_ratio_over_what_may_be_nothing_cannot_be_told() -> None:
    """Its interval has no end where the whole is within z errors of zero; less is needed to say so at 99 %."""
    nobody = PART - np.array([0.0, 1.4, 0, 0])
    assert abs(SURELY.estimate(nobody)) < Z * np.sqrt(SURELY.variance(nobody))
    assert SURELY.ratio(PART, nobody) is None
    for confidence, told in ((0.95, True), (0.999999, False)):
        assert (FEW_IN_WHOLE.ratio(REST, WHOLE, 1 - confidence) is not None) == told


@pytest.mark.parametrize("repeats", [1, 7])
def test_ratios_products_and_their_differences_need_as_many_devices_as_a_normal_law(repeats: int) -> None:
    """One gate for all: at 40 devices and 25 times the squared skewness they are told, and with one less they are not.

    The counts are those of everybody with the same two values, so that each part is many errors above zero.
    """
    mechanism = GRR.for_epsilon(4, Decimal(4))
    part, whole = np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 0, 0])

    def told(devices: int) -> list[bool]:
        n = devices * repeats
        counts = np.rint(n * np.array([0.46, 0.46, 0.04, 0.04])).astype(np.int64)
        made = Functionals(mechanism, np.append(counts[:-1], n - counts[:-1].sum()), n, repeats)
        found = (
            made.ratio(part, whole),
            made.product(part, whole),
            made.sum_of_ratios([(1.0, part, whole), (-1.0, part, whole)]),
        )
        return [each is not None for each in found]

    of_one = Functionals(mechanism, np.array([500, 500, 20, 20]), 1_040)
    least = ceil(normal_from(max(of_one.skewness(each) for each in (part, whole))))
    assert least > 500
    assert told(least + 1) == [True] * 3
    assert told(least - 1) == [False] * 3


@pytest.mark.parametrize(("devices", "times"), [(100, 31), (300, 7)])
def test_sums_of_few_devices_that_report_often_hold(devices: int, times: int) -> None:
    """Answers that devices repeat are those of as few: of all windows 5 % may miss, more than this with 1e-7.

    A sum, any weights, and a difference of two windows.
    """
    mechanism, rng, runs = GRR.for_epsilon(16, Decimal(4)), np.random.default_rng(times), scaled(50, 400)
    law_of_value = np.full((16, 16), float(mechanism.q)) + np.eye(16) * float(mechanism.p - mechanism.q)
    shares = np.array([0.97, *[0.03 / 4] * 4, *[0.0] * 11])
    weights = [np.array([0.0, 1, 1, 1, 1, *[0.0] * 11]), rng.normal(size=16)]
    missed, before = np.zeros(4, dtype=np.int64), None
    for _ in range(runs):
        people = rng.multinomial(devices, shares)
        counts = np.array([rng.multinomial(each * times, law_of_value[at]) for at, each in enumerate(people)]).sum(
            axis=0
        )
        made = Functionals(mechanism, counts, devices * times, times)
        for place, each in enumerate(weights):
            ends = made.interval(each, 0.05)
            assert ends is not None
            missed[place] += not ends[0] <= each @ shares <= ends[1]
            moved = difference((made, each), (before or made, each), returning=False)
            assert moved is not None
            missed[2 + place] += not moved.lower <= 0 <= moved.upper
        before = made
    assert missed.max() <= binom.isf(1e-7, runs, 0.05)


def test_ratios_are_compared_and_multiplied_where_both_are_five_errors_from_zero() -> None:
    """The variance is that of the functional along which both change, so both parts may have reports in common."""
    product = SURELY.product(PART, WHOLE)
    assert product is not None
    x, y = SURELY.estimate(PART), SURELY.estimate(WHOLE)
    spread = y**2 * SURELY.variance(PART) + x**2 * SURELY.variance(WHOLE) + 2 * x * y * SURELY.covariance(PART, WHOLE)
    assert (product.estimate, product.std_error**2) == pytest.approx((x * y, spread))
    compared = SURELY.sum_of_ratios([(1.0, PART, WHOLE), (-1.0, np.array([0.0, 0, 1, 0]), REST)])
    assert compared is not None
    assert compared.lower < compared.estimate < compared.upper
    same = SURELY.sum_of_ratios([(1.0, PART, WHOLE), (-1.0, PART, WHOLE)])
    assert same is not None
    assert (same.estimate, same.std_error) == pytest.approx((0, 0))
    few = FEW_IN_WHOLE
    assert Z < few.estimate(WHOLE) / np.sqrt(few.variance(WHOLE)) < 5
    assert few.ratio(PART, WHOLE) is not None
    assert few.product(PART, WHOLE) is None
    assert few.sum_of_ratios([(1.0, PART, WHOLE), (-1.0, PART, WHOLE)]) is None
