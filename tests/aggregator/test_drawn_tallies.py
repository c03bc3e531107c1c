"""Tallies that tests draw follow the laws of the mechanisms, told by enumeration of what one device may answer."""

from decimal import Decimal
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from dither_shared.mechanisms import GRR, OUE, PGR, PureMechanism, SubsetSelection, choose
from tests.support import tallies
from tests.support.soaking import scaled
from tests.support.tallies import draw_tallies, draw_tally

Floats = npt.NDArray[np.float64]
DRAWS = scaled(600, 4_000)
POINTS = [PGR.for_design(7, 2, 3, Decimal(1)), PGR.for_design(10, 3, 3, Decimal(2))]


def answers_of(mechanism: PureMechanism) -> list[tuple[frozenset[int], Floats]]:
    """Return what one device may answer, as the places of a tally that it adds to, each with its chance by value."""
    design, p = mechanism.first_stage, float(mechanism.p)
    if isinstance(design, SubsetSelection):
        outcomes = [frozenset(members) for members in combinations(range(design.d), design.weight)]
        inside = np.array([[value in outcome for value in range(design.d)] for outcome in outcomes])
    elif isinstance(design, PGR):
        outcomes = [frozenset([point]) for point in range(design.outputs)]
        points = np.array([design.unrank(point) for point in range(design.outputs)])
        inside = points @ points[: design.d].T % design.order == 0
    else:
        outcomes = [frozenset([value]) for value in range(mechanism.d)]
        inside = np.eye(mechanism.d, dtype=bool)
    chance = np.where(inside, p / inside.sum(axis=0), (1 - p) / (~inside).sum(axis=0))
    return list(zip(outcomes, chance, strict=True))


@pytest.mark.parametrize(
    "mechanism",
    [
        GRR.for_epsilon(5, Decimal(1)),
        SubsetSelection.for_weight(2, 1, Decimal(1)),
        SubsetSelection.for_weight(6, 2, Decimal(2)),
        SubsetSelection.for_weight(7, 4, Decimal(1)),
        *POINTS,
        choose(8, Decimal(1), permanent=Decimal(3)),
    ],
    ids=str,
)
def test_means_and_covariances_are_those_of_independent_devices(mechanism: PureMechanism) -> None:
    """Draws of 100 devices: nothing of some 500 means and covariances is 6 sigma off, a false alarm of 1e-6."""
    check_drawn(mechanism)


@pytest.mark.parametrize("mechanism", POINTS, ids=str)
def test_points_of_a_design_too_large_to_keep_have_the_same_law(
    mechanism: PureMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, of two designs."""
    monkeypatch.setattr(tallies, "PLANES_MAX", 0)
    check_drawn(mechanism)


def test_points_of_few_devices_have_the_same_law() -> None:
    """As above, of the smaller design: 20 devices, each with a draw of its own."""
    check_drawn(POINTS[0], 14, 6)


def check_drawn(mechanism: PureMechanism, first: int = 70, second: int = 30) -> None:
    places = len(draw_tally(mechanism, np.zeros(mechanism.d, dtype=np.int64), np.random.default_rng(0)))
    counts = np.zeros(mechanism.d, dtype=np.int64)
    counts[:2] = first, second
    mean, covariance = np.zeros(places), np.zeros((places, places))
    for value in (0, 1):
        adds = np.array([[place in outcome for place in range(places)] for outcome, _ in answers_of(mechanism)])
        chance = np.array([chances[value] for _, chances in answers_of(mechanism)])
        mean += counts[value] * (chance @ adds)
        covariance += counts[value] * (adds.T @ (chance[:, None] * adds) - np.outer(chance @ adds, chance @ adds))
    rng = np.random.default_rng(20261121)
    drawn = draw_tallies(mechanism, np.tile(counts, (DRAWS, 1)), rng)
    spread = np.sqrt(np.diag(covariance))
    assert np.abs((drawn.mean(axis=0) - mean) / spread).max() < 6 / np.sqrt(DRAWS)
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / DRAWS)
    assert np.abs((np.cov(drawn.T) - covariance) / error).max() < 6


def test_bits_of_a_unary_code_are_drawn_alone() -> None:
    """None of 3 means and 6 covariances is 6 sigma off, a false alarm of 2e-8."""
    mechanism, counts = OUE.for_epsilon(3, Decimal(1)), np.array([70, 30, 0])
    rng = np.random.default_rng(20261122)
    drawn = draw_tallies(mechanism, np.tile(counts, (DRAWS, 1)), rng)
    p, q = float(mechanism.p), float(mechanism.q)
    mean, variance = counts * p + (100 - counts) * q, counts * p * (1 - p) + (100 - counts) * q * (1 - q)
    assert np.abs((drawn.mean(axis=0) - mean) / np.sqrt(variance)).max() < 6 / np.sqrt(DRAWS)
    error = np.sqrt((np.outer(variance, variance) + np.diag(variance**2)) / DRAWS)
    assert np.abs((np.cov(drawn.T) - np.diag(variance)) / error).max() < 6
