"""Series: a panel a value, all on one axis of days, with the number of reports beneath."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import product

from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.series import Point
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.web.charts.scale import SHARES, Measure, Tick, label_width, nice_step, shorten, shorten_apart

PANEL_HEIGHT, PANEL_TOP, PANEL_BOTTOM = 128, 26, 8
FREE_Y = PANEL_TOP + 4
"""Lines above this would cross a panel's name."""
REPORTS_HEIGHT, REPORTS_TOP = 84, 30
DATES = 4
TICKS = 3
DOTS_MAX = 92
"""On longer windows the dots of single days would touch: only lines and bands are drawn."""
MARK_LINES, MARK_TOP, MARK_HEIGHT = 3, 30, 15
"""How many lines of labels marks have at most; pixels down to the first of them, and to each further one."""
MARK_FOOT = 4
"""Pixels between the last of them and the highest bar."""
MARK_EM = 9.0
"""How wide such a label is at most: on a phone less than half of a plot."""
MARK_PERCENT = 4.5
"""How much of a plot one em of a label is: 12 pixels of the 270 that a screen of 320 leaves."""
MARGIN_PERCENT_MAX = 40.0
"""How much of a plot is left to the numbers of its lines, at most."""


@dataclass(frozen=True)
class Dot:
    """One day's estimate, with its interval where no band shows it."""

    x: float
    y: float
    y_low: float
    y_high: float
    point: Point
    alone: bool
    """Whether neither the day before nor the day after is in its run: then its interval is a line of its own."""


@dataclass(frozen=True)
class Run:
    """Days that follow each other under one plan: points of a line and of a band, across from 0 to 100."""

    line: str
    band: str


@dataclass(frozen=True)
class Panel:
    """One value's days."""

    value: str
    label: str
    runs: Sequence[Run]
    dots: Sequence[Dot]
    ticks: Sequence[Tick]
    """Ticks of the shares, or numbers: `x` is the place down, in pixels."""


@dataclass(frozen=True)
class DayBar:
    """How many reports a day has."""

    x: float
    width: float
    y: float
    height: float
    says: str
    provisional: bool


@dataclass(frozen=True)
class MarkLabel:
    """The text of a mark."""

    x: float
    y: int
    ends: bool
    """Whether the text ends at `x`; else it begins there."""
    text: str


@dataclass(frozen=True)
class SeriesChart:
    """All that the template draws. Lengths across are percent, lengths down are pixels."""

    panels: Sequence[Panel]
    bars: Sequence[DayBar]
    most: int
    dates: Sequence[Tick]
    marks: Sequence[float]
    """Places across of days on which a plan begins, or that the operator marked."""
    labels: Sequence[MarkLabel]
    """The labels of the marks, without those that would overlap."""
    margin: float
    """The part of the plot on the left that is left to the numbers of the lines."""
    reports_height: int
    panel_height: int = PANEL_HEIGHT
    panel_top: int = PANEL_TOP
    bars_top: int = REPORTS_TOP
    """The place down at which bars may begin, beneath all labels of marks."""


def draw_series(
    points: Sequence[Point],
    window: Window,
    marks: Sequence[DayMark] = (),
    measure: Measure = SHARES,
    joined_days: int = 1,
) -> SeriesChart:
    """Lay out a panel for each value, in the order of the points, with marks of days in the window.

    Lines join points of one plan that are at most so many days apart.
    """
    values = list(dict.fromkeys(point.value for point in points))
    of_values = [[point for point in points if point.value == value] for value in values]
    wide = max(
        label_width(tick.label)
        for each in of_values
        for tick in _panel(each, Across(window), measure, joined_days).ticks
    )
    margin = round(min(MARK_PERCENT * wide + 2, MARGIN_PERCENT_MAX), 3)
    across = Across(window, margin)
    names = shorten_apart([measure.called(value) for value in values])
    panels = [
        replace(_panel(each, across, measure, joined_days), label=name)
        for each, name in zip(of_values, names, strict=True)
    ]
    reports = {(point.epoch, point.plan): point for point in points}
    most = max(point.n for point in points)
    step = max(1, -(-window.days // DATES))
    days = [window.first + timedelta(days=place) for place in range(0, window.days, step)]
    dates = [Tick(across.x(day), f"{day:%m-%d}", zero=False) for day in days]
    begun = [DayMark(new.epoch, f"rev {new.rev}") for new in begins(points)]
    labels = _labels([*begun, *reversed(marks)], across)
    marked = sorted({across.x(mark.day) for mark in (*begun, *marks)})
    foot = REPORTS_HEIGHT + max((label.y + MARK_FOOT - REPORTS_TOP for label in labels), default=0)
    bars = [_bar(point, most, across, foot) for point in reports.values()]
    top = foot - REPORTS_HEIGHT + REPORTS_TOP
    return SeriesChart(panels, bars, most, dates, marked, labels, margin, foot, bars_top=top)


@dataclass(frozen=True)
class Across:
    """An axis of days, right of the margin."""

    window: Window
    margin: float = 0.0

    def x(self, day: date) -> float:
        """Return the middle of a day, in percent."""
        return round(self.margin + self.of_days((day - self.window.first).days + 0.5), 3)

    def of_days(self, days: float) -> float:
        """Return how much of a plot some days are."""
        return (100 - self.margin) * days / self.window.days


def _panel(points: Sequence[Point], across: Across, measure: Measure, joined_days: int) -> Panel:
    # A cut interval may end before its estimate.
    ends = [end for point in points for end in (point.lower, point.estimate, point.upper)]
    low, high = min(ends if measure.unit else [0.0, *ends]), max(ends)
    high = high if high > low else low + 1.0

    def y(share: float) -> float:
        return round(PANEL_TOP + (PANEL_HEIGHT - PANEL_TOP - PANEL_BOTTOM) * (high - share) / (high - low), 2)

    for part in (1, 2, 4):  # one tick alone tells nothing of numbers that are far from zero
        lines = [
            tick for tick in measure.ticks(low, high, nice_step((high - low) / TICKS / part), y) if tick.x > FREE_Y
        ]
        if len(lines) > 1 or not measure.unit:
            break
    runs = list(_runs(points, joined_days))
    crowded = across.window.days > DOTS_MAX * joined_days
    dots = [
        Dot(across.x(point.epoch), y(point.estimate), y(point.lower), y(point.upper), point, len(run) == 1)
        for run in runs
        for point in run
        if len(run) == 1 or not crowded
    ]
    drawn = [
        Run(
            " ".join(f"{across.x(point.epoch)},{y(point.estimate)}" for point in run),
            " ".join(
                f"{across.x(point.epoch)},{y(end)}"
                for point, end in [(p, p.upper) for p in run] + [(p, p.lower) for p in reversed(run)]
            ),
        )
        for run in runs
        if len(run) > 1
    ]
    return Panel(
        points[0].value,
        measure.called(points[0].value),
        drawn,
        dots,
        lines,
    )


def _runs(points: Sequence[Point], joined_days: int) -> Iterator[list[Point]]:
    """Yield the points that join: of one plan, of days that follow each other, none of them provisional."""
    run: list[Point] = []
    for point in sorted(points, key=lambda each: (each.plan, each.epoch)):
        joins = run and point.plan == run[-1].plan and (point.epoch - run[-1].epoch).days <= joined_days
        if not joins or point.provisional:
            if run:
                yield run
            run = []
        run.append(point)
    if run:
        yield run


def _bar(point: Point, most: int, across: Across, foot: int) -> DayBar:
    width = across.of_days(1)
    height = (REPORTS_HEIGHT - REPORTS_TOP) * point.n / most
    return DayBar(
        round(across.x(point.epoch) - 0.4 * width, 3),
        round(0.8 * width, 3),
        round(foot - height, 2),
        round(height, 2),
        f"{point.epoch}: {point.n:,} reports{' so far' if point.provisional else ''}",
        point.provisional,
    )


def begins(points: Sequence[Point]) -> list[Point]:
    """Return the first point of each plan that follows another one, by day."""
    first: dict[str, Point] = {}
    for point in sorted(points, key=lambda each: each.epoch):
        first.setdefault(point.plan, point)
    return list(first.values())[1:]


def _labels(marks: Sequence[DayMark], across: Across) -> list[MarkLabel]:
    """Return the labels of the marks that find room, those that come first before others."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MARK_LINES)]
    labels = []
    for mark in marks:
        x, text = across.x(mark.day), shorten(mark.text, MARK_EM)
        width = MARK_PERCENT * (label_width(text) + 1)
        for (line, others), ends in product(enumerate(taken), (x > 50, x <= 50)):
            low, high = (x - width, x) if ends else (x, x + width)
            if low >= 0 and high <= 100 and all(high <= left or right <= low for left, right in others):
                others.append((low, high))
                labels.append(MarkLabel(x, MARK_TOP + MARK_HEIGHT * line, ends, text))
                break
    return labels
