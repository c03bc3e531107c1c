"""Refused groups on the pipeline's page: how many there were by reason and metric, and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Generic, Self, TypeVar

from dither_aggregator.store import Store
from dither_aggregator.store.contract import REFUSED_DAYS
from dither_aggregator.store.documents import GRACE
from dither_aggregator.store.records import RefusedCount, RefusedKey, sum_refused

# A list of which a page shows no more than the first.


T = TypeVar("T")


@dataclass(frozen=True)
class Capped(Generic[T]):
    """The first of a list, and how many more there are."""

    shown: Sequence[T]
    left: int

    @classmethod
    def of(cls, rows: Sequence[T], most: int) -> Self:
        """Return at most so many of them."""
        return cls(rows[:most], max(len(rows) - most, 0))


SHOWN_DAYS = 7
ROWS_MAX = 100

REASONS_IN_WORDS = {
    "malformed": (
        "malformed",
        "These groups do not have the form that shared/wire.md gives. Another client than dither's sent them, or "
        "something on the way changed them.",
    ),
    "unknown-metric": (
        "unknown metric",
        "The app has a metric that was never loaded here. Load the registry that the app ships: "
        "`dither metrics load metrics.toml`.",
    ),
    "unknown-plan": (
        "unknown plan of the metric",
        "The app has another registry than this store. Load the one that the app ships, before it ships it: "
        "`dither metrics load metrics.toml`.",
    ),
    "expired": (
        "metric expired",
        f"Reports are taken for {GRACE.days} days after a metric expires. If it must go on, give it a later `expires` "
        "in the registry, load that, and ship it; else there is nothing to do.",
    ),
    "retired": (
        "plan retired",
        "An operator retired the plan. `dither metrics retire NAME --rev N --undo` takes its reports again.",
    ),
    "bad-report": (
        "impossible report",
        "The plan of the metric cannot make one of the reports, or has no such cell. dither's own client sends no such "
        "report: it was damaged, made up, or sent by another client.",
    ),
}
"""Each reason in words, and what to do about it; commands are in backticks."""


@dataclass(frozen=True)
class RefusedRow:
    """The groups of one metric that were refused for one reason."""

    reason: str
    metric: str
    """The one that they name; "" where the store has none of that name."""
    count: RefusedCount
    latest: date
    """The last day on which there were any."""

    @property
    def words(self) -> str:
        """The reason in words."""
        return REASONS_IN_WORDS.get(self.reason, (self.reason,))[0]


@dataclass(frozen=True)
class RefusedShown:
    """The groups that were refused on the last days."""

    rows: Capped[RefusedRow]
    """Those with the most reports first."""
    total: RefusedCount
    hints: Sequence[tuple[str, str]]
    """The words of each reason that there is, and what to do."""
    days: int = SHOWN_DAYS
    kept_days: int = REFUSED_DAYS


def refused_before(store: Store, day: date) -> RefusedShown:
    """Return what was refused on the SHOWN_DAYS days that end with this one."""
    counted = store.refused(day - timedelta(days=SHOWN_DAYS - 1), day)
    reasons = {key.reason for key in counted}
    return RefusedShown(
        Capped.of(_rows(counted), ROWS_MAX),
        sum(counted.values(), RefusedCount()),
        [hint for reason, hint in REASONS_IN_WORDS.items() if reason in reasons],
    )


def _rows(counted: Mapping[RefusedKey, RefusedCount]) -> list[RefusedRow]:
    """Return the sums over the days."""
    totals = sum_refused({(key.reason, key.metric): one} for key, one in counted.items())
    latest = {(key.reason, key.metric): key.day for key in sorted(counted)}
    rows = [RefusedRow(*key, one, latest[key]) for key, one in totals.items()]
    return sorted(rows, key=lambda row: (-row.count.reports, -row.count.groups, row.reason, row.metric))
