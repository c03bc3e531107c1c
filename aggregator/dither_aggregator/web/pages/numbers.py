"""The part of a metric's page that shows numbers: mean and quantiles as sentences, then the shape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dither_aggregator.analysis.numbers import MEAN, MEDIAN, NumberRow, NumbersReading
from dither_aggregator.analysis.snapshots import Snapshot
from dither_aggregator.store import Store
from dither_aggregator.web.charts.scale import UNITLESS, Measure, end, measure_of, precise
from dither_aggregator.web.charts.shape import Cumulative, Shape, draw_cumulative, draw_shape
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.pages.presentation import DEVICES, Cited, CitedRow, Presentation, ReadingAnswer
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.domains import NumberDomain
from dither_shared.plan import Plan

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
        return cls(measure_of(plan), first, last)

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
