from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product
from math import ceil

import numpy as np
import pytest

from dither_aggregator.analysis import words as searching
from dither_aggregator.analysis.words import (
    FoundWords,
    Level,
    Proposed,
    Sketch,
    Wanted,
    WholeText,
    code_length,
    find_words,
    search,
    verified,
)
from dither_shared.hashing import WORD_BITS, number_of
from dither_shared.kinds.precision import FALSE_WORDS, POWER, judged_part, signal_needed
from dither_shared.mechanisms import PGR, choose
from dither_shared.words.alphabets import alphabet_of, load
from dither_shared.words.code import (
    BUCKETS,
    LAYOUTS,
    NONE_BYTE,
    OTHER_BYTE,
    ROWS,
    Groups,
    Layout,
    folded,
    prefix_of,
)
from tests.support.points import draw_points
from tests.support.soaking import scaled

SHORT = LAYOUTS["short"]
N = 1_000_000
NAMES = ("", "s", "er", "ing", "line", "red", "man", "land")


@cache
def mechanism(epsilon: str = "2", bits: int = 17) -> PGR:
    chosen = choose(1 << bits, Decimal(epsilon), name=PGR.name)
    assert isinstance(chosen, PGR)
    return chosen


def expected(groups: Groups, group: int, n: int, shares: Mapping[bytes, float]) -> Sketch:
    """Return the sketch of a group whose counts are what is expected."""
    table = np.zeros((ROWS, BUCKETS))
    for row in range(ROWS):
        for typed, share in shares.items():
            table[row, groups.bucket(typed, group * ROWS + row)] += share
    multipliers = np.array([groups.multiplier(group, row) for row in range(ROWS)], dtype=np.uint64)
    spared = (BUCKETS * table - 1) / (BUCKETS - 1)
    return Sketch(spared.astype(np.float32), np.full(ROWS, n // ROWS), multipliers, mechanism())


def found(groups: Groups, weights: Sequence[int], shares: Mapping[bytes, float], n: int = N) -> FoundWords:
    parts = [n * weight // sum(weights) for weight in weights]
    *levels, verification = (expected(groups, group, part, shares) for group, part in enumerate(parts))
    own = [Level(*each) for each in zip(groups.levels, levels, strict=True)]
    return find_words(search(own, known=(OTHER_BYTE, NONE_BYTE)), levels[-1], verification)


def named(words: FoundWords) -> list[bytes]:
    return [word.typed for word in words.proposed if word.stands_out]


def test_from_expected_counts_all_that_stand_out_are_named_and_nothing_else() -> None:
    texts = ["", "a", "to", "firefox", "naïve", "\0", "日本", "Linux", "Windows 11", "x" * 200, "Mac"]
    shares = {text.encode(): 0.4 / 2**place for place, text in enumerate(texts)}
    shares |= {OTHER_BYTE: 0.1, NONE_BYTE: 0.05}
    words = found(Groups("homepage", SHORT.levels), SHORT.weights, shares)
    # 0.6 % of them say 日本, in 66 bits; 0.3 % Linux, two standard errors of the verification group.
    assert set(named(words)) == {text.encode() for text in texts[:6]} | {OTHER_BYTE, NONE_BYTE}
    for word in words.proposed:
        assert word.estimate == pytest.approx(shares[word.typed], abs=2e-4)
        assert word.lower < shares[word.typed] < word.upper


def test_a_text_is_judged_by_the_verification_group_and_all_levels_behind_the_end_of_its_code() -> None:
    """No two of these texts share a bucket of any group. Nobody says "none", which is judged alike, being known."""
    texts = {b"to": 15, b"a": 9, b"x": 13, b"firefox": 34, "日本".encode(): 66, OTHER_BYTE: 21}
    assert {typed: code_length(typed) for typed in texts} == texts
    words = found(Groups("homepage", SHORT.levels), SHORT.weights, dict.fromkeys(texts, 0.15))
    judged = {word.typed: word.n / N for word in words.proposed}
    assert judged == pytest.approx(
        {typed: judged_part(SHORT, code_length(typed)) for typed in (*texts, NONE_BYTE) if typed in judged}, abs=1e-5
    )
    assert set(judged) == {*texts, NONE_BYTE} - {"日本".encode()}
    assert (judged[b"to"], judged[b"firefox"]) == pytest.approx((0.7, 0.42), abs=1e-5)


def test_in_an_alphabet_texts_end_where_its_own_code_does() -> None:
    digest, levels, weights = load("cyrillic")
    groups, typed = Groups("homepage", levels, alphabet_of(digest)), "да".encode()
    parts = [N * weight // sum(weights) for weight in weights]
    *own, verification = (expected(groups, group, part, {typed: 0.5}) for group, part in enumerate(parts))
    proposed = search([Level(*each) for each in zip(levels, own, strict=True)], alphabet=groups.alphabet)
    (word,) = find_words(proposed, own[-1], verification).proposed
    bits = code_length(typed, groups.alphabet)
    assert bits <= levels[0] < code_length(typed)
    assert word.n / N == pytest.approx(judged_part(Layout(levels, weights), bits), abs=1e-5)


def test_what_is_longer_than_the_last_level_shows_as_a_prefix_with_its_mass() -> None:
    shares = {b"https://example.org/one": 0.1, b"https://example.org/two": 0.2, b"short": 0.3, b"y": 0.4}
    words = found(Groups("homepage", SHORT.levels), SHORT.weights, shares)
    assert named(words) == [b"y", b"short"]
    (prefix,) = words.longer
    assert b"https://example.org/".startswith(prefix.typed)
    assert prefix.estimate == pytest.approx(0.3, abs=1e-3)
    long = LAYOUTS["long"]
    assert set(named(found(Groups("homepage", long.levels), long.weights, {b"example.org/one": 0.5, b"y": 0.5}))) == {
        b"example.org/one",
        b"y",
    }


def test_no_more_prefixes_are_kept_than_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "KEPT_MAX", 3)
    shares = {bytes([letter]): 0.1 for letter in b"abcdefgh"}
    assert len(search([Level(18, expected(Groups("homepage", (18,)), 0, N, shares))]).texts) == 3


def noise(rng: np.random.Generator, design: PGR, n: int = 10_000) -> Sketch:
    """Return the verification group of devices none of whom has what is proposed."""
    error = np.sqrt(float(design.noise_variance) * ROWS / n)
    table = rng.normal(scale=error, size=(ROWS, design.d)).astype(np.float32)
    factors = rng.integers(1 << 63, size=ROWS).astype(np.uint64) | np.uint64(1)
    return Sketch(table, np.full(ROWS, n // ROWS), factors, design)


def test_a_run_names_a_false_word_as_rarely_as_is_stated() -> None:
    """200 runs (long: 500) that propose 50 texts which nobody has: at most 0.025 + 5.5 sigma name one, a false alarm
    in 1e6.

    With texts proposed by the verification group itself (the planted bug) nearly all do.
    """
    rng = np.random.default_rng(4)
    runs, design = scaled(200, 500), mechanism(bits=10)
    honest = planted = 0
    for run in range(runs):
        verification = noise(rng, design)
        texts = [WholeText(f"{run} {place}".encode()) for place in range(50)]
        honest += any(word.stands_out for word in verified(texts, verification))
        if run < runs / 10:
            many = [WholeText(f"{run} {place}".encode()) for place in range(1_000)]
            best = [WholeText(word.typed) for word in verified(many, verification)[:50]]
            planted += any(word.stands_out for word in verified(best, verification))
    chance = FALSE_WORDS / 2  # the other half is that of intervals that lie too low
    most = runs * chance + 5.5 * np.sqrt(runs * chance * (1 - chance))
    assert honest <= most < 10 * planted


FEW_LEVELS = (18, 20, 22)
"""The second and third are soon searched. Hundreds of texts end in the first, as in a layout that devices use."""


def drawn(rng: np.random.Generator, shares: Mapping[bytes, float], n: int, bits: int) -> tuple[list[Level], Sketch]:
    """Draw the levels and the verification group of n devices by the exact law, with 2^bits buckets.

    Devices without one of these texts are in any bucket.
    """
    design = mechanism(bits=bits)
    sketches = []
    for group, weight in enumerate(SHORT.weights):
        factors = [int(each) | 1 for each in rng.integers(1 << 63, size=ROWS)]
        held = n * weight // sum(SHORT.weights) // ROWS
        rows = []
        for factor in factors:
            law = np.full(design.d, (1 - sum(shares.values())) / design.d)
            for typed, share in shares.items():
                law[bucket(typed, group, factor, bits)] += share
            rows.append(np.concatenate([[held], draw_points(design, rng.multinomial(held, law), rng)]))
        sketches.append(Sketch.of_tally(design, np.array(rows), factors))
    return [Level(*each) for each in zip(FEW_LEVELS, sketches, strict=False)], sketches[-1]


def bucket(typed: bytes, group: int, factor: int, bits: int) -> int:
    number = number_of(typed) if group == len(FEW_LEVELS) else folded(prefix_of(typed, FEW_LEVELS[group]))
    return (number * factor & (1 << WORD_BITS) - 1) >> WORD_BITS - bits


def with_the_level_that_chose_it(proposed: Proposed, levels: Sequence[Level]) -> Proposed:
    """Return the planted bug: the level in which a text ended tells of it, too."""
    texts = []
    for text in proposed.texts:
        level = next(level for level in levels if code_length(text.typed) <= level.length)
        own = level.sketch.apart(np.array([folded(prefix_of(text.typed, level.length))], dtype=np.uint64))
        texts.append(text.told(float(own.shares[0]), int(own.n[0])))
    return replace(proposed, texts=tuple(texts))


def runs_of(
    shares: Mapping[bytes, float], runs: int, wanted: Wanted, *, n: int, bits: int
) -> Iterator[list[FoundWords]]:
    """Yield what is found, as it is and with the planted bug."""
    rng = np.random.default_rng(11)
    for _ in range(runs):
        levels, verification = drawn(rng, shares, n, bits)
        proposed = search(levels)
        both = (proposed, with_the_level_that_chose_it(proposed, levels))
        yield [find_words(each, levels[-1].sketch, verification, wanted=wanted) for each in both]


def test_levels_behind_the_one_that_chose_a_text_name_no_more_false_words() -> None:
    """200 searches (long: 1,000) where nobody has any text: at most 0.025 + 5.5 sigma name one, a false alarm in 1e6.

    Were texts judged by the level that chose them as well (the planted bug), every other one would.
    """
    runs = scaled(200, 1_000)
    found = [[bool(named(each)) for each in both] for both in runs_of({}, runs, Wanted(), n=40_000, bits=10)]
    honest, planted = np.sum(found, axis=0)
    chance = FALSE_WORDS / 2
    assert honest <= runs * chance + 5.5 * np.sqrt(runs * chance * (1 - chance)) < planted


def test_intervals_hold_over_all_that_is_proposed_whatever_was_kind_in_a_level() -> None:
    """120 searches (long: 1,000) with 12 words of 1 to 9 %: most stand out in a level, some in none.

    All intervals of a run hold with 50 %, nearly exactly: 0.35 to 0.5 of the runs have one that does not, within
    5.5 sigma, a false alarm in 1e6. With the planted bug more do. Were n that of the verification group alone, one run
    in fifty would.
    """
    texts = b"to of in is at we he or on it an as".split()
    shares = {typed: 0.01 + 0.08 * place / len(texts) for place, typed in enumerate(texts)}
    runs, missed = scaled(120, 1_000), np.zeros(2)
    for both in runs_of(shares, runs, Wanted(0.5), n=60_000, bits=12):
        missed += [
            any(not word.lower <= shares.get(word.typed, 0.0) <= word.upper for word in words.proposed)
            for words in both
        ]
    honest, planted = missed
    fewest, most = (
        runs * chance + sigmas * np.sqrt(runs * chance * (1 - chance)) for chance, sigmas in ((0.35, -5.5), (0.5, 5.5))
    )
    assert runs / 50 < fewest < honest < most < planted


def test_a_text_that_shares_a_bucket_of_a_level_with_a_long_one_that_many_have_loses_that_row() -> None:
    """Noise proposes a text that nobody has, in a bucket of the second level that three devices in ten have.

    Without a word on what else the level holds (the planted bug) it is named.
    """
    heavy, design, rng = b"https://example.org/one", mechanism(bits=10), np.random.default_rng(13)
    factors = [[int(each) | 1 for each in rng.integers(1 << 63, size=ROWS)] for _ in SHORT.weights]

    def places(typed: bytes, group: int) -> list[int]:
        return [bucket(typed, group, factor, 10) for factor in factors[group]]

    def meets(typed: bytes) -> list[int]:
        return [np.equal(places(typed, group), places(heavy, group)).sum() for group in range(len(factors))]

    letters = "abcdefghijklmnopqrstuvwxyz"
    two = (f"{first}{second}".encode() for first, second in product(letters, letters))
    unlucky = next(typed for typed in two if code_length(typed) <= FEW_LEVELS[0] and meets(typed) == [0, 1, 0, 0])

    sketches = []
    for group, weight in enumerate(SHORT.weights):
        table = np.zeros((ROWS, design.d))
        for typed, share in ((heavy, 0.3), (unlucky, 0.05 if group == 0 else 0.0)):
            table[range(ROWS), places(typed, group)] += share
        spared = ((design.d * table - 1) / (design.d - 1)).astype(np.float32)
        n = np.full(ROWS, N * weight // sum(SHORT.weights) // ROWS)
        sketches.append(Sketch(spared, n, np.array(factors[group], dtype=np.uint64), design))
    levels = [Level(*each) for each in zip(FEW_LEVELS, sketches, strict=False)]
    proposed = search(levels)
    assert unlucky in [text.typed for text in proposed.texts]
    (word,) = (word for word in find_words(proposed, levels[-1].sketch, sketches[-1]).proposed if word.typed == unlucky)
    assert abs(word.estimate) < 0.002
    assert not word.stands_out
    lost = SHORT.weights[1] / ROWS / sum(SHORT.weights)
    assert word.n / N == pytest.approx(judged_part(SHORT, 18) - lost, abs=1e-4)

    bare = WholeText(unlucky)
    for level in levels[1:]:
        own = level.sketch.apart(np.array([folded(prefix_of(unlucky, level.length))], dtype=np.uint64))
        bare = bare.told(float(own.shares[0]), int(own.n[0]))
    assert named(find_words(replace(proposed, texts=(bare,)), levels[-1].sketch, sketches[-1])) == [unlucky]


def test_a_text_in_a_bucket_of_one_that_no_search_ends_is_not_named() -> None:
    """Three of ten have a text that is longer than all levels, and nobody the one in its bucket: that loses the row."""
    groups, group = Groups("homepage", SHORT.levels), len(SHORT.levels)
    heavy = b"https://example.org/a-long-way"
    verification = expected(groups, group, N * SHORT.weights[-1] // sum(SHORT.weights), {heavy: 0.3})
    texts = [f"{number}".encode() for number in range(300_000)]
    numbers = np.array([number_of(typed) for typed in (heavy, *texts)], dtype=np.uint64)
    meets = sum((places := verification.buckets(numbers, row))[1:] == places[0] for row in range(ROWS))
    unlucky = texts[int(np.argmax(meets == 1))]
    (word,) = verified([WholeText(unlucky)], verification)
    assert not word.stands_out
    assert word.estimate == pytest.approx(0.0, abs=1e-4)
    assert word.n == N * SHORT.weights[-1] // sum(SHORT.weights) * 3 // 4
    (whole,) = verified([WholeText(heavy)], verification)
    assert whole.estimate == pytest.approx(0.3, abs=1e-4)


def test_fewer_words_are_named_at_a_higher_level() -> None:
    """The lines for one text are 1.3, 2.0 and 2.6 standard errors. Estimates of nothing but noise lie on both sides."""
    rng, design = np.random.default_rng(6), mechanism(bits=10)
    verification = noise(rng, design)
    for place in range(100):
        text = WholeText(f"{place}".encode())
        for confidence, line in ((0.8, 1.282), (0.95, 1.96), (0.99, 2.576)):
            (word,) = verified([text], verification, Wanted(confidence))
            assert word.stands_out == (word.lower > 0)
            assert word.stands_out == (word.z > line) or abs(word.z - line) < 0.02


def test_without_proposals_nothing_is_named() -> None:
    assert verified([], noise(np.random.default_rng(5), mechanism(bits=10))) == ()


def needed(share: float = 0.01, epsilon: str = "2", bits: int = 30) -> int:
    """Return the fewest devices of which a word of this share and code is named with probability POWER, about."""
    return ceil(mechanism(epsilon).noise_variance * (signal_needed(SHORT, bits) / share) ** 2)


def test_devices_needed_fall_with_share_and_rise_with_the_code_and_the_noise() -> None:
    assert needed(0.02) < needed()
    assert needed(epsilon="4") < needed() < needed(epsilon="1")
    assert needed(bits=10) < needed() < needed(bits=48)
    assert needed(0.02) == pytest.approx(needed() / 4, rel=0.01)


@pytest.mark.slow
def test_words_of_the_stated_share_are_named_as_often_as_is_stated() -> None:
    """32 words of 1 % among 5,000 others, in each run with the stated devices: 32 chances at 0.8, less 5 sigma.

    The words of one run share their noise in no bucket, so the chances are all but independent.
    """
    n = needed()
    words = [f"{first}{last}".encode() for first in ("home", "work", "back", "over") for last in NAMES]
    others = [f"{number:05d}".encode() for number in range(5_000)]
    shares = np.array([0.01] * len(words) + [0.68 / len(others)] * len(others))
    hits, runs = 0, scaled(1, 3)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        groups = Groups(f"words_{seed}", SHORT.levels)
        held = [n * weight // sum(SHORT.weights) // ROWS for weight in SHORT.weights]
        sketches = []
        for group, size in enumerate(held):
            numbers = np.array([groups.number(typed, group) for typed in (*words, *others)], dtype=np.uint64)
            rows = []
            for row in range(ROWS):
                buckets = (numbers * np.uint64(groups.multiplier(group, row)) >> np.uint64(47)).astype(np.int64)
                counts = np.bincount(buckets, weights=rng.multinomial(size, shares), minlength=BUCKETS).astype(np.int64)
                rows.append(np.concatenate([[size], draw_points(mechanism(), counts, rng)]))
            factors = [groups.multiplier(group, row) for row in range(ROWS)]
            sketches.append(Sketch.of_tally(mechanism(), np.array(rows), factors))
        proposed = search([Level(*each) for each in zip(SHORT.levels, sketches, strict=False)])
        told = find_words(proposed, sketches[len(SHORT.levels) - 1], sketches[-1])
        hits += len(set(named(told)) & set(words))
    chances = len(words) * runs
    assert hits / chances > POWER - 5 * np.sqrt(POWER * (1 - POWER) / chances)
