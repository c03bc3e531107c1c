"""Both stores fold each report once: a counter that is late, doubled or overtaken changes nothing."""

import random
import threading
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from dither_aggregator import counting as fold_module
from dither_aggregator.counting import BadTally, Counts
from dither_aggregator.store import Store, StoreError, contract
from dither_aggregator.store.records import LogRead, Poison, Segment, fold_read, pack_counts, sum_segments
from dither_aggregator.store.redis import redis_store as redis_data
from dither_aggregator.store.sqlite import sqlite_store as sqlite_data
from dither_shared.registry import Registry
from tests.support.registries import registry
from tests.support.soaking import scaled, thinned
from tests.support.stores import Place, append, balance, body_in, body_of, fold_all, parsed

Result = TypeVar("Result")


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_data, redis_data):
        monkeypatch.setattr(module, "READ_UPLOADS_MAX", 2)


def fill(store: Store, asked: Registry, uploads: int, seed: int = 1, shard: int | None = None) -> Counts:
    """Append uploads of three colours each; return how often each colour was among them."""
    rng = random.Random(seed)
    expected = np.zeros(4, dtype=np.int64)
    for _ in range(uploads):
        reports = [rng.randrange(4) for _ in range(3)]
        asks = {"color": reports}
        append(store, body_of(asked, asks) if shard is None else body_in(store, shard, asked, asks))
        np.add.at(expected, reports, 1)
    return expected


def count(store: Store, read: LogRead) -> tuple[list[Segment], list[Poison]]:
    return fold_read(read, {item.id: item.plan.cells for item in store.plans()})


def colors(place: Place, store: Store, asked: Registry) -> list[int]:
    n, *counts = map(int, store.tally(asked.metrics["color"].plan, place.day()).counts)
    assert n == sum(counts)
    return counts


def test_a_fold_says_whether_there_was_anything(store: Store, asked: Registry) -> None:
    assert not store.fold(0)
    fill(store, asked, 1, shard=0)
    assert store.fold(0)
    assert not store.fold(0)


@pytest.mark.usefixtures("small_reads")
def test_folds_of_any_size_and_compaction_keep_the_sums(
    place: Place, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "COMPACT_SEGMENTS", 3)
    plan = store.stored(asked.metrics["color"].plan).id
    expected = np.zeros(4, dtype=np.int64)
    for step in range(6):
        expected += fill(store, asked, 14, seed=step)
        fold_all(store)
        assert colors(place, store, asked) == expected.tolist()
        for shard in range(store.shards):
            crowded = store.crowded(shard, 3)
            assert crowded == ([(plan, place.day())] if len(store.segments(shard, plan, place.day())) >= 3 else [])
            assert store.compact(shard) == len(crowded)
            assert store.crowded(shard, 3) == []
        assert colors(place, store, asked) == expected.tolist()
        assert store.tally(asked.metrics["color"].plan, place.day()).n == expected.sum()
    assert balance(store) == (252, 252, 0, 0)


@pytest.mark.usefixtures("small_reads")
def test_segments_are_contiguous(place: Place, store: Store, asked: Registry) -> None:
    fill(store, asked, 7, shard=0)
    fold_all(store)
    plan = store.stored(asked.metrics["color"].plan).id
    segments = store.segments(0, plan, place.day())
    assert [(one.low, one.high, one.n) for one in segments] == [(0, 2, 6), (2, 4, 6), (4, 6, 6), (6, 7, 3)]


def test_a_read_is_bounded_in_bytes(store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sqlite_data, "READ_BYTES_MAX"), (redis_data, "READ_REDIS_BYTES_MAX")):
        monkeypatch.setattr(module, name, 1_000)
    for _ in range(5):
        append(store, body_in(store, 0, asked, {"color": [1] * 600}))
    for high in (2, 4, 5):
        read = store.read_log(0)
        assert (read.high, [group.n for group in read.groups]) == (high, [600] * (high - read.low))
        store.fold(0)
    assert balance(store) == (3000, 3000, 0, 0)


def test_a_log_has_the_groups_as_they_came(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_in(store, 0, asked, {"color": [0, 3], "dark": [1]}))
    append(store, body_in(store, 0, asked, {"dark": [0]}))
    ids = {name: store.stored(asked.metrics[name].plan).id for name in ("color", "dark")}
    read = store.read_log(0)
    assert (read.low, read.high) == (0, 2)
    assert [tuple(group) for group in read.groups] == [
        (ids["color"], 0, place.day(), 2, b"\x00\x03"),
        (ids["dark"], 0, place.day(), 1, b"\x01"),
        (ids["dark"], 0, place.day(), 1, b"\x00"),
    ]


def test_a_counter_that_was_overtaken_changes_nothing(place: Place, store: Store, asked: Registry) -> None:
    """Another counter commits between this one's read and its commit."""
    expected = fill(store, asked, 4, shard=0)
    read = store.read_log(0)
    assert place.open().fold(0)
    assert not store.commit_fold(0, read, *count(store, read))
    assert colors(place, store, asked) == expected.tolist()
    assert balance(store) == (12, 12, 0, 0)


def test_a_zombie_changes_nothing_however_long_it_slept(place: Place, store: Store, asked: Registry) -> None:
    expected = fill(store, asked, 4, shard=0)
    asleep = store.read_log(0)
    counted = count(store, asleep)
    fold_all(store)
    expected += fill(store, asked, 9, shard=0)
    assert not store.commit_fold(0, asleep, *counted)
    fold_all(store)
    assert not store.commit_fold(0, asleep, *counted)
    assert not store.commit_fold(0, asleep._replace(high=asleep.high + 1), *counted)
    assert colors(place, store, asked) == expected.tolist()
    assert balance(store) == (39, 39, 0, 0)


@pytest.mark.usefixtures("small_reads")
def test_a_zombie_changes_nothing_among_uploads_of_one_batch(place: Place, store: Store, asked: Registry) -> None:
    store.append([parsed(store, body_in(store, 0, asked, {"dark": [1]})) for _ in range(8)])
    asleep = store.read_log(0)
    assert store.fold(0)
    assert not store.commit_fold(0, asleep, *count(store, asleep))
    fold_all(store)
    assert store.tally(asked.metrics["dark"].plan, place.day()).n == 8
    assert balance(store) == (8, 8, 0, 0)


def test_what_arrives_between_read_and_commit_stays_in_the_log(place: Place, store: Store, asked: Registry) -> None:
    expected = fill(store, asked, 3, shard=0)
    read = store.read_log(0)
    expected += fill(store, asked, 5, seed=2, shard=0)
    assert store.commit_fold(0, read, *count(store, read))
    assert balance(store) == (24, 9, 15, 0)
    assert (store.status()[0].cursor, store.status()[0].backlog) == (3, 5)
    fold_all(store)
    assert colors(place, store, asked) == expected.tolist()


def test_a_commit_of_nothing_moves_nothing(store: Store, asked: Registry) -> None:
    fill(store, asked, 2, shard=0)
    fold_all(store)
    assert store.commit_fold(0, store.read_log(0), [], [])
    assert (store.status()[0].cursor, balance(store)) == (2, (6, 6, 0, 0))


# Reports that cannot be counted.


@pytest.mark.usefixtures("small_reads")
def test_many_counters_at_once_count_once(place: Place, store: Store, asked: Registry) -> None:
    expected = fill(store, asked, 40)
    failed: list[BaseException] = []

    def work(mine: Store) -> None:
        try:
            while mine.backlog():
                for shard in range(mine.shards):
                    mine.fold(shard)
                    mine.compact(shard)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in (store, store, store, place.open(), place.open())]
    expected += fill(store, asked, 5)
    for thread in threads:
        thread.start()
    expected += fill(store, asked, 30, seed=2)
    for thread in threads:
        thread.join()
    assert not failed
    fold_all(store)
    assert colors(place, store, asked) == expected.tolist()
    assert balance(store) == (225, 225, 0, 0)


@pytest.mark.usefixtures("small_reads")
def test_compaction_does_not_lose_a_segment_that_comes_meanwhile(place: Place, store: Store, asked: Registry) -> None:
    expected = fill(store, asked, 6, shard=0)
    fold_all(store)
    plan = store.stored(asked.metrics["color"].plan).id
    old = store.segments(0, plan, place.day())
    expected += fill(store, asked, 3, seed=2, shard=0)
    fold_all(store)
    assert store.replace_segments(0, old, sum_segments(old))
    segments = store.segments(0, plan, place.day())
    assert [(one.low, one.high, one.n) for one in segments] == [(0, 6, 18), (6, 8, 6), (8, 9, 3)]
    assert colors(place, store, asked) == expected.tolist()


@pytest.mark.usefixtures("small_reads")
def test_a_compaction_that_was_overtaken_changes_nothing(place: Place, store: Store, asked: Registry) -> None:
    expected = fill(store, asked, 6, shard=0)
    fold_all(store)
    plan = store.stored(asked.metrics["color"].plan).id
    old = store.segments(0, plan, place.day())
    assert store.replace_segments(0, old[:2], sum_segments(old[:2]))
    assert not store.replace_segments(0, old, sum_segments(old))
    assert not store.replace_segments(0, old[:2], sum_segments(old[:2]))
    assert len(store.segments(0, plan, place.day())) == 2
    assert colors(place, store, asked) == expected.tolist()


def spoil(place: Place, reports: bytes, instead: bytes) -> None:
    """Change the end of the entries that end with these reports."""
    assert len(reports) == len(instead)

    def change(entry: bytes) -> bytes:
        return entry.removesuffix(reports) + instead if entry.endswith(reports) else entry

    place.change_log(change)


@pytest.mark.parametrize("uploads", thinned([1, 2, 7, 12], 0, 2))
def test_reports_that_cannot_be_counted_are_quarantined_and_their_neighbours_folded(
    place: Place, store: Store, asked: Registry, uploads: int
) -> None:
    expected = fill(store, asked, uploads, shard=0)
    append(store, body_in(store, 0, asked, {"color": [1, 2, 3, 3, 2]}))
    expected += fill(store, asked, uploads, seed=2, shard=0)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    spoil(place, b"\x01\x02\x03\x03\x02", b"\x01\x02\xff\x03\x02")
    fold_all(store)
    assert colors(place, store, asked) == expected.tolist()
    assert store.tally(asked.metrics["dark"].plan, place.day()).n == 1
    (held,) = store.quarantined()
    assert (held.id, held.n, held.epoch) == ("0-1", 5, place.day())
    assert (held.plan, held.reports) == (store.stored(asked.metrics["color"].plan).id, b"\x01\x02\xff\x03\x02")
    assert "beyond the mechanism's 4 symbols" in held.reason
    assert balance(store) == (6 * uploads + 6, 6 * uploads + 1, 0, 5)
    assert (store.status()[0].backlog, store.fold(0)) == (0, False)


def test_what_fails_once_is_tried_again(
    place: Place, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fill(store, asked, 1, shard=0)
    fold = fold_module.fold
    failures = [ArithmeticError("once")]

    def flaky(*arguments: object) -> Counts:
        if failures:
            raise failures.pop()
        return fold(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fold_module, "fold", flaky)
    fold_all(store)
    assert store.quarantined() == []
    assert colors(place, store, asked) == expected.tolist()


def test_a_want_of_memory_quarantines_nothing(store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, asked, 3, shard=0)

    def starved(*arguments: object) -> Counts:
        raise MemoryError

    monkeypatch.setattr(fold_module, "fold", starved)
    with pytest.raises(MemoryError):
        store.fold(0)
    monkeypatch.undo()
    assert balance(store) == (9, 0, 9, 0)
    fold_all(store)
    assert balance(store) == (9, 9, 0, 0)


# Damage.


def test_a_damaged_log_is_not_folded(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.change_log(lambda entry: entry[:-1])
    for read in (store.fold, store.read_log):
        with pytest.raises(StoreError, match=r"damaged: it is cut off.* `dither quarantine aside` sets it apart"):
            read(0)
    (row,) = store.ledger()
    assert (row.accepted, row.pending, row.balanced) == (1, 0, False)


def test_a_log_of_a_plan_that_nobody_knows_is_not_folded(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.change_log(lambda entry: entry[:4] + b"\x63" + entry[5:])
    with pytest.raises(StoreError, match="plan 99, which this process does not know"):
        store.fold(0)


def test_a_counter_learns_a_plan_that_another_process_loaded(place: Place, store: Store, asked: Registry) -> None:
    other = place.open()
    store.load(asked_again := _next(asked))
    append(store, body_in(store, 0, asked_again, {"dark": [1]}))
    assert other.fold(0)
    assert other.tally(asked_again.metrics["dark"].plan, place.day()).n == 1


def _next(asked: Registry) -> Registry:
    return registry(rev=2, values=("cyan",), expires=asked.metrics["dark"].expires)


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x00\x01\x05\x00\x00\x00not zlib", b"\x01\x01\xff\xff\xff\xff"])
def test_a_damaged_tally_is_not_read_as_numbers(place: Place, store: Store, asked: Registry, damage: bytes) -> None:
    fill(store, asked, 3, shard=0)
    fold_all(store)
    place.change_counts(lambda counts: damage)
    with pytest.raises(BadTally, match=r"a stored tally (cannot be read|has 4294967295 counts in place of 5)"):
        colors(place, store, asked)
    with pytest.raises(BadTally, match=r"a stored tally (cannot be read|has 4294967295 counts in place of 5)"):
        list(store.dump())
    assert balance(store) == (9, 9, 0, 0)


def test_a_ledger_that_does_not_balance_shows_it(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.lose_log()
    (row,) = store.ledger()
    assert (row.accepted, row.pending, row.balanced) == (1, 0, False)


def test_tallies_of_several_days_are_those_of_each(place: Place, store: Store, asked: Registry) -> None:
    """A day without reports is among them, and one whose segments are several."""
    plan, expected = asked.metrics["color"].plan, []
    for uploads in (3, 0, 5, 2):
        expected.append([3 * uploads, *fill(store, asked, uploads, uploads + 1)])
        fold_all(store)
        place.travel(1)
    days = [place.day(after) for after in range(5)]
    found = store.tallies(plan, days[::-1])
    assert list(found) == days[::-1]
    assert [found[day].counts.tolist() for day in days] == [*expected, [0] * 5]
    assert [found[day].n for day in days] == [each[0] for each in (*expected, [0])]
    assert [found[day].digest for day in days] == [store.tally(plan, day).digest for day in days]
    assert store.tallies(plan, []) == {}


def test_many_segments_of_a_large_space_are_added_up_in_the_room_of_one(place: Place) -> None:
    """Two million counts a segment, of which a fold of few reports leaves few: read, compacted and dumped."""
    words = registry(kind="words", values=())
    store = place.make(words)
    plan = words.metrics["color"].plan
    size, id_, rng = plan.cells.tally_size, store.stored(plan).id, np.random.default_rng(1)
    expected = np.zeros(size, dtype=np.int64)
    segments = []
    for low in range(scaled(contract.COMPACT_SEGMENTS, 40)):
        counts = np.bincount(rng.integers(size, size=9), minlength=size)
        segments.append(Segment(id_, place.day(), low, low + 1, 9, pack_counts(counts)))
        expected += counts
    store.fill_segments(0, segments)
    (added, peak), (_, peak_of_all) = _peak(lambda: store.tally(plan, place.day())), _peak(lambda: store.compact(0))
    assert len(store.segments(0, id_, place.day())) == 1
    assert np.array_equal(added.counts, expected)
    assert np.array_equal(store.tally(plan, place.day()).counts, expected)
    assert max(peak, peak_of_all) < 2 * expected.nbytes


def _peak(step: Callable[[], Result]) -> tuple[Result, int]:
    """Return what a step does, and the most bytes that it takes at a time."""
    tracemalloc.start()
    try:
        return step(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
