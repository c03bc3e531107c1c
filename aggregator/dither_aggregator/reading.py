"""A reading: the estimates of one metric on one day, as the API and the pages show them."""

from dataclasses import dataclass
from datetime import date

from dither_aggregator.estimate import Estimates, estimate_shares
from dither_aggregator.records import StoredPlan
from dither_aggregator.store import Store


@dataclass(frozen=True)
class Row:
    """One value's estimate: shares of the n reports, not percent."""

    value: str
    estimate: float
    std_error: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Reading:
    """What is known of a metric, under one plan, on one epoch."""

    stored: StoredPlan
    epoch: date
    provisional: bool
    """More reports may still come: no verdicts, no ranks."""
    n: int
    rows: tuple[Row, ...]
    """One for each value, in the plan's order; empty while there is no report."""
    noise_floor: float | None

    def to_document(self) -> dict[str, object]:
        """Return the API's answer."""
        plan = self.stored.plan
        return {
            "metric": plan.metric,
            "plan": plan.digest,
            "rev": plan.rev,
            "mechanism": plan.mechanism.name,
            "epoch": self.epoch.isoformat(),
            "n": self.n,
            "provisional": self.provisional,
            "epsilon": self.stored.epsilon,
            "noise_floor": self.noise_floor,
            "rows": [vars(row) for row in self.rows],
        }


def read(store: Store, stored: StoredPlan, epoch: date) -> Reading:
    """Estimate every value of a plan on an epoch from what is folded now."""
    plan = stored.plan
    provisional = store.is_open(plan, epoch)
    tally = store.tally(plan, epoch)
    if tally.n == 0:
        return Reading(stored, epoch, provisional, 0, (), None)
    estimates = estimate_shares(plan.mechanism, tally.counts, tally.n)
    return Reading(stored, epoch, provisional, tally.n, _rows(plan.values, estimates), estimates.noise_floor)


def _rows(values: tuple[str, ...], estimates: Estimates) -> tuple[Row, ...]:
    columns = (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    return tuple(
        Row(value, *numbers) for value, *numbers in zip(values, *(column.tolist() for column in columns), strict=True)
    )
