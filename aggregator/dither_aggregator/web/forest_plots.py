"""Forest plots: estimates with their intervals, a row each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.rows import Bin, Row
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.web.charts import (
    SHARES,
    TICKS,
    Measure,
    Tick,
    label_width,
    nice_step,
    percent,
    plain,
    precise,
    shorten,
    shorten_apart,
    ticks,
)

ROW_HEIGHT = 44
AXIS_HEIGHT = 24
PHONE_EM = 22.0
"""How wide a plot is on a phone, in em of its axis."""


@dataclass(frozen=True)
class Mark:
    """One value's dot and interval, of a share the part of it that is not below zero."""

    row: Row
    label: str
    y: int
    x: float
    x_low: float
    x_high: float
    told: bool = True
    """Whether it has a dot: an estimated share below zero is drawn by its interval alone."""
    quiet: bool = False
    """Whether it is of what no list has."""


@dataclass(frozen=True)
class Plot:
    """All that the template draws. Lengths across are percent, lengths down are pixels.

    A row's label stands above its own strip of the plot: nothing that is drawn goes through a label.
    """

    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    noise_x: float
    noise_width: float
    height: int
    critical_x: float | None = None
    """The place of the line that a value must pass to stand out."""


def draw(
    rows: Sequence[Row],
    noise_floor: float,
    critical: float | None = None,
    ends: tuple[float, float] | None = None,
    signed: bool = False,
    measure: Measure = SHARES,
) -> Plot:
    """Lay out the rows in their order. The noise band is where 95 % of the estimates of absent values fall.

    The axis holds every interval, the critical share and, where they are given, its least ends; of shares and of
    differences zero, too. An axis of shares begins at zero. Numbers have the measure's unit, and a `signed` plot shows
    differences of them.
    """
    noise, from_zero = Z * noise_floor, not (signed or measure.unit)
    at_least = [-noise, noise, critical or 0.0] if not measure.unit or signed else []
    low, high = reach(rows, (*at_least, *(ends or ())))
    low = 0.0 if from_zero else low
    high = high if high > low else low + 1.0
    step = _step(low, high, measure)

    def x(share: float) -> float:
        return round(100 * (max(share, low) - low) / (high - low), 3)

    labels = shorten_apart([measure.called(row.value) for row in rows])
    marks = tuple(
        Mark(
            row,
            labels[place],
            AXIS_HEIGHT + place * ROW_HEIGHT,
            x(row.estimate),
            x(row.lower),
            x(row.upper),
            told=not from_zero or row.estimate >= 0,
            quiet=row.value in UNLISTED,
        )
        for place, row in enumerate(rows)
    )
    return Plot(
        marks,
        measure.ticks(low, high, step, x, signed=signed),
        x(-noise),
        round(x(noise) - x(-noise), 3),
        AXIS_HEIGHT + len(rows) * ROW_HEIGHT,
        None if critical is None else x(critical),
    )


def reach(rows: Sequence[Row], at_least: Sequence[float] = ()) -> tuple[float, float]:
    """Return the ends of an axis that holds all rows and some other places."""
    # A cut interval may end before its estimate.
    places = [*at_least, *(place for row in rows for place in (row.lower, row.estimate, row.upper))]
    return min(places), max(places)


def _step(low: float, high: float, measure: Measure) -> float:
    """Return the distance of ticks. Numbers in a unit may be long: as far as their labels stay apart on a phone."""
    step = nice_step((high - low) / TICKS)
    widest = max(label_width(plain(end, 0)) for end in (low, high))
    while measure.unit and step < high - low and (high - low) / step * widest * 1.5 > PHONE_EM:
        step = nice_step(1.01 * step)
    return step


# A histogram of estimates that are not told apart, beside the curve of pure noise.


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


# Small charts of a card: a few rows with their intervals, and the last weeks of one as a line with its band.


WIDTH, HEIGHT = 200, 40
"""Units of a line's picture, which is stretched over the width of its card."""
LABEL_EM = 11.5
WEEKS_LEAST = 2


@dataclass(frozen=True)
class SmallRow:
    """A row beside its label and its number: its interval and its dot, from 0 to WIDTH."""

    label: str
    number: str
    low: int
    at: int | None
    """None where the interval is all that is told."""
    high: int


@dataclass(frozen=True)
class Weeks:
    """The line of a value over its weeks and the band of its intervals, with the ends of both in words."""

    line: str
    """"" where the band is all that is told."""
    band: str
    says: str
    first: date
    last: date

    def places(self, days: Iterable[date]) -> list[int]:
        """Return where days lie on the line, those that do."""
        return sorted({_across(day, self.first, self.last) for day in days if self.first <= day <= self.last})


def draw_rows(rows: Sequence[Row], measure: Measure, ends: tuple[float, float] | None) -> list[SmallRow]:
    """Lay out a few rows on an axis that begins at zero, or that has the given ends; it holds all intervals."""
    low, high = ends or (min([0.0, *(row.lower for row in rows)]), max(row.upper for row in rows))
    labels = shorten_apart([measure.called(row.value) for row in rows], LABEL_EM)
    return [
        SmallRow(
            label,
            _figure(row, measure),
            _place(row.lower, low, high, WIDTH),
            None if row.is_range else _place(row.estimate, low, high, WIDTH),
            _place(row.upper, low, high, WIDTH),
        )
        for row, label in zip(rows, labels, strict=True)
    ]


def _figure(row: Row, measure: Measure) -> str:
    """Return the estimate, as sentences have it, or both ends where these are all that is told."""
    if row.is_range:
        return measure.ends(row.lower, row.upper)
    return measure.rounded(row.estimate, row.lower, row.upper)


def draw_weeks(weeks: Sequence[tuple[date, Row]], measure: Measure) -> Weeks | None:
    """Draw two weeks or more, each at its end; the picture holds the whole band."""
    if len(weeks) < WEEKS_LEAST:
        return None
    (ends, rows), (begin, end) = zip(*weeks, strict=True), (weeks[0][0], weeks[-1][0])
    low, high = min(row.lower for row in rows), max(row.upper for row in rows)
    across = [_across(day, begin, end) for day in ends]

    def path(numbers: Sequence[float], places: Sequence[int]) -> str:
        return " ".join(
            f"{x} {HEIGHT - _place(number, low, high, HEIGHT)}" for x, number in zip(places, numbers, strict=True)
        )

    upper = path([row.upper for row in rows], across)
    lower = path([row.lower for row in reversed(rows)], across[::-1])
    first, last = (_figure(row, measure) for row in (rows[0], rows[-1]))
    words = f"{shorten(measure.called(rows[-1].value), LABEL_EM)}, {len(rows)} weeks: first {first}, last {last}"
    line = "" if rows[-1].is_range else path([row.estimate for row in rows], across)
    return Weeks(line, f"{upper} {lower}", words, begin, end)


def _across(day: date, first: date, last: date) -> int:
    return round(WIDTH * (day - first).days / (last - first).days)


def _place(number: float, low: float, high: float, length: int) -> int:
    return round(length * min(max((number - low) / ((high - low) or 1.0), 0.0), 1.0))
