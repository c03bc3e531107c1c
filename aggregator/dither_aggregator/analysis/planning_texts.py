"""Planning texts that nobody lists beforehand: the target is the share of one that is found four times in five.

text    it is looked for in a list of so many candidates, and stands out where it is the only one that does. With V the
        variance of one report for a text that nobody has, and S candidates

            share = (z(1 - 5 % / 2 S) + z(80 %)) sqrt(V / n)

words   it is found without a list, as words/needed.py says, if its code has about USUAL_BITS bits

Both are by the normal law, and without the part of the error that other texts add where they share its buckets: about
the square root of the sum of their squared shares over 2^19.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt

from dither_aggregator.analysis.planning import Design, Question, Unplannable
from dither_aggregator.analysis.words.needed import signal_needed, verification_line
from dither_shared.exact import EPSILON_MAX
from dither_shared.kinds import KINDS, TextKind
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.kinds.words import EPSILON_WORDS_MAX
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import critical_share, detectable_share
from dither_shared.words.groups import LAYOUTS

TEXT, WORDS = "text", "words"
LAYOUT = LAYOUTS["short"]


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
        super().__post_init__()

    @property
    def epsilon_max(self) -> Decimal:
        """The most that a report may have."""
        return EPSILON_WORDS_MAX if self.kind == WORDS else EPSILON_MAX

    def _compiled(self, epsilon: Decimal) -> _Texts:
        kind = KINDS[self.kind]
        assert isinstance(kind, TextKind)
        cells = kind.fresh_cells(epsilon)
        floor, points = sqrt(kind.noise_variance(cells)), PureMechanism.of(cells.mechanism_of(0))
        if self.kind == WORDS:
            every = sqrt(points.noise_variance)
            return _Texts(self, cells, floor, verification_line() * floor, signal_needed(LAYOUT) * every)
        ends = 2 * self.d  # of the intervals of all candidates
        return _Texts(self, cells, floor, critical_share(points, ends, 1), detectable_share(points, ends, 1))

    def answers(self) -> Sequence[str]:
        """Return the line with the name of the file of candidates; words have none."""
        if self.kind == WORDS:
            return []
        return [
            'candidates_file = "candidates.txt"  # ' + f"{self.d:,} lines, a text each; any others can be asked later"
        ]
