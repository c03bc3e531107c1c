"""Pages of a store whose tallies are what a test says they are, and their HTML as a person reads it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from flask.testing import FlaskClient

from dither_aggregator.analysis import closed_days, estimands
from dither_aggregator.store import SQLiteStore, Tally
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.clocks import Clock
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.tallies import Counts, draw_tally

EXPIRES = date(2027, 3, 1)


class Site:
    """Pages of a store whose tallies are what a test says they are."""

    def __init__(self, store: SQLiteStore, client: FlaskClient) -> None:
        self.store, self.client = store, client
        self.tallies: dict[tuple[str, date], Tally] = {}
        self.plan = (store.plans("color") or store.plans())[0].plan

    def put(self, counts: Counts, rng: np.random.Generator, days_ago: int = 1, plan: Plan | None = None) -> None:
        """Let so many devices report each value, one of the days before today."""
        plan = plan or self.plan
        drawn = np.concatenate([[counts.sum()], draw_tally(pure(plan), counts, rng)])
        self.hold(plan, Tally(int(counts.sum()), drawn), days_ago)

    def hold(self, plan: Plan, tally: Tally, days_ago: int = 1) -> None:
        """Let a day before today have a tally."""
        self.tallies[plan.digest, self.day(days_ago)] = tally
        self.forget()

    def day(self, days_ago: int) -> date:
        """Return a day before today."""
        return self.store.today() - timedelta(days=days_ago)

    def forget(self) -> None:
        """Let sealed windows be added up anew: in a store they cannot change."""
        for cache in (estimands._pool_once.cache, estimands._tail_once.cache, closed_days._once.cache):
            assert cache is not None
            cache.clear()

    def epochs(self, plan: Plan, first: date = date.min, last: date = date.max) -> list[date]:
        days = (day for digest, day in self.tallies if digest == plan.digest and first <= day <= last)
        return sorted(days, reverse=True)

    def page(self, query: str = "", metric: str = "color") -> "Seen":
        answer = self.client.get(f"/metrics/{metric}?{query}")
        assert answer.status_code == 200, answer.text
        return Seen(answer.text)


@dataclass
class Seen:
    """A page's HTML."""

    html: str

    @property
    def headline(self) -> str:
        (text,) = re.findall(r'<p class="headline">(.*?)</p>', self.html)
        return unescape(text).replace("\N{NO-BREAK SPACE}", " ")

    @property
    def states(self) -> list[str]:
        found = re.findall(r'<p class="state">(.*?)</p>', self.html)
        return [unescape(re.sub("<.*?>", "", each)).replace("\N{NO-BREAK SPACE}", " ").strip() for each in found]

    @property
    def dots(self) -> int:
        return self.html.count('<circle class="dot"')

    @property
    def rows(self) -> dict[str, tuple[str, float, float, float]]:
        """Rank, estimate and interval of each value that is shown, as shares."""
        table = re.search(r'<table class="shown">.*?<tbody>(.*?)</tbody>', self.html, re.DOTALL)
        found = {}
        for row in re.findall("<tr>(.*?)</tr>", table[1] if table else ""):
            value, *cells = [unescape(re.sub("<.*?>", "", each)) for each in re.findall("<t[hd].*?>(.*?)</t[hd]>", row)]
            lower, upper = cells[-1].split("to")
            rank = cells[0] if len(cells) == 4 else ""
            found[value] = (rank, share(cells[-3]), share(lower), share(upper))
        return found


def share(text: str) -> float:
    return float(text.strip().removesuffix("\N{NO-BREAK SPACE}%").replace("\N{MINUS SIGN}", "-")) / 100


@contextmanager
def site(tmp_path: Path, d: int, color: str = "", epsilon: str = "4.0", **asked: Any) -> Iterator[Site]:
    values = asked.pop("values", tuple(f"model {number}" for number in range(d - 1)))
    made = registry(
        values=values, color=color, epsilon=epsilon, reports=1, device_epsilon="400.0", expires=EXPIRES, **asked
    )
    with site_of(made, tmp_path) as one:
        yield one


@contextmanager
def site_of(made: Registry, tmp_path: Path) -> Iterator[Site]:
    """Yield pages of a store with a registry, without a report."""
    with sqlite_store(made, tmp_path, Clock()) as store:
        one = Site(store, operators_app(store).test_client())

        def tally(plan: Plan, epoch: date) -> Tally:
            nothing = Tally(0, np.zeros(plan.cells.tally_size, np.int64))
            return one.tallies.get((plan.digest, epoch), nothing)

        with (
            patch.object(store, "tally", tally),
            patch.object(store, "tallies", lambda plan, epochs: {epoch: tally(plan, epoch) for epoch in epochs}),
            patch.object(store, "epochs", one.epochs),
            patch.object(store, "all_epochs", lambda: {kept.id: one.epochs(kept.plan) for kept in store.plans()}),
        ):
            yield one


def zipf(d: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return shares of d - 1 values, and nobody for "other"."""
    weights = np.append(1 / np.arange(1, d) ** 1.1, 0.0)
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return shares
