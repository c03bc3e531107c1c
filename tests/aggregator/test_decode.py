"""From tallies to support counts, beside the definition of support."""

import random
from decimal import Decimal

import numpy as np
import pytest
from scipy.fft import fftn

from dither_aggregator.counting import (
    ONE_BY_ONE_MAX,
    REPORTS_MAX,
    BadTally,
    fold,
    hyperplane,
    hyperplane_sums,
    hyperplanes_through,
    support_counts,
)
from dither_shared.frozen import replaced
from dither_shared.mechanisms import GRR, OUE, PGR, MemoizedTwoLevel, PureMechanism, SubsetSelection
from dither_shared.mechanisms.pgr import points
from dither_shared.rng import Rng
from tests.support.laws import supports

EPSILON = Decimal(1)
MECHANISMS: list[PureMechanism] = [
    GRR.for_epsilon(5, EPSILON),
    OUE.for_epsilon(9, EPSILON),
    SubsetSelection.for_weight(9, 3, EPSILON),
    SubsetSelection.for_weight(300, 2, EPSILON),
    PGR.for_design(100, 5, 4, EPSILON),
    PGR.for_design(31, 2, 5, EPSILON),
    MemoizedTwoLevel.for_epsilon(PGR.for_design(20, 5, 3, Decimal(3)), EPSILON),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("n", [1, 300])
def test_support_counts_are_those_of_the_definition(mechanism: PureMechanism, n: int) -> None:
    rng = Rng(random.Random(3).getrandbits)
    reports = [mechanism.randomize(mechanism.class_of([place % mechanism.d]), rng) for place in range(n)]
    counts = support_counts(mechanism, fold(mechanism.shape, mechanism.shape.pack(reports)), n)
    expected = [sum(supports(mechanism, report, value) for report in reports) for value in range(mechanism.d)]
    assert counts.dtype == np.int64
    assert counts.tolist() == expected


@pytest.mark.parametrize(("order", "dimension"), [(2, 3), (2, 6), (3, 4), (5, 3), (7, 3), (11, 3)])
@pytest.mark.parametrize("scale", [3, 10**9])
def test_sums_over_hyperplanes_equal_the_plain_ones(order: int, dimension: int, scale: int) -> None:
    """The naive version: the incidence of every two points, one inner product each."""
    histogram = np.random.default_rng(order).integers(0, scale, points(order, dimension))
    designed = PGR.for_design(2, order, dimension, EPSILON)
    for design in (designed, replaced(designed, prime=0)):
        vectors = np.array([design.unrank(u) for u in range(len(histogram))])
        incidence = vectors @ vectors.T % order == 0
        assert (hyperplane_sums(histogram, *design.geometry) == incidence @ histogram).all()
        assert all((hyperplane(*design.geometry, v) == incidence[v]).all() for v in range(len(histogram)))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_tally_that_n_reports_cannot_have_is_refused(mechanism: PureMechanism) -> None:
    for three, four in ((7, 0), (-1, 7), (2**62, 0)):
        tally = np.zeros(mechanism.shape.size, dtype=np.int64)
        tally[3:5] = three, four
        with pytest.raises(BadTally, match="counts must be from 0 to 6"):
            support_counts(mechanism, tally, 6)
    if not isinstance(mechanism, OUE):
        tally[3:5] = 6, 1
        with pytest.raises(BadTally, match="is not that of 6 reports"):
            support_counts(mechanism, tally, 6)


def test_a_wrong_transform_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The integrity check: every point lies on as many hyperplanes."""
    mechanism = PGR.for_design(100, 5, 4, EPSILON)
    tally = np.ones(mechanism.outputs, dtype=np.int64)
    right = hyperplane_sums(tally, *mechanism.geometry)
    monkeypatch.setattr("dither_aggregator.counting.hyperplane_sums", lambda *_: right + (np.arange(len(right)) == 9))
    with pytest.raises(BadTally, match="do not add up"):
        support_counts(mechanism, tally, mechanism.outputs)


def test_the_most_reports_are_summed_exactly_and_more_are_refused() -> None:
    mechanism = PGR.for_design(100, 11, 3, EPSILON)
    tally = np.zeros(mechanism.outputs, dtype=np.int64)
    tally[[0, 7, 132]] = [REPORTS_MAX // 2 + 1, REPORTS_MAX // 2 - 2, 1]
    counts = support_counts(mechanism, tally, REPORTS_MAX)
    expected = [sum(int(tally[u]) for u in (0, 7, 132) if supports(mechanism, u, v)) for v in range(100)]
    assert counts.tolist() == expected
    with pytest.raises(BadTally, match="can be decoded"):
        support_counts(mechanism, tally + 1, REPORTS_MAX + mechanism.outputs)


def test_a_transform_without_enough_digits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    off = "scipy.fft.fftn"
    monkeypatch.setattr(off, lambda grid: fftn(grid + 0.3 * (grid == grid.max())))
    with pytest.raises(BadTally, match="lost precision"):
        hyperplane_sums(np.random.default_rng(1).integers(0, 2**15, points(11, 3)), 11, 3, 0)


@pytest.mark.parametrize("count", [0, 1, ONE_BY_ONE_MAX, ONE_BY_ONE_MAX + 1, 57])
def test_hyperplanes_through_points_are_the_same_one_by_one_and_by_a_transform(count: int) -> None:
    values = np.random.default_rng(count).permutation(points(7, 3))[:count]
    inside = np.zeros(points(7, 3), dtype=np.int64)
    inside[values] = 1
    assert (hyperplanes_through(7, 3, 59, values) == hyperplane_sums(inside, 7, 3, 59)).all()
