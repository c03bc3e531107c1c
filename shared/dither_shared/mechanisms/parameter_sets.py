"""RAPPOR's parameters as others have published them, under their names."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType

from dither_shared.frozen import frozen
from dither_shared.light_typing import Final
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
