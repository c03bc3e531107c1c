"""Intervals by strict bounds: all that shares can be which fit the counts, are not negative, and sum to one.

With D(f) = |U (f - raw)|^2 the set { f >= 0, sum f = 1, D(f) <= min D + z^2 } holds the truth of any one functional
about as often as an interval of z standard errors, and is narrower wherever noise would make shares negative
(Stark 1992; Rust, Burrus 1972). That the cut of one degree of freedom is enough is no theorem (Batlle et al. 2023 have
counterexamples), and it is false where nearly all places are empty: f >= 0 lets noise only add to them, so it pushes a
mean away from its end of the axis, and the set with it. So where the best shares lie beyond `raw`, what Wald's interval
around `raw` reaches is held for possible, too. A test measures the coverage for numbers of all forms.

A functional may be a ratio: "the mean of those who gave a number is at least t" is the linear "sum of (x - t) f >= 0".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numeric.fit import NumberFit

HEAVY = 1e3
"""Weight of an equation that must hold, beside equations whose residuals are standard errors."""
STEPS_MAX = 40
TURNS = 30
"""So many guesses which places are empty are made at most; mostly there are four."""
CLOSE = 1e-3
"""A bound that is searched is found when its distance from the counts is that close to z, as a part of it."""
SAME = 1e-12
"""A bound that is reckoned is found when no more than this part of the axis' end is left between two of its turns."""
TINY = 1e-12
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
            return least + (self.z * self.fit.widening(values - mean * is_number, self.z)) ** 2

        return self._nearest.largest_mean(self.nearest > 0, values, is_number, top, reach)

    def may_be(self, functional: Floats) -> bool:
        """Tell whether some of the shares make a functional zero or more."""
        return bool(functional @ self.nearest >= 0) or self.strict(functional) <= self.z

    def strict(self, functional: Floats) -> float:
        """Return sqrt(D - min D) of the best shares at which a functional is zero."""
        _, distance = self._nearest.at(functional)
        return sqrt(max(distance**2 - self._least_distance[1] ** 2, 0.0)) / self.fit.widening(functional, self.z)

    def wald(self, functional: Floats) -> float:
        """Return how far below zero `raw` has it, in standard errors."""
        error = float(self.fit.std_error(functional, self.z))
        return max(-float(functional @ self.fit.raw), 0.0) / max(error, TINY)

    def counts_beyond(self, functionals: Floats) -> npt.NDArray[np.bool_]:
        """Tell of which functionals, float64[..., places], `raw` has more than the best shares: Wald's interval counts.

        If no raw share is negative, raw shares are the best ones: rounding must not decide which of the two have more.
        """
        return np.asarray((functionals @ self.farther > 0) | (self.fit.raw.min() >= 0))

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

    If it is known which places are empty, this is a linear equation. The residuals of both sums are unknowns of their
    own there, so that the weight does not make it ill-conditioned. Which places are empty is guessed, and all that
    contradict the guess are turned at once (Kostreva 1978). The next functional is near the last one: its guess is what
    came out for that. `nnls` itself is asked where no guess fits after TURNS of them.
    """

    def __init__(self, fit: NumberFit) -> None:
        from scipy.linalg import lapack  # late: a process that answers something else need not wait for it

        self._lapack, self._root, self._raw = lapack, fit.root, fit.raw
        self._weight = HEAVY * float(np.abs(fit.root).max())
        self._products = fit.precision
        self._close = TINY * float(np.abs(self._products).max())
        self._target = self._products @ fit.raw
        self._root_raw = fit.root @ fit.raw
        self._sides = np.stack([self._target, np.ones_like(fit.raw)])
        self._held = fit.raw > 0
        self._solved_for = self._swept_for = b""
        self._factor: Floats = self._products

    def at(self, zero: Floats | None = None) -> tuple[Floats, float]:
        """Return the shares with the least distance, and that distance; of those at which a functional is zero."""
        scaled = None if zero is None else zero / float(np.abs(zero).max())
        for _ in range(TURNS):
            solved = self._solve(scaled)
            if solved is None:
                break
            shares, pulls = solved
            gaps = self._products @ shares - self._target + pulls[0]
            if scaled is not None:
                gaps += pulls[1] * scaled
            wrong = (shares < 0) | ((gaps < -self._close) & ~self._held)
            if not np.count_nonzero(wrong):
                away = self._root @ (shares - self._raw)
                return shares, sqrt(float(away @ away) + sum(pull**2 for pull in pulls) / self._weight**2)
            self._held = self._held != wrong
        return self._from_nothing(scaled)

    def largest_mean(
        self,
        held: npt.NDArray[np.bool_],
        values: Floats,
        is_number: Floats,
        top: float,
        reach: Callable[[float], float],
    ) -> float | None:
        """Return the largest mean t of values, `top` at most, at which the least distance is sqrt(reach(t)).

        None where no guess fits after TURNS of them; `held` is the first. If it is known which places are empty, the
        least squares are D + (a - t b)^2 / (p - 2 t q + t^2 r), with D, a and b those of the nearest shares without a
        mean: t is the root of a quadratic equation, as in Fieller's intervals of ratios (1954). Here both sums hold
        without any residual.
        """
        self._held, mean, far, shares = held, top, reach(top), np.zeros(len(held))
        sides = np.stack([*self._sides, values, is_number])
        for _ in range(TURNS):
            if not self._factored():
                return None
            own = sides.take(self._places, 1)
            solved = self._lapack.dpotrs(self._factor, own.T)[0].T
            (_, sum_free, _, _), (_, stiff, *by_sum), (of_values, _, p, q), (of_numbers, _, _, r) = (
                solved @ own.T
            ).tolist()
            pull = (sum_free - 1) / stiff
            scale = p + r * max(top**2, mean**2)
            a, b = of_values - pull * by_sum[0], of_numbers - pull * by_sum[1]
            p, q, r = p - by_sum[0] ** 2 / stiff, q - by_sum[0] * by_sum[1] / stiff, r - by_sum[1] ** 2 / stiff
            shares.fill(0.0)
            shares[self._places] = solved[0] - pull * solved[1]
            away = self._root @ shares - self._root_raw
            left, before, so_far = max(far - float(away @ away), 0.0), mean, far
            square, middle = b**2 - left * r, a * b - left * q
            if square > 0:
                mean = min((middle + sqrt(max(middle**2 - square * (a**2 - left * p), 0.0))) / square, top)
            else:
                mean = top
            spread = p - 2 * mean * q + mean**2 * r
            if spread <= SAME * scale and mean < top:  # all that are held have one mean: let in what has more
                self._held = self._held | (values > mean * is_number)
                continue
            pulled = (a - mean * b) / spread if spread > 0 else 0.0
            pulls = np.array([1.0, pulled * (by_sum[0] - mean * by_sum[1]) / stiff - pull, -pulled, pulled * mean])
            shares[self._places] = pulls @ solved
            far = reach(mean)
            wrong = (shares < 0) | ((self._products @ shares - pulls @ sides < -self._close) & ~self._held)
            if np.count_nonzero(wrong):
                self._held = self._held != wrong
            elif far == so_far or abs(mean - before) <= SAME * abs(top):
                return mean
        return None

    def _from_nothing(self, zero: Floats | None) -> tuple[Floats, float]:
        """Return the same without a guess."""
        from scipy.optimize import nnls

        self._held = self._raw > 0
        sums = [np.ones_like(self._raw), *([] if zero is None else [zero])]
        rows, wanted = np.vstack([self._root, *(self._weight * each for each in sums)]), np.zeros(len(sums))
        wanted[0] = self._weight
        shares, distance = nnls(rows, np.append(self._root_raw, wanted))
        return shares, float(distance)

    def _solve(self, zero: Floats | None) -> tuple[Floats, Sequence[float]] | None:
        """Return the shares where only the places that are held are not empty, and how the sums pull them, h^2 each.

        None where no place is held, or too nearly the same is told of some.
        """
        if not self._factored():
            return None
        if self._swept_for != self._solved_for:
            both = self._sides.take(self._places, 1)
            self._free, self._by_sum = self._lapack.dpotrs(self._factor, both.T)[0].T
            self._sums = float(self._free @ both[1]), float(self._by_sum @ both[1])
            self._swept_for = self._solved_for
        shares, soft = np.zeros(len(self._raw)), self._weight**-2
        beyond, stiff = self._sums[0] - 1, self._sums[1] + soft
        if zero is None:
            pull = beyond / stiff
            shares[self._places] = self._free - pull * self._by_sum
            return shares, (pull,)
        own = zero[self._places]
        by_zero = self._lapack.dpotrs(self._factor, own)[0]
        both, itself, off = float(own @ self._by_sum), float(own @ by_zero) + soft, float(own @ self._free)
        pivot = stiff * itself - both**2
        pull, pull_zero = (beyond * itself - off * both) / pivot, (off * stiff - beyond * both) / pivot
        shares[self._places] = self._free - pull * self._by_sum - pull_zero * by_zero
        return shares, (pull, pull_zero)

    def _factored(self) -> bool:
        """Prepare the equation of the places that are held; return false where there is none that can be solved."""
        if (held := self._held.tobytes()) == self._solved_for:
            return True
        self._solved_for, self._places = b"", self._held.nonzero()[0]
        among = self._products.take(self._places, 0).take(self._places, 1)
        self._factor, fault = self._lapack.dpotrf(among.T, clean=0, overwrite_a=1) if len(among) else (among, 1)
        if fault:
            return False
        self._solved_for = held
        return True


def ratio_bounds(bounds: Bounds, lower: Floats, upper: Floats, is_number: Floats) -> tuple[float, float]:
    """Return the bounds of a mean: values between `lower` and `upper` at each place, over the places of numbers."""
    low = -_largest(bounds, -lower, is_number)
    return low, _largest(bounds, upper, is_number)


def _largest(bounds: Bounds, values: Floats, is_number: Floats) -> float:
    """Return the largest mean of values that some of the shares have, or that Wald's interval reaches."""
    nearest, top = bounds.nearest, float(values[is_number > 0].max())
    inside = float(values @ nearest / max(float(nearest @ is_number), TINY))
    if inside >= top:
        return top

    def at(mean: float) -> Floats:
        return np.asarray(values - mean * is_number)

    z, counts_at_top = bounds.z, bounds.counts_beyond(at(top))
    if counts_at_top and bounds.wald(at(top)) <= z:
        return top
    strict = bounds.largest_mean(values, top)
    if strict is None:
        beyond = bounds.distance(at(top))
        return top if beyond <= z else _reached(bounds.distance, at, z, (inside, 0.0), (top, beyond))
    counts = bounds.counts_beyond(at(strict))
    if not (counts or counts_at_top) or (so_far := bounds.wald(at(strict))) >= z:
        return strict
    beyond = bounds.wald(at(top))
    wald = top if beyond <= z else _reached(bounds.wald, at, z, (strict, so_far), (top, beyond))
    if bounds.counts_beyond(at(wald)):
        return wald
    return float(values @ bounds.farther / (is_number @ bounds.farther)) if counts else strict


def _reached(
    distance: Callable[[Floats], float],
    at: Callable[[float], Floats],
    z: float,
    inner: tuple[float, float],
    outer: tuple[float, float],
) -> float:
    """Return the mean at which a distance is z, between two, one nearer and one farther, each with its distance."""
    (within, so_far), (outside, beyond) = inner, outer
    for _ in range(STEPS_MAX):
        # A secant, kept away from the ends: the distance is nearly a line.
        part: float = (z - so_far) / (beyond - so_far)
        tried = within + float(np.clip(part, 0.02, 0.98)) * (outside - within)
        away = distance(at(tried))
        if abs(away - z) <= CLOSE * z:
            return tried
        if away <= z:
            within, so_far = tried, away
        else:
            outside, beyond = tried, away
    return outside


def quantile_bounds(bounds: Bounds, probability: float) -> tuple[int, int]:
    """Return the lowest and the highest place at which a quantile of numbers may lie.

    It may lie at a place where some of the shares have at least `probability` up to there, and others at most that
    below it. Both get the easier to reach, or the harder, the higher the place; but not of `raw`, which may have
    negative shares: the first place that Wald's interval reaches is looked for, or the last. Only beyond it are shares
    looked for, from where Wald's interval around `raw` would end, which is near: each place that is tried costs a fit.
    """
    fit, places, z = bounds.fit, bounds.fit.channel.places, bounds.z
    up_to = places.up_to - probability * places.is_number
    scores = ((up_to @ fit.raw) / np.maximum(fit.std_error(up_to, z), TINY))[:-1]
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
