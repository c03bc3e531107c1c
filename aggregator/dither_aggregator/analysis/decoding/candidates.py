"""Candidates: texts that somebody thinks devices may have said, with the Bloom bits that each would have."""

from functools import lru_cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.decoding.decoder import Channel, Decoded, decode
from dither_aggregator.counting.folding import BadTally, Counts
from dither_shared.bloom import bloom_bits
from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms import RAPPOR

_one_at_a_time = Lock()
"""A decoding takes all the memory and time that a request may: others wait."""


def decode_candidates(mechanism: RAPPOR, tally: Counts, candidates: tuple[str, ...]) -> Decoded:
    """Estimate the share of each candidate from a tally of `mechanism`, int64[m, k + 1]; raise BadTally if it is none.

    At least one candidate is needed.
    """
    k, h, m = mechanism.k, mechanism.h, len(tally)
    channel = Channel(k, h, m, float(mechanism.p_star), float(mechanism.q_star))
    try:
        with _one_at_a_time:
            return decode(tally, candidates, candidate_bits(candidates, k, h, m), channel)
    except InvalidParameter as error:
        raise BadTally(str(error)) from None


@lru_cache(maxsize=4)
def candidate_bits(candidates: tuple[str, ...], k: int, h: int, m: int) -> npt.NDArray[np.int64]:
    """Return int64[S, m, h]: the bit of each hash of each candidate in each cohort."""
    bits = [[bloom_bits(candidate, cohort, k, h) for cohort in range(m)] for candidate in candidates]
    return np.array(bits, dtype=np.int64).reshape(len(candidates), m, h)
