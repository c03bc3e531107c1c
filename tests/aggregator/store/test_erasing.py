"""Both stores erase everything in their files that tells the uploads of a merged day apart."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dither_aggregator.ingest.service import WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store
from dither_aggregator.store.records import LogGroup, LogRead, Poison
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.sqlite import FILE_NAME, moving
from dither_shared.registry import Registry
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.registries import registry_text
from tests.support.soaking import scaled
from tests.support.stores import Place, RedisPlace, SQLitePlace, append, body_in, fold_all, seal_all

UPLOADS, REPORTS = 9, 64
PIECE = 16
"""So many packed reports, or the last bytes of a count vector with its checksum, are found nowhere by chance."""
VALUES = tuple(f"value {number}" for number in range(40))
METRICS = ("color", "font", "size")
ALL = len(METRICS) * UPLOADS * REPORTS // PIECE, len(METRICS) * UPLOADS
ERASED_WITHIN_S = 30


@pytest.fixture
def asked() -> Registry:
    text = registry_text(values=VALUES, color='mechanism = "grr"')
    more = text.partition("[metric.color]")[2].partition("[metric.dark]")[0]
    return Registry.parse(f"{text}[metric.font]{more}[metric.size]{more}")


class Traces(NamedTuple):
    """Pieces of bytes that tell uploads apart: of their packed reports, and of the packed counts of their segments."""

    reports: frozenset[bytes]
    counts: frozenset[bytes]

    @classmethod
    def of(cls, reports: Iterable[Sequence[int]], counts: Iterable[bytes]) -> "Traces":
        packed = [bytes(values) for values in reports]
        pieces = [one[at : at + PIECE] for one in packed for at in range(0, len(one) - PIECE + 1, PIECE)]
        return cls(frozenset(pieces), frozenset(one[-PIECE:] for one in counts))

    def left(self, directory: Path) -> tuple[int, int]:
        """Return how many of both are in the files of a directory."""
        found, wanted = set[bytes](), self.reports | self.counts
        starts = np.unique(np.frombuffer(b"".join(piece[:8] for piece in wanted), "<u8"))
        for content in [_read(path) for path in directory.rglob("*") if path.is_file()]:
            every = np.ndarray(max(len(content) - PIECE + 1, 0), "<u8", content, strides=(1,))
            alike = np.flatnonzero(starts.take(np.searchsorted(starts, every), mode="clip") == every).tolist()
            found |= {content[at : at + PIECE] for at in alike} & wanted
        return len(found & self.reports), len(found & self.counts)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Redis has just removed it
        return b""


def live(place: Place, store: Store, asked: Registry, shard: int = 0, seed: int = 1) -> Traces:
    """Take nine uploads of three metrics, fold each by itself, and let the day end; return what they left."""
    rng = random.Random(seed)
    ids = [store.stored(asked.metrics[name].plan).id for name in METRICS]
    reports: list[list[int]] = []
    for _ in range(UPLOADS):
        answers = {name: [rng.randrange(len(VALUES)) for _ in range(REPORTS)] for name in METRICS}
        append(store, body_in(store, shard, asked, answers))
        reports += answers.values()
        store.fold(shard)
    day = store.today()
    traces = Traces.of(reports, [one.packed for id_ in ids for one in store.segments(shard, id_, day)])
    assert (len(traces.reports), len(traces.counts)) == ALL
    place.travel(1)
    seal_all(store)
    return traces


def merge_all(store: Store) -> None:
    for shard in range(store.shards):
        store.merge(shard)


def erase_all(store: Store) -> None:
    """Erase until it is done, as the maintenance of some rounds does."""
    until = time.monotonic() + ERASED_WITHIN_S
    while store.erased() < store.merged():
        assert store.erase() == ""
        assert time.monotonic() < until, "it was not erased"
        time.sleep(0.01)


def wait_until_gone(traces: Traces, directory: Path) -> None:
    """Redis removes a file that it has replaced a moment later."""
    until = time.monotonic() + ERASED_WITHIN_S
    while traces.left(directory) != (0, 0):
        assert time.monotonic() < until, f"{traces.left(directory)} of the traces are left"
        time.sleep(0.05)


def directory_of(place: Place) -> Path:
    if isinstance(place, SQLitePlace):
        return place.directory
    assert isinstance(place, RedisPlace)
    return place.server.directory


def test_nothing_that_tells_uploads_apart_is_left_in_the_files(place: Place, store: Store, asked: Registry) -> None:
    traces = live(place, store, asked)
    append(store, body_in(store, 0, asked, {"dark": [1, 0, 1]}))
    assert traces.left(directory_of(place)) == ALL
    merge_all(store)
    assert traces.left(directory_of(place)) == ALL
    assert store.erased() < store.merged() == place.day()
    erase_all(store)
    assert store.erased() == place.day()
    wait_until_gone(traces, directory_of(place))
    assert store.erase() == ""
    fold_all(store)
    assert store.tally(asked.metrics["color"].plan, place.day()).n == UPLOADS * REPORTS
    assert store.tally(asked.metrics["dark"].plan, place.day(1)).n == 3


def test_what_is_not_over_is_not_erased(place: Place, store: Store, asked: Registry) -> None:
    """The segments of a day that goes on stay what they are, and so does what waits."""
    past = live(place, store, asked)
    today = live(place, store, asked, seed=2)
    place.travel(-1)
    waiting = random.Random(3).choices(range(len(VALUES)), k=REPORTS)
    append(store, body_in(store, 0, asked, {"color": waiting}))
    merge_all(store)
    assert store.merged() == place.day(1)
    erase_all(store)
    wait_until_gone(past, directory_of(place))
    wait_until_gone(today, directory_of(place))
    assert Traces.of([waiting], []).left(directory_of(place)) == (REPORTS // PIECE, 0)


def test_a_day_is_erased_in_every_shard(place: Place, store: Store, asked: Registry) -> None:
    """One that is late holds it up."""
    traces = live(place, store, asked, shard=store.shards - 1)
    for shard in range(store.shards - 1):
        store.merge(shard)
    assert store.merged() < place.day()
    erase_all(store)
    assert store.erased() == store.merged() < place.day()
    assert traces.left(directory_of(place))[1] == ALL[1]
    merge_all(store)
    erase_all(store)
    wait_until_gone(traces, directory_of(place))


def test_another_process_goes_on_where_one_was_cut_off(place: Place, store: Store, asked: Registry) -> None:
    traces = live(place, store, asked)
    merge_all(store)
    store.erase()
    other = place.open()
    erase_all(other)
    wait_until_gone(traces, directory_of(place))
    assert store.erased() == other.erased() == place.day()


def test_upkeep_erases(place: Place, store: Store, asked: Registry) -> None:
    traces = live(place, store, asked)
    until = time.monotonic() + ERASED_WITHIN_S
    while store.erased() < place.day():
        for shard in range(store.shards):
            maintenance.maintain(store, shard)
        assert maintenance.maintain_whole(store) == ""
        assert time.monotonic() < until
    wait_until_gone(traces, directory_of(place))


# SQLite.


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SQLitePlace]:
    with closing(SQLitePlace(tmp_path / "store")) as made:
        yield made


def checkpoint(place: SQLitePlace) -> None:
    """Copy what is in the write-ahead log to the file, as happens every 32 MiB."""
    with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
        assert db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0


def busy_life(place: SQLitePlace, store: Store, asked: Registry, seed: int) -> Traces:
    """Take uploads of every size, fold some at a time, compact and checkpoint; then merge, with the next day begun."""
    rng = random.Random(seed)
    reports: list[list[int]] = []
    counts: set[bytes] = set()
    for _ in range(40):
        for _ in range(rng.choice([1, 1, 2, 10])):
            size = rng.choice([PIECE, 100, 300, 650])
            names = rng.sample(METRICS, rng.randint(1, len(METRICS)))
            answers = {name: rng.choices(range(len(VALUES)), k=size) for name in names}
            append(store, body_in(store, 0, asked, answers))
            reports += answers.values()
        if rng.randrange(5):
            store.fold(0)
        if rng.randrange(4) == 0:
            checkpoint(place)
        if rng.randrange(3) == 0:
            counts |= counts_in(place, store)
            store.compact(0)
    fold_all(store)
    counts |= counts_in(place, store)
    place.travel(1)
    seal_all(store)
    for _ in range(5):
        append(store, body_in(store, 0, asked, {"color": [1, 2, 3]}))
        store.fold(0)
    append(store, body_in(store, 0, asked, {"color": [1, 2, 3]}))
    merge_all(store)
    return Traces.of(reports, counts - counts_in(place, store))


def counts_in(place: SQLitePlace, store: Store) -> set[bytes]:
    """Return the packed counts of the first day's segments."""
    return {one.packed for item in store.plans() for one in store.segments(0, item.id, place.day())}


@pytest.mark.parametrize("seed", range(scaled(1, 4)))
def test_no_page_of_the_file_keeps_what_was_moved_in_it(
    sqlite: SQLitePlace, asked: Registry, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither_aggregator.store.contract.COMPACT_SEGMENTS", 4)
    store = sqlite.make(asked)
    traces = busy_life(sqlite, store, asked, seed)
    assert min(traces.left(sqlite.directory)) > 0
    erase_all(store)
    assert traces.left(sqlite.directory) == (0, 0)


def delete_and_leave_it_there(patch: pytest.MonkeyPatch) -> None:
    connect = SQLiteStore._connect

    def relaxed(self: SQLiteStore) -> sqlite3.Connection:
        db = connect(self)
        db.execute("PRAGMA secure_delete = OFF")
        return db

    patch.setattr(SQLiteStore, "_connect", relaxed)


def leave_the_write_ahead_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SQLiteStore, "_cut_write_ahead_log", lambda self: True)


def copy_the_write_ahead_log_and_leave_it(patch: pytest.MonkeyPatch) -> None:
    def copy(self: SQLiteStore) -> bool:
        self._db.execute("PRAGMA wal_checkpoint(FULL)")
        return True

    patch.setattr(SQLiteStore, "_cut_write_ahead_log", copy)


@pytest.mark.parametrize(
    "bug", [delete_and_leave_it_there, leave_the_write_ahead_log, copy_the_write_ahead_log_and_leave_it]
)
def test_what_is_left_would_be_found(
    sqlite: SQLitePlace, asked: Registry, bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    store = sqlite.make(asked)
    traces = busy_life(sqlite, store, asked, 1)
    erase_all(store)
    assert traces.left(sqlite.directory) != (0, 0)


def test_who_reads_for_long_delays_erasing_beyond_a_restart(
    sqlite: SQLitePlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "CUT_WITHIN_S", 0.05)
    store = sqlite.make(asked)
    traces = live(sqlite, store, asked)
    with closing(sqlite3.connect(sqlite.directory / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        merge_all(store)
        store.erase()
        append(store, body_in(store, 0, asked, {"dark": [1]}))
        again = sqlite.open()
        again.erase()
        assert again.erased() < again.merged() == sqlite.day()
        assert min(traces.left(sqlite.directory)) > 0
    again.erase()
    assert again.erased() == sqlite.day()
    assert traces.left(sqlite.directory) == (0, 0)


def test_much_that_waits_delays_erasing(sqlite: SQLitePlace, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "READ_UPLOADS_MAX", 3)
    store = sqlite.make(asked)
    traces = live(sqlite, store, asked)
    merge_all(store)
    for _ in range(4):
        append(store, body_in(store, 0, asked, {"dark": [1]}))
    assert "more than 3 uploads wait to be folded" in store.erase()
    assert store.erase() == ""  # it was said
    assert store.erased() < sqlite.day()
    fold_all(store)
    assert store.erase() == ""
    assert store.erased() == sqlite.day()
    assert traces.left(sqlite.directory) == (0, 0)


def test_a_long_quarantine_delays_erasing_only_once_a_group_was_taken_out(
    sqlite: SQLitePlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "READ_UPLOADS_MAX", 3)
    store = sqlite.make(asked)
    read = LogRead(0, 0, [])
    group = LogGroup(store.stored(asked.metrics["dark"].plan).id, 0, sqlite.day(), 1, b"\x09")
    assert store.commit_fold(0, read, [], [Poison(group, "planted")] * 6)
    for erases in (True, False):
        if not erases:
            assert store.drop("0-6")
        sqlite.travel(1)
        seal_all(store)
        merge_all(store)
        said, merged = store.erase(), store.merged()
        assert ("more than 3 groups wait in quarantine" in said) is not erases
        assert (store.erased() == merged) is erases
    for number in (1, 2):
        store.drop(f"0-{number}")
    store.erase()
    assert store.erased() == store.merged()


def test_erasing_goes_on_beside_readers_and_writers(sqlite: SQLitePlace, asked: Registry) -> None:
    store = sqlite.make(asked)
    traces = live(sqlite, store, asked)
    with WholeService(store) as service:
        until = time.monotonic() + ERASED_WITHIN_S
        while sqlite.open().erased() < sqlite.day():
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            assert time.monotonic() < until
        assert service.trouble() == {}
    assert traces.left(sqlite.directory) == (0, 0)


# Redis.


@pytest.fixture
def redis(own: RedisServer) -> Iterator[RedisPlace]:
    with closing(RedisPlace(own)) as made:
        yield made


def slow(place: RedisPlace, us: int) -> None:
    """Let a rewrite take so long for each key."""
    place.redis.config_set("rdb-key-save-delay", us)


def wait_for_rewrite(place: RedisPlace) -> dict[str, Any]:
    until = time.monotonic() + ERASED_WITHIN_S
    while (information := place.redis.info("persistence"))["aof_rewrite_in_progress"]:
        assert time.monotonic() < until
        time.sleep(0.01)
    return dict(information)


def test_a_rewrite_that_began_before_the_merging_does_not_count(redis: RedisPlace, asked: Registry) -> None:
    store = redis.make(asked)
    traces = live(redis, store, asked)
    redis.redis.config_set("rdbcompression", "no")
    slow(redis, 20_000)
    redis.redis.bgrewriteaof()
    merge_all(store)
    assert store.erase() == ""
    slow(redis, 0)
    assert wait_for_rewrite(redis)["aof_rewrites"] == 1
    assert traces.left(redis.server.directory) == (0, ALL[1])
    assert store.erase() == ""
    assert store.erased() < redis.day()
    assert wait_for_rewrite(redis)["aof_rewrites"] == 2
    assert store.erase() == ""
    assert store.erased() == redis.day()
    wait_until_gone(traces, redis.server.directory)


def test_a_rewrite_of_somebody_else_counts_when_it_began_afterwards(redis: RedisPlace, asked: Registry) -> None:
    store = redis.make(asked)
    traces = live(redis, store, asked)
    merge_all(store)
    store.erase()
    wait_for_rewrite(redis)
    redis.redis.bgrewriteaof()
    wait_for_rewrite(redis)
    assert store.erase() == ""
    assert store.erased() == redis.day()
    assert redis.redis.info("persistence")["aof_rewrites"] == 2
    wait_until_gone(traces, redis.server.directory)


def test_a_rewrite_that_a_restart_cut_off_is_asked_for_again(redis: RedisPlace, asked: Registry) -> None:
    store = redis.make(asked)
    traces = live(redis, store, asked)
    merge_all(store)
    slow(redis, 100_000)
    store.erase()
    assert redis.redis.info("persistence")["aof_rewrite_in_progress"] == 1
    assert isinstance(redis.server, RedisServer)
    redis.server.restart()
    assert traces.left(redis.server.directory) == ALL
    again = redis.open()
    assert again.erase() == ""
    assert again.erased() < redis.day()
    erase_all(again)
    wait_until_gone(traces, redis.server.directory)


def test_a_rewrite_that_failed_is_asked_for_again(redis: RedisPlace, asked: Registry) -> None:
    store = redis.make(asked)
    traces = live(redis, store, asked)
    merge_all(store)
    directory = redis.server.directory / "appendonlydir"
    directory.rename(redis.server.directory / "away")
    directory.touch()
    (said,) = {store.erase() for _ in range(3)} - {""}
    assert "Can't execute an AOF background rewriting" in said
    assert store.erased() < redis.day()
    directory.unlink()
    (redis.server.directory / "away").rename(directory)
    erase_all(store)
    wait_until_gone(traces, redis.server.directory)


def test_a_redis_that_refuses_is_told_of_once_and_goes_on_counting(
    own: RedisServer, asked: Registry, redis: RedisPlace, caplog: pytest.LogCaptureFixture
) -> None:
    redis.make(asked)
    redis.redis.execute_command("ACL", "SETUSER", "app", "on", ">word", "~dither:*", "+@all", "-bgrewriteaof")
    with closing(RedisStore(own.url.replace("//", "//app:word@"))) as store:
        live(redis, store, asked)
        with WholeService(store) as service:
            until = time.monotonic() + ERASED_WITHIN_S
            while store.merged() < redis.day() or not caplog.messages:
                assert time.monotonic() < until
                time.sleep(0.05)
            assert [maintenance.maintain_whole(store) for _ in range(3)] == [""] * 3
            assert service.trouble() == {}
        (said,) = caplog.messages
        assert "uploads of days that are over can still be told apart in it" in said
        assert "no permissions to run the 'bgrewriteaof' command. Allow the command BGREWRITEAOF" in said
        assert "word@" not in said
        append(store, body_in(store, 0, asked, {"dark": [1]}))
        fold_all(store)
        assert store.backlog() == 0
        redis.redis.execute_command("ACL", "SETUSER", "app", "+bgrewriteaof")
        erase_all(store)


def test_a_redis_without_a_file_has_nothing_to_erase(tmp_path: Path, asked: Registry) -> None:
    with running_redis(tmp_path / "redis", appendonly="no") as server:
        with closing(RedisStore.create(server.url, "example", shards=2, allow_lossy_store=True)) as store:
            merge_all(store)
            assert store.erase() == ""
            assert store.erased() == store.merged()
        with closing(server.client()) as client:
            assert client.info("persistence")["aof_rewrites"] == 0
