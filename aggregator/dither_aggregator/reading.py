"""A reading: the estimates of one metric on one day, as the API and the pages show them."""

from dataclasses import dataclass
from datetime import date

from dither_aggregator.decode import support_counts
from dither_aggregator.estimate import CONFIDENCE, ErrorOf, Estimates, Method, estimate_shares
from dither_aggregator.normalise import METHODS, Normalised
from dither_aggregator.records import StoredPlan
from dither_aggregator.store import Store
from dither_shared.precision import critical_share, detectable_share


@dataclass(frozen=True)
class View:
    """How a reader wants the estimates."""

    error_of: ErrorOf = "reports"
    simultaneous: bool = False
    normalised: str | None = None
    """A key of `normalise.METHODS`, for a second column."""


@dataclass(frozen=True)
class Row:
    """One value's estimate: shares of the n reports, not percent."""

    value: str
    estimate: float
    std_error: float
    lower: float
    upper: float
    normalised: float | None = None

    def to_document(self) -> dict[str, object]:
        """Return the row of the API's answer."""
        return {name: number for name, number in vars(self).items() if number is not None}


@dataclass(frozen=True)
class Reading:
    """What is known of a metric, under one plan, on one epoch."""

    stored: StoredPlan
    epoch: date
    provisional: bool
    """More reports may still come: no verdicts, no ranks."""
    n: int
    rows: tuple[Row, ...] = ()
    """One for each value, in the plan's order; empty while there is no report."""
    noise_floor: float | None = None
    method: Method | None = None
    view: View = View()
    normalised: Normalised | None = None

    def to_document(self) -> dict[str, object]:
        """Return the API's answer."""
        plan = self.stored.plan
        document: dict[str, object] = {
            "metric": plan.metric,
            "plan": plan.digest,
            "rev": plan.rev,
            "mechanism": plan.mechanism.name,
            "epoch": self.epoch.isoformat(),
            "n": self.n,
            "provisional": self.provisional,
            "epsilon": self.stored.epsilon,
            "epsilon_lifetime": self.stored.epsilon_lifetime,
            "noise_floor": self.noise_floor,
            "critical_share": critical_share(plan.mechanism, self.n) if self.n else None,
            "detectable_share": detectable_share(plan.mechanism, self.n) if self.n else None,
            "error_of": self.view.error_of,
            "interval": {
                "method": self.method,
                "confidence": CONFIDENCE,
                "simultaneous": self.view.simultaneous,
            },
            "rows": [row.to_document() for row in self.rows],
        }
        if self.normalised:
            document["normalised"] = self.normalised.to_document()
        return document


def read(store: Store, stored: StoredPlan, epoch: date, view: View = View()) -> Reading:
    """Estimate every value of a plan on an epoch from what is folded now."""
    plan = stored.plan
    provisional = store.is_open(plan, epoch)
    tally = store.tally(plan, epoch)
    if tally.n == 0:
        return Reading(stored, epoch, provisional, 0, view=view)
    mechanism = plan.mechanism
    support = support_counts(mechanism, tally.counts, tally.n)
    estimates = estimate_shares(mechanism, support, tally.n, error_of=view.error_of, simultaneous=view.simultaneous)
    normalised = METHODS[view.normalised](mechanism, support, tally.n) if view.normalised else None
    return Reading(
        stored,
        epoch,
        provisional,
        tally.n,
        _rows(plan.values, estimates, normalised),
        estimates.noise_floor,
        estimates.method,
        view,
        normalised,
    )


def _rows(values: tuple[str, ...], estimates: Estimates, normalised: Normalised | None) -> tuple[Row, ...]:
    columns = [
        column.tolist() for column in (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    ]
    shares = normalised.shares.tolist() if normalised else [None] * len(values)
    return tuple(Row(*numbers) for numbers in zip(values, *columns, shares, strict=True))
