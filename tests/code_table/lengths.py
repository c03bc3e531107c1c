"""The best code lengths for counts: a prefix code of at most LENGTH_MAX bits a symbol."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from dither_shared.words.alphabets import LENGTH_MAX

USUAL = 20.0
"""The usual shares, over all contexts, count as so many characters of each."""
ESCAPED = 0.01
"""The least share of ESC."""

Floats = npt.NDArray[np.float64]


def shares(counts: Floats, *, escaped: int, again: float, anything: float) -> Floats:
    """Return the shares for which the lengths are best, each row of which sums to 1.

    A count is mixed with what follows any context. ESC, the last symbol, has at least a share of its own, and at least
    `again` in the context `escaped`. `anything` of each context is spread evenly, so that nothing is impossible.
    """
    usual = counts.sum(axis=0) / counts.sum()
    mixed = counts + USUAL * usual
    mixed /= mixed.sum(axis=1, keepdims=True)
    mixed = (1 - anything) * mixed + anything / counts.shape[1]
    least = np.full(len(counts), ESCAPED)
    least[escaped] = again
    raised = np.maximum(mixed[:, -1], least)
    mixed *= ((1 - raised) / (1 - mixed[:, -1]))[:, np.newaxis]
    mixed[:, -1] = raised
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
    taken = Counter(symbol for _, symbols in packages[: len(share) - 1] for symbol in symbols)
    return [taken[symbol] for symbol in range(len(share))]
