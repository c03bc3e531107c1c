"""Candidates: texts that somebody thinks devices may have said, with the bits or buckets that each would have."""

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.decoding.decoder import Channel, Decoded, decode
from dither_aggregator.counting.folding import BadTally, Counts
from dither_aggregator.counting.supports import noisy_support, support_counts
from dither_shared.bloom import DIGEST_BYTES, bloom_digests
from dither_shared.domains import Hashed, TextDomain
from dither_shared.errors import InvalidParameter
from dither_shared.hashing import bucket_of
from dither_shared.mechanisms import RAPPOR, Mechanism, PureMechanism

_one_at_a_time = Lock()
"""A decoding takes all the memory and time that a request may: others wait."""


def decode_candidates(
    domain: TextDomain, mechanism: Mechanism, tally: Counts, candidates: tuple[str, ...], *, noisy: bool = False
) -> Decoded:
    """Estimate the share of each candidate from a tally of cohorts, int64[m, 1 + shape]; raise BadTally if it is none.

    At least one candidate is needed. With `noisy`, counts are those of a release, of hashed texts; each cohort must
    have some reports, and supports that no reports can have are cut.
    """
    m = len(tally)
    try:
        with _one_at_a_time:
            if isinstance(domain, Hashed):
                memo = PureMechanism.of(mechanism)
                channel = Channel(domain.buckets, 1, m, float(memo.q), float(memo.p))
                supports = _noisy_supports(memo, tally) if noisy else _supports(memo, tally)
                return decode(supports, candidates, candidate_buckets(candidates, domain, m), channel)
            rappor = RAPPOR.of(mechanism)
            channel = Channel(rappor.k, rappor.h, m, float(rappor.p_star), float(rappor.q_star))
            return decode(tally, candidates, candidate_bits(candidates, rappor.k, rappor.h, m), channel)
    except InvalidParameter as error:
        raise BadTally(str(error)) from None


def _supports(mechanism: PureMechanism, tally: Counts) -> Counts:
    """Return of each cohort the number of its reports and how many of them support each bucket, int64[m, 1 + d]."""
    nobody = np.zeros(mechanism.d, dtype=np.int64)
    rows = [support_counts(mechanism, row[1:], int(row[0])) if row[0] else nobody for row in tally]
    return np.column_stack([tally[:, 0], np.array(rows)])


def _noisy_supports(mechanism: PureMechanism, tally: Counts) -> Counts:
    rows = [np.clip(noisy_support(mechanism, row[1:]), 0, row[0]) for row in tally]
    return np.column_stack([tally[:, 0], np.array(rows)])


@lru_cache(maxsize=4)
def candidate_bits(candidates: tuple[str, ...], k: int, h: int, m: int) -> npt.NDArray[np.int64]:
    """Return int64[S, m, h]: the bit of each hash of each candidate in each cohort."""
    return bits_in(range(m), candidates, k, h)


def bits_in(cohorts: range, values: Sequence[str], k: int, h: int) -> npt.NDArray[np.int64]:
    """Return int64[S, cohorts, h]: what `bloom_bits` says of each value in each cohort, much faster."""
    digests = b"".join([bloom_digests(value, cohorts) for value in values])
    hashes = np.frombuffer(digests, dtype=np.uint8).reshape(len(values), len(cohorts), DIGEST_BYTES)[:, :, :h]
    return hashes.astype(np.int64) % k


@lru_cache(maxsize=4)
def candidate_buckets(candidates: tuple[str, ...], domain: Hashed, m: int) -> npt.NDArray[np.int64]:
    """Return int64[S, m, 1]: the bucket of each candidate in each cohort."""
    numbers = [domain.number(domain.named(candidate)) for candidate in candidates]
    factors = [domain.multiplier(cohort) for cohort in range(m)]
    buckets = [[bucket_of(number, factor, domain.buckets) for factor in factors] for number in numbers]
    return np.array(buckets, dtype=np.int64).reshape(len(candidates), m, 1)
