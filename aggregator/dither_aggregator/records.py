"""What a store hands out: plans, receipts, tallies and the rows of the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from dither_aggregator.fold import Counts
from dither_shared.errors import DitherError
from dither_shared.exact import from_micro
from dither_shared.mechanisms import Memoized
from dither_shared.plan import Plan


class StoreError(DitherError):
    """A store that cannot be opened or used, with the next step to take."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan under which reports are, or were, accepted."""

    id: int
    plan: Plan
    question: str
    candidates: tuple[str, ...]
    """Of a text: what is looked for unless somebody asks for something else."""
    reservation: int
    """The most that the metric may charge one device, ever, in micro-epsilon."""
    expires: date
    current: bool
    """Whether it is what the registry says now."""

    @property
    def epsilon(self) -> float:
        """The privacy loss of one report."""
        return from_micro(self.plan.mechanism.charge)

    @property
    def epsilon_permanent(self) -> float | None:
        """The privacy loss of all the reports of one memoized answer; None for fresh noise."""
        mechanism = self.plan.mechanism
        return from_micro(mechanism.permanent.charge) if isinstance(mechanism, Memoized) else None

    @property
    def epsilon_lifetime(self) -> float:
        """The privacy loss of all the reports of a device's life."""
        return from_micro(self.reservation)


@dataclass(frozen=True)
class Receipt:
    """What became of one upload: the answer to it, now and for every copy."""

    upload: str
    accepted: int
    duplicate: bool
    rejected: Sequence[dict[str, object]]

    def to_document(self) -> dict[str, object]:
        """Return the body of a 202."""
        return {
            "upload": self.upload,
            "accepted": self.accepted,
            "duplicate": self.duplicate,
            "rejected": list(self.rejected),
        }


@dataclass(frozen=True)
class LedgerRow:
    """The reports of one metric, plan and epoch, by where they are."""

    metric: str
    plan: str
    epoch: str
    accepted: int
    folded: int
    pending: int
    quarantined: int

    @property
    def balanced(self) -> bool:
        """Whether every accepted report is somewhere, and nowhere twice."""
        return self.accepted == self.folded + self.pending + self.quarantined


@dataclass(frozen=True)
class Tally:
    """The count vector of a plan and epoch, with the number of reports in it."""

    n: int
    counts: Counts
