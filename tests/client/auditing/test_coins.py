"""The laws of the SDK's coins, by its own code over all random bits, and coins that are not what they are asked for."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dither.auditing.coins import Undecidable, independent, law_of_coin, law_of_coins, law_of_uniform
from dither.auditing.devices import OFF, OTHERWISE
from dither_shared.mechanisms import GRR
from dither_shared.rng import SCALE, Rng
from tests.support.audits import EVERY, audited, devices, of_metric, reports
from tests.support.soaking import SOAK, thinned

ODD = 0x123456789ABCDEF1
LONG = (2, 256) if SOAK else ()
LARGER = "the exact loss is larger"


@pytest.mark.parametrize("threshold", [0, 1, ODD, SCALE // 2, SCALE - 1, SCALE])
def test_a_coin_has_the_law_of_its_threshold(threshold: int) -> None:
    assert law_of_coin(Rng.coin, threshold) == Fraction(threshold, SCALE)
    if 0 < threshold < SCALE:
        assert all(law_of_coins(Rng.coins, threshold, count) == threshold for count in (1, 9, *LONG))


@pytest.mark.parametrize("size", [1, 2, 3, 263, 2**16, 2**100 - 5])
def test_a_uniform_number_is_uniform_however_often_it_is_drawn_again(size: int) -> None:
    assert law_of_uniform(Rng.uniform, size) is None


def off_by_one(self: Rng, threshold: int) -> bool:
    return self.randbits(self.coin_bits) <= threshold


def off_by_a_hundredth(self: Rng, threshold: int) -> bool:
    return self.randbits(self.coin_bits) < threshold + threshold // 100


def by_halves(self: Rng, threshold: int) -> bool:
    high, low = divmod(threshold, 1 << 32)
    drawn = self.randbits(32)
    return drawn < high or (drawn == high and self.randbits(32) < low)


def test_a_spoiled_coin_has_the_law_that_it_has() -> None:
    assert law_of_coin(off_by_one, ODD) == Fraction(ODD + 1, SCALE)
    assert law_of_coin(off_by_a_hundredth, ODD) == Fraction(ODD + ODD // 100, SCALE)
    assert law_of_coin(lambda rng, threshold: rng.randbits(53) < threshold >> 11, ODD) == Fraction(ODD >> 11, 1 << 53)
    assert law_of_uniform(lambda rng, size: rng.randbits(3) % size, 5) == (2, 2, 2, 1, 1)
    assert law_of_uniform(lambda rng, size: min(rng.randbits(2), size - 1), 3) == (1, 1, 2)
    assert law_of_coins(lambda rng, threshold, count: Rng.coins(rng, threshold + 1, count), ODD, 5) == ODD + 1


def test_a_coin_in_other_words_has_the_same_law() -> None:
    assert law_of_coin(lambda rng, threshold: not threshold <= rng.randbits(64), ODD) == Fraction(ODD, SCALE)
    assert law_of_coin(lambda rng, threshold: rng.randbits(66) < 4 * threshold, ODD) == Fraction(ODD, SCALE)
    assert law_of_coin(lambda rng, threshold: rng.randbits(64) < threshold - 0.5, 2**40) == Fraction(2**40, SCALE)


def test_what_cannot_be_followed_has_no_law_rather_than_a_wrong_one() -> None:
    def in_floats(rng: Rng, threshold: int) -> bool:
        return rng.randbits(64) / SCALE < threshold / SCALE

    def endless(rng: Rng, size: int) -> int:
        while rng.randbits(2) < 4:
            pass
        return size

    with pytest.raises(Undecidable, match="looks at 64 random bits"):
        law_of_coin(in_floats, ODD)
    with pytest.raises(Undecidable, match="never drawn"):
        law_of_uniform(endless, 5)
    with pytest.raises(Undecidable, match="depend on each other"):
        law_of_coins(lambda rng, threshold, count: ((1 << count) - 1) * rng.coin(threshold), ODD, 2)


def test_coins_that_are_off_in_long_strings_alone_are_found() -> None:
    def off_in_long(rng: Rng, threshold: int, count: int) -> int:
        return Rng.coins(rng, threshold + (count > 8), count)

    def off_at_the_end(rng: Rng, threshold: int, count: int) -> int:
        return Rng.coins(rng, threshold, count) | (rng.coin(1) << count - 1 if count > 8 else 0)

    assert law_of_coins(off_in_long, ODD, 8) == ODD
    assert law_of_coins(off_in_long, ODD, 9) == ODD + 1
    with pytest.raises(Undecidable, match="not alike"):
        law_of_coins(off_at_the_end, ODD, 9)


def test_a_number_whose_second_draw_has_another_law_is_found() -> None:
    def twice(rng: Rng, size: int) -> int:
        drawn = rng.randbits(3)
        return drawn if drawn < size else rng.randbits(3) % size

    with pytest.raises(Undecidable, match="another law"):
        law_of_uniform(twice, 5)


def test_decisions_that_share_bits_are_found() -> None:
    def remembering(rng: Rng, threshold: int) -> bool:
        """Keep a number for the next coin, as a cache that is never emptied would."""
        return bool(rng.__dict__.setdefault("kept", rng.randbits(4)) < threshold)

    assert independent(Rng.coin, Rng.uniform)
    assert not independent(remembering, Rng.uniform)


# Planted in what is shipped.


def found(keys: str, n: int = 0) -> dict[str, str]:
    """Return what the exact laws say of a report, and what is said of the draws of a device."""
    registry = of_metric(keys)
    claims = [*reports(registry), *devices(registry, "device, draws")]
    return {each.part: each.verdict for each in audited(claims, n)}


@pytest.mark.parametrize("name", thinned(["flag", "grr", "oue again", "number"], 1))
def test_a_sound_device_draws_what_its_law_says(name: str) -> None:
    assert set(found(EVERY[name]).values()) == {""}


@pytest.mark.parametrize("coin", [off_by_one, off_by_a_hundredth], ids=["2^-64", "1 %"])
def test_a_coin_that_is_off_by_however_little_is_caught_by_the_exact_law(
    coin: Callable[[Rng, int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = of_metric(EVERY["flag"])
    threshold = registry.metrics["asked"].mechanism.parameters()["threshold"]
    monkeypatch.setattr(Rng, "coin", coin)
    (finding,) = audited(reports(registry), 0)
    assert (finding.verdict, finding.equal) == (LARGER, False)
    threshold += 1 if coin is off_by_one else threshold // 100
    assert finding.exact is not None
    assert finding.exact.ratio == Fraction(threshold, SCALE - threshold)
    assert found(EVERY["flag"]) == {"report": LARGER, "device, draws": OFF}


def test_a_coin_that_tells_less_than_it_is_asked_for_is_no_breach_and_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rng, "coin", lambda self, threshold: self.randbits(64) < threshold - 1)
    assert found(EVERY["flag"]) == {"report": "", "device, draws": OFF}


def test_bits_of_a_string_that_are_off_are_caught_by_the_exact_law(monkeypatch: pytest.MonkeyPatch) -> None:
    coins = Rng.coins

    def rarer(self: Rng, threshold: int, count: int) -> int:
        return coins(self, threshold if threshold == SCALE // 2 else threshold - threshold // 100, count)

    monkeypatch.setattr(Rng, "coins", rarer)
    assert found(EVERY["oue"]) == {"report": LARGER, "device, draws": OFF}


SPOILED: dict[str, tuple[str, Any, str]] = {
    "coins that share a number": ("coins", lambda self, t, n: ((1 << n) - 1) * self.coin(t), "coins of one string"),
    "a coin of floats": ("coin", lambda self, t: self.randbits(64) / SCALE < t / SCALE, "a decision looks at 64"),
    "a coin in two halves": ("coin", by_halves, ""),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_device_whose_coins_have_no_law_is_not_said_to_be_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coin of two halves is sound, and followed."""
    method, spoiled, words = SPOILED[name]
    monkeypatch.setattr(Rng, method, spoiled)
    verdict = found(EVERY["oue" if method == "coins" else "flag"])["device, draws"]
    assert verdict.startswith(words)
    assert bool(verdict) is bool(words)


def test_a_device_that_has_another_threshold_than_its_plan_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in the device alone: the law's code is another, and true to the plan."""
    randomize = GRR.randomize

    def louder(self: GRR, answer: int, rng: Rng) -> int:
        # Laws are told with a class of their own in the place of Rng.
        return randomize(GRR(self.d, self.threshold + 1) if type(rng) is Rng else self, answer, rng)

    monkeypatch.setattr(GRR, "randomize", louder)
    assert found(EVERY["grr"]) == {"report": "", "device, draws": OTHERWISE}
