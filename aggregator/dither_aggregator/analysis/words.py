"""The reading of words: those that the tallies name, and the starts of longer ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, partial
from heapq import nlargest
from math import inf, sqrt
from threading import Condition
from typing import Annotated

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached
from scipy.special import bdtrc, bdtrik, ndtr, ndtri

from dither_aggregator.analysis.functional import answers_part, share_variance
from dither_aggregator.analysis.inference import CONFIDENCE, Floats
from dither_aggregator.analysis.pure import FAR, population_ends
from dither_aggregator.analysis.reading import NO_LINES, BadView, Estimand, Lines, Reading, View, reports_max
from dither_aggregator.analysis.reading_cache import part_once, tell_progress
from dither_aggregator.analysis.released import SURE_OF_N, Released, ReleasedTally, read_supports
from dither_aggregator.analysis.rows import BINS, Row, Significance, bin_estimates, rank, says, simes
from dither_aggregator.counting import Counts, noisy_support, support_counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Coded
from dither_shared.domains.coded_words import UNTYPED
from dither_shared.hashing import WORD_BITS, number_of
from dither_shared.mechanisms import Part, PureMechanism
from dither_shared.plan import Plan
from dither_shared.releases import NAMES_MAX
from dither_shared.words.alphabets import Alphabet, codes_in
from dither_shared.words.code import KEPT_MAX, PROPOSED, ROWS, STANDS_OUT, folded, prefix_of
from dither_shared.words.prefixes import NOTHING, Start, read_prefix

# Sketches: how many have a text or a prefix, asked of tallies that only know its bucket in each of a few rows.
#
# Each row is a group of reports with a hash of its own into B buckets. With x(b) the estimated share of a bucket, the
# share of a candidate c is estimated from all rows r, weighted by their reports n_r:
#
#     f^(c) = sum over r of n_r (B x_r(h_r(c)) - 1) / (B - 1)  /  sum over r of n_r
#
# since another text is in c's bucket with probability 1/B. Its variance is that of one row with all the reports, plus
# F2 / (rows B) for collisions, F2 being the sum of the other shares' squares: nothing, but where a heavy text is in the
# bucket. So the heaviest candidates are taken one after the other, and what shares a bucket with one of them is
# estimated from its other rows. Thousands of a level's candidates stand out by noise alone. Were each of these taken,
# most texts would lose rows, and most often those whose noise is high: beyond the first few a candidate must be heavier
# than noise ever is.


Numbers = npt.NDArray[np.uint64]
"""Numbers to hash: of prefixes, or of whole texts."""

HEAVY = 30
"""So many candidates, the heaviest, are taken for heavy if they are SURE."""
SURE = 3.0
"""Standard errors below which none is."""
BEYOND_NOISE = 6.0
"""Standard errors that noise hardly passes in all continuations of a level: further candidates are heavy above them."""
HEAVY_MAX = 1_000
"""So many candidates at most are taken for heavy."""
CHANCE_MIN, CHANCE_MAX = 1e-300, 1 - 1e-6
"""Ends of a chance whose score is told: a count of none is reached for certain, and its score would have no end."""


@dataclass(frozen=True)
class Sketched:
    """The shares of candidates, and how many reports each is of."""

    shares: Floats
    n: Counts
    mechanism: PureMechanism
    noise: Floats | float = 0.0
    """The variance that the noise of a release adds to each share."""

    @property
    def rates(self) -> Floats:
        """The part of the reports that supports each candidate's buckets."""
        p, q, buckets = float(self.mechanism.p), float(self.mechanism.q), self.mechanism.d
        return np.asarray(q + (p - q) * (self.shares * (buckets - 1) + 1) / buckets)

    @property
    def support(self) -> Counts:
        """How many reports that is: binomial, and whole."""
        return np.rint(self.rates * self.n).astype(np.int64)

    @property
    def scores(self) -> Floats:
        """How many standard errors of a normal law are passed as rarely where nobody has the candidate."""
        if np.any(self.noise):  # it is the sum of thousands of numbers
            nobody = share_variance(self.mechanism, np.zeros(1), np.maximum(self.n, 1), "reports")
            return np.asarray(self.shares / np.sqrt(nobody + self.noise))
        chances = bdtrc(self.support - 1.0, self.n, null_rate(self.mechanism))
        return np.asarray(-ndtri(np.clip(chances, CHANCE_MIN, CHANCE_MAX)))

    def std_errors(self, repeats: int = 1) -> Floats:
        """Return those of the shares in the population; `repeats` is how many reports one device may have sent."""
        buckets = self.mechanism.d
        held = np.clip((self.shares * (buckets - 1) + 1) / buckets, 1 / buckets, 1.0)
        return np.sqrt(share_variance(self.mechanism, held, self.n, "population", repeats))

    def ends(self, alpha: float, repeats: int = 1) -> tuple[Floats, Floats]:
        """Return the ends of each candidate's interval of confidence 1 - alpha, exact where counts are few.

        `repeats` is how many of the reports one device may have sent.
        """
        lower, upper = population_ends(self.mechanism, self.support, self.n, alpha, repeats)
        return lower - 1 / self.mechanism.d, upper - 1 / self.mechanism.d


def null_rate(mechanism: PureMechanism) -> float:
    """Return the part of the reports that supports the bucket of a text which nobody has."""
    return float(mechanism.q + (mechanism.p - mechanism.q) / mechanism.d)


@dataclass(frozen=True)
class Sketch:
    """The rows of one group of reports."""

    shares: npt.NDArray[np.float32]
    """float32[rows, buckets], without the part that is expected of others: small, so that lookups stay in caches."""
    n: Counts
    """Reports, int64[rows]."""
    multipliers: Numbers
    """uint64[rows]."""
    mechanism: PureMechanism
    noise: float = 0.0
    """The variance that noise on each count adds to an estimate from one row, times the square of its reports."""

    @classmethod
    def of_tally(
        cls, mechanism: PureMechanism, table: Counts, multipliers: Sequence[int], noise: float = 0.0
    ) -> "Sketch":
        """Decode the rows of a tally, int64[rows, 1 + K], each n and its counts. Raises BadTally.

        With noise, counts may be negative, and n is their sum, or 0 where the row is to be left out.
        """
        p, q, buckets = float(mechanism.p), float(mechanism.q), mechanism.d
        shares = np.zeros((len(table), buckets), dtype=np.float32)
        for row, n in enumerate(table[:, 0]):
            if n:
                # (K (S / n - q) / (p - q) - 1) / (K - 1), in one array: to make more of this size takes as long.
                points = table[row, 1:]
                rates = (noisy_support(mechanism, points) if noise else support_counts(mechanism, points, int(n))) / n
                rates -= q
                rates *= buckets
                rates /= p - q
                rates -= 1
                rates /= buckets - 1
                shares[row] = rates
        return cls(shares, table[:, 0], np.array(multipliers, dtype=np.uint64), mechanism, noise)

    @cached_property
    def std_error(self) -> float:
        """The standard error of an estimate from all rows, for a text that nobody has."""
        n = max(int(self.n.sum()), 1)
        of_noise = self.noise * np.count_nonzero(self.n) / n**2
        return float(np.sqrt(share_variance(self.mechanism, np.zeros(1), n, "reports") + of_noise)[0])

    def share_at(self, z: float) -> float:
        """Return the share that an estimate from all rows passes as rarely as a normal law passes z standard errors.

        The estimate is that of a text that nobody has, by the binomial law of its count. Infinite without reports.
        """
        n = int(self.n.sum())
        if not n:
            return inf
        if self.noise:
            return z * self.std_error
        p, q, null = float(self.mechanism.p), float(self.mechanism.q), null_rate(self.mechanism)
        return (float(np.ceil(bdtrik(ndtr(z), n, null))) / n - null) / (p - q)

    def buckets(self, numbers: Numbers, row: int) -> Counts:
        """Return the bucket of each number in a row. The number of buckets is a power of two."""
        hashed = numbers * self.multipliers[row]
        hashed >>= np.uint64(WORD_BITS - (self.mechanism.d.bit_length() - 1))
        return np.asarray(hashed.view(np.int64))

    def shares_of(self, numbers: Numbers) -> npt.NDArray[np.float32]:
        """Return the estimates of many candidates from all rows, whatever else is in their buckets."""
        total = np.zeros(len(numbers), dtype=np.float32)
        for row, weight in enumerate((self.n / max(int(self.n.sum()), 1)).tolist()):
            total += np.float32(weight) * self.shares[row].take(self.buckets(numbers, row))
        return total

    def apart(self, numbers: Numbers, *, unlisted: bool = False) -> Sketched:
        """Return the estimates of a few candidates, without the rows that they share with a heavier one.

        Nor has a heavier one those that it shares with a candidate which is heavier than noise ever is. A row that lies
        far above a candidate's others is left out, too, if texts may be heavy that are no candidates: `unlisted`.
        """
        places = np.array([self.buckets(numbers, row) for row in range(len(self.n))])
        own = np.take_along_axis(self.shares, places, axis=1).astype(np.float64)
        used = np.ones(places.shape, dtype=bool)
        shares = _means(own, self.n[:, np.newaxis] * used)
        beyond = self.share_at(BEYOND_NOISE)
        heavier: list[int] = []
        for taken in range(min(HEAVY_MAX, len(numbers))):
            heaviest = int(shares.argmax())
            if shares[heaviest] < (SURE * self.std_error if taken < HEAVY else beyond):
                break
            if shares[heaviest] >= beyond:
                left = used[:, heavier] & (places[:, heavier] != places[:, [heaviest]])
                told = left[self.n > 0].any(axis=0)  # one that shares every row keeps them
                used[:, heavier] = np.where(told, left, used[:, heavier])
            heavier.append(heaviest)
            meets = (places == places[:, [heaviest]]) & used[:, [heaviest]]
            meets[:, heaviest] = False
            used &= ~meets
            met = meets.any(axis=0)
            shares[met] = _means(own[:, met], self.n[:, np.newaxis] * used[:, met])
            shares[heaviest] = -np.inf
        if unlisted:
            used &= ~self._far(own, self.n[:, np.newaxis] * used)
        weights = self.n[:, np.newaxis] * used
        n, rows = weights.sum(axis=0), np.count_nonzero(weights, axis=0)
        return Sketched(_means(own, weights), n, self.mechanism, self.noise * rows / np.maximum(n, 1) ** 2)

    def _far(self, own: Floats, weights: Counts) -> npt.NDArray[np.bool_]:
        """Tell which row of each candidate lies FAR above the others with a weight, by the variance of all of them."""
        columns = np.arange(own.shape[1])
        largest = np.where(weights > 0, own, -np.inf).argmax(axis=0)
        mine, rest = weights[largest, columns], weights.copy()
        rest[largest, columns] = 0
        n, p, q, buckets = rest.sum(axis=0), float(self.mechanism.p), float(self.mechanism.q), self.mechanism.d
        scale = (p - q) * (buckets - 1) / buckets
        shares = _means(own, rest)
        rate = np.clip(null_rate(self.mechanism) + scale * shares, 0.0, 1.0)
        told = (mine > 0) & (n > 0)
        mine, n = np.where(told, mine, 1), np.where(told, n, 1)
        error = np.sqrt(np.maximum(rate * (1 - rate), 1 / n) * (1 / mine + 1 / n))
        far = np.zeros(own.shape, dtype=bool)
        far[largest, columns] = told & (scale * (own[largest, columns] - shares) > FAR * error)
        return far


def _means(own: Floats, weights: Counts) -> Floats:
    """Return each column's mean; zero where nothing has a weight."""
    n = weights.sum(axis=0)
    return np.asarray(np.divide((own * weights).sum(axis=0), n, out=np.zeros(len(n)), where=n > 0))


# The search: prefixes that many have, extended level by level to whole texts.
#
# Each level's reports tell hashed prefixes of one length. Prefixes kept from the level before are continued in every
# way. The code (`dither_shared.words.prefixes`) reads the continuations that stand out of the noise; those that no text
# starts with are dropped, and the best are kept. The levels only propose: a text that they find for nothing costs a
# test later, and is no false word. The verdict is made with reports that took no part in this.
#
# A text ends at the first level whose prefixes hold its whole code. It is not looked for any more, but each level
# behind that one tells it whole: the rest of its prefix is a checksum of it. Their estimates are kept for the verdict.
#
# A score says how well all levels so far agree on a text. With f the estimate of the last level, and g of one before,
# of which the text can be no more than a part, that level speaks for min(f, g) of it. The score is the mean of these
# over all reports so far, in its standard errors.


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
class WholeText:
    """A whole text, and what the levels behind the one in which its code ended tell of it."""

    typed: bytes
    share: float = 0.0
    """Its estimate by these levels."""
    n: int = 0
    """Their reports, without the rows in which a heavier prefix has its bucket."""

    def told(self, share: float, n: int) -> "WholeText":
        """Return the same text with what n more reports tell of it."""
        total = self.n + n
        return WholeText(self.typed, (self.share * self.n + share * n) / total, total) if n else self


@dataclass(frozen=True)
class Proposed:
    """The proposals of a search: it is not yet told whether anybody has any of them."""

    texts: tuple[WholeText, ...]
    """Whole texts, first those that were to be followed whether or not the search finds them."""
    longer: tuple[Prefix, ...]
    """Prefixes of the last level's length that go on."""
    looked_at: int
    """How many prefixes of that length were looked at."""


def search(
    levels: Sequence[Level],
    progress: Progress = lambda done: None,
    alphabet: Alphabet | None = None,
    known: Sequence[bytes] = (),
) -> Proposed:
    """Look for texts, through all levels, by the code of an alphabet, or of English.

    Texts that are `known` are proposed whether or not they are found.
    """
    kept = [Prefix(0, NOTHING, ())]
    texts = {typed: WholeText(typed) for typed in known}
    length = looked_at = 0
    for place, level in enumerate(levels):
        looked_at = len(kept) << level.length - length
        part = partial(_part, progress, place, len(levels))
        ended = [text for text in texts.values() if code_length(text.typed, alphabet) <= length]
        found, told = _extended(kept, length, levels[: place + 1], ended, part, alphabet)
        texts |= {text.typed: text for text in told}
        for prefix in found:
            if prefix.start.ended:
                texts.setdefault(prefix.start.typed, WholeText(prefix.start.typed))
        kept = [prefix for prefix in found if not prefix.start.ended]
        length = level.length
    return Proposed(tuple(texts.values()), tuple(kept), looked_at)


def code_length(typed: bytes, alphabet: Alphabet | None = None) -> int:
    """Return how many bits the code of a text has, with its end."""
    return sum(bits for _, bits in (alphabet.codes_in(typed) if alphabet else codes_in(typed)))


def _part(progress: Progress, place: int, of: int, done: float) -> None:
    progress((place + done) / of)


def _extended(
    prefixes: Sequence[Prefix],
    length: int,
    levels: Sequence[Level],
    texts: Sequence[WholeText],
    progress: Progress,
    alphabet: Alphabet | None,
) -> tuple[list[Prefix], list[WholeText]]:
    """Return the best continuations of prefixes to the last level's length, best first, and what it tells of `texts`.

    These have ended before and are no longer looked for, but a heavy one may share a continuation's bucket. So may a
    heavy continuation theirs: then they are told without that row.
    """
    level, sketch = levels[-1], levels[-1].sketch
    possible = [
        (parent, bits, start)
        for parent, bits in _standing_out(prefixes, level.length - length, sketch, progress)
        for start in [read_prefix(bits, level.length - length, parent.start, alphabet)]
        if start.possible
    ]
    ended = (prefix_of(text.typed, level.length, alphabet) for text in texts)
    estimates = sketch.apart(_numbers([*(bits for _, bits, _ in possible), *ended]))
    shares_and_n = list(zip(estimates.shares.tolist(), estimates.n.tolist(), strict=True))
    weights = [level.sketch.std_error**-2 for level in levels]
    found = [
        Prefix(bits, start, shares, n, _score(weights, shares))
        for (parent, bits, start), (share, n), score in zip(
            possible, shares_and_n, estimates.scores.tolist(), strict=False
        )
        if score > STANDS_OUT
        for shares in [(*parent.shares, share)]
    ]
    told = [text.told(*each) for text, each in zip(texts, shares_and_n[len(possible) :], strict=True)]
    return sorted(found, key=lambda prefix: -prefix.score)[:KEPT_MAX], told


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


# The verdict: which proposed texts people have, by the groups that told the whole text and took no part in its search.
#
# These are the verification group, and the levels behind the one in which the text ended: what was done up to there
# chose it, and what is behind extends other prefixes. All groups have the same mechanism and as many buckets, so
# supports and numbers of reports add up. A text that ends early is judged by up to 70 of 100 reports, a long one by the
# 30 of the verification group. The level in which a text ended selected it, so it has no say: it would name most of
# what noise proposes. A level has heavy prefixes that are no texts, so the search leaves out rows in which one shares
# the text's bucket, as the verification group does with heavier texts.
#
# Intervals hold together over all m proposed texts, each with 1 - alpha / m, alpha being .05 unless a reader chooses
# another one (Bonferroni, over m and nothing else). A text is a word if its interval lies above zero. So whatever the
# search proposed, a run names any word that nobody has with probability alpha / 2 at most. An estimate is unbiased
# before it is selected; of words just above the line those are named whose noise was kind, and their intervals say so.
#
# A text that somebody looks up needs no search, which takes seconds: the verification group alone tells it, and so it
# does in comparisons and releases.
#
# A prefix at the last level that goes on has no whole text to verify. It is shown if it stands out among all prefixes
# of that length that were looked at, which the levels before chose without it. The mass is that of all texts that start
# so.


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
    n: int
    """The reports by which it was judged."""


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
    is_reportable: Callable[[bytes], bool] = lambda typed: True,
    may_begin: Callable[[bytes], bool] = lambda typed: True,
    wanted: Wanted = DEFAULT,
) -> FoundWords:
    """Decide on what a search proposed, on longer texts by its last level.

    `is_reportable` tells whether a device may say a text, and `may_begin` whether one that begins so. Others cost no
    test and are not returned; devices that lie say them all the same, so they are told apart from the rest.
    """
    texts = tuple(text for text in proposed.texts if is_reportable(text.typed))
    unsaid = tuple(text.typed for text in proposed.texts if not is_reportable(text.typed))
    longer = (word for word in _longer(proposed, last, wanted) if may_begin(word.typed))
    return FoundWords(verified(texts, verification, wanted, unsaid), tuple(longer))


def verified(
    texts: Sequence[WholeText],
    verification: Sketch,
    wanted: Wanted = DEFAULT,
    unsaid: Sequence[bytes] = (),
    *,
    unlisted: bool = True,
) -> tuple[Word, ...]:
    """Return texts with the verdict on each, by the verification group and what levels tell of them.

    Rows of the verification group that they share with what is `unsaid` are left out, and with a heavy text that no
    search ends, being too long: its prefixes are known, and not its bucket. Not so where none is `unlisted`.
    """
    if not texts:
        return ()
    numbers = np.array([number_of(typed) for typed in (*(text.typed for text in texts), *unsaid)], dtype=np.uint64)
    apart = verification.apart(numbers, unlisted=unlisted)
    own = zip(texts, apart.shares.tolist(), apart.n.tolist(), strict=False)
    told = [text.told(share, n) for text, share, n in own]
    estimates = Sketched(
        np.array([text.share for text in told]), np.array([text.n for text in told]), verification.mechanism
    )
    return _judged([text.typed for text in told], estimates, len(told), wanted)


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

    A text that shares every row with heavier ones is left out: nothing is known of it.
    """
    together = max(together, wanted.together)
    alpha = (1 - wanted.confidence) / together
    counted = np.flatnonzero(estimates.n)
    estimates = Sketched(estimates.shares[counted], estimates.n[counted], estimates.mechanism)
    lower, upper = estimates.ends(alpha, wanted.repeats)
    words = [
        Word(texts[place], share, error, low, high, z, low > 0, n)
        for place, share, error, low, high, z, n in zip(
            counted.tolist(),
            estimates.shares.tolist(),
            estimates.std_errors(wanted.repeats).tolist(),
            lower.tolist(),
            upper.tolist(),
            estimates.scores.tolist(),
            estimates.n.tolist(),
            strict=True,
        )
    ]
    return tuple(sorted(words, key=lambda word: -word.estimate))


_OF_OTHERS = frozenset({"error_of", "normalised", "candidates", "simultaneous"})
SEARCHES_MAX = 64
"""Tallies of which the proposals are kept, some hundred prefixes each."""
LONGER = "…"
"""Follows the start of longer texts."""


@dataclass(frozen=True)
class WordRow(Row):
    """One text that the search proposed, or one start of longer ones: shares of the n reports, not percent."""

    z: Annotated[float, says("for words: how far it stands out, in standard errors of a normal law")]
    whole: Annotated[bool, says("for words: whether it is a whole text, and not the start of longer ones")]
    named: bool | None
    """Whether somebody has it; None while more reports may come."""
    judged_by: Annotated[
        int,
        says(
            "for words: how many reports tell the row. A text that a search finds is told by the verification group "
            "and all levels behind the end of its code, one that is looked up by the verification group alone"
        ),
    ]


@dataclass(frozen=True)
class WordsReading(Reading):
    """The texts that were proposed, the largest first, and the starts of longer ones that stand out."""

    rows: Sequence[WordRow] = ()

    def answers_part(self, row: Row) -> float:
        """Return that of a share among the reports by which it was judged."""
        assert isinstance(row, WordRow)
        return float(answers_part(row.estimate, row.std_error, row.judged_by, self.repeats))

    def _find_significance(self) -> Significance | None:
        """Return the words that are named, by the verdict on each."""
        if not self.rows:
            return None
        untexts = Coded.of(self.stored.plan.domain).untexts
        unlisted = [row for row in self.rows if row.value in untexts]
        rows = [row for row in self.rows if row.value not in untexts]
        significant = [row for row in rows if row.named]
        rest = [row for row in rows if not row.named]
        scores = np.array([row.z for row in rest])
        edges = np.linspace(min(-4.0, *scores, 0.0), max(4.0, *scores, 0.0), BINS + 1)
        bins = bin_estimates(scores, edges, ndtr) if rest else ()
        chance = simes(np.minimum(2 * ndtr(-np.array([row.z for row in rows if row.whole])), 1.0))
        return Significance(
            rank(significant, rest), unlisted, rest, bins, p_value=chance, scores=True, noun="proposed text"
        )

    @property
    def nothing_to_show(self) -> str:
        """Say what would help."""
        return "No word stands out: more reports, or more days, may show some."

    def own_document(self) -> Lines:
        """Return nothing of its own: which share is found depends on the length of a word."""
        return NO_LINES


class WordsEstimand(Estimand[WordsReading]):
    """Texts that nobody listed."""

    name = "words"
    role = "found"
    ranks = True
    slow = True
    noun = "searching words"
    records = (WordsReading, WordRow)
    looks_up = True

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values and for candidates; intervals always hold together."""
        if asked & _OF_OTHERS or view.candidates is not None:
            raise BadView("error_of, normalised, candidates and simultaneous are for metrics with a list of values")

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the answers that are no text: words are not known before they are found."""
        return Coded.of(stored.plan.domain).untexts

    def knows(self, stored: StoredPlan, name: str) -> bool:
        """Tell whether it may be a whole text: any of these can be looked up in the verification group."""
        return not name.endswith(LONGER)

    def compared(self, before: WordsReading, after: WordsReading) -> tuple[str, ...] | None:
        """Return the whole texts that either window proposes: most that come or go are proposed by one alone."""
        texts = (row.value for reading in (after, before) for row in reading.rows if row.whole)
        return tuple(dict.fromkeys(texts)) or None

    def found_names(self, tally: ReleasedTally) -> tuple[str, ...]:
        """Return the texts that a search of the levels proposes, and behind them the answers that are no text.

        A row with too few reports beside the error of their number is not read.
        """
        plan, domain = tally.plan, Coded.of(tally.plan.domain)
        *levels, _ = tables(plan.cells, tally.counts)
        own = [
            Level(length, _noisy_sketch(domain, tally, *each))
            for length, each in zip(domain.levels, levels, strict=True)
        ]
        texts = (text.typed for text in search(own, alphabet=domain.groups.alphabet).texts)
        said = (typed for typed in texts if typed not in UNTYPED and domain.is_reportable(typed))
        shown = dict.fromkeys(map(domain.shown, said))
        return (*tuple(shown)[:NAMES_MAX], *domain.untexts)

    def released(self, tally: ReleasedTally) -> Released:
        """Return the texts that are named, and the answers that are none: intervals hold together over all looked up.

        A text is named if its interval lies above zero. One that is found by the same noise has none of its own.
        """
        told, untexts = read_supports(tally), Coded.of(tally.plan.domain).untexts
        named = (row for row in told.rows if row.lower > 0 or row.value in untexts)
        return replace(told, rows=[replace(row, own_lower=row.lower, own_upper=row.upper) for row in named])

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> WordsReading:
        """Search the tally for words; where the view names some, look up just these."""
        view = replace(view, error_of="population", simultaneous=True)
        if tally.n == 0:
            return WordsReading(stored, epoch, provisional, 0, view, snapshot, None, None)
        repeats = reports_max(stored, view.days)
        if view.values is not None:
            wanted = Wanted(view.confidence, repeats, PROPOSED * view.together)
            floor, rows = look_up(stored.plan, tally, view.values, wanted)
        else:
            floor, words = search_tally(stored.plan, tally, Wanted(view.own_confidence, repeats))
            rows = rows_of(stored.plan, words)
        shown = tuple(replace(row, named=None if provisional else row.named) for row in rows)
        return WordsReading(stored, epoch, provisional, tally.n, view, snapshot, floor, "wald", rows=shown)


def look_up(plan: Plan, tally: Tally, values: Sequence[str], wanted: Wanted) -> tuple[float, list[WordRow]]:
    """Return the same standard error, and rows of texts that somebody names: by the verification group alone.

    They are looked for in the form in which devices tell them apart. If several names are one text, the first has the
    row. Few texts are looked up, so hardly any is in the bucket of a heavy one. None loses a row for lying far above
    the others: whoever makes reports up moves the estimate of one text no farther than is stated, since it is linear.
    """
    domain = Coded.of(plan.domain)
    *_, last = tables(plan.cells, tally.counts)
    verification = _sketch(domain, *last)
    named: dict[bytes, str] = {}
    for value in values:
        if not value.endswith(LONGER):
            named.setdefault(domain.typed_of(value), value)
    words = verified([WholeText(typed) for typed in named], verification, wanted, unlisted=False)
    return verification.std_error, [replace(_row(domain, word, whole=True), value=named[word.typed]) for word in words]


def _sketch(domain: Coded, part: Part, table: Counts, first: int) -> Sketch:
    multipliers = [domain.groups.multiplier(first // ROWS, row) for row in range(ROWS)]
    return Sketch.of_tally(PureMechanism.of(part.mechanism), table, multipliers)


def _noisy_sketch(domain: Coded, tally: ReleasedTally, part: Part, table: Counts, first: int) -> Sketch:
    """Return the rows of a level of a release: the variance that its noise adds is that of a text that nobody has."""
    mechanism = PureMechanism.of(part.mechanism)
    table = table.copy()
    table[table[:, 0] < SURE_OF_N * tally.error_of(mechanism.shape), 0] = 0
    multipliers = [domain.groups.multiplier(first // ROWS, row) for row in range(ROWS)]
    return Sketch.of_tally(mechanism, table, multipliers, tally.noise.of_share(mechanism, 1))


def search_tally(
    plan: Plan, tally: Tally, wanted: Wanted, progress: Progress = lambda done: None
) -> tuple[float, FoundWords]:
    """Return the standard error of a text that nobody has, and the words of a tally. Takes seconds."""
    domain = Coded.of(plan.domain)
    *_, last, verification = (each for each in tables(plan.cells, tally.counts))
    proposed = _proposed(plan, tally, progress)  # before the sketches, which are large
    sketch = _sketch(domain, *verification)
    words = find_words(
        proposed,
        _sketch(domain, *last),
        sketch,
        is_reportable=domain.is_reportable,
        may_begin=domain.may_begin,
        wanted=wanted,
    )
    return sketch.std_error, words


def _tally_key(plan: Plan, tally: Tally, progress: Progress) -> tuple[str, str, str]:
    return plan.metric, plan.digest, tally.digest


@cached(LRUCache(SEARCHES_MAX), key=_tally_key, condition=Condition())
def _proposed(plan: Plan, tally: Tally, progress: Progress) -> Proposed:
    """Search the levels of a tally. Several views of it differ in what they make of this, and it takes seconds."""
    domain = Coded.of(plan.domain)

    def report_progress(done: float) -> None:
        level = min(int(done * len(domain.levels)) + 1, len(domain.levels))
        tell_progress(f"searching words, level {level} of {len(domain.levels)}")
        progress(done)

    def made() -> Proposed:
        report_progress(0.0)
        *levels, _ = tables(plan.cells, tally.counts)
        sketches = [_sketch(domain, *each) for each in levels]
        own = [Level(*each) for each in zip(domain.levels, sketches, strict=True)]
        return search(own, report_progress, domain.groups.alphabet, UNTYPED[: len(domain.untexts)])

    return part_once("search", (plan.metric, plan.digest, tally.digest), made, (Proposed, WholeText, Prefix, Start))


def rows_of(plan: Plan, words: FoundWords) -> list[WordRow]:
    """Return a row for each proposed text, the largest first, then for each start of longer ones that stands out."""
    domain = Coded.of(plan.domain)
    return [
        *(_row(domain, word, whole=True) for word in words.proposed),
        *(_row(domain, word, whole=False) for word in words.longer),
    ]


def _row(domain: Coded, word: Word, *, whole: bool) -> WordRow:
    return WordRow(
        domain.shown(word.typed) + ("" if whole else LONGER),
        word.estimate,
        word.std_error,
        word.lower,
        word.upper,
        word.z,
        whole,
        word.stands_out,
        word.n,
    )
