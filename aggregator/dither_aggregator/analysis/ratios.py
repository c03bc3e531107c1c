"""Ratios x / y of weighted sums of raw shares, and intervals of them that hold where y is known poorly.

Fieller 1954: where x / y = r, x - r y is zero but for noise. So r is possible at a level z where

    (x - r y)^2 <= z^2 Var_r[x - r y]         Var_r = Vxx - 2 r Vxy + r^2 Vyy - k (1 - 2 r) (x - r y)

which is quadratic in r. The last term is for a part x of y, and for the answers' own part of its variance. It is
estimated at the share x, but if the ratio were r that share would be r y. A part of y with the ratio r has the variance
r (1 - r) y / n, whose slope is (1 - 2 r) / n; k is 1 / n and what noise makes more of it
(`tables.questions.CellTable.steepness`). Without noise this is Wilson's interval of x out of y, and with much of it
Fieller's.

The interval ends only where y is more than z standard errors above zero. Elsewhere all is possible, and the ratio
cannot be told. A part of a whole has a ratio from 0 to 1, so intervals are cut there. Estimates are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats

SURE = 3.0
"""Standard errors above zero that the whole must be, for anything to be said of its parts."""
SURE_TO_COMPARE = 5.0
"""The same of both wholes, for the difference of two ratios, and of two factors: there the error is that of a slope."""


class KnownRatio(NamedTuple):
    """A ratio that is told."""

    place: tuple[int, ...]
    estimate: float
    std_error: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Ratios:
    """x and y, each with what is known of its error; arrays of one shape."""

    part: Floats
    whole: Floats
    part_variance: Floats
    covariance: Floats
    whole_variance: Floats
    steepness: float
    """k."""
    least: float = 0.0
    """The least ratio that is possible."""
    most: float = 1.0

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether each whole is sure enough."""
        return self.surely(SURE)

    def surely(self, errors: float) -> npt.NDArray[np.bool_]:
        """Return whether each whole is at least so many standard errors above zero."""
        return (self.whole > 0) & (self.whole**2 >= errors**2 * self.whole_variance)

    @property
    def estimate(self) -> Floats:
        """x / y, of wholes that are told; it may be below 0 or above 1."""
        return self.part / self.whole

    @property
    def std_error(self) -> Floats:
        """The standard error of x / y by the delta method: for plotting; the interval is not made of it."""
        ratio = np.clip(self.estimate, self.least, self.most)
        spread = self.part_variance - 2 * ratio * self.covariance + ratio**2 * self.whole_variance
        return np.sqrt(np.maximum(spread, 0.0)) / np.abs(self.whole)

    def variance_at(self, ratio: Floats) -> Floats:
        """Return the variance of x / y if the ratio were this: Var_r / y^2."""
        x, y = self.part, self.whole
        spread = self.part_variance - 2 * ratio * self.covariance + ratio**2 * self.whole_variance
        return np.asarray((spread - self.steepness * (1 - 2 * ratio) * (x - ratio * y)) / y**2)

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Return the ends of the intervals at a level, within what is possible."""
        x, y, k = self.part, self.whole, self.steepness
        # square r^2 - 2 half r + constant <= 0
        square = y**2 - z**2 * (self.whole_variance - 2 * k * y)
        half = x * y - z**2 * (self.covariance - k * (y / 2 + x))
        constant = x**2 - z**2 * (self.part_variance - k * x)
        root = np.sqrt(np.maximum(half**2 - square * constant, 0.0))
        bounded = (square > 0) & (y > 0)
        lower, upper = ((half + way * root) / np.where(bounded, square, 1.0) for way in (-1, 1))
        least, most = self.least, self.most
        return np.where(bounded, np.clip(lower, least, most), least), np.where(
            bounded, np.clip(upper, least, most), most
        )

    def tell(self, z: float) -> Iterator[KnownRatio]:
        """Yield the ratios that are told, with intervals at a level."""
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = (self.estimate, self.std_error, *self.ends(z))
        yield from tell(self.known, *columns)


def tell(known: npt.NDArray[np.bool_], *columns: Floats) -> Iterator[KnownRatio]:
    """Yield the places that are told, with an estimate, its standard error and the ends of its interval."""
    places = zip(*(axis.tolist() for axis in np.nonzero(known)), strict=True)
    numbers = zip(*(column[known].tolist() for column in columns), strict=True)
    for place, (estimate, std_error, lower, upper) in zip(places, numbers, strict=True):
        yield KnownRatio(place, estimate, std_error, lower, upper)
