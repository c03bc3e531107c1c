"""Publishing is audited as a black box: two stores, of which one has one device more, and what each would publish.

A bound above the declared epsilon would be a false alarm with a probability of 1e-6 at most, and the draws are seeded.
"""

from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.counting import Counts
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import device_reports
from dither_aggregator.store import StoredPlan
from dither_aggregator.store.release_ledger import Release
from tests.support.releases import WEEKLY, Neighbours, published
from tests.support.soaking import scaled, thinned

ALPHA = 1e-6
DRAWS = 8_000
OTHERS = [[(0, 0)], [(1, 1)], [(3, 2)]]
LATE = [(0, 1), (2, 1), (5, 1)]
"""One report of the week, and two that waited: the device was away, and each takes a day of the aggregator's."""


def neighbours(directory: Path, device: list[tuple[int, int]], reports: int = 3) -> Neighbours:
    return Neighbours.of(directory, published(keys=WEEKLY, reports=reports), OTHERS, device)


@pytest.mark.parametrize(
    ("device", "reports", "share"),
    thinned([(LATE, 3, 0.8), ([(0, 0), (1, 1), (2, 2)], 3, 0.2), ([(4, 0)], 1, 0.8)], 0),
    ids=["the same thrice", "three answers", "once"][: scaled(1, 3)],
)
def test_a_device_is_told_by_no_more_than_epsilon(
    tmp_path: Path, device: list[tuple[int, int]], reports: int, share: float
) -> None:
    """Few draws prove most of it for the worst pair; `make bench` proves nine tenths with a million."""
    found = neighbours(tmp_path, device, reports)
    assert (found.with_it - found.without).sum() == len(device)
    bound = found.audit(DRAWS, ALPHA)
    assert share * found.entry.epsilon <= bound <= found.entry.epsilon


def no_noise(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
    """Publish the counts as they are: the noise comes to the estimates."""
    return tuple(raw.tolist())


def on_the_first_alone(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
    """Put noise on the value that leads."""
    return (releases_noisy(raw, entry, seed)[0], *raw.tolist()[1:])


def halved(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
    """Draw half of the noise, as if twice the epsilon had been charged."""
    return tuple(np.rint((np.array(releases_noisy(raw, entry, seed)) + raw) / 2).astype(int).tolist())


releases_noisy = releases.noisy


@pytest.mark.parametrize(
    ("planted", "least"), thinned([(no_noise, inf), (on_the_first_alone, inf), (halved, 1.4)], 1, 2)
)
def test_a_release_with_too_little_noise_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., tuple[int, ...]], least: float
) -> None:
    found = neighbours(tmp_path, LATE)
    monkeypatch.setattr(releases, "noisy", planted)
    assert found.audit(DRAWS // 4, ALPHA) >= least


def test_late_reports_that_are_forgotten_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric with a report a week: who counts the week's own alone scales the noise for a third of the truth."""

    def of_the_week(stored: StoredPlan, days: int) -> int:
        assert device_reports(stored, days) == len(LATE)
        return 1

    monkeypatch.setattr(releases, "device_reports", of_the_week)
    found = neighbours(tmp_path, LATE)
    assert found.audit(DRAWS // 4, ALPHA) >= 2 * found.entry.epsilon
