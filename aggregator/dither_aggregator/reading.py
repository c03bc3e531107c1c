"""A reading: the estimates of one metric on one day, as the API and the pages show them."""

from dataclasses import dataclass, replace
from datetime import date
from statistics import median

from dither_aggregator.decode import support_counts
from dither_aggregator.estimate import CONFIDENCE, ErrorOf, Estimates, Method, estimate_shares, exact_shares
from dither_aggregator.fold import BadTally
from dither_aggregator.normalise import METHODS, Normalised
from dither_aggregator.rappor.candidates import decode_candidates
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_shared.errors import DitherError
from dither_shared.mechanisms import RAPPOR, PureMechanism


class TallyGone(DitherError):
    """The counts of an epoch are no longer kept: `snapshot` is the id of what was made of them."""

    def __init__(self, snapshot: str) -> None:
        super().__init__(f"the counts of this day are no longer kept; what was made of them is snapshot {snapshot}")
        self.snapshot = snapshot


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
    proportion: float | None = None
    """Of a text: the share of the constrained fit, 0 where it was not selected."""
    significant: bool | None = None
    significant_holm: bool | None = None
    group: str | None = None
    """Of a text: "", or the candidate whose bits are the same in every cohort, so that the two cannot be told apart."""

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
    critical_share: float | None = None
    detectable_share: float | None = None
    method: Method | None = None
    view: View = View()
    normalised: Normalised | None = None
    snapshot: str | None = None
    """The id of what was recorded of the epoch once it was final."""
    fit: dict[str, object] | None = None
    """Of a text: how well the candidates explain the reports, and what they leave."""

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
            "snapshot": self.snapshot,
            "epsilon": self.stored.epsilon,
            "epsilon_lifetime": self.stored.epsilon_lifetime,
            "noise_floor": self.noise_floor,
            "critical_share": self.critical_share,
            "detectable_share": self.detectable_share,
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
        if self.fit is not None:
            document["fit"] = self.fit
        return document


def read(
    store: Store, stored: StoredPlan, epoch: date, view: View = View(), candidates: tuple[str, ...] | None = None
) -> Reading:
    """Estimate every value of a plan on an epoch from what is folded now.

    Of a text, every one of the `candidates`, by default those of the registry. Raises TallyGone when the tally is no
    longer kept.
    """
    provisional = epoch > store.sealed()  # before the tally is read: it may be sealed in between
    tally = store.tally(stored.plan, epoch)
    final = store.finals(stored.plan).get(epoch)
    if final and tally.digest != final.digest:
        if epoch < store.tallies_from():  # asked after the tally is read: it may be given up in between
            raise TallyGone(final.snapshot)
        raise BadTally(f"the counts of {epoch} are not those that snapshot {final.snapshot} was made of")
    reading = estimate(stored, epoch, tally, view, candidates, provisional=provisional)
    return replace(reading, snapshot=final.snapshot) if final else reading


def estimate(
    stored: StoredPlan,
    epoch: date,
    tally: Tally,
    view: View = View(),
    candidates: tuple[str, ...] | None = None,
    *,
    provisional: bool = False,
) -> Reading:
    """Estimate every value from a tally."""
    plan = stored.plan
    reading = Reading(stored, epoch, provisional, tally.n, view=view)
    if tally.n == 0:
        return reading
    if isinstance(plan.mechanism, RAPPOR):
        return _read_texts(reading, plan.mechanism, tally, stored.candidates if candidates is None else candidates)
    return _read_values(reading, plan.pure, tally)


def _read_values(reading: Reading, mechanism: PureMechanism, tally: Tally) -> Reading:
    view = reading.view
    support = support_counts(mechanism, tally.counts, tally.n)
    estimates = estimate_shares(mechanism, support, tally.n, error_of=view.error_of, simultaneous=view.simultaneous)
    normalised = METHODS[view.normalised](mechanism, support, tally.n) if view.normalised else None
    critical, detectable = exact_shares(mechanism, tally.n)
    return replace(
        reading,
        critical_share=critical,
        detectable_share=detectable,
        rows=_rows(reading.stored.plan.values, estimates, normalised),
        noise_floor=estimates.noise_floor,
        method=estimates.method,
        normalised=normalised,
    )


def _read_texts(reading: Reading, mechanism: RAPPOR, tally: Tally, candidates: tuple[str, ...]) -> Reading:
    if not candidates:
        return reading
    decoded = decode_candidates(mechanism, tally.counts, candidates)
    rows = tuple(Row(**vars(row)) for row in decoded.rows)
    if reading.provisional:
        rows = tuple(replace(row, significant=None, significant_holm=None) for row in rows)
    fit = decoded.summary()
    del fit["seconds"]  # of whichever request was the first
    return replace(
        reading,
        rows=rows,
        noise_floor=_floor_of(rows),
        view=replace(reading.view, error_of="population"),
        method="wald",
        fit=fit,
    )


def _floor_of(rows: tuple[Row, ...]) -> float:
    """Return the usual standard error of a rare candidate: how much others take of it differs from list to list."""
    middle = median(row.estimate for row in rows)
    return median(row.std_error for row in rows if row.estimate <= middle)


def _rows(values: tuple[str, ...], estimates: Estimates, normalised: Normalised | None) -> tuple[Row, ...]:
    columns = [
        column.tolist() for column in (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    ]
    shares = normalised.shares.tolist() if normalised else [None] * len(values)
    return tuple(Row(*numbers) for numbers in zip(values, *columns, shares, strict=True))
