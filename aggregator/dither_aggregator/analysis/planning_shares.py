"""Planning a metric with listed values: the target is the share of a value that stands out from the noise."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from dither_aggregator.analysis.planning import Computed, Design, Planned, Question, Unplannable
from dither_aggregator.analysis.pure import significance_shares, variance
from dither_shared.kinds.choices import TICKS_MAX
from dither_shared.kinds.listed import VALUES_MAX
from dither_shared.mechanisms import PureMechanism, choose
from dither_shared.precision import detectable_share

KINDS = ("choice", "choices", "flag")
"""Kinds whose detectable share follows from n alone: a text's depends on the other answers, too."""
D_MAX = VALUES_MAX + 1
"""The listed values, and "other"."""
VALUES_SHOWN_MAX = 12
"""Longer lists of values are in a file."""


@dataclass(frozen=True)
class PlannedShare(Planned):
    """A plan whose target is a share of the n reports: not percent."""

    critical_share: float | None
    """The least estimate that stands out; None where none does."""
    detectable_share: float | None
    """A true share of this stands out four times in five; None where none does."""

    @property
    def target(self) -> float | None:
        """The detectable share."""
        return self.detectable_share

    @property
    def share(self) -> float | None:
        """The share that was asked for, which is at least the detectable one; else the detectable one."""
        return self.wanted or self.detectable_share

    @property
    @abstractmethod
    def noise_floor(self) -> float:
        """The standard error of what nobody has."""

    @property
    @abstractmethod
    def mechanism_name(self) -> str:
        """How the mechanism of a report is called."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits a report has."""

    def to_document(self) -> Mapping[str, object]:
        """Return the mechanism and shares."""
        return {
            "d": self.question.d,
            "mechanism": self.mechanism_name,
            "bits": self.bits,
            "noise_floor": self.noise_floor,
            "critical_share": self.critical_share,
            "detectable_share": self.detectable_share,
        }

    def in_meta(self) -> Mapping[str, object]:
        """Return the share."""
        return {"share": self.share}


@dataclass(frozen=True)
class PlannedShares(PlannedShare):
    """A plan of listed values."""

    question: "ShareQuestion"
    mechanism: PureMechanism

    @property
    def noise_floor(self) -> float:
        """The standard error of a value that nobody has."""
        return float(np.sqrt(variance(self.mechanism, np.zeros(1), self.n, "reports", self.question.repeats))[0])

    @property
    def odds(self) -> float:
        """e^epsilon of one report."""
        return float(self.mechanism.exp_epsilon)

    @property
    def mechanism_name(self) -> str:
        """The name of the one mechanism: a metric with listed values has no other."""
        return self.mechanism.name

    @property
    def bits(self) -> int:
        """Those of its report."""
        return self.mechanism.shape.bits

    def to_document(self) -> Mapping[str, object]:
        """Return the mechanism and shares."""
        return {**super().to_document(), "ticks": self.question.ticks}


@dataclass(frozen=True)
class _Mechanism(Design[PlannedShares]):
    question: "ShareQuestion"
    epsilon: Decimal
    mechanism: PureMechanism

    def target(self, n: int) -> float | None:
        """Return the detectable share."""
        return self._significance(n)[1]

    def _significance(self, n: int) -> tuple[float | None, float | None]:
        return significance_shares(self.mechanism, n, repeats=self.question.repeats)

    def n_about(self, wanted: float) -> float:
        """Return it by the normal law of the planning figures."""
        return (detectable_share(self.mechanism, self.question.d, 1) / wanted) ** 2 * self.question.repeats

    def planned(self, n: int, computed: Computed, wanted: float | None) -> PlannedShares:
        """Return the shares that n reports show."""
        return PlannedShares(self.question, n, self.epsilon, computed, wanted, *self._significance(n), self.mechanism)


@dataclass(frozen=True)
class ShareQuestion(Question[PlannedShares]):
    """A metric with listed values: d of them, "other" included, or the two of a flag."""

    ticks: int | None = None
    """The most values of one answer, for choices."""

    target_name = "share"
    too_small = "so small a share"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Unplannable(f"the kind must be one of {', '.join(KINDS)}, got {self.kind}")
        if not 2 <= self.d <= D_MAX or (self.kind == "flag" and self.d != 2):
            raise Unplannable(f"d must be from 2 to {D_MAX:,}, and 2 of a flag, got {self.d:,}")
        if (self.ticks is not None) != (self.kind == "choices"):
            raise Unplannable("ticks are of choices, and choices need them")
        if self.ticks is not None and not 2 <= self.ticks <= min(self.d, TICKS_MAX):
            raise Unplannable(f"ticks must be from 2 to {min(self.d, TICKS_MAX)}, got {self.ticks}")
        super().__post_init__()

    def _compiled(self, epsilon: Decimal) -> _Mechanism:
        mechanism = choose(self.d, epsilon, ticks=self.ticks, permanent=self.epsilon_permanent)
        return _Mechanism(self, epsilon, mechanism)

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

    def life(self) -> Sequence[str]:
        """Return the lines for one report, or one memoized answer."""
        if self.epsilon_permanent is None:
            return ["reports = 1  # in a device's life; each further one costs epsilon again"]
        return [
            "memoize = true",
            f"epsilon_permanent = {self.epsilon_permanent:f}",
            "answers = 1  # different ones in a device's life; each further one costs epsilon_permanent again",
        ]

    def reserved(self, epsilon: Decimal) -> Decimal:
        """Return what one report or answer reserves."""
        return self.epsilon_permanent or epsilon
