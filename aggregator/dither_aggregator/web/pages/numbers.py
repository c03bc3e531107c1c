"""The part of a metric's page that shows numbers: mean and quantiles as sentences, then the shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dither_aggregator.analysis.numbers import MEAN, MEDIAN, QUANTILES, NumberRow, NumbersReading
from dither_aggregator.analysis.reading import Reading
from dither_aggregator.web.charts.scale import Measure, measure_of, precise
from dither_aggregator.web.charts.shape import Shape, draw_shape
from dither_shared.domains import Numbers

SHAPES = ("share", "share_above")
"""What is drawn: the share of each range or, where these cannot be told, the share above each."""


@dataclass(frozen=True)
class NumbersPart:
    """What the template shows of numbers."""

    headline: str
    sentences: Sequence[str]
    rows: Sequence[NumberRow]
    """Mean and quantiles."""
    words: Sequence[str]
    """What each of them is, in words."""
    measure: Measure
    drawn: str = ""
    """The statistic of the shape."""
    shape: Shape | None = None
    shares: Sequence[NumberRow] = ()
    """All shares: of ranges, and above edges."""
    template: str = "numbers.html"


def numbers_part(reading: Reading) -> NumbersPart:
    """Return what a page shows of a reading of numbers that has rows."""
    assert isinstance(reading, NumbersReading)
    measure = measure_of(reading.stored.plan)
    rows = reading.distinct
    drawn = next((statistic for statistic in SHAPES if reading.of(statistic)), "")
    shapes = reading.of(drawn)
    return NumbersPart(
        _headline(rows, measure, provisional=reading.provisional),
        _sentences(reading, measure),
        rows,
        [_called(row.value) for row in rows],
        measure,
        drawn,
        draw_shape(shapes, [_left(row, measure) for row in shapes]) if shapes else None,
        [row for row in reading.rows if row.statistic in SHAPES],
    )


def _headline(rows: Sequence[NumberRow], measure: Measure, *, provisional: bool) -> str:
    told = {row.value: row for row in rows}
    said = "More reports may come. " if provisional else ""
    if MEDIAN in told:
        said += f"The median lies {_from_to(told[MEDIAN], measure)}"
        return f"{said}, the mean {_from_to(told[MEAN], measure)}."
    return f"{said}The mean lies {_from_to(told[MEAN], measure)}."


def _from_to(row: NumberRow, measure: Measure) -> str:
    return f"between {measure.end(row.lower, row.std_error)} and {measure.end(row.upper, row.std_error)}"


def _sentences(reading: NumbersReading, measure: Measure) -> list[str]:
    """Return what is to be known of the rows: what ranges leave open, what is cut, what is no number or not told."""
    said = []
    mean = next(row for row in reading.rows if row.value == MEAN)
    domain = cast("Numbers", reading.stored.plan.domain)
    ends = [measure.edge(edge / 10**domain.decimals) for edge in (domain.edges[0], domain.edges[-1])]
    cut = f"The mean is of numbers cut to {ends[0]} at least and {ends[1]} at most"
    if mean.low is not None and mean.high is not None:
        low, high = (measure.precise(end, mean.std_error) for end in (mean.low, mean.high))
        cut += f"; how numbers lie within ranges leaves {low} to {high} open, noise the rest of its interval"
    said.append(f"{cut}.")
    outer = [row for row in reading.of("share") if row.low is None or row.high is None]
    if outer:
        shares = " and ".join(f"{precise(row.estimate, row.std_error)} are {row.value}" for row in outer)
        said.append(f"{shares}: the mean counts these as {ends[0]} and {ends[1]}.")
    for row in reading.of("share_of_reports"):
        share = precise(row.estimate, row.std_error)
        said.append(f"{share} of the reports are of a number: all else on this page is of these alone.")
    if reading.untold:
        names = ", ".join(_called(name) for name in reading.untold)
        said.append(f"Not told, because each may lie anywhere in more than a third of the axis: {names}.")
    if reading.stored.plan.cells.memoized:
        said.append("Each device says one bit: peaks of a single value cannot be told. Ask for such a value by a flag.")
    return said


def _called(name: str) -> str:
    """Return a statistic in words."""
    if name in (MEAN, MEDIAN):
        return name
    return f"{QUANTILES[name] * 100:.0f}\N{NO-BREAK SPACE}% are below"


def _left(row: NumberRow, measure: Measure) -> str:
    return "" if row.low is None else measure.edge(row.low)
