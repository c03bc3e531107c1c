"""Discrete noise has its law to the last coin, and a float, a modulo and a zero of two signs are caught."""

from collections.abc import Callable
from fractions import Fraction
from math import exp, floor, log

import numpy as np
import pytest

from dither_aggregator.analysis.inference import reach_of_noise
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import discrete_gaussian, discrete_laplace, exp_coin
from dither_shared.releases import ReleaseNoise
from dither_shared.rng import Rng
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.soaking import thinned

LEAST = 1e-9
"""Outcomes of less probability are not followed."""
SCALES = (Fraction(1), Fraction(3, 2), Fraction(1, 2), Fraction(4), Fraction(5, 3))
"""Their numerators are not 2: so a sampler that begins anew is told from one that draws a sign."""

Draw = Callable[["Tried"], int]


class ForkError(Exception):
    """A choice that was not made yet: of outcomes with these probabilities."""

    def __init__(self, chances: list[float]) -> None:
        self.chances = chances


class AgainError(Exception):
    """The sampler began anew: from there on its law is the same."""


class Tried(Rng):
    """An Rng whose uniform integers, and coins of exp, are told."""

    def __init__(self, outcomes: tuple[int, ...], first: int = 0) -> None:
        super().__init__(lambda bits: pytest.fail("a sampler may only ask for uniform integers"))
        object.__setattr__(self, "told", list(outcomes))
        object.__setattr__(self, "first", [first, 0])

    told: list[int]
    first: list[int]
    """The size of a sampler's first choice, and how often that was asked for."""

    def choose(self, chances: list[float]) -> int:
        if len(chances) == 1:
            return 0
        if not self.told:
            raise ForkError(chances)
        return self.told.pop(0)

    def uniform(self, size: int) -> int:
        self.begin(size)
        return self.choose([1 / size] * size)

    def begin(self, size: int) -> None:
        self.first[1] += size == self.first[0]
        if self.first[1] > 1:
            raise AgainError


def law_of(draw: Draw, first: int = 0) -> tuple[dict[int, float], float]:
    """Return the probability of each outcome, all choices tried, and what is left of those too rare to follow.

    A sampler that makes its `first` choice a second time has begun anew: the law is the one of those that have not.
    """
    law: dict[int, float] = {}
    left = 0.0
    waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while waiting:
        outcomes, chance = waiting.pop()
        try:
            drawn = draw(Tried(outcomes, first))
        except AgainError:
            continue
        except ForkError as fork:
            for place, part in enumerate(fork.chances):
                if chance * part < LEAST:
                    left += chance * part
                else:
                    waiting.append(((*outcomes, place), chance * part))
            continue
        law[drawn] = law.get(drawn, 0.0) + chance
    whole = sum(law.values())
    return ({drawn: chance / whole for drawn, chance in law.items()}, left / whole) if first else (law, left)


def known_coin(numerator: int, denominator: int, rng: Rng) -> bool:
    """A coin of exp, as one choice: its own law is tried by itself."""
    assert isinstance(rng, Tried)
    chance = exp(-numerator / denominator)
    return numerator == 0 or rng.choose([1 - chance, chance]) == 1


def off(draw: Draw, scale: Fraction) -> float:
    """Return by how much the law of a sampler is off, beyond what is left."""
    law, left = law_of(draw, scale.numerator)
    a = exp(-1 / scale)
    wanted = {k: (1 - a) / (1 + a) * a ** abs(k) for k in range(-60, 61)}
    return max(abs(law.get(k, 0.0) - chance) - left for k, chance in wanted.items())


@pytest.mark.parametrize("ratio", [(0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (3, 2), (7, 3)])
def test_a_coin_of_exp_has_its_law(ratio: tuple[int, int]) -> None:
    law, left = law_of(lambda rng: exp_coin(*ratio, rng))
    assert left < 1e-5
    assert law.get(1, 0.0) == pytest.approx(exp(-ratio[0] / ratio[1]), abs=left + 1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_noise_has_its_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "exp_coin", known_coin)
    law, left = law_of(lambda rng: discrete_laplace(scale, rng), scale.numerator)
    assert left < 1e-6
    assert off(lambda rng: discrete_laplace(scale, rng), scale) < 1e-12
    assert all(law[k] == pytest.approx(law[-k], abs=left) for k in range(1, 8))


def two_zeros(scale: Fraction, rng: Rng) -> int:
    """Keep -0: zero comes twice as often."""
    while True:
        u = rng.uniform(scale.numerator)
        if not releases.exp_coin(u, scale.numerator, rng):
            continue
        v = 0
        while releases.exp_coin(1, 1, rng):
            v += 1
        size = (u + scale.numerator * v) // scale.denominator
        return -size if rng.uniform(2) == 1 else size


def by_modulo(scale: Fraction, rng: Rng) -> int:
    """Draw below t by what is left of a number of a few bits."""
    bits = scale.numerator.bit_length()

    class Modulo(Tried):
        def uniform(self, size: int) -> int:
            self.begin(size)
            return self.choose([1 / (1 << bits)] * (1 << bits)) % size

    assert isinstance(rng, Tried)
    return discrete_laplace(scale, Modulo(tuple(rng.told), scale.numerator))


def by_float(scale: Fraction, rng: Rng) -> int:
    """Round a continuous Laplace number, of 1,024 steps."""
    size = floor(-log((rng.uniform(1024) + 1) / 1024) * float(scale))
    return -size if rng.uniform(2) else size


@pytest.mark.parametrize("spoiled", [two_zeros, by_modulo, by_float])
def test_a_spoiled_sampler_is_caught(spoiled: Callable[[Fraction, Rng], int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "exp_coin", known_coin)
    assert off(lambda rng: spoiled(Fraction(5, 3), rng), Fraction(5, 3)) > 1e-4


# Gaussian noise: a Laplace number is one choice of known law, and so is each coin.

VARIANCES = (Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(9))


def known_laplace(scale: Fraction, rng: Rng) -> int:
    """A number of discrete Laplace, as one choice; asked for again, the sampler has begun anew."""
    assert isinstance(rng, Tried)
    rng.begin(-1)
    a = exp(-1 / scale)
    reach = range(-40, 41)
    chances = [(1 - a) / (1 + a) * a ** abs(k) for k in reach]
    return rng.choose(chances) - 40


def off_gaussian(draw: Draw, variance: Fraction) -> float:
    """Return by how much the law of a sampler is off, beyond what is left."""
    law, left = law_of(draw, -1)
    weights = {k: exp(-k * k / (2 * variance)) for k in range(-60, 61)}
    whole = sum(weights.values())
    return max(abs(law.get(k, 0.0) - weight / whole) - left for k, weight in weights.items())


@pytest.mark.parametrize("variance", VARIANCES)
def test_gaussian_noise_has_its_law(variance: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "discrete_laplace", known_laplace)
    monkeypatch.setattr(releases, "exp_coin", known_coin)
    law, left = law_of(lambda rng: discrete_gaussian(variance, rng), -1)
    assert left < 1e-5
    assert off_gaussian(lambda rng: discrete_gaussian(variance, rng), variance) < 1e-9
    assert all(law[k] == pytest.approx(law[-k], abs=left) for k in range(1, 4))


def kept_by_float(variance: Fraction, rng: Rng) -> int:
    """Round the chance to keep a number to a few bits."""
    t = floor(float(variance) ** 0.5) + 1
    while True:
        drawn = releases.discrete_laplace(Fraction(t), rng)
        chance = exp(-((abs(drawn) - float(variance) / t) ** 2) / (2 * float(variance)))
        if rng.uniform(256) < round(256 * chance):
            return drawn


def half_zero(variance: Fraction, rng: Rng) -> int:
    """Draw a second sign, and begin anew where it meets zero: zero comes half as often as it should."""
    while True:
        drawn = discrete_gaussian(variance, rng)
        if drawn or not rng.uniform(2):
            return drawn


def never_drawn_again(variance: Fraction, rng: Rng) -> int:
    """Take the Laplace number: it has the tails of one."""
    return releases.discrete_laplace(Fraction(floor(float(variance) ** 0.5) + 1), rng)


def kept_by_modulo(variance: Fraction, rng: Rng) -> int:
    """Keep a number by what is left of a number of a few bits."""
    a, b = variance.numerator, variance.denominator
    t = floor(float(variance) ** 0.5) + 1
    while True:
        drawn = releases.discrete_laplace(Fraction(t), rng)
        above, below = (abs(drawn) * b * t - a) ** 2, 2 * a * b * t * t
        if rng.uniform(64) % below < above:  # not the coin of exp, nor even one of the ratio
            continue
        return drawn


@pytest.mark.parametrize("spoiled", thinned([kept_by_float, never_drawn_again, kept_by_modulo, half_zero], 1, 2, 3))
def test_a_spoiled_gaussian_sampler_is_caught(
    spoiled: Callable[[Fraction, Rng], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "discrete_laplace", known_laplace)
    monkeypatch.setattr(releases, "exp_coin", known_coin)
    assert off_gaussian(lambda rng: spoiled(Fraction(5, 2), rng), Fraction(5, 2)) > 1e-4


def test_neighbours_are_as_alike_as_is_said() -> None:
    """The ratio of the laws of a count with and without r reports of w counts each is e^epsilon at most, and is it."""
    asked = registry(values=tuple("abcdefgh"), color='mechanism = "ss"', epsilon="1.0")
    of = ReleaseNoise.of(asked.metrics["color"].plan, 700_000, 3)
    width = pure(asked.metrics["color"].plan).shape.raises
    assert width is not None
    assert (of.width, of.scale) == (width, Fraction(width * 3 * 10, 7))
    moved = of.width * of.reports  # in sum over counts, whichever they are
    assert float(moved / of.scale) == pytest.approx(0.7)


@pytest.mark.parametrize("terms", [1, 2, 5, 40])
def test_the_reach_of_noise_is_not_short(terms: int) -> None:
    """A sum of Laplace numbers lies beyond its reach no more often than said, at 5 sigma of the trial."""
    runs = 100_000
    sums = np.random.default_rng(terms).laplace(size=(runs, terms)).sum(axis=1) / np.sqrt(2 * terms)
    for alpha in (0.1, 0.05, 0.01, 0.001):
        beyond = float((np.abs(sums) > reach_of_noise(1.0, alpha)).mean())
        assert beyond <= 1.03 * alpha + 5 * np.sqrt(alpha / runs)


def test_the_variance_is_that_of_the_law() -> None:
    asked = registry()
    of = ReleaseNoise.of(asked.metrics["dark"].plan, 1_000_000, 2)
    a = exp(-1 / float(of.scale))
    exactly = sum((1 - a) / (1 + a) * a ** abs(k) * k * k for k in range(-200, 201))
    assert of.variance == pytest.approx(exactly)
