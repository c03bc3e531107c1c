"""Ratios: Wilson's interval without noise, Fieller's with much of it, and none where the whole is not known."""

import numpy as np
import pytest

from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.tables.ratios import Ratios


def ratios(part: Floats, whole: Floats, spread: tuple[Floats, Floats, Floats], steepness: float = 0.0) -> Ratios:
    return Ratios(part, whole, *spread, steepness)


def test_without_noise_it_is_wilsons_interval_of_a_part_of_the_whole() -> None:
    n, group, held = 10_000, 400.0, np.array([0.0, 3.0, 200.0, 400.0])
    x, y = held / n, np.full(4, group / n)
    found = ratios(x, y, (x * (1 - x) / n, x * (1 - y) / n, y * (1 - y) / n), 1 / n)
    lower, upper = found.ends(Z)
    rate = held / group
    middle = (rate + Z**2 / 2 / group) / (1 + Z**2 / group)
    reach = Z / (1 + Z**2 / group) * np.sqrt(rate * (1 - rate) / group + Z**2 / 4 / group**2)
    # Wilson takes the group's size for given; here it is a sample too, by terms of the order 1 / n.
    assert np.allclose(lower, middle - reach, atol=2e-3)
    assert np.allclose(upper, middle + reach, atol=2e-3)
    assert np.allclose(found.std_error, np.sqrt(rate * (1 - rate) / group), atol=1e-9)


def test_with_noise_it_is_fiellers() -> None:
    """The ends are where x - r y is z standard errors from zero."""
    part, whole = np.array([0.05]), np.array([0.2])
    found = ratios(part, whole, (np.array([1e-4]), np.array([5e-5]), np.array([4e-4])))
    for end in found.ends(Z):
        ((ratio,), spread) = (end, 1e-4 - 2 * end * 5e-5 + end**2 * 4e-4)
        assert abs(part[0] - ratio * whole[0]) == pytest.approx(Z * np.sqrt(spread[0]))


def test_a_whole_that_may_be_zero_says_nothing() -> None:
    whole = np.array([0.29, 0.31, -0.31])
    found = ratios(whole / 2, whole, (np.full(3, 0.01), np.zeros(3), np.full(3, 0.01)))
    assert found.known.tolist() == [False, True, False]
    assert [ratio.place for ratio in found.tell(Z)] == [(1,)]


def test_intervals_are_within_what_is_possible_and_without_end_all_of_it() -> None:
    part, whole = np.array([-0.01, 0.21, 0.1]), np.array([0.2, 0.2, 0.2])
    found = ratios(part, whole, (np.full(3, 1e-4), np.zeros(3), np.full(3, 1e-4)))
    lower, upper = found.ends(Z)
    assert lower[0] == 0
    assert upper[1] == 1
    assert (lower[2] > 0) & (upper[2] < 1)
    assert [end.tolist() for end in found.ends(30.0)] == [[0, 0, 0], [1, 1, 1]]
    assert found.estimate[0] < 0
