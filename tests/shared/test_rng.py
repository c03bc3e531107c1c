"""The coins, by trying every random number that there is, at a size where that is possible."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from dither_shared.rng import Rng


class OutOfBits(Exception):
    """The enumerated bits do not reach for another draw."""


def every_run(bits: int, draw: Callable[[Rng], object], coin_bits: int) -> Counter[object]:
    """Run `draw` on each sequence of `bits` random bits and count the outcomes; None where the bits ran out."""
    outcomes: Counter[object] = Counter()
    for tape in range(1 << bits):
        outcomes[_run(tape, bits, draw, coin_bits)] += 1
    return outcomes


def _run(tape: int, bits: int, draw: Callable[[Rng], object], coin_bits: int) -> object:
    position = 0

    def randbits(count: int) -> int:
        nonlocal position
        if position + count > bits:
            raise OutOfBits
        position += count
        return tape >> (position - count) & ((1 << count) - 1)

    try:
        return draw(Rng(randbits, coin_bits))
    except OutOfBits:
        return None


@pytest.mark.parametrize("threshold", range(1, 16))
def test_a_coin_is_heads_for_exactly_threshold_of_all_numbers(threshold: int) -> None:
    outcomes = every_run(4, lambda rng: rng.coin(threshold), coin_bits=4)
    assert outcomes == {True: threshold, False: 16 - threshold}


@pytest.mark.parametrize(("count", "coin_bits"), [(1, 4), (2, 3), (3, 3), (4, 3), (2, 5)])
def test_many_coins_are_independent_coins_for_every_threshold(count: int, coin_bits: int) -> None:
    scale = 1 << coin_bits
    for threshold in range(1, scale):
        outcomes = every_run(count * coin_bits, lambda rng, t=threshold: rng.coins(t, count), coin_bits)  # type: ignore[misc]
        for pattern in range(1 << count):
            ones = pattern.bit_count()
            assert outcomes[pattern] == threshold**ones * (scale - threshold) ** (count - ones)


def biased_coins(rng: Rng, threshold: int, count: int) -> int:
    """Draw `count` coins with one shared random number: each is right, together they are not."""
    return ((1 << count) - 1) * rng.coin(threshold)


def test_coins_that_share_a_number_would_be_caught() -> None:
    outcomes = every_run(6, lambda rng: biased_coins(rng, 3, 2), coin_bits=3)
    assert outcomes[0b01] != 3 * 5


@pytest.mark.parametrize("size", range(1, 12))
def test_a_uniform_choice_is_exactly_uniform(size: int) -> None:
    bits = 3 * (size - 1).bit_length()
    outcomes = every_run(bits, lambda rng: rng.uniform(size), coin_bits=64)
    del outcomes[None]
    assert set(outcomes) == set(range(size))
    assert len(set(outcomes.values())) == 1


@pytest.mark.parametrize("threshold", [1, 2**63 + 1, 2**64 - 1, 0x123456789ABCDEF1])
def test_a_coin_is_decided_by_its_last_bit(threshold: int) -> None:
    for number, heads in ((threshold - 1, True), (threshold, False)):
        assert Rng(lambda bits, n=number: n).coin(threshold) is heads  # type: ignore[misc]


class FloatRng(Rng):
    """A planted bug: a number in [0, 1) compared with a probability, as `random() < p` does."""

    def coin(self, threshold: int) -> bool:
        return bool(self.randbits(self.coin_bits) / 2**self.coin_bits < threshold / 2**self.coin_bits)


def test_a_float_comparison_would_be_caught() -> None:
    """With 53 bits of 64 the numbers below a threshold cannot be told from it."""
    threshold = 2**63 + 1
    assert FloatRng(lambda bits: threshold - 1).coin(threshold) is False


def test_a_modulo_would_be_caught() -> None:
    outcomes = every_run(9, lambda rng: rng.randbits(3) % 5, coin_bits=64)
    assert len(set(outcomes.values())) > 1


def test_coins_follow_their_law_at_full_size() -> None:
    """64-bit thresholds, seeded: none of 300 counts is 5.5 sigma off (over seeds, a false alarm of 1e-5)."""
    rng = Rng(random.Random(20261120).getrandbits)
    p, count, runs = 0.1192, 300, 4000
    threshold = int(p * 2**64)
    totals = [0] * count
    for drawn in (rng.coins(threshold, count) for _ in range(runs)):
        for place in range(count):
            totals[place] += drawn >> place & 1
    sigma = (runs * p * (1 - p)) ** 0.5
    assert max(abs(total - runs * p) for total in totals) < 5.5 * sigma
    assert len(set(totals)) > 1


def test_an_undecided_position_draws_on_until_it_is_decided() -> None:
    """The first 63 bits equal the threshold's; the last one decides, against the coin."""
    threshold = (1 << 64) - 1
    rng = Rng(lambda bits: (1 << bits) - 1)
    assert rng.coins(threshold, 5) == 0
    assert Rng(lambda bits: 0).coins(threshold, 5) == 0b11111
