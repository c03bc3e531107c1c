"""Synthetic records of a table: weights over all cells that agree with every measured pair, and draws from them.

All of it is made of what a reading is made of, so it costs no privacy. The weights follow from the counts, the draws
from the counts and their number: for one version on one machine the same records come again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.arms import REPORTS_MIN, together
from dither_aggregator.analysis.tables.pairs import PairTable, TooFew, pair_table
from dither_aggregator.analysis.tables.questions import QuestionTally
from dither_aggregator.analysis.tables.reading import arms_of, columns_of
from dither_aggregator.analysis.tables.synthesis import Progress, Synthesis, records, synthesise
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.plan import Plan


@dataclass(frozen=True)
class SyntheticTable:
    """The fit of one table's counts."""

    plan: Plan
    columns: Sequence[int]
    """The places of its columns among the plan's."""
    n: int
    pairs: Sequence[PairTable]
    synthesis: Synthesis
    seed: int

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """Draw records, int64[count, columns]: the place of each column's label."""
        return records(self.synthesis.weights, count, np.random.default_rng([self.seed, count]))

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [columns_of(self.plan).names[column] for column in self.columns]

    def in_words(self, drawn: npt.NDArray[np.int64]) -> list[list[str]]:
        """Return records with the labels of their columns."""
        labels = [columns_of(self.plan).labels(column) for column in self.columns]
        return [[labels[column][place] for column, place in enumerate(row)] for row in drawn.tolist()]


def synthesise_table(
    stored: StoredPlan,
    tally: Tally,
    view: View,
    progress: Progress,
    public: str | None = None,
    names: Sequence[str] = (),
) -> SyntheticTable:
    """Fit weights to the counts of a window, of one public value or of all together, for all columns or those named.

    Raises TooFew, BadTally, and ValueError for columns with more than CELLS_MAX cells.
    """
    domain, arms = columns_of(stored.plan), arms_of(stored, tally, view)
    if public is not None:
        arms = [arms[domain.public.index(public, 1) - 1]]
    questions = together(arms)
    if len(questions) < len(domain.questions) or min(question.n for question in questions) < REPORTS_MIN:
        least = REPORTS_MIN * len(domain.questions)
        raise TooFew(
            f"{sum(question.n for question in questions):,} reports are too few: each of {len(domain.questions)} "
            f"questions needs {REPORTS_MIN}, some {least:,} in all"
        )
    columns = [column for column, name in enumerate(domain.names) if name in (names or domain.names)]
    pairs = pair_tables(questions, columns)
    seed = int.from_bytes(sha256(f"{tally.digest} {public}".encode()).digest()[:8], "big")
    n = sum(question.n for question in questions)
    return SyntheticTable(stored.plan, columns, n, pairs, synthesise(pairs, progress), seed)


def pair_tables(questions: Sequence[QuestionTally], columns: Sequence[int]) -> tuple[PairTable, ...]:
    """Return the raw tables of each two of some columns, which are numbered from 0 on. Raises TooFew."""
    return tuple(
        replace(pair_table(question, pair), columns=(columns.index(pair[0]), columns.index(pair[1])))
        for question in questions
        for pair in combinations(question.columns, 2)
        if set(pair) <= set(columns)
    )
