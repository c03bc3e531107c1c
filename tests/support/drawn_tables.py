"""Tallies of tables, drawn from the exact laws of a plan, and pages of a store that holds them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from dither_aggregator.counting import tables as parts_of
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Columns
from dither_shared.mechanisms import PureMechanism
from dither_shared.plan import Plan
from dither_shared.registry import Metric, Registry
from tests.support.questions import in_symbols
from tests.support.sites import EXPIRES, Site, site_of
from tests.support.tallies import draw_tally

Floats = npt.NDArray[np.float64]


def shape_of(plan: Plan) -> tuple[int, ...]:
    """Return how many symbols each column has."""
    domain = cast("Columns", plan.domain)
    return tuple(len(domain.labels(column)) for column in range(len(domain.names)))


def alone(*columns: Sequence[float] | Floats) -> Floats:
    """Return the shares of all cells where columns have nothing to do with each other."""
    return np.asarray(reduce(np.multiply.outer, [np.array(column, dtype=np.float64) for column in columns]))


def draw_table(plan: Plan, arms: Sequence[Floats], n: Sequence[int], rng: np.random.Generator) -> Tally:
    """Draw the tally of n devices of each public value, whose cells have these shares; a last share is of "none"."""
    domain, counts = cast("Columns", plan.domain), np.zeros(plan.cells.tally_size, dtype=np.int64)
    each, shape = plan.cells.each, shape_of(plan)
    asked = [
        rng.multinomial(rng.multinomial(size, shares.ravel()), np.full(each, 1 / each)).T
        for shares, size in zip(arms, n, strict=True)
    ]
    for part, table, cell in parts_of(plan.cells, counts):
        devices = asked[cell // each][cell % each]
        others = tuple(set(range(len(shape))) - set(domain.questions[cell % each]))
        whole = int(np.prod(shape))
        symbols = in_symbols(devices[:whole].reshape(shape).sum(axis=others).ravel(), devices[whole:])
        table[0, 0] = symbols.sum()
        table[0, 1:] = draw_tally(cast("PureMechanism", part.mechanism), symbols, rng)
    return Tally(sum(n), counts)


def draw_pairs(
    plan: Plan, n: int, rng: np.random.Generator, leaning: Mapping[tuple[int, int], Floats] | None = None
) -> Tally:
    """Draw the tally of n devices that answer evenly, or by these shares in pairs; as many are in each cell.

    For tables whose product nobody could hold.
    """
    domain, counts = cast("Columns", plan.domain), np.zeros(plan.cells.tally_size, dtype=np.int64)
    each, devices = plan.cells.each, n // plan.cells.count
    for part, table, cell in parts_of(plan.cells, counts):
        question, shape = cast("tuple[int, int]", domain.questions[cell % each]), domain.shape(cell % each)
        shares = (leaning or {}).get(question, np.full(shape, 1 / np.prod(shape)))
        symbols = in_symbols(rng.multinomial(devices, shares.ravel()), np.zeros(0, dtype=np.int64))
        table[0, 0] = devices
        table[0, 1:] = draw_tally(cast("PureMechanism", part.mechanism), symbols, rng)
    return Tally(devices * plan.cells.count, counts)


def stored_table(metric: Metric) -> StoredPlan:
    """Return a table's plan as a store has it."""
    return StoredPlan(0, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


@contextmanager
def table_site(directory: Path, metrics: Mapping[str, str], public: str = "") -> Iterator[Site]:
    """Yield pages of tables, each given by the lines that are its own, without a report."""
    common = f'period = "1d"\nowners = ["team@example.org"]\nsensitivity = "low"\nexpires = {EXPIRES}\n'
    parts = []
    for name, lines in metrics.items():
        usual = {"presence": '"public"', "reports": 1, "epsilon": 4, "rev": 1, "kind": '"table"'}
        rest = "\n".join(f"{key} = {value}" for key, value in usual.items() if f"{key} =" not in lines)
        parts.append(f'[metric.{name}]\nquestion = "What goes with what in {name}?"\n{common}{rest}\n{lines}\n')
    head = f'[registry]\napp = "example"\ndevice_epsilon = 1000\n{public and f"public = {public}"}\n\n'
    with site_of(Registry.parse(head + "\n".join(parts)), directory) as one:
        yield one
