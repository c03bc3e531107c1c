"""Charts, drawn as SVG: ticks and labels of every axis, and a panel a value on one axis of days.

Positions across are percent of the chart's width, so that one fits every screen.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import product
from math import ceil, floor, log10

from dither_aggregator.analysis.estimands import Point
from dither_aggregator.analysis.numbers import MEDIAN, QUANTILES
from dither_aggregator.analysis.reading import Window
from dither_shared.safe_output import visible

LABEL_EM = 14.0
"""How wide a label is at most, in em of its font."""
PLACE_EM = 2.0
"""How wide a place in a list is, before a label."""
TOGETHER = " & "
"""Stands between values of two columns."""
LINE_EM = 18.5
"""How wide a phone's plot is, in em of its labels."""
END_DIGITS_MAX = 4
TICKS = 4
DECIMALS_MAX = 9
STEPS_LEAST = 4
"""An interval in a sentence is at least so many steps of its last digit wide."""
ROUNDING = 1e-6
"""Parts of a step that floats may be off by."""
UNITLESS = "1"
SYMBOL_MAX = 3
"""Shorter units than words that can be counted, such as ms: they have no plural."""
DIGITS_LEAST = 2
"""A number in a unit has at least so many digits that count: rounded by its error alone it might be shown as zero."""


@dataclass(frozen=True)
class Tick:
    """A labelled line of the axis."""

    x: float
    label: str
    zero: bool


def ticks(
    low: float, high: float, step: float, x: Callable[[float], float], label: Callable[[float, int], str]
) -> tuple[Tick, ...]:
    """Return a tick at each multiple of a step; `label` makes the text of a number with so many decimals."""
    return tuple(
        Tick(x(place * step), label(place * step, _decimals(step)), place == 0)
        for place in range(ceil(low / step), floor(high / step) + 1)
    )


def percent(share: float, decimals: int) -> str:
    """Return a share as percent, with a real minus sign, no minus zero, and a space that does not break."""
    number = f"{round(100 * share, decimals) + 0.0:.{decimals}f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def rough(share: float) -> str:
    """Return a share above 0 that has no error of its own as percent, with two digits that count."""
    return percent(share, _rough_decimals(share))


def rough_in_points(share: float) -> str:
    """Return a difference above 0 that has no error of its own in percentage points, with two digits that count."""
    return f"{100 * share:.{_rough_decimals(share)}f}"


def _rough_decimals(share: float) -> int:
    return max(0, 1 - floor(log10(100 * share) + 1e-9))


def in_points(share: float, decimals: int) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    number = round(100 * share, decimals) + 0.0
    return f"{number:+.{decimals}f}".replace("-", "\N{MINUS SIGN}") if number else "0"


def precise(share: float, std_error: float) -> str:
    """Return a share as percent with the digits that its standard error leaves it."""
    return percent(share, _digits(std_error))


def points(share: float, std_error: float) -> str:
    """Return a difference of shares in percentage points, with its sign and the digits that its error leaves it."""
    return in_points(share, _digits(std_error))


def end(share: float, std_error: float) -> str:
    """Return an interval's end as percent: one that is not zero is not shown as zero, which it would seem to hold."""
    return percent(share, _digits_of_end(share, std_error))


def end_in_points(share: float, std_error: float) -> str:
    """Return the same of a difference, in percentage points."""
    return in_points(share, _digits_of_end(share, std_error))


def _digits_of_end(share: float, std_error: float) -> int:
    digits = _digits(std_error)
    while digits < END_DIGITS_MAX and share and round(100 * share, digits) == 0:
        digits += 1
    return digits


def _digits(std_error: float) -> int:
    points_ = 100 * std_error
    return 0 if points_ >= 5 else 1 if points_ >= 0.5 else 2 if points_ >= 0.05 else 3


@dataclass(frozen=True)
class Measure:
    """How numbers of a metric are written: shares as percent, or numbers in the metric's unit."""

    unit: str = ""
    """"" of shares. On an axis it is left out: the words above a chart say it."""

    def called(self, value: str) -> str:
        """Return what a row is of: a quantile in words, any other value as it is."""
        if not self.unit or value == MEDIAN or value not in QUANTILES:
            return value
        return f"{100 * QUANTILES[value]:.0f}\N{NO-BREAK SPACE}% are below"

    def level(self, value: str) -> str:
        """Return a quantile as a thing that rises and falls; "" for any other row, whose name does."""
        called = self.called(value)
        return f"the {called.removesuffix(' are below')} quantile" if called != value else ""

    def precise(self, number: float, std_error: float) -> str:
        """Return a number with the digits that its standard error leaves it."""
        return self._in_unit(number, std_error, least=DIGITS_LEAST) if self.unit else precise(number, std_error)

    def end(self, number: float, std_error: float) -> str:
        """Return an interval's end."""
        return self._in_unit(number, std_error, least=DIGITS_LEAST) if self.unit else end(number, std_error)

    def points(self, number: float, std_error: float) -> str:
        """Return a difference, with its sign."""
        return self._in_unit(number, std_error, "+") if self.unit else points(number, std_error)

    def end_in_points(self, number: float, std_error: float) -> str:
        """Return the end of a difference's interval, with its sign."""
        if not self.unit:
            return end_in_points(number, std_error)
        return self._in_unit(number, std_error, "+", least=DIGITS_LEAST)

    def rounded(self, estimate: float, lower: float, upper: float, finer: int = 0) -> str:
        """Return an estimate with the digits that its interval leaves it, and `finer` more."""
        decimals = _steps(*self._ends_of(lower, upper)) + finer
        return in_unit(estimate, decimals, self.unit) if self.unit else percent(estimate, decimals)

    def about(self, estimate: float, lower: float, upper: float, finer: int = 0) -> str:
        """Return an estimate and its interval, as 22 % (20 to 24): ends are rounded outward, so what holds still does.

        Shares end at none and at all. `finer` is how many more decimals to write.
        """
        ends = self._ends_of(lower, upper)
        return f"{self.rounded(estimate, lower, upper, finer)} ({_outward(*ends, _steps(*ends) + finer)})"

    def finer(self, one: tuple[float, float], other: tuple[float, float]) -> int:
        """Return how many more decimals it takes that two intervals which do not meet are not shown to meet."""
        ends = [self._ends_of(*each) for each in (one, other)]
        for finer in range(DECIMALS_MAX):
            (low, high), (least, most) = (_rounded_outward(*each, _steps(*each) + finer) for each in ends)
            if high < least or most < low:
                return finer
        return 0

    def _ends_of(self, lower: float, upper: float) -> tuple[float, float]:
        """Return an interval as it is written: in the unit, or in percent from none to all."""
        if self.unit:
            return lower, upper
        return 100 * min(max(lower, 0.0), 1.0), 100 * min(max(upper, 0.0), 1.0)

    def ends(self, lower: float, upper: float, word: str = "to", finer: int = 0) -> str:
        """Return the ends of a difference, as 4 to 6 points, or of an interval in the unit; rounded outward.

        `word` stands between them, and `finer` is how many more decimals to write.
        """
        lower, upper = (each * (1 if self.unit else 100) for each in (lower, upper))
        decimals = min(_steps(lower, upper) + finer, max(map(_decimals_of, (lower, upper))))
        words = _outward(lower, upper, decimals, word)
        return words if self.unit == UNITLESS else f"{words}\N{NO-BREAK SPACE}{visible(self.unit or 'points')}"

    def sizes(self, least: float, most: float, std_error: float) -> str:
        """Return how large a difference is, as 4 and 6 points: at least and at most, with a table's digits."""
        if self.unit:
            return f"{Measure(UNITLESS).end(least, std_error)} and {self.end(most, std_error)}"
        ends = (end_in_points(each, std_error).removeprefix("+") for each in (least, most))
        return f"{' and '.join(ends)}\N{NO-BREAK SPACE}points"

    @property
    def within(self) -> str:
        """The unit, in words that go behind a noun; "" where there is none."""
        return f", in {visible(self.unit)}" if self.unit not in ("", UNITLESS) else ""

    def edge(self, number: float) -> str:
        """Return an edge, which has no error, with all its digits."""
        return in_unit(number, DECIMALS_MAX, self.unit)

    def _in_unit(self, number: float, std_error: float, sign: str = "", least: int = 0) -> str:
        """Return a number with two digits of its error, and at least so many digits that count of its own."""
        decimals = 1 - floor(log10(std_error)) if std_error > 0 else DECIMALS_MAX
        own = least - 1 - floor(log10(abs(number))) if number and least else decimals
        return in_unit(number, max(decimals, own), self.unit, sign)

    def ticks(
        self, low: float, high: float, step: float, x: Callable[[float], float], *, signed: bool = False
    ) -> tuple[Tick, ...]:
        """Return a tick at each multiple of a step."""
        if not self.unit:
            return ticks(low, high, step, x, in_points if signed else percent)
        decimals = -floor(log10(step) + 1e-9)
        sign = "+" if signed else ""
        return ticks(low, high, step, x, lambda number, _: plain(number, decimals, sign))


def _steps(lower: float, upper: float) -> int:
    """Return the decimals of an interval in a sentence: an end above zero is not shown as zero."""
    decimals = max(0, -floor(log10(max(upper - lower, 10.0**-DECIMALS_MAX) / STEPS_LEAST)))
    while 0 < lower < 10.0**-decimals and decimals < END_DIGITS_MAX:
        decimals += 1
    return decimals


def _outward(lower: float, upper: float, decimals: int, word: str = "to") -> str:
    low, high = _rounded_outward(lower, upper, decimals)
    return f"{low + 0.0:,.{decimals}f} {word} {high + 0.0:,.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def _rounded_outward(lower: float, upper: float, decimals: int) -> tuple[float, float]:
    scale = 10.0**decimals
    return floor(lower * scale + ROUNDING) / scale, ceil(upper * scale - ROUNDING) / scale


SHARES = Measure()


def in_unit(number: float, decimals: int, unit: str, sign: str = "") -> str:
    """Return a number in a unit, with a space that does not break: 1 hour, 2 hours, and a bare number without one."""
    shown = plain(number, decimals, sign)
    if unit == UNITLESS:
        return shown
    return f"{shown}\N{NO-BREAK SPACE}{visible(_singular(unit) if abs(number) == 1 else unit)}"


def _singular(unit: str) -> str:
    """Return the word for one of a unit that is a plural word; any other as it is."""
    if len(unit) <= SYMBOL_MAX or not unit.isalpha() or not unit.endswith("s") or unit.endswith(("ss", "us", "is")):
        return unit
    if unit.endswith("ies") and unit != "series":
        return f"{unit[:-3]}y"
    return unit[:-2] if unit.endswith(("ches", "shes", "sses", "xes")) else unit[:-1]


def plain(number: float, decimals: int, sign: str = "") -> str:
    """Return a number with so many decimals, a real minus sign and no minus zero."""
    decimals = min(max(decimals, 0), _decimals_of(number))
    rounded = round(number, decimals) + 0.0
    return f"{rounded:{sign if rounded else ''},.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def rounded(number: float, digits: int) -> str:
    """Return a number with so many digits that count, or all that stand before its point."""
    return plain(number, digits - 1 - floor(log10(abs(number))) if number else 0)


def _decimals_of(number: float) -> int:
    """Return how many decimals a number has, an edge few of them; at most DECIMALS_MAX."""
    return len(f"{number:.{DECIMALS_MAX}f}".rstrip("0").partition(".")[2])


def nice_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)


def _decimals(step: float) -> int:
    """Return the decimals that a percentage needs to show multiples of `step`."""
    return max(0, -floor(log10(step) + 1e-9) - 2)


def shorten(text: str, width_em: float = LABEL_EM) -> str:
    """Return a label that a phone's width holds, or so many em."""
    shown = visible(text)
    if len(shown) <= width_em:  # no character is wider than an em
        return shown
    width = 0.0
    for place, character in enumerate(shown):
        width += _width(character)
        if width > width_em and place < len(shown) - 1:
            return shown[:place] + "…"
    return shown


def shorten_apart(texts: Sequence[str], width_em: float = LABEL_EM) -> list[str]:
    """Return labels of different texts that are different as well: some cut inside, so that they keep their ends.

    Two values that stand together keep an end each. If that is not enough, a place in the list goes before.
    """
    known = dict.fromkeys(texts)
    cut = {text: shorten(text, width_em) for text in known}
    often = Counter(cut.values())
    labels = {text: label if often[label] == 1 else _without_middles(text, width_em) for text, label in cut.items()}
    often = Counter(labels.values())
    told = {
        text: label if often[label] == 1 else f"{place}. {shorten(text, width_em - PLACE_EM)}"
        for place, (text, label) in enumerate(labels.items(), 1)
    }
    return [told[text] for text in texts]


def _without_middles(text: str, width_em: float) -> str:
    parts = text.split(TOGETHER)
    return TOGETHER.join(_without_middle(part, (width_em - label_width(TOGETHER)) / len(parts)) for part in parts)


def _without_middle(text: str, width_em: float) -> str:
    """Return a text that is cut inside: a third of the width for its begin, and the rest for its end."""
    if shorten(text, width_em) == visible(text):
        return visible(text)
    return shorten(text, width_em / 3) + shorten(text[::-1], 2 * width_em / 3 - 1).rstrip("…")[::-1]


def beside(text: str, label: str) -> str:
    """Return a text that a phone's width holds beside a label."""
    return shorten(text, LINE_EM - label_width(label))


def label_width(label: str) -> float:
    """Return about how wide a label is, in em: never less than in the usual sans-serif fonts."""
    return sum(map(_width, label))


def _width(character: str) -> float:
    """Return about how wide a character is, in em."""
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "WM@%mw…—":
        return 1.0
    if character in "<>=+~#^":
        return 0.85
    return 0.35 if character in "iljtfrI.,:;'|! ()[]-" else 0.75 if character.isupper() else 0.62


# Series: a panel a value, all on one axis of days, with the number of reports beneath.


PANEL_HEIGHT, PANEL_TOP, PANEL_BOTTOM = 128, 26, 8
FREE_Y = PANEL_TOP + 4
"""Lines above this would cross a panel's name."""
REPORTS_HEIGHT, REPORTS_TOP = 84, 30
DATES = 4
VALUE_TICKS = 3
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
    marks: Sequence[tuple[date, str]] = (),
    measure: Measure = SHARES,
    joined_days: int = 1,
) -> SeriesChart:
    """Lay out a panel for each value, in the order of the points, with marks: days in the window, each with words.

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
    begun = [(new.epoch, f"rev {new.rev}") for new in begins(points)]
    labels = _labels([*begun, *reversed(marks)], across)
    marked = sorted({across.x(day) for day, _ in (*begun, *marks)})
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
            tick
            for tick in measure.ticks(low, high, nice_step((high - low) / VALUE_TICKS / part), y)
            if tick.x > FREE_Y
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


def _labels(marks: Sequence[tuple[date, str]], across: Across) -> list[MarkLabel]:
    """Return the labels of the marks that find room, those that come first before others."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MARK_LINES)]
    labels = []
    for day, words in marks:
        x, text = across.x(day), shorten(words, MARK_EM)
        width = MARK_PERCENT * (label_width(text) + 1)
        for (line, others), ends in product(enumerate(taken), (x > 50, x <= 50)):
            low, high = (x - width, x) if ends else (x, x + width)
            if low >= 0 and high <= 100 and all(high <= left or right <= low for left, right in others):
                others.append((low, high))
                labels.append(MarkLabel(x, MARK_TOP + MARK_HEIGHT * line, ends, text))
                break
    return labels
