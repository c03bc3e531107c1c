"""The prefix extending method: codes of six bits a character, three groups, Bonferroni's line at each level.

Wang, Li, Jha 2019, "Locally differentially private heavy hitter identification", with the sketch that ours has in place
of theirs, so that only codes, groups and lines differ. A group's reports tell the first 16, 32 or 48 bits. All
continuations of what passed the line before are tested, and what passes the last level's line is found: 8 characters,
so a longer word counts as found where these are right.
"""

from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

from dither_aggregator.analysis.words import Numbers, Sketch
from tests.benchmarks.words.vocabulary import vocabulary

LEVELS = (16, 32, 48)
WEIGHTS = (1, 1, 1)
KEPT_MAX = 200
FALSE = 0.05
ALPHABET = "\0abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
"""The first character fills up what is shorter than the code."""
CHARACTERS = 8


def code(word: str) -> int:
    """Return the 48 bits of a word's first 8 characters."""
    bits = 0
    for character in word[:CHARACTERS].ljust(CHARACTERS, ALPHABET[0]):
        bits = bits << 6 | ALPHABET.index(character)
    return bits


def numbers_of(levels: tuple[int, ...], group: int) -> Numbers:
    """Return what a group's reports hash of every word."""
    return _codes() >> np.uint64(LEVELS[-1] - levels[group])


@cache
def _codes() -> Numbers:
    return np.array([code(word) for word in vocabulary()], dtype=np.uint64)


def find(sketches: Sequence[Sketch]) -> list[str]:
    """Return the words that pass each line, the most frequent first."""
    kept = np.zeros(1, dtype=np.uint64)
    length = 0
    for level, sketch in zip(LEVELS, sketches, strict=True):
        step = level - length
        line = -NormalDist().inv_cdf(FALSE / max(len(kept) << step, 1)) * sketch.std_error
        more = np.arange(1 << step, dtype=np.uint64)
        passing = [
            numbers[sketch.shares_of(numbers) > line] for each in kept for numbers in [(each << np.uint64(step)) + more]
        ]
        candidates = np.concatenate([np.zeros(0, dtype=np.uint64), *passing])
        shares = sketch.apart(candidates).shares
        kept = candidates[np.argsort(-shares)][: (shares > line).sum()][:KEPT_MAX]
        length = level
    return [word for word in map(_read, kept.tolist()) if word is not None]


def _read(bits: int) -> str | None:
    """Return the word of a code; None where no word has it, which any decoder sees."""
    places = [bits >> 6 * place & 63 for place in range(CHARACTERS - 1, -1, -1)]
    word = "".join(ALPHABET[place] for place in places).rstrip(ALPHABET[0])
    return None if ALPHABET[0] in word else word
