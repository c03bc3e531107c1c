"""The search: prefixes that many have, extended level by level to whole texts.

Each level's reports tell hashed prefixes of one length. Prefixes kept from the level before are continued in every way.
The code (`dither_shared.words.prefixes`) reads the continuations that stand out of the noise; those that no text starts
with are dropped, and the best are kept. The levels only propose: a text that they find for nothing costs a test later,
and is no false word. verdict.py decides, with reports that took no part in this.

A score says how well all levels so far agree on a text. With f the estimate of the last level, and g of one before, of
which the text can be no more than a part, that level speaks for min(f, g) of it. The score is the mean of these over
all reports so far, in its standard errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from math import sqrt

import numpy as np

from dither_aggregator.analysis.words.sketches import Numbers, Sketch
from dither_shared.words.alphabets import Alphabet
from dither_shared.words.code import prefix_of
from dither_shared.words.groups import KEPT_MAX, STANDS_OUT, folded
from dither_shared.words.prefixes import NOTHING, Start, read_prefix

Progress = Callable[[float], None]
"""Is told which part of the work is done, from 0 to 1."""

LOOKED_AT_MAX = 50_000
"""Continuations of a level that are read: noise makes a third as many, more are made up."""
BLOCK = 1 << 19
"""Continuations looked up at once: it bounds the memory, at about 40 bytes each."""


@dataclass(frozen=True)
class Level:
    """Prefixes of one length, in bits, and what reports tell of them."""

    length: int
    sketch: Sketch


@dataclass(frozen=True)
class Prefix:
    """A prefix that was kept."""

    bits: int
    start: Start
    shares: tuple[float, ...]
    """Its estimate at each level so far, of as many bits as that tells."""
    n: int = 0
    """The reports that the last of these is of."""
    score: float = 0.0


@dataclass(frozen=True)
class Proposed:
    """The proposals of a search: it is not yet told whether anybody has any of them."""

    texts: tuple[bytes, ...]
    """Whole texts."""
    longer: tuple[Prefix, ...]
    """Prefixes of the last level's length that go on."""
    looked_at: int
    """How many prefixes of that length were looked at."""


def search(
    levels: Sequence[Level], progress: Progress = lambda done: None, alphabet: Alphabet | None = None
) -> Proposed:
    """Look for texts, through all levels, by the code of an alphabet, or of letters.py."""
    kept = [Prefix(0, NOTHING, ())]
    texts: list[bytes] = []
    length = looked_at = 0
    for place, level in enumerate(levels):
        looked_at = len(kept) << level.length - length
        part = partial(_part, progress, place, len(levels))
        found = _extended(kept, length, levels[: place + 1], texts, part, alphabet)
        texts += [prefix.start.typed for prefix in found if prefix.start.ended]
        kept = [prefix for prefix in found if not prefix.start.ended]
        length = level.length
    return Proposed(tuple(texts), tuple(kept), looked_at)


def _part(progress: Progress, place: int, of: int, done: float) -> None:
    progress((place + done) / of)


def _extended(
    prefixes: Sequence[Prefix],
    length: int,
    levels: Sequence[Level],
    texts: Sequence[bytes],
    progress: Progress,
    alphabet: Alphabet | None,
) -> list[Prefix]:
    """Return the best continuations of prefixes to the last level's length, best first.

    Whole texts that were found before are no longer looked for, but a heavy one may share a continuation's bucket.
    """
    level, sketch = levels[-1], levels[-1].sketch
    possible = [
        (parent, bits, start)
        for parent, bits in _standing_out(prefixes, level.length - length, sketch, progress)
        for start in [read_prefix(bits, level.length - length, parent.start, alphabet)]
        if start.possible
    ]
    known = (prefix_of(typed, level.length, alphabet) for typed in texts)
    estimates = sketch.apart(_numbers([*(bits for _, bits, _ in possible), *known]))
    weights = [level.sketch.std_error**-2 for level in levels]
    found = [
        Prefix(bits, start, shares, n, _score(weights, shares))
        for (parent, bits, start), share, n, score in zip(
            possible, estimates.shares.tolist(), estimates.n.tolist(), estimates.scores.tolist(), strict=False
        )
        if score > STANDS_OUT
        for shares in [(*parent.shares, share)]
    ]
    return sorted(found, key=lambda prefix: -prefix.score)[:KEPT_MAX]


def _standing_out(
    prefixes: Sequence[Prefix], step: int, sketch: Sketch, progress: Progress
) -> list[tuple[Prefix, int]]:
    """Return the continuations by `step` bits that stand out of the noise, each with its prefix: LOOKED_AT_MAX."""
    least = sketch.share_at(STANDS_OUT)
    out: list[tuple[float, int, int]] = []
    for place, prefix in enumerate(prefixes):
        first = prefix.bits << step
        for start in range(0, 1 << step, BLOCK):
            # Continuations of one prefix are numbered in a row, also where they are folded.
            numbers: Numbers = np.arange(start, min(start + BLOCK, 1 << step), dtype=np.uint64)
            numbers += np.uint64(folded(first))
            shares = sketch.shares_of(numbers)
            above = np.flatnonzero(shares > least)
            out += zip(shares[above].tolist(), [place] * len(above), (above + start).tolist(), strict=True)
        out = nlargest(LOOKED_AT_MAX, out) if len(out) > 2 * LOOKED_AT_MAX else out
        progress((place + 1) / len(prefixes))
    return [(prefixes[place], prefixes[place].bits << step | more) for _, place, more in nlargest(LOOKED_AT_MAX, out)]


def _score(weights: Sequence[float], shares: Sequence[float]) -> float:
    """Return the mean of what levels of these weights say of a text, in standard errors."""
    weighted = sum(weight * min(share, shares[-1]) for weight, share in zip(weights, shares, strict=True))
    return weighted / sqrt(sum(weights))


def _numbers(prefixes: Sequence[int]) -> Numbers:
    return np.array([folded(bits) for bits in prefixes], dtype=np.uint64)
