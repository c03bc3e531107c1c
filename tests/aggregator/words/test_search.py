from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from math import ceil

import numpy as np
import pytest

from dither_aggregator.analysis import words as searching
from dither_aggregator.analysis.words import FoundWords, Level, Sketch, Wanted, find_words, search, verified
from dither_shared.kinds.precision import FALSE_WORDS, POWER, signal_needed
from dither_shared.mechanisms import PGR, choose
from dither_shared.words.code import BUCKETS, LAYOUTS, NONE_BYTE, OTHER_BYTE, ROWS, Groups
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
    proposed = search([Level(*each) for each in zip(groups.levels, levels, strict=True)])
    return find_words(proposed, levels[-1], verification)


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
        texts = [f"{run} {place}".encode() for place in range(50)]
        honest += any(word.stands_out for word in verified(texts, verification))
        if run < runs / 10:
            many = [f"{run} {place}".encode() for place in range(1_000)]
            best = [word.typed for word in verified(many, verification)[:50]]
            planted += any(word.stands_out for word in verified(best, verification))
    chance = FALSE_WORDS / 2  # the other half is that of intervals that lie too low
    most = runs * chance + 5.5 * np.sqrt(runs * chance * (1 - chance))
    assert honest <= most < 10 * planted


def test_fewer_words_are_named_at_a_higher_level() -> None:
    """The lines for one text are 1.3, 2.0 and 2.6 standard errors. Estimates of nothing but noise lie on both sides."""
    rng, design = np.random.default_rng(6), mechanism(bits=10)
    verification = noise(rng, design)
    for place in range(100):
        text = f"{place}".encode()
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
