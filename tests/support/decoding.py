"""Tallies of Bloom filters: expected ones, and ones drawn from their law."""

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.decoder import Channel, Decoded
from tests.benchmarks.rappor import CASES, draw, map_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CHANNEL = Channel(16, 2, 32, p_star=0.375, q_star=0.625)
SHARES = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
TYPICAL, LOOSE, TENFOLD = (
    next(case for case in CASES if case.name == name) for name in ("typical", "loose", "tenfold")
)


def names(count: int) -> list[str]:
    return [f"v{number}" for number in range(1, count + 1)]


def expected_tally(channel: Channel, bits: Ints, shares: Floats, reports: int = 10**12) -> Ints:
    """The tally of so many reports a cohort that rounding does not matter; bits[s] are those of shares[s]."""
    sets = np.zeros((len(bits), channel.m, channel.k))
    np.put_along_axis(sets, bits, 1.0, axis=2)
    rate = channel.p_star + (channel.q_star - channel.p_star) * np.einsum("s,scb->cb", shares, sets)
    return np.column_stack([np.full(channel.m, reports), np.rint(reports * rate)]).astype(np.int64)


def column(decoded: Decoded, name: str) -> Floats:
    return np.array([getattr(row, name) for row in decoded.rows], dtype=np.float64)


def drawn(channel: Channel, shares: Floats, n: int, seed: int = 1) -> tuple[Ints, list[str], Ints]:
    values = names(len(shares))
    bits = map_of(values, channel, seed * channel.m)
    return draw(channel, bits, shares, n, np.random.default_rng(seed))[0], values, bits
