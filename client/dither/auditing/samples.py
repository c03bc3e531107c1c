"""Samples: the processes that draw them, and bounds from counts of an event in them."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, sqrt
from statistics import NormalDist
from threading import Thread
from time import sleep
from typing import Any, Protocol

from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen

# The processes that draw the samples: this one, or one a core, each a share of them.


class Spread(Protocol):
    """The way in which work for so many samples is done."""

    def __call__(self, work: Callable[[int], Any], samples: int, each: int = 1, /) -> list[Any]:
        """Do it in shares, and return what each share came to. A sample takes as long as `each` usual ones."""


SHARES = 4
"""Shares a process: those that are done early take another one."""
WORTH = 1_000
"""Samples for which it is worth to start processes."""

LOOKS_EVERY_S = 0.25

_work: Callable[[int], Any] = lambda share: None  # noqa: E731


def in_turn(work: Callable[[int], Any], samples: int, each: int = 1) -> list[Any]:
    """Do all of it here."""
    return [work(samples)] if samples else []


def over_cores(processes: int = os.cpu_count() or 1) -> Spread:
    """Return what forks so many processes. Their randomness must be the system's: all others would draw the same."""
    if processes == 1 or sys.platform != "linux":
        return in_turn

    def spread(work: Callable[[int], Any], samples: int, each: int = 1) -> list[Any]:
        global _work
        if samples * each < WORTH:
            return in_turn(work, samples)
        _work = work  # which a child inherits: it need not be such that it can be sent to one
        parts = processes * SHARES
        shares = [samples // parts + (place < samples % parts) for place in range(parts)]
        with _interrupts_held() as let_in, _forking(processes) as pool:
            results = [pool.submit(_do, share) for share in shares]  # the first one forks them all
            let_in()
            return _collected(results)

    return spread


@contextmanager
def _forking(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of forks. They are killed where the block raises: nobody waits for their shares then."""
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _end_with, (os.getpid(),)) as pool:
        try:
            yield pool
        except BaseException:
            for each in multiprocessing.active_children():
                if each not in others:
                    each.kill()
            raise


def _end_with(parent: int) -> None:
    """Have this process end when its parent does: one that is killed would leave it at work to the end of its share."""

    def look() -> None:
        while os.getppid() == parent:
            sleep(LOOKS_EVERY_S)
        os._exit(1)

    Thread(target=look, daemon=True).start()


def _collected(results: "Sequence[Future[Any]]") -> list[Any]:
    """Return all results; raise ConfigurationError where a process ended before it had its own.

    Waits are short, because an interrupt that comes right before one is seen after it.
    """
    left: Collection[Future[Any]] = results
    try:
        while left:
            done, left = wait(left, LOOKS_EVERY_S, FIRST_EXCEPTION)
            for each in done:
                each.result()
    except BrokenProcessPool:
        raise ConfigurationError(
            "a process that drew samples ended: it was killed, perhaps for want of memory, or the randomizer ends its "
            "process. --processes 1 draws in this one"
        ) from None
    return [each.result() for each in results]


@contextmanager
def _interrupts_held() -> Iterator[Callable[[], None]]:
    """Hold interrupts back until the yielded function is called, or the context ends.

    A pool starts within, so that an interrupt comes when its `with` can end it: one that comes while it starts would
    leave processes and threads behind that nobody ends. They have the same mask, and leave interrupts to this process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def let_in() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_in
    finally:
        let_in()


def _do(share: int) -> Any:
    return _work(share)


# Bounds from counts of an event: a lower bound of the privacy loss, and the one to expect of so many samples.
#
# Let an event have probability P under one input and Q under another. In N samples of each it happens a and b times.
# With probability at least 1 - alpha both
#
#     P >= L(a)      Q <= U(b)      each at alpha / 2, by Clopper and Pearson 1934
#
# so the loss is at least ln(L(a) / U(b)). An event that is chosen before the samples are drawn needs no correction; one
# of k such events is tested at alpha / k.
#
# An event that never happens under the other input says more than b = 0 among N: both sides together have
#
#     P[a or more, and none of the other] = B(a; N, P) (1 - Q)^N <= max over Q of B(a; N, e^eps Q) (1 - Q)^N
#
# where B is the binomial law's upper tail and P is at most e^eps Q. Its logarithm is concave in Q. The largest eps at
# which that is alpha is a lower bound of the loss, and the probability itself the p-value of an epsilon.
#
# Devices that are paired with each other are no independent samples: two in one state are both right, or not. With n of
# them in S states of equal probability, each of k in a state is right with 1 / k, so the number that is right has the
# variance sum (1 - 1 / k) over the occupied states + Var[occupied states]. It is at most that of the binomial law where
# few are right, and up to 1.5 times that where most are. With n / 2 samples in place of n it is twice that.


NODES = 41
"""Quantiles that stand for a count's law where it is nearly normal."""
NORMAL_FROM = 8.0
"""Standard deviation of a count from which it is."""
ERROR_MIN = 1e-15
"""Errors below this are not told apart."""
NEWTON_MAX = 12
"""Steps towards a quantile before it is bisected: where floating point is too coarse for more."""
_TINY = 1e-300


@lru_cache(maxsize=4096)
def least_share(count: int, n: int, alpha: float) -> float:
    """Return the Clopper-Pearson lower bound of a probability, at level 1 - alpha, of `count` hits among n."""
    return 0.0 if count == 0 else _beta_quantile(alpha, count, n - count + 1)


def most_share(count: int, n: int, alpha: float) -> float:
    """Return the Clopper-Pearson upper bound."""
    return 1.0 - least_share(n - count, n, alpha)


def share_interval(count: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a probability, at level 1 - alpha."""
    return least_share(count, n, alpha / 2), most_share(count, n, alpha / 2)


def least_share_of_paired(count: int, n: int, alpha: float) -> float:
    """Return a lower bound of a probability where devices are paired with each other: two count as one sample."""
    return least_share(count // 2, n // 2, alpha)


def paired_interval(count: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Return an interval of it, at level 1 - alpha or more."""
    return least_share_of_paired(count, n, alpha / 2), 1.0 - least_share_of_paired(n - count, n, alpha / 2)


def loss_bound(hits: int, others: int, n: int, alpha: float) -> float:
    """Return what so many hits among n samples of one input and of another prove at 1 - alpha, in epsilon; from 0."""
    least = least_share(hits, n, alpha / 2)
    return max(0.0, log(least / most_share(others, n, alpha / 2))) if least else 0.0


def loss_p_value(hits: int, others: int, n: int, epsilon: float) -> float:
    """Return the least error at which `loss_bound` proves more than epsilon."""
    if loss_bound(hits, others, n, 1.0) <= epsilon:
        return 1.0
    return exp(_root(lambda error: loss_bound(hits, others, n, exp(error)) > epsilon, log(ERROR_MIN), 0.0)[1])


def never_bound(hits: int, n: int, alpha: float) -> float:
    """Return what so many hits among n prove where an event never happened among n of the other input, in epsilon."""
    if never_p_value(hits, n, 0.0) >= alpha:
        return 0.0
    return _root(lambda epsilon: never_p_value(hits, n, epsilon) >= alpha, 0.0, 2.0 + log(n) - log(alpha))[0]


@lru_cache(maxsize=4096)
def never_p_value(hits: int, n: int, epsilon: float) -> float:
    """Return the most that so many hits, and none of the other input, may be likely at a loss of epsilon."""
    if hits == 0:
        return 1.0

    def likely(q: float) -> float:
        p = min(1.0, exp(epsilon) * q)
        return (1.0 if p == 1.0 else _beta_cdf(p, hits, n - hits + 1)) * exp(n * log1p(-q))

    low, high = 0.0, min(exp(-epsilon), 1 - 2.0**-50)
    for _ in range(80):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (one, high) if likely(one) < likely(other) else (low, other)
    return min(1.0, likely((low + high) / 2) * (1 + 1e-9))


def _root(over: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return two near numbers, of which what is asked holds of the larger one alone, by bisection."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if over(middle) else (middle, high)
    return low, high


def share_p_value(count: int, n: int, p: float) -> float:
    """Return P[`count` or more of n], where each has the probability p."""
    return 1.0 if count == 0 else _beta_cdf(p, count, n - count + 1)


@frozen
class Expected:
    """Mean and standard deviation of a bound over all samples that could have been drawn."""

    mean: float
    deviation: float


def expected_bound(p: float, q: float, n: int, alpha: float) -> Expected:
    """Return what `loss_bound` has to be expected to give for an event of these two probabilities."""
    least = [(weight, least_share(hits, n, alpha / 2)) for hits, weight in _counts(n, p)]
    most = [(weight, log(most_share(others, n, alpha / 2))) for others, weight in _counts(n, q)]
    logs = [(weight, log(share) if share else -inf) for weight, share in least]  # once each, not for every pair
    return _mean([(weight * other, max(0.0, high - low)) for weight, high in logs for other, low in most])


def expected_share(p: float, n: int, alpha: float) -> Expected | None:
    """Return what `least_share` has to be expected to give for this probability; None if that is nothing."""
    expected = _mean([(weight, least_share(hits, n, alpha)) for hits, weight in _counts(n, p)])
    return expected if expected.mean else None


def roughly_expected(p: float, q: float, n: int, alpha: float) -> float:
    """Return the bound of the counts that are most likely: about the mean, at once."""
    return loss_bound(round(n * p), round(n * q), n, alpha)


def _mean(found: list[tuple[float, float]]) -> Expected:
    """Return mean and deviation of numbers, each after its weight."""
    total = sum(weight for weight, _ in found)
    mean = sum(weight * bound for weight, bound in found) / total
    return Expected(mean, sqrt(sum(weight * (bound - mean) ** 2 for weight, bound in found) / total))


def _counts(n: int, p: float) -> list[tuple[int, float]]:
    """Return counts that stand for a binomial law, with their weights: all likely ones, or quantiles of the normal."""
    if not 0 < p < 1:
        return [(round(n * p), 1.0)]
    mean, deviation = n * p, sqrt(n * p * (1 - p))
    if deviation >= NORMAL_FROM:
        quantiles = ((place + 0.5) / NODES for place in range(NODES))
        normal = NormalDist(mean, deviation)
        return [(min(max(round(normal.inv_cdf(quantile)), 0), n), 1.0) for quantile in quantiles]
    low, high = max(0, int(mean - 8 * deviation - 8)), min(n, int(mean + 8 * deviation + 8))
    log_n = lgamma(n + 1)
    weights = [
        (count, exp(log_n - lgamma(count + 1) - lgamma(n - count + 1) + count * log(p) + (n - count) * log1p(-p)))
        for count in range(low, high + 1)
    ]
    return [(count, weight) for count, weight in weights if weight > 1e-9]  # the rest moves nothing


def _beta_quantile(share: float, a: float, b: float) -> float:
    """Return x with P[Beta(a, b) <= x] = share, rounded down: by Newton's method, then by bisection.

    The logarithm of that probability is concave over that of x, so steps converge. Each goes a trifle further, so that
    x is soon between two of them, which ends the search.
    """
    low, high, x = 0.0, 1.0, a / (a + b)
    front, steps = lgamma(a + b) - lgamma(a) - lgamma(b), 0
    while high - low > 1e-12 * high:
        reached = _beta_cdf(x, a, b)
        low, high = (x, high) if reached < share else (low, x)
        if high < _TINY:
            return 0.0
        density = exp(front + (a - 1) * log(x) + (b - 1) * log1p(-x))
        steps += 1
        if steps <= NEWTON_MAX and reached and density:
            beyond = 4e-13 if reached < share else -4e-13
            x *= exp(min(log(share / reached) * reached / (density * x) + beyond, 700.0))
        if steps > NEWTON_MAX or not low < x < high:
            x = (low + high) / 2
    return low


def _beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return float(x > 0.0)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1.0 - front * _fraction(1 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d or _TINY)
    value, before, place = d, inf, 1
    while abs(value - before) > 1e-12 * abs(value):
        before = value
        even, twice = place * (b - place) * x, a + 2 * place
        odd = -(a + place) * (a + b + place) * x
        for term in (even / ((twice - 1) * twice), odd / (twice * (twice + 1))):
            d = 1.0 / ((1.0 + term * d) or _TINY)
            c = (1.0 + term / c) or _TINY
            value *= c * d
        place += 1
    return value
