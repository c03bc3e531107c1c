"""The reading of a release: everything is computed from its noisy counts and its plan, and from nothing else.

n is the sum of the noisy counts, over w where a report names w values. Estimates are those of any tally; their errors
have the variance of the noise as well (`analysis/functional.py`). Intervals say which values stand out, how they rank
and whether the reports are too few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np

from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.analysis.significance import Ranked, rank
from dither_aggregator.store.release_ledger import Release
from dither_shared.mechanisms import PureMechanism

SURE_OF_N = 10
"""With fewer times its error n is too uncertain to divide by: errors are those of small changes of n."""


@dataclass(frozen=True)
class PublishedRow(Row):
    """A value's share, with an interval of its own and one of those that hold all together."""

    own_lower: float = nan
    """The ends of its own interval; `lower` and `upper` are of those that hold together."""
    own_upper: float = nan


@dataclass(frozen=True)
class PublishedReading:
    """All that is shown of a release."""

    release: Release
    n: int
    """The sum of the noisy counts: about so many reports. It may be negative."""
    n_error: float
    """The standard error of that, by the noise."""
    rows: Sequence[PublishedRow]
    """One for each value, in the plan's order; empty where the reports are too few."""
    noise_floor: float = 0.0
    """The standard error of a value that nobody has."""

    @property
    def too_few(self) -> bool:
        """Whether nothing can be told: n is not sure, or every interval is wider than all that a share may be."""
        return not self.rows

    @property
    def significant(self) -> Sequence[Ranked]:
        """The listed values whose interval lies above zero, the largest first."""
        listed = [row for row in self.rows if row.value not in UNLISTED]
        return rank([row for row in listed if row.lower > 0], [row for row in listed if row.lower <= 0])


def read(release: Release) -> PublishedReading:
    """Return what a release tells. A release has counts."""
    assert release.counts is not None
    plan, noise = release.plan, release.noise
    mechanism = PureMechanism.of(plan.mechanism)
    n = round(sum(release.counts) / noise.width)
    n_error = sqrt(len(release.counts) * noise.variance) / noise.width
    if n < max(1, SURE_OF_N * n_error):
        return PublishedReading(release, n, n_error, ())
    counts = np.array(release.counts, dtype=np.int64)
    functionals = Functionals(mechanism, counts, n, release.repeats, noise.variance)
    rows = [row for row in (_row(functionals, place, value) for place, value in enumerate(plan.values)) if row]
    if len(rows) < len(plan.values) or all(row.upper - row.lower >= 1 for row in rows):
        return PublishedReading(release, n, n_error, ())
    floor = sqrt(float(mechanism.noise_variance) / n + noise.of_rare(mechanism, n))
    return PublishedReading(release, n, n_error, rows, floor)


def _row(functionals: Functionals, place: int, value: str) -> PublishedRow | None:
    weights = np.zeros(functionals.mechanism.d)
    weights[place] = 1.0
    own = functionals.interval(weights, 1 - CONFIDENCE)
    together = functionals.interval(weights, (1 - CONFIDENCE) / functionals.mechanism.d)
    if own is None or together is None:
        return None
    estimate, error = functionals.estimate(weights), sqrt(functionals.variance(weights))
    return PublishedRow(value, estimate, error, *together, *own)
