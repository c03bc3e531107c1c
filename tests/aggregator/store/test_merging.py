"""Both stores merge a final day to one segment a tally and shard, of one range, and sums stay."""

import threading
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.analysis import closed_days
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store, StoreError, StoreUnavailable, contract
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import Segment, pack_counts, sum_segments
from dither_aggregator.store.restoring import restore
from dither_shared.registry import Registry
from tests.aggregator.store.conftest import place_of
from tests.support.registries import registry_text
from tests.support.soaking import thinned
from tests.support.stores import Place, append, body_in, fold_all, seal_all

METRICS = ("color", "dark", "font")
UPLOADS: list[dict[str, list[int]]] = [
    {"dark": [1]},
    {"color": [1, 2], "dark": [0]},
    {"color": [0]},
    {"font": [3]},
    {"color": [2], "dark": [1, 1]},
    {"dark": [0]},
    {"color": [1]},
    {"dark": [1]},
    {"color": [3]},
]
"""All are of one day: `font` is in one of them."""
WHOLE = (0, len(UPLOADS))


@pytest.fixture
def asked() -> Registry:
    text = registry_text()
    font = text.partition("[metric.color]")[2].partition("[metric.dark]")[0]
    return Registry.parse(f"{text}[metric.font]{font}")


@pytest.fixture
def day(place: Place, store: Store, asked: Registry) -> dict[str, str]:
    """A sealed day: the uploads in the first shard, folded one by one, and one in each other. Its tallies' digests."""
    for reports in UPLOADS:
        append(store, body_in(store, 0, asked, reports))
        store.fold(0)
    for shard in range(1, store.shards):
        append(store, body_in(store, shard, asked, {"color": [1]}))
    fold_all(store)
    digests = {name: store.tally(asked.metrics[name].plan, place.day()).digest for name in METRICS}
    place.travel(1)
    seal_all(store)
    return digests


def ranges(
    place: Place, store: Store, asked: Registry, shard: int = 0, after: int = 0
) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of a day's segments, by metric."""
    ids = {name: store.stored(asked.metrics[name].plan).id for name in METRICS}
    return {
        name: [(one.low, one.high) for one in store.segments(shard, id_, place.day(after))] for name, id_ in ids.items()
    }


def merge_all(store: Store) -> None:
    for shard in range(store.shards):
        store.merge(shard)


def record_all(store: Store) -> None:
    for metric in maintenance.unfinalized(store):
        maintenance.finalize(store, metric)


def assert_merged(place: Place, store: Store, asked: Registry, digests: dict[str, str]) -> None:
    assert ranges(place, store, asked) == {name: [WHOLE] for name in METRICS}
    for shard in range(1, store.shards):
        assert ranges(place, store, asked, shard) == {"color": [(0, 1)], "dark": [], "font": []}
    assert {name: store.tally(asked.metrics[name].plan, place.day()).digest for name in METRICS} == digests
    assert store.merged() == store.sealed() == place.day()
    assert list(check(store)) == []


def test_uploads_of_a_day_can_be_told_apart_until_it_is_merged(
    place: Place, store: Store, asked: Registry, day: dict[str, str]
) -> None:
    before = ranges(place, store, asked)
    assert [len(before[name]) for name in METRICS] == [5, 5, 1]
    assert set(before["color"]) & set(before["dark"]) == {(1, 2), (4, 5)}  # the uploads that have both
    merge_all(store)
    assert_merged(place, store, asked, day)
    record_all(store)
    assert list(check(store)) == []


def test_merging_again_changes_nothing(place: Place, store: Store, asked: Registry, day: dict[str, str]) -> None:
    merge_all(store)
    ids = [store.stored(asked.metrics[name].plan).id for name in METRICS]
    before = [one[:5] + one[6:] for id_ in ids for one in store.segments(0, id_, place.day())]
    merge_all(store)
    assert store.note_merged(0) == []
    assert [one[:5] + one[6:] for id_ in ids for one in store.segments(0, id_, place.day())] == before


def test_what_is_not_sealed_is_not_merged(place: Place, store: Store, asked: Registry, day: dict[str, str]) -> None:
    for reports in UPLOADS[:3]:
        append(store, body_in(store, 0, asked, reports))
        store.fold(0)
    merge_all(store)
    assert_merged(place, store, asked, day)
    assert ranges(place, store, asked, after=1) == {
        "color": [(10, 11), (11, 12)],
        "dark": [(9, 10), (10, 11)],
        "font": [],
    }
    place.travel(1)
    seal_all(store)
    merge_all(store)
    assert ranges(place, store, asked, after=1) == {"color": [(9, 12)], "dark": [(9, 12)], "font": []}


def test_days_that_were_folded_together_are_merged_apart(place: Place, store: Store, asked: Registry) -> None:
    """One read of the log goes over midnight, so the ranges of both days have it."""
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    store.fold(0)
    append(store, body_in(store, 0, asked, {"color": [1]}))
    place.travel(1)
    append(store, body_in(store, 0, asked, {"color": [2]}))
    store.fold(0)
    append(store, body_in(store, 0, asked, {"dark": [0]}))
    store.fold(0)
    place.travel(1)
    seal_all(store)
    merge_all(store)
    assert ranges(place, store, asked) == {"color": [(0, 3)], "dark": [(0, 3)], "font": []}
    assert ranges(place, store, asked, after=1) == {"color": [(1, 4)], "dark": [(1, 4)], "font": []}
    record_all(store)
    assert list(check(store)) == []


def test_any_number_of_processes_may_merge_at_once(
    place: Place, store: Store, asked: Registry, day: dict[str, str]
) -> None:
    failed: list[BaseException] = []

    def work(mine: Store) -> None:
        try:
            merge_all(mine)
        except BaseException as error:
            failed.append(error)

    stores = [store, store, *(place.open() for _ in range(3))]
    threads = [threading.Thread(target=work, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert_merged(place, store, asked, day)


@pytest.mark.parametrize("done", range(3))
def test_another_process_goes_on_where_one_was_cut_off(
    place: Place, store: Store, asked: Registry, day: dict[str, str], monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    class Killed(BaseException):
        pass

    other, replace, left = place.open(), store.replace_segments, iter(range(done))

    def cut_off(*arguments: object) -> bool:
        if next(left, None) is None:
            raise Killed
        return replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "replace_segments", cut_off)
    with pytest.raises(Killed):
        store.merge(0)
    assert other.merged() < place.day()
    merge_all(other)
    assert_merged(place, other, asked, day)


# Several processes.


def test_who_read_before_another_merged_changes_nothing(
    place: Place, store: Store, asked: Registry, day: dict[str, str]
) -> None:
    asleep = place.open()
    unmerged = asleep.note_merged(0)
    assert len(unmerged) == 3
    read = [(one, asleep.segments(0, one.plan, one.epoch)) for one in unmerged]
    merge_all(store)
    for one, segments in read:
        whole = sum_segments(segments)
        assert not asleep.replace_segments(0, segments, whole._replace(low=one.low, high=one.high))
        if len(segments) > 1:
            assert not asleep.replace_segments(0, segments[:2], sum_segments(segments[:2]))
    assert_merged(place, store, asked, day)


def test_segments_that_change_all_the_time_are_left_to_the_next_round(
    place: Place, store: Store, asked: Registry, day: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "replace_segments", lambda *arguments: False)
    with pytest.raises(StoreUnavailable, match="the tallies of shard 0 are being changed all the time"):
        store.merge(0)
    monkeypatch.undo()
    merge_all(store)
    assert_merged(place, store, asked, day)


# Final.


def test_nothing_is_recorded_before_every_shard_has_merged_it(
    place: Place, store: Store, asked: Registry, day: dict[str, str]
) -> None:
    for shard in range(store.shards):
        assert store.sealed() == place.day()
        assert store.merged() < place.day()
        assert maintenance.unfinalized(store) == []
        assert [maintenance.finalize(store, name) for name in METRICS] == [0, 0, 0]
        with pytest.raises(StoreError, match=f"{place.day()} is not merged in every shard, so it is not final"):
            closed_days.take(store, store.stored(asked.metrics["dark"].plan), place.day())
        assert store.all_finals() == set()
        store.merge(shard)
    assert maintenance.unfinalized(store) == list(METRICS)
    assert [maintenance.finalize(store, name) for name in METRICS] == [1, 1, 1]
    assert {name: store.finals(asked.metrics[name].plan)[place.day()].digest for name in METRICS} == day


def test_upkeep_merges(place: Place, store: Store, asked: Registry, day: dict[str, str]) -> None:
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    assert_merged(place, store, asked, day)


@pytest.mark.parametrize("fault", ["two segments", "another range"])
def test_a_final_day_that_is_not_merged_is_found(
    place: Place, store: Store, asked: Registry, day: dict[str, str], fault: str
) -> None:
    merge_all(store)
    record_all(store)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    assert list(check(store)) == []
    plan = store.stored(asked.metrics["font"].plan)
    if fault == "two segments":
        nothing = np.zeros(plan.plan.cells.tally_size, dtype=np.int64)
        store.fill_segments(0, [Segment(plan.id, place.day(), 9, 10, 0, pack_counts(nothing))])
    else:
        place.shorten_ranges(plan.id, place.day())
    assert list(check(store)) == [
        f"shard 0: {place.day()} is final, and its tallies are not one segment each, of one range"
    ]


# Given up and moved.


def test_tallies_that_are_merged_are_given_up(place: Place, store: Store, asked: Registry, day: dict[str, str]) -> None:
    merge_all(store)
    maintenance.finalize(store, "color")
    store.put(Retention(tallies_days=0))
    for shard in range(store.shards):
        store.forget(shard)
    assert ranges(place, store, asked) == {"color": [], "dark": [WHOLE], "font": [WHOLE]}
    place.travel(3)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    record_all(store)
    assert list(check(store)) == []


@pytest.mark.parametrize(
    ("copied", "shards", "merged"), thinned([*product(("sqlite", "redis"), (1, 3), (True, False))], 0, 7)
)
def test_where_shards_come_together_final_days_are_merged_anew(
    place: Place,
    store: Store,
    asked: Registry,
    day: dict[str, str],
    copied: str,
    shards: int,
    merged: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if merged:
        merge_all(store)
        record_all(store)
    append(store, body_in(store, 0, asked, UPLOADS[1]))
    fold_all(store)
    with closing(place_of(copied, tmp_path / "target", request, 1, shards)) as target:
        copy = target.begin()
        restore(copy, store.dump())
        target.travel(1)
        assert copy.merged() == place.day()
        assert {name: copy.tally(asked.metrics[name].plan, place.day()).digest for name in METRICS} == day
        assert list(check(copy)) == []
        record_all(copy)
        assert list(check(copy)) == []
        found = [ranges(place, copy, asked, shard) for shard in range(copy.shards)]
        assert all(len(each) <= 1 for of_shard in found for each in of_shard.values())


def test_a_compaction_of_a_sealed_day_is_merged_too(
    place: Place, store: Store, asked: Registry, day: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "COMPACT_SEGMENTS", 3)
    assert store.compact(0) == 2
    assert ranges(place, store, asked) == {"color": [(1, 9)], "dark": [(0, 8)], "font": [(3, 4)]}
    merge_all(store)
    assert_merged(place, store, asked, day)
