"""Fitting a channel: shares by maximum likelihood to look at, and unbiased ones by least squares to reckon with.

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
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np

from dither_aggregator.analysis.functional import answers_covariance, rows_centred, share_variance
from dither_aggregator.analysis.inference import Floats, Z, effective, reach
from dither_aggregator.analysis.numeric.channel import NumberChannel
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
