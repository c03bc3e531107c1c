"""`dither privacy --scenario`: what a device says about some metrics in so long, and how much that tells.

The sum is basic composition, which is what devices are charged. At a delta less may be proven.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil
from textwrap import fill

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
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import Metric, Registry
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
DELTA = Decimal("1e-6")
DEVICES_MAX = 100
PRIORS = (Fraction(1, 100), Fraction(1, 2), Fraction(99, 100))
WIDTH = 110
LITTLE = 0.01
"""A bound at a delta that gains less than this share of the sum is not worth its delta."""

_LEGEND = f"""\
sure      what a guess of 1 : 1 about a device's answers can become at most
R({DEVICES})    of {DEVICES} devices with the same answer, the share whose reports can be joined over time"""


def show(args: argparse.Namespace, registry: Registry, metrics: Sequence[Metric]) -> None:
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
