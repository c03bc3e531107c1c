"""Exact randomness: every coin is an integer compared with an integer, every uniform choice rejects.

A probability is a threshold T out of `SCALE` = 2^64, so it is known exactly and so is every epsilon computed from
it. Nothing here knows where random bits come from: the device passes `secrets.randbits`, tests pass a seeded
generator or one that enumerates every outcome, and a memo is drawn from the bits of a keyed function.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dither_shared.frozen import frozen

COIN_BITS = 64
SCALE = 1 << COIN_BITS

RandBits = Callable[[int], int]
"""`randbits(k)` returns k uniform random bits as an integer in [0, 2^k)."""


@frozen
class Rng:
    """The three random decisions that mechanisms are built from.

    `coin_bits` is 64 everywhere but in the tests, which shrink it to try every outcome.
    """

    randbits: RandBits
    coin_bits: int = COIN_BITS

    def coin(self, threshold: int) -> bool:
        """Return True with probability exactly threshold / 2^coin_bits."""
        return self.randbits(self.coin_bits) < threshold

    def coins(self, threshold: int, count: int) -> int:
        """Return `count` independent coins as the bits of one integer, each with the law of `coin(threshold)`.

        `threshold` is above 0 and below 2^coin_bits.

        All positions compare their own random number with the threshold at once, most significant bit first. A
        position is open while its number equals the threshold so far. Half of them close in each round, so about
        log2(count) + 2 rounds of `count` bits replace `count` numbers of 64; they are drawn a few rounds at a time,
        because asking the system for randomness costs more than the arithmetic.
        """
        ones = 0
        still_open = (1 << count) - 1
        drawn = rounds = 0
        # Below the threshold's last one-bit an open position can end equal or above, never below: no need to look.
        last = (threshold & -threshold).bit_length() - 1
        for place in range(self.coin_bits - 1, last - 1, -1):
            if not still_open:
                break
            if not rounds:
                rounds = min(still_open.bit_count().bit_length() + 3, place + 1)
                drawn = self.randbits(rounds * count)
            if threshold >> place & 1:
                ones |= still_open & ~drawn
                still_open &= drawn
            else:
                still_open &= ~drawn
            drawn >>= count
            rounds -= 1
        return ones

    def uniform(self, size: int) -> int:
        """Return an integer in [0, size), each with probability exactly 1 / size."""
        bits = (size - 1).bit_length()
        while True:
            drawn = self.randbits(bits)
            if drawn < size:
                return drawn


def _randbits(count: int) -> int:
    """Return `count` random bits. As `secrets.randbits`, but for the modules that `secrets` imports."""
    size = (count + 7) // 8
    return int.from_bytes(os.urandom(size), "big") >> (8 * size - count)


SYSTEM = Rng(_randbits)
"""The operating system's randomness: an app's devices take theirs from it, and from nowhere else."""


def jitter(most_s: float) -> float:
    """Return a random number of seconds from 0 to `most_s`."""
    return most_s * SYSTEM.uniform(1 << 32) / (1 << 32)


def keyed_rng(secret: bytes, context: bytes) -> Rng:
    """Return an Rng whose bits are a function of the context alone, and random to whoever lacks the secret.

    Keyed BLAKE2b (RFC 7693), a pseudorandom function, of the context's digest and a counter. The same context always
    gives the same bits: this is how a memo is drawn again instead of stored. `secret` is 16 to 64 bytes.
    """
    import hashlib  # as in plan.py

    name = hashlib.blake2b(context).digest()
    unused = b""
    blocks = 0

    def randbits(count: int) -> int:
        nonlocal unused, blocks
        needed = (count + 7) // 8
        while len(unused) < needed:
            unused += hashlib.blake2b(name + blocks.to_bytes(8, "big"), key=secret).digest()
            blocks += 1
        taken, unused = unused[:needed], unused[needed:]
        return int.from_bytes(taken, "big") >> (8 * needed - count)

    return Rng(randbits)
