"""The verdict: which proposed texts people have, by the verification group alone.

Its reports tell whole texts and took no part in the search. Intervals hold together over all m proposed texts, each
with 1 - alpha / m, alpha being .05 unless a reader chooses another one (Bonferroni, over m and nothing else). A text is
a word if its interval lies above zero. So whatever the search proposed, a run names any word that nobody has with
probability alpha / 2 at most. An estimate is unbiased before it is selected; of words just above the line those are
named whose noise was kind, and their intervals say so.

A prefix at the last level that goes on has no whole text to verify. It is shown if it stands out among all prefixes of
that length that were looked at, which the levels before chose without it. The mass is that of all texts that start so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.words.search import Proposed
from dither_aggregator.analysis.words.sketches import Sketch, Sketched
from dither_shared.hashing import number_of


@dataclass(frozen=True)
class Wanted:
    """How often, and for how many reports of one device, intervals are to hold."""

    confidence: float = CONFIDENCE
    """How often all of them together. So often, too, no word is named that nobody has; and, apart, no prefix."""
    repeats: int = 1
    """How many of the reports one device may have sent."""
    together: int = 1
    """Intervals and verdicts hold for at least so many together."""


DEFAULT = Wanted()


@dataclass(frozen=True)
class Word:
    """A text or a prefix, its share of all devices' answers, and its interval."""

    typed: bytes
    estimate: float
    std_error: float
    lower: float
    upper: float
    z: float
    """How far it stands out: as rarely as noise does, a normal law passes so many standard errors."""
    stands_out: bool


@dataclass(frozen=True)
class FoundWords:
    """The texts that a tally tells although nobody listed them."""

    proposed: tuple[Word, ...]
    """All texts that the search proposed, the largest first: whatever is a word `stands_out`."""
    longer: tuple[Word, ...]
    """Prefixes that stand out and go on."""


def find_words(
    proposed: Proposed,
    last: Sketch,
    verification: Sketch,
    *,
    known: Sequence[bytes] = (),
    is_reportable: Callable[[bytes], bool] = lambda typed: True,
    may_begin: Callable[[bytes], bool] = lambda typed: True,
    wanted: Wanted = DEFAULT,
) -> FoundWords:
    """Decide on what a search proposed: on whole texts by the verification group, on longer ones by the last level.

    `known` is judged with what is proposed, whether or not it was found. `is_said` tells whether a device may say a
    text, and `may_begin` whether one that begins so. Others cost no test and are not returned; devices that lie say
    them all the same, so they are told apart from the rest.
    """
    texts = tuple(dict.fromkeys((*known, *filter(is_reportable, proposed.texts))))
    unsaid = tuple(typed for typed in proposed.texts if not is_reportable(typed))
    longer = (word for word in _longer(proposed, last, wanted) if may_begin(word.typed))
    return FoundWords(verified(texts, verification, wanted, unsaid), tuple(longer))


def verified(
    texts: Sequence[bytes], verification: Sketch, wanted: Wanted = DEFAULT, unsaid: Sequence[bytes] = ()
) -> tuple[Word, ...]:
    """Return proposed texts with the verdict on each, without the rows that they share with what is `unsaid`."""
    if not texts:
        return ()
    numbers = np.array([number_of(typed) for typed in (*texts, *unsaid)], dtype=np.uint64)
    apart = verification.apart(numbers)
    estimates = Sketched(apart.shares[: len(texts)], apart.n[: len(texts)], apart.mechanism)
    return _judged(texts, estimates, len(texts), wanted)


def _longer(proposed: Proposed, last: Sketch, wanted: Wanted) -> tuple[Word, ...]:
    """Return the prefixes that stand out of all that were looked at."""
    if not proposed.longer:
        return ()
    shares = np.array([prefix.shares[-1] for prefix in proposed.longer])
    estimates = Sketched(shares, np.array([prefix.n for prefix in proposed.longer]), last.mechanism)
    judged = _judged([prefix.start.typed for prefix in proposed.longer], estimates, proposed.looked_at, wanted)
    return tuple(word for word in judged if word.stands_out)


def _judged(texts: Sequence[bytes], estimates: Sketched, together: int, wanted: Wanted) -> tuple[Word, ...]:
    """Return texts with tests and intervals that hold for so many together, the largest first.

    Those that share every row with a heavier one are left out: nothing is known of them.
    """
    together = max(together, wanted.together)
    alpha = (1 - wanted.confidence) / together
    counted = np.flatnonzero(estimates.n)
    estimates = Sketched(estimates.shares[counted], estimates.n[counted], estimates.mechanism)
    lower, upper = estimates.ends(alpha, wanted.repeats)
    words = [
        Word(texts[place], share, error, low, high, z, low > 0)
        for place, share, error, low, high, z in zip(
            counted.tolist(),
            estimates.shares.tolist(),
            estimates.std_errors(wanted.repeats).tolist(),
            lower.tolist(),
            upper.tolist(),
            estimates.scores.tolist(),
            strict=True,
        )
    ]
    return tuple(sorted(words, key=lambda word: -word.estimate))
