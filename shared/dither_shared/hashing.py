"""Public hashes: which of many texts share a bucket, differently in each row, known to everybody and chosen by nobody.

    number(text)        the first 8 bytes of SHA-256, a 64-bit integer x
    bucket(x, row)      (a x mod 2^64) B / 2^64, rounded down, with the row's odd multiplier a

The multiplier is made of a salt, by SHA-256, so it is the same on every device and in every release; a salt names the
metric and the row, never its rev or plan. Multiply-shift: Dietzfelbinger, Hagerup, Katajainen, Penttonen 1997. Nothing
about privacy rests on a hash: it only spreads texts over buckets.
"""

from __future__ import annotations

from functools import lru_cache

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
