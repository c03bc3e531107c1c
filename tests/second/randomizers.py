"""The randomizers, by the integers of a plan's part (shared/reports.md, "The randomizers" and "Memoized answers").

A report is here what it means: a symbol, or the set of the values or bits that it holds.
"""

from itertools import combinations
from typing import Any

from tests.second.coins import Coins

Integers = dict[str, int]
Value = int | frozenset[int] | None
"""The value of an answer; None of one that has no place in a window."""
Report = int | frozenset[int]


def randomize(mechanism: str, integers: Integers, value: Value, coins: Coins) -> Report:
    """Return a report of a value: the only one of a fresh answer, the memo of a memoized one."""
    return _RANDOMIZERS[mechanism](integers, value, coins)


def repeat(mechanism: str, parameters: Integers, memo_integers: Integers, memo: Report, coins: Coins) -> Report:
    """Return a report of a memo."""
    if mechanism in ("oue", "sue", "rappor"):
        assert isinstance(memo, frozenset)
        flip = parameters.get("threshold_flip", 0)
        ones, zeros = parameters.get("threshold_irr_1", 2**64 - flip), parameters.get("threshold_irr_0", flip)
        bits = range(memo_integers["k" if mechanism == "rappor" else "d"])
        return frozenset(bit for bit in bits if coins.coin(ones if bit in memo else zeros))
    if coins.coin(parameters["threshold_keep"]):
        return memo
    return _any_report(mechanism, memo_integers, coins)


def _any_report(mechanism: str, integers: Integers, coins: Coins) -> Report:
    if mechanism == "grr":
        return coins.uniform(integers["d"])
    if mechanism == "pgr":
        return coins.uniform(count_points(integers["order"], integers["dimension"]))
    return _subset(integers["d"] + integers.get("ticks", 0), integers["weight"], coins)


def _grr(integers: Integers, value: Any, coins: Coins) -> Report:
    if coins.coin(integers["threshold"]):
        return int(value)
    other = coins.uniform(integers["d"] - 1)
    return other + int(other >= value)


def _subset(size: int, weight: int, coins: Coins) -> frozenset[int]:
    """Return one of the sets of `weight` integers below `size`: one integer after the other, of those that are left."""
    left = list(range(size))
    return frozenset(left.pop(coins.uniform(len(left))) for _ in range(weight))


def _ss(integers: Integers, value: Any, coins: Coins) -> Report:
    inside = coins.coin(integers["threshold"])
    drawn = _subset(integers["d"] - 1, integers["weight"] - inside, coins)
    others = frozenset(other + (other >= value) for other in drawn)
    return others | {value} if inside else others


def _privset(integers: Integers, value: Any, coins: Coins) -> Report:
    d, ticks = integers["d"], integers["ticks"]
    held = frozenset(value) | frozenset(range(d, d + ticks - len(value)))
    meets = coins.coin(integers["threshold"])
    sets = combinations(range(d + ticks), integers["weight"])
    choices = [one for one in map(frozenset, sets) if bool(one & held) == meets]
    return choices[coins.uniform(len(choices))]


def _unary(integers: Integers, value: Any, coins: Coins) -> Report:
    held = value if isinstance(value, frozenset) else {value}
    p, q = integers["threshold_p"], integers["threshold_q"]
    return frozenset(bit for bit in range(integers["d"]) if coins.coin(p if bit in held else q))


def _window(integers: Integers, value: Any, coins: Coins) -> Report:
    width, outputs = 2 * integers["reach"] + 1, integers["d"] + 2 * integers["reach"]
    if value is None:
        return coins.uniform(outputs)
    if coins.coin(integers["threshold"]):
        return int(value) + coins.uniform(width)
    other = coins.uniform(outputs - width)
    return other + width * int(other >= value)


def _rappor(integers: Integers, value: Any, coins: Coins) -> Report:
    flips = [coins.coin(integers["threshold_prr"]) for _ in range(integers["k"])]
    return frozenset(bit for bit, flip in enumerate(flips) if flip != (bit in value))


def _pgr(integers: Integers, value: Any, coins: Coins) -> Report:
    order, dimension = integers["order"], integers["dimension"]
    on = coins.coin(integers["threshold"])
    size, prime = count_points(order, dimension), integers["prime"]
    point = point_of(place_of(int(value), size, prime), order, dimension)
    pivot = point.index(1)
    others = order ** (dimension - 1)
    number = 1 + coins.uniform(others - 1) if on else coins.uniform(others)
    vector = _digits(number, order, dimension - 1)
    vector.insert(pivot, 0)
    product = sum(one * other for one, other in zip(vector, point, strict=True))
    vector[pivot] = (0 if on else 1) - product
    return number_at(rank_of(vector, order), size, prime)


def place_of(number: int, size: int, prime: int) -> int:
    """Return the place of a point of this number."""
    place = pow(size - 1 - number, 3, prime)
    while place >= size:
        place = pow(place, 3, prime)
    return place


def number_at(place: int, size: int, prime: int) -> int:
    """Return the number of the point at a place."""
    root = (2 * prime - 1) // 3
    number = pow(place, root, prime)
    while number >= size:
        number = pow(number, root, prime)
    return size - 1 - number


def count_points(order: int, dimension: int) -> int:
    """Return K, the number of points."""
    return int((order**dimension - 1) // (order - 1))


def point_of(number: int, order: int, dimension: int) -> list[int]:
    """Return the vector of the point at a place: the points whose first 1 stands later come before."""
    for free in range(dimension):
        if number < order**free:
            return [0] * (dimension - 1 - free) + [1] + _digits(number, order, free)
        number -= order**free
    raise AssertionError("there is no such point")


def rank_of(vector: list[int], order: int) -> int:
    """Return the place of the point that a vector lies on, once it is scaled."""
    first = next(place for place, one in enumerate(vector) if one % order)
    scale = pow(vector[first], -1, order)
    digits = [one * scale % order for one in vector[first + 1 :]]
    number = 0
    for digit in digits:
        number = number * order + digit
    return count_points(order, len(digits)) + number


def _digits(number: int, base: int, count: int) -> list[int]:
    return [number // base**place % base for place in reversed(range(count))]


_RANDOMIZERS = {
    "grr": _grr,
    "ss": _ss,
    "pgr": _pgr,
    "privset": _privset,
    "oue": _unary,
    "sue": _unary,
    "window": _window,
    "rappor": _rappor,
}
