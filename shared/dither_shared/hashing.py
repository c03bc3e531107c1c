"""Public hashes: which bucket of a row, and which bits of a Bloom filter, stand for a text.

Everybody knows them and nobody chooses them. A bucket:

    number(text)        the first 8 bytes of SHA-256, a 64-bit integer x
    bucket(x, row)      (a x mod 2^64) B / 2^64, rounded down, with the row's odd multiplier a

The multiplier is made of a salt, by SHA-256, so it is the same on every device and in every release; a salt names the
metric and the row, never its rev or plan. Multiply-shift: Dietzfelbinger, Hagerup, Katajainen, Penttonen 1997.
Nothing about privacy rests on a hash: it only spreads texts over buckets.

The Bloom filter of google/rappor: which of k bits stand for a value in a cohort. The format is theirs.

    digest = MD5(cohort as 4 big-endian bytes, then the value as UTF-8)        16 bytes, d[0] to d[15]

    Python and C++ clients    bit of hash i = d[i] mod k                         h <= 16, k <= 256
    Java client               bit of hash i = (256 d[2 i] + d[2 i + 1]) mod k    h <= 8,  k <= 4096

The value "abc" in cohort 0, with k = 16 and h = 2:

    hashed    00 00 00 00 61 62 63
    digest    76 8d 87 4c 75 6c f6 09 c8 42 aa bf 09 03 40 b1
    bits      0x76 mod 16 = 6, 0x8d mod 16 = 13            Java: 0x768d mod 16 = 13, 0x874c mod 16 = 12

Bits stay in the order of the hashes. Two hashes may meet in one bit, which is then listed twice and set once. As a
number a filter has bit b worth 2^b, so that in text, most significant bit first, the leftmost character is bit k - 1:
0010000001000000. MD5 only spreads values over bits; nothing about privacy rests on it.

Which of the two clients made a report cannot be seen in it. The wrong one, like a cohort in the wrong byte order,
decodes to nothing. Chromium's RAPPOR hashes with CityHash and is a third format, which is not this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from dither_shared.errors import InvalidParameter

WORD_BITS = 64
_MASK = (1 << WORD_BITS) - 1


@lru_cache(maxsize=1024)
def multiplier(salt: str) -> int:
    """Return the odd 64-bit multiplier of a salt."""
    return _first_word(salt.encode("utf-8")) | 1


def number_of(typed: bytes) -> int:
    """Return the 64-bit number that stands for some bytes."""
    return _first_word(typed)


def bucket_of(number: int, factor: int, buckets: int) -> int:
    """Return the bucket, from 0 to `buckets` - 1, of a number, by a multiplier."""
    return ((number * factor & _MASK) * buckets) >> WORD_BITS


def _first_word(hashed: bytes) -> int:
    import hashlib  # as in frozen.py

    return int.from_bytes(hashlib.sha256(hashed).digest()[: WORD_BITS // 8], "big")


# The Bloom filter.

COHORT_MAX = 2**32 - 1
BITS_MAX, HASHES_MAX = 256, 16
JAVA_BITS_MAX, JAVA_HASHES_MAX = 4096, 8
DIGEST_BYTES = 16


def bloom_bits(value: str, cohort: int, k: int, h: int, *, java: bool = False) -> tuple[int, ...]:
    """Return the bit of each of the h hashes, in their order, repeats kept; each is from 0 to k - 1."""
    _check(cohort, k, h, java)
    digest = bloom_digests(value, (cohort,))
    if java:
        return tuple(int.from_bytes(digest[2 * i : 2 * i + 2], "big") % k for i in range(h))
    return tuple(byte % k for byte in digest[:h])


def bloom_digests(value: str, cohorts: Iterable[int]) -> bytes:
    """Return the digests of a value in these cohorts, DIGEST_BYTES each: to make the bits of many cohorts at once."""
    try:
        text = value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParameter("a value must be text that UTF-8 can hold, got half of a surrogate pair") from None
    from hashlib import md5  # as in plan.py

    return b"".join([md5(cohort.to_bytes(4, "big") + text, usedforsecurity=False).digest() for cohort in cohorts])


def _check(cohort: int, k: int, h: int, java: bool) -> None:
    k_max, h_max, client = (
        (JAVA_BITS_MAX, JAVA_HASHES_MAX, "Java") if java else (BITS_MAX, HASHES_MAX, "Python and C++")
    )
    if not 1 <= k <= k_max:
        raise InvalidParameter(f"k must be from 1 to {k_max} for the {client} hash, got {k}")
    if not 1 <= h <= h_max:
        raise InvalidParameter(f"h must be from 1 to {h_max} for the {client} hash, got {h}")
    if not 0 <= cohort <= COHORT_MAX:
        raise InvalidParameter(f"a cohort must be from 0 to {COHORT_MAX}, got {cohort}")
