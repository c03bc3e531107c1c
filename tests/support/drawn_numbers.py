"""Numbers of a made-up population: its tallies, drawn from the exact laws of a plan, and what is true of it.

A population is a few thousand exact numbers (floats are fractions), each with its share. The SDK's own code, which
compares integers, says where each lies; the coins that round a number enter by their probability. So what is true comes
from the numbers and never from the places to which the plan sends them.
"""

from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.channel import law_matrix
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.numbers import NumbersReading
from dither_aggregator.analysis.reading import View
from dither_aggregator.counting import Counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Buckets, Range, Thresholds
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.rng import SCALE

Floats = npt.NDArray[np.float64]

DAY = date(2026, 11, 22)
DEFAULT = View()


@dataclass(frozen=True, eq=False)
class Population:
    """Numbers and their shares; of the devices a part has no number, and another part nothing to say."""

    numbers: Floats
    weights: Floats
    """The shares among devices with a number: they sum to one."""
    other: float = 0.0
    none: float = 0.0

    def mean(self, low: float, high: float) -> float:
        """Return the mean of the numbers, cut to two ends."""
        return float(self.weights @ np.clip(self.numbers, low, high))

    def quantile(self, probability: float) -> float:
        """Return the least number up to which so many lie."""
        up_to = np.cumsum(self.weights[self._order])
        return float(self.numbers[self._order][np.searchsorted(up_to, probability - 1e-12)])

    def share(self, low: float | None, high: float | None) -> float:
        """Return the share of numbers from `low` to below `high`."""
        above = self.numbers >= (-np.inf if low is None else low)
        return float(self.weights[above & (self.numbers < (np.inf if high is None else high))].sum())

    def places(self, plan: Plan) -> Floats:
        """Return the shares of a plan's places: of all devices."""
        numbers = sum(weight * _place(plan, number) for number, weight in zip(*self._pairs, strict=True))
        shares = np.asarray(numbers) * (1 - self.other - self.none)
        shares[-2 if plan.presence == "hidden" else -1] += self.other
        shares[-1] += self.none
        return shares

    @property
    def _pairs(self) -> tuple[list[float], list[float]]:
        return self.numbers.tolist(), self.weights.tolist()

    @cached_property
    def _order(self) -> Counts:
        return np.argsort(self.numbers, kind="stable")


def population(numbers: Floats, weights: Floats | None = None, *, other: float = 0.0, none: float = 0.0) -> Population:
    """Return a population of numbers with these weights, or equal ones."""
    weights = np.ones(len(numbers)) if weights is None else weights
    return Population(np.asarray(numbers, dtype=np.float64), weights / weights.sum(), other, none)


def _place(plan: Plan, number: float) -> Floats:
    """Return with which probability a number is counted at each place, by the SDK's own arithmetic."""
    domain = plan.domain
    placed = plan.kind.read(number, domain)
    assert isinstance(placed, tuple)
    shares = np.zeros(places_of(plan))
    if isinstance(domain, Buckets):
        shares[placed] = 1.0
    elif isinstance(domain, Range):
        at, rest = divmod(placed[0] * (len(shares) - 1), SCALE)
        shares[at : at + 2] = [1 - rest / SCALE, rest / SCALE][: len(shares) - at]
    else:
        step, part = placed
        shares[step : step + 2] = 1 - part / SCALE, part / SCALE
    return shares


def places_of(plan: Plan) -> int:
    """Return how many places a plan has, "other" and "none" among them."""
    domain = plan.domain
    if isinstance(domain, Buckets):
        return domain.size + 1 + (plan.presence == "hidden")
    return domain.size + 1 if isinstance(domain, Thresholds) else law_matrix(plan.cells.mechanism).shape[1] - 1


@cache
def cell_laws(plan: Plan) -> list[Floats]:
    """Return P[y | place] of each cell, float64[K, places], from the laws of the mechanisms."""
    laws, places = [], places_of(plan)
    for part in plan.cells.parts:
        law = law_matrix(part.mechanism)
        for cell in range(part.cells):
            if isinstance(plan.domain, Thresholds):  # the device says whether its number's place is above its cohort
                laws.append(law[:, (np.arange(places) > cell).astype(int)])
            else:  # what a window has no place for goes to its last column
                columns = np.minimum(np.arange(places), law.shape[1] - 1)
                laws.append(law[:, columns])
    return laws


def weights_of(plan: Plan) -> Floats:
    """Return the share of the reports of each cell."""
    weights = np.array([part.weight for part in plan.cells.parts for _ in range(part.cells)], dtype=np.float64)
    return np.asarray(weights / weights.sum())


def tally_of(plan: Plan, counts: list[Counts]) -> Tally:
    """Return the tally that has these counts, one vector for each cell."""
    vector = np.zeros(plan.cells.tally_size, dtype=np.int64)
    cells = iter(counts)
    for _, table, _ in tables(plan.cells, vector):
        for row in table:
            row[1:] = next(cells)
            row[0] = row[1:].sum()
    return Tally(int(sum(each.sum() for each in counts)), vector)


def draw_numbers(plan: Plan, places: Floats, n: int, rng: np.random.Generator) -> Tally:
    """Draw the tally of n devices, a sample of a population with these shares of places, each with one report."""
    sizes = rng.multinomial(n, weights_of(plan))
    return tally_of(
        plan, [rng.multinomial(size, summed(law @ places)) for size, law in zip(sizes, cell_laws(plan), strict=True)]
    )


def draw_repeats(plan: Plan, places: Floats, devices: int, repeats: int, rng: np.random.Generator) -> Tally:
    """Draw the tally of devices that report the same number `repeats` times each, with fresh noise and cells."""
    people = rng.multinomial(devices, summed(places)) * repeats
    counts = [np.zeros(law.shape[0], dtype=np.int64) for law in cell_laws(plan)]
    for place in np.flatnonzero(people):
        sizes = rng.multinomial(people[place], weights_of(plan))
        for cell, law in enumerate(cell_laws(plan)):
            counts[cell] += rng.multinomial(sizes[cell], summed(law[:, place]))
    return tally_of(plan, counts)


def summed(law: Floats) -> Floats:
    """Return probabilities that sum to one also to the last digit."""
    return np.asarray(law / law.sum())


@cache
def stored_number(
    lines: str, *, epsilon: str = "1", reports: int = 3, presence: str = "public", memo: str = ""
) -> StoredPlan:
    """Return the plan of a number with these lines in its table; with `memo`, the permanent epsilon, it is memoized."""
    life = f"memoize = true\nepsilon_permanent = {memo}" if memo else f"reports = {reports}"
    text = f"""
[registry]
app = "example"
device_epsilon = 1000

[metric.number]
kind = "number"
question = "How much?"
rev = 1
epsilon = {epsilon}
{life}
presence = "{presence}"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = 2027-05-01
unit = "s"
{lines}
"""
    metric = Registry.parse(text).metrics["number"]
    return StoredPlan(0, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


def read_numbers(stored: StoredPlan, tally: Tally, view: View = DEFAULT) -> NumbersReading:
    """Return the reading of a tally."""
    reading = estimate(stored, DAY, tally, view)
    assert isinstance(reading, NumbersReading)
    return reading
