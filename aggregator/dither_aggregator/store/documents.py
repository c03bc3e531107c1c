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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Lock
from typing import NamedTuple, TypeVar

from dither_aggregator.operations.registry_process import another_app
from dither_aggregator.store.access_keys import Key, Keys, masked, new_text
from dither_aggregator.store.dashboard import Dashboard
from dither_aggregator.store.document_kinds import (
    JOURNAL_MAX,
    TOLD_KEPT_DAYS,
    DayMark,
    Document,
    JournalEntry,
    LastBackup,
    Retention,
    ToldMoves,
)
from dither_aggregator.store.packing import DAY_S, day_at, day_number
from dither_aggregator.store.plans import Offered, Plans, StoredPlan
from dither_aggregator.store.records import StoreError
from dither_aggregator.store.release_ledger import Release, check_year
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.safe_output import visible

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


class News(NamedTuple):
    """The answer of a store to a process that asks for changes."""

    ahead_s: float
    """By how much the store's clock is ahead of the process's own."""
    documents: Mapping[str, tuple[int, list[str]]]
    """By kind: the version, and all texts, of those whose version is another."""


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
            taken = [id_ for id_ in kept if gone and id_ == gone.document_id]
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
        """Take a document away; return whether it was there."""
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
        kept = (each for each in self.documents(ToldMoves) if each.receiver == receiver)
        return next((each for each in kept if each.first <= last and first <= each.last), None)

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
