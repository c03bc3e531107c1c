"""The part of a metric's page that shows numbers: mean and quantiles as sentences, then the shape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dither_aggregator.analysis.closed_days import Snapshot
from dither_aggregator.analysis.numbers import MEAN, MEDIAN, NumberRow, NumbersReading
from dither_aggregator.store import Store
from dither_aggregator.web.charts import (
    UNITLESS,
    Measure,
    Tick,
    end,
    label_width,
    nice_step,
    plain,
    precise,
    rounded,
    ticks,
)
from dither_aggregator.web.forest_plots import Plot, draw
from dither_aggregator.web.pages.presentation import DEVICES, Cited, CitedRow, Presentation, ReadingAnswer
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.domains import NumberDomain
from dither_shared.plan import Plan

SHAPE_HEIGHT, SHAPE_TOP = 180, 12
LINES = 4
"""About so many lines of shares."""
NAMES_MAX = 6
"""So many edges, at most, have their number beneath."""
DIGITS, DIGITS_MAX = 3, 19
"""An edge beneath has so many digits, and more where edges would look alike; the table has all of them."""
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


# The words, and the part of the page.


SHAPES = ("share", "share_above")
"""Statistics to draw: the share of each range or, where these cannot be told, the share above each."""
PARTS = (MEDIAN, "q90")
"""The quantiles of a sentence."""
MARKED = {MEDIAN: "half", "q90": "90\N{NO-BREAK SPACE}%"}
"""The same beside their marks."""
TO = "\N{NO-BREAK SPACE}to "
NEARLY_ALL = 0.9
"""If at least this part of the reports held a number, and perhaps all, they are called nearly all."""


@dataclass(frozen=True)
class ToldStatistic:
    """A mean or a quantile, in words and in the metric's unit."""

    name: str
    seems: str
    """A mean of possible shares, or the range in which a quantile seems to lie."""
    interval: str


@dataclass(frozen=True)
class NumbersPart:
    """The part of the page for numbers."""

    statistics: Sequence[ToldStatistic]
    sentences: Sequence[str]
    within: str
    drawn: str = ""
    """The statistic of the shape."""
    shape: Shape | None = None
    plot: Plot | None = None
    """Median and 90 % alone, where reports are too few for bars; or the mean, where it is all that is asked."""
    plotted: str = ""
    """The words for them."""
    cumulative: Cumulative | None = None
    """The other view of the same ranges: how many numbers are below each edge."""
    shares: Sequence[NumberRow] = ()
    """All shares: of ranges, and above edges."""
    template: str = "numbers.html"
    intervals: str = "Intervals are of"


@dataclass(frozen=True)
class Quantity:
    """A mean or a quantile in words. `interval` holds together with those of the others, and is computed anew."""

    name: str
    seems: str
    interval: str
    own_interval: str


@dataclass(frozen=True)
class NumberWords:
    """Means, quantiles and their intervals in words, of numbers between two outermost edges."""

    measure: Measure
    first: float
    last: float

    @classmethod
    def of(cls, plan: Plan) -> "NumberWords":
        """Return those of a plan."""
        domain = NumberDomain.of(plan.domain)
        first, last = (edge / 10**domain.decimals for edge in (domain.edges[0], domain.edges[-1]))
        return cls(Measure(plan.domain.unit), first, last)

    @property
    def cut(self) -> str:
        """A sentence on numbers beyond the outermost edges."""
        first, last = self.measure.edge(self.first), self.measure.edge(self.last)
        return f"Numbers below {first} are counted as {first}, and those above {last} as {last}."

    def seems(self, row: NumberRow) -> str:
        """Return what a mean seems to be, or in which range a quantile seems to lie."""
        if row.statistic == "quantile":
            return self.between_edges(row.low, row.high)
        return self.measure.precise(row.estimate if row.fitted is None else row.fitted, row.std_error)

    def interval(self, row: NumberRow) -> str:
        """Return an interval; that of a quantile ends at edges."""
        if row.statistic == "quantile":
            return self.between_edges(row.lower, row.upper)
        return TO.join(self.measure.end(number, row.std_error) for number in (row.lower, row.upper))

    def median(self, row: NumberRow) -> str:
        """Return where a median lies."""
        if row.upper >= self.last or row.lower <= self.first:
            return self.interval(row)
        return self.measure.ends(row.lower, row.upper)

    def below(self, row: NumberRow) -> str:
        """Return below which edges the numbers of a quantile lie."""
        if row.upper >= self.last and row.lower < self.last:
            return f"reach {self.measure.edge(row.lower)} or more"
        if row.lower <= self.first:
            return f"are at most {self.measure.edge(row.upper)}"
        return f"are below {self.measure.ends(row.lower, row.upper)}"

    def beside_bars(self, row: NumberRow) -> str:
        """Return a quantile beside its mark, without the unit: the words above the bars have it."""
        part = MARKED[row.value]
        if row.upper >= self.last or row.lower <= self.first:
            return f"{part}: {self.interval(row)}"
        return f"{part}: {Measure(UNITLESS).ends(row.lower, row.upper)}"

    def between_edges(self, low: float | None, high: float | None) -> str:
        """Return a range of edges. One that reaches the first or last edge may lie beyond, where nothing is told."""
        if high is None or high >= self.last:
            return f"{self.measure.edge(self.last if low is None else low)} or more"
        if high <= self.first:
            return f"below {self.measure.edge(high)}"
        if low is None or low <= self.first:
            return f"at most {self.measure.edge(high)}"
        return TO.join(map(self.measure.edge, (low, high)))


def answer_of_numbers(reading: NumbersReading) -> ReadingAnswer:
    """Return where half and nine in ten of the numbers lie, or the mean where these cannot be told."""
    words, rows = NumberWords.of(reading.stored.plan), {row.value: row for row in reading.distinct}
    before = "More reports may come. " if reading.provisional else ""
    if MEDIAN not in rows:
        mean = rows[MEAN]
        about = words.measure.about(mean.estimate, mean.lower, mean.upper)
        return ReadingAnswer(reading.n, f"{before}The mean is {about}.", (mean,), MEAN)
    sentence = f"{before}The median is {words.median(rows[MEDIAN])}"
    sentence += f"; nine in ten {words.below(rows['q90'])}." if "q90" in rows else "."
    return ReadingAnswer(reading.n, sentence, [rows[name] for name in PARTS if name in rows], MEDIAN)


def _sentences(reading: NumbersReading, words: NumberWords) -> list[str]:
    """Return what is to be known of the rows: what ranges leave open, what is cut, what is no number or not told."""
    measure = words.measure
    sentences = [f"{words.cut} The mean is of numbers cut in this way."]
    mean = next(row for row in reading.rows if row.value == MEAN)
    if mean.low is not None and mean.high is not None:
        whole, left_open = mean.upper - mean.lower, mean.high - mean.low
        wide, ranges, noise = (measure.precise(part, mean.std_error) for part in (whole, left_open, whole - left_open))
        sentences.append(
            f"The interval of the mean is {wide} wide: {noise} is noise, which more reports make smaller; {ranges} is "
            "left open by the ranges, which do not tell where in them a number lies."
        )
    sentences += [f"{_about(row)} {row.value}." for row in reading.of("share") if row.low is None or row.high is None]
    for row in reading.of("share_of_reports"):
        share = precise(row.estimate, row.std_error)
        lower, upper = (end(each, row.std_error) for each in (row.lower, row.upper))
        nearly_all = row.lower >= NEARLY_ALL and row.upper >= 1
        held = f"Nearly all (at least {lower})" if nearly_all else f"{share} ({lower} to {upper})"
        sentences.append(f"{held} of the reports held a number; everything else on this page is about those.")
    if reading.untold:
        names = ", ".join(measure.called(row.value) for row in reading.untold)
        sentences.append(f"Too few reports to tell: {names}. Each may lie anywhere in more than a third of the axis.")
    plan = reading.stored.plan
    if plan.cells.memoized:
        sentences.append(
            "Each device says one bit, so a peak at a single value cannot be told. A flag can ask for such a value."
        )
    elif not reading.of("share"):
        sentences.append("This metric asks for the mean alone: its reports tell no quantiles.")
    return sentences


def _about(row: NumberRow) -> str:
    """Return a share's interval in words, "at most" where it holds zero: a share below zero is none of people."""
    upper = end(row.upper, row.std_error)
    if row.lower <= 0:
        return f"At most {upper} are"
    return f"Between {end(row.lower, row.std_error)} and {upper} are"


class NumbersShown(Presentation[NumbersReading]):
    """How numbers are shown: mean and quantiles, each moved or not, and the shape."""

    moves_few = True
    noun = "statistic"
    shows = "mean and quantiles"
    same = "mean or quantile"
    readable_daily = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.words = NumberWords.of(plan)
        self.axis = self.words.first, self.words.last

    def part(self, store: Store, reading: NumbersReading, asked: QueryParameters) -> NumbersPart:
        """Return what a page shows of numbers: the same, whatever columns are asked for."""
        return numbers_part(reading)

    def answer(self, reading: NumbersReading) -> ReadingAnswer:
        """Return where half of the numbers lie, or their mean where it is all that can be told."""
        return answer_of_numbers(reading)

    def cited(self, reading: NumbersReading, snapshot: Snapshot) -> Cited:
        """Return mean and quantiles: each as it is in the snapshot, beside intervals that hold at once."""
        rows = [row for row in reading.distinct if row.value in snapshot.rows]
        own = [
            replace(row, **{name: number for name, number in snapshot.rows[row.value].items() if name in vars(row)})
            for row in rows
        ]
        words, level = self.words, round(100 * snapshot.estimates["interval"]["confidence"])
        quantities = [
            Quantity(self.measure.called(row.value), words.seems(one), words.interval(row), words.interval(one))
            for row, one in zip(rows, own, strict=True)
        ]
        return Cited(
            "snapshot_numbers.html",
            f"Mean and quantiles{self.measure.within}; {level} % intervals that hold all at once.",
            quantities,
            plot=draw([CitedRow.of(snapshot, row) for row in rows], 0.0, measure=self.measure),
            cut=words.cut,
        )

    @property
    def about_days(self) -> str:
        """Say of which numbers mean and quantiles are, and what a dot of a quantile is."""
        return (
            f"Mean and quantiles of the numbers of {DEVICES}{self.measure.within}. {self.words.cut} A "
            "quantile lies between two edges: its dot is the lower end of the range in which it seems to lie. A day on "
            "which nothing can be told is left out."
        )

    @property
    def about_moves(self) -> str:
        """Say the same of differences."""
        return (
            f"Change of the mean and of quantiles of the numbers of {DEVICES}{self.measure.within}. "
            f"{self.words.cut} A quantile lies between two edges: the table has the lower end of the range in which it "
            "seems to lie, and its interval holds all moves from anywhere in the range before to anywhere in the range "
            "after."
        )


def numbers_part(reading: NumbersReading) -> NumbersPart:
    """Return what a page shows of a reading of numbers that has rows."""
    words = NumberWords.of(reading.stored.plan)
    above = reading.of("share_above") if not reading.of("share") else ()
    drawn = "share" if reading.blocks else "share_above" if above else ""
    below = reading.of("share_above") if reading.of("share") else ()
    quantiles = [row for row in reading.of("quantile") if row.value in PARTS]
    shape, plot, plotted = None, None, ""
    if reading.blocks:
        domain = NumberDomain.of(reading.stored.plan.domain)
        edges = [edge / 10**domain.decimals for edge in domain.edges]
        told = [(edges.index(row.lower), edges.index(row.upper), words.beside_bars(row)) for row in quantiles]
        shape = draw_shape(reading.blocks, reading.cuts, told)
    elif above:
        shape = draw_shape(above)
    elif quantiles or reading.of("mean"):
        plotted = "The ends of half and of nine in ten of the numbers" if quantiles else "The mean"
        plot = draw(quantiles or reading.of("mean"), 0.0, ends=(words.first, words.last), measure=words.measure)
    return NumbersPart(
        [
            ToldStatistic(words.measure.called(row.value), words.seems(row), words.interval(row))
            for row in reading.distinct
        ],
        _sentences(reading, words),
        words.measure.within,
        drawn,
        shape,
        plot,
        plotted,
        draw_cumulative(below) if len(below) > 1 else None,
        [row for row in reading.rows if row.statistic in SHAPES],
    )
