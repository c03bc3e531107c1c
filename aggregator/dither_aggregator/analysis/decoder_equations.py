"""The equations of a decoding: one for each bit of each cohort, in the shares of the candidates.

Weights are made of the rates that a first fit finds; decoder.py says what for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from scipy.special import ndtr

from dither_aggregator.analysis.functional import rate_variance
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting import Counts
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.text_memo import BEARABLE

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FEW = 0.05
"""Candidates for each equation that are fitted at once, by least squares.

Beside a fit at once, estimates by folds have standard errors that are smaller by 1 to 3 % at 0.07, by 4 % at 0.15 and
by 11 % at 0.3; below, there is nothing to gain, and a fit at once is right whatever the hash is.
"""
FOLDS = 8
"""So many parts the cohorts are split into where candidates are many."""
PARTS = 32
"""So many at last, each fitted on from where the fold that it is a part of ended."""
WHOLE_MAX = 2_000
"""The most candidates that are fitted at once: the cost is cubic."""
FIRST_FIT_STEPS = 100
"""Steps of the fit that yields the weights: it need not be exact."""
TINY = 1e-9


@dataclass(frozen=True)
class Channel:
    """The way of a string's bits into reports: k bits, h hashes, m cohorts, two stages of noise."""

    k: int
    h: int
    m: int
    p_star: float
    """P[a bit is sent as 1 | the Bloom filter has 0], after both stages."""
    q_star: float
    """P[a bit is sent as 1 | the Bloom filter has 1]."""

    def __post_init__(self) -> None:
        if min(self.k, self.h, self.m) < 1:
            raise InvalidParameter(f"k, h and m must be at least 1, got {self.k}, {self.h} and {self.m}")
        if not (0 <= self.p_star <= 1 and 0 <= self.q_star <= 1):
            raise InvalidParameter(f"p* and q* must lie in [0, 1], got {self.p_star} and {self.q_star}")
        if abs(self.q_star - self.p_star) < TINY:
            raise InvalidParameter(f"p* and q* must differ, or reports say nothing, got {self.p_star} for both")

    @property
    def unlisted(self) -> float:
        """The probability that a string nobody listed sets a given bit."""
        return float(1 - (1 - 1 / self.k) ** self.h)


@dataclass(frozen=True)
class Equations:
    """One equation for each bit of each cohort that has reports: R of them, for G distinct candidates."""

    patterns: csr_array
    """float64[G, R]: 1 where a candidate sets the bit."""
    share: Floats
    """float64[R]: the debiased share of reports whose string sets the bit."""
    weight: Floats
    """float64[R]: 1 / variance of it."""
    cohort: Ints
    """int64[R]: to tell the folds apart; cohorts without reports are not counted."""
    reports: Ints
    """int64[R]: the cohort's reports."""
    common: float
    """The part of the sampling variance that the h bits of a string share, (1 - 1 / h) / n."""
    channel: Channel

    @property
    def unlisted(self) -> float:
        """The entry of each row in the column of strings that are not listed."""
        return self.channel.unlisted

    @property
    def few(self) -> bool:
        """Whether the candidates are few enough to be fitted all at once."""
        part = FEW if self.cohorts >= FOLDS else float(BEARABLE)
        return bool(self.patterns.shape[0] < min(part * len(self.share), WHOLE_MAX))

    @property
    def cohorts(self) -> int:
        """How many cohorts have reports."""
        return len(self.share) // self.channel.k

    def within_cohorts(self, columns: Floats) -> Floats:
        """Return columns, float64[R, F], less their weighted mean in each cohort."""
        shape = (self.cohorts, self.channel.k, -1)
        weight, by_cohort = self.weight.reshape(shape), columns.reshape(shape)
        mean = (weight * by_cohort).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        centred: Floats = (by_cohort - mean).reshape(columns.shape)
        return centred

    def weights_by_cohort(self) -> Floats:
        """Return the weight of the bits that each candidate sets in each cohort, float64[G, cohorts]."""
        rows = np.arange(len(self.weight))
        weights: Floats = (self.patterns @ csr_array((self.weight, (rows, self.cohort)))).toarray()
        return weights


def merge(bits: Ints) -> tuple[Ints, Ints]:
    """Return the distinct patterns, int64[G, m, h] with -1 for repeated bits, and each candidate's place among them."""
    ordered = np.sort(bits, axis=2)
    ordered[:, :, 1:][ordered[:, :, 1:] == ordered[:, :, :-1]] = -1
    ordered = np.sort(ordered, axis=2)
    places: dict[bytes, int] = {}
    group_of = np.array([places.setdefault(pattern.tobytes(), len(places)) for pattern in ordered], dtype=np.int64)
    _, first = np.unique(group_of, return_index=True)
    return ordered[first], group_of


def make_equations(tally: Counts, patterns: Ints, channel: Channel) -> Equations:
    """Return the equations of cohorts that all have reports, with the weights of one rate for all bits."""
    p, q = channel.p_star, channel.q_star
    n, counts = tally[:, :1], tally[:, 1:]
    mean = np.full(counts.shape, counts.sum() / (n.sum() * channel.k))
    return Equations(
        patterns=_as_sparse(patterns, channel.k),
        share=((counts / n - p) / (q - p)).ravel(),
        weight=weights_of(mean, n, channel).ravel(),
        cohort=np.repeat(np.arange(len(n)), channel.k),
        reports=np.repeat(n.ravel(), channel.k),
        common=float((1 - 1 / channel.h) / n.sum()),
        channel=channel,
    )


def weights_of(rate: Floats, n: Ints, channel: Channel) -> Floats:
    """Return 1 / variance of debiased shares whose bits are sent at these rates."""
    p, q = channel.p_star, channel.q_star
    # They lie between p* and q*; half a count keeps the variance above zero where those are 0 and 1.
    edge = 0.5 / (n + 1)
    rate = np.clip(rate, np.maximum(min(p, q), edge), np.minimum(max(p, q), 1 - edge))
    return 1 / rate_variance(rate, n, q - p)


def reweighted(equations: Equations) -> Equations:
    """Return the equations with the weights of the rates that a first fit of all candidates finds.

    Weights made of the counts themselves would favour the bits that came out low by chance: with few reports in a
    cohort every estimate would be too small, and the unlisted one far below zero.
    """
    from scipy.sparse.linalg import lsqr  # late: a process that answers something else need not wait for it

    root = np.sqrt(equations.weight)
    columns = vstack([equations.patterns, csr_array(np.full((1, len(root)), equations.unlisted))]).multiply(root)
    coefficients = lsqr(columns.T, root * equations.share, iter_lim=FIRST_FIT_STEPS)[0]
    fitted = equations.patterns.T @ coefficients[:-1] + equations.unlisted * coefficients[-1]
    p, q = equations.channel.p_star, equations.channel.q_star
    return replace(equations, weight=weights_of(p + (q - p) * fitted, equations.reports, equations.channel))


def _as_sparse(patterns: Ints, k: int) -> csr_array:
    columns = (np.arange(patterns.shape[1]) * k)[:, np.newaxis] + patterns
    present = patterns >= 0
    ends = np.concatenate([[0], np.cumsum(present.sum(axis=(1, 2)))])
    shape = (len(patterns), patterns.shape[1] * k)
    return csr_array((np.ones(ends[-1]), columns[present], ends), shape=shape)


# The shares of all candidates together, as the prior that explains them best has them: none below zero.
#
# Estimated alone, each candidate is off by the noise and by what all the others, who share its bits, add. Taking the
# others off needs their shares, which are estimates, too. So in turn every candidate is estimated from what the others
# leave, and all estimates are drawn towards what the prior says. With theta the estimates, s their standard errors,
# eta the mean of a share given its estimate, and r the residual, on R equations of weight w in G columns x,
#
#     theta_v = f_v + x_v' w r / x_v' w x_v       f = eta(theta)       r = y - X f + r mean(eta') G / R
#
# Residuals and columns are less their mean, so that what is added to all bits alike says nothing. They are not less
# the mean of each cohort: a string sets a bit less where two of its hashes meet, and with two hashes of eight bits a
# cohort's sums are a hundredth of all that is known. How large r is, and R, are taken within cohorts: what a fit gets
# wrong of the others lies there (`Equations.within_cohorts`).
#
# The last term takes off what a candidate's own noise has added to its own residual: without it each round would count
# the same noise again. With it theta is in each round as if every candidate were alone, with the noise that r shows.
#
# The prior is zero with some probability, or else uniform within each of some bins, and is fitted to theta by
# expectation maximisation. Shares are estimated best with the prior they are drawn from, and many lists are mostly
# candidates that nobody has: this is why no penalty has to be chosen.
#
# Donoho, Maleki, Montanari 2009 (approximate message passing); Kiefer, Wolfowitz 1956; Jiang, Zhang 2009 (the prior);
# Robbins 1956, with Tweedie's formula (eta).


ROUNDS_MAX, GAIN_MIN = 50, 0.003
"""They end when one takes less than this part off the residual's square: with much noise after about ten."""
ROUNDS_OF_ALL = 20
"""A fit of all cohorts at once makes so many at least: it costs little, and candidates are ranked by it."""
BINS, STEPS = 24, 12
"""The prior has so many bins. Each round makes so many steps of expectation maximisation, from where the last ended."""
FAR = 6.0
"""No estimate counts as more standard errors than this below zero: densities farther out are no numbers."""


@dataclass(frozen=True)
class Passed:
    """The state in which the messages of F folds ended, to go on from."""

    shares: Floats
    """float64[G, F]: the candidates' shares."""
    own: Floats
    """float64[R, F]: what these have added to their own residuals, taken off; 0 in equations that had no part."""
    priors: "Sequence[Prior]"

    def residual(self, equations: Equations) -> Floats:
        """Return by how much each is off, as if a candidate were alone: float64[R, F], but for a mean."""
        residual: Floats = equations.share[:, np.newaxis] - equations.patterns.T @ self.shares + self.own
        return residual

    def parts(self, number: int) -> "Passed":
        """Return them for so many folds, the i-th from where the fold of i's remainder by F ended."""
        folds = np.arange(number) % self.shares.shape[1]
        return Passed(self.shares[:, folds], self.own[:, folds], [self.priors[fold] for fold in folds])


def gains_of(weight: Floats, residual: Floats) -> Floats:
    """Return residuals by weight, float64[R, F], less their mean: each column has the sum zero."""
    gains: Floats = weight * (residual - (weight * residual).sum(axis=0) / weight.sum(axis=0))
    return gains


def pass_messages(equations: Equations, training: Floats, start: Passed | None = None, rounds_min: int = 0) -> Passed:
    """Fit for each of F folds the candidates' shares by the equations that are 1 in `training`.

    `training` is float64[R, F], with whole cohorts 0 or 1. A start must have seen no equation that is 0 in it.
    """
    weight = equations.weight[:, np.newaxis] * training
    freedom = training.sum(axis=0) * (1 - 1 / equations.channel.k)
    set_weight = equations.weights_by_cohort() @ training[:: equations.channel.k]
    norm = np.maximum(set_weight * (1 - set_weight / weight.sum(axis=0)), TINY)
    passed = start or Passed(np.zeros(norm.shape), np.zeros(training.shape), ())
    before = np.inf
    for done in range(ROUNDS_MAX):
        residual = passed.residual(equations)
        within = equations.within_cohorts(residual)
        scale2 = np.maximum(1.0, (weight * within**2).sum(axis=0) / freedom)
        if done >= rounds_min and scale2.sum() > (1 - GAIN_MIN) * before:
            break
        before = scale2.sum()
        estimate = passed.shares + equations.patterns @ gains_of(weight, residual) / norm
        error = np.sqrt(scale2 / norm)
        priors = passed.priors or [Prior.before(*pair) for pair in zip(estimate.T, 1 / np.sqrt(norm.T), strict=True)]
        found = [prior.learn(*pair) for prior, *pair in zip(priors, estimate.T, error.T, strict=True)]
        passed = Passed(
            np.column_stack([mean for _, mean, _ in found]),
            within * training * (np.array([slope.sum() for _, _, slope in found]) / freedom),
            [prior for prior, _, _ in found],
        )
    return passed


@dataclass(frozen=True)
class Prior:
    """How the shares are spread: zero, or uniform within bins."""

    edges: Floats
    """float64[BINS + 1], from 0 to beyond the largest estimate, in equal ratios from the second on."""
    chance: Floats
    """float64[BINS + 1]: of zero, and of each bin."""

    @classmethod
    def before(cls, estimate: Floats, noise: Floats) -> "Prior":
        """Return the prior before it learns: it reaches beyond all estimates, and resolves what the noise does."""
        least = float(np.median(noise)) / 2
        edges = np.append(0.0, np.geomspace(least, 2 * max(least, float(estimate.max())), BINS))
        return cls(edges, np.append(0.5, np.full(BINS, 0.5 / BINS)))

    def learn(self, estimate: Floats, error: Floats) -> "tuple[Prior, Floats, Floats]":
        """Return the prior that explains estimates of G shares better, and each share's mean by it and its slope.

        With l the density of an estimate, eta = theta + s^2 (log l)' and eta' = 1 + s^2 (log l)''.
        """
        score = np.clip(estimate, -FAR * error, self.edges[-1])[:, np.newaxis] / error[:, np.newaxis]
        ends = self.edges / error[:, np.newaxis] - score
        width = np.diff(self.edges)
        density, zero = _normal(ends), _normal(score)
        likelihood = np.hstack([zero / error[:, np.newaxis], _steps(ndtr(ends)) / width])
        chance = self.chance
        for _ in range(STEPS):
            chance = np.maximum(chance * ((1 / (likelihood @ chance)) @ likelihood) / len(estimate), TINY)
        # In units of the standard error: the first and second derivative of the density.
        each = chance[1:] / width
        at_zero = chance[0] * zero[:, 0] / error
        total = likelihood @ chance
        first = (-at_zero * score[:, 0] - (_steps(density) * each).sum(axis=1)) / total
        second = (at_zero * (score[:, 0] ** 2 - 1) - (_steps(ends * density) * each).sum(axis=1)) / total
        mean = np.maximum(error * (score[:, 0] + first), 0.0)
        return Prior(self.edges, chance), mean, np.maximum(1 + second - first**2, 0.0)


def _normal(x: Floats) -> Floats:
    density: Floats = np.square(x)
    density /= -2
    np.exp(density, out=density)
    density /= sqrt(2 * pi)
    return density


def _steps(columns: Floats) -> Floats:
    """Return by how much each column is more than the one before: `np.diff`, which is slower."""
    return columns[:, 1:] - columns[:, :-1]
