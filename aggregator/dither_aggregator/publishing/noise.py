"""Discrete Laplace and Gaussian noise, drawn exactly: every choice is a uniform integer compared with an integer.

    Laplace     P[k] = (1 - a) / (1 + a) a^|k|        a = exp(-s / t), with s and t integers
    Gaussian    P[k] proportional to exp(-k^2 / (2 V))        V a ratio of integers, about its variance

Canonne, Kamath, Steinke 2020, algorithms 1 to 3. A coin of probability exp(-x) for a rational 0 <= x <= 1 counts how
long coins of x/1, x/2, x/3, ... come up: P[the first k do] = x^k / k!, so that the number of those that did is even
with probability 1 - x + x^2/2 - ... = exp(-x).

A geometric number with ratio exp(-1 / t) is u + t v: u uniform below t, kept with probability exp(-u / t), and v the
number of coins of exp(-1) that come up. Its quotient by s is geometric with ratio exp(-s / t). A sign makes it
two-sided. Zero has two signs, and would come twice as often as it should: -0 is drawn again.

A Gaussian number is a Laplace one of a whole scale t that is kept with probability exp(-(|k| - V / t)^2 / (2 V)), else
drawn again: the product of both is exp(-k^2 / (2 V)), times what does not depend on k. Any t gives this law; few are
drawn again where t is near the square root of V.

Nothing is rounded, so the privacy of a release is that of the formula. A float in its place would not have it: which
of them can come up tells what they were added to (Mironov 2012). Here the noise and the counts are integers.
"""

from fractions import Fraction
from math import isqrt

from dither_shared.releases import ReleaseNoise
from dither_shared.rng import Rng


def draw_noise(law: ReleaseNoise, rng: Rng) -> int:
    """Return the noise of one count of a release."""
    if law.gaussian is None:
        return discrete_laplace(law.scale, rng)
    return discrete_gaussian(law.gaussian, rng)


def exp_coin(numerator: int, denominator: int, rng: Rng) -> bool:
    """Return True with probability exp(-numerator / denominator), of a ratio of 0 or more: above 1 by a coin a unit."""
    while numerator > denominator:
        if not exp_coin(1, 1, rng):
            return False
        numerator -= denominator
    place = 1
    while rng.uniform(denominator * place) < numerator:
        place += 1
    return place % 2 == 1


def discrete_laplace(scale: Fraction, rng: Rng) -> int:
    """Return an integer k with probability proportional to exp(-|k| / scale); scale is above 0."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = rng.uniform(t)
        if not exp_coin(u, t, rng):
            continue
        v = 0
        while exp_coin(1, 1, rng):
            v += 1
        size = (u + t * v) // s
        negative = rng.uniform(2) == 1
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(variance: Fraction, rng: Rng) -> int:
    """Return an integer k with probability proportional to exp(-k^2 / (2 variance)); variance is above 0."""
    a, b = variance.numerator, variance.denominator
    t = isqrt(a // b) + 1
    while True:
        drawn = discrete_laplace(Fraction(t), rng)
        if exp_coin((abs(drawn) * b * t - a) ** 2, 2 * a * b * t * t, rng):
            return drawn
