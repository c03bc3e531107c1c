"""The privacy page of a metric: what a metric's integers promise a device, in odds that people can picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from dither_aggregator.store import StoredPlan
from dither_shared.accounting.linking import linked_share
from dither_shared.accounting.odds import NEARLY_CERTAIN, percent_above, sure
from dither_shared.accounting.poisoning import Worth
from dither_shared.exact import exp_of_micro
from dither_shared.mechanisms import DEVICES

FEW = 10
"""The made-up reports that the box speaks of, beside 1 % of all."""
PRIORS = (1, 9, 99)
"""Guesses of 1 to so many."""


@dataclass(frozen=True)
class Stage:
    """The reports that somebody may see of one device: one, all of one memoized answer, or all of its life."""

    name: str
    epsilon: float
    exp_epsilon: Fraction

    @property
    def nearly_certain(self) -> bool:
        """Whether a guess of 1 : 1 can become more than 99 % sure."""
        return sure(self.exp_epsilon) > NEARLY_CERTAIN

    @property
    def becomes(self) -> str:
        """How sure a guess of 1 : 1 can become, as a bound."""
        return self.sure() if self.nearly_certain else f"at most {self.sure()}"

    def sure(self, against: int = 1) -> str:
        """Return the most that a guess of 1 : `against` can become, in percent."""
        return percent_above(sure(self.exp_epsilon, Fraction(1, 1 + against))) + "\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Privacy:
    """All that the box says."""

    stages: Sequence[Stage]
    """From one report to a device's life, each with more epsilon than the one before."""
    poisoning: Sequence["Poisoning"]
    """How far made-up reports move estimates; those that are read first come first."""
    linked: int | None
    """About how many of `devices` with the same answer can be joined over time; None where nothing lasts."""
    linked_together: int | None
    """The same by all that one device sends for the app's metrics; None where it is no other number."""
    devices: int = DEVICES
    priors: Sequence[int] = PRIORS


@dataclass(frozen=True)
class Poisoning:
    """How far made-up reports move one estimate: up where nobody has it, and down where everybody has.

    Numbers are percentage points but for `weight`, and rounded up where they are bounds, else down.
    """

    what: str
    known: bool
    """Whether they move no more; else they may."""
    weight: str
    """How many honest reports one is worth."""
    percent_up: str
    """How far 1 % of the reports move it."""
    percent_down: str
    few_up: str
    """How far `few` of those shown move it; "" where there are not as many."""
    few_down: str
    few: int = FEW


def privacy_of(stored: StoredPlan, plans: Sequence[StoredPlan], n: int) -> Privacy:
    """Return the box of a plan, one of an app's `plans`, of which n reports are shown."""
    plan, cells = stored.plan, stored.plan.cells
    others = (other.plan for other in plans if other.current and other.plan.metric != stored.plan.metric)
    linked = _devices(linked_share((cells,)))
    together = _devices(linked_share((cells, *(plan.cells for plan in others))))
    return Privacy(
        _stages(stored),
        [_poisoning(worth, n) for worth in plan.kind.poisoning(plan.domain, cells)],
        linked=linked,
        linked_together=None if together == linked else together,
    )


def _stages(stored: StoredPlan) -> list[Stage]:
    cells, life = stored.plan.cells, stored.reservation
    stages = [Stage("one report", stored.epsilon, cells.exp_epsilon)]
    if stored.epsilon_permanent is not None:
        name = "one answer, repeated"
        stages.append(Stage(name, stored.epsilon_permanent, exp_of_micro(cells.first_charge)))
    if life > cells.first_charge:
        stages.append(Stage("a whole life", stored.epsilon_lifetime, exp_of_micro(life)))
    return stages


def _devices(linked: float | None) -> int | None:
    """Return a share of the devices, rounded up: it is read as a promise."""
    return None if linked is None else ceil(DEVICES * linked)


def _poisoning(worth: Worth, n: int) -> Poisoning:
    """Return what m made-up of n reports move, in words; a weight counts both ways."""
    weight = max(worth.up, worth.down + 1)
    moves = [of(1, 100) for of in (worth.raised, worth.lowered)]
    few = [of(FEW, n) for of in (worth.raised, worth.lowered)] if n >= FEW else []
    percent_up, percent_down, *fews = (_points(share, up=worth.known) for share in (*moves, *few))
    few_up, few_down = fews or ("", "")
    return Poisoning(
        worth.what, worth.known, _rounded(weight, 1, up=worth.known), percent_up, percent_down, few_up, few_down
    )


def _points(share: Fraction, *, up: bool) -> str:
    """Return a share as percentage points, to two digits or a whole number: raw estimates have no end."""
    points = 100 * share
    decimals = 0 if points >= 10 else 1 if points >= 1 else 2 if points >= Fraction(1, 10) else 3
    return _rounded(points, decimals, up=up)


def _rounded(number: Fraction, decimals: int, *, up: bool) -> str:
    steps = number * 10**decimals
    return f"{(ceil(steps) if up else floor(steps)) / 10**decimals:,.{decimals}f}"
