"""Readings of a table: what goes with what, rates, and how arms differ.

**Arms.** Arms: the shares of each column by the value of the public column, and which arms differ from all others.

The device says its arm in the clear, so each arm has reports of its own, and nothing of it is noisy but the answers.
An arm's share is independent of that of all others, whose counts are added. The interval of a difference is by Zou 2008
("MOVER"), without anything in common.

Whether there is a difference is tested as if there were none. An arm of few reports that came out low would have a
small variance, too; so the variance is that at the share of all together where that is the larger one. And rare counts
are lopsided: with g the skewness of the difference, z - g (z^2 - 1) / 6 is normal to the next order (Cornish and Fisher
1938), which counts where it is nearer to zero. Verdicts are by Holm, over all arms and values of all columns.

**The estimand**: shares of each column, what goes with what, rates and means by group, and which groups differ from
the rest.

All estimates are raw and unbiased, and of the devices that have something to say. All errors are those of the
population.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import combinations
from math import prod, sqrt
from statistics import median

import numpy as np
from scipy.special import ndtr

from dither_aggregator.analysis.functional import answers_part
from dither_aggregator.analysis.inference import SURE_TO_COMPARE, Floats, KnownRatio
from dither_aggregator.analysis.reading import (
    NO_LINES,
    Estimand,
    EstimateRow,
    Lines,
    Reading,
    View,
    refuse_values,
    reports_max,
)
from dither_aggregator.analysis.released import SURE_OF_N, Released, ReleasedRow, ReleasedTally
from dither_aggregator.analysis.rows import (
    JudgedRow,
    Row,
    Statistic,
    TableRow,
    association_name,
    difference_name,
    difference_verdict,
    holm,
    mean_name,
    rate_name,
    share_name,
)
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.statistics import NUMBERS, Margin, TableStatistics, margin, pooled
from dither_aggregator.counting import tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Columns, Range
from dither_shared.domains.columns import HIGH
from dither_shared.frozen import replaced
from dither_shared.kinds.precision import QUESTION_MIN
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.pgr import prime_for
from dither_shared.plan import Plan

REPORTS_MIN = QUESTION_MIN
"""A question with fewer reports, of an arm or of all, is left out: counts are too far from a normal law."""


def together(arms: Sequence[Sequence[QuestionTally]]) -> list[QuestionTally]:
    """Return the questions of several arms with their counts added up."""
    added: dict[tuple[int, ...], QuestionTally] = {}
    for question in (each for arm in arms for each in arm):
        before = added.get(question.columns)
        added[question.columns] = (
            replace(question, counts=before.counts + question.counts, n=before.n + question.n) if before else question
        )
    return list(added.values())


@dataclass(frozen=True)
class Side:
    """One column in an arm, or in all others together."""

    margin: Margin
    n: int
    """The reports that tell the column."""
    ratios: dict[int, KnownRatio]
    """By symbol, each with its interval."""
    judged: dict[int, KnownRatio]
    """The same with the intervals by which verdicts are given."""

    @property
    def is_sure(self) -> bool:
        """Whether the share of all who are asked about is surely above zero, so that differences are told."""
        return bool(self.margin.ratios.surely(SURE_TO_COMPARE).all())


@dataclass(frozen=True)
class ArmStatistics(TableStatistics):
    """The rows of the arms."""

    arms: Sequence[Sequence[QuestionTally]]
    """The questions of each value of the public column."""

    def of_arms(self) -> Iterator[TableRow]:
        """Yield the shares or means of each column in each arm, and how they differ from all other arms'."""
        if len(self.arms) == 1:
            return
        found: list[tuple[TableRow, float, KnownRatio]] = []
        for place, arm in enumerate(self.arms):
            others = together([other for other in self.arms if other is not arm])
            for column in range(len(self.domain.names)):
                ours, theirs = self._side(column, arm), self._side(column, others)
                if ours is None or theirs is None:
                    continue
                chances = _chances(ours, theirs)
                compared = ours.is_sure and theirs.is_sure
                for label in sorted(ours.ratios.keys() & theirs.ratios.keys()):
                    yield self._of_arm(column, place, ours.ratios[label])
                    if not compared:
                        continue
                    less, judged = (
                        _less(one[label], other[label])
                        for one, other in ((ours.ratios, theirs.ratios), (ours.judged, theirs.judged))
                    )
                    found.append((self._of_arm(column, place, less, difference=True), float(chances[label]), judged))
        yield from self._compared(found)

    def _compared(self, found: Sequence[tuple[TableRow, float, KnownRatio]]) -> Iterator[TableRow]:
        """Yield differences with their verdicts. Two arms share one test for each value, which is counted once."""

        def test_of(row: TableRow) -> tuple[str | None, ...]:
            return row.column, row.label, None if len(self.arms) == 2 else row.group

        p_values = {test_of(row): p_value for row, p_value, _ in found}
        true = dict(zip(p_values, holm(np.array([*p_values.values()]), self.alpha).tolist(), strict=True))
        for row, _, judged in found:
            verdict = difference_verdict(true[test_of(row)], judged.lower, judged.upper)
            yield row if self.provisional else replace(row, verdict=verdict, p_value=p_values[test_of(row)])

    def _side(self, column: int, questions: Sequence[QuestionTally]) -> Side | None:
        """Return what some questions say of a column; None where too few reports tell it."""
        asked = [each for each in questions if column in each.columns and each.n >= REPORTS_MIN]
        is_number = column in self._scales
        found = pooled([margin(each.table((column,)), NUMBERS if is_number else None) for each in asked])
        if found is None:
            return None
        together = len(self.arms) * self._labels
        ratios, judged = (
            {each.place[0]: each for each in found.ratios.tell(z(together)) if not is_number or each.place == (HIGH,)}
            for z in (self._z, self._judging_z)
        )
        return Side(found, sum(each.n for each in asked), ratios, judged)

    def _of_arm(self, column: int, place: int, ratio: KnownRatio, *, difference: bool = False) -> TableRow:
        name, (public, *values) = self.domain.names[column], self.domain.public
        if column in self._scales:
            what, label, ratio = mean_name(name), None, self._in_unit(column, ratio, difference=difference)
        else:
            label, what = self._symbols[column][ratio.place[0]]
        of_arm = rate_name(what, share_name(public, values[place]))
        if difference:
            return TableRow(difference_name(of_arm), *ratio[1:], "difference", name, label, public, values[place])
        statistic: Statistic = "mean" if label is None else "rate"
        return TableRow(of_arm, *ratio[1:], statistic, name, label, public, values[place])


def _chances(ours: Side, theirs: Side) -> Floats:
    """Return two-sided p-values of both sides having the same shares, float64[B]."""
    sides = (ours, theirs)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = [side.margin.ratios.estimate for side in sides]
        common = sum(side.n * share for side, share in zip(sides, shares, strict=True)) / (ours.n + theirs.n)
        common = np.clip(common, 0.0, 1.0)
        variance, third = np.zeros(len(common)), np.zeros(len(common))
        for side, sign in ((ours, 1.0), (theirs, -1.0)):
            found = side.margin
            variance += np.maximum(found.ratios.variance_at(common), found.ratios.std_error**2)
            third += sign * (found.third + found.third_slope * common * found.whole) / found.whole**3
        z = (shares[0] - shares[1]) / np.sqrt(variance)
        bent = np.abs(z) - np.sign(z) * third / variance**1.5 * (z**2 - 1) / 6
        return np.asarray(2 * ndtr(-np.minimum(np.abs(z), np.maximum(bent, 0.0))))


def _less(ours: KnownRatio, theirs: KnownRatio) -> KnownRatio:
    """Return the difference of two independent shares."""
    moved = ours.estimate - theirs.estimate
    return KnownRatio(
        ours.place,
        moved,
        float(np.hypot(ours.std_error, theirs.std_error)),
        moved - float(np.hypot(ours.estimate - ours.lower, theirs.upper - theirs.estimate)),
        moved + float(np.hypot(ours.upper - ours.estimate, theirs.estimate - theirs.lower)),
    )


# The estimand.


LEADING_MAX = 5
"""Shares that /time draws unless others are asked for."""


@dataclass(frozen=True)
class TablesReading(Reading):
    """The statistics of a table."""

    rows: Sequence[TableRow] = ()
    asked: Sequence[tuple[str, int]] = ()
    """The columns that were asked together, or the public value, each with its number of reports."""
    telling: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    """By column, how many reports tell its shares."""

    def answers_part(self, row: Row) -> float:
        """Return that of a column's share."""
        n = self.telling.get(row.column, 0.0) if isinstance(row, TableRow) else 0.0
        return float(answers_part(row.estimate, row.std_error, n, self.repeats)) if n else 1.0

    @property
    def groupings(self) -> Sequence[str]:
        """The public column and all others by which devices are grouped; coins are no groups."""
        domain = columns_of(self.stored.plan)
        own = (name for name, each in zip(domain.names, domain.domains, strict=True) if not isinstance(each, Range))
        return (*domain.public[:1], *own)

    def unit_of(self, name: str) -> str:
        """Return the unit of a column of numbers that coins round; "1" of one that has none."""
        domain = columns_of(self.stored.plan)
        return domain.domains[domain.names.index(name)].unit or "1"

    @property
    def distinct(self) -> Sequence[TableRow]:
        """The shares of columns."""
        return self.of("share")

    def of(self, statistic: Statistic) -> Sequence[TableRow]:
        """Return the rows of one statistic."""
        return [row for row in self.rows if row.statistic == statistic]

    def table(self, rows: Iterable[JudgedRow]) -> Iterator[EstimateRow]:
        """Yield rows of the API, each with its own verdict."""
        verdicts = {row.value: row.verdict for row in self.rows}
        return super().table(JudgedRow(each.row, verdicts[each.row.value]) for each in rows)

    @property
    def effect_of_leaving_out(self) -> str:
        """Say whom totals are without: the app set the public column, which may go with the answers."""
        public = columns_of(self.stored.plan).public
        if not public:
            return super().effect_of_leaving_out
        return f"Totals are without them: they are of devices with other values of {public[0]}"

    @property
    def nothing_to_show(self) -> str:
        """Say how many reports are needed."""
        plan = self.stored.plan
        asked = len(columns_of(plan).questions)
        if self.n >= REPORTS_MIN * asked:
            return "Too few of these reports say anything, or they are too noisy: nothing can be told."
        return f"{self.n:,} reports are too few to tell: each of {asked} questions needs {REPORTS_MIN}."

    def own_document(self) -> Lines:
        """Return that no share is critical: verdicts are by other tests."""
        return NO_LINES


class Tables(Estimand[TablesReading]):
    """The estimand of tables: shares of columns, and which columns and values go together."""

    name = "tables"
    role = "statistic"
    records = (TablesReading, TableRow)

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values."""
        refuse_values(plan, view, asked, "columns")

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the shares of each column."""
        domain = columns_of(stored.plan)
        return [
            share_name(name, label)
            for column, name in enumerate(domain.names)
            if not isinstance(domain.domains[column], Range)
            for label in domain.labels(column)
        ]

    def leading(self, stored: StoredPlan) -> Sequence[str]:
        """Return the first value of each column, of as many as are drawn at once."""
        domain = columns_of(stored.plan)
        first = [
            share_name(name, domain.labels(column)[0])
            for column, name in enumerate(domain.names)
            if not isinstance(domain.domains[column], Range)
        ]
        return first[:LEADING_MAX]

    def shares(self, stored: StoredPlan) -> Sequence[str]:
        """Return means and associations. Cells, rates and differences are too many to be listed."""
        domain = columns_of(stored.plan)
        means = (
            mean_name(name) for name, each in zip(domain.names, domain.domains, strict=True) if isinstance(each, Range)
        )
        return [*means, *(association_name(one, other) for one, other in combinations(domain.names, 2))]

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> TablesReading:
        """Estimate all statistics, or those that the view names."""
        view = replace(view, error_of="population")
        bare = TablesReading(stored, epoch, provisional, tally.n, view, snapshot, None, None)
        domain, arms = columns_of(stored.plan), arms_of(stored, tally, view)
        everybody = together(arms)
        enough = [question for question in everybody if question.n >= REPORTS_MIN]
        statistics = TableStatistics(domain, enough, view, provisional)
        bare = replace(bare, asked=_asked(domain, everybody, arms))
        rows = list(statistics.of_columns())
        if not rows:
            return bare
        floor = median(row.std_error for row in rows)
        bare = replace(bare, telling=statistics.telling())
        if view.values is None or not set(view.values) <= set(self.names(stored)):
            rows.extend(statistics.of_pairs())
            rows.extend(ArmStatistics(domain, enough, view, provisional, arms).of_arms())
        shown = tuple(row for row in rows if view.values is None or row.value in view.values)
        return replace(bare, rows=shown, noise_floor=floor, method="wald")

    def released(self, tally: ReleasedTally) -> Released:
        """Return shares and means of columns, and the cells of each two columns, of all public values together.

        All of their intervals hold together: half of the chance to miss is that of columns, half that of cells.
        """
        domain, both = columns_of(tally.plan), []
        for at_once in (False, True):
            view = View(simultaneous=at_once, together=2 if at_once else 1)
            level = (1 - view.confidence) / (2 * len(tally.counts) if at_once else 1)  # there are fewer rows
            questions = _released_questions(tally, tally.noise_at(level))
            statistics = TableStatistics(domain, questions, view, provisional=True)
            both.append({row.value: row for row in statistics.released()})
        units = {name: each.unit for name, each in zip(domain.names, domain.domains, strict=True)}
        rows = [
            ReleasedRow(
                *(name, row.estimate, row.std_error, all_.lower, all_.upper, row.lower, row.upper),
                units[row.column] if row.statistic == "mean" else None,
            )
            for name, row in both[0].items()
            if (all_ := both[1].get(name))
        ]
        return Released.of(rows)


def _released_questions(tally: ReleasedTally, count_noise: float) -> list[QuestionTally]:
    """Return the questions that surely have enough reports, of all public values together."""
    plan, found = tally.plan, list[QuestionTally]()
    domain, each = columns_of(plan), plan.cells.each
    whole = tally.counts.reshape(plan.cells.public, -1).sum(axis=0)
    for part, table, cell in tables(replaced(plan.cells, public=1), whole):
        n, mechanism, noise = int(table[0, 0]), PureMechanism.of(part.mechanism), plan.cells.public * count_noise
        if n >= max(REPORTS_MIN, SURE_OF_N * sqrt(plan.cells.public) * tally.error_of(mechanism.shape)):
            prime = 0 if plan.once_a_day else prime_for(prod(domain.shape(cell)))
            asked = domain.questions[cell % each], domain.shape(cell), domain.hidden, mechanism, table[0, 1:]
            found.append(QuestionTally(*asked, n, tally.repeats, prime, noise))
    return found


def columns_of(plan: Plan) -> Columns:
    """Return the columns of a table's plan."""
    return Columns.of(plan.domain)


def arms_of(stored: StoredPlan, tally: Tally, view: View) -> list[list[QuestionTally]]:
    """Return the questions that have reports, once for each value of the public column."""
    plan, repeats = stored.plan, reports_max(stored, view.days)
    domain, each = columns_of(plan), plan.cells.each
    arms: list[list[QuestionTally]] = [[] for _ in range(plan.cells.public)]
    for part, table, cell in tables(plan.cells, tally.counts):
        (n, *_), counts = table[0].tolist(), table[0, 1:]
        if n:
            place, mechanism = cell % each, PureMechanism.of(part.mechanism)
            columns, shape = domain.questions[place], domain.shape(place)
            prime = 0 if plan.once_a_day else prime_for(prod(shape))
            asked = QuestionTally(columns, shape, domain.hidden, mechanism, counts, n, repeats, prime)
            arms[cell // each].append(asked)
    return arms


def _asked(
    domain: Columns, everybody: Sequence[QuestionTally], arms: Sequence[Sequence[QuestionTally]]
) -> Sequence[tuple[str, int]]:
    asked = [(", ".join(domain.names[column] for column in question.columns), question.n) for question in everybody]
    if not domain.public:
        return asked
    name, *values = domain.public
    return [
        *((f"{name} = {value}", sum(each.n for each in arm)) for value, arm in zip(values, arms, strict=True)),
        *asked,
    ]
