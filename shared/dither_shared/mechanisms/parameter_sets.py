"""RAPPOR's parameters: published sets under their names, and the choice of others for a wanted epsilon."""

from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from dither_shared.frozen import frozen, replaced
from dither_shared.mechanisms.choice import INDIFFERENT
from dither_shared.mechanisms.rappor import RAPPOR


@frozen
class ParameterSet:
    """Parameters that somebody has published, with where."""

    mechanism: RAPPOR
    m: int
    """How many cohorts there are."""
    provenance: str


def _published(k: int, h: int, m: int, f: str, p: str, q: str, provenance: str) -> ParameterSet:
    return ParameterSet(RAPPOR.of_probabilities(k, h, Fraction(f), Fraction(p), Fraction(q)), m, provenance)


_CHROMIUM = "Chromium, components/rappor"
_GOOGLE = "google/rappor"

PARAMETER_SETS: Final = MappingProxyType(
    {
        "chromium_string": _published(32, 2, 128, "0.5", "0.25", "0.75", f"{_CHROMIUM}: UMA_RAPPOR_TYPE"),
        "chromium_coarse": _published(8, 2, 128, "0.5", "0.25", "0.75", f"{_CHROMIUM}: COARSE_RAPPOR_TYPE"),
        "chromium_etld_plus_one": _published(128, 2, 128, "0.5", "0.25", "0.75", f"{_CHROMIUM}: ETLD_PLUS_ONE"),
        "google_default": _published(16, 2, 64, "0.5", "0.5", "0.75", f"{_GOOGLE}: the client's defaults"),
        "google_demo": _published(32, 1, 64, "0.5", "0.25", "0.75", f"{_GOOGLE}: the demo's simulation"),
        "google_typical": _published(
            8, 2, 128, "0.45", "0.39", "0.61", f"{_GOOGLE}: the regression tests' typical case"
        ),
    }
)

BEARABLE = Fraction(3, 10)
"""Candidates for each equation, of which there are m k, that one fit of all can bear.

Every further column takes a part of each other one: beyond this more bits are better.
"""
K_CHOICES = (8, 16, 32, 64, 128, 256)


def choose_rappor(epsilon: Decimal, permanent: Decimal, candidates: int, m: int) -> RAPPOR:
    """Return the RAPPOR with the least error for a list of so many candidates; within 3 %, with the fewest bits.

    An estimate's variance is that of one bit, p* (1 - p*) / (q* - p*)^2, over h; the other candidates' bits take a part
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
