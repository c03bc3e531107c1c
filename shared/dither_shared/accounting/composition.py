"""The privacy loss of several outputs together, at a delta that is allowed: each bound with who proved it.

An output of epsilon has two distributions P and Q, of two answers, with P <= e^epsilon Q either way. Several outputs
are (e, delta)-private if P(S) <= e^e Q(S) + delta for every set S of what they are together. With delta = 0 the
epsilons add; a delta > 0 allows less than their sum. Each output may depend on earlier ones, as long as the epsilons
were fixed before.

Equal ones. Randomized response is the worst output of its epsilon: every other one can be computed from it. k of them
have the privacy loss (k - 2l) epsilon with probability C(k, l) e^{(k - l) epsilon} / (1 + e^epsilon)^k, hence exactly

    delta(e) = sum over losses L above e of P[L] (1 - e^{e - L})

so the bound is reached. Kairouz, Oh, Viswanath 2015, theorem 3.3.

Any ones. An output of epsilon is (epsilon^2 / 2)-zCDP and these add: Bun, Steinke 2016, proposition 1.4. rho-zCDP is
(e, delta)-private for each order a > 1 with

    e = rho a + ln(1 / (a delta)) / (a - 1) + ln(1 - 1 / a)

Canonne, Kamath, Steinke 2020, proposition 12. Its derivative, rho - ln(1 / (a delta)) / (a - 1)^2, has one root.

A loss. At (e, delta) the loss ln(P[y] / Q[y]) of an output y of P may exceed e with a chance above delta. The chance
that it exceeds rho + 2 sqrt(rho ln(1 / delta)) is at most delta: Markov's inequality for e^{(a - 1) loss} at the best
order. Bun, Steinke 2016.

All results are upper bounds: every step rounds upward, in decimals of 50 digits. Only the order is looked for in
floats, because each order has a bound that holds.
"""

from bisect import bisect_left
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache
from math import log, sqrt

from dither_shared.errors import InvalidParameter
from dither_shared.exact import MICRO, digits

_UP = digits(50, ROUND_CEILING)
_DOWN = digits(50, ROUND_FLOOR)
STEPS = 100
"""Halvings on the way to the best order of zCDP."""


def checked_delta(delta: Decimal) -> Decimal:
    """Return a delta that can be allowed; raises InvalidParameter outside 1e-100 to 1/2."""
    if not (delta.is_finite() and Decimal("1e-100") <= delta <= Decimal("0.5")):
        raise InvalidParameter(f"delta must be from 1e-100 to 0.5, such as 1e-6, got {delta}")
    return delta


@lru_cache(maxsize=256)
def optimal(micro: int, times: int, delta: Decimal) -> int:
    """Return the least epsilon, in micro-epsilon, that bounds `times` >= 1 outputs of `micro` each at this delta."""
    losses = _losses(micro, times)
    return bisect_left(range(times * micro), True, key=lambda epsilon: _delta(losses, epsilon) <= delta)


def delta_of(micro: int, times: int, epsilon: int) -> Decimal:
    """Return the least delta at which `times` outputs of `micro` each are bounded by `epsilon`, both in micro-epsilon.

    Rounded upward in the 45th digit or later.
    """
    return _delta(_losses(micro, times), epsilon)


def _losses(micro: int, times: int) -> list[tuple[int, Decimal, Decimal]]:
    """Return each loss L >= 0, largest first, with P[L] rounded up and e^-L rounded down."""
    true = _UP.divide(1, _DOWN.add(1, _exp_below(-micro)))
    odds_of_lie = _exp_above(-micro)
    chance = _UP.power(true, times).next_plus(_UP)
    losses = []
    for lies in range(times // 2 + 1):
        loss = (times - 2 * lies) * micro
        losses.append((loss, chance, _exp_below(-loss)))
        ways = _UP.divide(times - lies, lies + 1)
        chance = _UP.multiply(_UP.multiply(chance, ways), odds_of_lie)
    return losses


def _delta(losses: list[tuple[int, Decimal, Decimal]], epsilon: int) -> Decimal:
    total, least = Decimal(0), _exp_below(epsilon)
    for loss, chance, inverse in losses:
        if loss <= epsilon:
            break
        share = _UP.subtract(1, _DOWN.multiply(least, inverse))
        total = _UP.add(total, _UP.multiply(chance, share))
    return total


@lru_cache(maxsize=256)
def of_zcdp(rho: Fraction, delta: Decimal) -> int:
    """Return an epsilon, in micro-epsilon, that bounds outputs which are together rho-zCDP at this delta."""
    if not rho:
        return 0
    order = Decimal(_best_order(float(rho), -float(delta.ln(_UP))))
    above_one = _DOWN.subtract(order, 1)
    moments = _UP.multiply(_UP.divide(rho.numerator, rho.denominator), order)
    tail = _UP.minus(_ln_below(_DOWN.multiply(order, delta)))
    # A negative logarithm is rounded up by dividing it by more.
    tail = _UP.divide(tail, above_one if tail > 0 else _UP.subtract(order, 1))
    epsilon = _UP.add(_UP.add(moments, tail), _ln_above(_UP.divide(_UP.subtract(order, 1), order)))
    return max(int(_UP.multiply(epsilon, MICRO).to_integral_value(ROUND_CEILING)), 0)


def tail_of_zcdp(rho: Fraction, delta: Decimal) -> int:
    """Return what the privacy loss of rho-zCDP exceeds with a chance of at most delta, in micro-epsilon."""
    exact = _UP.divide(rho.numerator, rho.denominator)
    root = _UP.multiply(exact, _UP.minus(_ln_below(delta))).sqrt(_UP).next_plus(_UP)
    return int(_UP.multiply(_UP.add(exact, _UP.multiply(2, root)), MICRO).to_integral_value(ROUND_CEILING))


def _best_order(rho: float, log_of_inverse: float) -> float:
    """Return about the order a with rho (a - 1)^2 = ln(1 / (a delta)): the left side grows with a, the right falls."""
    low, high = 1.0, 1 + sqrt(log_of_inverse / rho)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if rho * (middle - 1) ** 2 < log_of_inverse - log(middle):
            low = middle
        else:
            high = middle
    return high


# exp and ln of Decimal are correctly rounded: the neighbour of a result bounds the true number.


def _exp_above(micro: int) -> Decimal:
    return _UP.divide(micro, MICRO).exp(_UP).next_plus(_UP)


def _exp_below(micro: int) -> Decimal:
    return _DOWN.divide(micro, MICRO).exp(_DOWN).next_minus(_DOWN)


def _ln_above(number: Decimal) -> Decimal:
    return number.ln(_UP).next_plus(_UP)


def _ln_below(number: Decimal) -> Decimal:
    return number.ln(_DOWN).next_minus(_DOWN)
