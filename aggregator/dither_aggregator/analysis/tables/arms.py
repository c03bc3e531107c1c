"""Arms: the shares of each column by the value of the public column, and which arms differ from all others.

The device says its arm in the clear, so each arm has reports of its own, and nothing of it is noisy but the answers.
An arm's share is independent of that of all others, whose counts are added. The interval of a difference is by Zou 2008
("MOVER"), without anything in common.

Whether there is a difference is tested as if there were none. An arm of few reports that came out low would have a
small variance, too; so the variance is that at the share of all together where that is the larger one. And rare counts
are lopsided: with g the skewness of the difference, z - g (z^2 - 1) / 6 is normal to the next order (Cornish and Fisher
1938), which counts where it is nearer to zero. Verdicts are by Holm, over all arms and values of all columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from dither_aggregator.analysis.inference import SURE_TO_COMPARE, Floats, KnownRatio
from dither_aggregator.analysis.significance import holm
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.rows import (
    Statistic,
    TableRow,
    difference_name,
    difference_verdict,
    mean_name,
    rate_name,
    share_name,
)
from dither_aggregator.analysis.tables.statistics import NUMBERS, Margin, TableStatistics, margin, pooled
from dither_shared.domains.columns import HIGH
from dither_shared.kinds.precision import QUESTION_MIN

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
