"""Weighted sums of the cells of a table, over all of its questions, and the law of their errors.

Weights are float64[1 + symbols of all questions]: a number alone, then one for each symbol of each question. Questions
have reports of their own, so that their noise is independent, and the variance of a sum is the sum of theirs (each by
`functional.Functionals`). It is a bound if devices report r times, to questions drawn anew. With k_q(x) the weight of
an answer in one of m questions, the answers add (r - 1) / n times the variance of the sum of all k_q, which is at most
m times the sum of their variances.

A condition on some columns is told by each question that asks for all of them. They are added with weights that are the
inverse of the planned variance, at even shares: weights made of the counts would know which of them came out low.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import Functionals, Sums, variance_at
from dither_aggregator.analysis.inference import NORMAL_MIN, NORMAL_SKEWED, ErrorOf, Floats, Z, effective, reach
from dither_aggregator.analysis.tables.pairs import precision_weights
from dither_aggregator.analysis.tables.questions import QuestionTally

Columned = Mapping[int, Floats]
"""By column, a number for each of its symbols: a cell has their product."""


@dataclass(frozen=True)
class CellSums(Sums):
    """All weighted sums of a table's cells."""

    questions: Sequence[QuestionTally]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", sum(question.n for question in self.questions))

    @cached_property
    def _each(self) -> Sequence[Functionals]:
        return [Functionals(each.mechanism, each.counts, each.n, each.repeats) for each in self.questions]

    @cached_property
    def _ends(self) -> Sequence[int]:
        return list(accumulate((each.mechanism.d for each in self.questions), initial=1))

    @cached_property
    def shares(self) -> Floats:
        """One, and the raw share of each symbol of each question."""
        return np.concatenate([[1.0], *(question.raw for question in self.questions)])

    def blocks(self, weights: Floats) -> Sequence[Floats]:
        """Return the weights of each question's symbols."""
        return [weights[first:last] for first, last in zip(self._ends, self._ends[1:], strict=False)]

    # Weights.

    def asking(self, columns: Sequence[int]) -> Sequence[int]:
        """Return the places of the questions that ask for all of some columns."""
        return [at for at, question in enumerate(self.questions) if set(columns) <= set(question.columns)]

    def of(self, condition: Columned, beside: Sequence[int] = ()) -> Floats | None:
        """Return the weights of a condition, by the questions that ask for its columns and some beside them.

        Without a column they are those of everybody with something to say. None where no question asks for all.
        """
        asking = self.asking([*condition, *beside])
        if not condition and not beside:
            return self.everybody
        return self._added({at: self._of_question(at, condition) for at in asking}) if asking else None

    @cached_property
    def everybody(self) -> Floats:
        """The weights of all who have something to say: one, less those who have nothing."""
        hidden = [at for at, question in enumerate(self.questions) if question.hidden]
        weights = self._added({at: self._of_none(at) for at in hidden})
        weights[0] = 1.0
        return weights

    def _of_question(self, at: int, condition: Columned) -> Floats:
        question = self.questions[at]
        sides = [
            np.asarray(condition.get(column, np.ones(size)), dtype=np.float64)
            for column, size in zip(question.columns, question.shape, strict=True)
        ]
        return self._of_cells(at, reduce(np.multiply.outer, sides).ravel())

    def of_cells(self, at: int, cells: npt.NDArray[Any]) -> Floats:
        """Return the weights of a question's cells, the last column fastest."""
        weights = np.zeros(self._ends[-1])
        weights[self._ends[at] : self._ends[at + 1]] = self._of_cells(at, cells)
        return weights

    def _of_cells(self, at: int, cells: npt.NDArray[Any]) -> Floats:
        question = self.questions[at]
        table = question.table(question.columns)
        return np.append(cells, np.zeros(int(question.hidden)))[table.cells].astype(np.float64)

    def _of_none(self, at: int) -> Floats:
        weights = np.zeros(self.questions[at].mechanism.d)
        weights[-1] = -1.0
        return weights

    def _added(self, of_questions: Mapping[int, Floats]) -> Floats:
        """Return the same weights of several questions, as they are pooled."""
        added = np.zeros(self._ends[-1])
        if not of_questions:
            return added
        planned = []
        for at, weights in of_questions.items():
            d = self.questions[at].mechanism.d
            even = variance_at(self.questions[at].mechanism, weights, np.full(d, 1 / d))
            planned.append((even if weights.any() else 1.0) / self.questions[at].n)
        for (at, weights), part in zip(of_questions.items(), precision_weights(planned).tolist(), strict=True):
            added[self._ends[at] : self._ends[at + 1]] += part * weights
        return added

    # The law of errors.

    def estimate(self, weights: Floats) -> float:
        """Return the sum: raw and unbiased."""
        return float(weights @ self.shares)

    def variance(self, weights: Floats, error_of: ErrorOf = "population") -> float:
        """Return its variance; at most, where devices report repeatedly."""
        return sum(each.variance(block, error_of) for each, block in self._held(weights))

    def interval(self, weights: Floats, alpha: float) -> tuple[float, float] | None:
        """Return the ends of its interval; None where devices may be too few to tell it.

        The interval of several questions reaches further for few reports, as far as one device may move the sum.
        """
        held = self._held(weights)
        if len(held) == 1:
            ((each, block),) = held
            ends, rest = each.interval(block, alpha), self.estimate(weights) - each.estimate(block)
            return ends and (ends[0] + rest, ends[1] + rest)
        estimate, repeats = self.estimate(weights), max(question.repeats for question, _ in held) if held else 1
        heaviest = np.zeros(2)
        for each, block in held:
            own = each.estimate(block)
            least, most = each.extremes(block)
            heaviest = np.maximum(heaviest, np.array([own - least, most - own]) * repeats / each.n)
        z, spread = -NormalDist().inv_cdf(alpha / 2), np.array(self.variance(weights))
        below, above = reach(spread, heaviest, self.n / repeats, z).tolist()
        return estimate - below, estimate + above

    def _held(self, weights: Floats) -> Sequence[tuple[Functionals, Floats]]:
        return [(each, block) for each, block in zip(self._each, self.blocks(weights), strict=True) if block.any()]

    def _covariances(self, one: Floats, other: Floats, error_of: ErrorOf) -> Floats:
        return np.array(
            [
                sum(
                    each.covariance(block, another, error_of)
                    for each, block, another in zip(self._each, self.blocks(one), self.blocks(other), strict=True)
                    if block.any() and another.any()
                )
            ]
        )

    def _is_normal(self, *each: Floats, alpha: float) -> bool:
        z = -NormalDist().inv_cdf(alpha / 2)
        return all(self._from_normal(weights) * (z / Z) ** 4 <= 1 for weights in each)

    def _from_normal(self, weights: Floats) -> float:
        """Return how far a sum is from a normal law, beside the farthest that intervals of 95 % bear.

        It is `inference.normal_from` of a sum of means: of the largest part 1 / n, and the squared skewness.
        """
        spread, cubed, least = 0.0, 0.0, 0.0
        for question, block in self._held(weights):
            once, devices = replace(question, repeats=1), effective(float(question.n), question.repeats, permanent=True)
            variance = once.variance(block) * question.n / devices
            spread += variance
            cubed += once.skewness(block) / sqrt(devices) * variance**1.5
            least = max(least, 1 / devices)
        if spread <= 0:  # a number alone is certain
            return 0.0
        return float(NORMAL_MIN * least + NORMAL_SKEWED * (cubed / spread**1.5) ** 2)
