"""Planning texts that nobody lists beforehand: the target is the share of one that is found four times in five.

text    it is looked for in a list of so many candidates, and stands out where it is the only one that does. With V the
        variance of one report for a text that nobody has, and S candidates

            share = (z(1 - 5 % / 2 S) + z(80 %)) sqrt(V / n)

words   it is found without a list, as words/needed.py says, if its code has about USUAL_BITS bits

Both are by the normal law, and without the part of the error that other texts add where they share its buckets: about
the square root of the sum of their squared shares over 2^19.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from statistics import NormalDist

from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.planning import Computed, Design, Question, Unplannable
from dither_aggregator.analysis.planning_shares import PlannedShare
from dither_aggregator.analysis.words.needed import signal_needed, verification_line
from dither_shared.cells import Cells
from dither_shared.errors import DitherError
from dither_shared.exact import EPSILON_MAX
from dither_shared.kinds import KINDS
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.kinds.words import EPSILON_WORDS_MAX
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import POWER
from dither_shared.toml_tables import TomlTable
from dither_shared.words.groups import LAYOUTS

TEXT, WORDS = "text", "words"
LAYOUT = LAYOUTS["short"]


@dataclass(frozen=True)
class PlannedText(PlannedShare):
    """The precision of texts from n reports."""

    question: "TextQuestion"
    cells: Cells
    floor: float
    """The standard error of one report, for a text that nobody has: of those that verify it."""

    @property
    def noise_floor(self) -> float:
        """The standard error of a text that nobody has."""
        return self.floor / sqrt(self.n)

    @property
    def odds(self) -> float:
        """e^epsilon of one report."""
        return float(self.cells.exp_epsilon)

    @property
    def mechanism_name(self) -> str:
        """The name of the mechanism of all cells."""
        return self.cells.name

    @property
    def bits(self) -> int:
        """Those of a report, in whichever cell."""
        return self.cells.report_bits


@dataclass(frozen=True)
class _Reports(Design[PlannedText]):
    question: "TextQuestion"
    epsilon: Decimal
    cells: Cells
    critical: float
    """The critical share of one report, by the normal law; that of n is sqrt(n) times smaller."""
    detectable: float
    """The detectable share of one report, likewise."""
    floor: float
    """The noise floor of one report, likewise."""

    def target(self, n: int) -> float | None:
        """Return the detectable share."""
        share = self.detectable / sqrt(n)
        return share if share <= 1 else None

    def n_about(self, wanted: float) -> float:
        """Return it, all but rounded."""
        return (self.detectable / wanted) ** 2

    def planned(self, n: int, computed: Computed, wanted: float | None) -> PlannedText:
        """Return the shares that n reports show."""
        shares = self.critical / sqrt(n), self.target(n)
        return PlannedText(self.question, n, self.epsilon, computed, wanted, *shares, self.cells, self.floor)


@dataclass(frozen=True)
class TextQuestion(Question[PlannedText]):
    """A fresh text that is looked for among d candidates, or words, of which a search proposes about d."""

    target_name = "share"
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

    def _compiled(self, epsilon: Decimal) -> _Reports:
        kind = KINDS[self.kind]
        keys = {"epsilon": epsilon, "reports": 1}
        try:
            cells = kind.read_table(TomlTable("the plan", "", keys), None, metric="plan", hidden=False).cells
        except DitherError as error:
            raise Unplannable(f"{error}") from None
        floor = sqrt(kind.noise_variance(cells))
        if self.kind == TEXT:
            critical = -NormalDist().inv_cdf((1 - CONFIDENCE) / 2 / self.d) * floor
            return _Reports(self, epsilon, cells, critical, critical + NormalDist().inv_cdf(POWER) * floor, floor)
        every = sqrt(PureMechanism.of(cells.mechanism_of(0)).noise_variance)
        return _Reports(self, epsilon, cells, verification_line() * floor, signal_needed(LAYOUT) * every, floor)

    def answers(self) -> Sequence[str]:
        """Return the line with the name of the file of candidates; words have none."""
        if self.kind == WORDS:
            return []
        return [
            'candidates_file = "candidates.txt"  # ' + f"{self.d:,} lines, a text each; any others can be asked later"
        ]

    def life(self) -> Sequence[str]:
        """Return the line for one report."""
        return ["reports = 1  # in a device's life; each further one costs epsilon again"]

    def reserved(self, epsilon: Decimal) -> Decimal:
        """Return what one report reserves."""
        return epsilon
