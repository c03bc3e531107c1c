"""The Redis store alone: making and opening, settings, other stores in its place."""

import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.ingest.service import Service, Submitted
from dither_aggregator.store import Receipt, Store, StoreError, StoreUnavailable, create_store, open_store
from dither_aggregator.store.clock import DayReset
from dither_aggregator.store.document_kinds import DayMark, Retention, ToldMoves
from dither_aggregator.store.dump import ShardRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import Final, KeptReading, LogEntry, day_number
from dither_aggregator.store.redis import RedisStore, layout, scripts
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.release_ledger import Release
from dither_aggregator.web.process_supervisor import ServedStore
from dither_shared.registry import Registry
from dither_shared.wire.reading import Problem
from tests.support.keys import STRONG
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.stores import (
    RedisPlace,
    append,
    body_in,
    body_of,
    fold_all,
    parsed,
    seal_all,
    store_on,
)


@pytest.fixture
def kind() -> str:
    return "redis"


# Making and opening.


def test_a_store_is_named_by_its_address(server: RedisServer) -> None:
    with closing(create_store(server.url, "example")) as made, closing(open_store(server.url)) as again:
        assert isinstance(again, RedisStore)
        assert (again.app, again.generation, again.shards) == (made.app, made.generation, 16)
        assert (again.lossy, again.trouble(), again.integrity()) == ("", {}, [])


def test_an_empty_redis_is_no_store(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="holds no store; `dither init` makes one, `dither restore` one of a backup"):
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
        RedisStore.create(server.url, "example", shards=4)
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
    made = RedisStore.create(server.url, "example", shards=4, unfinished=True)
    made._run(scripts.FINISH, 2, layout.token(made.generation))
    with closing(RedisStore(server.url, unfinished=True)) as again:
        again.finish()
        again.finish()
    with closing(made), closing(RedisStore(server.url)) as opened:
        assert [shard.shard for shard in opened.status()] == [0, 1, 2, 3]


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_a_number_of_shards_that_makes_no_sense_is_refused(server: RedisServer, shards: int) -> None:
    with pytest.raises(StoreError, match=f"1 to 1024 shards, got {shards}"):
        RedisStore.create(server.url, "example", shards=shards)


def test_another_version_is_refused(server: RedisServer) -> None:
    RedisStore.create(server.url, "example").close()
    with closing(server.client()) as client:
        client.hset(layout.GLOBAL, "version", "9")
    with pytest.raises(StoreError, match=f"version 9; this dither reads {layout.VERSION}"):
        RedisStore(server.url)


# Addresses, and the passwords in them.


def test_a_password_is_in_no_message(tmp_path: Path, asked: Registry) -> None:
    with running_redis(tmp_path / "redis", requirepass="swordfish") as server:
        address = f"redis://:swordfish@127.0.0.1:{server.port}/0"
        wrong = address.replace("swordfish", "swordfishy")
        with closing(RedisStore.create(address, "example", shards=2)) as store:
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
        *(("appendonly", "no"), ("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")),
        *(("aof-load-truncated", "yes"), ("maxmemory-policy", "allkeys-lru")),
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
                assert re.search(words, store.trouble()[Trouble.SETTINGS])
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


def test_several_settings_are_named_apart(server: RedisServer, asked: Registry) -> None:
    wrong = {"appendfsync": "everysec", "aof-load-truncated": "yes"}
    with closing(server.client()) as client, closing(store_on(server, asked)) as store:
        sound = {name: client.config_get(name)[name] for name in wrong}
        try:
            for name, value in wrong.items():
                client.config_set(name, value)
            said = store.trouble()[Trouble.SETTINGS]
        finally:
            for name, value in sound.items():
                client.config_set(name, value)
    assert "It must have appendfsync always, aof-load-truncated no: " in said
    assert "redis-cli CONFIG SET appendfsync always aof-load-truncated no, then" in said


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
        assert "is a replica" in store.trouble()[Trouble.STORE]
        with pytest.raises(StoreUnavailable):
            append(store, body_of(asked, {"dark": [1]}))
        with pytest.raises(StoreError, match="is a replica"):
            RedisStore(own.url, allow_lossy_store=True)


def test_an_old_redis_is_refused(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "information", lambda self: [{"redis_version": "6.2.14", "role": "master"}])
    with pytest.raises(StoreError, match=r"is Redis 6\.2\.14; dither needs 7 or later"):
        RedisStore.create(server.url, "example")


# Another store in its place.


def release_of(asked: Registry) -> Release:
    """Return what is charged for a week of the flag."""
    metric = asked.metrics["dark"]
    return Release(metric.name, metric.question, metric.plan, "week", date(2026, 11, 2), 1_000_000, 1, 1)


USES: dict[str, Callable[[Store, Registry], object]] = {
    "refresh": lambda store, asked: store.refresh(),
    "load": lambda store, asked: store.load(asked),
    "retire": lambda store, asked: store.retire("dark", 1),
    "set_clock_offset": lambda store, asked: store.set_clock_offset(0),
    "today": lambda store, asked: store.today(),
    "sealed": lambda store, asked: store.sealed(),
    "last_status": lambda store, asked: store.last_status(),
    "append": lambda store, asked: append(store, body_of(asked, {"dark": [1]})),
    "fold": lambda store, asked: store.fold(0),
    "fold_all": lambda store, asked: store.fold_all(0),
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
    "cut_batches": lambda store, asked: store.cut_batches(),
    "batches": lambda store, asked: store.batches(),
    "batch_keys": lambda store, asked: store.batch_keys(),
    "shown": lambda store, asked: store.shown(),
    "shown_batch": lambda store, asked: store.shown_batch((1, store.clock_day())),
    "retention": lambda store, asked: store.retention(),
    "put": lambda store, asked: store.put(DayMark(store.clock_day(), "version 158")),
    "remove": lambda store, asked: store.remove(DayMark(store.clock_day(), "version 158")),
    "refused": lambda store, asked: store.refused(store.clock_day(), store.clock_day()),
    "tallies_from": lambda store, asked: store.tallies_from(),
    "sort_ids": lambda store, asked: store.sort_ids(0),
    "ids": lambda store, asked: store.ids(),
    "forget": lambda store, asked: store.forget(0),
    "forget_snapshots": lambda store, asked: store.forget_snapshots(),
    "forget_told_after": lambda store, asked: store.forget_told_after(store.clock_day()),
    "tally": lambda store, asked: store.tally(asked.metrics["dark"].plan, store.clock_day()),
    "tallies": lambda store, asked: store.tallies(asked.metrics["dark"].plan, [store.clock_day()]),
    "segments": lambda store, asked: store.segments(0, 1, store.clock_day()),
    "epochs": lambda store, asked: store.epochs(asked.metrics["dark"].plan),
    "all_epochs": lambda store, asked: store.all_epochs(),
    "ledger": lambda store, asked: store.ledger(),
    "counted": lambda store, asked: store.counted(),
    "named": lambda store, asked: store.named(store.counted()),
    "status": lambda store, asked: store.status(),
    "trouble": lambda store, asked: store.trouble(),
    "integrity": lambda store, asked: store.integrity(),
    "quarantined": lambda store, asked: store.quarantined(),
    "log_entries": lambda store, asked: list(store.log_entries(0)),
    "set_apart": lambda store, asked: store.set_apart(0, LogEntry(1, b""), {}, []),
    "replay": lambda store, asked: store.replay("0-1"),
    "drop": lambda store, asked: store.drop("0-1"),
    "create_key": lambda store, asked: store.create_key("write"),
    "register_key": lambda store, asked: store.register_key("write", STRONG),
    "revoke_key": lambda store, asked: store.revoke_key("0" * 8),
    "kept_reading": lambda store, asked: store.kept_reading("0" * 40),
    "keep_readings": lambda store, asked: store.keep_readings([KeptReading("0" * 40, store.today(), False, b"")]),
    "open_readings": lambda store, asked: store.open_readings(),
    "note": lambda store, asked: store.note("command line", "mark add", "version 158"),
    "journal": lambda store, asked: store.journal(),
    "charge_release": lambda store, asked: store.charge_release(release_of(asked), 1_000_000),
    "draw_release": lambda store, asked: store.draw_release(replace(release_of(asked), counts=(3, 4))),
    "take_over_release": lambda store, asked: store.take_over_release(release_of(asked)),
    "release_of": lambda store, asked: store.release_of(release_of(asked).document_id),
    "backed_up": lambda store, asked: store.backed_up(1_000),
    "backup_age_s": lambda store, asked: store.backup_age_s(),
    "documents": lambda store, asked: store.documents(DayMark),
    "told": lambda store, asked: store.told("0" * 32, store.clock_day(), store.clock_day()),
    "claim": lambda store, asked: store.claim(ToldMoves("1" * 32, store.clock_day(), store.clock_day(), {})),
    "tell": lambda store, asked: store.tell(ToldMoves("0" * 32, store.clock_day(), store.clock_day(), {})),
    "dump": lambda store, asked: list(store.dump()),
    "wrong_clock": lambda store, asked: store.wrong_clock(store.status()),
    "begun_reset": lambda store, asked: store.begun_reset(),
    "begin_reset": lambda store, asked: store.begin_reset("what it does"),
    "reset_day": lambda store, asked: store.reset_day(
        DayReset(store.clock_day(), store.clock_day(), store.clock_day(), store.clock_day())
    ),
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
    untouched = {"plans", "stored", "loading", "plan_by_id", "find_plan", "clock_day", "digest", "shard_of", "close"}
    # Clocks, what is left, which is of no store, and a secret that was read when it was opened.
    untouched |= {"ahead_s", "over_for_s", "left", "signing_secret", "receiver", "measuring_people"}
    filling = {name for name in dir(Store) if name.startswith("fill_")} | {"finish"}
    through_others = {"replace_segments", "all_segments", "shard_ledger", "backlog", "use_keys", "bound_key_days"}
    methods = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}
    assert methods == USES.keys() | untouched | filling | through_others


def test_tallies_of_many_days_are_read_in_one_round_trip(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store:
        days = [store.clock_day() - timedelta(days=back) for back in range(64)]
        with patch.object(store._client, "run_each", wraps=store._client.run_each) as trips:
            assert len(store.tallies(asked.metrics["dark"].plan, days)) == len(days)
        assert trips.call_count == 1


def test_a_store_that_is_there_in_part_is_refused(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        client.delete(layout.shard_key(2))
        for use in (store.status, store.ledger, lambda: RedisStore(server.url)):
            with pytest.raises(StoreError, match="is not the store that was opened"):
                use()
        with pytest.raises(StoreError, match="is not the store that was opened"):
            append(store, body_in(store, 2, asked, {"dark": [1]}))


def test_an_api_process_that_starts_again_takes_up_no_other_store(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store:
        with ExitStack() as opened, pytest.raises(StoreError, match="another store was put in the place"):
            ServedStore(server.url, None, "other", False, (), reachable=False).open(opened)
        with ExitStack() as opened:
            assert callable(
                ServedStore(server.url, None, store.generation, False, (), reachable=False).open(opened).app
            )


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
    other.put(Retention(tallies_days=1))
    for shard in range(store.shards):
        other.forget(shard)
    with pytest.raises(StoreUnavailable, match="given up while they were read"):
        list(records)


def test_buckets_of_ids_that_no_day_has_are_looked_for_at_once_and_seen(place: RedisPlace, asked: Registry) -> None:
    """A look at each bucket of each day took fsck most of its time."""
    with closing(place.make(asked)) as store:
        append(store, body_of(asked, {"dark": [1]}))
        place.redis.config_resetstat()
        assert store.integrity() == []
        looks = place.redis.info("commandstats")["cmdstat_hkeys"]["calls"]
        assert looks < 2 * (layout.BUCKETS_MIN + store.shards)
        day = day_number(store.today())
        place.redis.hset(layout.shard_key(0, "seen", day - 3, layout.BUCKETS_MIN - 1), "an id", "a digest")
        place.redis.config_resetstat()
        (told,) = store.integrity()
        assert "the ids of" in told
        assert place.redis.info("commandstats")["cmdstat_hkeys"]["calls"] < 2 * looks  # two looks, not one a finding


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


def test_ids_that_count_as_in_order_before_their_day_is_sealed_are_told(place: RedisPlace, asked: Registry) -> None:
    store = place.make(asked)
    append(store, body_of(asked, {"dark": [1]}))
    fold_all(store)
    place.travel(1)
    seal_all(store)
    for shard in range(store.shards):
        store.sort_ids(shard)
    assert list(check(store)) == []
    (of_shard,) = (key for key in place.redis.keys("dither:{?}") if place.redis.hexists(key, "in_order"))
    place.redis.hincrby(of_shard, "in_order", 1)
    assert ["would never be put in order" in fault for fault in check(store)] == [True]
