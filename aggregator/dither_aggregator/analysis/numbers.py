"""Numbers: the mean, quantiles, shares above each edge and the share of each range, of those who gave a number.

Shares are raw and unbiased, by least squares, with Wald's intervals. The mean and quantiles have intervals by strict
bounds; a quantile is a range between edges, never a point inside of one. All errors are those of the population.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from math import nan, sqrt
from statistics import NormalDist, median
from threading import Lock
from typing import Annotated, Self

import numpy as np
from cachetools import LRUCache
from scipy.special import ndtr

from dither_aggregator.analysis.channel import (
    NumberChannel,
    Places,
    Statistic,
    blocks_for,
    channel_of,
    places_of,
    share_functionals,
    together,
)
from dither_aggregator.analysis.functional import apart
from dither_aggregator.analysis.inference import Floats, Z, effective, open_chance, open_z
from dither_aggregator.analysis.numeric_fit import (
    NEGLIGIBLE,
    Bounds,
    Effects,
    NumberFit,
    fit,
    fit_evenly,
    most_likely,
    most_likely_of,
    quantile_bounds,
    ratio_bounds,
)
from dither_aggregator.analysis.reading import (
    NO_LINES,
    Estimand,
    Lines,
    Reading,
    View,
    WantedSum,
    may_return,
    refuse_values,
    reports_max,
)
from dither_aggregator.analysis.released import Released, ReleasedRow, ReleasedTally
from dither_aggregator.analysis.rows import Row, says
from dither_aggregator.counting import Counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Buckets, NumberDomain, Range, Thresholds
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from dither_shared.mechanisms.mechanism import MemoizedPure
from dither_shared.plan import Plan

MEAN, MEDIAN, A_NUMBER = "mean", "median", "a number"
QUANTILES = {MEDIAN if percent == 50 else f"q{percent}": percent / 100 for percent in (5, 10, 25, 50, 75, 90, 95, 99)}
LEADING = (MEDIAN, "q90")
"""The statistics that /time draws unless others are asked for."""
CELL_REPORTS_MIN = 30
"""Each cell needs so many: without a cohort's reports nothing tells how many numbers lie above its step."""
WIDEST = 1 / 3
"""A quantile that may lie anywhere in more of the axis than this is not said."""
CAUTION = 1.25
"""P-values of means are multiplied by this: the normal law is a close approximation of theirs, not a bound of them."""
FITTED_AT_ONCE = 64
"""Tallies that are fitted together: what a step reads and writes of so many stays near the processor."""
LIKELIEST_MAX = 1 << 20
"""Shares of fits that are kept, 8 MiB of them: those of three years of days of 64 ranges are 73,000."""
SURE_OF_NUMBERS = 5
"""Standard errors above zero that the share of those who gave a number must be, for anything to be said of them."""


_LIKELIEST: LRUCache[tuple[str, bytes], Floats] = LRUCache(LIKELIEST_MAX, getsizeof=len)
"""By plan and digest of the counts. Each question has a view of its own, and reads the same days."""
FITS_BYTES_MAX = 1 << 24
"""Bytes of fits that were prepared and are not read yet."""


def _bytes(found: NumberFit) -> int:
    return found.information.nbytes + found.factor.nbytes


_FITS: LRUCache[tuple[str, bytes], NumberFit] = LRUCache(FITS_BYTES_MAX, getsizeof=_bytes)
_LOCK = Lock()


@dataclass(frozen=True)
class NumberRow(Row):
    """One statistic: of the mean and quantiles in the metric's unit, of all others a share of those with a number.

    The estimate of a quantile is the lower end of the range in which it seems to lie, or not a number where it may lie
    nearly anywhere. Its standard error is half the width of its interval, over the z of its level: for plotting.
    """

    statistic: Annotated[
        Statistic,
        says("for numbers: what the row is of. Shares are of those who gave one, share_of_reports is of all reports"),
    ]
    low: Annotated[
        float | None,
        says(
            "for numbers: the lower end of the range that the row is of, in the unit, null where it is open; of a mean "
            "the least that fits, however numbers lie within ranges, null where nothing is rounded to ranges"
        ),
    ] = None
    high: Annotated[float | None, says("its upper end, or the most")] = None
    fitted: Annotated[
        float | None,
        says(
            "for numbers: the share that is possible, or the mean of such shares; biased, to look at; null for others"
        ),
    ] = None
    """By maximum likelihood."""

    @property
    def is_range(self) -> bool:
        """True of a quantile, which lies between two edges."""
        return self.statistic == "quantile"

    @property
    def told_error(self) -> float | None:
        """None for a quantile, which has no point to be off from."""
        return None if self.is_range else super().told_error


class NumbersFacts(Lines):
    """The unit of numbers, and which of them are not said."""

    unit: Annotated[str, says("for numbers: the unit of mean, quantiles and the ends of ranges")]
    untold: Annotated[
        list[str], says("for numbers: quantiles that may lie in more than a third of the axis, without an estimate")
    ]


@dataclass(frozen=True)
class Estimated:
    """A number with its standard error, and how much of that devices' answers are at most, from 0 to 1."""

    estimate: float
    std_error: float
    answers_part: float = 1.0


@dataclass(frozen=True)
class NumbersReading(Reading):
    """The statistics of a metric's numbers: mean, quantiles, shares above edges, shares of ranges."""

    rows: Sequence[NumberRow] = ()
    untold: Sequence[NumberRow] = ()
    """Quantiles that may lie anywhere in more than a third of the axis."""
    blocks: Sequence[NumberRow] = ()
    """The shares of the bars of which intervals hold at once, by `channel`; empty where reports are too few."""
    cuts: Sequence[int] = ()
    """The number of the first range of each, and that of all ranges."""
    scores: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)
    """For each quantile that is asked for: the share up to each place less the quantile, in standard errors."""
    mean_ends: tuple[Estimated, Estimated] | None = field(default=None, repr=False, compare=False)
    """The means of the lower and of the upper ends of ranges, raw: the mean lies between, wherever numbers lie."""

    @property
    def distinct(self) -> Sequence[NumberRow]:
        """The mean and quantiles."""
        return [row for row in self.rows if row.statistic in ("mean", "quantile")]

    def of(self, statistic: str) -> Sequence[NumberRow]:
        """Return the rows of one statistic."""
        return [row for row in self.rows if row.statistic == statistic]

    def answers_part(self, row: Row) -> float:
        """Return that of the mean; of quantiles all, whose moves are told by places."""
        return self.mean_ends[0].answers_part if row.value == MEAN and self.mean_ends else 1.0

    def change_chances(self, before: Self, values: Sequence[str]) -> Floats:
        """Return that of the mean by the normal law with CAUTION, those of quantiles by the shares up to every place.

        A mean moved if it did wherever numbers lie within their ranges. A quantile rose if it certainly was at most at
        some place before, and certainly is above that place after. If it is at the same place in both, one of the two
        is false for each place; so each of four tails (below and above, before and after) may take the same part of
        the risk.
        """
        chances = []
        for value in values:
            if value == MEAN:
                least, most, open_part = self._mean_moved(before)
                beyond = max(*(way * end.estimate / end.std_error for way, end in ((1, least), (-1, most))), 0.0)
                chance = CAUTION * open_chance(beyond, open_part)
            else:
                was, is_now = before.scores[value], self.scores[value]
                chance = 4 * float(ndtr(-max(_sure(was, is_now), _sure(is_now, was))))
            chances.append(min(1.0, chance))
        return np.array(chances)

    def move_ends(self, before: Row, after: Row, earlier: Self) -> tuple[float, float]:
        """Return the ends of a difference: of quantiles, which lie anywhere in their ranges, the sums of both.

        The mean may have moved by what the ranges leave open before and after, and by its errors beyond that.
        """
        if before.value in QUANTILES:
            return after.lower - before.upper, after.upper - before.lower
        least, most, open_part = self._mean_moved(earlier)
        z = open_z(self.view.alpha(len(_names(self.stored.plan))), open_part)
        return least.estimate - z * least.std_error, most.estimate + z * most.std_error

    def _mean_moved(self, before: Self) -> tuple[Estimated, Estimated, float]:
        """Return the least and the most that the mean moved by, and how far these are apart, in standard errors."""
        assert before.mean_ends is not None
        assert self.mean_ends is not None
        (low, high), (old_low, old_high) = self.mean_ends, before.mean_ends

        def moved(old: Estimated, new: Estimated) -> Estimated:
            opposed = new.answers_part * old.answers_part if may_return(self.stored) else 0.0
            return Estimated(new.estimate - old.estimate, float(apart(old.std_error, new.std_error, opposed)))

        least, most = moved(old_high, low), moved(old_low, high)
        return least, most, max(0.0, most.estimate - least.estimate) / max(least.std_error, most.std_error, NEGLIGIBLE)

    @property
    def change_floor(self) -> None:
        """None: mean, quantiles and shares have no common error."""
        return

    @property
    def nothing_to_show(self) -> str:
        """Say how many reports are needed."""
        least, memoized = _least(self.stored.plan), self.stored.plan.cells.memoized
        devices = int(effective(float(self.n), self.repeats, permanent=memoized))
        if devices >= least:
            return "Too few of these reports hold a number, or hardly any are in one of the cells: nothing can be told."
        if self.n >= least:
            return f"{self.n:,} reports may come from only {devices:,} devices: numbers need {least:,} devices."
        return f"{self.n:,} reports are too few to tell: numbers need {least:,}."

    def own_document(self) -> NumbersFacts:
        """Return the unit, and what is not said."""
        return {**NO_LINES, "unit": self.stored.plan.domain.unit, "untold": [row.value for row in self.untold]}


class Numbers(Estimand[NumbersReading]):
    """Statistics of numbers."""

    name = "numbers"
    role = "statistic"
    records = (NumbersReading, NumberRow, Estimated)

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values."""
        refuse_values(plan, view, asked, "numbers")

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the mean and, unless it is all that is asked, the quantiles."""
        return _names(stored.plan)

    def shares(self, stored: StoredPlan) -> Sequence[str]:
        """Return the names of shares of ranges and above edges and, where some may say nothing, of those who did."""
        places = places_of(stored.plan)
        names = [name for each in share_functionals(stored.plan) for name, _, _ in each.ranges]
        return [*names, A_NUMBER] if places.others else names

    def leading(self, stored: StoredPlan) -> Sequence[str]:
        """Return the median and the 90 % quantile, or the mean where it is all that is asked."""
        return [name for name in LEADING if name in self.names(stored)] or (MEAN,)

    def prepare(self, stored: StoredPlan, tallies: Sequence[Tally]) -> None:
        """Fit several tallies at once: it is most of the work on each."""
        plan = stored.plan
        told = [tally for tally in tallies if not _too_few(plan, tally.counts, tally.n, 1)]
        for first in range(0, len(told), FITTED_AT_ONCE):
            some = told[first : first + FITTED_AT_ONCE]
            channels = [channel_of(plan, tally.counts, tally.n) for tally in some]
            likeliest = _likeliest(plan, [tally.counts for tally in some], channels)
            for tally, channel, shares in zip(some, channels, likeliest, strict=True):
                _keep_fit(_counts_key(plan, tally.counts), _fit(plan, channel, shares))

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> NumbersReading:
        """Estimate all statistics, or those that the view names."""
        view = view if view.error_of == "population" else replace(view, error_of="population")
        bare = NumbersReading(stored, epoch, provisional, tally.n, view, snapshot, None, None)
        statistics = self._statistics(stored, tally, view)
        if statistics is None:
            return bare
        every = tuple(statistics.rows())
        rows, untold = (tuple(row for row in every if row.untold == is_untold) for is_untold in (False, True))
        floor = median([row.std_error for row in rows if row.statistic.startswith("share")] or [0.0]) or None
        return replace(
            bare,
            rows=rows,
            untold=untold,
            blocks=tuple(statistics.blocks()),
            cuts=tuple(statistics.cuts),
            scores=statistics.scores(),
            mean_ends=statistics.mean_ends if view.values is None or MEAN in view.values else None,
            noise_floor=floor,
            method="wald",
        )

    def sums(self, stored: StoredPlan, tally: Tally, view: View, sums: Sequence[WantedSum]) -> Sequence[Row | None]:
        """Return shares of ranges together, of those who gave a number."""
        statistics = self._statistics(stored, tally, view)
        return [statistics.sum_of(wanted) if statistics else None for wanted in sums]

    def released(self, tally: ReleasedTally) -> Released:
        """Return the mean, quantiles and the shares of bars, or of a memoized number those above points of steps.

        All of their intervals hold together: half of the chance to miss is that of mean and quantiles.
        """
        plan, names = tally.plan, _names(tally.plan)
        if not tally.is_sure or _too_few(plan, tally.counts, tally.n, tally.repeats):
            return Released()
        fitted = fit_counts(plan, tally.counts, tally.n, tally.repeats)
        both = []
        domain = NumberDomain.of(plan.domain)
        for at_once in (False, True):
            view = View(simultaneous=at_once, together=2 if at_once else 1)
            level = (1 - view.confidence) / (2 * max(len(names), domain.size) if at_once else 1)
            noisy = fitted.published(tally.noise_at(level))
            if not _sure_of_numbers(noisy):
                return Released()
            statistics = Statistics(plan, noisy, view, names, tally.repeats)
            both.append({row.value: row for row in statistics.released() if not row.untold})
        rows = [
            ReleasedRow(
                *(name, row.estimate, row.std_error, all_.lower, all_.upper, row.lower, row.upper),
                domain.unit if row.statistic in ("mean", "quantile") else None,
            )
            for name, row in both[0].items()
            if (all_ := both[1].get(name))
        ]
        return Released.of(rows)

    def _statistics(self, stored: StoredPlan, tally: Tally, view: View) -> "Statistics | None":
        """Return what a tally tells; None where its reports, or those of numbers, are too few."""
        repeats = reports_max(stored, view.days)
        if _too_few(stored.plan, tally.counts, tally.n, repeats):
            return None
        statistics = Statistics(stored.plan, fit_tally(stored, tally, view), view, self.names(stored), repeats)
        return statistics if statistics.is_sure_of_numbers else None


def _names(plan: Plan) -> Sequence[str]:
    return (MEAN,) if isinstance(plan.domain, Range) else (MEAN, *QUANTILES)


def _least(plan: Plan) -> int:
    return MEANS_MIN if isinstance(plan.domain, Range) else NUMBERS_MIN


def _too_few(plan: Plan, counts: Counts, n: int, repeats: int) -> bool:
    """Tell whether n reports, of which one device may have sent so many, tell nothing."""
    smallest = min(int(table[:, 0].min()) for _, table, _ in tables(plan.cells, counts))
    devices, of_cell = (effective(float(each), repeats, permanent=plan.cells.memoized) for each in (n, smallest))
    return devices < _least(plan) or of_cell < CELL_REPORTS_MIN


def _sure_of_numbers(fitted: NumberFit, effects: Effects | None = None) -> bool:
    is_number = fitted.channel.places.is_number
    return bool(fitted.raw @ is_number > SURE_OF_NUMBERS * fitted.std_error(is_number, Z, effects))


def fit_tally(stored: StoredPlan, tally: Tally, view: View) -> NumberFit:
    """Fit a tally, with what devices that report repeatedly add to its variance."""
    return fit_counts(stored.plan, tally.counts, tally.n, reports_max(stored, view.days))


def fit_counts(plan: Plan, counts: Counts, n: int, repeats: int) -> NumberFit:
    """Fit the counts of n reports, of which one device may have sent so many."""
    with _LOCK:
        once = _FITS.pop(_counts_key(plan, counts), None)  # what was prepared is read once
    if once is None:
        channel = channel_of(plan, counts, n)
        once = _fit(plan, channel, *_likeliest(plan, [counts], [channel]))
    memo = plan.cells.mechanism if plan.cells.memoized else None
    assert memo is None or isinstance(memo, MemoizedPure)
    return once.repeated(memo, repeats)


def _fit(plan: Plan, channel: NumberChannel, likeliest: Floats) -> NumberFit:
    return (fit_evenly if isinstance(plan.domain, Range) else fit)(channel, likeliest)


def _counts_key(plan: Plan, counts: Counts) -> tuple[str, bytes]:
    return plan.digest, blake2b(counts.tobytes(), digest_size=16).digest()


def _keep_fit(key: tuple[str, bytes], found: NumberFit) -> None:
    """Keep a fit until it is read, unless it is too large."""
    if _bytes(found) <= FITS_BYTES_MAX:
        with _LOCK:
            _FITS[key] = found


def _likeliest(plan: Plan, counts: Sequence[Counts], channels: Sequence[NumberChannel]) -> list[Floats]:
    """Return the likeliest shares of counts and their channels: as they were found before, or all others at once."""
    keys = [_counts_key(plan, each) for each in counts]
    with _LOCK:
        found = {key: _LIKELIEST[key] for key in keys if key in _LIKELIEST}
    if missing := {key: channel for key, channel in zip(keys, channels, strict=True) if key not in found}:
        of = [*missing.values()]
        made = dict(zip(missing, most_likely_of(of) if len(of) > 1 else [most_likely(of[0])], strict=True))
        found |= made
        with _LOCK:
            _LIKELIEST.update(made)
    return [found[key] for key in keys]


def _sure(before: Floats, after: Floats) -> float:
    """Return how sure it is, in standard errors, that a quantile rose: at the place where both sides are surest."""
    was_there = np.minimum.accumulate(before[::-1])[::-1]
    is_above = np.minimum.accumulate(-after)
    return float(np.minimum(was_there, is_above)[:-1].max())


@dataclass(frozen=True)
class Statistics:
    """The rows of one fit."""

    plan: Plan
    fit: NumberFit
    view: View
    names: Sequence[str]
    repeats: int = 1
    """How many of the reports one device may have sent."""

    @property
    def channel(self) -> NumberChannel:
        """The channel that was fitted."""
        return self.fit.channel

    @property
    def places(self) -> Places:
        """The places of the channel."""
        return self.channel.places

    def rows(self) -> Iterator[NumberRow]:
        """Yield the rows that the view asks for."""
        wanted = self.view.values
        for name in self.names if wanted is None else [name for name in wanted if name in self.names]:
            yield self._mean() if name == MEAN else self._quantile(name)
        if len(self.names) > 1 and (wanted is None or {*wanted} - {*self.names}):
            yield from self.shares()

    def released(self) -> Iterator[NumberRow]:
        """Yield the rows of a release: mean, quantiles and the shares of bars, or of what each cohort tells."""
        for name in self.names:
            yield self._mean() if name == MEAN else self._quantile(name)
        if isinstance(self.plan.domain, Thresholds):
            yield from self.shares()
        yield from self.blocks()

    def scores(self) -> dict[str, Floats]:
        """Return, by quantile that is asked for, in how many standard errors the share up to each place is above it."""
        asked = [name for name in self.names if self.view.values is None or name in self.view.values]
        return {name: self._scores(QUANTILES[name]) for name in asked if name in QUANTILES}

    def _scores(self, probability: float) -> Floats:
        above = self.places.beyond(probability)
        return np.asarray(
            (above @ self.fit.raw) / np.maximum(self.fit.std_error(above, Z, self._up_to(probability)), 1e-12)
        )

    def _up_to(self, probability: float) -> Effects:
        """Return the reports' part of the errors of shares up to each place, less a quantile."""
        if probability not in self._effects:
            self._effects[probability] = self.fit.effects(self.fit.moved(self.places.beyond(probability)))
        return self._effects[probability]

    @cached_property
    def _effects(self) -> dict[float, Effects]:
        return {}

    @property
    def is_sure_of_numbers(self) -> bool:
        """Whether so many gave a number that something can be said of them."""
        return _sure_of_numbers(self.fit, self.fit.effects(self._moved[2]))

    @cached_property
    def _moved(self) -> Floats:
        """How reports move what ranges begin with and end with, and who has a number: float64[3, rows]."""
        ends = np.zeros((3, len(self.places.is_number)))
        ends[:2, : self.places.numbers] = self.places.mean_lower, self.places.mean_upper
        ends[2] = self.places.is_number
        return self.fit.moved(ends)

    def _alpha(self, together: int) -> float:
        """Return how often an interval may miss, of so many that hold together."""
        return self.view.alpha(together)

    def _z(self, together: int) -> float:
        return -NormalDist().inv_cdf(self._alpha(together) / 2)

    # The mean and quantiles.

    @cached_property
    def bounds(self) -> Bounds:
        """All shares within the error that mean and quantiles have together."""
        return Bounds(self.fit, self._z(len(self.names)))

    @cached_property
    def _means(self) -> "_Ratios":
        """The means of the lower and of the upper ends of ranges, of what is between these, and of the middles."""
        lower, upper = self.places.mean_lower, self.places.mean_upper
        ends = np.zeros((4, len(self.places.is_number)))
        ends[:, : self.places.numbers] = lower, upper, upper - lower, (lower + upper) / 2
        of_lower, of_upper, of_number = self._moved
        moved = np.stack([of_lower, of_upper, of_upper - of_lower, (of_lower + of_upper) / 2])
        return _Ratios.of(self.fit, ends, moved, of_number)

    @cached_property
    def mean_ends(self) -> tuple[Estimated, Estimated]:
        """The means of the lower and of the upper ends of ranges."""
        ends, estimates = self._means.functionals[:2], self._means.estimates[:2].tolist()
        errors = self._means.std_errors([0, 1], Z).tolist()
        low, high = (
            Estimated(estimate, max(error, NEGLIGIBLE), self._answers_part(each, estimate, max(error, NEGLIGIBLE)))
            for each, estimate, error in zip(ends, estimates, errors, strict=True)
        )
        return low, high

    def _answers_part(self, values: Floats, mean: float, std_error: float) -> float:
        """Return it for a mean of values: of memos all, because the answer that a device gives is its cohort's, too."""
        if self.plan.cells.memoized:
            return 1.0
        shares, is_number = np.maximum(self.fit.raw, 0.0), self.places.is_number
        answers = self.repeats / self.channel.n * float(shares @ ((values - mean) ** 2 * is_number))
        return min(1.0, sqrt(answers) / float(self.fit.raw @ is_number) / std_error)

    def _mean_z(self) -> float:
        """Return how many standard errors the interval of the mean reaches beyond what ranges leave open.

        At most one of its two ends can miss where ranges leave much open (`open_z`). How much they do is estimated, too
        (ranges may differ in width), so the least that it may be counts.
        """
        (low, high), z = self.mean_ends, self._z(len(self.names))
        least = max(0.0, float(self._means.estimates[2] - z * self._means.std_errors([2], z)[0]))
        return open_z(self._alpha(len(self.names)), least / max(low.std_error, high.std_error))

    def _mean(self) -> NumberRow:
        """Return the mean: between the means of lower and of upper ends of ranges, by strict bounds."""
        places, z = self.places, self._z(len(self.names))
        lower, upper, _, middle = self._means.functionals
        estimate, (error,) = float(self._means.estimates[3]), self._means.std_errors([3], z).tolist()
        if len(self.names) == 1:  # nothing is rounded to ranges, and the estimate is linear: its own law is the normal
            return NumberRow(MEAN, estimate, error, estimate - z * error, estimate + z * error, "mean")
        bounds = replace(self.bounds, z=self._mean_z())
        least, most = ratio_bounds(bounds, lower, upper, places.is_number, self._moved)
        possible = bounds.nearest / (bounds.nearest @ places.is_number)
        low, fitted, high = (float(values @ possible) for values in (lower, middle, upper))
        beginning, end = (low, high) if low < high else (None, None)
        # Raw shares may be negative, and then their mean lies beyond all possible ones: the interval holds it, too.
        ends = min(least, estimate), max(most, estimate)
        return NumberRow(MEAN, estimate, error, *ends, "mean", beginning, end, fitted)

    def _quantile(self, name: str) -> NumberRow:
        """Return a quantile, without an estimate where it may lie anywhere in a large part of the axis."""
        places, z, probability = self.places, self._z(len(self.names)), QUANTILES[name]
        first, last = quantile_bounds(self.bounds, probability, self._up_to(probability))
        if last - first + 1 > WIDEST * places.numbers:
            lower, upper = (float(edge) for edge in places.cut(places.lower[first], places.upper[last]))
            return NumberRow(name, nan, nan, lower, upper, "quantile")
        fitted = np.cumsum(self.fit.shares[: places.numbers])
        at = min(max(int(np.searchsorted(fitted, probability * fitted[-1])), first), last)
        inner = [float(edge) for edge in places.cut(places.lower[first], places.upper[last], places.lower[at])]
        lower, upper, estimate = inner
        low, high = (None if np.isinf(edge) else float(edge) for edge in (places.lower[at], places.upper[at]))
        return NumberRow(name, estimate, (upper - lower) / 2 / z, lower, upper, "quantile", low, high)

    # Shares.

    def shares(self) -> Iterator[NumberRow]:
        """Yield shares of ranges, shares above edges, and the share of reports that are of numbers, as far as asked."""
        wanted = self.view.values
        for each in share_functionals(self.plan):
            asked = [at for at, (name, _, _) in enumerate(each.ranges) if wanted is None or name in wanted]
            if not asked:
                continue
            functionals, z = each.functionals[asked], self._z(len(each.functionals))
            estimates, errors = self._ratios(functionals, z)
            fitted = functionals @ self.fit.shares / (self.places.is_number @ self.fit.shares)
            for place, at in enumerate(asked):
                name, low, high = each.ranges[at]
                estimate, error = float(estimates[place]), float(errors[place])
                ends = estimate - z * error, estimate + z * error
                yield NumberRow(name, estimate, error, *ends, each.statistic, low, high, float(fitted[place]))
        if self.places.others and (wanted is None or A_NUMBER in wanted):
            z, is_number = self._z(1), self.places.is_number
            share, error = float(self.fit.raw @ is_number), float(self.fit.std_error(is_number, z))
            yield NumberRow(A_NUMBER, share, error, share - z * error, share + z * error, "share_of_reports")

    def sum_of(self, wanted: WantedSum) -> NumberRow:
        """Return the share of some ranges together."""
        weights, z = wanted.weights(len(self.places.is_number))[np.newaxis], -NormalDist().inv_cdf(wanted.alpha / 2)
        (estimate,), (error,) = (each.tolist() for each in self._ratios(weights, z))
        lower, upper = self.places.lower[wanted.places[0]], self.places.upper[wanted.places[-1]]
        low, high = (None if np.isinf(end) else float(end) for end in (lower, upper))
        fitted = float(weights[0] @ self.fit.shares / (self.places.is_number @ self.fit.shares))
        ends = estimate - z * error, estimate + z * error
        return NumberRow(wanted.name, estimate, error, *ends, "share", low, high, fitted)

    @cached_property
    def cuts(self) -> Sequence[int]:
        """The edges between which ranges are one bar."""
        domain = self.plan.domain
        if self.view.values is not None or not isinstance(domain, Buckets):
            return ()
        return blocks_for(domain, self.plan.cells, self.channel.n // self.repeats)

    def blocks(self) -> Iterator[NumberRow]:
        """Yield the shares of bars, which are neighbouring ranges together."""
        if not self.cuts:
            return
        domain = Buckets.of(self.plan.domain)
        sums, z = together(self.cuts, len(self.places.is_number)), self._z(len(self.cuts) - 1)
        estimates, errors = (each.tolist() for each in self._ratios(sums, z))
        fitted = (sums @ self.fit.shares / (self.places.is_number @ self.fit.shares)).tolist()
        for (first, last), estimate, error, share in zip(pairwise(self.cuts), estimates, errors, fitted, strict=True):
            low, high = (domain.edges[at] for at in (first, last))
            name = f"{domain.in_unit(low)} to {domain.with_unit(domain.in_unit(high))}"
            begin, end = (each / 10**domain.decimals for each in (low, high))
            interval = estimate - z * error, estimate + z * error
            yield NumberRow(name, estimate, error, *interval, "share", begin, end, share)

    def _ratios(self, functionals: Floats, z: float) -> tuple[Floats, Floats]:
        """Return functionals, float64[count, places], over the share of those with a number, and standard errors."""
        ratios = _Ratios.of(self.fit, functionals, self.fit.moved(functionals), self._moved[2])
        return ratios.estimates, ratios.std_errors(slice(None), z)


@dataclass(frozen=True)
class _Ratios:
    """Functionals, float64[count, places], over the share of those with a number.

    The error of a ratio N / D is that of N - (N / D) D over D (the delta method): D is many errors above zero.
    """

    fit: NumberFit
    functionals: Floats
    numbers: float
    estimates: Floats
    along: Floats
    """The functionals N - (N / D) D."""
    effects: Effects
    """The part of their errors that is the reports'."""

    @classmethod
    def of(cls, fit: NumberFit, functionals: Floats, moved: Floats, of_number: Floats) -> Self:
        """Return those of a fit, given how reports move N and D."""
        is_number = fit.channel.places.is_number
        numbers = float(fit.raw @ is_number)
        estimates = functionals @ fit.raw / numbers
        along = functionals - estimates[:, np.newaxis] * is_number
        return cls(fit, functionals, numbers, estimates, along, fit.effects(moved - np.outer(estimates, of_number)))

    def std_errors(self, which: Sequence[int] | slice, z: float) -> Floats:
        """Return the standard errors of some, of which intervals reach z."""
        effects = Effects(*(each[which] for each in self.effects))
        return self.fit.std_error(self.along[which], z, effects) / self.numbers
