"""Each group beside all others: differences of rates, and which of them are no noise.

The difference of a group's rate from that of all others has an interval by Zou 2008 ("MOVER"). It goes as far from the
difference as both rates' intervals reach from their estimates, squared and added, less what both have in common, for
the noise of one report is in both. With d, l, u and e, m, v the rates and their ends, and c their correlation

    lower = d - e - sqrt((d - l)^2 + (v - e)^2 - 2 c (d - l)(v - e))             upper likewise

Whether there is a difference is tested without any division. With the four shares of `fourfold`

    R = CELL ALL - GROUP OUTCOME

is (GROUP)(ALL - GROUP) times the difference: zero but for noise where there is none, however few have the group. Its
variance is by the delta method, and two noisy factors add Var Var + Cov^2 to it. A cell whose share came out low has
too low a variance: the larger one counts of that at the estimate and that at R = 0. Verdicts are by Holm, over all
groups and outcomes of two columns, those included of which nothing else is said: none is false with .95.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.ratios import SURE_TO_COMPARE
from dither_aggregator.analysis.tables.fourfold import ALL, CELL, GROUP, OUTCOME, Fourfold


@dataclass(frozen=True)
class Differences:
    """Rates of groups less those of all others; arrays float64[A, B]."""

    known: npt.NDArray[np.bool_]
    """Whether both the group and all others are SURE_TO_COMPARE."""
    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats


def differences(shares: Fourfold, z: float) -> Differences:
    """Compare each group with all others."""
    ours, theirs = shares.rates, shares.others
    known = ours.surely(SURE_TO_COMPARE) & theirs.surely(SURE_TO_COMPARE)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, other = (np.where(known, each.estimate, 0.0) for each in (ours, theirs))
        errors = [np.where(known, each.std_error, 0.0) for each in (ours, theirs)]
        pulls = [_pulls(rate, ours.whole, (1.0, 0, 0, 0), (0.0, 1, 0, 0))]
        pulls.append(_pulls(other, theirs.whole, (-1.0, 0, 1, 0), (0.0, -1, 0, 1)))
        common = np.where(known, np.einsum("abi,abij,abj->ab", pulls[0], shares.covariance, pulls[1]), 0.0)
    correlation = np.clip(common / np.maximum(errors[0] * errors[1], 1e-300), -1.0, 1.0)
    (lower, upper), (low, high) = ours.ends(z), theirs.ends(z)

    def reach(own: Floats, across: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(own**2 + across**2 - 2 * correlation * own * across, 0.0)))

    moved = rate - other
    return Differences(
        known,
        moved,
        np.sqrt(np.maximum(errors[0] ** 2 + errors[1] ** 2 - 2 * common, 0.0)),
        moved - reach(rate - lower, high - other),
        moved + reach(upper - rate, other - low),
    )


def _pulls(ratio: Floats, whole: Floats, part: tuple[float, ...], of: tuple[float, ...]) -> Floats:
    """Return how a ratio of sums of the four shares moves with each of these, float64[A, B, 4]."""
    clipped = np.clip(ratio, 0.0, 1.0)[..., np.newaxis]
    return np.asarray((np.array(part) - clipped * np.array(of)) / whole[..., np.newaxis])


def chances(shares: Fourfold) -> Floats:
    """Return two-sided p-values of R, float64[A, B]: small where a group's rate differs from all others'."""
    value, variance = residuals(shares)
    return np.asarray(2 * ndtr(-np.abs(value) / np.sqrt(np.maximum(variance, 1e-300))))


def residuals(shares: Fourfold) -> tuple[Floats, Floats]:
    """Return R and the larger of its two variances, float64[A, B] each."""
    cell, group, outcome, everybody = (shares.shares[..., at] for at in (CELL, GROUP, OUTCOME, ALL))
    covariance = shares.covariance
    value = cell * everybody - group * outcome
    slopes = np.stack([everybody, -outcome, -group, cell], axis=-1)
    variance = np.einsum("abi,abij,abj->ab", slopes, covariance, slopes)
    variance += covariance[..., GROUP, GROUP] * covariance[..., OUTCOME, OUTCOME] + covariance[..., GROUP, OUTCOME] ** 2
    at_none = -shares.steepness * (everybody - 2 * group) * (1 - 2 * outcome / everybody) * value
    return value, np.asarray(variance + np.maximum(at_none, 0.0))
