"""Uploads that were sent to one aggregator, and its answers: what it has stored by them, or may have."""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple, Self

from dither_aggregator.store import Receipt
from dither_aggregator.store.records import Quarantined
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire import GROUPS_MAX, PROBLEM_PREFIX
from dither_shared.wire.reading import Problem
from tests.faults.aggregator.sums import Garbage, Sums, add
from tests.faults.aggregator.uploads import PlanKey, Sent, Uploads, count

KNOWN_FOR = timedelta(days=7)
"""For so long at least the aggregator knows an upload's id."""
MAY_REFUSE = {"unknown-plan", "unknown-metric", "expired", "retired"}
"""Why a group may be refused that is sound by itself."""


class Option(NamedTuple):
    """One way in which an upload may have been stored: on this day, with the groups at these places."""

    epoch: date | None
    places: frozenset[int]


@dataclass
class Entry:
    """One time that an upload was stored, or may have been: in one of these ways."""

    sent: Sent
    options: list[Option]
    certain: bool

    def known_on(self, epoch: date | None) -> bool:
        """Whether a copy is known on this day, however this was stored."""
        return all(within(option.epoch, epoch) for option in self.options)


def within(epoch: date | None, later: date | None) -> bool:
    """Whether what was stored on a day is remembered on a later one."""
    return epoch is None or later is None or later - epoch <= KNOWN_FOR


class Account:
    """The account of all that was sent to one aggregator, and of what it answered."""

    def __init__(self, seed: object, registry: Registry, *others: Registry) -> None:
        self.uploads = Uploads(seed, [registry, *others])
        self._bodies: dict[str, list[Sent]] = {}
        self._entries: list[Entry] = []
        self._last: dict[bytes, Entry] = {}  # by body
        self._moved: Sums = {}
        self._moved_garbage: Garbage = Counter()
        self._dropped: list[tuple[PlanKey, Quarantined]] = []

    # Uploads.

    def upload(self, groups_max: int = GROUPS_MAX, reports_max: int = 8) -> tuple[str, bytes]:
        """Return a new upload: its id and its body."""
        sent = self.note(self.uploads.draw(groups_max, reports_max))
        return sent.id, sent.body

    def another_body(self, id_: str) -> bytes:
        """Return another body under an id."""
        return self.note(self.uploads.draw(groups_max=3, id_=id_)).body

    def note(self, sent: Sent) -> Sent:
        """Take an upload into the account, of which nothing is stored so far."""
        self._bodies.setdefault(sent.id, []).append(sent)
        return sent

    def body(self, id_: str) -> bytes:
        """Return the first body of an id: the same bytes again."""
        return self._bodies[id_][0].body

    def sent(self, id_: str, body: bytes | None = None) -> Sent:
        """Return what an upload holds."""
        return next(sent for sent in self._bodies[id_] if body in (None, sent.body))

    def all_of(self, id_: str) -> list[Sent]:
        """Return all that was sent under an id, oldest first."""
        return list(self._bodies[id_])

    def ways(self, id_: str) -> list[Option]:
        """Return how an upload is stored, or may be."""
        return [option for entry in self._entries if entry.sent.id == id_ for option in entry.options]

    def ids(self) -> list[str]:
        """Return the ids of all uploads, oldest first."""
        return list(self._bodies)

    def unsettled(self) -> list[str]:
        """Return the ids of the uploads of which nobody knows whether they are stored."""
        return sorted({entry.sent.id for entry in self._entries if not entry.certain})

    def copy(self) -> Self:
        """Return an account of the same, for a copy of the store that goes its own way."""
        return deepcopy(self)

    # Answers.

    def acknowledged(
        self, id_: str, receipt: Receipt | Mapping[str, Any], *, body: bytes | None = None, epoch: date | None = None
    ) -> None:
        """Account for a receipt, which must be that of this upload. `epoch` is the day it counts on, where known."""
        document = receipt.to_document() if isinstance(receipt, Receipt) else receipt
        sent = self.sent(id_, body)
        places = self._accepted(sent, document)
        if document["duplicate"]:
            self._copied(sent)
            return
        self._forget_what_was_not(id_, epoch)
        self._enter(Entry(sent, [Option(epoch, places)], certain=True))

    def _accepted(self, sent: Sent, document: Mapping[str, Any]) -> frozenset[int]:
        """Return the places of the groups that a receipt says are taken."""
        assert document["upload"] == sent.id, f"the receipt of {document['upload']} was given to {sent.id}"
        refused = {one["group"]: one for one in document["rejected"]}
        self._check_refusals(sent, refused)
        places = frozenset(range(len(sent.groups))) - refused.keys()
        n = sum(sent.groups[place].n for place in places)
        assert document["accepted"] == n, f"{document['accepted']} reports of {sent.id} were accepted, it holds {n}"
        return places

    def _check_refusals(self, sent: Sent, refused: Mapping[int, Mapping[str, Any]]) -> None:
        for place, group in enumerate(sent.groups):
            what = f"group {place} of {sent.id}, of {group.plan[0]}"
            one = refused.get(place)
            if one is None:
                assert not group.fault, f"{what} was accepted: {group.fault}"
                continue
            assert one["reason"] in MAY_REFUSE | {group.fault}, f"{what} was refused: {one['reason']}"
            assert one["count"] == group.n, f"{what}: {one['count']} reports were refused, it holds {group.n}"

    def _copied(self, sent: Sent) -> None:
        """An upload is said to be a copy, which says no more than that it was stored: which groups of it is unknown."""
        entries = [entry for entry in self._entries if entry.sent is sent]
        assert entries, f"upload {sent.id} is said to be a copy, and never came before"
        if len(entries) == 1:
            entries[0].certain = True

    def _forget_what_was_not(self, id_: str, epoch: date | None) -> None:
        """An upload was taken as new: earlier attempts that would still be known were not stored."""
        for sent in self._bodies[id_]:
            entry = self._last.get(sent.body)
            if entry is None:
                continue
            entry.options = [option for option in entry.options if not within(option.epoch, epoch)]
            assert entry.options or not entry.certain, f"upload {id_} was accepted twice"
            if not entry.options:
                self._entries.remove(entry)
                del self._last[sent.body]

    def _enter(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._last[entry.sent.body] = entry

    def unknown(
        self, id_: str, *, body: bytes | None = None, refused: Iterable[int] = (), epoch: date | None = None
    ) -> None:
        """Account for an attempt without an answer. `refused` are places of groups that cannot have been taken."""
        sent = self.sent(id_, body)
        out = {place for place, group in enumerate(sent.groups) if group.fault}
        option = Option(epoch, frozenset(range(len(sent.groups))) - out - set(refused))
        if not option.places:
            return
        entry = self._last.get(sent.body)
        if entry is None or not entry.known_on(epoch):
            self._enter(Entry(sent, [option], certain=False))
        elif not entry.certain and option not in entry.options:
            entry.options.append(option)

    def refused(
        self, id_: str, problem: Problem | Mapping[str, Any], *, body: bytes | None = None, epoch: date | None = None
    ) -> None:
        """Account for an upload that was not taken, for a reason that must be one."""
        document: Mapping[str, Any] = problem.to_document() if isinstance(problem, Problem) else problem
        slug = str(document["type"]).removeprefix(PROBLEM_PREFIX)
        sent = self.sent(id_, body)
        mine = self._last.get(sent.body)
        if slug == "upload-conflict":
            # With what was stored under the id at any time: it may be kept for longer than it must.
            others = [entry for entry in self._entries if entry.sent.id == id_ and entry.sent is not sent]
            assert others, f"upload {id_} is said to conflict with another body, which never came"
            assert not (mine and mine.certain and mine.known_on(epoch)), f"upload {id_} conflicts with itself"
            if len(others) == 1:
                others[0].certain = True
            return
        assert slug in ("expired", "retired", "refused"), f"upload {id_} was answered with {slug}"
        last = [entry for one in self._bodies[id_] if (entry := self._last.get(one.body))]
        known = any(entry.certain and entry.known_on(epoch) for entry in last)
        assert not known, f"upload {id_} was stored, and is now refused: {document['detail']}"
        refused = {one["group"]: one for one in document["rejected"]}
        self._check_refusals(sent, refused)
        assert len(refused) == len(sent.groups), f"upload {id_} was refused, and not all of its groups"

    # An operator's work on the quarantine.

    def replayed(self, plan: Plan, held: Quarantined, epoch: date) -> None:
        """Account for a quarantined group that was put back into the log, on this day."""
        vector = count(plan.cells, held.cell, held.reports, held.n)
        for day, sign in ((held.epoch, -1), (epoch, 1)):
            place = (plan.metric, plan.digest, day)
            if vector is None:
                self._moved_garbage[*place, held.cell, held.n, held.reports] += sign
            else:
                add(self._moved, place, sign * vector)

    def dropped(self, plan: Plan, held: Quarantined) -> None:
        """Account for a quarantined group that was given up."""
        self._dropped.append(((plan.metric, plan.digest), held))

    def _n_of(self, sent: Sent, option: Option) -> Counter[PlanKey]:
        total: Counter[PlanKey] = Counter()
        for place in option.places:
            total[sent.groups[place].plan] += sent.groups[place].n
        return total
