"""Writes letters.bin, the table of dither_shared/words, from counts.csv. `make test` holds one against the other.

A count is mixed with what follows any symbol, so that a context seldom seen takes the usual lengths; ESC has at least a
share of its own, since the texts are English and answers need not be; and nothing is impossible. Lengths are the best
of at most 16 bits for these shares, by package-merge: Larmore, Hirschberg 1990.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import dither_shared.words
from dither_shared.words.letters import CONTEXTS, ESC, LENGTH_MAX
from tests.code_table.counting import COUNTS

TABLE = Path(dither_shared.words.__file__).with_name("letters.bin")
USUAL = 20.0
"""The usual shares, over all contexts, count as so many characters of each."""
ANYTHING = 0.05
"""This share of each context is spread evenly over all symbols."""
ESCAPED, ESCAPED_AGAIN = 0.01, 0.7
"""The least share of ESC, and that after an escaped byte: characters outside ASCII have several, and neighbours."""

Floats = npt.NDArray[np.float64]


def shares(counts: Floats) -> Floats:
    """Return the shares that the lengths are best for, float64[97, 97], each row of which sums to 1."""
    usual = counts.sum(axis=0) / counts.sum()
    mixed = counts + USUAL * usual
    mixed /= mixed.sum(axis=1, keepdims=True)
    mixed = (1 - ANYTHING) * mixed + ANYTHING / CONTEXTS
    least = np.full(CONTEXTS, ESCAPED)
    least[ESC] = ESCAPED_AGAIN
    escaped = np.maximum(mixed[:, ESC], least)
    mixed *= ((1 - escaped) / (1 - mixed[:, ESC]))[:, np.newaxis]
    mixed[:, ESC] = escaped
    return np.asarray(mixed)


def lengths(share: Floats) -> list[int]:
    """Return the lengths of the best prefix code with at most LENGTH_MAX bits a symbol."""
    coins = sorted((float(weight), (symbol,)) for symbol, weight in enumerate(share))
    packages: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(LENGTH_MAX):
        merged = sorted(coins + packages)
        packages = [
            (one[0] + other[0], one[1] + other[1]) for one, other in zip(merged[::2], merged[1::2], strict=False)
        ]
    taken = [symbol for _, symbols in packages[: CONTEXTS - 1] for symbol in symbols]
    return [taken.count(symbol) for symbol in range(CONTEXTS)]


def table() -> bytes:
    """Return the table of the counts."""
    counts = np.loadtxt(COUNTS, delimiter=",")
    return bytes(length for row in shares(counts) for length in lengths(row))


if __name__ == "__main__":
    TABLE.write_bytes(table())
