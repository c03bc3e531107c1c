"""Shares of listed values: how many of the reports, or of their population, hold each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from math import ceil, floor, sqrt
from operator import attrgetter
from typing import Annotated, Final, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import Functionals, answers_part, raw_shares
from dither_aggregator.analysis.inference import CONFIDENCE, ErrorOf, Floats
from dither_aggregator.analysis.pure import (
    Counted,
    Estimates,
    change_chance,
    estimate_shares,
    noise_below,
    noise_chance,
    significance_shares,
)
from dither_aggregator.analysis.reading import (
    BadView,
    Estimand,
    Lines,
    Reading,
    Sum,
    View,
    WantedSum,
    may_return,
    reports_max,
    sum_shares,
)
from dither_aggregator.analysis.released import Released, ReleasedRow, ReleasedTally
from dither_aggregator.analysis.rows import BINS, Row, Significance, bin_estimates, rank_among, says
from dither_aggregator.counting import Counts, support_counts, support_of, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import NONE, OTHER
from dither_shared.kinds.listed import NO, YES
from dither_shared.mechanisms import PureMechanism
from dither_shared.plan import Plan

# Shares that are possible, none negative and summing to one: a labelled extra beside the raw estimates.
#
# A normalised share is biased: small ones upward, where the noise is above zero and is kept, the large ones downward.
# Verdicts, intervals and sums are made of the raw estimates. Each method solves one equation for one number, and says
# how well it did. Both are for metrics whose answers hold exactly one value.


RESIDUAL_MAX = 1e-8


class NormalisedDocument(TypedDict):
    """How shares that sum to one were found."""

    method: str
    converged: bool
    iterations: int
    residual: Annotated[float, says("how far the shares are from summing to one")]


@dataclass(frozen=True)
class Normalised:
    """Shares in [0, 1] that sum to one, with the report of how they were found."""

    method: str
    shares: Floats
    iterations: int
    residual: float
    """How far the shares are from summing to one."""

    @property
    def converged(self) -> bool:
        """Whether they do, to rounding."""
        return self.residual <= RESIDUAL_MAX

    def to_document(self) -> NormalisedDocument:
        """Return the convergence report."""
        return {
            "method": self.method,
            "converged": self.converged,
            "iterations": self.iterations,
            "residual": self.residual,
        }


def norm_sub(mechanism: PureMechanism, support: Counts, n: int) -> Normalised:
    """Subtract the same number from every estimate, cut at zero, so that they sum to one.

    This is the nearest point of the simplex (Wang et al. 2020, Norm-Sub).
    """
    estimate = raw_shares(mechanism, support, n)
    low = (float(estimate.sum()) - 1) / len(estimate)
    return _solve("norm_sub", lambda level: np.maximum(estimate - level, 0.0), low, high=float(estimate.max()))


def maximum_likelihood(mechanism: PureMechanism, support: Counts, n: int) -> Normalised:
    """Return the shares that make the support counts likeliest.

    Let r_v = q + f_v (p - q). If each report supports one value, this is the likelihood of the reports, sum C(v) ln
    r_v, whose maximum is also where iterative Bayesian update ends. Otherwise it is that of support counts taken as
    independent, sum C(v) ln r_v + (n - C(v)) ln(1 - r_v). For a given multiplier of the constraint each r_v follows
    alone: C(v) / level, or the smaller root of level r^2 - (1 + level) r + C(v) / n = 0, and at least q.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    rate = support / n

    def multinomial(level: float) -> Floats:
        shares: Floats = (np.maximum(rate / level, q) - q) / (p - q)
        return shares

    def binomial(level: float) -> Floats:
        slope = 1 + level
        root = np.sqrt(np.maximum(slope**2 - 4 * level * rate, 0.0))
        # The same root in two forms: each loses no digits where it is used.
        likeliest = 2 * rate / (slope + root) if slope > 0 else (slope - root) / (2 * level)
        shares: Floats = (np.maximum(likeliest, q) - q) / (p - q)
        return shares

    if mechanism.supports_one:
        return _solve("mle", multinomial, low=1.0, high=1 / q)
    return _solve("mle", binomial, low=-2 / (1 - p), high=2 / q)


METHODS: Final = {"norm_sub": norm_sub, "mle": maximum_likelihood}


def _solve(method: str, shares_at: Callable[[float], Floats], low: float, high: float) -> Normalised:
    """Find the level at which the shares sum to one: they fall as it rises, to nothing at `high`."""

    def excess(level: float) -> float:
        return float(shares_at(level).sum()) - 1

    if excess(low) <= 0:  # the bound itself, to rounding
        return Normalised(method, shares_at(low), 0, abs(excess(low)))
    from scipy.optimize import brentq  # late: a process that answers something else need not wait for it

    level, report = brentq(excess, low, high, xtol=1e-15, rtol=1e-15, full_output=True)
    return Normalised(method, shares_at(level), report.iterations, abs(excess(level)))


UNLISTED = (OTHER, NONE)
NOISE_SHOWN = 3.5
"""Standard errors of noise that a histogram shows on either side of zero, whatever the estimates are."""


@dataclass(frozen=True)
class ShareRow(Row):
    """One value's estimate: shares of the n reports, not percent."""

    normalised: Annotated[float, says("the share that is possible, where it was asked for; biased")] | None = None


class SharesFacts(Lines):
    """How shares were normalised."""

    normalised: NotRequired[Annotated[NormalisedDocument, says("if it was asked for")]]


@dataclass(frozen=True)
class SharesReading(Reading):
    """The estimated share of each value, in the plan's order."""

    rows: Sequence[ShareRow] = ()
    critical_share: float | None = None
    """The least estimate that stands out: whose interval, one of those that hold together, lies above zero."""
    detectable_share: float | None = None
    """A true share of this stands out four times in five."""
    normalised: Normalised | None = None

    def change_chances(self, before: Self, values: Sequence[str]) -> Floats:
        """Return the p-values by the law of the counts."""
        both = before._counted(values), self._counted(values)
        return change_chance(_pure(self.stored.plan), *both, returning=may_return(self.stored))

    def answers_part(self, row: Row) -> float:
        """Return that of a share."""
        return float(answers_part(row.estimate, row.std_error, self.n, self.repeats))

    def _counted(self, values: Sequence[str]) -> Counted:
        mechanism = _pure(self.stored.plan)
        p, q = float(mechanism.p), float(mechanism.q)
        shares = {row.value: row.estimate for row in self.rows}
        counts = np.rint([self.n * (q + shares[value] * (p - q)) for value in values]).astype(np.int64)
        return counts, self.n, self.repeats

    def _find_significance(self) -> Significance | None:
        """Return the values whose interval lies above zero, and those that are no listed ones apart.

        For readings whose intervals hold all together. While more reports may come there is no verdict.
        """
        if self.n == 0:
            return None
        mechanism, repeats = _pure(self.stored.plan), self.repeats
        estimate, lower, upper = (self._column(name) for name in ("estimate", "lower", "upper"))
        listed = np.array([row.value not in UNLISTED for row in self.rows])
        out = np.zeros_like(listed) if self.provisional else listed & (lower > 0)
        significant, rest, unlisted = (self._rows_at(where) for where in (out, listed & ~out, ~listed))
        others = estimate[listed & ~out]
        edges, law = _edges(mechanism, self.n, others), noise_below(mechanism, self.n, repeats)
        return Significance(
            rank_among(significant, lower[listed], upper[listed]),
            unlisted,
            rest,
            bin_estimates(others, edges, law) if rest else (),
            self.critical_share,
            self.detectable_share,
            noise_chance(mechanism, self.n, float(estimate[listed].max(initial=0.0)), repeats, self.view.error_of),
        )

    def reports_for(self, share: float) -> int:
        """Return with about how many reports a value of such a share is found four times in five."""
        return _reports_for(_pure(self.stored.plan), share, self.view.own_confidence, self.repeats, self.view.error_of)

    @property
    def has_tail(self) -> bool:
        """Whether the tail can be told: noise is fresh (a memo's comes again on other days), and something stands
        out."""
        significance = self.significance()
        can_be_split = (
            significance is not None and not significance.too_few and significance.significant and significance.rest
        )
        return bool(can_be_split) and not self.stored.plan.cells.memoized

    def sum_of_rest(self, before: Tally) -> Sum | None:
        """Return the sum of the shares of values that do not stand out, without the unlisted."""
        significance, plan = self.significance(), self.stored.plan
        rest = {row.value for row in significance.rest} if significance else set()
        among = np.array([value in rest for value in plan.values])
        return sum_shares(_pure(plan), _together(plan, before), before.n, among, self.view.own_confidence)

    def _rows_at(self, where: npt.NDArray[np.bool_]) -> list[ShareRow]:
        return [self.rows[at] for at in np.flatnonzero(where).tolist()]

    def _column(self, name: str) -> Floats:
        return np.fromiter(map(attrgetter(name), self.rows), np.float64, len(self.rows))

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The normalised share, where it is asked for."""
        return ("normalised",) if self.view.normalised else ()

    def own_document(self) -> SharesFacts:
        """Return the shares that can be told from noise, and how shares were normalised."""
        document: SharesFacts = {"critical_share": self.critical_share, "detectable_share": self.detectable_share}
        return {**document, "normalised": self.normalised.to_document()} if self.normalised else document


class OneShareReading(SharesReading):
    """The share of yes, and perhaps of nothing to say; that of no, which says the same again, if it was asked for."""

    @property
    def asked(self) -> str:
        """The value whose share is all that is asked for."""
        return self.stored.plan.values[YES]

    @property
    def distinct(self) -> Sequence[ShareRow]:
        """The row of yes."""
        return [row for row in self.rows if row.value == self.asked]

    def _find_significance(self) -> Significance | None:
        """Return the row of yes apart, and that of nothing to say: nothing stands out, whatever it is."""
        if self.n == 0:
            return None
        critical, detectable = self.critical_share, self.detectable_share
        unlisted = [row for row in self.rows if row.value in (self.asked, NONE)]
        return Significance((), unlisted, critical_share=critical, detectable_share=detectable)


class Shares(Estimand[SharesReading]):
    """Shares of listed values."""

    name = "shares"
    role = "listed"
    ranks = True
    made: type[SharesReading] = SharesReading
    """The class of its readings."""
    records: tuple[type, ...] = (SharesReading, ShareRow, Normalised)

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse candidates, and shares that sum to one where answers may hold several values."""
        if view.candidates is not None:
            raise BadView(f"the values of {plan.metric} are listed: candidates are for texts")
        if view.values and view.normalised:
            raise BadView("normalised shares are of all values together: leave out values")
        if view.normalised and _pure(plan).ticks > 1:
            raise BadView("answers of this metric may hold several values: their shares need not sum to one")

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the values."""
        return stored.plan.values

    def has_functionals(self, stored: StoredPlan) -> bool:
        """Tell whether the mechanism says how two values vary together."""
        mechanism = _pure(stored.plan)
        return mechanism.pairs is not None or mechanism.geometry is not None

    def functionals(self, stored: StoredPlan, tally: Tally, days: int) -> Functionals | None:
        """Return those of all cells' reports."""
        repeats = reports_max(stored, days)
        return Functionals(_pure(stored.plan), _together(stored.plan, tally), tally.n, repeats)

    def sums(self, stored: StoredPlan, tally: Tally, view: View, sums: Sequence[WantedSum]) -> Sequence[Row | None]:
        """Return shares of values together, by the law of their sum."""
        functionals = self.functionals(stored, tally, view.days) if self.has_functionals(stored) and tally.n else None
        if functionals is None:
            return super().sums(stored, tally, view, sums)
        return [self._sum(functionals, wanted) for wanted in sums]

    def _sum(self, functionals: Functionals, wanted: WantedSum) -> ShareRow | None:
        weights = wanted.weights(functionals.mechanism.d)
        ends = functionals.interval(weights, wanted.alpha)
        if ends is None:
            return None
        return ShareRow(wanted.name, functionals.estimate(weights), sqrt(functionals.variance(weights)), *ends)

    def released(self, tally: ReleasedTally) -> Released:
        """Return the share of every value; nothing where one has no interval, or all that a share may be."""
        plan, mechanism = tally.plan, _pure(tally.plan)
        if not tally.is_sure:
            return Released()
        counts, cells = _together(plan, tally), plan.cells.count
        functionals = Functionals(mechanism, counts, tally.n, tally.repeats, cells * tally.count_noise)
        rows = [row for row in map(partial(_released, functionals), range(mechanism.d), plan.values) if row]
        told = len(rows) == mechanism.d and any(row.upper - row.lower < 1 for row in rows)
        if not told:
            return Released()
        floor = sqrt(float(mechanism.noise_variance) / tally.n + cells * tally.noise.of_share(mechanism, tally.n))
        return Released(rows, floor)

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> SharesReading:
        """Estimate the share of every value."""
        if tally.n == 0:
            return self.made(stored, epoch, provisional, 0, view, snapshot, None, None)
        mechanism = _pure(stored.plan)
        counts, values = _together(stored.plan, tally), view.values
        if values is None:
            values, support = stored.plan.values, support_counts(mechanism, counts, tally.n)
        else:
            support = support_of(mechanism, counts, tally.n, [stored.plan.values.index(value) for value in values])
        estimates = estimate_shares(
            mechanism,
            support,
            tally.n,
            error_of=view.error_of,
            simultaneous=view.simultaneous,
            confidence=view.confidence,
            repeats=reports_max(stored, view.days),
            together=view.together,
        )
        normalised = METHODS[view.normalised](mechanism, support, tally.n) if view.normalised else None
        critical, detectable = significance_shares(
            mechanism, tally.n, view.own_confidence, reports_max(stored, view.days), view.error_of
        )
        return self.made(
            stored,
            epoch,
            provisional,
            tally.n,
            view,
            snapshot,
            estimates.noise_floor,
            estimates.method,
            rows=self._told(stored, view, _rows(values, estimates, normalised)),
            critical_share=critical,
            detectable_share=detectable,
            normalised=normalised,
        )

    def _told(self, stored: StoredPlan, view: View, rows: tuple[ShareRow, ...]) -> tuple[ShareRow, ...]:
        """Return the rows that a reading has."""
        return rows


def _released(functionals: Functionals, place: int, value: str) -> ReleasedRow | None:
    weights = np.zeros(functionals.mechanism.d)
    weights[place] = 1.0
    own = functionals.interval(weights, 1 - CONFIDENCE)
    together = functionals.interval(weights, (1 - CONFIDENCE) / functionals.mechanism.d)
    if own is None or together is None:
        return None
    estimate, error = functionals.estimate(weights), sqrt(functionals.variance(weights))
    return ReleasedRow(value, estimate, error, *together, *own)


class OneShare(Shares):
    """The share of yes, where nothing else is asked: one row, one estimate, one interval."""

    name = "one share"
    simultaneous = False
    ranks = False
    made = OneShareReading
    records = (OneShareReading, ShareRow, Normalised)

    def leading(self, stored: StoredPlan) -> Sequence[str]:
        """Return yes."""
        return (stored.plan.values[YES],)

    def opposite(self, stored: StoredPlan) -> str:
        """Return no."""
        return stored.plan.values[NO]

    def _told(self, stored: StoredPlan, view: View, rows: tuple[ShareRow, ...]) -> tuple[ShareRow, ...]:
        """Return all but the row of no, which is the same estimate again, unless it was asked for by name."""
        return tuple(row for row in rows if view.values or row.value != self.opposite(stored))


@lru_cache(1024)
def _reports_for(mechanism: PureMechanism, share: float, confidence: float, repeats: int, error_of: ErrorOf) -> int:
    def found(n: int) -> bool:
        _, detectable = significance_shares(mechanism, n, confidence, repeats, error_of)
        return detectable is not None and detectable <= share

    least, most = 1, 64
    while not found(most):
        least, most = most, 2 * most
    while most - least > least / 100 + 1:
        middle = (least + most) // 2
        least, most = (least, middle) if found(middle) else (middle, most)
    return most


def _pure(plan: Plan) -> PureMechanism:
    """Return the mechanism of all cells: reports of a metric whose values are listed support them."""
    return PureMechanism.of(plan.mechanism)


def _together(plan: Plan, tally: Tally | ReleasedTally) -> Counts:
    """Return the counts of all cells' reports: cells of one mechanism say the same of a value."""
    ((_, table, _),) = tables(plan.cells, tally.counts)
    counts: Counts = table[:, 1:].sum(axis=0)
    return counts


def _edges(mechanism: PureMechanism, n: int, estimates: Floats) -> Floats:
    """Return the edges of a histogram of estimates, between counts: bins of as many counts each."""
    p, q = float(mechanism.p), float(mechanism.q)
    spread = NOISE_SHOWN * sqrt(q * (1 - q) * n)
    counts = np.rint(n * (q + estimates * (p - q)))
    low, high = min([*counts, floor(n * q - spread)]), max([*counts, ceil(n * q + spread)])
    width = max(1, ceil((high - low + 1) / BINS))
    return ((np.arange(low, high + width + 1, width) - 0.5) / n - q) / (p - q)


def _rows(values: tuple[str, ...], estimates: Estimates, normalised: Normalised | None) -> tuple[ShareRow, ...]:
    columns = [
        column.tolist() for column in (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    ]
    shares = normalised.shares.tolist() if normalised else [None] * len(values)
    return tuple(ShareRow(*numbers) for numbers in zip(values, *columns, shares, strict=True))
