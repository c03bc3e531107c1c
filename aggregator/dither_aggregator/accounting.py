"""The privacy of all that a device says, and of what totals show of it: `dither privacy --scenario` and `--released`.

**Scenarios.** What a device says about some metrics in so long, and how much that tells. The sum is basic composition,
which is what devices are charged. At a delta less may be proven.

**The privacy blanket.** What one answer loses to somebody who sees a total of n reports, but no report by itself.

A total has no order: one report hides among the others. Every report of a two-level mechanism is with probability

    gamma = K low = (1 - i) / (1 - s / K)

a uniform one of the K possible reports, whatever the answer was: all of them together are the blanket. With
Z = 0 with probability 1 - gamma, else Z = K (P[y | v] - e^epsilon P[y | w]) of a uniform report y, n reports, of which
one is of the answer v in one world and of w in the other, are (epsilon, delta)-private if

    E[max(0, Z_1 + .. + Z_n)] <= gamma n delta

for any two answers v and w. It is so for every pair alike. Balle, Bell, Gascon, Nissim 2019, section 5. Closed forms
that are better known, and the "variation ratio", may be below what enumeration finds: they are not used.

*From both sides.* Z has five values. Each is put on a grid as one of its two neighbours, at random, with the same
mean. The sum S gets a noise N by that, whose mean is zero for every S. So E[max(0, S + N)] is at least E[max(0, S)],
for the function is convex. So what is computed on the grid is an upper bound of the left side. As
max(0, a + b) <= max(0, a) + max(0, b), a lower bound is E[max(0, S + N - m)] - E[max(0, N - m)], of which the last is
at most n h^2 / (4 m) exp(-2 m^2 / (n h^2)) for steps of h (Hoeffding 1963).

The n-th power of the characteristic function of Z gives the law of S modulo the grid's length. Chernoff's
method bounds what lies beyond its ends, which is added, and so are the roundings of 53 bits.

*Several reports of one device.* Other answers in r reports are r changes, one after the other. By group privacy they
cost r epsilon, at delta times r e^{(r - 1) epsilon}.

*Not for* memoized answers, whose reports repeat their noise, nor where reports name cells that n counts together:
there is no figure then. It supposes that all n reports are honest.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, inf, log, sqrt
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len

from dither_shared.accounting import (
    NEARLY_CERTAIN,
    hundredths,
    linked_share,
    millionths_above,
    millionths_below,
    moves,
    percent_above,
    percent_below,
    sure,
    unsure,
)
from dither_shared.accounting.composition import checked_delta, of_zcdp, optimal
from dither_shared.errors import ConfigurationError, InvalidParameter
from dither_shared.exact import MICRO, exp_of_micro, from_micro
from dither_shared.frozen import frozen
from dither_shared.mechanisms import DEVICES, Cells
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw
from dither_shared.registry import Metric, Registry
from dither_shared.releases import WINDOW_DAYS, reports_in
from dither_shared.terms import periods_touched

# Everything a device says, as a tree of events, and how much it can tell together.
#
#     Outputs(micro, times)    independent outputs of one epsilon each, fixed before: reports under fresh noise, or
#                              memoized answers, each with all of its reports
#     Filter(micro, rho)       outputs whose epsilons are chosen after earlier ones were seen, as a filter admits them
#     AllOf(parts)             all of them are of one device: losses add
#     OneOf(parts)             a device is in one part only, whatever it answers: the largest loss counts
#
# A memo enters with the epsilon of its permanent part, once for each different answer. Its reports are copies of that
# part, so any number of them tells no more; r times the epsilon of a report would be too much for many of them, and too
# little for a few (`dither_shared/mechanisms/mechanism.py`).
#
# Post-processing tells no more, with whatever else it uses that does not come from the answer: P <= e^e Q + delta on
# sets of outputs holds on their images. The answers of k devices may change together, as those of a household do, and
# all that each of them says is seen: `group` composes it, and at delta 0 it is e^{k epsilon}.


BASIC = "basic composition"
ZCDP = "zCDP, conversion by Canonne, Kamath, Steinke"
OPTIMAL = "optimal for equal ones, by Kairouz, Oh, Viswanath"
PARALLEL = "parallel composition"


@frozen
class Proven:
    """One proven bound: an epsilon, in micro-epsilon, at a delta."""

    micro: int
    delta: Decimal
    proof: str


class Event:
    """Something that a device says."""

    micro: int
    """The loss at delta 0, in micro-epsilon: it holds for every outcome."""
    rho: Fraction
    """The loss as zCDP."""
    equal: tuple[int, int] | None = None
    """(micro, times), where it is so many outputs of one epsilon, or no worse than these."""

    def bounds(self, delta: Decimal) -> list[Proven]:
        """Return every bound known at a delta of 1e-100 to 1/2, the best first."""
        found = [Proven(self.micro, Decimal(0), BASIC), Proven(of_zcdp(self.rho, delta), delta, ZCDP)]
        if self.equal:
            found.append(Proven(optimal(*self.equal, delta), delta, OPTIMAL))
        return sorted(found, key=lambda bound: (bound.micro, bound.delta))


@frozen
class Outputs(Event):
    """Independent outputs of equal epsilon: reports, or memoized answers with all their reports."""

    each: int
    """Micro-epsilon."""
    times: int

    def __post_init__(self) -> None:
        if self.each < 0 or self.times < 1:
            raise InvalidParameter(
                f"outputs must be 1 or more of 0 or more micro-epsilon, got {self.times} of {self.each}"
            )

    @property
    def micro(self) -> int:  # type: ignore[override]  # read-only, like every field
        """Their sum."""
        return self.each * self.times

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """Half the sum of their squares."""
        return self.times * rho_of(self.each)

    @property
    def equal(self) -> tuple[int, int]:  # type: ignore[override]
        """Themselves."""
        return self.each, self.times


@frozen
class AllOf(Event):
    """Events of one device. Their answers may be anything, and the same: no independence of answers is needed."""

    parts: tuple[Event, ...]

    @property
    def micro(self) -> int:  # type: ignore[override]
        """The sum."""
        return sum(part.micro for part in self.parts)

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """The sum."""
        return sum((part.rho for part in self.parts), Fraction(0))

    @property
    def equal(self) -> tuple[int, int] | None:  # type: ignore[override]
        """All outputs, if each has the same epsilon."""
        each = [part.equal for part in self.parts if part.equal]
        if len(each) < len(self.parts) or len({micro for micro, _ in each}) != 1:
            return None
        return each[0][0], sum(times for _, times in each)


@frozen
class OneOf(Event):
    """Events of disjoint devices: which part a device is in must not depend on its answers."""

    parts: tuple[Event, ...]

    @property
    def micro(self) -> int:  # type: ignore[override]
        """The largest."""
        return max(part.micro for part in self.parts)

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """The largest."""
        return max(part.rho for part in self.parts)

    def bounds(self, delta: Decimal) -> list[Proven]:
        """Return the largest of the parts' best, whichever proof that has."""
        worst = max((part.bounds(delta)[0] for part in self.parts), key=lambda bound: bound.micro)
        return [Proven(worst.micro, delta, f"{PARALLEL}: {worst.proof}")]


@frozen
class Filter(Event):
    """Outputs whose epsilons are chosen as one goes, within budgets that were fixed beforehand.

    Their sum stays within `micro`, and half the sum of their squares within `rho`; with `rho_of(micro)` only the sum
    counts. Both bounds hold against whoever chooses by what they have seen: Rogers, Roth, Ullman, Vadhan 2016; Feldman,
    Zrnic 2021. A bound of the epsilons that turned out to be spent does not, however good it is.
    """

    micro: int
    rho: Fraction

    def admits(self, spent: Iterable[int], further: int) -> bool:
        """Tell whether one more output fits beside what was spent, in micro-epsilon. Ask before it is drawn."""
        each = [*spent, further]
        return sum(each) <= self.micro and sum(map(rho_of, each)) <= self.rho


def group(event: Event, devices: int) -> AllOf:
    """Return what so many devices say whose answers are the same: each has noise of its own."""
    return AllOf((event,) * devices)


def rho_of(micro: int) -> Fraction:
    """Return the zCDP of one output: epsilon^2 / 2, exactly."""
    return Fraction(micro * micro, 2 * MICRO * MICRO)


# From metrics to events: what a device says about them in so many days, or ever.


def outputs_of(metric: Metric, days: int | None = None) -> Outputs:
    """Return what a device says about a metric in any `days` days in a row, or in its whole life.

    A memoized answer enters once with its permanent epsilon, however often it is repeated.
    """
    times = metric.charges if days is None else min(metric.charges, periods_touched(metric.period_days, days))
    return Outputs(metric.charge, times)


def outputs_of_all(metrics: Sequence[Metric], days: int | None = None) -> AllOf:
    """Return the same of several metrics of one device."""
    return AllOf(tuple(outputs_of(metric, days) for metric in metrics))


SCENARIOS = {"day": 1, "month": 31, "year": 366, "life": None}
"""The longest of each, in days; a life has no end but what its metrics reserve."""
# The privacy blanket.


DELTA = Decimal("1e-6")
DEVICES_MAX = 100
PRIORS = (Fraction(1, 100), Fraction(1, 2), Fraction(99, 100))
WIDTH = 110
LITTLE = 0.01
"""A bound at a delta that gains less than this share of the sum is not worth its delta."""

_LEGEND = f"""\
sure      what a guess of 1 : 1 about a device's answers can become at most
R({DEVICES})    of {DEVICES} devices with the same answer, the share whose reports can be joined over time"""


def show_scenario(args: argparse.Namespace, registry: Registry, metrics: Sequence[Metric]) -> None:
    """Show what one device, or a group, says about these metrics of a registry."""
    scenario = Scenario(args.scenario, metrics, registry, _devices(args.devices), _delta(args.delta))
    if args.json:
        print(json.dumps(scenario.to_document()))
    else:
        scenario.show()


def _devices(devices: int | None) -> int:
    if devices is not None and not 1 <= devices <= DEVICES_MAX:
        raise ConfigurationError(f"--devices must be from 1 to {DEVICES_MAX}, got {devices}")
    return devices or 1


def _delta(text: str | None) -> Decimal:
    try:
        return DELTA if text is None else checked_delta(Decimal(text))
    except InvalidOperation:
        raise ConfigurationError(f"--delta must be a number such as 1e-6, got {text!r}") from None
    except InvalidParameter as error:
        raise ConfigurationError(f"--{error}") from None


class Scenario:
    """One device, or some that answer alike, these metrics, so many days."""

    def __init__(self, name: str, metrics: Sequence[Metric], registry: Registry, devices: int, delta: Decimal) -> None:
        self.name = name
        self.days = SCENARIOS[name]
        self.metrics = metrics
        self.others = [other for other in registry.metrics if other not in {metric.name for metric in metrics}]
        self.devices = devices
        self.delta = delta
        self.event = group(outputs_of_all(metrics, self.days), devices)
        self.apart = group(OneOf(outputs_of_all(metrics, self.days).parts), devices)
        self.exp_epsilon = exp_of_micro(self.event.micro)
        self.linked = linked_share(tuple(metric.cells for metric in metrics))

    def to_document(self) -> dict[str, object]:
        """Return all of it as plain data; probabilities and epsilons are rounded up, "at_least" down."""
        return {
            "scenario": self.name,
            "days": self.days,
            "devices": self.devices,
            "metrics": [self._of_metric(metric) for metric in self.metrics],
            "epsilon": from_micro(self.event.micro),
            "epsilon_if_each_device_answered_one": from_micro(self.apart.micro),
            "bounds": [
                {"epsilon": from_micro(bound.micro), "delta": float(bound.delta), "proof": bound.proof}
                for bound in self.event.bounds(self.delta)
            ],
            "guesses": [
                {
                    "before": float(prior),
                    "at_least": millionths_below(unsure(self.exp_epsilon, prior)),
                    "at_most": millionths_above(sure(self.exp_epsilon, prior)),
                }
                for prior in PRIORS
            ],
            "any_guess_moves_by": millionths_above(moves(self.exp_epsilon)),
            f"linked_of_{DEVICES}": self.linked,
            "holds_for": list(self._holds_for()),
            "does_not_hold_for": list(self._does_not_hold_for()),
        }

    def _of_metric(self, metric: Metric) -> dict[str, object]:
        outputs = outputs_of(metric, self.days)
        best = outputs.bounds(self.delta)[0]
        return {
            "metric": metric.name,
            "memoized": metric.memoized,
            "times": outputs.times,
            "epsilon_each": from_micro(outputs.each),
            "epsilon": from_micro(outputs.micro),
            "reports": self._reports(metric, outputs.times),
            "best": {"epsilon": from_micro(best.micro), "delta": float(best.delta), "proof": best.proof},
            f"linked_of_{DEVICES}": linked_share((metric.cells,)),
        }

    def _reports(self, metric: Metric, times: int) -> int | None:
        """Return the most reports; None where they have no end, and need none."""
        if not metric.memoized:
            return times
        return None if self.days is None else periods_touched(metric.period_days, self.days)

    # In words.

    def show(self) -> None:
        """Print it."""
        print(f"{self._title()}\n")
        print(
            f"After all of it a guess of 1 : 1 about these answers together can be {_sure(self.event.micro)} sure, no "
            f"surer.\n"
        )
        self._show_metrics()
        self._show_bounds()
        self._show_guesses()
        print("The sum holds for")
        _show_list(self._holds_for())
        print("\nThe sum does not hold for")
        _show_list(self._does_not_hold_for())

    def _title(self) -> str:
        who = "one device" if self.devices == 1 else f"each of {self.devices} devices that answer alike"
        long = "in its whole life" if self.days is None else f"in {_counted(self.days, 'day')}"
        return f"{self.name}: the most that {who} can answer {long}"

    def _show_metrics(self) -> None:
        width = max(8, *(len(metric.name) for metric in self.metrics))
        row = f"{{:{width}}}  {{:44}}  {{:>12}}  {{:>9}}  {{:>9}}  {{:>6}}".format
        print(row("metric", "answers", "epsilon each", "together", "sure", f"R({DEVICES})"))
        for metric in self.metrics:
            outputs, linked = outputs_of(metric, self.days), hundredths(linked_share((metric.cells,)))
            says = self._says(metric, outputs.times)
            print(row(metric.name, says, _epsilon(outputs.each), _epsilon(outputs.micro), _sure(outputs.micro), linked))
        says = "the sum" if self.devices == 1 else f"the sum, times {self.devices}"
        micro, linked = self.event.micro, hundredths(self.linked)
        print(f"{row('together', says, '', _epsilon(micro), _sure(micro), linked)}\n\n{_LEGEND}\n")

    def _says(self, metric: Metric, times: int) -> str:
        if not metric.memoized:
            return _counted(times, "report")
        reports = self._reports(metric, times)
        copies = "any number of reports" if reports is None else _counted(reports, "report")
        return f"{_counted(times, 'different answer')}, memoized: {copies}"

    def _show_bounds(self) -> None:
        print("What is proven of all these answers together; the sum, with delta 0, is what a device is charged:\n")
        print(f"{'epsilon':>9}  {'delta':>6}  proven by")
        for bound in self.event.bounds(self.delta):
            if bound.delta and bound.micro > self.event.micro:
                continue  # it says less than the sum, which needs no delta
            print(f"{_epsilon(bound.micro):>9}  {_delta_shown(bound.delta):>6}  {bound.proof}")
        if len(self.metrics) > 1:
            print(f"{_epsilon(self.apart.micro):>9}  {0:>6}  of a device that answers only one of them, if all do")
        best = self.event.bounds(self.delta)[0]
        if best.micro > (1 - LITTLE) * self.event.micro:
            print(f"A delta of {self.delta:e} gains next to nothing here: the sum is what counts.\n")
        else:
            print(
                "The sum is what a device is charged. Less holds only up to delta, and only for all of it together.\n"
            )

    def _show_guesses(self) -> None:
        print("How far a guess about all these answers together can move, whatever else somebody knows:\n")
        print(f"{'before':>9}  {'least':>9}  {'most':>9}")
        for prior in PRIORS:
            least, most = unsure(self.exp_epsilon, prior), sure(self.exp_epsilon, prior)
            print(f"{float(100 * prior):8.1f}%  {percent_below(least):>8}%  {percent_above(most):>8}%")
        furthest = moves(self.exp_epsilon)
        if furthest > NEARLY_CERTAIN:
            print("Some guesses may move by more than 99 points.")
        else:
            print(f"No guess moves by more than {percent_above(furthest)} points.")
        print("A guess about one metric moves as its own row says, if the other answers tell nothing of it.\n")

    # The sum, and its limits. None of it depends on an answer.

    def _holds_for(self) -> Iterator[str]:
        alike = "" if self.devices == 1 else " of the group"
        yield (
            f"everything{alike} that is said about these metrics together, whatever the answers are, even if "
            "one follows from another"
        )
        yield "whatever anybody computes from it, with whatever else they know, now or later"
        if hidden := self._names(metric for metric in self.metrics if metric.hidden):
            yield f"whether there was anything to say: {hidden}"
        if memos := self._names(metric for metric in self.metrics if metric.memoized):
            yield f"all reports of one answer, however many, because they copy one noisy answer: {memos}"

    def _does_not_hold_for(self) -> Iterator[str]:
        if public := self._names(metric for metric in self.metrics if not metric.hidden):
            yield f"that a device answers at all, and in which periods, where presence is public: {public}"
        if memos := self._names(metric for metric in self.metrics if metric.memoized):
            yield f"when a memoized answer changed: the promise is between lives that change at the same times: {memos}"
        if self.linked is not None:
            yield (
                f"which reports come from one device: of {DEVICES} devices with the same answers, about "
                f"{ceil(DEVICES * self.linked)} can be joined over time, by what lasts in their reports"
            )
        yield "what the answers of other people tell about this person: of a household, or of everybody like them"
        if self.devices == 1:
            yield "several devices of one person: --devices N has the loss of N that answer alike"
        yield "side channels: addresses, the time and size of uploads, what servers on the way log, the device itself"
        if self.days is not None:
            yield f"what was answered before and after {_counted(self.days, 'day')}: --scenario life has all of it"
        if self.others:
            yield f"the other metrics of this registry: {', '.join(self.others)}"
        yield "other apps, a later registry that people agree to, and a copy of the device's file with its own budget"

    def _names(self, metrics: Iterator[Metric]) -> str:
        return ", ".join(metric.name for metric in metrics)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _delta_shown(delta: Decimal) -> str:
    return f"{delta:e}" if delta else "0"


def _sure(micro: int) -> str:
    return f"{percent_above(sure(exp_of_micro(micro)))}%"


def _epsilon(micro: int) -> str:
    """Return micro-epsilon as an epsilon of six digits, never below it."""
    step: int = 10 ** len(str(micro // MICRO))
    return f"{from_micro(ceil(Fraction(micro, step)) * step):.6g}"


def _show_list(sentences: Iterator[str]) -> None:
    for sentence in sentences:
        print(fill(sentence, WIDTH, initial_indent="  - ", subsequent_indent="    "))


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
_RELEASED_LEGEND = f"""\
release   the epsilon of a release by its own noise: whether a device took part is hidden as well. It is that of a
          device that is added or taken away; other answers in place of a device's cost up to twice as much. It
          holds at publish_delta where the registry has one and the noise is Gaussian
wire      the epsilon of all reports of a device in a window, for whoever sees them one by one: of other answers
{" ".join(f"{n:>9,}" for n in REPORTS)}   the epsilon of the same answers by the order that a sum of so many honest
          reports does not have, at delta {DELTA}; "-" where there is no figure below that of the wire. It is for memos
          and for plans of several cells never told"""


def show_released(registry: Registry, metrics: Sequence[Metric], *, as_json: bool) -> None:
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
    print(f"\n{_RELEASED_LEGEND}")


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
