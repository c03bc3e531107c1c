"""Estimates with their intervals, a row each, beside truths that are known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dither_aggregator.analysis.rows import Row
from dither_aggregator.web.charts.shares import ROW_HEIGHT, Mark, Plot, draw


@dataclass(frozen=True)
class Beside:
    """A plot of the estimates, and each one's truth."""

    plot: Plot
    truths: tuple[float, ...]
    """The place of each mark's truth, in percent of the width."""

    @property
    def pairs(self) -> Sequence[tuple[Mark, float]]:
        """The marks, each with its truth's place."""
        return list(zip(self.plot.marks, self.truths, strict=True))


def draw_beside(rows: Sequence[Row], truths: Sequence[float], noise_floor: float, critical: float | None) -> Beside:
    """Lay out rows in their order, on an axis that holds their truths too."""
    true = [Row(row.value, truth, 0.0, truth, truth) for row, truth in zip(rows, truths, strict=True)]
    both = draw([*rows, *true], noise_floor, critical)
    plot = replace(both, marks=both.marks[: len(rows)], height=both.height - len(true) * ROW_HEIGHT)
    return Beside(plot, tuple(mark.x for mark in both.marks[len(rows) :]))
