"""The memo of a text: Bloom bits in a cohort, or one bucket of a public hash there, whichever is the better choice.

RAPPOR's permanent bits are practically a noise of their own for each device: R(200) (`accounting`) is about 1.
A hashed memo keeps one of K points instead, of which many devices have the same:

    bucket    v = h_c(text), one of K, by a hash of the device's cohort c
    memo      a point for v, by projective geometry response, sent again and again under fresh noise

Its reports have 5 or 6 bits, and an error near RAPPOR's up to an epsilon of about 3. Few cohorts keep R low. They must
tell the candidates apart: m cohorts make m (K - 1) equations for them.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dither_shared.accounting import linked_share
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import replaced
from dither_shared.mechanisms import DEVICE, DEVICE_CELLS_MAX, PGR, RAPPOR, Cells, MemoizedTwoLevel, Part
from dither_shared.mechanisms.automatic_choice import INDIFFERENT
from dither_shared.mechanisms.pgr import points

SPACES = ((2, 5), (3, 4), (5, 3), (7, 3))
"""Orders and dimensions with 31 to 57 points: with fewer, texts share too many buckets; more are a fingerprint."""
EQUATIONS = Fraction(5, 2)
"""For each candidate that is expected: with 3/2 a fourth fewer strings are found than by RAPPOR."""
COHORTS_MIN = 8
"""The decoder fits on all cohorts but one. In three the fit goes astray: errors are 5 to 120 times the bound."""
WORSE_MAX = Fraction(11, 10)
"""The most variance over RAPPOR's. Texts that share buckets add to it when they are decoded."""
LINKED_MAX = 2 / 3
"""The most of RAPPOR's R(200): for less than that nobody gives up accuracy."""
BEARABLE = Fraction(3, 10)
"""Candidates for each equation, of which there are m k, that one fit of all can bear.

Every further column takes a part of each other one: beyond this more bits are better.
"""
K_CHOICES = (8, 16, 32, 64, 128, 256)


def choose_rappor(epsilon: Decimal, permanent: Decimal, candidates: int, m: int) -> RAPPOR:
    """Return the RAPPOR with the least error for a list of so many candidates; within 3 %, with the fewest bits.

    Its variance is that of one bit, p* (1 - p*) / (q* - p*)^2, over h; the other candidates' bits take a part
    1 / k of each row away, and S candidates a part S / (m k) of all rows.
    """
    bearable = [k for k in K_CHOICES if candidates < BEARABLE * m * k] or [K_CHOICES[-1]]
    found = []
    # The thresholds follow from h alone, and take most of the time: no k here is below h.
    noises = {h: RAPPOR.for_epsilon(K_CHOICES[0], h, epsilon, permanent) for h in (1, 2)}
    for h, noise in noises.items():
        for k in bearable:
            left = max(1 - Fraction(candidates, m * k), Fraction(1, 10))
            found.append((noise.noise_variance / ((1 - Fraction(h, k)) * left), k, h))
    bound = min(found)[0] * INDIFFERENT
    _, k, h = min((one for one in found if one[0] <= bound), key=lambda one: (one[1], one[0]))
    return replaced(noises[h], k=k)


def choose_memo(
    epsilon: Decimal, permanent: Decimal, candidates: int, name: str | None = None
) -> tuple[Cells, Cells | None]:
    """Return the cells of a text's memo, and the other choice: hashed where R is at most LINKED_MAX of RAPPOR's.

    `name` takes one of the two in any case. Raises InvalidParameter where no hashed memo is near RAPPOR's error.
    """
    bloom = choose_rappor(epsilon, permanent, candidates, DEVICE_CELLS_MAX)
    rappor = Cells((Part(bloom, DEVICE_CELLS_MAX),), DEVICE)
    hashed = _hashed_cells(epsilon, permanent, candidates, bloom.noise_variance)
    if hashed is None:
        if name == PGR.name:
            raise InvalidParameter(f"{candidates:,} candidates or epsilon {epsilon} are too much for a hashed memo")
        return rappor, None
    takes_hashed = name == PGR.name or (name is None and _linked(hashed) <= LINKED_MAX * _linked(rappor))
    return (hashed, rappor) if takes_hashed else (rappor, hashed)


def _hashed_cells(epsilon: Decimal, permanent: Decimal, candidates: int, variance: Fraction) -> Cells | None:
    """Return the hashed memo that links the fewest devices; None where each has too much more variance than RAPPOR."""
    found = []
    for order, dimension in SPACES:
        buckets = points(order, dimension)
        memo = MemoizedTwoLevel.for_epsilon(PGR.for_design(buckets, order, dimension, permanent), epsilon)
        cohorts = COHORTS_MIN
        while cohorts * (buckets - 1) < EQUATIONS * candidates:
            cohorts *= 2
        if cohorts <= DEVICE_CELLS_MAX and bucket_variance(memo) <= WORSE_MAX * variance:
            found.append(Cells((Part(memo, cohorts),), DEVICE))
    return min(found, key=_linked, default=None)


def _linked(cells: Cells) -> float:
    """Return R(200)."""
    return linked_share((cells,)) or 0.0


def bucket_variance(memo: MemoizedTwoLevel) -> Fraction:
    """Return the variance of a text's estimated share, times n: other texts take a part 1 / K of each cohort away."""
    return memo.noise_variance / (1 - Fraction(1, memo.d))
