"""Releases for the tests: of drawn tallies, and of two stores that differ in one device."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from pathlib import Path

import numpy as np

from dither.auditing.samples import loss_bound, never_bound
from dither_aggregator.counting import Counts
from dither_aggregator.publishing import releases
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.release_ledger import Release, seal, seed_of
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.releases import ReleaseNoise
from tests.support.aggregators import sqlite_store
from tests.support.clocks import Clock
from tests.support.laws import pure
from tests.support.registries import registry_text
from tests.support.stores import append, body_of, fold_all, seal_all
from tests.support.tallies import draw_tally

PUBLISHED = 'publish = "month"\npublish_epsilon = 1.0\nwhy = "To draw the right one first."'
WEEKLY = PUBLISHED.replace("month", "week")


TODAY = date(2026, 11, 27)
SECRET = b"a secret of sixteen bytes"
AUDIT = b"<!doctype html>\n<html lang='en'><title>Audit</title><h1>Audit</h1></html>\n"
URL = "https://stats.example.org/"
ISSUE = 'issue = "https://example.org/issues/12"'
ANSWERS = ("red", "green", "blue", "<b>teal</b>")
MONTHS = ((7, 22_000), (8, 30), (9, 20_000), (10, 25_000))
"""Months with so many reports."""


def published(color: str = "", keys: str = PUBLISHED, **changes: object) -> Registry:
    """Return the usual registry, the totals of whose colours are published."""
    text = registry_text(color=f"{keys}\n{color}", **changes)  # type: ignore[arg-type]
    return Registry.parse(text.replace("[registry]\n", "[registry]\npublish_epsilon_year = 53.0\n"))


def release_of(
    plan: Plan, people: Counts, rng: np.random.Generator, *, reports: int = 1, month: int = 10, micro: int = 1_000_000
) -> tuple[Release, Counts]:
    """Return the release of reports that so many people of each value send, and the raw counts."""
    raw = draw_tally(pure(plan), people, rng)
    release = Release(plan.metric, "What?", plan, "month", date(2026, month, 1), micro, reports, 1)
    return replace(release, counts=tuple((raw + drawn(release.noise, len(raw), rng)).tolist())), raw


def drawn(law: ReleaseNoise, size: int, rng: np.random.Generator) -> Counts:
    """Return noise of the same law, drawn quickly: of Laplace noise the difference of two geometric numbers."""
    if law.gaussian is not None:
        return np.rint(rng.normal(scale=float(law.gaussian) ** 0.5, size=size)).astype(np.int64)
    ends = 1 - np.exp(-1 / float(law.scale))
    return np.asarray(rng.geometric(ends, size) - rng.geometric(ends, size), dtype=np.int64)


def people_of(plan: Plan, n: int, shares: tuple[float, ...] = ()) -> Counts:
    """Return how many of n people have each value."""
    d = len(plan.values)
    spread = np.array(shares) if shares else 1 / np.arange(1, d + 1)
    return np.random.default_rng(3).multinomial(n, spread / spread.sum()).astype(np.int64)


def documents(months: Iterable[tuple[int, int]]) -> list[dict[str, object]]:
    """Return the releases of months with so many reports, as a site has them."""
    plan, found = published(values=ANSWERS).metrics["color"].plan, []
    for month, n in months:
        people = people_of(plan, n, (5.0, 3.0, 2.0, 1.0, 0.0))
        release, _ = release_of(plan, people, np.random.default_rng(month), month=month)
        found.append({**release.published(), "seal": seal(release, SECRET)})
    return found


Device = Sequence[tuple[int, int]]
"""The reports of one device, as an aggregator gets them: the day of the week, from 0 for Monday, and the symbol."""


@contextmanager
def week_of(directory: Path, registry: Registry, devices: Sequence[Device]) -> Iterator[SQLiteStore]:
    """Yield a store that is there since before a Monday, whose week of these devices' reports has closed."""
    clock = Clock()
    clock.travel(-4)  # to a Monday
    with sqlite_store(registry, directory, clock) as store:
        clock.travel(7)
        for day in range(7):
            for device in devices:
                for on, symbol in device:
                    if on == day:
                        append(store, body_of(registry, {"color": [symbol]}))
            fold_all(store)
            clock.travel(1)
            seal_all(store)
        clock.travel(1)
        seal_all(store)
        yield store


@dataclass(frozen=True)
class Neighbours:
    """The week that a store publishes with a device and without: the entry of the ledger, and both raw tallies."""

    entry: Release
    without: Counts
    with_it: Counts

    @classmethod
    def of(cls, directory: Path, registry: Registry, others: Sequence[Device], device: Device) -> "Neighbours":
        """Publish the week of two stores, of which one has one device more."""
        found = []
        for name, devices in (("without", others), ("with", [*others, device])):
            with week_of(directory / name, registry, devices) as store:
                ((entry,), refused) = releases.publish(store, registry)
                assert not refused
                found.append((entry, releases._raw(store, entry)))
        (entry, without), (other, with_it) = found
        assert (entry.micro, entry.reports) == (other.micro, other.reports)
        return cls(entry, without, with_it)

    def audit(self, draws: int, alpha: float, first: int = 0) -> float:
        """Return a lower bound of the loss that publishing shows, at level 1 - alpha: infinite where it is certain.

        Each draw is what `publish` would keep in a store with another secret. The events are all sides of all places
        of each count that differs, of all of them together, and of their sum: at least so much, or at most so much.
        They share alpha.
        """
        places = np.flatnonzero(self.without != self.with_it)
        moved = [
            self._published(raw, draws, first)[:, places] - self.with_it[places] for raw in (self.without, self.with_it)
        ]
        counts = [np.column_stack([each, each.min(axis=1), each.sum(axis=1)]) for each in moved]
        reach = range(-8, 9)
        events = [(place, at) for place in range(len(places)) for at in reach]
        if len(places) > 1:
            spread = int(np.std(counts[1][:, -1]) / 4) + 1
            events += [(len(places) + 1, at * spread) for at in reach] + [(len(places), at) for at in reach]
        share = alpha / (4 * len(events))
        most = 0.0
        for place, cut in events:
            above = [int((each[:, place] >= cut).sum()) for each in counts]
            for hits in (above, [draws - each for each in above]):
                for one, other in (hits, hits[::-1]):
                    bound = loss_bound(one, other, draws, share) if other else never_bound(one, draws, share)
                    most = max(most, inf if not other and one == draws else bound)
        return most

    def _published(self, raw: Counts, draws: int, first: int) -> Counts:
        tally = raw.astype("<i8").tobytes()
        secrets = (number.to_bytes(8, "big") for number in range(first, first + draws))
        seeds = (seed_of(self.entry, tally, secret) for secret in secrets)
        return np.array([releases.noisy(raw, self.entry, seed) for seed in seeds])


def text_registry(keys: str = WEEKLY, names: tuple[str, ...] = ANSWERS, **head: object) -> Registry:
    """Return a registry with a text, the totals of whose candidates are published."""
    listed = ", ".join(f'"{name}"' for name in names)
    text = registry_text(kind="text", color=f"candidates = [{listed}]\n{keys}", reports=3)
    lines = [line for line in text.splitlines() if not line.startswith("values")]
    year = "\n".join(f"{key} = {value}" for key, value in {"publish_epsilon_year": "53.0", **head}.items())
    return Registry.parse("\n".join(lines).replace("[registry]", f"[registry]\n{year}"))
