"""Strangers: how often a string that nobody has gets as much as a candidate, by the hash alone.

A stranger sets random bits in each cohort. With g the gains of a cohort's bits, their residuals by weight, its total is

    S = sum over cohorts of the sum of g over the distinct bits that its h hashes set

The hash draws anew in each cohort, so the law of S is a convolution: the product over cohorts of the mean of
exp(i t sum of g). With j distinct bits that is e_j / C(k, j), where e_j is the elementary symmetric polynomial of the
bits' exp(i t g), by Newton's identities from their power sums. A string that many have and the list misses makes one
gain of each cohort large, and S is as uneven as the number of cohorts in which a stranger meets it.
"""

from math import comb

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft

from dither_aggregator.analysis.inference import Floats

CHANCE_MIN = 1e-12
"""Rarer ones are lost in the rounding of the transform."""
STEPS, REACH = 128, 32
"""Steps of a standard deviation, and how many of these to each side the law has beside three of the largest gains."""


def stranger_chances(gains: Floats, hashes: int, totals: Floats) -> Floats:
    """Return how often a stranger's total is at least each of these, float64[G], from CHANCE_MIN to 1.

    `gains` is float64[cohorts, k].
    """
    k, deviation = gains.shape[1], float(np.sqrt(hashes * gains.var(axis=1).sum()))
    if not deviation > 0:
        return np.where(totals > 0, CHANCE_MIN, 1.0)
    scaled = gains * (STEPS / deviation)
    half = int(STEPS * REACH + 3 * np.abs(scaled).max())
    length = next_fast_len(2 * half, real=True)
    law = np.ones(length // 2 + 1, dtype=np.complex128)
    for cohort in scaled:
        powers = [_transform(power * cohort, length) for power in range(1, hashes + 1)]
        symmetric = [np.ones(len(law), dtype=np.complex128)]
        for bits in range(1, hashes + 1):
            terms = [(-1) ** (i - 1) * symmetric[bits - i] * powers[i - 1] for i in range(1, bits + 1)]
            symmetric.append(np.sum(terms, axis=0) / bits)
        law *= sum(
            chance / comb(k, bits) * symmetric[bits] for bits, chance in enumerate(_distinct(k, hashes)) if chance
        )
    density = np.roll(irfft(law, length), length // 2)
    passing = np.append(np.cumsum(density[::-1])[::-1], 0.0)
    places = np.clip(np.floor(totals * (STEPS / deviation)) + length // 2, 0, length).astype(np.int64)
    return np.asarray(np.clip(passing[places], CHANCE_MIN, 1.0))


def _transform(values: Floats, length: int) -> npt.NDArray[np.complex128]:
    """Return the sum of exp(-i t value), complex128[length // 2 + 1]; a value lies between two steps by its parts."""
    below = np.floor(values)
    part, place = values - below, below.astype(np.int64)
    at = np.concatenate([place, place + 1]) % length
    counted: npt.NDArray[np.complex128] = rfft(np.bincount(at, np.concatenate([1 - part, part]), minlength=length))
    return counted


def _distinct(k: int, hashes: int) -> Floats:
    """Return the chance of each number of distinct bits, float64[hashes + 1]."""
    chance, number = np.zeros(hashes + 1), np.arange(hashes + 1)
    chance[0] = 1.0
    for _ in range(hashes):
        chance = chance * number / k + np.append(0.0, (chance * (1 - number / k))[:-1])
    return chance
