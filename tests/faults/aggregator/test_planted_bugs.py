"""Bugs that any store might have, each planted in one: no run may hide it for long."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from dither_aggregator.store import Receipt, SQLiteStore, StoreError, StoreUnavailable, contract
from dither_aggregator.store.dump import Record, SeenRecord, ShardRecord
from dither_aggregator.store.records import (
    Final,
    LogRead,
    Poison,
    Segment,
    day_number,
    fold_read,
    pack_entry,
    pack_groups,
)
from dither_aggregator.store.redis import RedisStore, scripts
from dither_aggregator.store.sqlite import schema, sqlite_store
from dither_shared.plan import Plan
from dither_shared.wire.reading import Problem, Upload
from tests.faults.aggregator.test_orderings import Made, walk
from tests.faults.aggregator.world import worlds
from tests.support.soaking import MEMORY, SOAK

pytestmark = pytest.mark.slow

Bug = Callable[[pytest.MonkeyPatch], None]
WALKS, STEPS = 20, 150


class Statements:
    """A connection that changes what it is told to execute."""

    def __init__(self, db: sqlite3.Connection, change: Callable[[str], str]) -> None:
        self._db, self._change = db, change

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(self._change(statement), *values)

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        return self._db.executemany(self._change(statement), rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def say(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Let every statement of SQLite that holds some words have others."""
    there: Any = SQLiteStore._db

    def changed(self: SQLiteStore) -> Any:
        return Statements(there.fget(self), lambda statement: statement.replace(old, new))

    patch.setattr(SQLiteStore, "_db", property(changed))


def script(patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Let a script of Redis have other words in the place of some."""
    text = getattr(scripts, name).text
    assert old in text, f"{name} does not have {old!r}"
    changed = scripts.script(text.removeprefix(text.split("\n")[0] + "\n").replace(old, new), flags="allow-oom")
    patch.setattr(scripts, name, changed)


# Accepting.


def know_an_id_for_a_day(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite_store, "DEDUPE", timedelta(days=1))
    patch.setattr(sqlite_store, "DEDUPE_DAYS_MIN", 1)


def know_an_id_on_its_day(patch: pytest.MonkeyPatch) -> None:
    script(patch, "APPEND", "if body then", "if body and days[place] == day then")


def know_an_id_and_lose_its_reports(patch: pytest.MonkeyPatch) -> None:
    say(patch, "INSERT INTO log (entry) VALUES (?)", "INSERT INTO log (entry) SELECT ? WHERE 0")


def know_an_id_without_its_body(patch: pytest.MonkeyPatch) -> None:
    def repeated(self: SQLiteStore, upload: Upload, prepared: Any, body: bytes) -> Receipt:
        return Receipt(upload.id, sum(n for _, n in prepared.counts), duplicate=True, rejected=[])

    patch.setattr(SQLiteStore, "_repeated", repeated)


def acknowledge_what_failed(patch: pytest.MonkeyPatch) -> None:
    def append(self: SQLiteStore, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        try:
            return real(self, uploads)
        except StoreUnavailable:
            return [self._prepare(upload, body).result for upload, body in uploads]

    real = SQLiteStore.append
    patch.setattr(SQLiteStore, "append", append)


def log_an_upload_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """The ids are durable before the log is."""

    def append(self: SQLiteStore, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        changed = self._db.total_changes
        try:
            return real(self, uploads)
        except StoreUnavailable:
            if self._db.total_changes > changed:
                with self._transaction() as db:
                    for item in (self._prepare(*one) for one in uploads):
                        ids = schema.make_ids(db, "seen", day_number(self.clock_day()))
                        db.execute(f"INSERT OR IGNORE INTO {ids} VALUES (?, ?)", (item.id, item.body))
            raise

    real = SQLiteStore.append
    patch.setattr(SQLiteStore, "append", append)


def let_the_day_go_back(patch: pytest.MonkeyPatch) -> None:
    def advance(self: SQLiteStore, db: sqlite3.Connection, clock_day: date) -> date:
        sqlite_store.set_state(db, "day", clock_day.isoformat())
        return clock_day

    patch.setattr(SQLiteStore, "_advance_day", advance)


def let_the_day_go_back_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "APPEND", "math.max(clock_day, tonumber(state[2]))", "clock_day")


# Folding.


def commit_wherever_the_cursor_is(patch: pytest.MonkeyPatch) -> None:
    say(patch, "UPDATE cursor SET seq = ? WHERE seq = ?", "UPDATE cursor SET seq = MAX(seq, ?) WHERE seq >= ?")
    say(patch, "INSERT INTO segment VALUES", "INSERT OR REPLACE INTO segment VALUES")


def commit_wherever_the_cursor_is_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(
        patch,
        "COMMIT",
        "if tonumber(state[4]) ~= low then return 0 end",
        "if tonumber(state[4]) < low then return 0 end",
    )
    script(patch, "COMMIT", "if not entry or", "if false and")


def commit_what_is_pending_now(patch: pytest.MonkeyPatch) -> None:
    """The log is emptied, whatever of it was read."""
    say(patch, "DELETE FROM log WHERE seq <= ?", "DELETE FROM log WHERE seq <= ? OR 1")


def trim_one_more_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "COMMIT", "redis.call('LTRIM', at .. ':log', high - low, -1)", "redis.call('DEL', at .. ':log')")


def move_the_ledger_twice(patch: pytest.MonkeyPatch) -> None:
    move = SQLiteStore._move
    patch.setattr(
        SQLiteStore, "_move", lambda self, db, column, plan, epoch, n: move(self, db, column, plan, epoch, 2 * n)
    )


def count_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """The segments are durable before the cursor is: the usual recipe of queues."""

    def commit(self: SQLiteStore, shard: int, read: LogRead, segments: list[Segment], poisons: list[Poison]) -> bool:
        try:
            return real(self, shard, read, segments, poisons)
        except StoreUnavailable:
            with self._transaction() as db:
                for one in segments:
                    row = (one.plan, one.epoch.isoformat(), one.low, one.high, one.n, one.packed)
                    db.execute("INSERT OR IGNORE INTO segment VALUES (?, ?, ?, ?, ?, ?)", row)
            raise

    real = SQLiteStore.commit_fold
    patch.setattr(SQLiteStore, "commit_fold", commit)


def lose_the_neighbours_of_poison(patch: pytest.MonkeyPatch) -> None:
    def fold_half(read: LogRead, shapes: Any) -> tuple[list[Segment], list[Poison]]:
        segments, poisons = fold_read(read, shapes)
        return ([] if poisons else segments), poisons

    patch.setattr(contract, "fold_read", fold_half)


def drop_what_was_folded_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """A compactor puts the sum of what it read in the place of all segments."""

    def replace_all(self: SQLiteStore, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        row = (new.plan, new.epoch.isoformat(), new.low, new.high, new.n, new.packed)
        with self._transaction() as db:
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch = ?", row[:2])
            db.execute("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", row)
        return True

    patch.setattr(SQLiteStore, "replace_segments", replace_all)


def drop_what_was_folded_meanwhile_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "REPLACE", "redis.call('LTRIM', key, number, -1)", "redis.call('DEL', key)")


def compact_twice_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "REPLACE", "if head(0) ~= first or head(number - 1) ~= last then return 0 end", "")


# Epochs.


def seal_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    def seal(self: SQLiteStore, shard: int) -> date:
        with self._transaction() as db:
            sealed = self._advance_day(db, self.clock_day()) - timedelta(days=1)
            sqlite_store.set_state(db, "sealed", sealed.isoformat())
        return sealed

    patch.setattr(SQLiteStore, "seal", seal)


def seal_what_is_pending_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "SEAL", "if oldest then", "if false then")


def seal_without_moving_the_day(patch: pytest.MonkeyPatch) -> None:
    """A process whose clock is behind accepts into what was sealed."""
    script(patch, "SEAL", "advance()\nif", "if")


def record_what_is_final_anew(patch: pytest.MonkeyPatch) -> None:
    def finalize(self: SQLiteStore, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        row = (self.stored(plan).id, epoch.isoformat(), final.digest, final.snapshot)
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO final VALUES (?, ?, ?, ?)", row)
            db.execute("INSERT OR IGNORE INTO snapshot VALUES (?, ?, ?)", (final.snapshot, row[1], snapshot))
        return final

    patch.setattr(SQLiteStore, "finalize", finalize)


def forget_tallies_that_are_not_final(patch: pytest.MonkeyPatch) -> None:
    say(patch, "AND EXISTS (SELECT 1 FROM final", "AND (1 OR EXISTS (SELECT 1 FROM final")
    say(patch, "final.epoch = given.epoch)", "final.epoch = given.epoch))")


def note_as_merged_what_is_not(patch: pytest.MonkeyPatch) -> None:
    script(patch, "NOTE_MERGED", "if #unmerged == 0 then", "unmerged = {}\nif true then")


def merge_without_the_range_of_the_day(patch: pytest.MonkeyPatch) -> None:
    say(patch, "WHERE segment.low > whole.low OR segment.high < whole.high", "GROUP BY plan, epoch HAVING COUNT(*) > 1")


def merge_and_lose_a_tally(patch: pytest.MonkeyPatch) -> None:
    say(
        patch,
        "INSERT INTO tally SELECT * FROM segment WHERE epoch",
        "INSERT INTO tally SELECT * FROM segment WHERE plan % 3 AND epoch",
    )


# Quarantine.


def replay_into_the_old_epoch(patch: pytest.MonkeyPatch) -> None:
    def replay(self: SQLiteStore, shard: int, number: int) -> bool:
        with self._transaction() as db:
            row = sqlite_store._take(db, number)
            if row is None:
                return False
            plan, cell, epoch, n, reports = row
            self._move(db, "quarantined", plan, epoch, -n)
            entry = pack_entry(day_number(epoch), pack_groups([(plan, cell, n, reports)]))
            db.execute("INSERT INTO log (entry) VALUES (?)", (entry,))
        return True

    patch.setattr(SQLiteStore, "_replay", replay)


def replay_and_keep(patch: pytest.MonkeyPatch) -> None:
    say(patch, "DELETE FROM quarantine WHERE id = ? RETURNING", "UPDATE quarantine SET id = id WHERE id = ? RETURNING")


def replay_and_lose_in_redis(patch: pytest.MonkeyPatch) -> None:
    script(patch, "REPLAY", "log({ARGV[3]", "local lost = ({ARGV[3]")


def drop_and_not_say_so(patch: pytest.MonkeyPatch) -> None:
    move = SQLiteStore._move
    patch.setattr(
        SQLiteStore,
        "_move",
        lambda self, db, column, *rest: None if column == "dropped" else move(self, db, column, *rest),
    )


# The whole.


def changed_dump(patch: pytest.MonkeyPatch, change: Callable[[Record], Iterable[Record]]) -> None:
    """Let a dump have other records."""
    for store in (SQLiteStore, RedisStore):

        def dump(self: Any, real: Callable[[Any], Iterator[Record]] = store.dump) -> Iterator[Record]:
            for record in real(self):
                yield from change(record)

        patch.setattr(store, "dump", dump)


def restore_nothing_pending(patch: pytest.MonkeyPatch) -> None:
    for store in (SQLiteStore, RedisStore):

        def fill(self: Any, record: ShardRecord, real: Callable[[Any, Any], None] = store.fill_shard) -> None:
            real(self, replace(record, entries=()))

        patch.setattr(store, "fill_shard", fill)


def restore_no_ids(patch: pytest.MonkeyPatch) -> None:
    changed_dump(patch, lambda record: [] if isinstance(record, SeenRecord) else [record])


def restore_no_quarantine(patch: pytest.MonkeyPatch) -> None:
    changed_dump(patch, lambda record: [replace(record, quarantine=()) if isinstance(record, ShardRecord) else record])


def restore_unsealed(patch: pytest.MonkeyPatch) -> None:
    changed_dump(
        patch, lambda record: [replace(record, sealed=date(2000, 1, 1)) if isinstance(record, ShardRecord) else record]
    )


# Plans.


def overwrite_the_plans_of_others(patch: pytest.MonkeyPatch) -> None:
    say(patch, "AND value = ?", "AND value <= ? + 1000")


BUGS: dict[Bug, tuple[str, str]] = {
    know_an_id_for_a_day: ("sqlite", "what is stored is not|was accepted twice|was stored, and is now refused"),
    know_an_id_on_its_day: ("redis", "what is stored is not|was accepted twice|was stored, and is now refused"),
    know_an_id_and_lose_its_reports: ("sqlite", "were accepted, .* are there"),
    know_an_id_without_its_body: (
        "sqlite",
        "of .* was accepted|never came before|another receipt|reports of .* were accepted",
    ),
    acknowledge_what_failed: (
        "sqlite",
        "was accepted twice|what is stored is not what was acknowledged|were acknowledged|and is now",
    ),
    log_an_upload_in_two_steps: ("sqlite", "what is stored is not what was acknowledged|were acknowledged"),
    let_the_day_go_back: ("sqlite", "day went back|count on|counts on"),
    let_the_day_go_back_in_redis: ("redis", "day went back|count on|counts on"),
    commit_wherever_the_cursor_is: ("sqlite", "a commit says|were accepted, .* are there"),
    commit_wherever_the_cursor_is_in_redis: ("redis", "a commit says|are not folded|were accepted, .* are there"),
    commit_what_is_pending_now: ("sqlite", "written went back|are not folded|were accepted, .* are there"),
    trim_one_more_in_redis: ("redis", "is damaged|are not folded|were accepted, .* are there"),
    move_the_ledger_twice: ("sqlite", "were accepted, .* are there"),
    count_in_two_steps: ("sqlite", "the tally has .* reports, the ledger says|nothing was done to it|a segment ends"),
    lose_the_neighbours_of_poison: ("sqlite", "were accepted, .* are there"),
    drop_what_was_folded_meanwhile: (
        "sqlite",
        "a part of the tally is gone|a compactor says|the tally has .* reports, the ledger says",
    ),
    drop_what_was_folded_meanwhile_in_redis: (
        "redis",
        "a part of the tally is gone|a compactor says|the tally has .* reports, the ledger says",
    ),
    compact_twice_in_redis: ("redis", "a compactor says|the tally has .* reports, the ledger says"),
    seal_what_is_pending: ("sqlite", "has sealed|pending in a sealed epoch|sealed went back"),
    seal_what_is_pending_in_redis: ("redis", "has sealed|pending in a sealed epoch"),
    seal_without_moving_the_day: ("redis", "has sealed|is sealed, and reports count on"),
    record_what_is_final_anew: ("sqlite", "was finalized, and now"),
    forget_tallies_that_are_not_final: (
        "sqlite",
        "a part of the tally is gone|the tally has 0 reports, the ledger says",
    ),
    note_as_merged_what_is_not: ("redis", "is said to be merged, and has|are not one segment each"),
    merge_without_the_range_of_the_day: ("sqlite", "is said to be merged, and has|are not one segment each"),
    merge_and_lose_a_tally: ("sqlite", "the tally has .* reports, the ledger says|there is none, the ledger says"),
    replay_into_the_old_epoch: ("sqlite", "what is stored is not|pending in a sealed epoch|days of the log go back"),
    replay_and_keep: ("sqlite", "wait in quarantine|is still in quarantine"),
    replay_and_lose_in_redis: ("redis", "are not folded|were accepted, .* are there"),
    drop_and_not_say_so: ("sqlite", "wait in quarantine|reports are in quarantine"),
    restore_nothing_pending: ("sqlite", "were accepted, .* are there"),
    restore_no_ids: ("sqlite", "what is stored is not|was accepted twice|was stored, and is now refused"),
    restore_no_quarantine: ("sqlite", "wait in quarantine|what is stored"),
    restore_unsealed: ("sqlite", "was sealed, and now"),
    overwrite_the_plans_of_others: ("sqlite", "the plans are"),
}


SHOWN_BY: dict[Bug, int] = {
    know_an_id_on_its_day: 1,
    let_the_day_go_back_in_redis: 1,
    drop_what_was_folded_meanwhile_in_redis: 1,
    seal_without_moving_the_day: 1,
    restore_no_ids: 1,
    log_an_upload_in_two_steps: 4,
    acknowledge_what_failed: 4,
    overwrite_the_plans_of_others: 2,
}
"""The walk that shows a bug soonest, where the first one does not: it is tried before the others are."""


SORTS: list[Bug] = [
    know_an_id_on_its_day,
    let_the_day_go_back,
    commit_wherever_the_cursor_is,
    count_in_two_steps,
    lose_the_neighbours_of_poison,
    drop_what_was_folded_meanwhile,
    seal_what_is_pending_in_redis,
    merge_and_lose_a_tally,
    replay_and_keep,
    restore_unsealed,
    overwrite_the_plans_of_others,
]
"""One for each sort of step, of either store. A soak plants all."""


@pytest.mark.parametrize("bug", BUGS if SOAK else SORTS, ids=lambda bug: bug.__name__)
def test_a_run_shows_a_planted_bug(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, message = BUGS[bug]
    bug(monkeypatch)
    with worlds(MEMORY) as made, pytest.raises((AssertionError, StoreError), match=message):
        walk_again_and_again(made, kind, SHOWN_BY.get(bug, 0))


def walk_again_and_again(made: Made, kind: str, first: int) -> None:
    for seed in (*range(first, WALKS), *range(first)):
        walk(made, kind, seed, STEPS)
