"""The shape of numbers: a bar a range, of equal width, so that the axis is the one that the edges make."""

from collections.abc import Sequence
from dataclasses import dataclass

from dither_aggregator.analysis.numbers import NumberRow
from dither_aggregator.web.charts.scale import Tick, end, nice_step, percent, precise, ticks

SHAPE_HEIGHT, SHAPE_TOP = 180, 8
LINES = 4
"""About so many lines of shares."""
NAMES = 5
"""So many ranges, at most, have their ends beneath."""
GAP = 0.12
"""The part of a range's width that is free between two bars."""


@dataclass(frozen=True)
class ShapeBar:
    """One range: its fitted share, the interval of the raw one, and how far noise alone would reach."""

    row: NumberRow
    x: float
    width: float
    y: float
    height: float
    middle: float
    y_low: float
    y_high: float
    noise_y: float
    noise_height: float
    says: str


@dataclass(frozen=True)
class Shape:
    """All that the template draws. Lengths across are percent, lengths down are pixels."""

    bars: Sequence[ShapeBar]
    lines: Sequence[Tick]
    """Of shares: `x` is the place down, in pixels."""
    names: Sequence[Tick]
    zero_y: float
    height: int = SHAPE_HEIGHT


def draw_shape(rows: Sequence[NumberRow], names: Sequence[str]) -> Shape:
    """Lay out a bar for each range; `names` are those of the left ends, "" where a range is open to the left.

    The grey behind a bar reaches as far as the interval would of a range that nobody is in.
    """
    low = min(0.0, *(row.lower for row in rows))
    high = max(max(row.upper, row.fitted or 0.0) for row in rows)
    noise = [(row.upper - row.lower) / 2 for row in rows]
    low, high = min(low, -max(noise)), max(high, max(noise))

    def y(share: float) -> float:
        return round(SHAPE_TOP + (SHAPE_HEIGHT - SHAPE_TOP) * (high - share) / (high - low), 2)

    width = 100 / len(rows)
    bars = [
        ShapeBar(
            row,
            x=round(width * (at + GAP / 2), 3),
            width=round(width * (1 - GAP), 3),
            y=y(row.fitted or 0.0),
            height=round(y(0.0) - y(row.fitted or 0.0), 2),
            middle=round(width * (at + 0.5), 3),
            y_low=y(row.lower),
            y_high=y(row.upper),
            noise_y=y(noise[at]),
            noise_height=round(y(-noise[at]) - y(noise[at]), 2),
            says=_says(row),
        )
        for at, row in enumerate(rows)
    ]
    step = max(1, -(-len(rows) // NAMES))
    shown = [at for at in range(1, len(rows), step) if names[at]]
    beneath = [Tick(round(width * at, 3), names[at], zero=False) for at in shown]
    lines = ticks(low, high, nice_step((high - low) / LINES), y, percent)
    return Shape(bars, lines, beneath, y(0.0))


def _says(row: NumberRow) -> str:
    raw = f"{end(row.lower, row.std_error)} to {end(row.upper, row.std_error)}"
    return f"{row.value}: fitted {precise(row.fitted or 0.0, row.std_error)}, raw {raw}"
