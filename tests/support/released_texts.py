"""Releases of fresh texts for the tests: of drawn reports, under a hash of few buckets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache

import numpy as np

from dither_aggregator.analysis.released import released_counts
from dither_aggregator.counting import Counts, hyperplanes_through
from dither_aggregator.publishing.releases import PublishedReading, read
from dither_aggregator.store.release_ledger import Release
from dither_shared.domains import OTHER, Hashed
from dither_shared.frozen import replaced
from dither_shared.mechanisms import PGR, Cells, Part, choose
from dither_shared.plan import Plan
from dither_shared.releases import ReleaseNoise
from tests.support.points import draw_points
from tests.support.releases import Device, drawn, text_registry

ROWS, BUCKETS = 4, 1_024
TEXTS, DEVICES = 400, 100_000
HEAVY = 0.3
NAMES = (*(f"text {place}" for place in range(0, TEXTS, 8)), OTHER)
"""The list has one text in eight, the heavy one among them."""
REGISTRY, FEW = text_registry(), text_registry(names=("red",))


def small(buckets: int = BUCKETS, epsilon: str = "2") -> Plan:
    """Return the plan of a text with few buckets."""
    mechanism = choose(buckets, Decimal(epsilon), name="pgr")
    plan = REGISTRY.metrics["color"].plan
    return replaced(plan, domain=Hashed("color", buckets), cells=Cells((Part(mechanism, ROWS),)))


def release_of(
    plan: Plan, counts: Counts | Sequence[int], names: tuple[str, ...], delta: Decimal | None = None, **changes: object
) -> Release:
    """Return a release of supports, with the better noise at a delta."""
    entry = Release("color", "What?", plan, "month", date(2026, 10, 1), 1_000_000, 1, 1, names=names)
    entry = replace(entry, counts=tuple(int(count) for count in counts), **changes)  # type: ignore[arg-type]
    rho = ReleaseNoise.of(plan, entry.micro, entry.reports, names, delta).rho
    return replace(entry, rho=rho, delta=delta if rho else None)


@dataclass(frozen=True)
class Texts:
    """A tally of texts, and the true share of each."""

    plan: Plan
    tally: Counts
    truth: dict[str, float]


@cache
def texts(seed: int) -> Texts:
    """Draw devices' texts, rows and reports, under another hash for each seed: one heavy text, others by Zipf's law."""
    rng = np.random.default_rng(seed)
    domain, plan = Hashed(f"site {seed}", BUCKETS), small()
    plan = replaced(plan, domain=domain)
    shares = 1 / np.arange(1, TEXTS + 1)
    shares[1:] *= (1 - HEAVY) / shares[1:].sum()
    shares[0] = HEAVY
    rows = []
    for row, devices in enumerate(rng.multinomial(DEVICES, [1 / ROWS] * ROWS).tolist()):
        places = np.array([domain.bucket(f"text {place}", row) for place in range(TEXTS)])
        values = np.repeat(places, rng.multinomial(devices, shares))
        mechanism = PGR.of(plan.cells.mechanism)
        rows += [devices, *draw_points(mechanism, np.bincount(values, minlength=mechanism.d), rng).tolist()]
    tally = np.array(rows)
    truth = {f"text {place}": float(share) for place, share in enumerate(shares)} | {OTHER: 0.0}
    return Texts(plan, tally, truth)


def reading_of(
    seed: int, names: tuple[str, ...] = NAMES, *, reports: int = 1, delta: Decimal | None = None
) -> PublishedReading:
    """Return what a release of drawn texts tells of some names."""
    one, rng = texts(seed), np.random.default_rng(1_000 + seed)
    raw, law = released_counts(one.plan, names, one.tally), ReleaseNoise.of(one.plan, 1_000_000, reports, names, delta)
    return read(release_of(one.plan, raw + drawn(law, len(raw), rng), names, reports=reports, delta=delta))


def share_held(readings: Sequence[tuple[int, PublishedReading]]) -> tuple[int, int]:
    """Return how many of the readings' own intervals hold, and of how many; each has its seed."""
    held = [
        row.own_lower <= texts(seed).truth[row.value] <= row.own_upper for seed, each in readings for row in each.rows
    ]
    return sum(held), len(held)


def worst() -> tuple[int, Device]:
    """Return how many texts a report supports that supports the most, and a device that sends it on three days."""
    plan = FEW.metrics["color"].plan
    domain, mechanism = Hashed.of(plan.domain), PGR.of(plan.cells.mechanism)
    values = np.array([domain.bucket(domain.named(name), 0) for name in ("red", OTHER)])
    met = hyperplanes_through(*mechanism.geometry, values)
    point = int(met.argmax())
    return int(met[point]), [(0, point), (2, point), (5, point)]
