"""The shares of all candidates together, as the prior that explains them best has them: none below zero.

Estimated alone, each candidate is off by the noise and by what all the others, who share its bits, add. Taking the
others off needs their shares, which are estimates, too. So in turn every candidate is estimated from what the others
leave, and all estimates are drawn towards what the prior says. With theta the estimates, s their standard errors,
eta the mean of a share given its estimate, and r the residual, on R equations of weight w in G columns x,

    theta_v = f_v + x_v' w r / x_v' w x_v       f = eta(theta)       r = y - X f + r mean(eta') G / R

The last term takes off what a candidate's own noise has added to its own residual: without it each round would count
the same noise again. With it theta is in each round as if every candidate were alone, with the noise that r shows.

The prior is zero with some probability, or else uniform within each of some bins, and is fitted to theta by
expectation maximisation. Shares are estimated best with the prior they are drawn from, and many lists are mostly
candidates that nobody has: this is why no penalty has to be chosen.

Donoho, Maleki, Montanari 2009 (approximate message passing); Kiefer, Wolfowitz 1956; Jiang, Zhang 2009 (the prior);
Robbins 1956, with Tweedie's formula (eta).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from scipy.special import ndtr

from dither_aggregator.analysis.decoding.equations import TINY, Equations
from dither_aggregator.analysis.inference import Floats

ROUNDS_MAX, GAIN_MIN = 50, 0.003
"""They end when one takes less than this part off the residual's square: with much noise after about ten."""
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

    def parts(self, number: int) -> "Passed":
        """Return them for so many folds, the i-th from where the fold of i's remainder by F ended."""
        folds = np.arange(number) % self.shares.shape[1]
        return Passed(self.shares[:, folds], self.own[:, folds], [self.priors[fold] for fold in folds])


def pass_messages(equations: Equations, training: Floats, start: Passed | None = None) -> Passed:
    """Fit for each of F folds the candidates' shares by the equations that are 1 in `training`.

    `training` is float64[R, F], with whole cohorts 0 or 1. A start must have seen no equation that is 0 in it.
    """
    weight = equations.weight[:, np.newaxis] * training
    freedom = training.sum(axis=0) * (1 - 1 / equations.channel.k)
    used = training[:: equations.channel.k]
    norm = np.maximum(equations.norms() @ used, TINY)
    share = equations.within_cohorts(equations.share[:, np.newaxis])
    shares, own, priors = np.zeros(norm.shape), np.zeros(training.shape), list[Prior]()
    if start:
        shares, own, priors = start.shares, start.own, list(start.priors)
    before = np.inf
    for _ in range(ROUNDS_MAX):
        residual = share - equations.within_cohorts(equations.patterns.T @ shares) + own
        scale2 = np.maximum(1.0, (weight * residual**2).sum(axis=0) / freedom)
        if scale2.sum() > (1 - GAIN_MIN) * before:
            break
        before = scale2.sum()
        estimate = shares + (equations.patterns @ (weight * residual)) / norm
        error = np.sqrt(scale2 / norm)
        priors = priors or [Prior.before(*pair) for pair in zip(estimate.T, 1 / np.sqrt(norm.T), strict=True)]
        found = [prior.learn(*pair) for prior, *pair in zip(priors, estimate.T, error.T, strict=True)]
        priors = [prior for prior, _, _ in found]
        shares = np.column_stack([mean for _, mean, _ in found])
        own = residual * training * (np.array([slope.sum() for _, _, slope in found]) / freedom)
    return Passed(shares, own, priors)


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
