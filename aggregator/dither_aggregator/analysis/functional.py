"""Functionals: weighted sums of the shares of a metric's values, g = sum of a_v f_v, and the law of their errors.

A share, a group of values, a rate and a difference are functionals. A pure mechanism estimates each of them by the mean
over n reports y of

    w(y) = (sum of a_v over the values that y supports - q A) / (p - q)          A = sum of all a_v

It is unbiased for every answer x: E[w | x] = k(x), the sum of a_v over the values that x holds. So two functionals,
with weights a and b and A, B, k_a, k_b as above, covary by

    of the reports       E[Cov(w_a, w_b | x)] / n                    around the answers of the n devices
    of the population    that + Cov(k_a(x), k_b(x)) / n              around what the devices are a sample of

**The noise is known for each answer**, so its mean is a functional itself: it is estimated like any other one, and cut
to what some answer has. Let B2, O, N be the chances that a report supports two values of which the answer holds both,
one, neither (`PairLaw`), and k_ab the sum of a_v b_v over the answer's values. Then

    (p - q)^2 Cov(w_a, w_b | x) = c_1 A B + c_2 (sum of all a_v b_v) + c_3 (A k_b + B k_a) + c_4 k_ab + c_5 k_a k_b

    c_1 = N - q^2    c_2 = q - N    c_3 = O - N - q (p - q)    c_4 = p - q + N - B2    c_5 = B2 - 2 O + N - (p - q)^2

A projective geometry (PGR) has no such law, for it matters which values lie on a line. Its reports are points of two
probabilities, in on the answer's hyperplane and out off it, and w is a number for each point:

    Cov(w_a, w_b | x) = out (sum of all w_a w_b) + (in - out) (their sum on the hyperplane of x) - a_x b_x

**Answers that hold several values** leave E[k_a k_b] open: no tally counts which values are ticked together. Values of
shares f and g are ticked together by max(0, f + g - 1) to min(f, g) of all. A variance takes the end that makes it
larger, a covariance the end that makes it smaller: so a difference or a ratio is never shown as too sure.

**Ratios** have Fieller's intervals (`inference`). The error of a difference of ratios, and of a product, is that
of the functional along which they change first.

**Devices that report r times** add r - 1 times what their reports have in common: the answers where noise is fresh;
where it is memoized also the noise of one shot of the permanent part. It is a bound where some send fewer.

**Two windows, or two metrics, of the same devices** have coins of their own, while answers may go together or alternate
(weekdays and weekends, new and returned). With the noise N and the answers' part s^2 of each variance a difference has

    at most     N_1 + N_2 + (s_1 + s_2)^2  =  V_1 + V_2 + 2 s_1 s_2

and V_1 + V_2 where no device is in both. The noise of a memo that repeats would make it less. Nothing is subtracted for
that: no tally says which devices are in both windows.

**Counts that were published** have noise of their own, of variance V each, and n is their sum over w, the counts to
which a report adds. A functional moves with a count by h_y / n: its covariance has V (sum of h_a h_b) / n^2 more, with

    h_y = w(y) - g    where reports are symbols        h_v = (a_v - (g (p - q) + q A) / w) / (p - q)    where subsets

**Everything that is shown takes its variances from here.** Elsewhere are laws of counts (`pure`, `inference`),
tests by the variance of their null (`pure`, `tables.reading`), and residuals that show what no law knows (`decoder`).

**Weights** are fixed before the counts are looked at, but for numbers (`numeric_fit`) and decoded texts (`decoder`):
theirs are made of a smooth fit, never of the counts themselves. Estimates are as unbiased with them, and errors of
numbers that are mostly alike are down to half as large.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf, sqrt
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dither_aggregator.analysis.inference import (
    CONFIDENCE,
    SURE_TO_COMPARE,
    ErrorOf,
    Floats,
    Ratios,
    clopper_pearson,
    devices_reach,
    effective,
    normal_from,
    reach,
    reach_of_noise,
)
from dither_aggregator.counting import Counts, hyperplane, hyperplane_sums, lies_on
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.mechanism import MemoizedPure, PairLaw
from dither_shared.mechanisms.pgr import points
from dither_shared.mechanisms.two_level import TwoLevel

ENTRIES_MAX = 1 << 23
"""The most entries of a matrix of values by points: 64 MiB of them."""
POINTS_MIN = 512
CONSTANT = 1e-12
"""A smaller variance, beside the square of the largest weight, is that of a sum that every report tells alike."""
TINY = 1e-300
"""Less is nothing: what is divided by it is as large as can be."""

# One value, or one bit: closed forms, of many at once.


def rate_variance(rate: Floats, n: int | Counts | Floats, apart: float) -> Floats:
    """Return the variance, in the population, of what the rate of a bit in n reports says: (rate - q) / apart."""
    return np.asarray(rate * (1 - rate) / (n * apart**2))


def answers_variance(share: Floats) -> Floats:
    """Return that of one device's answer, 1 where it holds a value of such a share: cut to [0, 1]."""
    held = np.clip(share, 0.0, 1.0)
    return np.asarray(held * (1 - held))


def answers_covariance(weights: Floats, shares: Floats) -> Floats:
    """Return that of weighted sums of values with each value, float64[F, m], for answers that hold one value each."""
    return np.asarray(weights * shares - np.outer(weights @ shares, shares))


def share_variance(
    mechanism: PureMechanism, share: Floats, n: int | Counts, error_of: ErrorOf, repeats: int = 1
) -> Floats:
    """Return the variance of the estimates of true shares, each in [0, 1]; at most, where devices report repeatedly."""
    noise = _share_noise(mechanism, share)
    if isinstance(mechanism, MemoizedPure):
        noise = noise + (repeats - 1) * _share_noise(mechanism.permanent, share)
    answers = repeats * share * (1 - share) if error_of == "population" else 0.0
    return np.asarray((noise + answers) / n)


def raw_shares(mechanism: PureMechanism, support: Counts | Floats, n: Counts | Floats | int) -> Floats:
    """Return (C / n - q) / (p - q), raw and unbiased: the shares of values that so many of n reports support."""
    p, q = float(mechanism.p), float(mechanism.q)
    return np.asarray((support / n - q) / (p - q))


def _share_noise(mechanism: PureMechanism, share: Floats) -> Floats:
    p, q = float(mechanism.p), float(mechanism.q)
    spread: Floats = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2
    return spread


@lru_cache(maxsize=2)  # those without the noise of counts, or of devices' repeats, have the same
def _shares_of(mechanism: PureMechanism, counts: bytes, n: int) -> Floats:
    tally = np.frombuffer(counts, dtype=np.int64)
    support = hyperplane_sums(tally, *mechanism.geometry) if mechanism.geometry else tally[: mechanism.d]
    return raw_shares(mechanism, support, n)


# Any weights.


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its error and the ends of its interval."""

    estimate: float
    """Raw: it may be beyond all that is possible."""
    std_error: float
    lower: float
    upper: float

    @classmethod
    def of(cls, estimate: float, variance: float, alpha: float) -> Self:
        """Return it with Wald's interval of confidence 1 - alpha."""
        error = sqrt(max(variance, 0.0))
        reach = -NormalDist().inv_cdf(alpha / 2) * error
        return cls(estimate, error, estimate - reach, estimate + reach)


class Sums(ABC):
    """Weighted sums of unbiased shares, of which estimates, covariances and how near they are to normal are known."""

    n: int
    """How many reports tell them."""

    @abstractmethod
    def estimate(self, weights: Floats) -> float:
        """Return the sum: raw and unbiased."""

    @abstractmethod
    def variance(self, weights: Floats, error_of: ErrorOf = "population") -> float:
        """Return its variance; the largest that the answers leave possible."""

    @abstractmethod
    def interval(self, weights: Floats, alpha: float) -> tuple[float, float] | None:
        """Return the ends of its interval of confidence 1 - alpha; None where devices may be too few to tell it."""

    @abstractmethod
    def _covariances(self, one: Floats, other: Floats, error_of: ErrorOf) -> Floats:
        """Return the covariance of two, at each end of what the answers leave possible: float64[1 or 2]."""

    @abstractmethod
    def _is_normal(self, *each: Floats, alpha: float) -> bool:
        """Tell whether there are surely as many devices as a normal law of some sums needs."""

    def covariance(self, one: Floats, other: Floats, error_of: ErrorOf = "population") -> float:
        """Return the covariance of two; the least that the answers leave possible."""
        return float(self._covariances(one, other, error_of).min())

    def ratio(self, part: Floats, whole: Floats, alpha: float = 1 - CONFIDENCE) -> IntervalEstimate | None:
        """Return one over another, for the population, by Fieller's method; None where it cannot be told.

        It holds whatever the values of one answer have in common, from as many devices on as a normal law needs.
        """
        if not self._is_normal(part, whole, alpha=alpha):
            return None
        if self.estimate(whole) < 0:
            part, whole = -part, -whole
        along = self._covariances(part, whole, "population")
        x, y = (np.full_like(along, self.estimate(each)) for each in (part, whole))
        spread_x, spread_y = (np.full_like(along, self.variance(each)) for each in (part, whole))
        ratios, z = Ratios(x, y, spread_x, along, spread_y, 0.0, -inf, inf), -NormalDist().inv_cdf(alpha / 2)
        lower, upper = ratios.ends(z)
        if not (ratios.known.all() and np.isfinite(lower).all()):  # SURE of the whole, as pages are
            return None
        error = float(ratios.std_error.max())
        return IntervalEstimate(float(ratios.estimate[0]), error, float(lower.min()), float(upper.max()))

    def sum_of_ratios(
        self, ratios: Sequence[tuple[float, Floats, Floats]], alpha: float = 1 - CONFIDENCE
    ) -> IntervalEstimate | None:
        """Return numbers times ratios, each as factor, part and whole, likewise."""
        if not all(self._is_sure(whole) for _, _, whole in ratios):
            return None
        if not self._is_normal(*(each for _, *both in ratios for each in both), alpha=alpha):
            return None
        estimate, slope = 0.0, np.zeros_like(ratios[0][1])
        for factor, part, whole in ratios:
            ratio = self.estimate(part) / self.estimate(whole)
            estimate += factor * ratio
            slope = slope + factor / self.estimate(whole) * (part - ratio * whole)
        return IntervalEstimate.of(estimate, self.variance(slope), alpha)

    def product(self, one: Floats, other: Floats, alpha: float = 1 - CONFIDENCE) -> IntervalEstimate | None:
        """Return one times another, likewise."""
        if not (self._is_sure(one) and self._is_sure(other) and self._is_normal(one, other, alpha=alpha)):
            return None
        x, y = self.estimate(one), self.estimate(other)
        return IntervalEstimate.of(x * y, self.variance(y * one + x * other), alpha)

    def _is_sure(self, weights: Floats) -> bool:
        return abs(self.estimate(weights)) > SURE_TO_COMPARE * sqrt(self.variance(weights))


@dataclass(frozen=True)
class Functionals(Sums):
    """All functionals of a metric with listed values, as n reports of one mechanism tell them.

    Weights are float64[d], one for each value, fixed before the counts are looked at.
    """

    mechanism: PureMechanism
    counts: Counts
    """The tally's, once they are known to be those of n reports (`counting`)."""
    n: int
    repeats: int = 1
    """How many of the reports one device may have sent."""
    count_noise: float = 0.0
    """The variance of the noise that was added to each count; n is made of these counts."""

    @property
    def known(self) -> bool:
        """Whether the mechanism says how two values vary together."""
        return self.mechanism.pairs is not None or self.mechanism.geometry is not None

    @property
    def shares(self) -> Floats:
        """The raw share of each value, float64[d]."""
        return self._everything[: self.mechanism.d]

    @cached_property
    def _everything(self) -> Floats:
        """The same, and where reports are points that of each further hyperplane, which no value has: float64[K]."""
        return _shares_of(self.mechanism, self.counts.tobytes(), self.n)

    def estimate(self, weights: Floats) -> float:
        """Return the functional: raw and unbiased."""
        return float(weights @ self.shares)

    def variance(self, weights: Floats, error_of: ErrorOf = "population") -> float:
        """Return its variance; the largest that the answers leave possible."""
        return max(0.0, float(self._covariances(weights, weights, error_of).max()))

    def interval(self, weights: Floats, alpha: float, variance: float | None = None) -> tuple[float, float] | None:
        """Return the ends of its interval of confidence 1 - alpha; None where devices may be too few to tell it.

        Wald's; of few reports the exact one, where they are counted by their supports, and else as far as a single
        report moves it further. Memos of few devices repeat, which neither knows. The noise of reports and
        the answers of devices have a law each, if devices report repeatedly with fresh noise. The variance is that
        in the population, unless another one is given.
        """
        if self.count_noise:
            ends = replace(self, count_noise=0.0).interval(weights, alpha, variance)
            return ends and self._widened(weights, alpha, *ends)
        estimate = self.estimate(weights)
        if self.repeats > 1 and self.mechanism.memoized:
            if not self._is_normal(weights, alpha=alpha):
                return None
            below = above = -NormalDist().inv_cdf(alpha / 2) * sqrt(self.variance(weights))
        elif self.repeats > 1 and variance is None:
            noise = self._reach_of_reports(weights, alpha, self.variance(weights, "reports"))
            below, above = np.hypot(noise, self._reach_of_devices(weights, alpha)).tolist()
        else:
            below, above = self._reach_of_reports(
                weights, alpha, self.variance(weights) if variance is None else variance
            )
        return estimate - below, estimate + above

    def _widened(self, weights: Floats, alpha: float, lower: float, upper: float) -> tuple[float, float]:
        """Return the ends of an interval that allows for the noise of published counts, too."""
        estimate, noise = self.estimate(weights), reach_of_noise(sqrt(self._published(weights, weights)), alpha)
        below, above = np.hypot([estimate - lower, upper - estimate], noise).tolist()
        return estimate - below, estimate + above

    def _published(self, one: Floats, other: Floats) -> float:
        """Return the covariance that the noise of published counts adds."""
        moves = [self._moves(weights) for weights in (one, other)]
        return self.count_noise * float(moves[0] @ moves[1]) / self.n**2

    def _moves(self, weights: Floats) -> Floats:
        """Return n times how far the functional moves with each count."""
        mechanism, estimate = self.mechanism, self.estimate(weights)
        if mechanism.geometry is not None:
            return on_points(mechanism, weights) - estimate
        p, q, named = float(mechanism.p), float(mechanism.q), mechanism.shape.raises
        assert named is not None  # counts of bits are not published
        held = np.zeros(mechanism.shape.size)  # dummies are no values, but counts of them make n
        held[: mechanism.d] = weights
        return np.asarray((held - (estimate * (p - q) + q * weights.sum()) / named) / (p - q))

    def _is_normal(self, *each: Floats, alpha: float) -> bool:
        """Tell whether there are surely as many devices as a normal law of some functionals needs.

        The permanent part of memos that repeat needs them by itself: its rare counts are far more skewed.
        """
        devices, z = effective(float(self.n), self.repeats, permanent=True), -NormalDist().inv_cdf(alpha / 2)
        skewed = [self.skewness(weights) for weights in each]
        if self.repeats > 1 and isinstance(self.mechanism, MemoizedPure):
            skewed += [_skewness(self.mechanism.permanent, weights) for weights in each]
        return devices >= normal_from(max(skewed), z)

    def _reach_of_reports(self, weights: Floats, alpha: float, variance: float) -> tuple[float, float]:
        """Return how far its interval reaches below and above it, by a variance and the law of different reports."""
        z, estimate, once = -NormalDist().inv_cdf(alpha / 2), self.estimate(weights), replace(self, repeats=1)
        if once._is_normal(weights, alpha=alpha):
            return z * sqrt(variance), z * sqrt(variance)
        held = np.flatnonzero(weights)
        if (weights[held] == 1).all() and (len(held) == 1 or self.mechanism.supports_one):
            p, q = float(self.mechanism.p), float(self.mechanism.q)
            part = sqrt(variance / once.variance(weights)) if self.repeats > 1 else 1.0
            rate = len(held) * q + estimate * (p - q)
            lower, upper = clopper_pearson(np.array([rate * self.n]), self.n, alpha)
            return part * float(rate - lower[0]) / (p - q), part * float(upper[0] - rate) / (p - q)
        least, most = self.extremes(weights)
        below, above = reach(np.array(variance), np.array([estimate - least, most - estimate]) / self.n, self.n, z)
        return float(below), float(above)

    def _reach_of_devices(self, weights: Floats, alpha: float) -> tuple[float, float]:
        """Return how far the answers of the fewest devices that there may be leave it open below and above."""
        devices, mean = effective(float(self.n), self.repeats, permanent=True), self._possible(weights)
        least, most = self._answers(weights)
        if self.mechanism.ticks == 1 and np.isin(weights, (least, most)).all():
            width = max(most - least, TINY)
            ends = devices_reach(np.array([(mean - least) / width]), devices, alpha)
            return width * float(ends[0][0]), width * float(ends[1][0])
        once = replace(self, repeats=1)
        spread = max(0.0, once.variance(weights) - once.variance(weights, "reports")) * self.n / devices
        heaviest = np.array([mean - least, most - mean]) / devices
        below, above = reach(np.array(spread), heaviest, devices, -NormalDist().inv_cdf(alpha / 2))
        return float(below), float(above)

    def skewness(self, weights: Floats) -> float:
        """Return how skewed one report's w is, about, where that is worst: where answers have no weight, or now.

        By the law of pairs it is that of as many rare bits as have its variance. A few points with far more weight on
        them than others make it large: then reports seldom show the variance.
        """
        if self.mechanism.geometry is not None:
            return _skewness(self.mechanism, weights)
        return _skewness(self.mechanism, weights, self.n * replace(self, repeats=1).variance(weights, "reports"))

    def extremes(self, weights: Floats) -> tuple[float, float]:
        """Return the least and the most that w may be of any report, or what it cannot pass."""
        mechanism, shape = self.mechanism, self.mechanism.shape
        if mechanism.geometry is not None:
            of_points = on_points(mechanism, weights)
            return float(of_points.min()), float(of_points.max())
        each = np.sort(weights)
        supported = mechanism.d if shape.raises is None else min(shape.raises, mechanism.d)
        low, high = each[:supported], each[-supported:]
        if shape.raises is None or shape.size > mechanism.d:  # it may support fewer of them
            low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        p, q = float(mechanism.p), float(mechanism.q)
        least, most = ((float(end.sum()) - q * float(weights.sum())) / (p - q) for end in (low, high))
        return least, most

    def _covariances(self, one: Floats, other: Floats, error_of: ErrorOf) -> Floats:
        """Return the covariance at each end of what E[k_a k_b] may be, float64[1 or 2]."""
        products = self._products(one, other)
        noise = self._noise(self.mechanism, one, other, products)
        again = np.zeros_like(noise)
        if isinstance(self.mechanism, MemoizedPure):
            again = self._noise(self.mechanism.permanent, one, other, products)
        if error_of == "population":
            answers = products - self._possible(one) * self._possible(other)
            noise, again = noise + answers, again + answers
        published = self._published(one, other) if self.count_noise else 0.0
        return np.asarray((noise + (self.repeats - 1) * again) / self.n + published)

    def _noise(self, mechanism: PureMechanism, one: Floats, other: Floats, products: Floats) -> Floats:
        """Return the mean of Cov(w_a, w_b | x) over answers, at each end of E[k_a k_b]."""
        constant, linear, square = noise_of(mechanism, one, other)
        if mechanism.ticks == 1:
            return np.array([constant + self._possible(linear)])
        return np.asarray(constant + self._possible(linear) + square * products)

    def _products(self, one: Floats, other: Floats) -> Floats:
        """Return what E[k_a k_b] may be, the least and the most: one number where answers hold one value."""
        together = self._possible(one * other)
        if self.mechanism.ticks == 1:
            return np.array([together if one is not other else max(together, self._possible(one) ** 2)])
        least, most = ticked_together(one, other, np.clip(self.shares, 0.0, 1.0))
        if one is other:
            mean = self._possible(one)
            whole = np.array_equal(one, np.rint(one))  # then k is, too: beside its mean it has some spread
            part = mean - np.floor(mean) if whole else 0.0
            least = max(least, mean**2 + part * (1 - part))
            held = min(self.mechanism.ticks, int(np.count_nonzero(one)))
            most = max(min(most, held * together), least)
        return np.array([least, most])

    def _possible(self, weights: Floats) -> float:
        """Return the estimate of a functional, cut to what an answer may have."""
        least, most = self._answers(weights)
        return min(max(float(weights @ self._everything[: len(weights)]), least), most)

    def _answers(self, weights: Floats) -> tuple[float, float]:
        """Return the least and the most that one answer may have."""
        ordered, ticks = np.sort(weights[: self.mechanism.d]), self.mechanism.ticks
        if ticks == 1:
            return float(ordered[0]), float(ordered[-1])
        return float(np.minimum(ordered[:ticks], 0.0).sum()), float(np.maximum(ordered[-ticks:], 0.0).sum())


def _skewness(mechanism: PureMechanism, weights: Floats, variance: float = inf) -> float:
    """Return the skewness of w where nobody's answer has a weight, or by the variance of a report, if that is less."""
    if mechanism.geometry is None:
        of_nobody, _, _ = noise_of(mechanism, weights, weights)
        least, most = min(of_nobody, variance), float(np.abs(weights).max())
        if least <= CONSTANT * most**2:
            return 0.0
        return most / (sqrt(least) * float(mechanism.p - mechanism.q))
    of_points = on_points(mechanism, weights)
    distance = np.abs(of_points - of_points.mean())
    return float((distance**3).mean() / max(float((distance**2).mean()), TINY) ** 1.5)


def noise_of(mechanism: PureMechanism, one: Floats, other: Floats) -> tuple[float, Floats, float]:
    """Return Cov(w_a, w_b | x) as a constant, a weight for each value that x holds, and that of k_a k_b.

    The last is nothing where answers hold one value: k_a k_b is k_ab. If reports are points there is a weight for each
    hyperplane. Raises TypeError where two values' law is not known.
    """
    p, q = mechanism.p, mechanism.q
    if mechanism.geometry is not None:
        return _noise_of_points(mechanism, one, other)
    if mechanism.pairs is None:
        raise TypeError(f"{mechanism.name} does not say how two values are supported together")
    by_constant, by_all, by_sum, by_own, by_product = _coefficients(p, q, mechanism.pairs)
    all_one, all_other = float(one.sum()), float(other.sum())
    constant = by_constant * all_one * all_other + by_all * float(one @ other)
    if mechanism.ticks == 1:
        by_own, by_product = by_own + by_product, 0.0
    return constant, by_sum * (all_one * other + all_other * one) + by_own * one * other, by_product


@lru_cache(maxsize=64)
def _coefficients(p: Fraction, q: Fraction, pairs: PairLaw) -> tuple[float, ...]:
    """Return c_1 to c_5 over (p - q)^2, computed exactly: large terms cancel."""
    both, one, neither, apart = pairs.both, pairs.one, pairs.neither, p - q
    exact = (
        neither - q * q,
        q - neither,
        one - neither - q * apart,
        apart + neither - both,
        both - 2 * one + neither - apart * apart,
    )
    return tuple(float(each / apart**2) for each in exact)


def _noise_of_points(mechanism: PureMechanism, one: Floats, other: Floats) -> tuple[float, Floats, float]:
    return _noise_by_weights(mechanism, one.tobytes(), other.tobytes())


@lru_cache(maxsize=4)  # it is the plan's alone: a series asks for that of the same weights each day
def _noise_by_weights(mechanism: PureMechanism, of_one: bytes, of_other: bytes) -> tuple[float, Floats, float]:
    assert mechanism.geometry is not None
    one, other = np.frombuffer(of_one), np.frombuffer(of_other)
    value = _one_value(one) if of_one == of_other else None
    if value is not None:
        return _noise_of_value(mechanism, value)
    on, off = _of_a_point(mechanism)
    products = on_points(mechanism, one) * on_points(mechanism, other)
    each = (on - off) * hyperplane_sums(products, *mechanism.geometry)
    each[: mechanism.d] -= one * other
    return off * float(products.sum()), each, 0.0


def _of_a_point(mechanism: PureMechanism) -> tuple[float, float]:
    """Return the probabilities of a point on the answer's hyperplane, and of one off it."""
    assert isinstance(mechanism, TwoLevel)
    every, share, inside = mechanism.shape.size, float(mechanism.law.share), float(mechanism.law.inside)
    return inside / (every * share), (1 - inside) / (every * (1 - share))


def _noise_of_value(mechanism: PureMechanism, value: int) -> tuple[float, Floats, float]:
    """Return the same for the share of one value, without a transform.

    w is (1 - q) / (p - q) on the value's own hyperplane and -q / (p - q) off it. Any other hyperplane has as many
    points in common with that one as two hyperplanes have.
    """
    assert mechanism.geometry is not None
    order, dimension, _ = mechanism.geometry
    p, q, every, inside = float(mechanism.p), float(mechanism.q), mechanism.shape.size, points(order, dimension - 1)
    (on, off), scale = _of_a_point(mechanism), (p - q) ** 2
    common = np.full(every, float(points(order, dimension - 2)))
    common[value] = inside
    each = (on - off) * (common * (1 - 2 * q) + inside * q**2) / scale
    each[value] -= 1.0
    return off * (inside * (1 - 2 * q) + every * q**2) / scale, each, 0.0


def on_points(mechanism: PureMechanism, weights: Floats) -> Floats:
    """Return w of each point that may be reported, float64[K], where reports are points."""
    return _on_points(mechanism, weights.tobytes())


@lru_cache(maxsize=2)  # a variance asks for it, and whoever judges the law
def _on_points(mechanism: PureMechanism, of_values: bytes) -> Floats:
    assert mechanism.geometry is not None
    p, q, weights = float(mechanism.p), float(mechanism.q), np.frombuffer(of_values)
    value = _one_value(weights)
    if value is not None:
        return np.asarray((hyperplane(*mechanism.geometry, value) - q) / (p - q))
    padded = np.zeros(mechanism.shape.size)
    padded[: mechanism.d] = weights
    return np.asarray((hyperplane_sums(padded, *mechanism.geometry) - q * weights.sum()) / (p - q))


def _one_value(weights: Floats) -> int | None:
    """Return the value whose share a functional is; None of any other."""
    held = np.flatnonzero(weights)
    return int(held[0]) if len(held) == 1 and weights[held[0]] == 1 else None


def ticked_together(one: Floats, other: Floats, shares: Floats) -> tuple[float, float]:
    """Return the least and the most of sum over u, v of a_u b_v P[u and v are ticked], where values have these shares.

    min(f, g) is the length of what [0, f] and [0, g] have in common, max(0, f + g - 1) that of [0, f] and [1 - g, 1]:
    both sums are integrals over [0, 1] of how much weight lies over each point. A value is ticked with itself by f.
    """
    cuts = np.unique(np.concatenate([[0.0, 1.0], shares, 1 - shares]))
    middles, lengths = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)

    def over(ends: Floats, *each: Floats) -> list[Floats]:
        """Return how much of some weights has an end above each of the middles."""
        order = np.argsort(ends)
        first = np.searchsorted(ends[order], middles)
        return [np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)[first] for weights in each]

    signs = [(np.maximum(each, 0.0), np.minimum(each, 0.0)) for each in (one, other)]
    of_one, of_other = over(shares, *signs[0]), over(shares, *signs[1])
    of_ends = [others.sum() - below for others, below in zip(signs[1], over(1 - shares, *signs[1]), strict=True)]
    bounds = []
    for alike in (False, True):  # whether values whose weights have one sign are ticked together as often as can be
        total = 0.0
        for same, pairs in ((True, ((0, 0), (1, 1))), (False, ((0, 1), (1, 0)))):
            often = same == alike
            for a, b in pairs:
                total += float(lengths @ (of_one[a] * (of_other if often else of_ends)[b]))
                if not often:
                    weights, others = signs[0][a], signs[1][b]
                    total += float((weights * others) @ (shares - np.maximum(0.0, 2 * shares - 1)))
        bounds.append(total)
    return bounds[0], bounds[1]


def variance_at(mechanism: PureMechanism, weights: Floats, shares: Floats) -> float:
    """Return n times the variance of a functional in a population of answers of one value, with these shares."""
    constant, linear, _ = noise_of(mechanism, weights, weights)
    return float(constant + shares @ (linear[: len(shares)] + weights**2) - (weights @ shares) ** 2)


def points_sum(mechanism: PureMechanism, weights: Floats, points: Counts) -> tuple[float, float]:
    """Return a functional and its variance in the population, as n reports that are points have it, int64[K]."""
    of_points, n = on_points(mechanism, weights), int(points.sum())
    estimate = float(of_points @ points) / n
    return estimate, float((of_points - estimate) ** 2 @ points) / (n * max(n - 1, 1))


# Cells of a product: an answer's value is in one cell, and its weight is that of the cell.


class CellLaw(ABC):
    """The covariance of the raw shares of m cells in the population, times n."""

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """The variance of each cell, float64[m]."""

    @property
    @abstractmethod
    def planned(self) -> float:
        """Their mean where all values are equally frequent: the plan's alone, whatever the counts are."""

    @abstractmethod
    def covariances(self, weights: Floats) -> Floats:
        """Return that of weighted sums of cells with each cell: float64[F, m] in and out."""

    @abstractmethod
    def covariance(self, shares: Floats) -> Floats:
        """Return that of all cells, float64[m, m], where answers in them have these shares, float64[m]."""


@dataclass(frozen=True)
class PairedCells(CellLaw):
    """The same by the law of pairs, in closed form: linear in the shares, so raw ones leave it without bias."""

    mechanism: PureMechanism
    sizes: Floats
    """The values of each cell, M, float64[m]."""
    shares: Floats
    """phi, float64[m]."""

    @cached_property
    def variances(self) -> Floats:
        """The variances of each cell alone: A is M, and k its share."""
        by_constant, _, by_sum = self._of_two
        own = self._own(self.shares) + by_constant * self.sizes**2 + 2 * by_sum * self.sizes * self.shares
        return np.asarray(own - self.shares**2)

    @property
    def planned(self) -> float:
        """The same of even shares."""
        return float(replace(self, shares=self.sizes / self.sizes.sum()).variances.mean())

    def covariances(self, weights: Floats) -> Floats:
        """Return those with each cell."""
        return self._covariances(weights, self.shares)

    def covariance(self, shares: Floats) -> Floats:
        """Return those of all cells."""
        return self._covariances(np.eye(len(shares)), shares)

    def _covariances(self, weights: Floats, shares: Floats) -> Floats:
        by_constant, _, by_sum = self._of_two
        all_, held = (weights @ self.sizes)[:, np.newaxis], (weights @ shares)[:, np.newaxis]
        apart = all_ * (by_constant * self.sizes + by_sum * shares) + held * (by_sum * self.sizes - shares)
        return np.asarray(weights * self._own(shares) + apart)

    def _own(self, shares: Floats) -> Floats:
        """Return what a cell with itself has more than two cells have, its answers counted."""
        _, by_all, _ = self._of_two
        *_, by_own, by_product = self._coefficients
        return by_all * self.sizes + (by_own + by_product + 1) * shares

    @property
    def _of_two(self) -> tuple[float, ...]:
        """c_1 to c_3."""
        return self._coefficients[:3]

    @property
    def _coefficients(self) -> tuple[float, ...]:
        assert self.mechanism.pairs is not None
        return _coefficients(self.mechanism.p, self.mechanism.q, self.mechanism.pairs)


@dataclass(frozen=True)
class PointCells(CellLaw):
    """The same from the points that were reported: on the hyperplanes of how many values of a cell each lies.

    For large tables it takes as many of the reports as ENTRIES_MAX and POINTS_MIN allow, evenly spread over all: a
    standard error from 512 reports is itself off by 3 %.
    """

    mechanism: PureMechanism
    cells: npt.NDArray[np.intp]
    """The cell of each value, intp[d]."""
    size: int
    """m."""
    histogram: Counts
    """int64[K], of at least one report."""

    @cached_property
    def variances(self) -> Floats:
        """The variances of each cell alone."""
        return np.asarray((self._supported**2 @ self._weights - self._means**2) / self._scale)

    @property
    def planned(self) -> float:
        """By how many points lie on two hyperplanes, as if all points were reported equally often."""
        order, dimension, _ = self._geometry
        one, two = (points(order, dimension - less) / points(order, dimension) for less in (1, 2))
        sizes = np.bincount(self.cells, minlength=self.size).astype(np.float64)
        return float((sizes * one + sizes * (sizes - 1) * two - (sizes * one) ** 2).mean() / self._scale)

    def covariances(self, weights: Floats) -> Floats:
        """Return those with each cell."""
        products = (weights @ self._supported * self._weights) @ self._supported.T
        return np.asarray((products - np.outer(weights @ self._means, self._means)) / self._scale)

    def covariance(self, shares: Floats) -> Floats:
        """Return those of all cells, over the points that answers of these shares are expected to be reported as.

        Within a cell its values are held equally often. For tables of which all points are looked at.
        """
        order, dimension, _ = self._geometry
        inside, sizes = points(order, dimension - 1), np.bincount(self.cells, minlength=self.size)
        p, q, outside = float(self.mechanism.p), float(self.mechanism.q), len(self.histogram) - inside
        on = (shares / sizes) @ self._supported
        expected = on * p / inside + (shares.sum() - on) * (1 - p) / outside
        means = sizes * q + shares * (p - q)
        return np.asarray(((self._supported * expected) @ self._supported.T - np.outer(means, means)) / self._scale)

    @property
    def _geometry(self) -> tuple[int, int, int]:
        assert self.mechanism.geometry is not None
        return self.mechanism.geometry

    @property
    def _scale(self) -> float:
        return float(self.mechanism.p - self.mechanism.q) ** 2

    @cached_property
    def _means(self) -> Floats:
        """How many values of each cell a report supports on average."""
        return self._supported @ self._weights

    @cached_property
    def _points(self) -> Counts:
        """The points that are looked at: all of them, or those of some reports."""
        most = max(POINTS_MIN, ENTRIES_MAX // len(self.cells))
        if most >= len(self.histogram):
            return np.arange(len(self.histogram))
        upto = np.cumsum(self.histogram)
        return np.asarray(np.searchsorted(upto, (np.arange(most) + 0.5) / most * upto[-1]))

    @property
    def _weights(self) -> Floats:
        """How large a part of the reports each of them stands for."""
        if len(self._points) < len(self.histogram):
            return np.full(len(self._points), 1 / len(self._points))
        return np.asarray(self.histogram / self.histogram.sum())

    @cached_property
    def _supported(self) -> Floats:
        """How many values of each cell each point supports, float64[m, points]."""
        supported = np.zeros((self.size, len(self._points)))
        step = max(1, ENTRIES_MAX // len(self._points))
        for first in range(0, len(self.cells), step):
            values = np.arange(first, min(first + step, len(self.cells)))
            folding = csr_array((np.ones(len(values)), (self.cells[values], values - first)), (self.size, len(values)))
            supported += folding @ lies_on(*self._geometry, values, self._points).astype(np.float64)
        return supported


# Two windows, or two metrics.


def answers_part(share: Floats | float, std_error: Floats | float, n: float, repeats: int) -> Floats:
    """Return s over the standard error of a share's estimate from n reports: between 0 and 1."""
    possible = np.clip(share, 0.0, 1.0)
    answers = np.sqrt(repeats * possible * (1 - possible) / n)
    return np.asarray(np.minimum(answers / np.maximum(std_error, np.finfo(np.float64).tiny), 1.0))


def apart(one: Floats | float, other: Floats | float, opposed: Floats | float) -> Floats:
    """Return how far the difference of two estimates may be off, of which each may be off so far.

    `opposed` is s_1 s_2 over the product of both standard errors, or 0 where no device is in both. Between ends of
    intervals it is the correlation of Zou's method ("MOVER", 2008).
    """
    return np.asarray(np.sqrt(np.square(one) + np.square(other) + 2 * opposed * np.multiply(one, other)))


def difference(
    one: tuple[Functionals, Floats],
    other: tuple[Functionals, Floats],
    confidence: float = CONFIDENCE,
    *,
    returning: bool = True,
) -> IntervalEstimate | None:
    """Return a functional of one window or metric less one of another, in the population.

    None where one of them has no interval. `returning` is false if no device is in both.
    """
    ends = [functionals.interval(weights, 1 - confidence) for functionals, weights in (one, other)]
    if ends[0] is None or ends[1] is None:
        return None
    (x, y), errors = ([functionals.estimate(weights) for functionals, weights in (one, other)], [])
    opposed = float(returning)
    for functionals, weights in (one, other):
        variance = functionals.variance(weights)
        errors.append(sqrt(variance))
        opposed *= sqrt(max(0.0, 1 - functionals.variance(weights, "reports") / max(variance, TINY)))
    (low, high), (other_low, other_high) = ends[0], ends[1]
    below, above = float(apart(x - low, other_high - y, opposed)), float(apart(high - x, y - other_low, opposed))
    return IntervalEstimate(x - y, float(apart(errors[0], errors[1], opposed)), x - y - below, x - y + above)


# Rows of counts whose weights are given: what a fit of several cells comes to.


def rows_centred(weights: Floats, rates: Floats | Counts, cell: Counts) -> Floats:
    """Make weights, float64[rows, F], less by the mean of their cell: how many reports a cell has tells nothing.

    A row is an output of a cell, numbered from 0, and those of a cell stand together. Its rate is its part of all n
    reports, or in proportion to that. With centred weights w the covariance of sums of rates is w' diag(rates) w / n,
    that of the population.
    """
    for first, last in pairwise(np.searchsorted(cell, np.arange(int(cell[-1]) + 2)).tolist()):
        own = rates[first:last]
        weights[first:last] -= own / own.sum() @ weights[first:last]
    return weights
