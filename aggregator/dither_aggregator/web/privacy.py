"""The privacy box of a page: what a metric's integers promise a device, in odds that people can picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from dither_aggregator.store import StoredPlan
from dither_shared.accounting.linking import DEVICES, linked_share
from dither_shared.accounting.made_up import moved
from dither_shared.accounting.odds import NEARLY_CERTAIN, percent_above, sure
from dither_shared.exact import exp_of_micro

FEW = 10
"""The made-up reports that the box speaks of, beside 1 % of all."""
PRIORS = (1, 9, 99)
"""Guesses of 1 to so many."""


@dataclass(frozen=True)
class Stage:
    """What somebody may see of one device: a report, all reports of one memoized answer, or of its life."""

    name: str
    epsilon: float
    exp_epsilon: Fraction

    @property
    def nearly_certain(self) -> bool:
        """Whether a guess of 1 : 1 can become more than 99 % sure."""
        return sure(self.exp_epsilon) > NEARLY_CERTAIN

    def sure(self, against: int = 1) -> str:
        """Return the most that a guess of 1 : `against` can become, in percent."""
        return percent_above(sure(self.exp_epsilon, Fraction(1, 1 + against))) + "\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Privacy:
    """All that the box says."""

    stages: Sequence[Stage]
    """From one report to a device's life, each with more epsilon than the one before."""
    weight: str
    """In honest reports, what a made-up one is worth at most; "" where no bound is known."""
    few_move: str
    """By how many percentage points `few` of the reports shown move an estimate; "" where there are not as many."""
    percent_moves: str
    """By how many percentage points 1 % of the reports move it."""
    linked: int | None
    """Of `devices` with the same answer, about how many can be joined over time; None where nothing lasts."""
    linked_together: int | None
    """The same by all that one device sends for the app's metrics; None where it is no other number."""
    few: int = FEW
    devices: int = DEVICES
    priors: Sequence[int] = PRIORS


def privacy_of(stored: StoredPlan, plans: Sequence[StoredPlan], n: int) -> Privacy:
    """Return the box of a plan, one of an app's `plans`, of which n reports are shown."""
    cells = stored.plan.cells
    weight, few, percent = moved(cells, 1, 1), moved(cells, FEW, max(n, FEW)), moved(cells, 1, 100)
    others = (other.plan for other in plans if other.current and other.plan.metric != stored.plan.metric)
    linked = _devices(linked_share((cells,)))
    together = _devices(linked_share((cells, *(plan.cells for plan in others))))
    return Privacy(
        _stages(stored),
        weight="" if weight is None else f"{ceil(10 * weight) / 10:,.1f}",
        few_move="" if few is None or n < FEW else _points(few),
        percent_moves="" if percent is None else _points(percent),
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


def _points(share: Fraction) -> str:
    """Return a share as percentage points, rounded up to two digits or a whole number: raw estimates have no end."""
    points = 100 * share
    decimals = 0 if points >= 10 else 1 if points >= 1 else 2 if points >= Fraction(1, 10) else 3
    return f"{ceil(points * 10**decimals) / 10**decimals:,.{decimals}f}"
