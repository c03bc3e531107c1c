"""The shape of numbers: ranges of equal width, so that the axis is the one that the edges make; a bar holds some."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dither_aggregator.analysis.numbers import NumberRow
from dither_aggregator.web.charts.scale import Tick, end, label_width, nice_step, plain, precise, rounded, ticks

SHAPE_HEIGHT, SHAPE_TOP = 180, 12
LINES = 4
"""About so many lines of shares."""
NAMES_MAX = 6
"""So many edges, at most, have their number beneath."""
DIGITS, DIGITS_MAX = 3, 19
"""That count of an edge beneath, more where edges would look alike; the table has all."""
NAME_PERCENT = 4.5
"""How much of a plot one em of a label is: 12 pixels of the 270 that a screen of 320 leaves."""
ToldBelow = tuple[int, int, str]
"""A quantile: the numbers of the edges between which it lies, and its words."""
MARGIN = 10.0
"""The part of the plot, in percent, that is left to the numbers of the lines."""
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
class EdgeName:
    """An edge with its number beneath."""

    x: float
    label: str
    anchor: str
    """"start", "middle" or "end": which part of the number stands at `x`."""


@dataclass(frozen=True)
class QuantileMark:
    """A quantile's place on the axis of the bars, and the words for it."""

    x_low: float
    x_high: float
    says: str

    @property
    def left(self) -> bool:
        """Whether the words stand to the left of it."""
        return self.x_low > 100 - self.x_high


@dataclass(frozen=True)
class Shape:
    """All that the template draws. Lengths across are percent, lengths down are pixels."""

    bars: Sequence[ShapeBar]
    lines: Sequence[Tick]
    """Lines of shares, in percent: `x` is the place down, in pixels."""
    names: Sequence[EdgeName]
    marks: Sequence[QuantileMark] = ()
    height: int = SHAPE_HEIGHT
    margin: float = MARGIN


@dataclass(frozen=True)
class Cumulative:
    """The share of numbers below each edge: the band of its intervals, and a line of fitted shares."""

    line: str
    band: str
    """Points of a picture 100 wide, in percent of the plot."""
    lines: Sequence[Tick]
    names: Sequence[EdgeName]
    height: int = SHAPE_HEIGHT
    margin: float = MARGIN


def draw_cumulative(above: Sequence[NumberRow]) -> Cumulative:
    """Lay out the shares below edges, given those above, on the axis of the bars: edges are as far from each other."""

    def y(share: float) -> float:
        return round(SHAPE_TOP + (SHAPE_HEIGHT - SHAPE_TOP) * (1 - min(max(share, 0.0), 1.0)), 2)

    width = (100 - MARGIN) / (len(above) - 1)
    across = [round(MARGIN + width * at, 3) for at in range(len(above))]

    def path(shares: Sequence[float], places: Sequence[float]) -> str:
        return " ".join(f"{x},{y(1 - share)}" for x, share in zip(places, shares, strict=True))

    upper = path([row.lower for row in above], across)
    lower = path([row.upper for row in reversed(above)], across[::-1])
    line = path([row.estimate if row.fitted is None else row.fitted for row in above], across)
    lines = ticks(0.0, 1.0, 0.25, y, lambda share, places: plain(100 * share, 0))
    return Cumulative(line, f"{upper} {lower}", lines, _names(above, width, range(len(above))))


def draw_shape(rows: Sequence[NumberRow], cuts: Sequence[int] = (), told: Sequence[ToldBelow] = ()) -> Shape:
    """Lay out a bar for each row, as wide as the number of its ranges between `cuts`, and quantiles above all bars.

    The grey behind the bar of a range's share reaches as far as the interval would of a range that nobody is in.
    """
    noise = [(row.upper - row.lower) / 2 if row.statistic == "share" else 0.0 for row in rows]
    low = min(0.0, -max(noise), *(row.lower for row in rows))
    high = max(*noise, *(max(row.upper, row.fitted or 0.0) for row in rows))

    def y(share: float) -> float:
        return round(SHAPE_TOP + (SHAPE_HEIGHT - SHAPE_TOP) * (high - share) / (high - low), 2)

    cuts = cuts or range(len(rows) + 1)
    width = (100 - MARGIN) / cuts[-1]
    bars = [
        ShapeBar(
            row,
            x=round(MARGIN + width * (cuts[at] + GAP / 2), 3),
            width=round(width * (cuts[at + 1] - cuts[at] - GAP), 3),
            y=y(row.fitted or 0.0),
            height=round(y(0.0) - y(row.fitted or 0.0), 2),
            middle=round(MARGIN + width * (cuts[at] + cuts[at + 1]) / 2, 3),
            y_low=y(row.lower),
            y_high=y(row.upper),
            noise_y=y(noise[at]),
            noise_height=round(y(-noise[at]) - y(noise[at]), 2),
            says=_says(row),
        )
        for at, row in enumerate(rows)
    ]
    lines = ticks(low, high, nice_step((high - low) / LINES), y, lambda share, places: plain(100 * share, places))
    marks = [
        QuantileMark(round(MARGIN + width * low, 3), round(MARGIN + width * high, 3), words)
        for low, high, words in told
    ]
    return Shape(bars, lines, _names(rows, width, cuts), marks)


def _names(rows: Sequence[NumberRow], width: float, cuts: Sequence[int]) -> Sequence[EdgeName]:
    """Return the numbers beneath some edges, evenly spread from the first to the last, as many as overlap nowhere."""
    edges = [(cuts[at], row.low) for at, row in enumerate(rows) if row.low is not None]
    if rows[-1].high is not None:
        edges.append((cuts[-1], rows[-1].high))
    digits = next(digits for digits in range(DIGITS, DIGITS_MAX) if _differ(edges, digits))
    labels = [(MARGIN + width * at, rounded(edge, digits)) for at, edge in edges]
    last = len(labels) - 1
    for parts in range(min(NAMES_MAX, len(labels)) - 1, 0, -1):
        names = [_name(*labels[round(part * last / parts)]) for part in range(parts + 1)]
        ends = [_ends(name) for name in names]
        if all(one[1] <= other[0] for one, other in pairwise(ends)):
            return names
    return [_name(*labels[0])]


def _differ(edges: Sequence[tuple[int, float]], digits: int) -> bool:
    return digits == DIGITS_MAX - 1 or len({rounded(edge, digits) for _, edge in edges}) == len(edges)


def _name(x: float, label: str) -> EdgeName:
    half = NAME_PERCENT * label_width(label) / 2
    return EdgeName(round(x, 3), label, "start" if x < half else "end" if x > 100 - half else "middle")


def _ends(name: EdgeName) -> tuple[float, float]:
    """Return from where to where a number reaches on a small screen, with some room behind it."""
    width = NAME_PERCENT * label_width(name.label)
    left = name.x - {"start": 0.0, "middle": width / 2, "end": width}[name.anchor]
    return left, left + width + NAME_PERCENT / 2


def _says(row: NumberRow) -> str:
    raw = f"{end(row.lower, row.std_error)} to {end(row.upper, row.std_error)}"
    return f"{row.value}: fitted {precise(row.fitted or 0.0, row.std_error)}, raw {raw}"
