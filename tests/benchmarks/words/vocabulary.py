"""The truth: 100,000 words of this Python's own library, the most frequent first, and how many devices have each.

The names and words of its source files, tests included: real, skewed, and of all lengths. No file of it is kept here;
another Python's words differ in the tail.
"""

import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

WORDS = 100_000


@cache
def vocabulary() -> tuple[str, ...]:
    """Return the words, the most frequent first."""
    library = Path(sysconfig.get_path("stdlib"))
    words: Counter[str] = Counter()
    for source in library.rglob("*.py"):
        if "site-packages" not in source.parts:
            words.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", source.read_text("utf-8", "replace")))
    ranked = sorted(words, key=lambda word: (-words[word], word))
    if len(ranked) < WORDS:
        raise ValueError(f"there must be {WORDS} words, got {len(ranked)}")
    return tuple(ranked[:WORDS])


def devices(n: int, zipf: float, rng: np.random.Generator) -> Counts:
    """Return how many of n devices have each word, with shares of 1 / rank^zipf."""
    shares = 1 / np.arange(1, WORDS + 1) ** zipf
    return np.asarray(rng.multinomial(n, shares / shares.sum()), dtype=np.int64)
