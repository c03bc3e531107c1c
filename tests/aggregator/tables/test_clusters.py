"""Clusters of number columns are nearly as good as those of true records, and noise is told from clusters."""

from itertools import pairwise

import numpy as np
import pytest

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables import regression as k_means
from dither_aggregator.analysis.tables.regression import NotTold, clusters, lloyd, numbered, places_of
from dither_aggregator.analysis.tables.synthesis import pair_tables
from dither_shared.domains import Buckets
from tests.benchmarks.tables.clusters import CASES, ratios
from tests.support.questions import draw_questions
from tests.support.soaking import scaled, thinned

WORLDS = scaled(3, 20)
SLACK = scaled(10, 0) / 100
"""The mean of three of the twenty worlds may be so much larger: they are pinned."""


@pytest.mark.parametrize("case", thinned(list(CASES), 1))
def test_clusters_are_nearly_those_of_true_records(case: tuple[int, str, int]) -> None:
    """The sum of squares is at most 1.05 to 1.35 times theirs, by epsilon and columns, in the mean of pinned worlds."""
    found = [ratios(case, seed)[0] for seed in range(WORLDS)]
    assert float(np.mean(found)) <= CASES[case] + SLACK, found


def test_open_ranges_lie_at_their_edges() -> None:
    assert places_of(Buckets((0, 10, 40), 0, "")).tolist() == [0.0, 0.125, 0.625, 1.0]


def test_each_step_asks_for_sums_that_bring_centres_nearer() -> None:
    rng = np.random.default_rng(0)
    points, weights = rng.random((400, 2)), np.full(400, 1 / 400)
    found = lloyd(points, weights, 4, rng)
    assert found.within == pytest.approx(
        float(weights @ ((points[:, np.newaxis] - found.centres) ** 2).sum(axis=2).min(axis=1))
    )
    assert sorted(found.shares.tolist(), reverse=True) == found.shares.tolist()
    held, sums = found.steps[-1]
    assert np.allclose(sums / held[:, np.newaxis], found.centres)

    def spread(step: tuple[Floats, Floats]) -> float:
        centres = step[1] / step[0][:, np.newaxis]
        return float(weights @ ((points[:, np.newaxis] - centres) ** 2).sum(axis=2).min(axis=1))

    assert all(after <= before + 1e-12 for before, after in pairwise(map(spread, found.steps)))


def two_clouds(n: int, epsilon: str, *, silent: float | None = None) -> k_means.Clusters:
    truth = np.full((7, 7), 1e-5)
    truth[1, 1], truth[4, 4] = 1.0, 1.5
    questions = draw_questions(truth / truth.sum(), n, epsilon, np.random.default_rng(0), silent=silent)
    domain = Buckets((0, 1, 2, 3, 4), 0, "h")
    return clusters(
        ["a", "b"],
        [domain, domain],
        numbered(questions, [0, 1]),
        pair_tables(questions, [0, 1]),
        2,
        np.random.default_rng(0),
    )


@pytest.mark.parametrize("silent", thinned([None, 0.3], 1))
def test_clusters_are_stable_where_reports_are_many(silent: float | None) -> None:
    found = two_clouds(200_000, "2", silent=silent)
    assert found.is_stable
    assert found.in_unit(found.found.centres) == pytest.approx(np.array([[3.5, 3.5], [0.5, 0.5]]), abs=0.15)
    assert found.found.shares[0] == pytest.approx(0.6, abs=0.02)
    assert (found.spread < 0.05).all()


def test_few_reports_leave_no_stable_clusters() -> None:
    assert not two_clouds(900, "0.5").is_stable


def test_cells_that_are_too_many_to_draw_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k_means, "TABLE_MAX", 48)
    with pytest.raises(NotTold, match="49 cells are too many to say how stable"):
        two_clouds(9_000, "2")
