"""Planning a metric with listed values: the target is the share of a value that stands out from the noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from dither_aggregator.analysis.planning import Design, Question, Unplannable
from dither_aggregator.analysis.pure import significance_shares, variance
from dither_shared.cells import one_cell
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


class _Shares(Design["ShareQuestion"]):
    @property
    def mechanism(self) -> PureMechanism:
        """What randomizes: a metric with listed values has one cell."""
        return PureMechanism.of(self.cells.mechanism)

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the shares of a page: the noise floor, the least estimate that stands out, and the share that does."""
        repeats = self.question.repeats
        floor = float(np.sqrt(variance(self.mechanism, np.zeros(1), n, "reports", repeats))[0])
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
        if self.kind not in KINDS:
            raise Unplannable(f"the kind must be one of {', '.join(KINDS)}, got {self.kind}")
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

    def memo(self) -> Sequence[str]:
        """Return the lines for one memoized answer."""
        answers = "answers = 1  # different ones in a device's life; each further one costs epsilon_permanent again"
        return [*super().memo(), answers]
