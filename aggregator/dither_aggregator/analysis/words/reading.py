"""The reading of words: those that the tallies name, and the starts of longer ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from threading import Condition
from typing import Annotated

import numpy as np
from cachetools import LRUCache, cached
from scipy.special import ndtr

from dither_aggregator.analysis.functional import answers_part
from dither_aggregator.analysis.multiplicity import simes
from dither_aggregator.analysis.reading import NO_LINES, BadView, Estimand, Lines, Reading, View
from dither_aggregator.analysis.reading_cache import part_once, tell_progress
from dither_aggregator.analysis.released import SURE_OF_N, Released, ReleasedTally
from dither_aggregator.analysis.released_texts import read_supports
from dither_aggregator.analysis.rows import Row, says
from dither_aggregator.analysis.significance import BINS, Significance, bin_estimates, rank
from dither_aggregator.analysis.windows import reports_max
from dither_aggregator.analysis.words.search import Level, Prefix, Progress, Proposed, search
from dither_aggregator.analysis.words.sketches import Sketch
from dither_aggregator.analysis.words.verdict import FoundWords, Wanted, Word, find_words, verified
from dither_aggregator.counting.folding import Counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.cells import Part
from dither_shared.domains import Coded
from dither_shared.domains.coded_words import UNTYPED
from dither_shared.mechanisms import PureMechanism
from dither_shared.plan import Plan
from dither_shared.releases import NAMES_MAX
from dither_shared.words.groups import PROPOSED, ROWS
from dither_shared.words.prefixes import Start

_OF_OTHERS = frozenset({"error_of", "normalised", "candidates", "simultaneous"})
SEARCHES_MAX = 64
"""Tallies of which the proposals are kept, some hundred prefixes each."""
LONGER = "…"
"""Follows the start of longer texts."""


@dataclass(frozen=True)
class WordRow(Row):
    """One text that the search proposed, or one start of longer ones: shares of the n reports, not percent."""

    z: Annotated[float, says("for words: how far it stands out, in standard errors of a normal law")]
    whole: Annotated[bool, says("for words: whether it is a whole text, and not the start of longer ones")]
    named: bool | None
    """Whether somebody has it; None while more reports may come."""


@dataclass(frozen=True)
class WordsReading(Reading):
    """The texts that were proposed, the largest first, and the starts of longer ones that stand out."""

    rows: Sequence[WordRow] = ()

    def answers_part(self, row: Row) -> float:
        """Return that of a share among the reports of the verification group, which tell it."""
        parts = self.stored.plan.cells.parts
        n = self.n * parts[-1].weight / sum(part.weight for part in parts)
        return float(answers_part(row.estimate, row.std_error, n, self.repeats))

    def _find_significance(self) -> Significance | None:
        """Return the words that are named, by the verdict on each."""
        if not self.rows:
            return None
        untexts = Coded.of(self.stored.plan.domain).untexts
        unlisted = [row for row in self.rows if row.value in untexts]
        rows = [row for row in self.rows if row.value not in untexts]
        significant = [row for row in rows if row.named]
        rest = [row for row in rows if not row.named]
        scores = np.array([row.z for row in rest])
        edges = np.linspace(min(-4.0, *scores, 0.0), max(4.0, *scores, 0.0), BINS + 1)
        bins = bin_estimates(scores, edges, ndtr) if rest else ()
        chance = simes(np.minimum(2 * ndtr(-np.array([row.z for row in rows if row.whole])), 1.0))
        return Significance(
            rank(significant, rest), unlisted, rest, bins, p_value=chance, scores=True, noun="proposed text"
        )

    @property
    def nothing_to_show(self) -> str:
        """Say what would help."""
        return "No word stands out: more reports, or more days, may show some."

    def own_document(self) -> Lines:
        """Return nothing of its own: which share is found depends on the length of a word."""
        return NO_LINES


class WordsEstimand(Estimand[WordsReading]):
    """Texts that nobody listed."""

    name = "words"
    role = "found"
    ranks = True
    slow = True
    noun = "searching words"
    records = (WordsReading, WordRow)
    looks_up = True

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values and for candidates; intervals always hold together."""
        if asked & _OF_OTHERS or view.candidates is not None:
            raise BadView("error_of, normalised, candidates and simultaneous are for metrics with a list of values")

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the answers that are no text: words are not known before they are found."""
        return Coded.of(stored.plan.domain).untexts

    def knows(self, stored: StoredPlan, name: str) -> bool:
        """Tell whether it may be a whole text: any of these can be looked up in the verification group."""
        return not name.endswith(LONGER)

    def compared(self, before: WordsReading, after: WordsReading) -> tuple[str, ...] | None:
        """Return the whole texts that either window proposes: most that come or go are proposed by one alone."""
        texts = (row.value for reading in (after, before) for row in reading.rows if row.whole)
        return tuple(dict.fromkeys(texts)) or None

    def found_names(self, tally: ReleasedTally) -> tuple[str, ...]:
        """Return the texts that a search of the levels proposes, and behind them the answers that are no text.

        A row with too few reports beside the error of their number is not read.
        """
        plan, domain = tally.plan, Coded.of(tally.plan.domain)
        *levels, _ = tables(plan.cells, tally.counts)
        own = [
            Level(length, _noisy_sketch(domain, tally, *each))
            for length, each in zip(domain.levels, levels, strict=True)
        ]
        texts = filter(domain.is_reportable, search(own, alphabet=domain.groups.alphabet).texts)
        shown = dict.fromkeys(domain.shown(typed) for typed in texts if typed not in UNTYPED)
        return (*tuple(shown)[:NAMES_MAX], *domain.untexts)

    def released(self, tally: ReleasedTally) -> Released:
        """Return the texts that are named, and the answers that are none: intervals hold together over all looked up.

        A text is named if its interval lies above zero. One that is found by the same noise has none of its own.
        """
        told, untexts = read_supports(tally), Coded.of(tally.plan.domain).untexts
        named = (row for row in told.rows if row.lower > 0 or row.value in untexts)
        return replace(told, rows=[replace(row, own_lower=row.lower, own_upper=row.upper) for row in named])

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> WordsReading:
        """Search the tally for words; where the view names some, look up just these."""
        view = replace(view, error_of="population", simultaneous=True)
        if tally.n == 0:
            return WordsReading(stored, epoch, provisional, 0, view, snapshot, None, None)
        wanted = Wanted(view.confidence, reports_max(stored, view.days))
        if view.values is not None:
            wanted = replace(wanted, together=PROPOSED * view.together)
            floor, rows = look_up(stored.plan, tally, view.values, wanted)
        else:
            floor, words = search_tally(stored.plan, tally, wanted)
            rows = rows_of(stored.plan, words)
        shown = tuple(replace(row, named=None if provisional else row.named) for row in rows)
        return WordsReading(stored, epoch, provisional, tally.n, view, snapshot, floor, "wald", rows=shown)


def look_up(plan: Plan, tally: Tally, values: Sequence[str], wanted: Wanted) -> tuple[float, list[WordRow]]:
    """Return the same standard error, and rows of texts that somebody names: by the verification group alone.

    They are looked for in the form in which devices tell them apart. If several names are one text, the first has the
    row.
    """
    domain = Coded.of(plan.domain)
    *_, last = tables(plan.cells, tally.counts)
    verification = _sketch(domain, *last)
    named: dict[bytes, str] = {}
    for value in values:
        if not value.endswith(LONGER):
            named.setdefault(domain.typed_of(value), value)
    words = verified(tuple(named), verification, wanted)
    return verification.std_error, [replace(_row(domain, word, whole=True), value=named[word.typed]) for word in words]


def _sketch(domain: Coded, part: Part, table: Counts, first: int) -> Sketch:
    multipliers = [domain.groups.multiplier(first // ROWS, row) for row in range(ROWS)]
    return Sketch.of_tally(PureMechanism.of(part.mechanism), table, multipliers)


def _noisy_sketch(domain: Coded, tally: ReleasedTally, part: Part, table: Counts, first: int) -> Sketch:
    """Return the rows of a level of a release: the variance that its noise adds is that of a text that nobody has."""
    mechanism = PureMechanism.of(part.mechanism)
    table = table.copy()
    table[table[:, 0] < SURE_OF_N * tally.error_of(mechanism.shape), 0] = 0
    multipliers = [domain.groups.multiplier(first // ROWS, row) for row in range(ROWS)]
    return Sketch.of_tally(mechanism, table, multipliers, tally.noise.of_share(mechanism, 1))


def search_tally(
    plan: Plan, tally: Tally, wanted: Wanted, progress: Progress = lambda done: None
) -> tuple[float, FoundWords]:
    """Return the standard error of a text that nobody has, and the words of a tally. Takes seconds."""
    domain = Coded.of(plan.domain)
    *_, last, verification = (each for each in tables(plan.cells, tally.counts))
    proposed = _proposed(plan, tally, progress)  # before the sketches, which are large
    sketch = _sketch(domain, *verification)
    words = find_words(
        proposed,
        _sketch(domain, *last),
        sketch,
        known=UNTYPED[: len(domain.untexts)],
        is_reportable=domain.is_reportable,
        may_begin=domain.may_begin,
        wanted=wanted,
    )
    return sketch.std_error, words


def _tally_key(plan: Plan, tally: Tally, progress: Progress) -> tuple[str, str, str]:
    return plan.metric, plan.digest, tally.digest


@cached(LRUCache(SEARCHES_MAX), key=_tally_key, condition=Condition())
def _proposed(plan: Plan, tally: Tally, progress: Progress) -> Proposed:
    """Search the levels of a tally. Several views of it differ in what they make of this, and it takes seconds."""
    domain = Coded.of(plan.domain)

    def report_progress(done: float) -> None:
        level = min(int(done * len(domain.levels)) + 1, len(domain.levels))
        tell_progress(f"searching words, level {level} of {len(domain.levels)}")
        progress(done)

    def made() -> Proposed:
        report_progress(0.0)
        *levels, _ = tables(plan.cells, tally.counts)
        sketches = [_sketch(domain, *each) for each in levels]
        own = [Level(*each) for each in zip(domain.levels, sketches, strict=True)]
        return search(own, report_progress, domain.groups.alphabet)

    return part_once("search", (plan.metric, plan.digest, tally.digest), made, (Proposed, Prefix, Start))


def rows_of(plan: Plan, words: FoundWords) -> list[WordRow]:
    """Return a row for each proposed text, the largest first, then for each start of longer ones that stands out."""
    domain = Coded.of(plan.domain)
    return [
        *(_row(domain, word, whole=True) for word in words.proposed),
        *(_row(domain, word, whole=False) for word in words.longer),
    ]


def _row(domain: Coded, word: Word, *, whole: bool) -> WordRow:
    return WordRow(
        domain.shown(word.typed) + ("" if whole else LONGER),
        word.estimate,
        word.std_error,
        word.lower,
        word.upper,
        word.z,
        whole,
        word.stands_out,
    )
