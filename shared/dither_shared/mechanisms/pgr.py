"""Projective geometry response: send a point of a finite projective space, mostly one on the answer's hyperplane.

Points are the vectors of t coordinates modulo a prime r (the `order`; t is the `dimension`) whose first nonzero
coordinate is 1. There are K of them, and the points numbered 0 to d - 1 stand for the d values. The set of a value is
its hyperplane: the points u with u_1 v_1 + ... + u_t v_t = 0 modulo r. With

    K = (r^t - 1) / (r - 1)      s = (r^(t-1) - 1) / (r - 1)      l = (r^(t-2) - 1) / (r - 1)

every hyperplane has s points and any two share l, so this is a two-level mechanism (two_level.py):

    p = T / 2^64                 ideally e^eps s / (e^eps s + K - s)
    q = p l / s + (1 - p) / r    since (s - l) / (K - s) = r^(t-2) / r^(t-1)

For r near e^eps + 1 the error is close to the least that any mechanism has, 4 e^eps / (n (e^eps - 1)^2), while a
report is one number below K and the device's work is O(t).
Sampling. u -> <u, v> determines the coordinate at v's first 1 from the others. Uniform nonzero others with <u, v> = 0
give each point of the hyperplane r - 1 times; uniform others with <u, v> = 1 give each point off it exactly once.

Numbers. The point i has the place (K - 1 - i)^3 mod P in lexicographic order, cubed again while it is not below K. P is
the least prime that is at least K and not 1 modulo 3, so that cubing permutes the numbers below it; a walk along a
permutation that starts below K comes back below K. In lexicographic order itself neighbours are on few lines. A report
that supports the answer and one point more supports their whole line, so that a sum of neighbouring values, or the
share of a table's column, would have up to 20 times the variance that it has for points at random, and far from a
normal law. In this order both are about those of random points, wherever the values stand.
Feldman, Nelson, Nguyen, Talwar 2022; order 2 is the Hadamard response of Acharya, Sun, Zhang 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, floor, isqrt
from operator import mul

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import as_dict, frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import OUTPUTS_MAX, MechanismRequest
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw, threshold_for
from dither_shared.rng import Rng
from dither_shared.shapes import Symbols

_ALL_ORDERS = range(OUTPUTS_MAX)
DIMENSION_MIN = 3
"""In two dimensions hyperplanes are points, and the mechanism is GRR with unused values."""
ORDER_FACTOR = Fraction(2)
"""An order twice or half of e^epsilon + 1 has 12.5 % more error than the best: no candidate."""
MEMO_FACTOR = Fraction(3)
"""Farther from e^epsilon + 1 there is a third more error, which no less R may cost (`choice.LINKED_LOSS`). The factor
is larger than 15 % alone would need: for few values, and between two primes, the least error is above the ideal."""


@frozen
class PGR(OneShot):
    """Send a point on the answer's hyperplane with probability threshold / 2^64, else a point off it.

    Use for many values. Do not use for fewer than about e^epsilon: there GRR and subset selection have less error.
    """

    name = "pgr"
    ticks = 1
    serves_one = True

    d: int
    order: int
    dimension: int
    threshold: int
    prime: int = 0
    """P, which scatters the points; 0 in plans of before 0.1.0: there the number of a point is its place."""

    def __post_init__(self) -> None:
        if self.dimension < DIMENSION_MIN:
            raise InvalidParameter(f"dimension must be at least {DIMENSION_MIN}, got {self.dimension}")
        if not 2 <= self.order <= OUTPUTS_MAX or points(self.order, self.dimension) > OUTPUTS_MAX:
            raise InvalidParameter(
                f"order and dimension must make at most {OUTPUTS_MAX} points, got {self.order} and {self.dimension}"
            )
        if any(self.order % divisor == 0 for divisor in range(2, isqrt(self.order) + 1)):
            raise InvalidParameter(f"order must be a prime, got {self.order}")
        if not 2 <= self.d <= self.outputs:
            raise InvalidParameter(f"d must be from 2 to the {self.outputs} points, got {self.d}")
        if self.prime and self.prime != prime_for(self.outputs):
            raise InvalidParameter(f"prime must be {prime_for(self.outputs)}, got {self.prime}")
        self.check_threshold()

    @classmethod
    def for_design(cls, d: int, order: int, dimension: int, epsilon: Decimal) -> Self:
        """Return the mechanism on these points with the largest epsilon that is not above `epsilon`."""
        share = Fraction(points(order, dimension - 1), points(order, dimension))
        return cls(d, order, dimension, threshold_for(epsilon, share), prime_for(points(order, dimension)))

    @classmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        """Return those of the orders near e^epsilon + 1."""
        for space in _near(request, ORDER_FACTOR):
            yield cls.for_design(request.d, *space, request.epsilon)

    @classmethod
    def memo_designs(cls, request: MechanismRequest, permanent: Decimal) -> Iterator[Self]:
        """Return those of the orders that are not far from e^epsilon + 1."""
        for space in _near(request, MEMO_FACTOR):
            yield cls.for_design(request.d, *space, permanent)

    @property
    def geometry(self) -> tuple[int, int, int]:
        """The space that its reports are points of, and the prime that scatters them."""
        return self.order, self.dimension, self.prime

    def parameters(self) -> dict[str, int]:
        """Return d, order, dimension, threshold and prime, where there is one."""
        parameters = as_dict(self)
        return parameters if self.prime else {name: parameters[name] for name in parameters if name != "prime"}

    @property
    def outputs(self) -> int:
        """The number of points, K."""
        return points(self.order, self.dimension)

    @property
    def supported(self) -> tuple[int, int]:
        """Each point lies on s hyperplanes, of which K - d are no value's."""
        s = points(self.order, self.dimension - 1)
        return max(0, s - (self.outputs - self.d)), min(s, self.d)

    @cached_property
    def law(self) -> TwoLevelLaw:
        """The share is s / K, the overlap l / s."""
        s, common = (points(self.order, self.dimension - less) for less in (1, 2))
        return TwoLevelLaw.of_one_value(self.inside, Fraction(s, self.outputs), Fraction(common, s))

    @cached_property
    def shape(self) -> Symbols:
        """A report is the rank of a point."""
        return Symbols(self.outputs)

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a point on or off the answer's hyperplane.

        Both vectors, the nonzero one and the other, are always drawn, in one number: the draws tell nothing.
        """
        others = self.order ** (self.dimension - 1)
        on = rng.coin(self.threshold)
        nonzero, any_ = divmod(rng.uniform((others - 1) * others), others)
        point = self.unrank(answer)
        pivot = point.index(1)
        vector = self._digits(1 + nonzero if on else any_, self.dimension - 1)
        vector.insert(pivot, 0)
        product = sum(a * b for a, b in zip(vector, point, strict=True))
        vector[pivot] = ((0 if on else 1) - product) % self.order
        return self.rank(vector)

    def supported_by(self, report: int) -> list[int]:
        """Return the values on whose hyperplanes the point lies."""
        point = self.unrank(report)
        inner = (sum(map(mul, point, self.unrank(value))) for value in range(self.d))
        return [value for value, product in enumerate(inner) if product % self.order == 0]

    def uniform_report(self, rng: Rng) -> int:
        """Return any point."""
        return rng.uniform(self.outputs)

    def unrank(self, number: int) -> list[int]:
        """Return the coordinates of a point."""
        rank = number
        if self.prime:
            rank = pow(self.outputs - 1 - number, 3, self.prime)
            while rank >= self.outputs:
                rank = pow(rank, 3, self.prime)
        zeros, start = self.dimension - 1, 0
        while rank - start >= self.order ** (self.dimension - 1 - zeros):
            start += self.order ** (self.dimension - 1 - zeros)
            zeros -= 1
        return [0] * zeros + [1] + self._digits(rank - start, self.dimension - 1 - zeros)

    def rank(self, vector: list[int]) -> int:
        """Return the number of the point on which a nonzero vector lies."""
        first = next(place for place, coordinate in enumerate(vector) if coordinate)
        scale = pow(vector[first], -1, self.order)
        tail = 0
        for coordinate in vector[first + 1 :]:
            tail = tail * self.order + coordinate * scale % self.order
        rank = points(self.order, self.dimension - 1 - first) + tail
        if not self.prime:
            return rank
        root = (2 * self.prime - 1) // 3  # x^(3 root) = x modulo the prime
        rank = pow(rank, root, self.prime)
        while rank >= self.outputs:
            rank = pow(rank, root, self.prime)
        return self.outputs - 1 - rank

    def _digits(self, number: int, count: int) -> list[int]:
        """Return `count` digits to the base `order`, the most significant first."""
        digits = [0] * count
        for place in range(count - 1, -1, -1):
            number, digits[place] = divmod(number, self.order)
        return digits


@cache
def prime_for(size: int) -> int:
    """Return the least prime that is at least `size`, which is above 3, and not 1 modulo 3: then it is 5 modulo 6."""
    prime = size + (5 - size) % 6
    while any(prime % divisor == 0 for divisor in range(5, isqrt(prime) + 1, 2)):
        prime += 6
    return prime


def points(order: int, dimension: int) -> int:
    """Return the number of points, (order^dimension - 1) / (order - 1)."""
    return int((order**dimension - 1) // (order - 1))


def spaces(d: int, orders: range = _ALL_ORDERS) -> list[tuple[int, int]]:
    """Return the (order, dimension) with a point for each of d values and at most OUTPUTS_MAX of them.

    For each prime the smallest such space: further points would only lengthen reports.
    """
    found = []
    for order in _primes(min(orders.stop, isqrt(OUTPUTS_MAX) + 1)):
        if order not in orders:
            continue
        dimension = DIMENSION_MIN
        while points(order, dimension) < d:
            dimension += 1
        if points(order, dimension) <= OUTPUTS_MAX:
            found.append((order, dimension))
    return found


def _near(request: MechanismRequest, factor: Fraction) -> list[tuple[int, int]]:
    """Return the spaces whose orders minus 1 are within a factor of e^epsilon, or the one that comes closest to it."""
    e = exp_below(request.epsilon)
    near = spaces(request.d, orders=range(ceil(e / factor) + 1, floor(e * factor) + 2))
    # Far from e^epsilon + 1 only the largest order may be left: then others win, unless PGR is asked for.
    return near or spaces(request.d)[-1:]


@cache
def _primes(below: int) -> tuple[int, ...]:
    """Return the primes below a number whose plane has at most OUTPUTS_MAX points, by the sieve of Eratosthenes."""
    sieve = bytearray(2) + bytearray(b"\1") * (below - 2)
    for number in range(2, isqrt(below - 1) + 1):
        sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return tuple(number for number, prime in enumerate(sieve) if prime and points(number, DIMENSION_MIN) <= OUTPUTS_MAX)
