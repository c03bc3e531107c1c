"""Estimates with their intervals, a row each."""

from collections.abc import Sequence
from dataclasses import dataclass

from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.web.charts.scale import (
    SHARES,
    TICKS,
    Measure,
    Tick,
    label_width,
    nice_step,
    plain,
    shorten_apart,
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
