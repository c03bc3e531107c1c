"""The ranked dot-and-interval plot: positions in percent of the plot's width, so that one SVG fits every screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.reading import Row

ROW_HEIGHT = 44
AXIS_HEIGHT = 24
LABEL_CHARACTERS = 30
TICKS = 4


@dataclass(frozen=True)
class Mark:
    """One value's dot and interval."""

    row: Row
    label: str
    y: int
    x: float
    x_low: float
    x_high: float


@dataclass(frozen=True)
class Tick:
    """A labelled line of the axis."""

    x: float
    label: str
    zero: bool


@dataclass(frozen=True)
class Plot:
    """All that the template draws. Lengths across are percent, lengths down are pixels."""

    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    noise_x: float
    noise_width: float
    height: int


def draw(rows: Sequence[Row], noise_floor: float) -> Plot:
    """Lay out the rows in their order. The noise band is where 95 % of the estimates of absent values fall."""
    noise = Z * noise_floor
    low = min([-noise, *(row.lower for row in rows)])
    high = max([noise, *(row.upper for row in rows)])
    step = _nice_step((high - low) / TICKS)

    def x(share: float) -> float:
        return round(100 * (share - low) / (high - low), 3)

    marks = tuple(
        Mark(row, _shorten(row.value), AXIS_HEIGHT + place * ROW_HEIGHT, x(row.estimate), x(row.lower), x(row.upper))
        for place, row in enumerate(rows)
    )
    ticks = tuple(
        Tick(x(place * step), percent(place * step, _decimals(step)), place == 0)
        for place in range(ceil(low / step), floor(high / step) + 1)
    )
    return Plot(marks, ticks, x(-noise), round(x(noise) - x(-noise), 3), AXIS_HEIGHT + len(rows) * ROW_HEIGHT)


def percent(share: float, decimals: int) -> str:
    """Return a share as percent, with a real minus sign, no minus zero, and a space that does not break."""
    number = f"{round(100 * share, decimals) + 0.0:.{decimals}f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def _nice_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)


def _decimals(step: float) -> int:
    """Return the decimals that a percentage needs to show multiples of `step`."""
    return max(0, -floor(log10(step) + 1e-9) - 2)


def _shorten(text: str) -> str:
    return text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"
