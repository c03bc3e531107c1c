"""The documents of a store: what a registry and operators say, beside what is counted. All kinds are kept alike.

A kind is a `Document` of `document_kinds.py`; a new one is that class, and a line in KINDS. The documents of a kind
have a version, which each change raises. A change is stored only over the version that it was made of, and else made
again. Numbered documents, such as entries of the journal, are only ever added.

Groups in quarantine are no documents. One moves in one step with the cursor and the ledger of its shard, by the script
that moves them, and documents lie in another slot of a Redis Cluster, which no script of a shard reaches. A document
changes only over the version of all of its kind, and a fold waits for no other shard's. Its bytes are reports, which
have to be erased page by page (`sqlite/moving.py`) and are read there by their numbers alone.

Every process knows plans and keys by heart, and the time by the store's clock. It asks for what has changed once a
second (`refresh`).
"""

import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from dither_aggregator.operations.registry_process import another_app, another_meaning, document_of
from dither_aggregator.store.document_kinds import (
    JOURNAL_MAX,
    TOLD_KEPT_DAYS,
    Dashboard,
    DayMark,
    Document,
    JournalEntry,
    Key,
    Keys,
    LastBackup,
    Retention,
    ToldMoves,
    masked,
    new_text,
)
from dither_aggregator.store.records import DAY_S, StoreError, day_at, day_number
from dither_aggregator.store.release_ledger import Release, check_year
from dither_shared.exact import from_micro
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.safe_output import visible
from dither_shared.wire.reading import GroupRefused

# The plans of a store: those of the registry, and older ones that devices in the field still use.


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


KINDS: tuple[type[Document], ...] = (
    *(StoredPlan, Key, Retention, DayMark, JournalEntry, LastBackup, Dashboard, Release, ToldMoves),
)
"""Every kind, plans first: what is counted names them."""
WHAT_CHARACTERS_MAX = 500
CHANGE_ATTEMPTS = 100
"""How often a change of documents is tried: each time somebody else was faster, who may go on for as long."""

_D = TypeVar("_D", bound=Document)


def misplaced(kind: str, kept: Iterable[tuple[object, str | bytes]]) -> Iterator[str]:
    """Yield which documents of a kind, as id and text, stand under another id. Other releases have other kinds."""
    for one in [each for each in KINDS if each.kind == kind and not each.numbered]:
        for id_, text in kept:
            with suppress(StoreError):  # one that cannot be read is told where all are
                if str(one.read(text).document_id) != str(id_):
                    yield f"{kind}: {visible(str(id_))!r} is the id of another than the one that stands there"


class MovesClaim(NamedTuple):
    """The answer of a store to somebody who wants to tell a receiver what moved."""

    own: ToldMoves | None
    """The claim, to be followed by `tell`, or by `remove` where the receiver was not told; None where somebody else has
    told them, or is at it."""
    before: ToldMoves | None
    """The claim, or what the receiver was told, that was there of any of these days; None where there was nothing."""


class News(NamedTuple):
    """The answer of a store to a process that asks for changes."""

    ahead_s: float
    """By how much the store's clock is ahead of the process's own."""
    documents: Mapping[str, tuple[int, list[str]]]
    """By kind: the version, and all texts, of those whose version is another."""


def _told_of(kept: Iterable[ToldMoves], receiver: str, first: date, last: date) -> ToldMoves | None:
    own = (each for each in kept if each.receiver == receiver)
    return next((each for each in own if each.first <= last and first <= each.last), None)


class Documents(ABC):
    """The documents of one store. Nothing that is counted depends on any but the plans."""

    app: str
    """The app whose reports these are."""
    _secret: bytes
    """Hashes keys and signs sessions: all processes of a store know it, and its backups do."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._ahead_s, self._refreshing = clock, 0.0, Lock()
        self._plans, self._keys = Plans([], -1), Keys([], -1, b"")

    # The time, as far as this process knows without asking.

    def clock_day(self) -> date:
        """Return the day by the store's clock, as far as this process knows without asking."""
        return day_at(self._now_s())

    def ahead_s(self) -> float:
        """Return by how many seconds the store's clock is ahead of this machine's, as far as this process knows."""
        return self._now_s() - time.time()

    def over_for_s(self, day: date) -> float:
        """Return for how many seconds a day has been over, by the store's clock; 0 while it is not."""
        return max(0.0, self._now_s() - (day_number(day) + 1) * DAY_S)

    def _now_s(self) -> float:
        """Return the time by the store's clock, in seconds since 1970, as far as this process knows without asking."""
        return self._clock() + self._ahead_s

    # Documents, whichever kind they are of.

    def documents(self, kind: type[_D], last: int | None = None) -> list[_D]:
        """Return all documents of a kind by their ids; of a numbered kind the last so many, in their order."""
        if kind.numbered:
            return [kind.read(text) for text in self._last(kind, last or kind.most or 0)]
        _, texts = self._changes({kind.kind: -1}).documents[kind.kind]
        return sorted(map(kind.read, texts), key=lambda one: one.document_id)

    def _change(self, kind: type[_D], change: Callable[[list[_D]], Iterable[_D]], gone: _D | None = None) -> bool:
        """Store what `change` makes of all documents of a kind, and take one away; return whether there was anything.

        The others stay as they are. Raises StoreError for a document that cannot be stored, and for too many.
        """
        for _ in range(CHANGE_ATTEMPTS):
            version, texts = self._changes({kind.kind: -1}).documents[kind.kind]
            kept = {one.document_id: one for one in map(kind.read, texts)}
            put = {one.document_id: one for one in change(list(kept.values()))}
            taken = [id_ for id_, one in kept.items() if one == gone]
            if not (put or taken):
                return False
            for one in put.values():
                if one.fault:
                    raise StoreError(one.fault)
            if kind.most is not None and len(kept.keys() | put.keys()) > max(kind.most, len(kept)):
                raise StoreError(f"a store keeps at most {kind.most:,} {kind.kind}{kind.room}")
            if self._save(kind, put.values(), taken, version):
                return True
        raise StoreError(f"the {kind.kind} are being changed by somebody else all the time; try again")

    def put(self, document: Document) -> bool:
        """Keep a document; return whether that is new. Raises StoreError as any change."""
        return self._change(type(document), lambda kept: [] if document in kept else [document])

    def remove(self, document: Document) -> bool:
        """Take a document away; return whether it was there, and has not been changed meanwhile."""
        return self._change(type(document), lambda _: [], gone=document)

    @abstractmethod
    def _changes(self, versions: Mapping[str, int]) -> News:
        """Return the documents that have changed since some versions, by kind, all at one instant."""

    @abstractmethod
    def _save(self, kind: type[Document], put: Iterable[Document], gone: Iterable[str | int], version: int) -> bool:
        """Store documents, and take away others, *if the version of their kind is still this one*; return whether.

        The version is the next then. A kind of which nothing was ever stored has version 0.
        """

    @abstractmethod
    def _add(self, kind: type[Document], documents: Iterable[Document]) -> None:
        """Add documents of a numbered kind, and let the oldest go beyond the most."""

    @abstractmethod
    def _last(self, kind: type[Document], number: int) -> Sequence[str | bytes]:
        """Return the last so many texts of a numbered kind, the oldest first."""

    def refresh(self) -> None:
        """Take up what other processes changed: plans, keys, the clock's offset. Cheap; call it every second."""
        with self._refreshing:  # else a thread that read before another one's change could take that back
            changes = self._changes({StoredPlan.kind: self._plans.version, Key.kind: self._keys.version})
            self._ahead_s = changes.ahead_s
            if StoredPlan.kind in changes.documents:
                version, texts = changes.documents[StoredPlan.kind]
                stored = sorted(map(StoredPlan.read, texts), key=lambda item: item.id)
                self._plans = Plans(stored, version)
            if Key.kind in changes.documents:
                version, texts = changes.documents[Key.kind]
                self._keys = Keys(map(Key.read, texts), version, self._secret)

    # Plans: those of the registry, and older ones.

    def plans(self, metric: str | None = None) -> list[StoredPlan]:
        """Return the plans of one metric, or of all: those of the registry first, then the newest."""
        return self._plans.of(metric)

    def measuring_people(self) -> list[StoredPlan]:
        """Return the present plans that count devices by the month of their first use."""
        return [stored for stored in self.plans() if stored.current and stored.measures == "first_month"]

    def stored(self, plan: Plan) -> StoredPlan:
        """Return what is stored of a plan; KeyError where it is not of this store."""
        return self._plans.get(plan)

    def plan_by_id(self, id_: int) -> StoredPlan:
        """Return the plan with this id, which another process may just have loaded; KeyError where there is none."""
        if id_ not in self._plans.by_id:
            self.refresh()
        return self._plans.by_id[id_]

    def load(self, registry: Registry | Offered) -> None:
        """Store the registry's plans beside the older ones, which stay accepted until they expire or are retired.

        Raises StoreError for another app's registry and for a rev that came before with another plan.
        """
        offered = Offered.of(registry)
        self._change(StoredPlan, lambda kept: self.loading(offered, Plans(kept, 0)))
        self.refresh()

    def loading(self, registry: Registry | Offered, plans: Plans | None = None) -> list[StoredPlan]:
        """Return the plans that loading a registry would store; raise StoreError as `load` does."""
        if self.app != registry.app:
            raise StoreError(another_app(self.app, registry.app))
        return (plans or self._plans).loading(Offered.of(registry), self.clock_day())

    def retire(self, metric: str, rev: int, retired: bool = True) -> None:
        """Refuse the reports of a plan from now on, or take them again. Raises StoreError for a plan there is not."""
        self._change(StoredPlan, lambda kept: Plans(kept, 0).retiring(metric, rev, retired, self.clock_day()))
        self.refresh()

    def find_plan(self, metric: str, digest: str) -> Plan:
        """Return the plan under which an upload's group may be accepted; raise GroupRefused with the reason."""
        plans = self._plans  # once: another thread may refresh it
        found = plans.accepted.get((metric, digest))
        if found is None or self._now_s() >= found[1]:
            raise plans.refusal(metric, digest)
        return found[0]

    # Keys: they let somebody in. Other processes follow with their next refresh.

    @property
    def keys(self) -> Keys:
        """The keys, as far as this process knows without asking."""
        return self._keys

    def signing_secret(self, purpose: bytes) -> bytes:
        """Return a secret for one purpose, the same in every process of the store: 32 bytes."""
        return hashlib.blake2b(purpose, key=self._secret, digest_size=32, person=b"dither sign").digest()

    def create_key(self, scope: str, label: str = "") -> tuple[Key, str]:
        """Make a key; return it with its text, which nobody can tell again. Raises StoreError for a bad label."""
        text = new_text(scope)
        return self.register_key(scope, text, label), text

    def register_key(self, scope: str, text: str, label: str = "") -> Key:
        """Take over a key by its text. Raises StoreError for one that is too weak, or known already."""
        self._change_keys(lambda keys: keys.adding(scope, text, label, self.clock_day()))
        key = self._keys.find(text.encode())
        assert key
        return key

    def revoke_key(self, id_: str, *, wait: bool = False) -> Key:
        """Let nobody in with a key from now on; return it as it is then.

        With `wait`, uploads that show it are to come again later, until it is revoked for good. Raises StoreError for
        a key there is not, and to wait with one that is no write key or was revoked before.
        """
        self._change_keys(lambda keys: keys.revoking(id_, wait))
        return self._keys.by_id[id_]

    def use_keys(self, ids: Iterable[str]) -> None:
        """Remember that some keys were shown today. Writes something at most once a day for each."""
        shown = list(ids)
        if self._keys.used(shown, self.clock_day()):
            self._change_keys(lambda keys: keys.used(shown, self.clock_day()))

    def bound_key_days(self, day: date) -> None:
        """Let no key be made or used after a day: it would not be known to be used until then."""
        if self._keys.not_after(day):
            self._change_keys(lambda keys: keys.not_after(day))

    def _change_keys(self, change: Callable[[Keys], Iterable[Key]]) -> None:
        self._change(Key, lambda kept: change(Keys(kept, 0, self._secret)))
        self.refresh()

    # The journal: who asked for which change, and when.

    def note(self, actor: str, action: str, what: str) -> None:
        """Add an entry, of now. To be called before the change itself: no change is without one."""
        at = datetime.fromtimestamp(int(self._now_s()), UTC)
        self._add(JournalEntry, [JournalEntry(at, actor, action, visible(masked(what))[:WHAT_CHARACTERS_MAX])])

    def journal(self, limit: int = JOURNAL_MAX) -> list[JournalEntry]:
        """Return the last entries, the oldest of them first."""
        return self.documents(JournalEntry, limit)

    # Releases: what was published, and charged for it.

    def charge_release(self, entry: Release, micro_year: int, delta: Decimal | None = None) -> Release:
        """Keep a release that is to be drawn; return the one that is kept for its window.

        A window that is kept stays as it is. Raises StoreError above what releases may cost a device in a year.
        """

        def charge(kept: list[Release]) -> list[Release]:
            if any(each.document_id == entry.document_id for each in kept):
                return []
            check_year(entry, kept, micro_year, delta)
            return [entry]

        self._change(Release, charge)
        return self.release_of(entry.document_id)

    def draw_release(self, drawn: Release) -> Release:
        """Put names, or counts, into the entry that was charged for them; return what is kept.

        One that has counts keeps them, and one that has names keeps these.
        """

        def fill(kept: list[Release]) -> list[Release]:
            return [
                drawn
                for each in kept
                if each.document_id == drawn.document_id and each.counts is None and each.names in ((), drawn.names)
            ]

        self._change(Release, fill)
        return self.release_of(drawn.document_id)

    def take_over_release(self, published: Release) -> None:
        """Keep a release that was published before, whatever a year allows: its epsilon is spent."""

        def keep(kept: list[Release]) -> list[Release]:
            there = [each for each in kept if each.document_id == published.document_id and each.counts is not None]
            return [] if there else [published]

        self._change(Release, keep)

    def release_of(self, id_: str) -> Release:
        """Return the release that is kept of a window; KeyError where there is none."""
        return {each.document_id: each for each in self.documents(Release)}[id_]

    # Verdicts that were sent.

    def receiver(self, address: str) -> str:
        """Return by which name a receiver of verdicts is kept: the address itself, which may be a secret, is not."""
        return self.signing_secret(f"told {address}".encode()).hex()[:32]

    def told(self, receiver: str, first: date, last: date) -> ToldMoves | None:
        """Return what a receiver was told of any of these days, None where that is nothing."""
        return _told_of(self.documents(ToldMoves), receiver, first, last)

    def claim(self, told: ToldMoves, *, again: bool = False) -> MovesClaim:
        """Claim to tell a receiver what moved: of several who want to at once, one gets it, for CLAIMED_FOR_S.

        With `again`, a claim that has not ended yet is taken over.
        """
        made = MovesClaim(None, None)

        def take(kept: list[ToldMoves]) -> list[ToldMoves]:
            nonlocal made
            now_s = int(self._now_s())
            before = _told_of(kept, told.receiver, told.first, told.last)
            free = before is None or (before.claimed_s is not None and (again or before.claim_ended(now_s)))
            made = MovesClaim(replace(told, claimed_s=now_s) if free else None, before)
            return [made.own] if made.own else []

        self._change(ToldMoves, take)
        return made

    def tell(self, told: ToldMoves) -> None:
        """Keep what a receiver was told, in the place of what they were told before."""
        self.put(told)
        now = min(told.last, self.clock_day())  # the days of a store may have leapt ahead of the clock
        for each in self.documents(ToldMoves):
            if (now - each.last).days > TOLD_KEPT_DAYS:
                self.remove(each)

    def forget_told_after(self, day: date) -> None:
        """Forget what receivers were told of later days, which are false."""
        for each in self.documents(ToldMoves):
            if each.last > day:
                self.remove(each)

    # Backups.

    def backed_up(self, size: int) -> None:
        """Keep that a backup of so many bytes is whole now, in the place of the one before."""
        self.put(LastBackup(int(self._now_s()), size))

    def backup_age_s(self) -> float | None:
        """Return how long ago the latest backup was made, below 0 for one of a false future; None without one."""
        return next((self._now_s() - last.made_s for last in self.documents(LastBackup)), None)

    # Retention: for how long tallies and snapshots are kept.

    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""
        return next(iter(self.documents(Retention)), Retention())
