"""The tail: the sum over all values that do not stand out, with an interval that holds.

Values are set apart by the counts of one window. Their sum in the same window comes out too low, because noise helped
to leave them out. So the sum is of other days: there the noise is new, and knows nothing of who was left out. The
interval is of the share among the reports of those days. As an interval of the population that they are a sample of, it
would be too narrow: the same devices report in both windows, so their answers, unlike their noise, are partly the same.

The sum is a functional (`functional`). All d shares sum to one where an answer holds one value: then most of them are
estimated as one less the few others, which have less noise.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import Functionals, IntervalEstimate
from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.rows import Days, says
from dither_aggregator.analysis.windows import Window
from dither_aggregator.counting.folding import Counts
from dither_shared.mechanisms import PureMechanism


@dataclass(frozen=True)
class Sum(IntervalEstimate):
    """The sum over some values: values a report, which is a share if an answer holds one value."""

    @property
    def rest(self) -> "Sum":
        """The sum over all other values, if both sums add up to one."""
        return Sum(1 - self.estimate, self.std_error, 1 - self.upper, 1 - self.lower)


class TailDocument(Days):
    """The share of all values that do not stand out, from days before, whose noise did not choose them.

    If answers may hold several values, it is the number of them a report. Values apart are not in it.
    """

    values: Annotated[int, says("how many values")]
    n: Annotated[int, says("reports of these days")]
    estimate: Annotated[float, says("their share of these reports: raw, so it may be negative")]
    std_error: float
    error_of: Annotated[ErrorOf, says("reports: the people behind both windows may be the same")]
    lower: Annotated[float, says("the interval's lower end, which holds by itself at the level")]
    upper: Annotated[float, says("its upper end")]


@dataclass(frozen=True)
class Tail:
    """The sum over all values that do not stand out in a window, from other days."""

    total: Sum
    values: int
    window: Window
    """The other days, from the first of them that has reports to the last."""
    n: int
    """Their reports."""

    def to_document(self) -> TailDocument:
        """Return what the API says of it."""
        return {
            "values": self.values,
            "estimate": self.total.estimate,
            "std_error": self.total.std_error,
            "error_of": "reports",
            "lower": self.total.lower,
            "upper": self.total.upper,
            "n": self.n,
            **self.window.ends,
        }


def sum_shares(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Estimate what values have together, bool[d], from the counts of n >= 0 reports that did not choose them.

    The interval is of the share among these reports, whose noise must be fresh. None where the law of two values is not
    known, and where the interval is as wide as all that is possible.
    """
    if n < 2:
        return None
    others = mechanism.ticks == 1 and 2 * among.sum() > mechanism.d
    found = _estimate(mechanism, counts, n, ~among if others else among, confidence)
    return found.rest if found and others else found


def _estimate(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Return it from the reports' supports of these values, not of all others."""
    weights, functionals = among.astype(np.float64), Functionals(mechanism, counts, n)
    if not functionals.known:
        return None
    variance = functionals.variance(weights, "reports")
    ends = functionals.interval(weights, 1 - confidence, variance)
    if ends is None or ends[1] - ends[0] >= mechanism.ticks:
        return None
    return Sum(functionals.estimate(weights), sqrt(variance), *ends)
