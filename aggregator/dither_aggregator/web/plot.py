"""Plots, drawn as SVG: positions across in percent of the plot's width, so that one fits every screen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.standing import Bin

ROW_HEIGHT = 44
AXIS_HEIGHT = 24
LABEL_CHARACTERS = 30
TICKS = 4
CROWD_HEIGHT, CROWD_TOP = 120, 12


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
    critical_x: float | None = None
    """Where the line is that a value must pass to stand out."""


@dataclass(frozen=True)
class Bar:
    """How many estimates lie in a bin, and how many noise alone would put there."""

    x: float
    width: float
    y: float
    height: float
    expected_y: float
    says: str


@dataclass(frozen=True)
class Histogram:
    """Bars and a curve. Lengths across are percent, lengths down are pixels."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    curve: str
    """The points of the curve, across from 0 to 100."""
    height: int


def draw(
    rows: Sequence[Row], noise_floor: float, critical: float | None = None, ends: tuple[float, float] | None = None
) -> Plot:
    """Lay out the rows in their order. The noise band is where 95 % of the estimates of absent values fall.

    The axis holds every interval, the critical share and, where they are given, its least ends.
    """
    noise = Z * noise_floor
    low: float = min([-noise, *(row.lower for row in rows), *(ends or ())])
    high: float = max([noise, *(row.upper for row in rows), *(ends or ()), critical or 0.0])
    step = _nice_step((high - low) / TICKS)

    def x(share: float) -> float:
        return round(100 * (share - low) / (high - low), 3)

    marks = tuple(
        Mark(row, shorten(row.value), AXIS_HEIGHT + place * ROW_HEIGHT, x(row.estimate), x(row.lower), x(row.upper))
        for place, row in enumerate(rows)
    )
    return Plot(
        marks,
        _ticks(low, high, step, x),
        x(-noise),
        round(x(noise) - x(-noise), 3),
        AXIS_HEIGHT + len(rows) * ROW_HEIGHT,
        None if critical is None else x(critical),
    )


def draw_crowd(bins: Sequence[Bin], scores: bool) -> Histogram:
    """Lay out a histogram, of shares or of numbers of standard errors, beside the curve of pure noise."""
    low, high = bins[0].lower, bins[-1].upper
    tallest = max(max(each.number, each.expected) for each in bins) or 1.0

    def x(place: float) -> float:
        return round(100 * (place - low) / (high - low), 3)

    def y(number: float) -> float:
        return round(CROWD_HEIGHT - number * (CROWD_HEIGHT - CROWD_TOP) / tallest, 2)

    bars = tuple(
        Bar(
            x(each.lower),
            round(x(each.upper) - x(each.lower), 3),
            y(each.number),
            round(CROWD_HEIGHT - y(each.number), 2),
            y(each.expected),
            f"{each.number} of them, where noise alone would put {each.expected:.1f}",
        )
        for each in bins
    )
    points = " ".join(f"{bar.x + bar.width / 2:.3f},{bar.expected_y}" for bar in bars)
    step = _nice_step((high - low) / TICKS)
    return Histogram(bars, _ticks(low, high, step, x, "{:g}".format if scores else None), points, CROWD_HEIGHT)


def _ticks(
    low: float, high: float, step: float, x: Callable[[float], float], label: Callable[[float], str] | None = None
) -> tuple[Tick, ...]:
    """Return a tick at each multiple of a step; labels are percent unless told otherwise."""
    return tuple(
        Tick(x(place * step), label(place * step) if label else percent(place * step, _decimals(step)), place == 0)
        for place in range(ceil(low / step), floor(high / step) + 1)
    )


def percent(share: float, decimals: int) -> str:
    """Return a share as percent, with a real minus sign, no minus zero, and a space that does not break."""
    number = f"{round(100 * share, decimals) + 0.0:.{decimals}f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def precise(share: float, std_error: float) -> str:
    """Return a share as percent with the digits that its standard error leaves it."""
    points = 100 * std_error
    return percent(share, 0 if points >= 5 else 1 if points >= 0.5 else 2 if points >= 0.05 else 3)


def _nice_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)


def _decimals(step: float) -> int:
    """Return the decimals that a percentage needs to show multiples of `step`."""
    return max(0, -floor(log10(step) + 1e-9) - 2)


def shorten(text: str) -> str:
    """Return a label that a phone's width holds."""
    return text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"
