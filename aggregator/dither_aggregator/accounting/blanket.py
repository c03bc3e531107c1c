"""The privacy blanket: what one answer loses to somebody who sees a total of n reports, but no report by itself.

A total has no order: one report hides among the others. Every report of a two-level mechanism is with probability

    gamma = K low = (1 - i) / (1 - s / K)

a uniform one of the K possible reports, whatever the answer was: all of them together are the blanket. With
Z = 0 with probability 1 - gamma, else Z = K (P[y | v] - e^epsilon P[y | w]) of a uniform report y, n reports, of which
one is of the answer v in one world and of w in the other, are (epsilon, delta)-private if

    E[max(0, Z_1 + .. + Z_n)] <= gamma n delta

for any two answers v and w. It is so for every pair alike. Balle, Bell, Gascon, Nissim 2019, section 5. Closed forms
that are better known, and the "variation ratio", may be below what enumeration finds: they are not used.

**From both sides.** Z has five values. Each is put on a grid as one of its two neighbours, at random, with the same
mean. The sum S gets a noise N by that, whose mean is zero for every S. So E[max(0, S + N)] is at least E[max(0, S)],
for the function is convex. So what is computed on the grid is an upper bound of the left side. As
max(0, a + b) <= max(0, a) + max(0, b), a lower bound is E[max(0, S + N - m)] - E[max(0, N - m)], of which the last is
at most n h^2 / (4 m) exp(-2 m^2 / (n h^2)) for steps of h (Hoeffding 1963).

The n-th power of the characteristic function of Z gives the law of S modulo the grid's length. Chernoff's
method bounds what lies beyond its ends, which is added, and so are the roundings of 53 bits.

**Several reports of one device.** Other answers in r reports are r changes, one after the other. By group privacy they
cost r epsilon, at delta times r e^{(r - 1) epsilon}.

**Not for** memoized answers, whose reports repeat their noise, nor where reports name cells that n counts together:
there is no figure then. It supposes that all n reports are honest.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from functools import lru_cache
from math import ceil, exp, inf, log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len

from dither_shared.cells import Cells
from dither_shared.errors import ConfigurationError
from dither_shared.exact import MICRO, from_micro
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw
from dither_shared.registry import Metric, Registry
from dither_shared.releases import WINDOW_DAYS, reports_in

DELTA = Decimal("1e-6")
GROUP_EPSILONS = (0.1, 0.3, 1.0, 2.0)
"""The epsilons of a report that are tried, for what several make of delta."""
HUNDREDTH = Decimal("0.01")
STEPS = 1e-3
"""Bounds are looked for to such a part of epsilon, upward."""
REPORTS_MIN, REPORTS_MAX = 100, 100_000
SPREAD = 10.0
"""Standard deviations of the sum that the grid reaches to either side of its mean, before tails are bounded."""
GRID_MIN = 1 << 14
GRID_EACH = (6_000, 600)
"""Points of the grid for each square root of n, from below and from above: then both are within 1 % of each other.

The noise of the grid adds less than a tenth of a percent to the variance from above. From below it is shifted away.
"""
TINY = 1e-150
TILTS = np.geomspace(0.25, 40.0, 60)
"""The lambdas that are tried for Chernoff's bound, over the sum's standard deviation. Any of them gives a bound."""
SHIFT = 4.0
"""m over h sqrt(n)."""
ROUNDING = 2.0**-50

Floats = npt.NDArray[np.float64]


def law_of(cells: Cells) -> TwoLevelLaw | None:
    """Return the law of fresh reports of one value in one cell; None of others, for which there is no figure."""
    mechanism = cells.mechanism if not cells.several else None
    return mechanism.law if isinstance(mechanism, OneShot) and mechanism.ticks == 1 else None


def rounded_down(n: float) -> int:
    """Return a number of reports rounded down to 1, 2 or 5 times a power of ten, REPORTS_MAX at most.

    So a bound is computed once for many windows. It holds for more reports as well.
    """
    n = min(n, REPORTS_MAX)
    powers = (factor * 10**power for power in range(8) for factor in (1, 2, 5))
    return max((each for each in powers if each <= n), default=0)


@lru_cache(maxsize=256)
def epsilon_of(law: TwoLevelLaw, n: int, delta: Decimal = DELTA) -> float | None:
    """Return the epsilon of one answer among n reports, of n devices, rounded up; None where it is no less than theirs.

    It is an upper bound, within 1 % of the least that the blanket shows.
    """
    return _least(law, n, float(delta), upper=True)


def epsilon_of_device(law: TwoLevelLaw, n: int, reports: int, delta: Decimal = DELTA) -> float | None:
    """Return that of all answers of one device, which has so many of the n reports at most."""
    for most in GROUP_EPSILONS if reports > 1 else (0.0,):
        each = epsilon_of(law, n, delta / (reports * Decimal(exp((reports - 1) * most)).quantize(HUNDREDTH, ROUND_UP)))
        if each is not None and (reports == 1 or each <= most):
            return reports * each
    return None


def below(law: TwoLevelLaw, n: int, delta: Decimal = DELTA) -> float | None:
    """Return a lower bound of the epsilon that the blanket shows, which says how tight `epsilon_of` is."""
    return _least(law, n, float(delta), upper=False)


def _least(law: TwoLevelLaw, n: int, delta: float, *, upper: bool) -> float | None:
    whole = log(law.exp_epsilon)
    if n < REPORTS_MIN or BlanketSum(law, n, whole * (1 - STEPS)).delta(upper=True) > delta:
        return None
    low, high = 0.0, whole * (1 - STEPS)
    while high - low > STEPS / 4 * high:
        middle = sqrt(low * high) if low else high / 8
        if BlanketSum(law, n, middle).delta(upper=upper) > delta:
            low = middle
        else:
            high = middle
        if high < whole / 10**6:
            break
    return ceil(high * MICRO) / MICRO if upper else low


@dataclass(frozen=True)
class BlanketSum:
    """The sum of n values of Z, at one epsilon."""

    law: TwoLevelLaw
    n: int
    epsilon: float

    @property
    def blanket(self) -> float:
        """Gamma."""
        return float((1 - self.law.inside) / (1 - self.law.share))

    @property
    def values(self) -> tuple[Floats, Floats]:
        """The values of Z, and the probability of each: float64[5] twice."""
        law, factor = self.law, exp(self.epsilon)
        high, low = float(law.inside / law.share), self.blanket
        both = float(law.overlap * law.share)
        one = float(law.share) - both
        values = [0.0, high - factor * low, low - factor * high, high * (1 - factor), low * (1 - factor)]
        parts = np.array([one, one, both, 1 - 2 * one - both])
        return np.array(values), np.concatenate([[1 - self.blanket], self.blanket * parts])

    def delta(self, *, upper: bool) -> float:
        """Return a bound, from above or from below, of the delta that the blanket shows."""
        values, chances = self.values
        n, mean = self.n, float(values @ chances)
        deviation = sqrt(n * float((values - mean) ** 2 @ chances))
        size = next_fast_len(max(GRID_MIN, ceil(GRID_EACH[upper] * sqrt(n))), real=True)
        size += size % 2
        step = 2 * SPREAD * deviation / size
        bottom = n * mean - SPREAD * deviation
        top = bottom + size * step
        places = values / step
        first = np.floor(places)
        points = np.concatenate([first, first + 1]).astype(np.int64)
        weights = np.concatenate([chances * (1 - (places - first)), chances * (places - first)])
        sums, rounded = self._powered(points, weights, size)
        # Point k stands for the one number congruent to k, modulo the grid's length, that lies between the ends.
        start = ceil(bottom / step)
        numbers = (start + np.arange(size)) * step
        law = np.maximum(np.roll(sums, -(start % size)), 0.0)
        noise = rounded * float(np.maximum(numbers, 0.0).sum())
        grid = np.asarray(points * step, dtype=np.float64)
        scale = self.blanket * n
        if upper:
            return (float(law @ np.maximum(numbers, 0.0)) + noise + self._beyond(grid, weights, top)) / scale
        shift = SHIFT * step * sqrt(n)
        least = float(law @ np.maximum(numbers - shift, 0.0)) - noise
        least -= n * step**2 / (4 * shift) * exp(-2 * shift**2 / (n * step**2))
        # A sum below the bottom is counted at up to the top. One above the top may be left out: this is a lower bound.
        return (least - max(top, 0.0) * self._tail(-grid, weights, -bottom)) / scale

    def _powered(self, points: npt.NDArray[np.int64], weights: Floats, size: int) -> tuple[Floats, float]:
        """Return the law of the sum of n, modulo the grid's length, and how far each of its numbers may be off."""
        place, roots = np.arange(size // 2 + 1, dtype=np.int64), _roots(size)
        transform = np.zeros(len(place), dtype=np.complex128)
        for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
            transform += weight * roots[place * (point % size) % size]
        powered = _power(transform, self.n)
        whole = 2 * float(np.abs(powered).sum()) / size
        return irfft(powered, size), whole * ROUNDING * (self.n + 64)

    def _beyond(self, grid: Floats, weights: Floats, top: float) -> float:
        """Return a bound of E[S; S > top]: (top + 1 / lambda) times Chernoff's bound of P[S > top]."""
        return min((max(top, 0.0) + 1 / tilt) * exp(chance) for tilt, chance in self._chernoff(grid, weights, top))

    def _tail(self, grid: Floats, weights: Floats, end: float) -> float:
        """Return a bound of P[S > end]."""
        return min((exp(chance) for _, chance in self._chernoff(grid, weights, end)), default=inf)

    def _chernoff(self, grid: Floats, weights: Floats, end: float) -> list[tuple[float, float]]:
        mean = float(grid @ weights)
        deviation = sqrt(self.n * float((grid - mean) ** 2 @ weights))
        found = []
        for tilt in (TILTS / deviation).tolist():
            largest = float(tilt * grid.max())
            moment = largest + log(float(np.exp(tilt * grid - largest) @ weights))
            found.append((tilt, min(0.0, self.n * moment - tilt * end)))
        return found


@lru_cache(maxsize=2)
def _roots(size: int) -> npt.NDArray[np.complex128]:
    """Return the roots of one."""
    return np.asarray(np.exp(-2j * np.pi / size * np.arange(size)))


def _power(base: npt.NDArray[np.complex128], n: int) -> npt.NDArray[np.complex128]:
    """Return the n-th power by squaring; what becomes less than TINY is zero."""
    powered = np.ones_like(base)
    while n:
        if n & 1:
            powered *= base
        base = base * base
        base[np.abs(base) < TINY] = 0.0
        n >>= 1
    return powered


# `dither privacy --released`: what answers lose to somebody who sees published totals, and no report by itself.


REPORTS = (1_000, 10_000, 100_000)
_LEGEND = f"""\
release   the epsilon of a release by its own noise: whether a device took part is hidden as well. It is that of a
          device that is added or taken away; other answers in place of a device's cost up to twice as much. It
          holds at publish_delta where the registry has one and the noise is Gaussian
wire      the epsilon of all reports of a device in a window, for whoever sees them one by one: of other answers
{" ".join(f"{n:>9,}" for n in REPORTS)}   the epsilon of the same answers by the order that a sum of so many honest
          reports does not have, at delta {DELTA}; "-" where there is no figure below that of the wire. It is for memos
          and for plans of several cells never told"""


def show(registry: Registry, metrics: Sequence[Metric], *, as_json: bool) -> None:
    """Print it for the metrics that are published."""
    told = [_of(registry, metric) for metric in metrics if metric.name in registry.published]
    if not told:
        raise ConfigurationError("none of these metrics is published: `publish` says so, in the registry")
    if as_json:
        print(json.dumps(told))
        return
    width = max(6, *(len(str(each["metric"])) for each in told))
    heads = "  ".join(f"{n:>9,}" for n in REPORTS)
    print(f"{'metric':{width}}  {'window':7}  {'reports':>7}  {'release':>7}  {'wire':>7}  {heads}")
    for each in told:
        hidden = "  ".join(f"{'-' if epsilon is None else f'{epsilon:.3g}':>9}" for _, epsilon in each["among"])
        print(
            f"{each['metric']:{width}}  {each['window']:7}  {each['reports']:>7}  {each['epsilon_release']:>7g}  "
            f"{each['epsilon_wire']:>7g}  {hidden}"
        )
    print(f"\n{_LEGEND}")


def _of(registry: Registry, metric: Metric) -> dict[str, Any]:
    publishing, law = registry.published[metric.name], law_of(metric.cells)
    reports = reports_in(WINDOW_DAYS[publishing.window], memoized=metric.memoized, reports=metric.charges)
    wire = from_micro(min(reports, metric.charges) * metric.charge)
    among = [(n, law and epsilon_of_device(law, n, reports)) for n in REPORTS]
    return {
        "metric": metric.name,
        "window": publishing.window,
        "reports": reports,
        "epsilon_release": from_micro(publishing.micro),
        "epsilon_wire": wire,
        "delta": float(DELTA),
        "among": among,
    }
