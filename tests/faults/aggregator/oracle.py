"""An account of uploads and of their answers: it knows what an aggregator must hold, and compares.

    oracle = Oracle(seed, registry)
    id_, body = oracle.upload()                 # send it, then say what came of it:
    oracle.acknowledged(id_, receipt)           #   202, with its receipt
    oracle.refused(id_, problem)                #   409, 410, 422
    oracle.unknown(id_)                         #   no answer: stored, or not
    oracle.check(store)                         # AssertionError where the store holds anything else

Every report comes from the seed, so the exact sums are known. An upload whose answer was lost must be there as a whole
or not at all, and every later check must find such a choice; sending the same bytes again settles it.

Sums are compared day by day if the epoch of each upload is told (`epoch=`), else over all days. `check` may be called
while nobody changes the store; `check_conservation` at any instant; `check_ledger` takes the rows of
`dither ledger --json`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np

from dither_aggregator.analysis import snapshots
from dither_aggregator.store import Receipt, Store
from dither_aggregator.store.dump import ShardRecord, TallyRecord
from dither_aggregator.store.packing import unpack_counts, unpack_entry
from dither_aggregator.store.records import Counted, Final, Quarantined, Segment, ShardStatus, TallyKey
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire import GROUPS_MAX, PROBLEM_PREFIX
from dither_shared.wire.problems import Problem
from tests.faults.aggregator.uploads import PlanKey, Sent, Uploads, Vector, count

KNOWN_FOR = timedelta(days=7)
"""For so long at least the aggregator knows an upload's id."""
MAYBE_MAX = 24
"""Uploads of which nobody knows whether they are stored: so many can be told apart by what is."""
MAY_REFUSE = {"unknown-plan", "unknown-metric", "expired", "retired"}
"""Why a group may be refused that is sound by itself."""

Place = tuple[str, str, date | None]
"""A metric, the digest of its plan, and an epoch: None where only sums over all days are known."""
Sums = dict[Place, Vector]
Garbage = Counter[tuple[str, str, date | None, int, int, bytes]]
"""Groups that cannot be counted, as the log holds them."""
ShardLedger = Mapping[TallyKey, Counted]


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


@dataclass
class _Seen:
    """The findings of a check of one store: later checks must find them again."""

    status: dict[int, ShardStatus] = field(default_factory=dict)
    ledgers: dict[int, ShardLedger] = field(default_factory=dict)


class Oracle:
    """The account of all that was sent to one aggregator."""

    def __init__(self, seed: object, registry: Registry, *others: Registry) -> None:
        self.uploads = Uploads(seed, [registry, *others])
        self._bodies: dict[str, list[Sent]] = {}
        self._entries: list[Entry] = []
        self._last: dict[bytes, Entry] = {}  # by body
        self._moved: Sums = {}
        self._moved_garbage: Garbage = Counter()
        self._dropped: list[tuple[PlanKey, Quarantined]] = []
        self._seen: dict[str, _Seen] = {}
        self._finals: dict[tuple[PlanKey, date], Final] = {}
        self._sealed: dict[tuple[PlanKey, date], str] = {}
        self._forgotten: dict[tuple[PlanKey, date], Vector] = {}
        self._day, self._sealed_until = date.min, date.min

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

    def copy(self) -> "Oracle":
        """Return an account of the same, for a copy of the store that goes its own way."""
        return deepcopy(self)

    # Answers.

    def acknowledged(
        self,
        id_: str,
        receipt: Receipt | Mapping[str, Any],
        *,
        body: bytes | None = None,
        epoch: date | None = None,
    ) -> None:
        """Account for a receipt, which must be that of this upload. `epoch` is the day it counts on, where known."""
        document = receipt.to_document() if isinstance(receipt, Receipt) else receipt
        sent = self.sent(id_, body)
        places = self._accepted(sent, document)
        if document["duplicate"]:
            self._copied(sent, places, document)
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

    def _copied(self, sent: Sent, places: frozenset[int], document: Mapping[str, Any]) -> None:
        """An upload is said to be a copy: of the one time that it was stored, if it can have been only one."""
        entries = [entry for entry in self._entries if entry.sent is sent]
        assert entries, f"upload {sent.id} is said to be a copy, and never came before"
        entries = [entry for entry in entries if any(option.places == places for option in entry.options)]
        assert entries, f"upload {sent.id} has another receipt than before: {document}"
        if len(entries) == 1:
            entries[0].certain = True
            entries[0].options = [option for option in entries[0].options if option.places == places]

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
        self,
        id_: str,
        problem: Problem | Mapping[str, Any],
        *,
        body: bytes | None = None,
        epoch: date | None = None,
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
                _add(self._moved, place, sign * vector)

    def dropped(self, plan: Plan, held: Quarantined) -> None:
        """Account for a quarantined group that was given up."""
        self._dropped.append(((plan.metric, plan.digest), held))

    # Checks.

    def check(self, store: Store) -> None:
        """Raise AssertionError unless the store holds exactly what it acknowledged. Nobody may change it meanwhile."""
        self.check_conservation(store)
        self._check_tallies(store)
        self._check_finals(store)
        self._check_sums(*self._held(store))

    def check_conservation(self, store: Store) -> None:
        """Check what must hold at every instant: the ledger of each shard, its cursor and its days."""
        seen = self._seen.setdefault(store.generation, _Seen())
        for status in store.status():
            before = seen.status.get(status.shard)
            _check_status(status, before)
            ledger = store.shard_ledger(status.shard)
            _check_ledger(status, ledger)
            if before:
                _check_since(before, seen.ledgers[status.shard], ledger)
            seen.status[status.shard], seen.ledgers[status.shard] = status, ledger
        days, sealed = zip(*((status.day, status.sealed) for status in seen.status.values()), strict=True)
        assert max(days) >= self._day, f"the day was {self._day}, and is {max(days)}"
        assert min(sealed) >= self._sealed_until, f"{self._sealed_until} was sealed, and now is {min(sealed)}"
        self._day, self._sealed_until = max(days), min(sealed)

    def check_ledger(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Check the rows of a ledger: that each balances, and what was accepted of each plan over all days."""
        accepted: Counter[PlanKey] = Counter()
        for row in rows:
            name = f"{row['metric']}, plan {row['plan']}, on {row['epoch']}"
            there = row["folded"] + row["pending"] + row["quarantined"]
            assert row["accepted"] == there, f"{name}: {row['accepted']} reports were accepted, {there} are there"
            accepted[row["metric"], row["plan"]] += row["accepted"]
        least: Counter[PlanKey] = Counter()
        most: Counter[PlanKey] = Counter()
        for entry in self._entries:
            ways = [self._n_of(entry.sent, option) for option in entry.options] + [Counter()] * (not entry.certain)
            for plan in {plan for way in ways for plan in way}:
                least[plan] += min(way[plan] for way in ways)
                most[plan] += max(way[plan] for way in ways)
        for plan in accepted.keys() | most.keys():
            assert least[plan] <= accepted[plan] <= most[plan], (
                f"{plan[0]}, plan {plan[1]}: {accepted[plan]} reports are accounted for, "
                f"{least[plan]} to {most[plan]} were acknowledged"
            )

    def _n_of(self, sent: Sent, option: Option) -> Counter[PlanKey]:
        total: Counter[PlanKey] = Counter()
        for place in option.places:
            total[sent.groups[place].plan] += sent.groups[place].n
        return total

    # Tallies.

    def _check_tallies(self, store: Store) -> None:
        for status in store.status():
            ranges: dict[date, set[tuple[int, int]]] = {}
            for (plan, epoch), row in store.shard_ledger(status.shard).items():
                segments = store.segments(status.shard, plan, epoch)
                ranges.setdefault(epoch, set()).update((segment.low, segment.high) for segment in segments)
                name = f"shard {status.shard}, {_name(store, plan, epoch)}"
                _check_segments(name, segments, status.cursor)
                n = sum(segment.n for segment in segments)
                if n != row.folded:
                    # Some of the shards that came together may have given their part up, and others not.
                    given_up = n < row.folded and self._may_be_given_up(store, plan, epoch)
                    assert given_up, f"{name}: the tally has {n} reports, the ledger says {row.folded}"
            for epoch, found in ranges.items():
                merged = epoch > status.merged or len(found) <= 1
                assert merged, f"shard {status.shard}: {epoch} is said to be merged, and has the ranges {found}"

    def _may_be_given_up(self, store: Store, plan: int, epoch: date) -> bool:
        return epoch < store.tallies_from() and epoch in store.finals(store.plan_by_id(plan).plan)

    def remember(self, store: Store) -> None:
        """Note the tallies that are final: the store may give them up from now on."""
        for stored in store.plans():
            key = (stored.plan.metric, stored.plan.digest)
            for epoch in store.finals(stored.plan):
                tally = store.tally(stored.plan, epoch)
                if (key, epoch) not in self._forgotten and not self.has_given_up(store, stored.id, epoch):
                    self._forgotten[key, epoch] = np.array([tally.n, *tally.counts], dtype=np.int64)

    def _check_finals(self, store: Store) -> None:
        sealed, merged = store.sealed(), store.merged()
        for stored in store.plans():
            key = (stored.plan.metric, stored.plan.digest)
            finals = store.finals(stored.plan)
            for epoch in store.epochs(stored.plan):
                if epoch <= sealed:
                    self._check_sealed(store, stored.id, key, epoch)
            for epoch, final in finals.items():
                name = _name(store, stored.id, epoch)
                assert epoch <= merged, f"{name} is finalized, and only {merged} is merged"
                before = self._finals.setdefault((key, epoch), final)
                assert final == before, f"{name}: {before} was finalized, and now {final} is"
                self._check_sealed(store, stored.id, key, epoch, final.digest)
                content = snapshots.content(store, final.snapshot)
                if content is not None:
                    digest = json.loads(content)["tally"]["digest"]
                    assert digest == final.digest, f"{name}: the snapshot is of another tally"
            known = [epoch for of, epoch in self._finals if of == key]
            gone = set(known) - finals.keys()
            assert not gone, f"{stored.plan.metric}: {sorted(map(str, gone))} were finalized and are not"

    def _check_sealed(self, store: Store, plan: int, key: PlanKey, epoch: date, recorded: str = "") -> None:
        """A sealed tally has the digest that it had when it was first seen, and that was recorded."""
        if self.has_given_up(store, plan, epoch):
            return
        digest = store.tally(store.plan_by_id(plan).plan, epoch).digest
        before = self._sealed.setdefault((key, epoch), recorded or digest)
        name = _name(store, plan, epoch)
        assert digest == before, f"{name}: the sealed tally was {before}, and is {digest}"
        assert not recorded or digest == recorded, f"{name}: the tally is not the one that was finalized"

    def has_given_up(self, store: Store, plan: int, epoch: date) -> bool:
        """Return whether a shard's part of a tally is gone, as it may be."""
        return self._may_be_given_up(store, plan, epoch) and any(
            sum(segment.n for segment in store.segments(shard, plan, epoch))
            < store.shard_ledger(shard).get((plan, epoch), Counted()).folded
            for shard in range(store.shards)
        )

    # Exact sums.

    def _held(self, store: Store) -> tuple[Sums, Garbage]:
        """Return what a store holds by metric, plan and epoch, wherever it is; what was dropped is held here."""
        sums: Sums = {}
        garbage: Garbage = Counter()
        dumped: Sums = {}

        def hold(plan: Plan, cell: int, epoch: date, n: int, reports: bytes) -> None:
            vector = count(plan.cells, cell, reports, n)
            if vector is None:
                garbage[plan.metric, plan.digest, epoch, cell, n, reports] += 1
            else:
                _add(sums, (plan.metric, plan.digest, epoch), vector)

        for record in store.dump():
            if isinstance(record, ShardRecord):
                self._check_log(store, record)
                for group in (group for entry in record.entries for group in unpack_entry(entry)):
                    hold(store.plan_by_id(group.plan).plan, group.cell, group.epoch, group.n, group.reports)
            elif isinstance(record, TallyRecord):
                plan = store.plan_by_id(record.plan).plan
                counts = unpack_counts(record.counts, plan.cells.tally_size)
                _add(dumped, (plan.metric, plan.digest, record.epoch), np.array([record.n, *counts], dtype=np.int64))
        for held in store.quarantined():
            hold(store.plan_by_id(held.plan).plan, held.cell, held.epoch, held.n, held.reports)
        for key, held in self._dropped:
            hold(self.uploads.plans[key], held.cell, held.epoch, held.n, held.reports)
        self._check_quarantine(store)
        for stored in store.plans():
            for epoch in self._days(store, stored.id):
                place = (stored.plan.metric, stored.plan.digest, epoch)
                tally = store.tally(stored.plan, epoch)
                vector = np.array([tally.n, *tally.counts], dtype=np.int64)
                same = (dumped.get(place, np.zeros_like(vector)) == vector).all()
                assert same, f"{_name(store, stored.id, epoch)}: a dump has another tally than the store"
                if self.has_given_up(store, stored.id, epoch):
                    remembered = self._forgotten.get(((stored.plan.metric, stored.plan.digest), epoch))
                    assert remembered is not None, (
                        f"{_name(store, stored.id, epoch)}: a part of the tally is gone, and nobody gave it up"
                    )
                    vector = remembered
                _add(sums, place, vector)
        return sums, garbage

    def _days(self, store: Store, plan: int) -> Iterator[date]:
        days = {epoch for shard in range(store.shards) for id_, epoch in store.shard_ledger(shard) if id_ == plan}
        yield from sorted(days)

    def _check_log(self, store: Store, record: ShardRecord) -> None:
        """The log's numbers go on without a gap, its days never go back, and a counter reads its beginning."""
        groups = [group for entry in record.entries for group in unpack_entry(entry)]
        days = [group.epoch for group in groups]
        assert days == sorted(days), f"shard {record.shard}: the days of the log go back"
        read = store.read_log(record.shard)
        there = f"shard {record.shard}: the log goes from {record.cursor} on with {len(record.entries)} uploads"
        assert read.low == record.cursor, f"{there}, and a counter begins at {read.low}"
        assert (read.high > read.low) == bool(record.entries), f"{there}, and a counter reads to {read.high}"
        assert list(read.groups) == groups[: len(read.groups)], f"{there}, and a counter reads others"

    def _check_quarantine(self, store: Store) -> None:
        waiting: Counter[tuple[int, date]] = Counter()
        for held in store.quarantined():
            waiting[held.plan, held.epoch] += held.n
        said: Counter[tuple[int, date]] = Counter()
        for shard in range(store.shards):
            for key, row in store.shard_ledger(shard).items():
                said[key] += row.quarantined - row.dropped
        for plan, epoch in waiting.keys() | said.keys():
            there, name = waiting[plan, epoch], _name(store, plan, epoch)
            assert there == said[plan, epoch], f"{name}: {there} reports wait in quarantine, {said[plan, epoch]} should"

    def _check_sums(self, sums: Sums, garbage: Garbage) -> None:
        """Find the choice of what was stored that is what is held."""
        by_day = all(option.epoch for entry in self._entries for option in entry.options)
        rest = _Rest(by_day)
        rest.hold(sums, garbage)
        if by_day:
            rest.hold(self._moved, self._moved_garbage, sign=-1)
        open_: list[list[_Rest]] = []
        for entry in self._entries:
            ways = [self._way(entry.sent, option, by_day) for option in entry.options]
            if entry.certain and len(ways) == 1:
                rest.hold(ways[0].sums, ways[0].garbage, sign=-1)
            else:
                open_.append(ways if entry.certain else [*ways, _Rest(by_day)])
        assert len(open_) <= MAYBE_MAX, f"send the {len(open_)} uploads that nobody answered again, then check"
        if not _explains(rest, open_, [_most(open_[place:]) for place in range(len(open_))]):
            raise AssertionError(f"{rest}; {len(open_)} uploads that may be stored do not explain it")

    def _way(self, sent: Sent, option: Option, by_day: bool) -> "_Rest":
        """Return what an upload adds when it is stored in one way."""
        way = _Rest(by_day)
        for place in option.places:
            group = sent.groups[place]
            vector = count(self.uploads.plans[group.plan].cells, group.cell, group.packed, group.n)
            if vector is None:
                way.hold({}, Counter({(*group.plan, option.epoch, group.cell, group.n, group.packed): 1}))
            else:
                way.hold({(*group.plan, option.epoch): vector}, Counter())
        return way


class _Rest:
    """Reports by where they are: what is held less what is accounted for, or what one upload adds."""

    def __init__(self, by_day: bool) -> None:
        self._by_day = by_day
        self.sums: Sums = {}
        self.garbage: Garbage = Counter()

    def hold(self, sums: Sums, garbage: Garbage, sign: int = 1) -> None:
        """Add reports, or take them away."""
        for (metric, digest, epoch), vector in sums.items():
            _add(self.sums, (metric, digest, epoch if self._by_day else None), sign * vector)
        for (metric, digest, epoch, cell, n, reports), number in garbage.items():
            self.garbage[metric, digest, epoch if self._by_day else None, cell, n, reports] += sign * number

    def covers(self, other: "_Rest") -> bool:
        """Whether nothing is missing when the other's reports are taken away."""
        return all(
            (vector <= self.sums.get(place, np.zeros_like(vector))).all() for place, vector in other.sums.items()
        ) and all(number <= self.garbage[group] for group, number in other.garbage.items())

    def __str__(self) -> str:
        parts = []
        for (metric, digest, epoch), vector in self.sums.items():
            if vector.any():
                off = {int(place): int(vector[1 + place]) for place in np.flatnonzero(vector[1:])[:8]}
                parts.append(f"{metric}, plan {digest}, on {epoch}: {vector[0]:+d} reports, counts off by {off}")
        parts += [f"{group[0]} on {group[2]}: {number:+d} damaged" for group, number in self.garbage.items() if number]
        return "what is stored is not what was acknowledged: " + "; ".join(parts or ["nothing is off"])


def _explains(rest: _Rest, open_: Sequence[Sequence[_Rest]], most: Sequence[_Rest]) -> bool:
    """Whether the rest is the sum of one way for each open upload. `most` bounds what those from each on add."""
    if not open_:
        return not any(vector.any() for vector in rest.sums.values()) and not any(rest.garbage.values())
    if not most[0].covers(rest):
        return False
    for way in open_[0]:
        if rest.covers(way):
            rest.hold(way.sums, way.garbage, sign=-1)
            found = _explains(rest, open_[1:], most[1:])
            rest.hold(way.sums, way.garbage)
            if found:
                return True
    return False


def _most(open_: Sequence[Sequence[_Rest]]) -> _Rest:
    """Return more than any choice of ways can add."""
    total = _Rest(by_day=True)
    for ways in open_:
        for way in ways:
            total.hold(way.sums, way.garbage)
    return total


def _add(sums: Sums, place: Place, vector: Vector) -> None:
    sums[place] = sums[place] + vector if place in sums else vector


def _name(store: Store, plan: int, epoch: date) -> str:
    found = store.plan_by_id(plan).plan
    return f"{found.metric}, plan {found.digest}, on {epoch}"


def _check_status(status: ShardStatus, before: ShardStatus | None) -> None:
    name = f"shard {status.shard}"
    assert 0 <= status.cursor <= status.written, f"{name}: the cursor is {status.cursor}, {status.written} were written"
    behind = status.written - status.cursor
    assert status.backlog == behind, f"{name}: the log holds {status.backlog} uploads, and {behind} are not folded"
    assert status.sealed < status.day, f"{name}: {status.sealed} is sealed, and reports count on {status.day}"
    assert status.merged <= status.sealed, f"{name}: {status.merged} is merged, and only {status.sealed} is sealed"
    if before:
        for what in ("written", "cursor", "day", "sealed", "merged"):
            was, now = getattr(before, what), getattr(status, what)
            assert now >= was, f"{name}: its {what} went back from {was} to {now}"


def _check_ledger(status: ShardStatus, ledger: ShardLedger) -> None:
    for (plan, epoch), row in ledger.items():
        name = f"shard {status.shard}, plan {plan} on {epoch}"
        assert min(row.pending, *row.kept) >= 0, f"{name}: the ledger has a negative number: {row}"
        there = row.folded + row.pending + row.quarantined
        assert row.accepted == there, f"{name}: {row.accepted} reports were accepted, {there} are there: {row}"
        assert row.dropped <= row.quarantined, (
            f"{name}: {row.dropped} of {row.quarantined} quarantined reports were dropped"
        )
        assert epoch > status.sealed or not row.pending, f"{name}: {row.pending} reports are pending in a sealed epoch"


def _check_since(status: ShardStatus, before: ShardLedger, now: ShardLedger) -> None:
    """Compare two ledgers of a shard: nothing that was folded is gone, and nothing entered what was sealed then."""
    for plan, epoch in before.keys() | now.keys():
        name = f"shard {status.shard}, plan {plan} on {epoch}"
        was, row = before.get((plan, epoch), Counted()), now.get((plan, epoch), Counted())
        assert row.folded >= was.folded, f"{name}: {was.folded} reports were folded, and now {row.folded} are"
        if epoch <= status.sealed:
            entered, folded = row.accepted - was.accepted, row.folded - was.folded
            assert entered <= 0, f"{name}: {entered} reports entered a sealed epoch"
            assert folded == 0, f"{name}: {folded} reports were folded in a sealed epoch"


def _check_segments(name: str, segments: Sequence[Segment], cursor: int) -> None:
    last = 0
    for segment in segments:
        assert last <= segment.low < segment.high, (
            f"{name}: a segment goes from {segment.low} to {segment.high}, behind one that ends at {last}"
        )
        last = segment.high
    assert last <= cursor, f"{name}: a segment ends at {last}, and the cursor is {cursor}"
