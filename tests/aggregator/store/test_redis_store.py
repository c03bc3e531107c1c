"""What is Redis's alone: settings, restarts, lost files, other stores in its place, memory, slots."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.crc import key_slot

from dither_aggregator.service import Service, Submitted
from dither_aggregator.store import Receipt, Store, StoreError, StoreUnavailable, create_store, open_store
from dither_aggregator.store.dump import ShardRecord, TallyRecord
from dither_aggregator.store.folding import fold_read
from dither_aggregator.store.interface.ledger import with_pending
from dither_aggregator.store.packing import count_pending
from dither_aggregator.store.records import Counted, Final, LogEntry, Poison, Retention, Segment, sum_segments
from dither_aggregator.store.redis import RedisStore, ledger, log, moving, scripts
from dither_aggregator.store.redis import calls as calls_module
from dither_aggregator.store.redis.calls import INSTANT_ATTEMPTS
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.redis.packing import tally_name
from dither_aggregator.store.restoring import restore
from dither_aggregator.web.served import ServedStore
from dither_shared.registry import Registry
from dither_shared.wire.problems import Problem
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.stores import (
    RedisPlace,
    answer,
    append,
    balance,
    body_in,
    body_of,
    fold_all,
    parsed,
    seal_all,
)


@pytest.fixture
def kind() -> str:
    return "redis"


@pytest.fixture
def server(redis_servers: tuple[RedisServer, RedisServer]) -> RedisServer:
    """One that every test finds empty and leaves as it was."""
    with closing(redis_servers[0].client()) as client:
        client.flushall()
    return redis_servers[0]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may kill, spoil and start again."""
    with running_redis(tmp_path / "redis") as started:
        yield started


def store_on(server: RedisServer, asked: Registry, **options: Any) -> RedisStore:
    store = RedisStore.create(server.url, "example", 4, **options)
    store.load(asked)
    return store


# Making and opening.


def test_a_store_is_named_by_its_address(server: RedisServer) -> None:
    with closing(create_store(server.url, "example")) as made, closing(open_store(server.url)) as again:
        assert isinstance(again, RedisStore)
        assert (again.app, again.key, again.generation, again.shards) == (made.app, made.key, made.generation, 16)
        assert (again.lossy, again.trouble(), again.integrity()) == ("", {}, [])


def test_an_empty_redis_is_no_store(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="holds no store; `dither init` makes one"):
        RedisStore(server.url)


def test_a_store_is_not_made_twice(server: RedisServer) -> None:
    RedisStore.create(server.url, "example").close()
    with pytest.raises(StoreError, match=r"holds a store already$"):
        RedisStore.create(server.url, "example")


def test_of_two_that_make_a_store_one_does(server: RedisServer) -> None:
    made: list[RedisStore] = []
    refused: list[StoreError] = []

    def make() -> None:
        try:
            made.append(RedisStore.create(server.url, "example"))
        except StoreError as error:
            refused.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 5)
    assert made[0].trouble() == {}
    made[0].close()


def test_a_redis_with_something_else_in_it_is_refused(server: RedisServer) -> None:
    with closing(server.client()) as client:
        client.set("celery", "1")
    with pytest.raises(StoreError, match="holds other keys: give dither a Redis, or a database of one, of its own"):
        RedisStore.create(server.url, "example")


@pytest.mark.parametrize("steps", range(3))
def test_a_store_whose_making_was_cut_off_is_refused_with_what_to_do(
    server: RedisServer, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off after the first key, after all of them, and in the middle of finishing."""

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    if steps == 0:
        monkeypatch.setattr(Client, "run_each", _cut_off(Client.run_each, "HSET", Killed))
    elif steps == 1:
        monkeypatch.setattr(RedisStore, "finish", killed)
    else:
        monkeypatch.setattr(RedisStore, "_run_global", _cut_off(RedisStore._run_global, scripts.FINISH, Killed))
    with pytest.raises(Killed):
        RedisStore.create(server.url, "example", 4)
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"not filled to its end; .* empty it \(redis-cli FLUSHDB"):
        RedisStore(server.url)
    with pytest.raises(StoreError, match=r"not filled to its end; .* empty it \(redis-cli FLUSHDB"):
        RedisStore.create(server.url, "example")
    with closing(server.client()) as own:
        own.flushdb()
    RedisStore.create(server.url, "example").close()


def _cut_off(method: Callable[..., Any], word: object, killed: type[BaseException]) -> Callable[..., Any]:
    def cut_off(self: object, *arguments: Any, **options: Any) -> Any:
        if word in arguments or (isinstance(arguments[0], list) and arguments[0][0][0] == word):
            raise killed
        return method(self, *arguments, **options)

    return cut_off


def test_finishing_goes_on_where_it_was_cut_off(server: RedisServer, asked: Registry) -> None:
    made = RedisStore.create(server.url, "example", 4, unfinished=True)
    made._run(scripts.FINISH, 2, scripts.token(made.generation))
    with closing(RedisStore(server.url, unfinished=True)) as again:
        again.finish()
        again.finish()
    with closing(made), closing(RedisStore(server.url)) as opened:
        assert [shard.shard for shard in opened.status()] == [0, 1, 2, 3]


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_a_number_of_shards_that_makes_no_sense_is_refused(server: RedisServer, shards: int) -> None:
    with pytest.raises(StoreError, match=f"1 to 1024 shards, got {shards}"):
        RedisStore.create(server.url, "example", shards)


def test_another_version_is_refused(server: RedisServer) -> None:
    RedisStore.create(server.url, "example").close()
    with closing(server.client()) as client:
        client.hset(scripts.GLOBAL, "version", "9")
    with pytest.raises(StoreError, match=f"version 9; this dither reads {scripts.VERSION}"):
        RedisStore(server.url)


# What an address tells, and does not.


def test_a_password_is_in_no_message(tmp_path: Path, asked: Registry) -> None:
    with running_redis(tmp_path / "redis", requirepass="swordfish") as server:
        address = f"redis://:swordfish@127.0.0.1:{server.port}/0"
        wrong = address.replace("swordfish", "swordfishy")
        with closing(RedisStore.create(address, "example", 2)) as store:
            store.load(asked)
            failures = [_failure(lambda: RedisStore(wrong)), _failure(lambda: RedisStore.create(address, "example"))]
            server.kill()
            failures += [_failure(store.status), _failure(lambda: RedisStore(address))]
    for bad in ("redis://:swordfish@[/0", "http://:swordfish@host/0"):
        failures.append(_failure(partial(RedisStore, bad)))
    for failure in failures:
        assert isinstance(failure, StoreError)
        assert "swordfish" not in f"{failure}{failure.__cause__}"
    assert f"redis at 127.0.0.1:{server.port}/0" in str(failures[0])


def _failure(use: Callable[[], object]) -> BaseException:
    with pytest.raises(StoreError) as caught:
        use()
    return caught.value


@pytest.mark.parametrize("address", ["redis://127.0.0.1:1/0?nonsense=1", "redis://127.0.0.1:99999/0", "localhost:6379"])
def test_a_bad_address_is_refused_in_words(address: str) -> None:
    with pytest.raises(StoreError, match=r"is not the address of a Redis|cannot be used now"):
        RedisStore(address)


def test_a_redis_that_is_not_there_is_unavailable(asked: Registry, own: RedisServer) -> None:
    with closing(store_on(own, asked)) as store:
        own.kill()
        for use in USES.values():
            with pytest.raises(StoreUnavailable, match="cannot be used now"):
                use(store, asked)
        with pytest.raises(StoreUnavailable):
            RedisStore(own.url)


# Settings.


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("aof-load-truncated", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
    ],
)
def test_a_redis_that_may_lose_what_it_acknowledged_is_refused(
    server: RedisServer, asked: Registry, setting: str, value: str
) -> None:
    with closing(server.client()) as client:
        sound = client.config_get(setting)[setting]
        try:
            with closing(store_on(server, asked)) as store:
                client.config_set(setting, value)
                words = f"{setting} {value}.*must have {setting} {sound}.*CONFIG SET {setting} {sound}.*CONFIG REWRITE"
                assert re.search(words, store.trouble()["settings"])
            for use in (RedisStore, lambda url: RedisStore.create(url, "example")):
                with pytest.raises(StoreError, match=words):
                    use(server.url)
            with closing(RedisStore(server.url, allow_lossy_store=True)) as lossy:
                assert f"{setting} {value}" in lossy.lossy
                assert lossy.trouble() == {}
                client.config_set(setting, sound)
                assert lossy.trouble() == {}
                assert lossy.lossy == ""
        finally:
            client.config_set(setting, sound)


def test_a_redis_that_does_not_tell_its_settings_is_refused(tmp_path: Path, asked: Registry) -> None:
    with running_redis(tmp_path / "redis", rename_command='CONFIG" "') as server:
        with pytest.raises(StoreError, match=r"CONFIG is refused.*They must be: appendonly yes, appendfsync always"):
            RedisStore.create(server.url, "example")
        with closing(store_on(server, asked, allow_lossy_store=True)) as store:
            assert "CONFIG is refused" in store.lossy
            append(store, body_of(asked, {"dark": [1]}))
            assert store.trouble() == {}


def test_a_user_who_may_not_ask_for_settings_is_refused(own: RedisServer) -> None:
    with closing(own.client()) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">word", "~dither:*", "+@all", "-config")
    address = own.url.replace("//", "//app:word@")
    with pytest.raises(StoreError, match="CONFIG is refused"):
        RedisStore.create(address, "example")
    RedisStore.create(address, "example", allow_lossy_store=True).close()


def test_a_replica_is_refused(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        with closing(own.client()) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert "is a replica" in store.trouble()["store"]
        with pytest.raises(StoreUnavailable):
            append(store, body_of(asked, {"dark": [1]}))
        with pytest.raises(StoreError, match="is a replica"):
            RedisStore(own.url, allow_lossy_store=True)


def test_an_old_redis_is_refused(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "information", lambda self: {"redis_version": "6.2.14", "role": "master"})
    with pytest.raises(StoreError, match=r"is Redis 6\.2\.14; dither needs 7 or later"):
        RedisStore.create(server.url, "example")


# Another store in its place.

USES: dict[str, Callable[[Store, Registry], object]] = {
    "refresh": lambda store, asked: store.refresh(),
    "load": lambda store, asked: store.load(asked),
    "retire": lambda store, asked: store.retire("dark", 1),
    "set_clock_offset": lambda store, asked: store.set_clock_offset(0),
    "today": lambda store, asked: store.today(),
    "sealed": lambda store, asked: store.sealed(),
    "append": lambda store, asked: append(store, body_of(asked, {"dark": [1]})),
    "fold": lambda store, asked: store.fold(0),
    "read_log": lambda store, asked: store.read_log(0),
    "commit_fold": lambda store, asked: store.commit_fold(0, store.read_log(0), [], []),
    "compact": lambda store, asked: store.compact(0),
    "merge": lambda store, asked: store.merge(0),
    "note_merged": lambda store, asked: store.note_merged(0),
    "merged": lambda store, asked: store.merged(),
    "erase": lambda store, asked: store.erase(),
    "erased": lambda store, asked: store.erased(),
    "crowded": lambda store, asked: store.crowded(0, 1),
    "seal": lambda store, asked: store.seal(0),
    "finals": lambda store, asked: store.finals(asked.metrics["dark"].plan),
    "all_finals": lambda store, asked: store.all_finals(),
    "finalize": lambda store, asked: store.finalize(
        asked.metrics["dark"].plan, store.clock_day(), Final("digest", "a" * 64), b""
    ),
    "snapshot": lambda store, asked: store.snapshot("a" * 64),
    "retention": lambda store, asked: store.retention(),
    "set_retention": lambda store, asked: store.set_retention(Retention(1, 1)),
    "tallies_from": lambda store, asked: store.tallies_from(),
    "forget": lambda store, asked: store.forget(0),
    "forget_snapshots": lambda store, asked: store.forget_snapshots(),
    "tally": lambda store, asked: store.tally(asked.metrics["dark"].plan, store.clock_day()),
    "segments": lambda store, asked: store.segments(0, 1, store.clock_day()),
    "epochs": lambda store, asked: store.epochs(asked.metrics["dark"].plan),
    "all_epochs": lambda store, asked: store.all_epochs(),
    "ledger": lambda store, asked: store.ledger(),
    "status": lambda store, asked: store.status(),
    "trouble": lambda store, asked: store.trouble(),
    "integrity": lambda store, asked: store.integrity(),
    "quarantined": lambda store, asked: store.quarantined(),
    "log_entries": lambda store, asked: list(store.log_entries(0)),
    "set_aside": lambda store, asked: store.set_aside(0, LogEntry(1, b""), {}, []),
    "replay": lambda store, asked: store.replay("0-1"),
    "drop": lambda store, asked: store.drop("0-1"),
    "dump": lambda store, asked: list(store.dump()),
}


def test_a_redis_that_came_back_empty_is_refused(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        append(store, body_of(asked, {"dark": [1]}))
        client.flushall()
        for use in USES.values():
            with pytest.raises(StoreError, match="not the store that was opened: it was emptied, or another") as caught:
                use(store, asked)
            assert not isinstance(caught.value, StoreUnavailable)
            assert client.dbsize() == 0


def test_another_store_in_its_place_is_refused(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        append(store, body_of(asked, {"dark": [1]}))
        client.flushall()
        with closing(store_on(server, asked)) as other:
            before = {key: client.dump(key) for key in client.scan_iter()}
            for use in USES.values():
                with pytest.raises(StoreError, match="is not the store that was opened"):
                    use(store, asked)
            assert {key: client.dump(key) for key in client.scan_iter()} == before
            assert other.ledger() == []


def test_every_method_was_tried_on_a_store_that_is_not_there() -> None:
    untouched = {"plans", "stored", "plan_by_id", "find_plan", "clock_day", "digest", "shard_of", "close"}
    filling = {name for name in dir(Store) if name.startswith("fill_")} | {"finish"}
    through_others = {"replace_segments", "all_segments", "shard_ledger", "backlog"}
    methods = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}
    assert methods == USES.keys() | untouched | filling | through_others


def test_a_store_that_is_there_in_part_is_refused(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        client.delete(scripts.shard_key(2))
        for use in (store.status, store.ledger, lambda: RedisStore(server.url)):
            with pytest.raises(StoreError, match="is not the store that was opened"):
                use()
        with pytest.raises(StoreError, match="is not the store that was opened"):
            append(store, body_in(store, 2, asked, {"dark": [1]}))


# Restarts, and what they lose.


def test_nothing_is_lost_or_doubled_when_redis_is_killed(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        bodies = [body_of(asked, {"color": [1, 2], "dark": [0]}) for _ in range(60)]
        for number, body in enumerate(bodies):
            append(store, body)
            if number % 20 == 10:
                own.restart()
            if number % 15 == 7:
                store.fold(number % 4)
        assert store.trouble() == {}
        assert all(append(store, body).duplicate for body in bodies)
        fold_all(store)
        assert balance(store) == (180, 180, 0, 0)


def test_scripts_that_redis_has_forgotten_are_loaded_and_run_once(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        for _ in range(3):
            client.script_flush()
            batch = [parsed(store, body_of(asked, {"dark": [1]})) for _ in range(20)]
            answers = store.append([*batch, *batch])
            assert [one.duplicate for one in answers if isinstance(one, Receipt)] == [False] * 20 + [True] * 20
            client.script_flush()
            fold_all(store)
            client.script_flush()
            assert store.ledger()
            client.script_flush()
            assert list(store.dump())
        assert balance(store) == (60, 60, 0, 0)


def test_a_dump_is_of_one_instant_though_redis_has_forgotten_a_script_that_it_needs(
    server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks is not read later than the rest."""
    with closing(store_on(server, asked)) as store, closing(RedisStore(server.url)) as other:
        append(store, body_in(store, 0, asked, {"dark": [1, 0]}))
        load = Client._load

        def meanwhile(self: Client, commands: Any) -> None:
            monkeypatch.undo()
            append(other, body_in(other, 0, asked, {"dark": [1]}))
            load(self, commands)

        with closing(server.client()) as client:
            client.script_flush()
            for script in scripts.SCRIPTS.values():
                if script is not scripts.LEDGER_NOW:
                    client.script_load(script.text)
        monkeypatch.setattr(Client, "_load", meanwhile)
        (record,) = (one for one in store.dump() if isinstance(one, ShardRecord) and one.shard == 0)
        (row,) = record.ledger.values()
        assert (row.accepted, len(record.entries)) == (3, 2)


def cut(server: RedisServer, number_of_bytes: int) -> None:
    """Kill the server, cut the end off its file, repair that, and start it again."""
    server.kill()
    (file,) = server.directory.glob("appendonlydir/*.incr.aof")
    content = file.read_bytes()
    file.write_bytes(content[:-number_of_bytes])
    server.repair()
    server.start()


def test_acknowledged_uploads_that_are_gone_are_told_for_good(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for _ in range(8):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert store.trouble() == {}
        cut(own, 10)
        assert "has lost 1 uploads that it had acknowledged" in store.trouble()["lost"]
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert "has lost 1 uploads" in store.trouble()["lost"]
        fold_all(store)
        assert balance(store) == (9, 9, 0, 0)
    with closing(RedisStore(own.url)) as again:
        assert again.trouble() == {}


def test_a_loss_is_seen_in_the_answer_of_an_append(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for _ in range(8):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        size = len(next(own.directory.glob("appendonlydir/*.incr.aof")).read_bytes())
        for _ in range(3):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        cut(own, len(next(own.directory.glob("appendonlydir/*.incr.aof")).read_bytes()) - size)
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert "has lost 2 uploads" in store.trouble()["lost"]


def test_many_threads_are_not_taken_for_a_loss(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store:

        def work() -> None:
            for _ in range(40):
                append(store, body_in(store, 0, asked, {"dark": [1]}))
                store.status()

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.trouble() == {}
        assert store.status()[0].written == 240


def test_a_counter_that_read_what_is_gone_changes_nothing(own: RedisServer, asked: Registry) -> None:
    """The file was cut between read and commit, and other uploads came in the place of the lost ones."""
    with closing(store_on(own, asked)) as store:
        for _ in range(3):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        read = store.read_log(1)
        counted = fold_read(read, {item.id: item.plan.cells for item in store.plans()})
        cut(own, 10)
        append(store, body_in(store, 1, asked, {"dark": [0]}))
        assert store.status()[1].written == 3
        assert not store.commit_fold(1, read, *counted)
        fold_all(store)
        day = store.today()
        assert store.tally(asked.metrics["dark"].plan, day).counts.tolist() == [3, 1, 2]
        assert balance(store) == (3, 3, 0, 0)


def test_a_compaction_that_read_what_is_gone_changes_nothing(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for report in (1, 1, 1):
            append(store, body_in(store, 1, asked, {"dark": [report]}))
            fold_all(store)
        plan, day = store.stored(asked.metrics["dark"].plan).id, store.today()
        old = store.segments(1, plan, day)
        cut(own, 10)
        assert len(store.segments(1, plan, day)) == 2
        fold_all(store)
        assert not store.replace_segments(1, old, sum_segments(old))
        assert store.compact(1) == 0
        assert store.tally(asked.metrics["dark"].plan, day).n == 3
        assert balance(store) == (3, 3, 0, 0)


@pytest.mark.parametrize("lost", [1, 40, 100, 200, 400, 800, 1_500])
def test_a_file_that_is_cut_anywhere_balances(own: RedisServer, asked: Registry, lost: int) -> None:
    with closing(store_on(own, asked)) as store:
        for number in range(10):
            append(store, body_of(asked, {"color": [1, 2], "dark": [0]}))
            if number % 3 == 0:
                fold_all(store)
        cut(own, lost)
        assert store.integrity() == []
        accepted, _, _, quarantined = balance(store)
        fold_all(store)
        assert balance(store) == (accepted, accepted, 0, quarantined)
        assert store.integrity() == []


# Memory.


def test_without_memory_nothing_is_taken_and_what_is_there_is_folded(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store, closing(own.client()) as client:
        first, second = body_of(asked, {"dark": [1]}), body_of(asked, {"dark": [1]})
        append(store, first)
        client.config_set("maxmemory", "1")
        for body in (first, second):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                append(store, body)
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            store.retire("dark", 1)
        assert balance(store) == (1, 0, 1, 0)
        fold_all(store)
        seal_all(store)
        for shard in range(store.shards):
            store.forget(shard)
            store.compact(shard)
        assert balance(store) == (1, 1, 0, 0)
        assert store.trouble() == {}
        client.config_set("maxmemory", "0")
        assert append(store, first).duplicate
        assert not append(store, second).duplicate


# Damage.


def test_a_log_that_lacks_uploads_is_not_folded(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(3):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        place.redis.ltrim(scripts.log_key(0), 1, -1)
        with pytest.raises(StoreError, match="the log of shard 0 holds 2 uploads of 3"):
            store.fold(0)
        assert store.integrity() == ["shard 0: the log holds 2 uploads, and 3 are to be folded"]


def test_a_tally_that_lacks_segments_is_found(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(2):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            fold_all(store)
        name = tally_name(store.stored(asked.metrics["dark"].plan).id, place.day())
        place.redis.lpop(scripts.tally_key(0, name))
        (found,) = store.integrity()
        assert re.fullmatch(rf"shard 0: the tally of plan \d+ on {place.day()} lacks segments, or has too many", found)


def test_what_is_cut_off_is_damaged(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        append(store, body_in(store, 0, asked, {"dark": [1]}))
        place.redis.rpush(scripts.tally_key(0, tally_name(1, place.day(-2))), b"short")
        place.redis.zadd(scripts.tallies_key(0), {tally_name(1, place.day(-2)): 1})
        with pytest.raises(StoreError, match="is damaged: a segment is cut off"):
            store.merge(0)
        place.redis.lset(scripts.log_key(0), 0, b"short")
        with pytest.raises(StoreError, match="is damaged: an entry of the log is cut off"):
            store.seal(0)
        place.redis.hset(scripts.quarantine_key(0), "1", b"short")
        for use in (store.replay, store.drop):
            with pytest.raises(StoreError, match="is damaged: a quarantined group is cut off"):
                use("0-1")
        with pytest.raises(StoreError, match="the quarantined group 0-1 is damaged"):
            store.quarantined()


def test_a_key_of_another_kind_is_an_error_in_words(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        place.redis.set(scripts.log_key(0), "text")
        with pytest.raises(StoreError, match="cannot be used: WRONGTYPE"):
            store.read_log(0)


# Reading at one instant.


def test_a_ledger_is_of_one_instant_however_fast_the_counters_are(
    server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody folds whenever the log is being read: at last all of it is read in one step."""
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(30):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        pending = RedisStore._pending
        tried = []

        def overtaken(self: RedisStore, *arguments: Any) -> object:
            fold_all(store)
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            tried.append(1)
            return pending(self, *arguments)

        monkeypatch.setattr(RedisStore, "_pending", overtaken)
        (row,) = store.shard_ledger(0).values()
        assert len(tried) == INSTANT_ATTEMPTS
        assert row == Counted(30 + len(tried), 29 + len(tried), 1, 0, 0)


def test_a_long_log_is_counted_in_pieces(server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log, ledger):
        monkeypatch.setattr(module, "READ_UPLOADS_MAX", 7)
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(40):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        assert balance(store) == (40, 0, 40, 0)
        store.fold(0)
        assert balance(store) == (40, 7, 33, 0)


def poisoned(store: Store, asked: Registry) -> None:
    """Fold an upload of whose groups one cannot be counted."""
    append(store, body_in(store, 0, asked, {"color": [1, 1], "dark": [1]}))
    read = store.read_log(0)
    color, dark = read.groups
    segments, _ = fold_read(read._replace(groups=[dark]), {dark.plan: store.plan_by_id(dark.plan).plan.cells})
    assert store.commit_fold(0, read, segments, [Poison(color, "poison")])


def once(monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: Callable[[], object]) -> list[int]:
    """Do something else after the first call of a method of the store; return a list of its calls."""
    method, calls = getattr(RedisStore, name), []

    def overtaken(self: RedisStore, *arguments: Any) -> Any:
        calls.append(1)
        result = method(self, *arguments)
        if len(calls) == 1:
            meanwhile()
        return result

    monkeypatch.setattr(RedisStore, name, overtaken)
    return calls


def dumped_ledger(store: Store) -> dict[Any, Counted]:
    """Return a dump's ledger of the first shard, with what its log holds and only what its quarantine does."""
    (record,) = (one for one in store.dump() if isinstance(one, ShardRecord) and one.shard == 0)
    held: dict[Any, int] = {}
    for group, _ in record.quarantine:
        held[group.plan, group.epoch] = held.get((group.plan, group.epoch), 0) + group.n
    assert {key: row.quarantined - row.dropped for key, row in record.ledger.items() if row.quarantined} == held
    return with_pending(record.ledger, count_pending(record.entries))


@pytest.mark.parametrize("how", ["shard_ledger", "dump"])
@pytest.mark.parametrize("step", ["replay", "drop"])
def test_what_leaves_the_quarantine_while_sealed_days_are_read_is_read_again(
    step: str, how: str, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    poisoned(store, asked)
    poisoned(store, asked)
    place.travel(2)
    seal_all(store)
    other = place.open()
    calls = once(monkeypatch, "_settled", lambda: getattr(other, step)("0-1"))
    rows = store.shard_ledger(0) if how == "shard_ledger" else dumped_ledger(store)
    assert calls == ([1, 1] if how == "shard_ledger" else [1] * (1 + store.shards))
    if how == "shard_ledger" or step == "replay":
        assert all(row.accepted == row.folded + row.pending + row.quarantined for row in rows.values()), rows
    assert sum(row.pending for row in rows.values()) == (2 if step == "replay" else 0)
    assert sum(row.dropped for row in rows.values()) == (2 if step == "drop" else 0)


@pytest.mark.parametrize("how", ["shard_ledger", "dump"])
def test_a_day_that_begins_while_a_ledger_is_read_is_in_it(
    how: str, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    other = place.open()

    def tomorrow() -> None:
        place.travel(1)
        append(other, body_in(other, 0, asked, {"dark": [1, 1]}))
        other.fold(0)

    once(monkeypatch, "_settled", tomorrow)
    rows = store.shard_ledger(0) if how == "shard_ledger" else dumped_ledger(store)
    assert {epoch: row for (_, epoch), row in rows.items()} == {
        place.day(): Counted(1, 1),
        place.day(1): Counted(2, 2),
    }


def test_a_tally_that_begins_while_its_names_are_read_is_in_the_dump(
    place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    append(store, body_in(store, 0, asked, {"color": [1, 1]}))
    once(monkeypatch, "_read_ahead", lambda: fold_all(store))
    tallies = [record for record in store.dump() if isinstance(record, TallyRecord)]
    assert sorted(record.n for record in tallies) == [1, 2]


@pytest.mark.parametrize("folds", range(3), ids=["as-it-was", "folded-meanwhile", "overtaken"])
def test_a_long_log_is_dumped_in_pieces(
    folds: int, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    for _ in range(40):
        append(store, body_in(store, 0, asked, {"dark": [1]}))
    for module in (log, moving):
        monkeypatch.setattr(module, "READ_UPLOADS_MAX", 7)

    def meanwhile() -> None:
        if folds == 1:
            store.fold(0)
        elif folds == 2:
            fold_all(store)
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            fold_all(store)
        append(store, body_in(store, 0, asked, {"dark": [1]}))

    once(monkeypatch, "_read_ahead", meanwhile)
    (row,) = dumped_ledger(store).values()
    assert row == [Counted(42, 1, 41), Counted(42, 8, 34), Counted(43, 42, 1)][folds]


def test_no_reply_holds_redis_up_for_all_that_a_shard_has(
    place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of days, of which each has a row in the ledger and a tally: each is looked at in pieces."""
    store = place.begin()
    store.load(asked)
    plan, days = store.stored(asked.metrics["dark"].plan).id, [place.day(-2 - day) for day in range(365)]
    rows = {(plan, day): Counted(1, 1) for day in days}
    store.fill_shard(ShardRecord(0, place.day(), place.day(-1), 1, (), rows))
    store.fill_segments(0, [Segment(plan, day, 0, 1, 1, np.array([1, 1, 0])) for day in days])
    for shard in range(1, store.shards):
        store.fill_shard(ShardRecord(shard, place.day(), place.day(-1), 0, ()))
    store.finish()
    monkeypatch.setattr(calls_module, "SCAN_ITEMS", 20)
    longest: list[int] = []
    send = Client._send

    def measured(self: Client, commands: Any, together: bool) -> list[Any]:
        replies = send(self, commands, together)
        longest.extend(sum(map(_items, replies)) if together else _items(reply) for reply in replies)
        return replies

    monkeypatch.setattr(Client, "_send", measured)
    assert len(store.ledger()) == 365
    assert sum(isinstance(record, TallyRecord) for record in store.dump()) == 365
    assert max(longest) < 120
    place.redis.config_resetstat()
    assert store.integrity() == []
    assert place.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > 365 / 120


def _items(reply: object) -> int:
    return sum(map(_items, reply)) if isinstance(reply, list | dict) else 1


def test_a_copy_with_other_shards_knows_ids_of_days_that_its_shards_had_not_used(
    redis_servers: tuple[RedisServer, RedisServer], asked: Registry
) -> None:
    """The last of 4 shards was ahead. Its ids go to the last of 3, everything else of it to the first."""
    source, target = (RedisPlace(server, shards) for server, shards in zip(redis_servers, (4, 3), strict=True))
    with closing(source), closing(target):
        store = source.make(asked)
        source.travel(5)
        bodies = [body_in(store, 3, asked, {"dark": [1]}) for _ in range(3)]
        for body in bodies:
            append(store, body)
        restore(target.begin(), store.dump())
        target.travel(0)
        copy = target.open()
        assert copy.clock_day() < copy.today()
        assert all(append(copy, body).duplicate for body in bodies)


# Slots.


def test_the_keys_of_a_shard_lie_in_one_slot(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = _lived(place, asked)
        keys = list(place.redis.scan_iter())
        slots: dict[str, set[int]] = {}
        for key in keys:
            slots.setdefault(key.decode().split(":")[1], set()).add(key_slot(key))
        assert slots.keys() == {"{g}", "{0}", "{1}", "{2}", "{3}"}
        assert all(len(of_one) == 1 for of_one in slots.values())
        assert len(set.union(*slots.values())) == 5
        documented = re.findall(r"^    (dither:\S+)", scripts.__doc__ or "", re.MULTILINE)
        patterns = [re.sub("[A-Z]+", "[^:]+", re.escape(name).replace(r"\{3\}", r"\{\d+\}")) for name in documented]
        for key in keys:
            assert any(re.fullmatch(pattern, key.decode()) for pattern in patterns), key
        assert store.integrity() == []


def test_every_effect_stays_within_a_slot(tmp_path: Path, asked: Registry) -> None:
    """A Redis Cluster refuses what does not; one node that has all slots is a cluster."""
    with running_redis(tmp_path / "redis", cluster_enabled="yes") as server:
        with closing(server.client()) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            until = time.monotonic() + 20
            while client.cluster("info")["cluster_state"] != "ok":
                assert time.monotonic() < until
                time.sleep(0.05)
        with closing(RedisPlace(server)) as place:
            store = _lived(place, asked)
            assert balance(store) == (45, 43, 0, 2)
            assert list(store.dump())
            assert place.open().ledger() == store.ledger()


def _lived(place: RedisPlace, asked: Registry) -> Store:
    """A store that has done everything once."""
    store = place.make(asked)
    answers = store.append([parsed(store, body_of(asked, {"color": [1], "dark": [1]})) for _ in range(21)])
    assert all(isinstance(one, Receipt) for one in answers)
    append(store, body_in(store, 0, asked, {"color": [1, 1]}))
    place.change_log(lambda entry: entry[:-2] + b"\xff\xff" if entry.endswith(b"\x01\x01") else entry)
    fold_all(store)
    assert store.drop("0-1")
    assert not isinstance(answer(store, body_of(asked, {"dark": [1]})), Exception)
    fold_all(store)
    return _aged(place, store, asked)


def _aged(place: RedisPlace, store: Store, asked: Registry) -> Store:
    plan = asked.metrics["dark"].plan
    for shard in range(store.shards):
        if segments := store.segments(shard, store.stored(plan).id, place.day()):
            assert store.replace_segments(shard, segments, sum_segments(segments))
    store.finalize(plan, place.day(), Final("digest", "a" * 64), b"content")
    store.retire("dark", 1)
    place.travel(1)
    seal_all(store)
    for shard in range(store.shards):
        store.merge(shard)
    assert store.merged() == place.day()
    assert store.erase() == ""
    store.set_retention(Retention(100, 0))
    for shard in range(store.shards):
        store.forget(shard)
    store.forget_snapshots()
    store.finalize(plan, place.day(1), Final("digest", "b" * 64), b"content")
    return store


def test_nothing_asks_for_all_keys(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        before: dict[str, Any] = place.redis.info("commandstats")
        _lived(place, asked)
        after: dict[str, Any] = place.redis.info("commandstats")
        for command in ("cmdstat_keys", "cmdstat_scan"):
            assert before.get(command, {"calls": 0})["calls"] == after.get(command, {"calls": 0})["calls"]


def test_an_api_process_that_starts_again_takes_up_no_other_store(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store:
        with ExitStack() as opened, pytest.raises(StoreError, match="another store was put in the place"):
            ServedStore(server.url, None, "other", False, ())._open(opened)
        with ExitStack() as opened:
            assert callable(ServedStore(server.url, None, store.generation, False, ())._open(opened))


def test_a_dump_during_which_old_tallies_are_given_up_is_not_whole(place: RedisPlace, asked: Registry) -> None:
    """Shard by shard: those that come later would lack what the first still had."""
    store = place.make(asked)
    for shard in range(store.shards):
        append(store, body_in(store, shard, asked, {"color": [1]}))
    fold_all(store)
    place.travel(3)
    seal_all(store)
    epoch = place.day(0)
    store.finalize(asked.metrics["color"].plan, epoch, Final("digest", "id"), b"content")
    records = store.dump()
    for record in records:
        if isinstance(record, ShardRecord):
            break
    other = place.open()
    other.set_retention(Retention(tallies_days=1))
    for shard in range(store.shards):
        other.forget(shard)
    with pytest.raises(StoreUnavailable, match="given up while they were read"):
        list(records)


def test_a_redis_that_becomes_lossy_while_it_is_used_is_given_no_more_uploads(
    own: RedisServer, asked: Registry
) -> None:
    with closing(store_on(own, asked)) as store, Service(store) as service:
        first, second = parsed(store, body_of(asked, {"dark": [1]})), parsed(store, body_of(asked, {"dark": [1]}))
        assert _receipt(service.submit(*first)).accepted == 1
        with closing(own.client()) as client:
            client.config_set("appendfsync", "everysec")
            _until(lambda: "settings" in service.trouble())
            with pytest.raises(Problem, match="may lose what it acknowledges"):
                service.submit(*second)
            client.config_set("appendfsync", "always")
        _until(lambda: not service.trouble())
        assert not _receipt(service.submit(*second)).duplicate


def _receipt(submitted: Submitted) -> Receipt:
    result = submitted.result(10)
    assert isinstance(result, Receipt)
    return result


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
