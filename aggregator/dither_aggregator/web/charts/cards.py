"""Small charts of a card: a few rows with their intervals, and the last weeks of one as a line with its band."""

from collections.abc import Sequence
from dataclasses import dataclass

from dither_aggregator.analysis.rows import Row
from dither_aggregator.web.charts.scale import Measure, shorten

WIDTH, HEIGHT = 200, 40
"""Units of a line's picture, which is stretched over the width of its card."""
LABEL_EM = 9.0
WEEKS_LEAST = 2


@dataclass(frozen=True)
class SmallRow:
    """A row beside its label and its number: its interval and its dot, from 0 to WIDTH."""

    label: str
    number: str
    low: int
    at: int
    high: int


@dataclass(frozen=True)
class Weeks:
    """The line of a value over its weeks and the band of its intervals, with the ends of both in words."""

    line: str
    band: str
    says: str


def draw_rows(rows: Sequence[Row], measure: Measure, ends: tuple[float, float] | None) -> list[SmallRow]:
    """Lay out a few rows on an axis that begins at zero, or that has the given ends; it holds all intervals."""
    low, high = ends or (min([0.0, *(row.lower for row in rows)]), max(row.upper for row in rows))
    places = [[_place(each, low, high, WIDTH) for each in (row.lower, row.estimate, row.upper)] for row in rows]
    numbers = [measure.precise(row.estimate, (row.upper - row.lower) / 4) for row in rows]
    labels = [shorten(measure.called(row.value), LABEL_EM) for row in rows]
    return [SmallRow(label, number, *at) for label, number, at in zip(labels, numbers, places, strict=True)]


def draw_weeks(rows: Sequence[Row], measure: Measure) -> Weeks | None:
    """Draw two weeks or more; the picture holds the whole band."""
    if len(rows) < WEEKS_LEAST:
        return None
    low, high = min(row.lower for row in rows), max(row.upper for row in rows)
    across = [round(WIDTH * place / (len(rows) - 1)) for place in range(len(rows))]

    def path(numbers: Sequence[float], places: Sequence[int]) -> str:
        return " ".join(
            f"{x} {HEIGHT - _place(number, low, high, HEIGHT)}" for x, number in zip(places, numbers, strict=True)
        )

    upper = path([row.upper for row in rows], across)
    lower = path([row.lower for row in reversed(rows)], across[::-1])
    first, last = (measure.precise(row.estimate, (row.upper - row.lower) / 4) for row in (rows[0], rows[-1]))
    words = f"{shorten(measure.called(rows[-1].value), LABEL_EM)}, {len(rows)} weeks: first {first}, last {last}"
    return Weeks(path([row.estimate for row in rows], across), f"{upper} {lower}", words)


def _place(number: float, low: float, high: float, length: int) -> int:
    return round(length * min(max((number - low) / ((high - low) or 1.0), 0.0), 1.0))
