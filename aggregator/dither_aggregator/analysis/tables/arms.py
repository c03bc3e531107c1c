"""Arms: the shares of each column by the value of the public column, and which arms differ from all others.

The device says its arm in the clear, so each arm has reports of its own, and nothing of it is noisy but the answers.
An arm's share is independent of that of all others, whose counts are added. The interval of a difference is by Zou 2008
("MOVER"), without anything in common. Verdicts are by Holm, over all arms and values of all columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from dither_aggregator.analysis.multiplicity import holm
from dither_aggregator.analysis.tables.columns import margin, pooled
from dither_aggregator.analysis.tables.questions import QuestionTally
from dither_aggregator.analysis.tables.ratios import ToldRatio
from dither_aggregator.analysis.tables.rows import (
    Statistic,
    TableRow,
    Verdict,
    difference_name,
    mean_name,
    rate_name,
    share_name,
)
from dither_aggregator.analysis.tables.statistics import ALPHA, NUMBERS, TableStatistics
from dither_shared.domains.columns import HIGH

REPORTS_MIN = 300
"""An arm with fewer reports of a question is left out."""


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
class ArmStatistics(TableStatistics):
    """The rows of the arms."""

    arms: Sequence[Sequence[QuestionTally]]
    """The questions of each value of the public column."""

    def of_arms(self) -> Iterator[TableRow]:
        """Yield the shares or means of each column in each arm, and how they differ from all other arms'."""
        if len(self.arms) == 1:
            return
        z = self._z(len(self.arms) * self._labels)
        rows: list[TableRow] = []
        for column in range(len(self.domain.names)):
            for place, arm in enumerate(self.arms):
                ours = self._told(column, [arm], z)
                theirs = self._told(column, [other for other in self.arms if other is not arm], z)
                for label in sorted(ours.keys() & theirs.keys()):
                    yield self._of_arm(column, place, ours[label])
                    rows.append(self._of_arm(column, place, _less(ours[label], theirs[label]), difference=True))
        yield from self._compared(rows)

    def _compared(self, rows: Sequence[TableRow]) -> Iterator[TableRow]:
        """Yield differences with their verdicts. Of two arms each test is the other's, and is counted once."""

        def test_of(row: TableRow) -> tuple[str | None, ...]:
            return row.column, row.label, None if len(self.arms) == 2 else row.group

        p_values = {test_of(row): float(2 * ndtr(-abs(row.estimate) / row.std_error)) for row in rows}
        true = dict(zip(p_values, holm(np.array([*p_values.values()]), ALPHA).tolist(), strict=True))
        for row in rows:
            direction: Verdict = "higher" if row.estimate > 0 else "lower"
            verdict = direction if true[test_of(row)] else "cannot be told"
            yield self._judged(row, verdict, p_values[test_of(row)])

    def _told(self, column: int, arms: Sequence[Sequence[QuestionTally]], z: float) -> dict[tuple[int, ...], ToldRatio]:
        """Return a column's shares in some arms together, by symbol, or the share of high ends; none of too few."""
        asked = [each for each in together(arms) if column in each.columns and each.n >= REPORTS_MIN]
        is_number = column in self._scales
        found = pooled([margin(each.table((column,)), NUMBERS if is_number else None) for each in asked])
        told = {} if found is None else {each.place: each for each in found.ratios.tell(z)}
        return {(HIGH,): told[HIGH,]} if is_number and told else told

    def _of_arm(self, column: int, place: int, told: ToldRatio, *, difference: bool = False) -> TableRow:
        name, (public, *values) = self.domain.names[column], self.domain.public
        if column in self._scales:
            what, label, told = mean_name(name), None, self._in_unit(column, told, difference=difference)
        else:
            label = self.domain.labels(column)[told.place[0]]
            what = share_name(name, label)
        of_arm = rate_name(what, share_name(public, values[place]))
        if difference:
            return TableRow(difference_name(of_arm), *told[1:], "difference", name, label, public, values[place])
        statistic: Statistic = "mean" if label is None else "rate"
        return TableRow(of_arm, *told[1:], statistic, name, label, public, values[place])


def _less(ours: ToldRatio, theirs: ToldRatio) -> ToldRatio:
    """Return the difference of two independent shares."""
    moved = ours.estimate - theirs.estimate
    return ToldRatio(
        ours.place,
        moved,
        float(np.hypot(ours.std_error, theirs.std_error)),
        moved - float(np.hypot(ours.estimate - ours.lower, theirs.upper - theirs.estimate)),
        moved + float(np.hypot(ours.upper - ours.estimate, theirs.estimate - theirs.lower)),
    )
