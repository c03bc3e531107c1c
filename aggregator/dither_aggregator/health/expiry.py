"""Which metrics of the registry have expired, and which will soon: their devices fall silent, and nothing else says so.

A metric that has expired beside others that go on is the usual end of a release. A registry with nothing but expired
metrics is a release that nobody replaced in time.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from dither_aggregator.store import Store, StoredPlan

SOON = timedelta(days=60)
"""As in deploy/registry.md: time enough to ship a release, and for most devices to take it."""
NAMED_MAX = 10

_log = logging.getLogger("dither_aggregator")


@dataclass(frozen=True)
class Expiries:
    """The metrics that the registry asks for and that nobody retired, by whether they go on; the first one first."""

    expired: Sequence[StoredPlan]
    soon: Sequence[StoredPlan]
    later: Sequence[StoredPlan]

    @classmethod
    def of(cls, plans: Iterable[StoredPlan], today: date) -> "Expiries":
        """Sort plans. On the day that `expires` names devices ask no more."""
        asked = sorted(
            (stored for stored in plans if stored.current and not stored.retired),
            key=lambda stored: (stored.expires, stored.plan.metric),
        )
        return cls(
            [stored for stored in asked if stored.expires <= today],
            [stored for stored in asked if today < stored.expires <= today + SOON],
            [stored for stored in asked if stored.expires > today + SOON],
        )

    @property
    def last(self) -> date | None:
        """The day on which the last metric expires or has; None where there is none that is not retired."""
        asked = self.later or self.soon or self.expired
        return asked[-1].expires if asked else None

    @property
    def all_over(self) -> bool:
        """Whether nothing but expired metrics is left."""
        return bool(self.expired) and not self.soon and not self.later

    @property
    def words(self) -> str:
        """Which metrics have expired or soon will, and when; "" where none has or will."""
        parts = []
        if self.expired:
            parts.append(f"expired: {_named(self.expired)}")
        if self.soon:
            parts.append(f"expires within {SOON.days} days: {_named(self.soon)}")
        return "; ".join(parts)


def _named(plans: Sequence[StoredPlan]) -> str:
    named = ", ".join(f"{stored.plan.metric} on {stored.expires}" for stored in plans[:NAMED_MAX])
    return f"{named} and {len(plans) - NAMED_MAX:,} more" if len(plans) > NAMED_MAX else named


def log_expiries(store: Store) -> None:
    """Log which metrics have expired or soon will, if any: when a server starts, and when a registry is loaded."""
    found = Expiries.of(store.plans(), store.clock_day())  # neither asks the store: to tell this must hold up nothing
    if found.all_over:
        _log.warning("no metric is left that has not expired: devices report nothing more (%s)", found.words)
    elif found.words:
        _log.warning("metrics of the registry: %s", found.words)
