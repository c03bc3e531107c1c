"""Planning shares: the target is that of a value, a text or a word which stands out four times in five.

listed  it stands out from the noise by the exact law of a page, which the normal one is close to where counts are large
text    it is looked for in a list of so many candidates, and stands out where it is the only one that does. With V the
        variance of one report for a text that nobody has, and S candidates

            share = (z(1 - 5 % / 2 S) + z(80 %)) sqrt(V / n)

words   it is found without a list, as kinds/words_precision.py says, if its code has about USUAL_BITS bits

Texts and words are by the normal law, and without the part of the error that other texts add where they share its
buckets: about the square root of the sum of their squared shares over 2^19.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt

import numpy as np

from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.planning import Design, Question, Unplannable
from dither_aggregator.analysis.pure import significance_shares
from dither_shared.cells import one_cell
from dither_shared.exact import EPSILON_MAX
from dither_shared.kinds import KINDS, TextKind
from dither_shared.kinds.choices import TICKS_MAX
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.kinds.listed import VALUES_MAX
from dither_shared.kinds.words import EPSILON_WORDS_MAX, WordsKind
from dither_shared.kinds.words_precision import signal_needed, verification_line
from dither_shared.mechanisms import PureMechanism, choose
from dither_shared.precision import critical_share, detectable_share
from dither_shared.words.alphabets import ALPHABETS, load
from dither_shared.words.groups import LAYOUTS, Layout

LISTED, TEXT, WORDS = ("choice", "choices", "flag"), "text", "words"
LAYOUT = LAYOUTS["short"]
ENGLISH = "english"
"""The code of words whose registry names no alphabet."""
D_MAX = VALUES_MAX + 1
"""The listed values, and "other"."""
VALUES_SHOWN_MAX = 12
"""Longer lists of values are in a file."""


class _Shares(Design["ShareQuestion"]):
    @property
    def mechanism(self) -> PureMechanism:
        """The mechanism of the one cell that a metric with listed values has."""
        return PureMechanism.of(self.cells.mechanism)

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the shares of a page: the noise floor, the least estimate that stands out, and the share that does."""
        repeats = self.question.repeats
        floor = float(np.sqrt(share_variance(self.mechanism, np.zeros(1), n, "reports", repeats))[0])
        critical, detectable = significance_shares(self.mechanism, n, repeats=repeats)
        return {"noise_floor": floor, "critical_share": critical, "detectable_share": detectable}

    def target(self, n: int) -> float | None:
        """Return the share that stands out."""
        return significance_shares(self.mechanism, n, repeats=self.question.repeats)[1]

    def n_about(self, wanted: float) -> float:
        """Return it by the normal law of the planning figures."""
        return (detectable_share(self.mechanism, self.question.d, 1) / wanted) ** 2 * self.question.repeats


@dataclass(frozen=True)
class ShareQuestion(Question):
    """A metric with listed values: d of them, "other" included, or the two of a flag."""

    ticks: int | None = None
    """The most values of one answer, for choices."""

    target_name = "share"
    target_figure = "detectable_share"
    too_small = "so small a share"

    def __post_init__(self) -> None:
        if self.kind not in LISTED:
            raise Unplannable(f"the kind must be one of {', '.join(LISTED)}, got {self.kind}")
        if not 2 <= self.d <= D_MAX or (self.kind == "flag" and self.d != 2):
            raise Unplannable(f"d must be from 2 to {D_MAX:,}, and 2 of a flag, got {self.d:,}")
        if (self.ticks is not None) != (self.kind == "choices"):
            raise Unplannable("ticks are of choices, and choices need them")
        if self.ticks is not None and not 2 <= self.ticks <= min(self.d, TICKS_MAX):
            raise Unplannable(f"ticks must be from 2 to {min(self.d, TICKS_MAX)}, got {self.ticks}")
        super().__post_init__()

    def _compiled(self, epsilon: Decimal) -> _Shares:
        return _Shares(self, one_cell(choose(self.d, epsilon, ticks=self.ticks, permanent=self.epsilon_permanent)))

    def answers(self) -> Sequence[str]:
        """Return the lines with the values, or with the name of their file."""
        if self.kind == "flag":
            return []
        listed = self.d - 1
        lines = ['values_file = "values.txt"  # ' + f"{listed:,} lines, a value each; other comes by itself"]
        if listed <= VALUES_SHOWN_MAX:
            names = ", ".join(f'"value {number}"' for number in range(1, listed + 1))
            lines = [f"values = [{names}]  # other comes by itself"]
        return lines if self.ticks is None else [*lines, f"ticks_max = {self.ticks}"]

    def memo(self) -> str:
        """Return the line for one memoized answer."""
        return "\nanswers = 1  # different ones in a device's life; each further one costs epsilon_permanent again"


@dataclass(frozen=True)
class _Texts(Design["TextQuestion"]):
    floor: float
    """The standard error of one report, for a text that nobody has: of those that verify it."""
    critical: float
    """The critical share of one report, by the normal law; that of n is sqrt(n) times smaller."""
    detectable: float
    """The detectable share of one report, likewise."""

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the shares, of which none is above 1."""
        share = self.detectable / sqrt(n)
        return {
            "noise_floor": self.floor / sqrt(n),
            "critical_share": self.critical / sqrt(n),
            "detectable_share": share if share <= 1 else None,
        }

    def n_about(self, wanted: float) -> float:
        """Return it, all but rounded."""
        return (self.detectable / wanted) ** 2


@dataclass(frozen=True)
class TextQuestion(Question):
    """A fresh text that is looked for among d candidates, or words, of which a search proposes about d."""

    alphabet: str = ENGLISH
    """The code of words, and the levels in which they are looked for."""

    target_name = "share"
    target_figure = "detectable_share"
    too_small = "so small a share"

    def __post_init__(self) -> None:
        if self.kind not in (TEXT, WORDS):
            raise Unplannable(f"the kind must be {TEXT} or {WORDS}, got {self.kind}")
        if self.epsilon_permanent is not None:
            raise Unplannable("only fresh texts are planned: leave out epsilon_permanent")
        if not 1 <= self.d <= CANDIDATES_MAX:
            raise Unplannable(f"d must be from 1 to {CANDIDATES_MAX:,}, got {self.d:,}")
        if self.alphabet not in (ENGLISH, *(ALPHABETS if self.kind == WORDS else ())):
            raise Unplannable(f"the alphabet of words must be {ENGLISH} or one of {', '.join(ALPHABETS)}")
        super().__post_init__()

    @property
    def epsilon_max(self) -> Decimal:
        """The most that a report may have."""
        return EPSILON_WORDS_MAX if self.kind == WORDS else EPSILON_MAX

    @property
    def layout(self) -> Layout:
        """The levels of short words in their alphabet."""
        if self.alphabet == ENGLISH:
            return LAYOUT
        _, levels, weights = load(self.alphabet)
        return Layout(levels, weights)

    def _compiled(self, epsilon: Decimal) -> _Texts:
        kind = KINDS[self.kind]
        assert isinstance(kind, TextKind)
        cells = kind.fresh_cells(epsilon, self.layout) if isinstance(kind, WordsKind) else kind.fresh_cells(epsilon)
        floor, points = sqrt(kind.noise_variance(cells)), PureMechanism.of(cells.mechanism_of(0))
        if self.kind == WORDS:
            every = sqrt(points.noise_variance)
            return _Texts(self, cells, floor, verification_line() * floor, signal_needed(self.layout) * every)
        ends = 2 * self.d  # of the intervals of all candidates
        return _Texts(self, cells, floor, critical_share(points, ends, 1), detectable_share(points, ends, 1))

    def answers(self) -> Sequence[str]:
        """Return the line with the name of the file of candidates; of words with their alphabet, if they name one."""
        if self.kind == WORDS:
            return [] if self.alphabet == ENGLISH else [f'alphabet = "{self.alphabet}"']
        return [
            'candidates_file = "candidates.txt"  # ' + f"{self.d:,} lines, a text each; any others can be asked later"
        ]
