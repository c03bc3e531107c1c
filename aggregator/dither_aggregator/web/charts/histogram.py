"""A histogram of estimates that are not told apart, beside the curve of pure noise."""

from collections.abc import Sequence
from dataclasses import dataclass

from dither_aggregator.analysis.significance import Bin
from dither_aggregator.web.charts.scale import TICKS, Tick, nice_step, percent, precise, ticks

HISTOGRAM_HEIGHT, HISTOGRAM_TOP = 120, 12


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


def draw_histogram(bins: Sequence[Bin], scores: bool) -> Histogram:
    """Lay out a histogram, of shares or of numbers of standard errors, beside the curve of pure noise."""
    low, high = bins[0].lower, bins[-1].upper
    tallest = max(max(each.number, each.expected) for each in bins) or 1.0

    def x(place: float) -> float:
        return round(100 * (place - low) / (high - low), 3)

    def y(number: float) -> float:
        return round(HISTOGRAM_HEIGHT - number * (HISTOGRAM_HEIGHT - HISTOGRAM_TOP) / tallest, 2)

    bars = tuple(
        Bar(
            x(each.lower),
            round(x(each.upper) - x(each.lower), 3),
            y(each.number),
            round(HISTOGRAM_HEIGHT - y(each.number), 2),
            y(each.expected),
            f"{_ends(each, scores)}: {each.number} of them, where noise alone would put {each.expected:.1f}",
        )
        for each in bins
    )
    points = " ".join(f"{bar.x + bar.width / 2:.3f},{bar.expected_y}" for bar in bars)
    step = nice_step((high - low) / TICKS)
    return Histogram(bars, ticks(low, high, step, x, _plain if scores else percent), points, HISTOGRAM_HEIGHT)


def _plain(number: float, decimals: int) -> str:
    return f"{number:g}".replace("-", "\N{MINUS SIGN}")


def _ends(each: Bin, scores: bool) -> str:
    """Return from where to where a bin reaches."""
    width = each.upper - each.lower
    low, high = ((f"{end:.1f}" if scores else precise(end, width)) for end in (each.lower, each.upper))
    return f"{low} to {high}".replace("-", "\N{MINUS SIGN}")
