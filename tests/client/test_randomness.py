import os

import pytest

from dither_shared.rng import SYSTEM, jitter


def test_bits_are_the_systems_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit of what the system gives counts once: the leading bits of as many bytes as are needed."""
    asked = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes([0b10110111, 0b01010101][:size])

    monkeypatch.setattr(os, "urandom", urandom)
    assert [SYSTEM.randbits(count) for count in (0, 1, 3, 8, 9, 16)] == [
        0, 0b1, 0b101, 0b10110111, 0b101101110, 0b1011011101010101,
    ]  # fmt: skip
    assert asked == [0, 1, 1, 1, 2, 2]


def test_bits_follow_their_law() -> None:
    """4,000 draws of 20 bits: each bit is one in half of them, within 6 sigma (a false alarm of 4e-8 in all)."""
    ones = [0] * 20
    for _ in range(4_000):
        drawn = SYSTEM.randbits(20)
        assert 0 <= drawn < 1 << 20
        ones = [count + (drawn >> bit & 1) for bit, count in enumerate(ones)]
    assert all(abs(count - 2_000) < 6 * 1_000**0.5 for count in ones)


def test_a_jitter_lies_anywhere_up_to_the_most() -> None:
    drawn = [jitter(8.0) for _ in range(2_000)]
    assert all(0 <= seconds < 8 for seconds in drawn)
    assert {int(seconds) for seconds in drawn} == set(range(8))
