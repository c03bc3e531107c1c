"""Small charts of a card: a few rows with their intervals, and the last weeks of one as a line with its band."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from dither_aggregator.analysis.rows import Row
from dither_aggregator.web.charts.scale import Measure, shorten, shorten_apart

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
