"""How rarely honest devices give a count as small or as large: exact laws, or bounds of them, never a normal curve.

A count is of n trials, each with a probability from `low` to `high`, whatever the answers are. So it is stochastically
at least a binomial count of rate `low`, and at most one of rate `high`: their tails bound it (`binomial`), and are its
own where both rates are one.

The tails are Chernoff's (`mixed`) where only the mean of the probabilities is known to be from `low` to `high`, and
where a device may have sent r of the reports, perhaps with the same noise:

    P[count >= k]  <=  exp( - (n / r) KL(k / n | high) )        and so below, with KL(a | b) that of two coins

Proof. Let a device have s <= r trials of one coin, with sum X of mean s p. exp is convex, so E[e^(t X)] is at most
1 - p + p e^(t s), whose logarithm is convex in s and zero at 0: at most s / r that of r trials. It is concave in p: of
all devices together at most what the mean of the p gives, (1 - p + p e^(t r))^(n / r). The best t gives the bound.
Hoeffding 1963 has it with r = 1.

A sum of n bounded terms of known mean, each with a variance of at most v and at most c above its mean, has Bennett's
tail (1962), with r reports of a device as above:

    P[sum - mean >= x]  <=  exp( - (n v / (r c^2)) h(c x / (n v)) )        h(u) = (1 + u) ln(1 + u) - u
"""

import numpy as np
from scipy.special import betainc, rel_entr

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting.folding import Counts


def binomial(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float) -> Floats:
    """Return two-sided p-values of counts of n >= 1 independent trials that are each from `low` to `high` likely."""
    above = np.where(counts > 0, betainc(np.maximum(counts, 1), n - np.maximum(counts, 1) + 1, high), 1.0)
    rest = n - counts
    below = np.where(rest > 0, betainc(np.maximum(rest, 1), n - np.maximum(rest, 1) + 1, 1 - np.asarray(low)), 1.0)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)))


def mixed(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float, repeats: int = 1) -> Floats:
    """Return bounds of the same where the mean of the probabilities is from `low` to `high`."""
    rates = np.asarray(counts / n)
    nearest = np.clip(rates, low, high)
    divergence = rel_entr(rates, nearest) + rel_entr(1 - rates, 1 - nearest)
    return np.asarray(np.minimum(1.0, 2 * np.exp(-n / repeats * divergence)))


def bennett(excess: float, n: int, variance: float, above: float, below: float, repeats: int = 1) -> float:
    """Return a two-sided p-value of a sum of n terms that is `excess` more than its mean.

    A term is at most `above` more than its mean, and at most `below` less.
    """
    reach = above if excess > 0 else below
    if not (variance > 0 and reach > 0):
        return 1.0 if excess == 0 else 0.0
    size = abs(excess) * reach / (n * variance)
    exponent = n * variance / (repeats * reach**2) * ((1 + size) * np.log1p(size) - size)
    return float(min(1.0, 2 * np.exp(-exponent)))
