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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from dither_aggregator.analysis import closed_days
from dither_aggregator.store import Store
from dither_aggregator.store.dump import ShardRecord, TallyRecord
from dither_aggregator.store.records import Final, ShardStatus, unpack_counts, unpack_entry
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from tests.faults.aggregator.account import Account, Option
from tests.faults.aggregator.instant import Instant
from tests.faults.aggregator.ledgers import ShardLedger, check_segments, check_shard_ledger, check_since, check_status
from tests.faults.aggregator.sums import Garbage, Rest, Sums, add, explains, most_of
from tests.faults.aggregator.uploads import PlanKey, Sent, Vector, count

MAYBE_MAX = 24
"""Uploads of which nobody knows whether they are stored: so many can be told apart by what is."""


@dataclass
class _Seen:
    """The findings of a check of one store: later checks must find them again."""

    status: dict[int, ShardStatus] = field(default_factory=dict)
    ledgers: dict[int, ShardLedger] = field(default_factory=dict)


class Oracle(Account):
    """The account of one aggregator, and what its store must hold by it."""

    def __init__(self, seed: object, registry: Registry, *others: Registry) -> None:
        super().__init__(seed, registry, *others)
        self._seen: dict[str, _Seen] = {}
        self._finals: dict[tuple[PlanKey, date], Final] = {}
        self._sealed: dict[tuple[PlanKey, date], str] = {}
        self._forgotten: dict[tuple[PlanKey, date], Vector] = {}
        self._day, self._sealed_until = date.min, date.min

    # Checks.

    def check(self, store: Store) -> None:
        """Raise AssertionError unless the store holds exactly what it acknowledged. Nobody may change it meanwhile."""
        self.check_conservation(store)
        instant = Instant(store)
        self._check_tallies(instant)
        self._check_finals(instant)
        self._check_sums(*self._held(instant))

    def check_conservation(self, store: Store) -> None:
        """Check what must hold at every instant: the ledger of each shard, its cursor and its days."""
        seen = self._seen.setdefault(store.generation, _Seen())
        for status in store.status():
            before = seen.status.get(status.shard)
            check_status(status, before)
            ledger = store.shard_ledger(status.shard)
            check_shard_ledger(status, ledger)
            if before:
                check_since(before, seen.ledgers[status.shard], ledger)
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

    # Tallies.

    def _check_tallies(self, instant: Instant) -> None:
        store = instant.store
        for status in store.status():
            ranges: dict[date, set[tuple[int, int]]] = {}
            for (plan, epoch), row in instant.ledger(status.shard).items():
                segments = instant.segments(status.shard, plan, epoch)
                ranges.setdefault(epoch, set()).update((segment.low, segment.high) for segment in segments)
                name = f"shard {status.shard}, {_name(store, plan, epoch)}"
                check_segments(name, segments, status.cursor)
                n = sum(segment.n for segment in segments)
                if n != row.folded:
                    # Some of the shards that came together may have given their part up, and others not.
                    given_up = n < row.folded and instant.may_be_given_up(plan, epoch)
                    assert given_up, f"{name}: the tally has {n} reports, the ledger says {row.folded}"
            for epoch, found in ranges.items():
                merged = epoch > status.merged or len(found) <= 1
                assert merged, f"shard {status.shard}: {epoch} is said to be merged, and has the ranges {found}"

    def remember(self, store: Store) -> None:
        """Note the tallies that are final: the store may give them up from now on."""
        instant = Instant(store)
        for stored in store.plans():
            key = (stored.plan.metric, stored.plan.digest)
            for epoch in store.finals(stored.plan):
                if (key, epoch) not in self._forgotten and not instant.has_given_up(stored.id, epoch):
                    tally = store.tally(stored.plan, epoch)
                    self._forgotten[key, epoch] = np.array([tally.n, *tally.counts], dtype=np.int64)

    def _check_finals(self, instant: Instant) -> None:
        store = instant.store
        sealed, merged = store.sealed(), store.merged()
        for stored in store.plans():
            key = (stored.plan.metric, stored.plan.digest)
            finals = instant.finals(stored.id)
            for epoch in store.epochs(stored.plan):
                if epoch <= sealed:
                    self._check_sealed(instant, stored.id, key, epoch)
            for epoch, final in finals.items():
                name = _name(store, stored.id, epoch)
                assert epoch <= merged, f"{name} is finalized, and only {merged} is merged"
                before = self._finals.setdefault((key, epoch), final)
                assert final == before, f"{name}: {before} was finalized, and now {final} is"
                self._check_sealed(instant, stored.id, key, epoch, final.digest)
                content = closed_days.content(store, final.snapshot)
                if content is not None:
                    digest = json.loads(content)["tally"]["digest"]
                    assert digest == final.digest, f"{name}: the snapshot is of another tally"
            known = [epoch for of, epoch in self._finals if of == key]
            gone = set(known) - finals.keys()
            assert not gone, f"{stored.plan.metric}: {sorted(map(str, gone))} were finalized and are not"

    def _check_sealed(self, instant: Instant, plan: int, key: PlanKey, epoch: date, recorded: str = "") -> None:
        """A sealed tally has the digest that it had when it was first seen, and that was recorded."""
        if instant.has_given_up(plan, epoch):
            return
        digest = instant.tally(plan, epoch).digest
        before = self._sealed.setdefault((key, epoch), recorded or digest)
        name = _name(instant.store, plan, epoch)
        assert digest == before, f"{name}: the sealed tally was {before}, and is {digest}"
        assert not recorded or digest == recorded, f"{name}: the tally is not the one that was finalized"

    # Exact sums.

    def _held(self, instant: Instant) -> tuple[Sums, Garbage]:
        """Return what a store holds by metric, plan and epoch, wherever it is; what was dropped is held here."""
        store = instant.store
        sums: Sums = {}
        garbage: Garbage = Counter()
        dumped: Sums = {}

        def hold(plan: Plan, cell: int, epoch: date, n: int, reports: bytes) -> None:
            vector = count(plan.cells, cell, reports, n)
            if vector is None:
                garbage[plan.metric, plan.digest, epoch, cell, n, reports] += 1
            else:
                add(sums, (plan.metric, plan.digest, epoch), vector)

        for record in store.dump():
            if isinstance(record, ShardRecord):
                self._check_log(store, record)
                for group in (group for entry in record.entries for group in unpack_entry(entry)):
                    hold(store.plan_by_id(group.plan).plan, group.cell, group.epoch, group.n, group.reports)
            elif isinstance(record, TallyRecord):
                plan = store.plan_by_id(record.plan).plan
                counts = unpack_counts(record.counts, plan.cells.tally_size)
                add(dumped, (plan.metric, plan.digest, record.epoch), np.array([record.n, *counts], dtype=np.int64))
        for held in store.quarantined():
            hold(store.plan_by_id(held.plan).plan, held.cell, held.epoch, held.n, held.reports)
        for key, held in self._dropped:
            hold(self.uploads.plans[key], held.cell, held.epoch, held.n, held.reports)
        self._check_quarantine(instant)
        for stored in store.plans():
            for epoch in self._days(instant, stored.id):
                place = (stored.plan.metric, stored.plan.digest, epoch)
                tally = instant.tally(stored.id, epoch)
                vector = np.array([tally.n, *tally.counts], dtype=np.int64)
                same = (dumped.get(place, np.zeros_like(vector)) == vector).all()
                assert same, f"{_name(store, stored.id, epoch)}: a dump has another tally than the store"
                if instant.has_given_up(stored.id, epoch):
                    remembered = self._forgotten.get(((stored.plan.metric, stored.plan.digest), epoch))
                    assert remembered is not None, (
                        f"{_name(store, stored.id, epoch)}: a part of the tally is gone, and nobody gave it up"
                    )
                    vector = remembered
                add(sums, place, vector)
        return sums, garbage

    def _days(self, instant: Instant, plan: int) -> Iterator[date]:
        shards = range(instant.store.shards)
        days = {epoch for shard in shards for id_, epoch in instant.ledger(shard) if id_ == plan}
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

    def _check_quarantine(self, instant: Instant) -> None:
        store = instant.store
        waiting: Counter[tuple[int, date]] = Counter()
        for held in store.quarantined():
            waiting[held.plan, held.epoch] += held.n
        said: Counter[tuple[int, date]] = Counter()
        for shard in range(store.shards):
            for key, row in instant.ledger(shard).items():
                said[key] += row.quarantined - row.dropped
        for plan, epoch in waiting.keys() | said.keys():
            there, name = waiting[plan, epoch], _name(store, plan, epoch)
            assert there == said[plan, epoch], f"{name}: {there} reports wait in quarantine, {said[plan, epoch]} should"

    def _check_sums(self, sums: Sums, garbage: Garbage) -> None:
        """Find the choice of what was stored that is what is held."""
        by_day = all(option.epoch for entry in self._entries for option in entry.options)
        rest = Rest(by_day)
        rest.hold(sums, garbage)
        if by_day:
            rest.hold(self._moved, self._moved_garbage, sign=-1)
        open_: list[list[Rest]] = []
        for entry in self._entries:
            ways = [self._way(entry.sent, option, by_day) for option in entry.options]
            if entry.certain and len(ways) == 1:
                rest.hold(ways[0].sums, ways[0].garbage, sign=-1)
            else:
                open_.append(ways if entry.certain else [*ways, Rest(by_day)])
        assert len(open_) <= MAYBE_MAX, f"send the {len(open_)} uploads that nobody answered again, then check"
        if not explains(rest, open_, [most_of(open_[place:]) for place in range(len(open_))]):
            raise AssertionError(f"{rest}; {len(open_)} uploads that may be stored do not explain it")

    def _way(self, sent: Sent, option: Option, by_day: bool) -> "Rest":
        """Return what an upload adds when it is stored in one way."""
        way = Rest(by_day)
        for place in option.places:
            group = sent.groups[place]
            vector = count(self.uploads.plans[group.plan].cells, group.cell, group.packed, group.n)
            if vector is None:
                way.hold({}, Counter({(*group.plan, option.epoch, group.cell, group.n, group.packed): 1}))
            else:
                way.hold({(*group.plan, option.epoch): vector}, Counter())
        return way


def _name(store: Store, plan: int, epoch: date) -> str:
    found = store.plan_by_id(plan).plan
    return f"{found.metric}, plan {found.digest}, on {epoch}"


def sound(oracle: Oracle, draw: Callable[[], tuple[str, bytes]]) -> tuple[str, bytes]:
    """Draw until all groups of an upload can be taken."""
    while True:
        id_, body = draw()
        if not any(group.fault for group in oracle.sent(id_, body).groups):
            return id_, body
