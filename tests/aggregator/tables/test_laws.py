"""The law of supports: beside an enumeration of every report, and of large tables beside all of their points."""

from decimal import Decimal
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis import functional
from dither_aggregator.analysis.functional import CellLaw, PairedCells, PointCells
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.counting.supports import hyperplane
from dither_shared.mechanisms import GRR, PGR, PureMechanism, SubsetSelection, choose
from tests.support.tallies import Counts, draw_tally

SHARES = np.random.default_rng(1).dirichlet(np.ones(6))
DESIGNS: tuple[PureMechanism, ...] = (
    choose(6, Decimal(1), name=GRR.name),
    choose(6, Decimal(1), name=SubsetSelection.name),
    choose(6, Decimal("0.2"), name=SubsetSelection.name),
    choose(6, Decimal(1), name=PGR.name),
)


def supports_of(mechanism: PureMechanism) -> Floats:
    """Return which values each report supports, float64[reports, d]."""
    if mechanism.geometry is not None:
        return np.array([hyperplane(*mechanism.geometry, value) for value in range(mechanism.d)], dtype=np.float64).T
    weight = mechanism.weight if isinstance(mechanism, SubsetSelection) else 1
    return np.array(
        [[v in held for v in range(mechanism.d)] for held in combinations(range(mechanism.d), weight)], float
    )


def chances_of(mechanism: PureMechanism, shares: Floats) -> Floats:
    """Return how often each report comes from answers with these shares: reports that support one share p evenly."""
    supports, p = supports_of(mechanism), float(mechanism.p)
    inside = supports.sum(axis=0)
    of_each = np.where(supports > 0, p / inside, (1 - p) / (len(supports) - inside))
    return np.asarray(of_each @ shares)


def law_of(mechanism: PureMechanism, cells: Counts, shares: Floats = SHARES) -> CellLaw:
    """Return the law of a table of answers with these shares, exactly."""
    size = int(cells.max()) + 1
    if mechanism.geometry is None:
        held = np.bincount(cells, shares, size)
        sizes = np.bincount(cells, minlength=size).astype(np.float64)
        return PairedCells(mechanism, sizes, held.astype(np.float64))
    expected = np.rint(1e12 * chances_of(mechanism, shares)).astype(np.int64)
    return PointCells(mechanism, cells, size, expected)


def enumerated(mechanism: PureMechanism, cells: Counts, shares: Floats = SHARES) -> Floats:
    """Return the covariance of the cells' estimates over every report there is, times n."""
    folded = supports_of(mechanism) @ np.eye(int(cells.max()) + 1)[cells]
    chances = chances_of(mechanism, shares)
    centred = folded - chances @ folded
    return np.asarray(centred.T @ (centred * chances[:, np.newaxis]) / float(mechanism.p - mechanism.q) ** 2)


TABLES = (np.arange(6), np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2]), np.array([0, 1, 0, 1, 0, 2]))
"""All six symbols, the margins of two columns, and one with a symbol for those who say nothing."""


@pytest.mark.parametrize("mechanism", DESIGNS, ids=lambda each: f"{each.name}-{each.shape.size}")
@pytest.mark.parametrize("cells", TABLES, ids=str)
def test_covariances_are_those_of_every_report(mechanism: PureMechanism, cells: Counts) -> None:
    law = law_of(mechanism, cells)
    exact = enumerated(mechanism, cells)
    assert np.allclose(law.variances, np.diag(exact), atol=1e-8)
    sums = np.random.default_rng(2).normal(size=(3, len(exact)))
    assert np.allclose(law.covariances(sums), sums @ exact, atol=1e-8)


@pytest.mark.parametrize("mechanism", DESIGNS, ids=lambda each: f"{each.name}-{each.shape.size}")
@pytest.mark.parametrize("cells", TABLES, ids=str)
def test_the_matrix_is_that_of_any_shares(mechanism: PureMechanism, cells: Counts) -> None:
    """Within a cell symbols are alike: so are the shares that are asked for."""
    sizes = np.bincount(cells)
    others = np.random.default_rng(3).dirichlet(np.ones(len(sizes)))
    exact = enumerated(mechanism, cells, (others / sizes)[cells])
    assert np.allclose(law_of(mechanism, cells).covariance(others), exact, atol=1e-8)


@pytest.mark.parametrize("mechanism", DESIGNS, ids=lambda each: f"{each.name}-{each.shape.size}")
@pytest.mark.parametrize("cells", TABLES, ids=str)
def test_the_planned_variance_is_that_of_even_answers(mechanism: PureMechanism, cells: Counts) -> None:
    """If reports are points, these come equally often."""
    if mechanism.geometry is not None:
        even = PointCells(mechanism, cells, int(cells.max()) + 1, np.ones(mechanism.shape.size, dtype=np.int64))
        assert law_of(mechanism, cells).planned == pytest.approx(even.variances.mean())
    else:
        exact = enumerated(mechanism, cells, np.full(6, 1 / 6))
        assert law_of(mechanism, cells).planned == pytest.approx(np.diag(exact).mean())


def test_a_law_without_lines_is_seen_to_be_wrong() -> None:
    """The planted bug: points of a projective geometry as if supports were independent."""
    mechanism = DESIGNS[3]
    assert np.abs(enumerated(mechanism, np.arange(6)))[~np.eye(6, dtype=bool)].max() > 1e-3


def test_of_large_tables_some_reports_tell_about_the_same() -> None:
    """A mean of 512 squares of a law this tame is off by a sixth at five sigma: once in a million seeds."""
    mechanism = choose(400, Decimal(1))
    rng = np.random.default_rng(4)
    counts = draw_tally(mechanism, rng.multinomial(20_000, rng.dirichlet(np.ones(400))), rng)
    question = QuestionTally((0, 1), (20, 20), False, mechanism, counts, 20_000)
    every = question.table((0,)).variances
    with patch.object(functional, "ENTRIES_MAX", 1_000):
        some = question.table((0,)).variances
    assert (some != every).all()
    assert np.abs(some / every - 1).max() < 1 / 3
    assert abs(np.mean(some / every) - 1) < 1 / 6
