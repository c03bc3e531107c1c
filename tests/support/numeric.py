"""Tallies of numbers, drawn from the laws of their mechanisms, and pages of a store that holds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.channel import channel_of, law_matrix
from dither_aggregator.counting import Counts, tables
from dither_aggregator.store import Tally
from dither_shared.domains import Thresholds
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from tests.support.sites import EXPIRES, Site, site_of

Floats = npt.NDArray[np.float64]

FORMS = {
    "load": 'unit = "s"\nlow = 0.01\nhigh = 60\nbuckets = 64\nscale = "log"\nreports = 3\nepsilon = 2',
    "age": 'unit = "years"\nlow = 0\nhigh = 100\nasks = ["mean"]\nreports = 3\nepsilon = 2',
    "memo": 'unit = "years"\nlow = 0\nhigh = 100\nmemoize = true\nepsilon_permanent = 4\nepsilon = 2',
    "cold": 'unit = "°C"\nlow = -40.5\nhigh = 40\nbuckets = 32\nreports = 3\nepsilon = 4\npresence = "hidden"',
}
"""The lines of a metric of each form; "load" has a logarithmic scale, "cold" negative numbers and devices with none."""


def number_registry(metrics: dict[str, str], rev: int = 1) -> Registry:
    """Return a registry of metrics of numbers, given by the lines that are their own."""
    common = (
        f'kind = "number"\nrev = {rev}\nperiod = "1d"\nowners = ["team@example.org"]\n'
        f'sensitivity = "low"\nexpires = {EXPIRES}\n'
    )
    parts = []
    for name, lines in metrics.items():
        presence = "" if "presence" in lines else 'presence = "public"\n'
        parts.append(f'[metric.{name}]\nquestion = "How much {name}?"\n{common}{presence}{lines}\n')
    return Registry.parse('[registry]\napp = "example"\ndevice_epsilon = 1000\n\n' + "\n".join(parts))


@contextmanager
def number_site(directory: Path, metrics: dict[str, str]) -> Iterator[Site]:
    """Yield pages of metrics of numbers, without a report."""
    with site_of(number_registry(metrics), directory) as one:
        yield one


def hump(plan: Plan, other: float = 0.02, moved: float = 0.0) -> Floats:
    """Return shares of a plan's places: two humps, the larger at a third of the axis and `moved`, and some others."""
    nothing = np.zeros(plan.cells.tally_size, dtype=np.int64)
    places = channel_of(plan, _one_report_a_cell(plan, nothing), plan.cells.count).places
    x = (np.arange(places.numbers) + 0.5) / places.numbers
    shares = np.exp(-(((x - 0.35 - moved) / 0.1) ** 2) / 2) + 0.25 * np.exp(-(((x - 0.75) / 0.05) ** 2) / 2)
    free = 1 - other * len(places.others)
    made: Floats = np.append(shares / shares.sum() * free, [other] * len(places.others))
    return made


def _one_report_a_cell(plan: Plan, counts: Counts) -> Counts:
    for _, table, _ in tables(plan.cells, counts):
        table[:, :2] = 1
    return counts


def draw_numbers(plan: Plan, shares: Floats, n: int, rng: np.random.Generator) -> Tally:
    """Draw the tally of n reports of devices whose numbers lie at places with these shares."""
    counts = np.zeros(plan.cells.tally_size, dtype=np.int64)
    parts = list(tables(plan.cells, counts))
    weights = np.array([part.weight for part, table, _ in parts for _ in table], dtype=float)
    sizes = iter(rng.multinomial(n, weights / weights.sum()))
    for part, table, first in parts:
        law = law_matrix(part.mechanism)
        for cell, row in enumerate(table, first):
            columns = np.minimum(np.arange(len(shares)), law.shape[1] - 1)  # "none" is "other" to a window
            if isinstance(plan.domain, Thresholds):
                columns = (np.arange(len(shares)) > cell).astype(int)
            chances = law[:, columns] @ shares
            row[0] = next(sizes)
            row[1:] = rng.multinomial(row[0], chances / chances.sum())
    return Tally(n, counts)


def put_numbers(one: Site, metric: str, shares: Floats, n: int, rng: np.random.Generator, *, days_ago: int = 1) -> Plan:
    """Let n devices report numbers one of the days before today; return the plan."""
    plan = one.store.plans(metric)[0].plan
    one.hold(plan, draw_numbers(plan, shares, n, rng), days_ago)
    return plan


def two_weeks(one: Site, rng: np.random.Generator, n: int = 20_000) -> None:
    """Let the metric of each form have two weeks and a part of today; in the last week the larger hump has moved up."""
    for plan in [one.store.plans(metric)[0].plan for metric in FORMS]:
        for back in range(15):
            shares = hump(plan, moved=0.1 if back <= 7 else 0.0)
            put_numbers(one, plan.metric, shares, n if back else n // 4, rng, days_ago=back)
