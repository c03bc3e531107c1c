"""Estimates of many candidates: each from what the others leave, fitted on other cohorts.

The cohorts are split in 32 parts. All but one fit all candidates (message_passing.py), f, and this one has not seen the
fit. Its residual r, along a candidate's column x, says by how much the fit is off there:

    theta_v = sum over parts of (x' w x f_v + x' w r) / sum over parts of x' w x

Shares and columns are taken within cohorts, less the cohort's mean. Given the fit, the other candidates' bits in the
held-out cohorts are drawn by the hash: what the fit gets wrong of them is noise of mean zero, in r, and so is what
strings outside the list add. So theta is unbiased over the hash, whatever was fitted, its standard error is measured
by r, and the better the fit, the smaller it is. The fit is multiplied by the number from 0 to 1 that leaves the least
of the held-out residuals: one that went astray does no harm.

The fits begin where those of eight folds ended, which are fitted first. A fold has four parts, and its fit has seen
none of them, so that each of their fits goes on from it for a few rounds more.

Every report holds one string, so that unlisted ones have 1 less the sum of all theta. Its error is that of a sum.

Chernozhukov et al. 2018 (cross-fitting); Zhang, Zhang 2014 (the one step).
"""

from dataclasses import replace

import numpy as np

from dither_aggregator.analysis.decoding.equations import FOLDS, PARTS, TINY, Equations, weights_of
from dither_aggregator.analysis.decoding.fitting import Found, settle
from dither_aggregator.analysis.decoding.message_passing import Passed, pass_messages
from dither_aggregator.analysis.decoding.strangers import stranger_chances
from dither_aggregator.analysis.inference import Floats


def infer_by_folds(equations: Equations) -> Found:
    """Estimate each candidate from the residuals of fits that have not seen them.

    At least two cohorts of two bits are needed. A candidate that sets all bits or none is not determined.
    """
    held_out = held_out_of(equations, FOLDS)
    coarse = pass_messages(equations, 1 - held_out)
    # Weights by the rates that the fits of the others expect of a cohort: it has no part in its own.
    shares, _ = _kept(equations, coarse, held_out)
    equations = replace(equations, weight=_weights(equations, shares, held_out))
    held_out = held_out_of(equations, PARTS)
    fine = pass_messages(equations, 1 - held_out, coarse.parts(held_out.shape[1]))
    shares, residual = _kept(equations, fine, held_out)
    norms = equations.norms()
    total = norms.sum(axis=1)
    determined = total > 1e-6 * (equations.patterns @ equations.weight)
    total = np.where(determined, total, 1.0)
    held_norms = norms @ held_out[:: equations.channel.k]
    gains = equations.weight * residual
    totals = (held_norms * shares).sum(axis=1) + equations.patterns @ gains
    estimate = totals / total
    chi_square = float((equations.weight * residual**2).sum())
    freedom = len(residual) - norms.shape[1]
    scale2 = max(1.0, chi_square / freedom)
    of_sum = equations.within_cohorts((equations.patterns.T @ np.where(determined, 1 / total, 0.0))[:, np.newaxis])[
        :, 0
    ]
    return settle(
        np.append(estimate, 1 - estimate[determined].sum()),
        scale2 * np.append(1 / total, (equations.weight * of_sum**2).sum()),
        np.append(determined, determined.all()),
        chi_square,
        freedom,
        common=equations.common,
        cohorts=equations.cohorts,
        strangers=stranger_chances(gains.reshape(equations.cohorts, -1), equations.channel.h, totals),
        split=True,
    )


def held_out_of(equations: Equations, most: int) -> Floats:
    """Return float64[R, F]: 1 where an equation is held out of a fold."""
    folds = min(most, equations.cohorts)
    held_out: Floats = (equations.cohort[:, np.newaxis] % folds == np.arange(folds)).astype(np.float64)
    return held_out


def _kept(equations: Equations, passed: Passed, held_out: Floats) -> tuple[Floats, Floats]:
    """Return the part of each fold's fit that is kept, float64[G, F], and its residual where held out, float64[R]."""
    shares = passed.shares
    fitted = (equations.within_cohorts(equations.patterns.T @ shares) * held_out).sum(axis=1)
    share = equations.within_cohorts(equations.share[:, np.newaxis])[:, 0]
    weighted = equations.weight * fitted
    kept = min(max(float(weighted @ share) / max(float(weighted @ fitted), TINY), 0.0), 1.0)
    return kept * shares, share - kept * fitted


def _weights(equations: Equations, shares: Floats, held_out: Floats) -> Floats:
    channel = equations.channel
    fitted = ((equations.patterns.T @ shares + channel.unlisted * (1 - shares.sum(axis=0))) * held_out).sum(axis=1)
    weights: Floats = weights_of(
        channel.p_star + (channel.q_star - channel.p_star) * fitted, equations.reports, channel
    )
    return weights
