"""The plans of a store: those of the registry, and older ones that devices in the field still use."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Self

from dither_aggregator.operations.registry_process import another_meaning, document_of
from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.packing import DAY_S, day_number
from dither_aggregator.store.records import StoreError
from dither_shared.exact import from_micro
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire.reading import GroupRefused

NAMED_MAX = 20
"""So many metrics are named in a message."""
GRACE = timedelta(days=7)
"""How long the reports of an expired metric are still taken: they were on their way."""


@dataclass(frozen=True)
class StoredPlan(Document):
    """A plan under which reports are, or were, accepted."""

    kind = "plans"
    id: int
    plan: Plan
    question: str
    candidates: tuple[str, ...]
    """The candidates of a text that are looked for unless somebody asks for others."""
    reservation: int
    """The most that the metric may charge one device, ever, in micro-epsilon."""
    expires: date
    current: bool
    """Whether it is what the registry says now."""
    retired: bool = False
    """Whether its reports are refused from now on."""
    period_days: int = 1
    """How often a device is asked."""
    owners: tuple[str, ...] = ()
    """Who answers for the question."""
    lowered_from: int = 0
    """The most that an earlier registry with this plan reserved, in micro-epsilon, where it was more: apps in the field
    still have that one."""
    since: date | None = None
    """The day, by the store's clock, since which it has been current and its reports taken, or on which it last became
    so; None where an earlier dither did not note it."""
    measures: str = ""
    """The measure of its own use that a device answers with; "" where an app records the answer."""

    @property
    def document_id(self) -> int:
        """The number by which log, ledger and tallies name it."""
        return self.id

    @property
    def accepted_before_s(self) -> float:
        """When its reports are refused from, in seconds since 1970."""
        return float(day_number(self.expires + GRACE) * DAY_S)

    @property
    def epsilon(self) -> float:
        """The privacy loss of one report."""
        return from_micro(self.plan.cells.charge)

    @property
    def epsilon_permanent(self) -> float | None:
        """The privacy loss of all the reports of one memoized answer; None for fresh noise."""
        cells = self.plan.cells
        return from_micro(cells.first_charge) if cells.memoized else None

    @property
    def epsilon_lifetime(self) -> float:
        """The privacy loss of all the reports of a device's life."""
        return from_micro(self.reservation)

    def to_document(self) -> dict[str, object]:
        """Return all of it by name."""
        return {
            "id": self.id,
            "plan": self.plan.to_document(),
            "question": self.question,
            "candidates": list(self.candidates),
            "reservation": self.reservation,
            "expires": self.expires.isoformat(),
            "current": self.current,
            "retired": self.retired,
            "period_days": self.period_days,
            "owners": list(self.owners),
            **({"lowered_from": self.lowered_from} if self.lowered_from else {}),
            **({"since": self.since.isoformat()} if self.since else {}),
            **({"measures": self.measures} if self.measures else {}),
        }

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            fields["id"],
            Plan.from_document(fields["plan"]),
            fields["question"],
            tuple(fields["candidates"]),
            fields["reservation"],
            date.fromisoformat(fields["expires"]),
            fields["current"],
            fields["retired"],
            fields.get("period_days", 1),  # plans of older stores were read as if asked every day
            tuple(fields.get("owners", ())),  # which older stores do not have
            fields.get("lowered_from", 0),
            date.fromisoformat(fields["since"]) if "since" in fields else None,
            fields.get("measures", ""),
        )._checked()

    @classmethod
    def faults(cls, kept: Sequence[Self]) -> Iterator[str]:
        """Yield the revs and the digests of a metric that are there twice."""
        revs = Counter((stored.plan.metric, stored.plan.rev) for stored in kept)
        digests = Counter((stored.plan.metric, stored.plan.digest) for stored in kept)
        for (metric, what), number in (revs + digests).items():
            if number > 1:
                yield f"{metric} has {number} plans that are {what}"

    def _checked(self) -> Self:
        """Return this if each field is of its kind, as in a backup that anybody may have written."""
        numbers = (self.id, self.plan.rev, self.reservation, self.period_days, self.lowered_from)
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
            raise ValueError(f"an id, a rev, reservations and a period must be numbers, got {numbers}")
        own = (self.question, self.measures, *self.owners, *self.candidates)
        if not all(isinstance(text, str) for text in (self.plan.metric, self.plan.presence, *own, *self.plan.values)):
            raise ValueError("a metric, its presence, question, owners, candidates and values must be texts")
        if not (type(self.current) is type(self.retired) is bool):
            raise ValueError("a plan must be current or not, and retired or not")
        return self


@dataclass(frozen=True)
class Offered:
    """The part of a registry that a store takes."""

    app: str
    plans: tuple[StoredPlan, ...]
    """The plans of its metrics. Their ids are the store's to give."""

    @classmethod
    def of(cls, registry: "Registry | Offered") -> "Offered":
        """Return what a store takes of a registry, if it is not that already."""
        return registry if isinstance(registry, Offered) else cls.from_document(document_of(registry))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Offered":
        """Take what `loading` says of a registry."""
        fresh = {"id": 0, "current": True, "retired": False}
        return cls(document["app"], tuple(StoredPlan.from_document({**fresh, **plan}) for plan in document["plans"]))

    @property
    def metrics(self) -> list[str]:
        """The names of its metrics."""
        return [offered.plan.metric for offered in self.plans]


class Plans:
    """All the plans of a store at one version of its registry."""

    def __init__(self, stored: Iterable[StoredPlan], version: int) -> None:
        self.version = version
        self.by_id = {item.id: item for item in stored}
        self._by_digest = {(item.plan.metric, item.plan.digest): item for item in self.by_id.values()}
        self.ids = {key: item.id for key, item in self._by_digest.items()}
        """By metric and digest: what this store calls a plan."""
        self.cells = {item.id: item.plan.cells for item in self.by_id.values()}
        """By id: what is needed to count a plan's reports."""
        self.accepted = {
            key: (item.plan, item.accepted_before_s) for key, item in self._by_digest.items() if not item.retired
        }
        """By metric and digest: a plan that is not retired, and when its reports are refused from."""
        self._metrics = {item.plan.metric for item in self.by_id.values()}

    def of(self, metric: str | None = None) -> list[StoredPlan]:
        """Return the plans of one metric, or of all: those of the registry first, then the newest."""
        plans = [item for item in self.by_id.values() if metric in (None, item.plan.metric)]
        return sorted(plans, key=lambda item: (not item.current, -item.id if metric else item.id))

    def get(self, plan: Plan) -> StoredPlan:
        """Return what is stored of a plan; KeyError where it is not of this store."""
        return self._by_digest[plan.metric, plan.digest]

    def known(self, metric: str) -> str:
        """Return a metric's name; "" for one that no plan is of, so that strangers add no names to what is kept."""
        return metric if metric in self._metrics else ""

    def refusal(self, metric: str, digest: str) -> GroupRefused:
        """Return why reports are not accepted under a plan that is not in `accepted`, or whose time is over."""
        stored = self._by_digest.get((metric, digest))
        if stored is None:
            return GroupRefused("unknown-plan" if metric in self._metrics else "unknown-metric")
        return GroupRefused("retired" if stored.retired else "expired")

    # Changes: each returns the plans that are to be stored in place of these.

    def loading(self, offered: Offered, today: date) -> list[StoredPlan]:
        """Return these plans with a registry's, loaded today: its own current, the older ones beside them.

        One that is asked for longer after its reports were refused begins anew.

        Raises StoreError for a rev that came before with another plan.
        """
        plans = {item.id: replace(item, current=False) for item in self.by_id.values()}
        fresh = 1 + max(plans, default=0)
        for item in offered.plans:
            id_ = self._id_for(item.plan, fresh)
            fresh = max(fresh, id_ + 1)
            known = self.by_id.get(id_)
            most = max(known.reservation, known.lowered_from) if known else 0
            closed = known and today >= known.expires + GRACE and item.expires > known.expires
            lowered_from = most if most > item.reservation else 0
            plans[id_] = replace(
                item,
                id=id_,
                retired=bool(known and known.retired),
                lowered_from=lowered_from,
                since=known.since if known and known.current and not closed else today,
            )
        return list(plans.values())

    def _id_for(self, plan: Plan, fresh: int) -> int:
        for item in self.by_id.values():
            if item.plan.metric == plan.metric and item.plan.rev == plan.rev:
                if item.plan.digest != plan.digest:
                    raise StoreError(another_meaning(plan, item.plan.digest))
                return item.id
        return fresh

    def retiring(self, metric: str, rev: int, retired: bool, today: date) -> list[StoredPlan]:
        """Return these plans with one of them retired, or taken back today. Raises StoreError where there is none such.

        One that is taken back begins anew: its reports were refused in between.
        """
        found = next((item for item in self.of(metric) if item.plan.rev == rev), None)
        if found is None:
            if metric not in self._metrics:
                raise StoreError(f"there is no metric {metric!r}; there is {_named(sorted(self._metrics))}")
            known = ", ".join(str(item.plan.rev) for item in self.of(metric))
            raise StoreError(f"there is no rev {rev} of metric {metric!r}; there is {known}")
        changed = replace(found, retired=retired, since=today if found.retired and not retired else found.since)
        return [changed if item is found else item for item in self.by_id.values()]


def _named(metrics: Sequence[str]) -> str:
    """Return names for a message; a registry may have hundreds."""
    more = len(metrics) - NAMED_MAX
    return (", ".join(metrics[:NAMED_MAX]) or "none") + (f" and {more:,} more" if more > 0 else "")
