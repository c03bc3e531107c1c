"""The store for several machines: shards in one Redis, every effect one script.

Durable is what Redis has written and synced before it answers: `appendonly yes` and `appendfsync always`, which is
checked when the store is opened and again with its state.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any, TypeVar

from dither_aggregator.store import redis_scripts as scripts
from dither_aggregator.store.dump import (
    FinalRecord,
    Identity,
    PlanRecord,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.interface import (
    DEDUPE,
    DEDUPE_DAYS_MIN,
    READ_BYTES_MAX,
    READ_UPLOADS_MAX,
    Prepared,
    Store,
    sum_segments,
)
from dither_aggregator.store.opening import SHARDS
from dither_aggregator.store.packing import day_number, day_of, pack_counts, unpack_entry
from dither_aggregator.store.plans import Plans, StoredPlan
from dither_aggregator.store.records import (
    Final,
    LogGroup,
    LogRead,
    Poison,
    Quarantined,
    Receipt,
    Retention,
    Segment,
    ShardStatus,
    StoreError,
    StoreUnavailable,
)
from dither_aggregator.store.redis_client import Client, Command, call
from dither_aggregator.store.redis_packing import (
    MARK_BYTES,
    Key,
    count_entries,
    final_of,
    ledger_fields,
    ledger_of,
    pack_quarantined,
    pack_segment,
    pairs,
    segment_head,
    tally_name,
    tally_of,
    unpack_quarantined,
    unpack_segment,
    with_pending,
)
from dither_aggregator.store.redis_scripts import GLOBAL, shard_key
from dither_shared.plan import Plan
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Upload

_Item = TypeVar("_Item")

SHARDS_MAX = 1024
DAY_S = 86_400
APPEND_UPLOADS_MAX = 500
"""How many uploads one script takes: what it hands to one Redis command has a limit, and others wait for it."""
READ_REDIS_BYTES_MAX = min(READ_BYTES_MAX, 8 * 1024 * 1024)
"""A script that reads holds up every other."""
FILL_ITEMS = 1_000
INSTANT_ATTEMPTS = 10
FORGET_ITEMS = 500
PLANS_AT_ONCE = 100


class RedisStore(Store):
    """A store in a Redis. Every effect of a shard is one script, and none of them is sent twice by itself."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        *,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
    ) -> None:
        self._clock = clock
        self._allow_lossy = allow_lossy_store
        self._lock = threading.Lock()
        self._floors: dict[int, int] = {}
        self._lost = 0
        self._client = Client(url)
        try:
            self._open(unfinished)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        url: str,
        app: str,
        shards: int = SHARDS,
        clock: Callable[[], float] = time.time,
        *,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
    ) -> "RedisStore":
        """Make the store of an app in an empty Redis, and open it; `unfinished` until it is restored."""
        if not 1 <= shards <= SHARDS_MAX:
            raise StoreError(f"a store has 1 to {SHARDS_MAX} shards, got {shards}")
        client = Client(url)
        try:
            _check_sound(client, allow_lossy_store)
            _begin(client, app, shards)
        finally:
            client.close()
        store = cls(url, clock, allow_lossy_store=allow_lossy_store, unfinished=True)
        if not unfinished:
            store.finish()
        return store

    def _open(self, unfinished: bool) -> None:
        name = self._client.name
        # In a Cluster no transaction spans slots; elsewhere one saves a sync for each of an append's shards.
        self._one_node = not self._client.information().get("cluster_enabled")
        self.lossy = _check_sound(self._client, self._allow_lossy)
        state = {key.decode(): value for key, value in self._client.run("HGETALL", GLOBAL).items()}
        if not state:
            raise StoreError(f"{name} holds no store; `dither init` makes one")
        version = state.get("version", b"0").decode()
        if version != str(scripts.VERSION):
            raise StoreError(f"{name} holds a store of version {version}; this dither reads {scripts.VERSION}")
        self.app = state["app"].decode()
        self.key = state["key"].decode()
        self.generation = state["generation"].decode()
        self.shards = int(state["shards"])
        self._digest_key = state["digest_key"]
        self._token = state["token"].decode()
        if self._token != scripts.token(self.generation) and not unfinished:
            raise StoreError(f"{name} holds a store that was not filled to its end; {_START_AGAIN}")
        self.refresh()
        if not unfinished:  # one that was nearly finished is finished in some of its shards
            self.status()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # Calls.

    def _call(self, script: scripts.Script, shard: int, *arguments: object) -> Command:
        return call(script, shard_key(shard), self._token, *arguments)

    def _run(self, script: scripts.Script, shard: int, *arguments: object) -> Any:
        return self._client.run(*self._call(script, shard, *arguments))

    def _run_global(self, script: scripts.Script, *arguments: object) -> Any:
        return self._client.run(*call(script, GLOBAL, self._token, *arguments))

    def _of_each_shard(self, script: scripts.Script, *arguments: object) -> list[Any]:
        return self._client.run_each([self._call(script, shard, *arguments) for shard in range(self.shards)])

    def _seen_written(self) -> dict[int, int]:
        with self._lock:
            return dict(self._floors)

    def _saw_written(self, floors: dict[int, int], shard: int, written: int) -> None:
        """Take notice of how many uploads a shard has, asked for when it was known to have had `floors`."""
        with self._lock:
            if written < floors.get(shard, 0):
                self._lost += floors[shard] - written
                self._floors[shard] = written
            else:
                self._floors[shard] = max(written, self._floors.get(shard, 0))

    # Plans and time.

    def refresh(self) -> None:
        """Take up what other processes changed."""
        known = self._plans.version if hasattr(self, "_plans") else -1
        before = self._clock()
        now, version, documents = self._run_global(scripts.REFRESH, known)
        self._ahead_s = float(now) - (before + self._clock()) / 2
        if documents is not None:
            stored = [StoredPlan.from_document(json.loads(document)) for document in documents]
            self._plans = Plans(sorted(stored, key=lambda item: item.id), int(version))

    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        documents = [value for item in plans for value in (item.id, json.dumps(item.to_document()))]
        return bool(self._run_global(scripts.SAVE_PLANS, version, *documents))

    def clock_day(self) -> date:
        """Return the day by Redis's clock, as far as it was ahead of this process's at the last refresh."""
        return day_of(int((self._clock() + self._ahead_s) // DAY_S))

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every shard."""
        self._of_each_shard(scripts.SET, "clock_offset_s", repr(seconds))
        self._run_global(scripts.SET, "clock_offset_s", repr(seconds))
        self.refresh()

    # Accepting.

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, those of each shard in one script, all with one sync."""
        prepared = [self._prepare(upload, body) for upload, body in uploads]
        calls: list[Command] = []
        places: list[tuple[int, Sequence[int]]] = []
        for shard, of_shard in self._by_shard(prepared).items():
            for chunk in _chunks(of_shard, APPEND_UPLOADS_MAX):
                taken = [part for place in chunk for part in prepared[place][:3]]
                calls.append(self._call(scripts.APPEND, shard, secrets.token_bytes(MARK_BYTES), *taken))
                places.append((shard, chunk))
        floors = self._seen_written()
        answers: list[Receipt | Problem] = [item.result for item in prepared]
        replies = self._client.run_each(calls, together=self._one_node)
        for (shard, chunk), (written, *before) in zip(places, replies, strict=True):
            self._saw_written(floors, shard, written)
            for place, answer in zip(chunk, before, strict=True):
                if answer is not None:
                    answers[place] = self._repeated(uploads[place][0], prepared[place], answer)
        return answers

    def _by_shard(self, prepared: Sequence[Prepared]) -> dict[int, list[int]]:
        by_shard: dict[int, list[int]] = {}
        for place, item in enumerate(prepared):
            by_shard.setdefault(self.shard_of(item.digest), []).append(place)
        return by_shard

    # Folding.

    def read_log(self, shard: int) -> LogRead:
        """Return the oldest entries of the log."""
        floors = self._seen_written()
        reply = self._run(scripts.READ, shard, "", READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
        cursor, written, length, *entries = reply
        self._saw_written(floors, shard, written)
        if length != written - cursor:
            raise StoreError(
                f"{self._client.name} is damaged: the log of shard {shard} holds {length} uploads of {written - cursor}"
            )
        groups = [group for entry in entries for group in unpack_entry(entry[MARK_BYTES:])]
        return LogRead(cursor, cursor + len(entries), groups, entries[-1][:MARK_BYTES] if entries else b"")

    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store a fold in one script."""
        mark = secrets.token_bytes(MARK_BYTES)
        stored: list[object] = []
        for one in segments:
            stored += [one.plan, day_number(one.epoch), one.n, pack_segment(one, mark)]
        for group, reason in poisons:
            stored += [group.plan, day_number(group.epoch), group.n, pack_quarantined(group, reason)]
        return bool(self._run(scripts.COMMIT, shard, read.low, read.high, read.mark, len(segments), *stored))

    def crowded(self, shard: int, segments: int) -> list[tuple[int, date]]:
        """Return the plans and epochs that have at least so many segments."""
        return [tally_of(name) for name in self._run(scripts.CROWDED, shard, segments)]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        name = tally_name(new.plan, new.epoch)
        ends = segment_head(old[0]), segment_head(old[-1])
        packed = pack_segment(new, secrets.token_bytes(MARK_BYTES))
        return bool(self._run(scripts.REPLACE, shard, name, len(old), *ends, packed))

    # Epochs.

    def seal(self, shard: int) -> date:
        """Close what is over in one script."""
        return day_of(self._run(scripts.SEAL, shard))

    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is recorded of a plan's final epochs."""
        return self._finals(self._plans.get(plan).id)

    def _finals(self, plan: int) -> dict[date, Final]:
        rows = pairs(self._run_global(scripts.FINALS, plan))
        return {day_of(day): final_of(rows[str(day).encode()]) for day in sorted(map(int, rows))}

    def all_finals(self) -> set[Key]:
        """Return the plans and epochs that are recorded as final."""
        commands = [
            call(scripts.FINAL_EPOCHS, GLOBAL, self._token, *plans)
            for plans in _chunks(self._plan_ids(), PLANS_AT_ONCE)
        ]
        return {tally_of(name) for names in self._client.run_each(commands) for name in names}

    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record an epoch's final digest with its snapshot, once."""
        return self._finalize(self._plans.get(plan).id, epoch, final, snapshot)

    def _finalize(self, plan: int, epoch: date, final: Final, snapshot: bytes | None) -> Final:
        record = f"{final.digest} {final.snapshot}"
        content = [] if snapshot is None else [snapshot]
        return final_of(self._run_global(scripts.FINALIZE, plan, day_number(epoch), record, final.snapshot, *content))

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        content: bytes | None = self._run_global(scripts.SNAPSHOT, id_)
        return content

    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""
        tallies, snapshots = self._run_global(scripts.GET, "tallies_days", "snapshots_days")
        return Retention(*(int(days) if days is not None else None for days in (tallies, snapshots)))

    def set_retention(self, retention: Retention) -> None:
        """Change for how long they are kept."""
        fields = [part for key, days in vars(retention).items() for part in (key, "" if days is None else days)]
        self._run_global(scripts.SET, *fields)

    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept."""
        (day,) = self._run_global(scripts.GET, "tallies_from")
        return day_of(int(day))

    def forget(self, shard: int) -> None:
        """Forget old ids, and old tallies that are recorded as final: that they go is known before they do."""
        today = self._run(scripts.FORGET_SEEN, shard, DEDUPE.days, DEDUPE_DAYS_MIN)
        first = self._run_global(scripts.TALLIES_FROM, today)
        if first is None:
            return
        for names in _chunks(self._run(scripts.TALLIES_BEFORE, shard, first), FORGET_ITEMS):
            if final := self._run_global(scripts.ARE_FINAL, *names):
                self._run(scripts.FORGET_TALLIES, shard, *final)

    def forget_snapshots(self) -> None:
        """Forget old snapshots."""
        days = self.retention().snapshots_days
        if days is not None:
            first = day_number(self.today() - timedelta(days=days))
            while self._run_global(scripts.FORGET_SNAPSHOTS, first, FORGET_ITEMS):
                pass

    # Reading.

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally."""
        return self._unpack_segments(plan, epoch, self._run(scripts.SEGMENTS, shard, tally_name(plan, epoch)))

    def all_segments(self, plan: int, epoch: date) -> Iterator[Segment]:
        """Yield every shard's segments of a tally, from one round trip."""
        for packed in self._of_each_shard(scripts.SEGMENTS, tally_name(plan, epoch)):
            yield from self._unpack_segments(plan, epoch, packed)

    def _unpack_segments(self, plan: int, epoch: date, packed: Iterable[bytes]) -> list[Segment]:
        size = self.plan_by_id(plan).plan.mechanism.shape.tally_size
        return [unpack_segment(plan, epoch, one, size) for one in packed]

    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted."""
        id_ = self._plans.get(plan).id
        return self._epochs([id_]).get(id_, [])

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the days on which reports of each plan were accepted."""
        return self._epochs(self._plan_ids())

    def _epochs(self, ids: Sequence[int]) -> dict[int, list[date]]:
        days: dict[int, set[date]] = {}
        for plans in _chunks(ids, PLANS_AT_ONCE):
            for names in self._of_each_shard(scripts.EPOCHS, *plans):
                for plan, epoch in map(tally_of, names):
                    days.setdefault(plan, set()).add(epoch)
        return {plan: sorted(found, reverse=True) for plan, found in days.items()}

    def _plan_ids(self) -> list[int]:
        return sorted(self._plans.by_id)

    def shard_ledger(self, shard: int) -> dict[tuple[int, date], tuple[int, int, int, int, int]]:
        """Return the ledger as it is at one instant, with what the log held then.

        A long log is read in pieces, for each holds up every other call: what was in it stays what it was, and is read
        from its end that is folded first. Where the folders are faster all is done again, and at last in one step.
        """
        for _ in range(INSTANT_ATTEMPTS):
            cursor, length, *rows = self._run(scripts.LEDGER, shard)
            pending = self._pending(shard, cursor, cursor + length)
            if pending is not None:
                return with_pending(ledger_of(rows), pending)
        (_, length, *rows), (_, _, _, *entries) = self._client.read_at_once(
            [
                self._call(scripts.LEDGER, shard),
                self._call(scripts.READ, shard, "", 1 << 52, 1 << 52),
            ],
        )
        return with_pending(ledger_of(rows), count_entries(entries))

    def _pending(self, shard: int, low: int, high: int) -> dict[tuple[int, date], int] | None:
        """Count the log above `low` and up to `high`; None where the beginning is not there any more."""
        pending: dict[tuple[int, date], int] = {}
        while low < high:
            uploads = min(high - low, READ_UPLOADS_MAX)
            _, _, _, *entries = self._run(scripts.READ, shard, low, uploads, READ_REDIS_BYTES_MAX)
            if not entries:
                return None
            low += len(entries)
            for key, n in count_entries(entries).items():
                pending[key] = pending.get(key, 0) + n
        return pending

    def status(self) -> list[ShardStatus]:
        """Return how far each shard is."""
        floors = self._seen_written()
        statuses = []
        for shard, reply in enumerate(self._of_each_shard(scripts.STATUS)):
            written, cursor, backlog, day, clock_day, sealed, waiting_s = reply
            self._saw_written(floors, shard, written)
            statuses.append(
                ShardStatus(
                    shard=shard,
                    written=written,
                    cursor=cursor,
                    backlog=backlog,
                    day=day_of(day),
                    clock_day=day_of(clock_day),
                    sealed=day_of(sealed),
                    waiting_s=max(0.0, float(waiting_s)) if backlog else 0.0,
                )
            )
        return statuses

    def _trouble(self) -> dict[str, str]:
        trouble = {}
        try:
            self._client.check()
        except StoreUnavailable:
            raise
        except StoreError as error:
            trouble["store"] = str(error)
        reason = self._client.lossy()
        if self._allow_lossy:
            self.lossy = reason
        elif reason:
            trouble["settings"] = reason
        if self._lost:
            trouble["lost"] = f"{self._client.name} has lost {self._lost} uploads that it had acknowledged"
        return trouble

    def integrity(self) -> list[str]:
        """Return what is wrong with the lengths of logs and tallies."""
        wrong = [
            f"shard {one.shard}: the log holds {one.backlog} uploads, and {one.written - one.cursor} are to be folded"
            for one in self.status()
            if one.backlog != one.written - one.cursor
        ]
        for shard, names in enumerate(self._of_each_shard(scripts.LENGTHS)):
            for plan, epoch in map(tally_of, names):
                wrong.append(f"shard {shard}: the tally of plan {plan} on {epoch} lacks segments, or has too many")
        return wrong

    # Quarantine.

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine."""
        return [
            unpack_quarantined(f"{shard}-{number}", held[str(number).encode()])
            for shard, reply in enumerate(self._of_each_shard(scripts.QUARANTINE))
            for held in (pairs(reply),)
            for number in sorted(map(int, held))
        ]

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log."""
        place = self._place_of(id_)
        return bool(place and self._run(scripts.REPLAY, *place, secrets.token_bytes(MARK_BYTES)))

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        place = self._place_of(id_)
        return bool(place and self._run(scripts.DROP, *place))

    def _place_of(self, id_: str) -> tuple[int, int] | None:
        """Return the shard and number of a quarantined group; None where there can be none."""
        numbers = id_.split("-")
        if len(numbers) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in numbers):
            return None
        shard, number = map(int, numbers)
        return (shard, number) if shard < self.shards else None

    # The whole.

    def dump(self) -> Iterator[Record]:
        """Yield everything, each shard as it is at one instant."""
        state = self._run_global(scripts.GET, "app", "key", "digest_key", "tallies_from")
        app, key, digest_key, tallies_from = state
        first = day_of(int(tallies_from))
        yield Identity(app.decode(), key.decode(), digest_key, self.generation, self.retention(), first)
        told: set[int] = set()
        yield from self._dump_plans(told)
        # What is final by now is sealed in every shard, so it is whole in what follows.
        finals = [(plan, epoch, final) for plan in sorted(told) for epoch, final in self._finals(plan).items()]
        for shard in range(self.shards):
            yield from self._dump_shard(shard, told)
        for plan, epoch, final in finals:
            yield FinalRecord(plan, epoch, final, self.snapshot(final.snapshot))
        if self.tallies_from() != first:
            raise StoreUnavailable(f"{self._client.name}: old tallies were given up while they were read; try again")

    def _dump_plans(self, told: set[int]) -> Iterator[PlanRecord]:
        self.refresh()
        for id_, item in self._plans.by_id.items():
            if id_ not in told:
                told.add(id_)
                yield PlanRecord(item.to_document())

    def _dump_shard(self, shard: int, told: set[int]) -> Iterator[Record]:
        """Yield a shard. What cannot change any more, sealed tallies and the ids of past days, is read afterwards."""
        for _ in range(INSTANT_ATTEMPTS):
            outline = self._run(scripts.OUTLINE, shard)
            day, sealed, seen_days, _, names = outline
            still_open = [name for name in names if day_number(tally_of(name)[1]) > sealed]
            again, ledger, log, quarantine, seen, *tallies = self._client.read_at_once(
                [
                    self._call(scripts.OUTLINE, shard),
                    self._call(scripts.LEDGER, shard),
                    ("LRANGE", scripts.log_key(shard), 0, -1),
                    self._call(scripts.QUARANTINE, shard),
                    ("HGETALL", scripts.seen_key(shard, day)),
                    *(("LRANGE", scripts.tally_key(shard, name.decode()), 0, -1) for name in still_open),
                ],
            )
            if (again[0], again[4]) == (day, names):
                break
        else:
            raise StoreUnavailable(f"{self._client.name}: shard {shard} changes faster than it can be read; try again")
        yield from self._dump_plans(told)
        yield ShardRecord(
            shard,
            day_of(day),
            day_of(again[1]),
            cursor=again[3],
            entries=tuple(entry[MARK_BYTES:] for entry in log),
            ledger=ledger_of(ledger[2:]),
            quarantine=tuple(
                (one.plan, one.epoch, one.n, one.reason, one.reports)
                for _, one in sorted(
                    (int(number), unpack_quarantined("", held)) for number, held in pairs(quarantine).items()
                )
            ),
        )
        yield SeenRecord(day_of(day), seen)
        for past in map(int, seen_days):
            if past != day:
                yield from self._dump_seen(shard, past)
        read = dict(zip(still_open, tallies, strict=True))
        for name in names:
            packed = read[name] if name in read else self._run(scripts.SEGMENTS, shard, name)
            if not packed:
                raise StoreUnavailable(
                    f"{self._client.name}: old tallies were given up while they were read; try again"
                )
            plan, epoch = tally_of(name)
            total = sum_segments(self._unpack_segments(plan, epoch, packed))
            yield TallyRecord(shard, plan, epoch, total.n, pack_counts(total.counts))
        self._run(scripts.OUTLINE, shard)  # what was read was still this store's

    def _dump_seen(self, shard: int, day: int) -> Iterator[SeenRecord]:
        cursor = None
        while cursor != 0:
            cursor, answers = self._client.run("HSCAN", scripts.seen_key(shard, day), cursor or 0, "COUNT", FILL_ITEMS)
            if answers:
                yield SeenRecord(day_of(day), answers)

    def fill_identity(self, identity: Identity) -> None:
        """Take over what devices and copies of uploads are recognised by."""
        first = day_number(identity.tallies_from)
        fields = ("app", identity.app, "key", identity.key, "digest_key", identity.digest_key, "tallies_from", first)
        self._run_global(scripts.SET, *fields)
        self.set_retention(identity.retention)
        self.app, self.key, self._digest_key = identity.app, identity.key, identity.digest_key

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads, each in the shard of its digest."""
        by_shard: dict[int, list[tuple[bytes, bytes]]] = {}
        for digest, answer in record.answers.items():
            by_shard.setdefault(self.shard_of(digest), []).append((digest, answer))
        for shard, answers in by_shard.items():
            for chunk in _chunks(answers, FILL_ITEMS):
                self._run(scripts.FILL_SEEN, shard, day_number(record.day), *(part for pair in chunk for part in pair))

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard."""
        mark = secrets.token_bytes(MARK_BYTES)
        commands: list[Command] = []
        for one in segments:
            name = tally_name(one.plan, one.epoch)
            commands.append(("RPUSH", scripts.tally_key(shard, name), pack_segment(one, mark)))
            commands.append(("ZINCRBY", scripts.tallies_key(shard), 1, name))
        self._client.run_each(commands)

    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger and quarantine."""
        shard, mark = record.shard, secrets.token_bytes(MARK_BYTES)
        for entries in _chunks(record.entries, FILL_ITEMS):
            self._client.run("RPUSH", scripts.log_key(shard), *(mark + entry for entry in entries))
        commands: list[Command] = []
        for (plan, epoch), numbers in record.ledger.items():
            commands.append(("HSET", scripts.ledger_key(shard, plan), *ledger_fields(epoch, numbers)))
            commands.append(("SADD", scripts.ledger_key(shard), plan))
        for number, (plan, epoch, n, reason, reports) in enumerate(record.quarantine, 1):
            packed = pack_quarantined(LogGroup(plan, epoch, n, reports), reason)
            commands.append(("HSET", scripts.quarantine_key(shard), number, packed))
        for chunk in _chunks(commands, FILL_ITEMS):
            self._client.run_each(chunk)
        days = day_number(record.day), day_number(record.sealed)
        rest = record.cursor, len(record.entries), len(record.quarantine)
        self._run(scripts.FILL_SHARD, shard, *days, *rest)

    def fill_final(self, record: FinalRecord) -> None:
        """Add what is recorded of a final epoch."""
        self._finalize(record.plan, record.epoch, record.final, record.snapshot)

    def finish(self) -> None:
        """Make the store usable: the shards, and at last the whole."""
        token = scripts.token(self.generation)
        self._of_each_shard(scripts.FINISH, token)
        self._run_global(scripts.FINISH, token)
        self._token = token


_START_AGAIN = (
    "unless it is being filled now, empty it (redis-cli FLUSHDB, with its address and database) and make it again"
)


def _check_sound(client: Client, allow_lossy_store: bool) -> str:
    """Return why the store may lose what it acknowledges, if that is allowed; else raise StoreError with the reason."""
    client.check()
    reason = client.lossy()
    if reason and not allow_lossy_store:
        raise StoreError(reason)
    return reason


def _begin(client: Client, app: str, shards: int) -> None:
    """Make an unfinished store."""
    generation = secrets.token_hex(8)
    token = scripts.token(generation, finished=False)
    state: dict[str, object] = {
        "version": scripts.VERSION,
        "token": token,
        "app": app,
        "key": secrets.token_urlsafe(24),
        "digest_key": secrets.token_bytes(32),
        "generation": generation,
        "shards": shards,
        "plans_version": 0,
        "tallies_from": day_number(date.min),
    }
    there = client.run(*call(scripts.BEGIN, GLOBAL, *(part for pair in state.items() for part in pair)))
    if there == b"other keys":
        raise StoreError(f"{client.name} holds other keys: give dither a Redis, or a database of one, of its own")
    if there is not None:
        unfinished = f", not filled to its end; {_START_AGAIN}" if there.endswith(b":unfinished") else ""
        raise StoreError(f"{client.name} holds a store already{unfinished}")
    seconds, _ = client.run("TIME")
    today = int(seconds) // DAY_S
    of_shard = {
        "token": token,
        "day": today,
        "sealed": today - 1,
        "cursor": 0,
        "written": 0,
        "waiting_since": seconds,
        "quarantine_last": 0,
    }
    fields = [part for pair in of_shard.items() for part in pair]
    client.run_each([("HSET", shard_key(shard), *fields) for shard in range(shards)])


def _chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
