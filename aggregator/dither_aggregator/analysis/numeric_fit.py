"""Numbers fitted: shares of places by least squares and by likelihood, and strict bounds of what they can be.

**The fit of a channel**: shares by maximum likelihood to look at, and unbiased ones by least squares to reckon with.

Maximum likelihood, f >= 0 and sum f = 1, by expectation maximisation from a uniform start:

    f <- f * A' (c / (A f)) / n

It is stopped once a step gains less than .005 of log-likelihood, which is what keeps it smooth: iterated to the end it
would show noise as peaks. That figure is the best one for every epsilon (`make bench ARGS=numbers`); that of Li et al.
2020 grows with epsilon. One step goes as far as several if reports tell little (`pace_of`), and must gain as much. The
factor of a share is raised to that power, and shares are made to sum to one.
Generalised least squares, with R = diag(A f) of that fit, has the least variance among unbiased linear estimates if
the fit is right, and is unbiased whatever it is. R is never the counts themselves: what came out rare would count more.
Weights of even shares, the same whatever the counts are, hold as often, with up to twice the error where most numbers
are in a few ranges:

    f^ = M^-1 A' R^-1 c / n      M = A' R^-1 A      f^ sums to one
    Cov = W' [ diag(c) - (sum over cells of c c' / n_cell) ] W / n^2      W = R^-1 A M^-1

The covariance is that of the population: it counts that devices are a sample, with cells as large as they are. Repeated
reports of a device add more (`repeated`), and their answers have the law of as few
devices. A count of which few are expected may be zero, and would say that it is
certain: an interval reaches as far as the reports that weigh most may move it (`inference.reach`).

**Strict bounds.** All that shares can be which fit the counts, are not negative, and sum to one.

With D(f) = |U (f - raw)|^2 the set { f >= 0, sum f = 1, D(f) <= min D + z^2 } holds the truth of any one functional
about as often as an interval of z standard errors, and is narrower wherever noise would make shares negative
(Stark 1992; Rust, Burrus 1972). That the cut of one degree of freedom is enough is no theorem (Batlle et al. 2023 have
counterexamples), and it is false where nearly all places are empty: f >= 0 lets noise only add to them, so it pushes a
mean away from its end of the axis, and the set with it. So where the best shares lie beyond `raw`, what Wald's interval
around `raw` reaches is held for possible, too. A test measures the coverage for numbers of all forms.

A functional may be a ratio: "the mean of those who gave a number is at least t" is the linear "sum of (x - t) f >= 0".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.channel import NumberChannel
from dither_aggregator.analysis.functional import answers_covariance, rows_centred, share_variance
from dither_aggregator.analysis.inference import Floats, Z, effective, reach
from dither_shared.mechanisms.mechanism import MemoizedPure

STEPS_MAX = 3_000
GAIN = 0.005
TINY = 1e-300
START = 1e-9
"""This part of a uniform law is mixed in: a fit that calls a place empty may be wrong."""


class Effects(NamedTuple):
    """The part of errors of functionals that is the reports'."""

    variances: Floats
    heaviest: Floats
    """The most that one report moves each."""


@dataclass(frozen=True)
class NumberFit:
    """The shares of a channel's places, as its counts tell them."""

    channel: NumberChannel
    shares: Floats
    """By maximum likelihood: they sum to one, and none is negative. To look at, biased."""
    raw: Floats
    """Unbiased, by least squares: they sum to one, and may be negative."""
    scale: Floats
    """R^-1 A is the law of a report of the row's cell times this, float64[rows]."""
    information: Floats
    """n M, float64[places, places]."""
    factor: Floats
    """Its Cholesky factor, with zeros below: n M is `factor.T @ factor`."""
    further: Floats | None = None
    """Repeated reports, or the noise of a release, add this to the covariance, float64[places, places]."""

    answers: Floats | None = None
    """The part of the covariance that is the answers' of so many devices, each given again and again; None if once."""
    devices: float = 0.0

    @cached_property
    def once(self) -> Floats:
        """M^-1 / n, of reports that nobody repeats and no noise is added to."""
        from scipy.linalg import lapack

        upper = lapack.dpotri(self.factor)[0]
        upper.flat[:: len(upper) + 1] /= 2
        return np.asarray(upper + upper.T)

    @cached_property
    def weights(self) -> Floats:
        """By how much one more report moves `raw`, beside one that is as its cell is: float64[rows, places]."""
        return self._rows @ self.once

    @cached_property
    def _rows(self) -> Floats:
        """R^-1 A, of each row less the mean of its cell: float64[rows, places]."""
        channel = self.channel
        return rows_centred(channel.of_cell * self.scale[:, np.newaxis], channel.counts, channel.cell)

    def _solved(self, functional: Floats) -> Floats:
        """Return functionals, float64[..., places], times M^-1 / n."""
        from scipy.linalg import lapack  # late: a process that answers something else need not wait for it

        return np.asarray(lapack.dpotrs(self.factor, functional.T)[0].T)

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of `raw` as a sample of the population; zero along the sum."""
        own = (self.weights.T * self.channel.counts) @ self.weights
        return own if self.further is None else own + self.further

    @cached_property
    def spread(self) -> Floats:
        """M^-1 / n, which differs from it along the sum alone: invertible, and what bounds are computed in."""
        return self.once if self.further is None else self.once + self.further

    @cached_property
    def precision(self) -> Floats:
        """The inverse of `spread`: (f - raw)' of it (f - raw) is the distance of shares f from the counts."""
        return self.information if self.further is None else np.asarray(np.linalg.inv(self.spread))

    @cached_property
    def root(self) -> Floats:
        """U, float64[places, places], with |U (f - raw)|^2 the distance of shares f from the counts, a chi-square."""
        return self.factor if self.further is None else np.asarray(np.linalg.cholesky(self.precision).T)

    def repeated(self, memo: MemoizedPure | None, repeats: int) -> "NumberFit":
        """Return the fit of reports of which one device may have sent so many, with what that adds at most.

        A fresh report says the same number with new noise. A memo repeats that of its permanent part, too, which is
        that of a cohort's share of yes; the shares of edges are the differences of these, from one to the next.
        """
        if repeats == 1:
            return self
        if memo is None:
            again = answers_covariance(np.eye(len(self.shares)), self.shares)
        else:
            above = np.clip(1 - np.cumsum(self.shares)[:-1], 0.0, 1.0)
            steps = np.eye(len(self.shares))[:, 1:] - np.eye(len(self.shares))[:, :-1]
            again = (steps * share_variance(memo.permanent, above, 1, "population") * len(above)) @ steps.T
        fit = self._with((repeats - 1) * again / self.channel.n)
        if memo is not None:
            return fit
        return replace(
            fit,
            answers=repeats * again / self.channel.n,
            devices=effective(float(self.channel.n), repeats, permanent=True),
        )

    def published(self, count_noise: float) -> "NumberFit":
        """Return the fit of counts that have noise of this variance each, and whose n is their sum."""
        return self._with(count_noise * (self.weights.T * self.channel.outputs) @ self.weights)

    def _with(self, further: Floats) -> "NumberFit":
        """Return the fit with more covariance."""
        return replace(self, further=further if self.further is None else self.further + further)

    def moved(self, functional: Floats) -> Floats:
        """Return by how much one more report of each row moves functionals, float64[..., places], as `weights` says."""
        return self._solved(functional) @ self._rows.T

    def effects(self, moved: Floats) -> "Effects":
        """Return the reports' part of the errors of functionals that they move so, float64[..., rows]."""
        return Effects(np.square(moved) @ self.channel.counts.astype(np.float64), np.abs(moved).max(axis=-1))

    def std_error(self, functional: Floats, z: float = Z, effects: "Effects | None" = None) -> Floats:
        """Return the standard errors of functionals, float64[..., places], of `raw`, of which intervals reach z.

        The reports' part of them may be known.
        """
        variances, heaviest = self.effects(self.moved(functional)) if effects is None else effects
        if self.further is not None:
            variances = variances + ((functional @ self.further) * functional).sum(axis=-1)
        variances = np.maximum(variances, 0.0)
        if self.answers is None:
            return reach(variances, heaviest, self.channel.n, z) / z
        of_answers = np.maximum(((functional @ self.answers) * functional).sum(axis=-1), 0.0)
        of_device = np.abs(functional - (functional @ self.shares)[..., np.newaxis]).max(axis=-1) / self.devices
        noise = reach(np.maximum(variances - of_answers, 0.0), heaviest, self.channel.n, z)
        return np.asarray(np.hypot(noise, reach(of_answers, of_device, self.devices, z)) / z)

    def widening(self, functional: Floats, z: float) -> float:
        """Return by how much answers of few devices reach further than the covariance says, as a factor."""
        if self.answers is None:
            return 1.0
        return float(self.std_error(functional, z)) / sqrt(max(float(functional @ self.covariance @ functional), TINY))


def fit(channel: NumberChannel, likeliest: Floats | None = None) -> NumberFit:
    """Fit a channel, whose `most_likely` shares may be known, as if every report were another device's."""
    return _least_squares(channel, most_likely(channel) if likeliest is None else likeliest)


def fit_evenly(channel: NumberChannel, likeliest: Floats | None = None) -> NumberFit:
    """Fit a channel with the weights that are best where all places are alike: the same whatever the counts are."""
    places = len(channel.places.is_number)
    evenly = _least_squares(channel, np.full(places, 1 / places))
    return replace(evenly, shares=most_likely(channel) if likeliest is None else likeliest)


def _least_squares(channel: NumberChannel, shares: Floats) -> NumberFit:
    """Return the fit whose weights are best for these shares."""
    of_cell, n = channel.of_cell, channel.n
    expected = of_cell @ (shares * (1 - START) + START / len(shares))
    even = of_cell * np.sqrt(n * channel.part / expected)[:, np.newaxis]
    information = even.T @ even  # half the work of a product of two
    factor = np.asarray(np.linalg.cholesky(information).T)
    found = NumberFit(channel, shares, shares, 1 / expected, information, factor)
    return replace(found, raw=found._solved((channel.counts / expected) @ of_cell))


def most_likely(channel: NumberChannel) -> Floats:
    """Return the shares from which a step gains less than GAIN of log-likelihood, or those after STEPS_MAX of them."""
    return np.asarray(most_likely_of([channel])[0])


def most_likely_of(channels: Sequence[NumberChannel]) -> Floats:
    """Return the same of each of several channels, float64[channels, places], in a fraction of the time.

    They are of one plan, and each has reports of all cells: then their laws differ by a factor a row alone, which a
    step does not see. Log-likelihood is concave: a step gains at least the slope where it ends times its length, and
    logarithms are taken only where that is less than it must gain.
    """
    law, pace = channels[0].law, pace_of(channels[0].law)
    # Noise of a release may make a count negative, which no law explains.
    counts = np.maximum([each.counts for each in channels], 0).astype(np.float64)
    n = np.array([[each.n] for each in channels], dtype=np.float64)
    found, left = np.full((len(channels), law.shape[1]), 1 / law.shape[1]), np.arange(len(channels))
    shares, before, was_expected = found, found, counts
    for step in range(STEPS_MAX):
        expected = shares @ law.T
        slopes = (counts / expected) @ law
        if step:
            ends = ((shares - before) * slopes).sum(axis=1) < GAIN * pace
            if some := np.flatnonzero(ends).tolist():
                gains = counts[some] * (np.log(expected[some]) - np.log(was_expected[some]))
                ends[some] = gains.sum(axis=1) < GAIN * pace
            if some and ends.any():
                found[left[ends]] = before[ends]
                left, counts, n, shares, slopes, expected = (
                    each[~ends] for each in (left, counts, n, shares, slopes, expected)
                )
        if not len(left):
            break
        before, was_expected = shares, expected
        shares = shares * (slopes / n) ** pace
        shares /= shares.sum(axis=1, keepdims=True)
    found[left] = shares
    return found


def pace_of(law: Floats) -> float:
    """Return as how many steps one may count, at least 1: the more alike the laws of all answers are, the more.

    Near its end a step of expectation maximisation leaves of each deviation the part that reports do not tell, and that
    is at least 1 - ((r - 1) / (r + 1))^2 of it where no answer makes an output r times as likely as another does.
    """
    most, least = law.max(axis=1), law.min(axis=1)
    if not least.all():
        return 1.0
    ratio = float((most / least).max())
    return ((ratio + 1) / max(ratio - 1, TINY)) ** 2


# Strict bounds.


HEAVY = 1e3
"""Weight of an equation that must hold, beside equations whose residuals are standard errors."""
BOUND_STEPS_MAX = 40
TURNS = 30
"""So many guesses which places are empty are made at most; mostly there are four."""
CLOSE = 1e-3
"""A bound that is searched is found when its distance from the counts is that close to z, as a part of it."""
SAME = 1e-12
"""A bound that is reckoned is found when no more than this part of the axis' end is left between two of its turns."""
NEGLIGIBLE = 1e-12
"""A standard error that is zero but for rounding."""


@dataclass(frozen=True)
class Bounds:
    """The shares within z of a fit."""

    fit: NumberFit
    z: float

    @cached_property
    def nearest(self) -> Floats:
        """The shares that fit best."""
        return self._least_distance[0]

    @cached_property
    def _least_distance(self) -> tuple[Floats, float]:
        return self._nearest.at()

    def distance(self, functional: Floats) -> float:
        """Return how far away it is, in standard errors, that a functional, float64[places], below zero reaches it."""
        strict = self.strict(functional)
        return min(strict, self.wald(functional)) if self.counts_beyond(functional) else strict

    def largest_mean(self, values: Floats, top: float) -> float | None:
        """Return the largest mean of values, none above `top`, that is not strictly too far; None if no way is short.

        The mean is over the places of numbers; at others a value is zero.
        """
        is_number = self.fit.channel.places.is_number
        least = self._least_distance[1] ** 2

        def reach(mean: float) -> float:
            if self.fit.answers is None:
                return least + self.z**2
            return least + (self.z * self.fit.widening(values - mean * is_number, self.z)) ** 2

        return self._nearest.largest_mean(self.nearest <= 0, values, is_number, top, reach)

    def may_be(self, functional: Floats) -> bool:
        """Tell whether some of the shares make a functional zero or more."""
        return bool(functional @ self.nearest >= 0) or self.strict(functional) <= self.z

    def strict(self, functional: Floats) -> float:
        """Return sqrt(D - min D) of the best shares at which a functional is zero."""
        _, distance = self._nearest.at(functional)
        return sqrt(max(distance**2 - self._least_distance[1] ** 2, 0.0)) / self.fit.widening(functional, self.z)

    def wald(self, functional: Floats, effects: Effects | None = None) -> float:
        """Return how far below zero `raw` has it, in standard errors; the reports' part of these may be known."""
        error = float(self.fit.std_error(functional, self.z, effects))
        return max(-float(functional @ self.fit.raw), 0.0) / max(error, NEGLIGIBLE)

    def counts_beyond(self, functionals: Floats) -> npt.NDArray[np.bool_]:
        """Tell of which functionals, float64[..., places], `raw` has more than the best shares: Wald's interval counts.

        If no raw share is negative, raw shares are the best ones: rounding must not decide which of the two have more.
        """
        return np.asarray((functionals @ self.farther > 0) | self._raw_is_best)

    @cached_property
    def _raw_is_best(self) -> bool:
        return bool(self.fit.raw.min() >= 0)

    @cached_property
    def farther(self) -> Floats:
        """`raw` less the best shares."""
        return np.asarray(self.fit.raw - self.nearest)

    @cached_property
    def _nearest(self) -> "Nearest":
        return Nearest(self.fit)


class Nearest:
    """Finds shares f >= 0 that are nearest to a fit, also with a functional that is zero.

    Two squares of weight h hold both sums, the shares' and the functional's, beside the distance D
    (`scipy.optimize.nnls` solves the same):

        least    D(f) + h^2 (sum f - 1)^2 + h^2 (c f)^2         c the functional, scaled to 1 at most

    If it is known which places are empty, this is a linear equation. With S the spread of the fit and B the columns of
    what is held at a sum, one for each empty place and one for all places, its unknowns are the pulls of these sums:

        f = raw + S B x      (B' S B + h^-2 for all places) x = wanted - B' raw      D = (wanted - B' raw)' x

    A functional that is zero, too, is one more column. Which places are empty is guessed, and all that contradict the
    guess are turned at once (Kostreva 1978). The next functional is near the last one: its guess is what came out for
    that. `nnls` itself is asked where no guess fits after TURNS of them.
    """

    def __init__(self, fit: NumberFit) -> None:
        from scipy.linalg import lapack  # late: a process that answers something else need not wait for it

        self._lapack, self._fit, self._raw = lapack, fit, fit.raw
        self._weight = HEAVY * float(np.abs(fit.root).max())
        self._close = NEGLIGIBLE * float(fit.precision.max())
        places = len(fit.raw)
        self._spread = np.empty((places + 1, places + 1))
        """S, and beside it what all places have together."""
        self._spread[:-1, :-1] = fit.spread
        self._spread[-1, :-1] = fit.spread.sum(axis=0)
        self._spread[:, -1] = self._spread[:, :-1].sum(axis=1)
        self._lacking = np.append(-fit.raw, 1 - fit.raw.sum())
        """How far `raw` is from what each of the sums is held at."""
        self._held = np.append(fit.raw <= 0, True)
        """The sums that are held: of each place that is empty, and of all places."""

    def at(self, zero: Floats | None = None) -> tuple[Floats, float]:
        """Return the shares with the least distance, and that distance; of those at which a functional is zero."""
        scaled = None if zero is None else zero / float(np.abs(zero).max())
        soft, beside = self._weight**-2, self._beside(*([] if scaled is None else [scaled]))
        for _ in range(TURNS):
            if (solved := self._solve(beside, soft)) is None:
                break
            pulls, left, square = solved
            if scaled is None:
                pulled = np.ones(1)
            else:
                off, spread = (left @ scaled).tolist()
                pulled = np.array([1.0, -off / (spread + soft)])
                square += off**2 / (spread + soft)
            shares = -(pulled @ left)
            if not self._turned(shares, pulled @ pulls):
                return shares, sqrt(max(square, 0.0))
        return self._from_nothing(scaled)

    def largest_mean(
        self,
        empty: npt.NDArray[np.bool_],
        values: Floats,
        is_number: Floats,
        top: float,
        reach: Callable[[float], float],
    ) -> float | None:
        """Return the largest mean t of values, `top` at most, at which the least distance is sqrt(reach(t)).

        None where no guess fits after TURNS of them; `empty` is the first. If it is known which places are empty, the
        least squares are D + (a - t b)^2 / (p - 2 t q + t^2 r), with D, a and b those of the nearest shares without a
        mean: t is the root of a quadratic equation, as in Fieller's intervals of ratios (1954). Here both sums hold
        without any residual.
        """
        self._held, mean, far = np.append(empty, True), top, reach(top)
        both, beside = np.stack([values, is_number], axis=1), self._beside(values, is_number)
        whole = float(beside[1, :-1] @ values), float(beside[2, :-1] @ is_number)
        for _ in range(TURNS):
            if (solved := self._solve(beside, 0.0)) is None:
                return None
            pulls, left, square = solved
            (a, b), (p, q), (_, r) = (left @ both).tolist()
            room, before, so_far = max(far - square, 0.0), mean, far
            over, middle = b**2 - room * r, a * b - room * q
            mean = top
            if over > 0:
                mean = min((middle + sqrt(max(middle**2 - over * (a**2 - room * p), 0.0))) / over, top)
            spread = p - 2 * mean * q + mean**2 * r
            if spread <= SAME * (whole[0] + max(top**2, before**2) * whole[1]) and mean < top:
                self._held[:-1] &= values <= mean * is_number  # all that may be there have one mean: let in more
                continue
            pull = (mean * b - a) / spread if spread > 0 else 0.0
            pulled = np.array([1.0, pull, -pull * mean])
            far = reach(mean)
            turned = self._turned(-(pulled @ left), pulled @ pulls)
            if not turned and (far == so_far or abs(mean - before) <= SAME * abs(top)):
                return mean
        return None

    def _beside(self, *functionals: Floats) -> Floats:
        """Return how far `raw` lacks what each sum is held at, then how functionals covary with each of the sums."""
        return np.stack([self._lacking, *(self._spread[:, :-1] @ each for each in functionals)])

    def _solve(self, beside: Floats, soft: float) -> tuple[Floats, Floats, float] | None:
        """Return how the sums that are held pull, what of each of `beside` they leave, and the square of the distance.

        The first of what they leave is the nearest shares, times -1. None where the equation cannot be solved.
        """
        self._held_at = self._held.nonzero()[0]
        rows, own = self._spread.take(self._held_at, 0), beside.take(self._held_at, 1)
        among = rows.take(self._held_at, 1)
        among[-1, -1] += soft
        _, solved, fault = self._lapack.dposv(among.T, own.T, overwrite_a=1)
        if fault:
            return None
        pulls = solved.T
        return pulls, (beside - pulls @ rows)[:, :-1], float(own[0] @ pulls[0])

    def _turned(self, shares: Floats, pulls: Floats) -> bool:
        """Turn all places that contradict the guess, of which these shares came; return whether there are any."""
        empty = self._held_at[:-1]
        shares[empty] = 0.0
        wrong = shares < 0
        wrong[empty] = pulls[:-1] < -self._close
        if not np.count_nonzero(wrong):
            return False
        self._held[:-1] ^= wrong
        return True

    def _from_nothing(self, zero: Floats | None) -> tuple[Floats, float]:
        """Return the same without a guess."""
        from scipy.optimize import nnls

        self._held[:-1] = self._raw <= 0
        sums = [np.ones_like(self._raw), *([] if zero is None else [zero])]
        root = self._fit.root
        rows, wanted = np.vstack([root, *(self._weight * each for each in sums)]), np.zeros(len(sums))
        wanted[0] = self._weight
        shares, distance = nnls(rows, np.append(root @ self._raw, wanted))
        return shares, float(distance)


def ratio_bounds(
    bounds: Bounds, lower: Floats, upper: Floats, is_number: Floats, moved: Floats | None = None
) -> tuple[float, float]:
    """Return the bounds of a mean: values between `lower` and `upper` at each place, over the places of numbers.

    How reports move these three may be known, float64[3, rows].
    """
    of_lower, of_upper, of_number = bounds.fit.moved(np.stack([lower, upper, is_number])) if moved is None else moved
    low = -_largest(bounds, -lower, is_number, (-of_lower, of_number))
    return low, _largest(bounds, upper, is_number, (of_upper, of_number))


def _largest(bounds: Bounds, values: Floats, is_number: Floats, moved: tuple[Floats, Floats]) -> float:
    """Return the largest mean of values that some of the shares have, or that Wald's interval reaches.

    It is told how reports move values and who has a number.
    """
    nearest, top = bounds.nearest, float(values[is_number > 0].max())
    inside = float(values @ nearest / max(float(nearest @ is_number), NEGLIGIBLE))
    if inside >= top:
        return top

    def at(mean: float) -> Floats:
        return np.asarray(values - mean * is_number)

    def wald(mean: float) -> float:
        return bounds.wald(at(mean), bounds.fit.effects(moved[0] - mean * moved[1]))

    z, counts_at_top, at_top = bounds.z, bounds.counts_beyond(at(top)), wald(top)
    if counts_at_top and at_top <= z:
        return top
    strict = bounds.largest_mean(values, top)
    if strict is None:
        beyond = bounds.distance(at(top))
        distance = lambda mean: bounds.distance(at(mean))  # noqa: E731
        return top if beyond <= z else _reached(distance, z, (inside, 0.0), (top, beyond))
    counts = bounds.counts_beyond(at(strict))
    if not (counts or counts_at_top) or (so_far := wald(strict)) >= z:
        return strict
    reached = top if at_top <= z else _reached(wald, z, (strict, so_far), (top, at_top))
    if bounds.counts_beyond(at(reached)):
        return reached
    return float(values @ bounds.farther / (is_number @ bounds.farther)) if counts else strict


def _reached(
    distance: Callable[[float], float],
    z: float,
    inner: tuple[float, float],
    outer: tuple[float, float],
) -> float:
    """Return the mean whose distance is z, between two, one nearer and one farther, each with its distance."""
    (within, so_far), (outside, beyond) = inner, outer
    for _ in range(BOUND_STEPS_MAX):
        # A secant, kept away from the ends: the distance is nearly a line.
        part: float = (z - so_far) / (beyond - so_far)
        tried = within + float(np.clip(part, 0.02, 0.98)) * (outside - within)
        away = distance(tried)
        if abs(away - z) <= CLOSE * z:
            return tried
        if away <= z:
            within, so_far = tried, away
        else:
            outside, beyond = tried, away
    return outside


def quantile_bounds(bounds: Bounds, probability: float, effects: Effects | None = None) -> tuple[int, int]:
    """Return the lowest and the highest place at which a quantile of numbers may lie.

    It may lie at a place where some of the shares have at least `probability` up to there, and others at most that
    below it. Both get the easier to reach, or the harder, the higher the place; but not of `raw`, which may have
    negative shares: the first place that Wald's interval reaches is looked for, or the last. Only beyond it are shares
    looked for, from where Wald's interval around `raw` would end, which is near: each place that is tried costs a fit.
    The reports' part of the errors of these shares, less the quantile, may be known.
    """
    fit, places, z = bounds.fit, bounds.fit.channel.places, bounds.z
    up_to = places.beyond(probability)
    scores = ((up_to @ fit.raw) / np.maximum(fit.std_error(up_to, z, effects), NEGLIGIBLE))[:-1]
    last = places.numbers - 1
    reached = np.flatnonzero(bounds.counts_beyond(up_to[:-1]) & (scores >= -z))
    left = np.flatnonzero(bounds.counts_beyond(-up_to[:-1]) & (scores <= z))
    first_reached, last_left = int(min([last, *reached[:1]])), int(max([0, *(left[-1:] + 1)]))
    lowest = _first(0, first_reached, lambda place: bounds.may_be(up_to[place]), near=int((scores < -z).sum()))
    highest = _first(last_left, last, lambda place: not bounds.may_be(-up_to[place]), near=int((scores <= z).sum()))
    return lowest, highest


def _first(low: int, high: int, holds: Callable[[int], bool], near: int) -> int:
    """Return the first place from `low` on at which something holds that holds from there on, `high` at most.

    The steps away from the place that is tried first double, until halves of what is left are smaller.
    """
    tried, step = near, 1
    while low < high:
        tried = min(max(tried, low), high - 1)
        if holds(tried):
            high, tried = tried, tried - step
        else:
            low, tried = tried + 1, tried + step
        step *= 2
        if step > high - low:
            tried = (low + high) // 2
    return low
