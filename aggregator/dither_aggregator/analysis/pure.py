"""From support counts to estimates: raw, unbiased, never clamped, each with its standard error and interval.

The formulas are those of a pure protocol, `dither_shared.mechanisms.mechanism`. Two errors are told apart:

    reports       how far an estimate may lie from the share among the n devices that reported
                  variance [ f p (1 - p) + (1 - f) q (1 - q) ] / (n (p - q)^2)
    population    how far from the share in the population that they are a random sample of
                  variance r (1 - r) / (n (p - q)^2)  with r = q + f (p - q): the former plus f (1 - f) / n

A device may report r times in a window. Then the population's part is r f (1 - f) / n. A memo repeats its noise, so
the variance is at most [ (r - 1) V_permanent + V ] / n, with V n times the former and V_permanent that of one shot
of the permanent part. The law of what repeats, a device's answer or its memo of it, is that of the devices, n / r of
them at worst (`effective`): ends are Clopper and Pearson's for them, joined with those of the noise that is fresh in
each report. Answers may be far rarer than noise, so such ends are Wald's only for memos, of as many as noise needs.

The share f in them is the estimate, cut to [0, 1]. Exact intervals for the population are Clopper and Pearson's of the
rate r, whose ends become those of shares by (r - q) / (p - q). For the reports they would be wider than need be: the
count of a fixed number of holders varies less than a binomial one (Hoeffding 1956). Its law is that of two binomials
(`inference`). Simultaneous intervals hold all the truths of a metric with the stated confidence
(Bonferroni).

**Fresh texts.** Shares of any candidates among reports of hashed buckets, and of all that is not in the list.

Each report names its row r of R, drawn publicly, and holds a noisy point for the bucket that the row's hash gives its
text, one of B. The support counts C(r, b) of a row's buckets come out of one transform. A candidate v is looked up in
every row:

    C = sum of C(r, h_r(v)) over its rows      n = sum of their reports
    share  f^ = (C / n - q) / (p - q) - mean

unbiased over the hash, with the mean that all others add to a bucket. C is binomial as for a listed value, so intervals
and chances are those above; what others add differs from bucket to bucket with

    variance  sum of f_w^2 over all others w / (R B)

Both are measured, over all buckets: the mean, and the variance less that of the noise. A text that many have breaks
this for the few that share a bucket with it. So the HEAVIEST candidates are found first, and each other one is read
without the rows in which it meets one of them. Others, in no list, show where a row lies FAR above all other rows of a
candidate: that row is left out. Noise alone does that to one candidate in a million. Buckets that are FAR above zero do
not count among all, then.

Whether anybody has a text is tested by the law of strangers: a text that nobody has lies in a uniformly random bucket
of each row. Many of these are read as candidates are, with all that others add to them. A candidate's chance is the
part of them that get as much.

The listed texts together hold the mass M_r of the buckets D_r that they occupy, but for the part c_r = |D_r| / B that
all others have there:

    L = (M_r - c_r) / (1 - c_r)      unlisted mass = 1 - L

M_r is a sum of buckets: its variance is that of the number of them that one report supports, over the row's reports.
Each unlisted w adds variance f_w^2 c_r / (1 - c_r).

Count sketches of public hashes: Charikar, Chen, Farach-Colton 2002; in the local model Bassily, Nissim, Stemmer,
Thakurta 2017.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, exp, nextafter, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, betainc, betaincinv, ndtr

from dither_aggregator.analysis.functional import (
    answers_part,
    answers_variance,
    apart,
    points_sum,
    rate_variance,
    raw_shares,
    share_variance,
)
from dither_aggregator.analysis.inference import (
    CONFIDENCE,
    HALVINGS,
    ErrorOf,
    Floats,
    Method,
    Z,
    bit_skewness,
    clopper_pearson,
    devices_reach,
    effective,
    exact_ends,
    normal_from,
)
from dither_aggregator.counting import Counts, support_counts
from dither_shared.domains import Hashed
from dither_shared.kinds.precision import POWER
from dither_shared.mechanisms import PGR, PureMechanism
from dither_shared.mechanisms.mechanism import MemoizedPure

Counted = tuple[Counts, int, int]
"""Support counts, of how many reports, of which a device may have sent so many."""
MEMOS_MANY = 1_000
"""Memos of noise whose number is nearly normal."""
LOG_LEAST = -700.0
"""The logarithm of the least p-value that is told."""
STEPS = 32
"""Counts that are tried at a time where the least one is looked for that stands out."""


@dataclass(frozen=True)
class Estimates:
    """The estimated share of each value, as arrays of length d in the plan's order, from n reports."""

    n: int
    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    method: Method
    noise_floor: float
    """The standard error of a value that nobody has: differences below a few of these are noise."""


def estimate_shares(
    mechanism: PureMechanism,
    support: Counts,
    n: int,
    *,
    error_of: ErrorOf = "population",
    simultaneous: bool = False,
    method: Method | None = None,
    confidence: float = CONFIDENCE,
    repeats: int = 1,
    together: int = 1,
) -> Estimates:
    """Remove the noise from support counts, int64[d] or of some of the values, of n >= 1 reports.

    A device may have sent `repeats` of these. Intervals are of this confidence, each on its own or, `simultaneous`, all
    of them together; and both with those of `together` readings in all. They are of the raw estimate, so they may reach
    below 0 and above 1, as the estimate itself may: cutting it there would bias every sum that is made of it. `method`
    forces one of the kinds of interval.
    """
    estimate = raw_shares(mechanism, support, n)
    std_error = np.sqrt(share_variance(mechanism, np.clip(estimate, 0.0, 1.0), n, error_of, repeats))
    floor = float(np.sqrt(share_variance(mechanism, np.zeros(1), n, "reports", repeats))[0])
    alpha = (1 - confidence) / ((mechanism.d if simultaneous else 1) * together)
    method = method or _method_of(mechanism, n, alpha, error_of, repeats)
    lower, upper = _ends(mechanism, support, n, alpha, method, error_of, repeats)
    return Estimates(n, estimate, std_error, lower, upper, method, floor)


def _ends(
    mechanism: PureMechanism, support: Counts, n: int, alpha: float, method: Method, error_of: ErrorOf, repeats: int
) -> tuple[Floats, Floats]:
    """Return the ends of intervals of confidence 1 - alpha, each on its own."""
    p, q = float(mechanism.p), float(mechanism.q)
    if method == "wald":
        estimate = raw_shares(mechanism, support, n)
        variance = share_variance(mechanism, np.clip(estimate, 0.0, 1.0), n, error_of, repeats)
        half = -NormalDist().inv_cdf(alpha / 2) * np.sqrt(variance)
        return estimate - half, estimate + half
    if method == "exact":
        return exact_ends(support, n, p, q, alpha)
    if _repeated(mechanism, error_of, repeats):
        return _ends_of_devices(mechanism, support, n, repeats, alpha)
    lower, upper = ((rate - q) / (p - q) for rate in clopper_pearson(support, n, alpha))
    return lower, upper


def population_ends(
    mechanism: PureMechanism, support: Counts, n: Counts, alpha: float, repeats: int = 1
) -> tuple[Floats, Floats]:
    """Return the ends of intervals of confidence 1 - alpha, of shares in the population that have an n each.

    `support` and `n` are int64[S]; a device may have sent `repeats` of the reports.
    """
    lower, upper = np.empty(len(n)), np.empty(len(n))
    for reports in np.unique(n).tolist():
        here = n == reports
        read = estimate_shares(
            mechanism, support[here], reports, error_of="population", confidence=1 - alpha, repeats=repeats
        )
        lower[here], upper[here] = read.lower, read.upper
    return lower, upper


def _repeated(mechanism: PureMechanism, error_of: ErrorOf, repeats: int) -> bool:
    """Tell whether reports of a device have something in common that is part of the error."""
    return repeats > 1 and (mechanism.memoized or error_of == "population")


def _method_of(mechanism: PureMechanism, n: int, alpha: float, error_of: ErrorOf, repeats: int) -> Method:
    """Return the kind of interval that holds as often as it says and is the narrowest that does."""
    z = -NormalDist().inv_cdf(alpha / 2)

    def normal(of: PureMechanism, number: float) -> bool:
        return number >= normal_from(bit_skewness(float(of.p), float(of.q)), z)

    if _repeated(mechanism, error_of, repeats):
        devices = effective(float(n), repeats, permanent=True)
        memo = mechanism.permanent if isinstance(mechanism, MemoizedPure) else None
        return "wald" if memo and normal(mechanism, n) and normal(memo, devices) else "clopper-pearson"
    if normal(mechanism, n):
        return "wald"
    return "exact" if error_of == "reports" else "clopper-pearson"


def _ends_of_devices(
    mechanism: PureMechanism, support: Counts, n: int, repeats: int, alpha: float
) -> tuple[Floats, Floats]:
    """Return ends of intervals where devices repeat what they say: the fewest that there may be, each always the same.

    The number of devices that repeat a value, or a memo that supports it, is binomial. Fresh noise of n reports lies
    around it: as far as their own exact intervals reach, times the part of their standard error that is this noise.
    """
    memo = mechanism.permanent if isinstance(mechanism, MemoizedPure) else None
    one_p, one_q = (float(memo.p), float(memo.q)) if memo else (1.0, 0.0)
    p, q, devices = float(mechanism.p), float(mechanism.q), effective(float(n), repeats, permanent=True)
    each, place = np.unique(support, return_inverse=True)
    estimate = (each / n - q) / (p - q)
    share = np.clip(estimate, 0.0, 1.0)
    fresh = share_variance(mechanism, share, 1, "reports")
    if memo:
        fresh = np.maximum(fresh - share_variance(memo, share, 1, "reports"), 0.0)
    part = np.sqrt(fresh / share_variance(mechanism, share, 1, "population"))
    of_devices = devices_reach(one_q + estimate * (one_p - one_q), devices, alpha)
    of_reports = (((rate - q) / (p - q) - estimate) * part for rate in clopper_pearson(each, n, alpha))
    below, above = (np.hypot(own / (one_p - one_q), noise) for own, noise in zip(of_devices, of_reports, strict=True))
    return (estimate - below)[place], (estimate + above)[place]


def change_chance(mechanism: PureMechanism, before: Counted, after: Counted, *, returning: bool = True) -> Floats:
    """Return two-sided p-values of a change of each value's share in the population between two windows.

    Without a change the counts of both windows have one rate. Given their sum, the later one is binomial for small
    rates, whichever they are (Przyborowski and Wilenski 1940). For larger rates and repeated reports it is binomial in
    variance once both counts are divided by their dispersion, (1 - rate) times that of repeats and, if devices may be
    `returning`, that of answers that alternate. If more than half of the reports support a value, those that do not are
    counted.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    share = np.clip(((before[0] + after[0]) / (before[1] + after[1]) - q) / (p - q), 0.0, 1.0)
    memo = mechanism.permanent if isinstance(mechanism, MemoizedPure) and max(before[2], after[2]) > 1 else mechanism
    (old, n_old, spread_old), (new, n_new, spread_new) = (
        _binomial(mechanism, memo, each, share) for each in (before, after)
    )
    rate = float(memo.q) + share * float(memo.p - memo.q)
    spread = (n_new * spread_old + n_old * spread_new) / (n_old + n_new)  # each weighs as its variance, 1 / n
    if returning:
        (error, part), (earlier, of_it) = (_error_of_share(mechanism, share, each) for each in (after, before))
        spread = spread * (apart(error, earlier, part * of_it) / np.hypot(error, earlier)) ** 2
    many = rate > 0.5
    old, new = np.where(many, n_old - old, old), np.where(many, n_new - new, new)
    scale = 1 / (spread * np.maximum(rate, 1 - rate))
    odds = n_new / (n_old + n_new)
    fell = betainc(old * scale, new * scale + 1, 1 - odds)
    rose = betainc(new * scale, old * scale + 1, odds)
    chances: Floats = np.minimum(1.0, 2 * np.minimum(np.where(old > 0, fell, 1.0), np.where(new > 0, rose, 1.0)))
    return chances


def _error_of_share(mechanism: PureMechanism, share: Floats, counted: Counted) -> tuple[Floats, Floats]:
    """Return the standard error of shares in the population, and how much of it answers are."""
    _, n, repeats = counted
    error = np.sqrt(share_variance(mechanism, share, n, "population", repeats))
    return error, answers_part(share, error, n, repeats)


def _binomial(
    mechanism: PureMechanism, memo: PureMechanism, counted: Counted, share: Floats
) -> tuple[Floats, float, Floats]:
    """Return counts of what is nearly binomial, out of how many, and by how much their variance is larger than so.

    It is reports that support a value or, where these repeat memos, devices whose memo does.
    """
    counts, n, repeats = counted
    p, q = float(mechanism.p), float(mechanism.q)
    number = effective(float(n), repeats, permanent=memo is not mechanism)
    held = number * (float(memo.q) + (counts / n - q) / (p - q) * float(memo.p - memo.q))
    spread = share_variance(mechanism, share, 1, "population", repeats) / share_variance(memo, share, 1, "population")
    return np.clip(held, 0.0, number), number, spread * (number / n)


def significance_shares(
    mechanism: PureMechanism,
    n: int,
    confidence: float = CONFIDENCE,
    repeats: int = 1,
    error_of: ErrorOf = "population",
) -> tuple[float | None, float | None]:
    """Return the least estimate that stands out, and the true share that does four times in five; None if none does.

    An estimate stands out where its interval, one of d that hold together, lies above zero. The law is that of the
    counts, and a normal one where they are none of independent reports.
    """
    p, q = float(mechanism.p), float(mechanism.q)

    def estimated(counts: Counts, method: Method | None = None) -> Estimates:
        return estimate_shares(
            mechanism,
            counts,
            n,
            error_of=error_of,
            simultaneous=True,
            method=method,
            confidence=confidence,
            repeats=repeats,
        )

    low, high = int(n * q), n  # the expected count of noise, which does not stand out, and the largest
    largest = estimated(np.array([high]))
    if largest.lower[0] <= 0:
        return None, None
    method: Method = "clopper-pearson" if largest.method == "exact" else largest.method  # quicker, and of the same sign
    while high - low > 1:
        between = np.unique(np.linspace(low, high, STEPS + 1).astype(np.int64))
        first = int(np.argmax(estimated(between[1:], method).lower > 0)) + 1
        low, high = int(between[first - 1]), int(between[first])
    least = estimated(np.array([high]), method)
    critical = float(least.estimate[0])
    if _repeated(mechanism, error_of, repeats):
        detectable = critical + NormalDist().inv_cdf(POWER) * float(least.std_error[0])
    else:
        detectable = (float(betaincinv(high, n - high + 1, POWER)) - q) / (p - q)
    return critical, detectable if detectable <= 1 else None


def noise_below(mechanism: PureMechanism, n: int, repeats: int = 1) -> Callable[[Floats], Floats]:
    """Return the law of the estimate of a value that nobody has: its distribution function."""
    p, q = float(mechanism.p), float(mechanism.q)
    if repeats > 1 and isinstance(mechanism, MemoizedPure):
        return _memos_below(mechanism, n, repeats)

    def below(shares: Floats) -> Floats:
        counts = np.floor(n * (q + shares * (p - q)) + 1e-6)
        law: Floats = np.where(counts < 0, 0.0, bdtr(np.clip(counts, 0, n), n, q))
        return law

    return below


def _memos_below(mechanism: MemoizedPure, n: int, repeats: int) -> Callable[[Floats], Floats]:
    """Return the same where devices repeat memos: a binomial number of these, with normal noise of the second stage."""
    p, q = float(mechanism.permanent.p), float(mechanism.permanent.q)
    none, devices = np.zeros(1), round(effective(float(n), repeats, permanent=True))
    if devices * q >= MEMOS_MANY:
        floor = np.sqrt(share_variance(mechanism, none, n, "reports", repeats))[0]
        return lambda shares: np.asarray(ndtr(shares / floor))
    memos = np.arange(min(devices, ceil(devices * q + 10 * sqrt(devices * q) + 30)) + 1)
    chances = np.diff(bdtr(memos, devices, q), prepend=0.0)
    fresh = share_variance(mechanism, none, n, "reports") - share_variance(mechanism.permanent, none, n, "reports")
    places, error = (memos / devices - q) / (p - q), np.sqrt(fresh)[0]
    return lambda shares: np.asarray(ndtr((shares[..., np.newaxis] - places) / error) @ chances)


def noise_chance(
    mechanism: PureMechanism, n: int, largest: float, repeats: int = 1, error_of: ErrorOf = "population"
) -> float:
    """Return a p-value: how often noise alone makes the largest of d estimates that large, at most and two-sided.

    It is that of the law of counts where nobody has any value, but agrees with the interval that is shown, which may be
    Wald's: at most 1 - CONFIDENCE if and only if that lies above zero, with all others.
    """
    p, q, level = float(mechanism.p), float(mechanism.q), 1 - CONFIDENCE
    counts = np.clip([round(n * (q + largest * (p - q)))], 0, n)
    chance = 2 * mechanism.d * float(bdtrc(max(counts[0] - 1, 0), n, q))
    if repeats > 1 and mechanism.memoized:
        low, high = LOG_LEAST, 0.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = _ends_of_devices(mechanism, counts, n, repeats, exp(middle))[0][0] > 0
            low, high = (low, middle) if above else (middle, high)
        chance = mechanism.d * exp(high)
    shown = estimate_shares(mechanism, counts, n, error_of=error_of, simultaneous=True, repeats=repeats)
    return min(chance, level) if shown.lower[0] > 0 else min(max(chance, nextafter(level, 1.0)), 1.0)


# Fresh texts, by hashed buckets.


HEAVIEST = 30
"""Candidates whose buckets are left out for all others."""
SURE = 3.0
"""Standard errors above which a candidate may be one of them."""
FAR = 5.0
"""Standard errors that one row in 3 million passes by noise alone."""
STRANGERS_MIN, STRANGERS_EACH, STRANGERS_AT_ONCE = 100_000, 100, 1 << 18
"""Texts that nobody has: at least so many, so many for each candidate, and so many in memory."""
_HALF = np.uint64(32)


@dataclass(frozen=True)
class HashedShares:
    """The shares of candidates, arrays of length S in their order."""

    names: tuple[str, ...]
    mechanism: PGR
    support: Counts
    """How many of the reports of its rows support each candidate's buckets."""
    n: Counts
    """How many reports these rows have."""
    others: float
    """The mean that other texts add to a bucket."""
    collisions: Floats
    """The variance of that."""
    chances: Floats
    """How often a text that nobody has gets as much, at least 1 / STRANGERS_MIN: float64[S]."""
    repeats: int
    """How many reports one device may have sent."""

    @cached_property
    def estimate(self) -> Floats:
        """Raw and unbiased over the hash, float64[S]."""
        return self._mass - self.others

    @cached_property
    def _mass(self) -> Floats:
        """The share of all that are in a candidate's buckets."""
        return raw_shares(self.mechanism, self.support, self.n)

    @cached_property
    def std_error(self) -> Floats:
        """The standard error of the share in the population, float64[S]."""
        return np.asarray(np.sqrt(self._noise(self.estimate) + self.collisions))

    def _noise(self, share: Floats) -> Floats:
        """Return the variance of estimates of such shares, without what others add."""
        return share_variance(self.mechanism, np.clip(share, 0.0, 1.0), self.n, "population", self.repeats)

    @property
    def noise_floor(self) -> float:
        """The standard error of a text that nobody has, without what others add to its buckets."""
        nobody, n = np.zeros(1), int(self.n.max())
        return float(np.sqrt(share_variance(self.mechanism, nobody, n, "reports", self.repeats)[0]))

    @property
    def method(self) -> Method:
        """The kind of most of the intervals."""
        support, n = self.support[:1], int(self.n.max())
        return estimate_shares(self.mechanism, support, n, error_of="population", repeats=self.repeats).method

    def ends(self, alpha: float) -> tuple[Floats, Floats]:
        """Return the ends of each candidate's interval of confidence 1 - alpha."""
        lower, upper = population_ends(self.mechanism, self.support, self.n, alpha, self.repeats)
        wider = np.sqrt(1 + self.collisions / self._noise(self._mass))
        return self.estimate + (lower - self._mass) * wider, self.estimate + (upper - self._mass) * wider


@dataclass(frozen=True)
class Unlisted:
    """The share of reports whose text is not in the list: raw, with its standard error."""

    estimate: float
    std_error: float

    def interval(self) -> tuple[float, float]:
        """Return the ends of its 95 % interval."""
        return self.estimate - Z * self.std_error, self.estimate + Z * self.std_error


class Rows:
    """A tally of rows, decoded: what is asked of any candidates is looked up in it."""

    def __init__(self, mechanism: PGR, domain: Hashed, table: Counts, repeats: int = 1) -> None:
        """Decode int64[R, 1 + K]: of each row the number of its reports, then their points. Raises BadTally."""
        self.mechanism, self.domain, self.repeats = mechanism, domain, repeats
        self._places = np.flatnonzero(table[:, 0])
        self._points = table[self._places, 1:]
        self._n = table[self._places, 0]
        self._support = np.array(
            [support_counts(mechanism, points, int(n)) for points, n in zip(self._points, self._n, strict=True)]
        )

    def shares(self, names: Sequence[str]) -> HashedShares:
        """Return the shares of candidates."""
        places = self._buckets(names)
        crowded = np.zeros((len(self._n), self.domain.buckets), dtype=np.int64)
        first = self._score(*self._look_up(places, crowded))
        heaviest = np.argsort(-first, kind="stable")[:HEAVIEST]
        heaviest = heaviest[first[heaviest] > SURE]
        each_row = np.arange(len(self._n))[:, np.newaxis]
        np.add.at(crowded, (each_row, places[:, heaviest]), 1)
        themselves = np.zeros(len(names), dtype=np.int64)
        themselves[heaviest] = 1
        support, n, rows = self._look_up(places, crowded, themselves)
        chances = self._chances(self._score(support, n, rows), crowded)
        mean, spread = self._light
        return HashedShares(tuple(names), self.mechanism, support, n, mean, spread / rows, chances, self.repeats)

    def _look_up(self, places: Counts, crowded: Counts, themselves: Counts | int = 0) -> tuple[Counts, Counts, Counts]:
        """Return support, reports and number of the rows of texts in these buckets, without those that mislead.

        A row misleads by a test: that its rate is the one of the other rows, by the variance that both have together.

        `crowded` is how many of the heaviest are in each bucket, int64[rows, B]; `themselves` is 1 for each of these.
        """
        counts = np.take_along_axis(self._support, places, axis=1)
        used = np.take_along_axis(crowded, places, axis=1) == themselves
        used[:, ~used.any(axis=0)] = True
        reports = self._n[:, np.newaxis] * used
        support, n, rows = (counts * used).sum(axis=0), reports.sum(axis=0), used.sum(axis=0)
        largest = np.where(used, counts / self._n[:, np.newaxis], -1.0).argmax(axis=0)
        several = np.flatnonzero(rows > 1)
        row = largest[several]
        mine, own = counts[row, several], self._n[row]
        rest = n[several] - own
        rate = (support[several] - mine) / rest
        error = np.sqrt(np.maximum(rate * (1 - rate), 1 / rest) * (1 / own + 1 / rest))
        far = mine / own - rate > FAR * error
        for total, less in ((support, mine), (n, own), (rows, 1)):
            total[several] -= np.where(far, less, 0)
        return support, n, rows

    def _score(self, support: Counts, n: Counts, rows: Counts) -> Floats:
        """Return about how many standard errors texts are above what a stranger has: a test, by the null's variance."""
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        mean, spread = self._light
        rate = q + (p - q) * min(max(mean, 0.0), 1.0)  # of very few reports it may be neither
        error = np.sqrt(rate_variance(np.array(rate), n, p - q) + spread / rows)
        return np.asarray((support / n - rate) / (p - q) / error)

    def _chances(self, scores: Floats, crowded: Counts) -> Floats:
        """Return how often a stranger's score is at least each of these; the same each time."""
        number = max(STRANGERS_MIN, STRANGERS_EACH * len(scores))
        ordered, rng = np.sort(scores), np.random.default_rng(0)
        reached = np.zeros(len(scores) + 1, dtype=np.int64)
        for start in range(0, number, STRANGERS_AT_ONCE):
            strangers = min(STRANGERS_AT_ONCE, number - start)
            places = rng.integers(0, self.domain.buckets, (len(self._n), strangers))
            theirs = self._score(*self._look_up(places, crowded))
            reached += np.bincount(np.searchsorted(ordered, theirs, side="right"), minlength=len(reached))
        passing = np.cumsum(reached[::-1])[::-1]  # of strangers above the i smallest scores and equal ones
        return np.asarray((1 + passing[np.searchsorted(ordered, scores, side="left") + 1]) / (number + 1))

    def unlisted(self, listed: HashedShares) -> Unlisted:
        """Return the mass of all texts but these."""
        squares = float((listed.estimate**2 - listed.std_error**2).sum())
        rest = max(self.domain.buckets * self._spread(self._shares, self._noise) - squares, 0.0)
        estimates, variances = [], []
        for places, points in zip(self._buckets(listed.names), self._points, strict=True):
            occupied = np.zeros(self.mechanism.d)
            occupied[places] = 1.0
            part = occupied.sum() / self.domain.buckets
            mass, variance = points_sum(self.mechanism, occupied, points)
            estimates.append(1 - (mass - part) / (1 - part))
            variances.append(variance / (1 - part) ** 2 + rest * part / (1 - part))
        weights = self._n / self._n.sum()
        estimate = float(weights @ estimates)
        again = (self.repeats - 1) * answers_variance(np.array(estimate)) / self._n.sum()
        return Unlisted(estimate, sqrt(float(weights**2 @ variances + again)))

    @cached_property
    def _light(self) -> tuple[float, float]:
        """Mean and variance of what texts add to a bucket, but for those that many have."""
        light = self._shares <= FAR * np.sqrt(self._floor)[:, np.newaxis]
        rows = [
            (shares[each], noise[each]) for shares, noise, each in zip(self._shares, self._noise, light, strict=True)
        ]
        mean = np.mean([shares.mean() for shares, _ in rows])
        return float(mean), float(np.mean([self._spread(shares, noise) for shares, noise in rows]))

    @staticmethod
    def _spread(shares: Floats, noise: Floats) -> float:
        """Return the variance of the shares of buckets, without that of their noise; 0 at least."""
        return max(float(np.mean(shares.var(axis=-1) - noise.mean(axis=-1))), 0.0)

    @cached_property
    def _shares(self) -> Floats:
        """The raw share of each bucket, float64[rows, B]."""
        return raw_shares(self.mechanism, self._support, self._n[:, np.newaxis])

    @cached_property
    def _noise(self) -> Floats:
        """The variance of each."""
        rates, further = self._support / self._n[:, np.newaxis], np.maximum(self._n - 1, 1)[:, np.newaxis]
        return rate_variance(rates, further, float(self.mechanism.p - self.mechanism.q))

    @cached_property
    def _floor(self) -> Floats:
        """The variance of an empty bucket in each row."""
        return share_variance(self.mechanism, np.zeros(1), self._n, "reports")

    def _buckets(self, names: Sequence[str]) -> Counts:
        """Return the bucket of each candidate in each row that has reports: int64[rows, S]."""
        numbers = _numbers(self.domain, tuple(names))
        return np.array([_row(numbers, self.domain, row) for row in self._places.tolist()]).reshape(-1, len(names))


@lru_cache(maxsize=4)
def _numbers(domain: Hashed, names: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    return np.array([domain.number(domain.named(name)) for name in names], dtype=np.uint64)


def _row(numbers: npt.NDArray[np.uint64], domain: Hashed, row: int) -> Counts:
    """Return `Hashed.bucket` of many numbers: the product by halves, which 64 bits hold."""
    products, buckets = numbers * np.uint64(domain.multiplier(row)), np.uint64(domain.buckets)
    low = (products & np.uint64(0xFFFFFFFF)) * buckets >> _HALF
    return ((products >> _HALF) * buckets + low >> _HALF).astype(np.int64)
