"""Damage: why a tally cannot be that of n reports of a shape."""

from collections.abc import Iterator

from dither_aggregator.counting.folding import Counts
from dither_shared.reports import CohortBits, ReportShape, Subsets, Symbols


def impossible(shape: ReportShape, counts: Counts, n: int) -> Iterator[str]:
    """Yield why so many reports cannot have these counts."""
    if counts.min(initial=0) < 0 or n < 0:
        yield "it has a negative count"
    if isinstance(shape, CohortBits):
        by_cohort = counts.reshape(shape.cohorts, shape.size + 1)
        if by_cohort[:, 0].sum() != n:
            yield f"its cohorts have {by_cohort[:, 0].sum()} reports in place of {n}"
        if (by_cohort[:, 1:] > by_cohort[:, :1]).any():
            yield "a bit was set more often than its cohort reported"
        return
    named = n if isinstance(shape, Symbols) else n * shape.weight if isinstance(shape, Subsets) else None
    if named is not None and counts.sum() != named:
        yield f"its counts add up to {counts.sum()} in place of {named}"
    if counts.max(initial=0) > n:
        yield f"it has a count of {counts.max()} in {n} reports"
