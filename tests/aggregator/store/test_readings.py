"""Kept readings: what both stores do with them, and that none outlives its reports."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from unittest.mock import patch

import pytest

from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.dump import FinalRecord
from dither_aggregator.store.records import KeptReading
from dither_shared.registry import Registry
from tests.support.stores import Place, append, body_of, fold_all, seal_all


def entry(key: str, first: date, content: bytes = b"what was read", *, open_: bool = False) -> KeptReading:
    return KeptReading(key, first, open_, content)


@contextmanager
def room_for(kind: str, size: int) -> Iterator[None]:
    module = "sqlite" if kind == "sqlite" else "redis"
    with patch(f"dither_aggregator.store.{module}.{module}_store.READINGS_BYTES_MAX", size):
        yield


def test_a_reading_is_kept_until_another_takes_its_place(place: Place, store: Store) -> None:
    assert store.kept_reading("one") is None
    assert store.open_readings() == []
    begun, made = entry("one", place.day(), b"begun", open_=True), entry("one", place.day())
    store.keep_readings([begun, entry("two", place.day())])
    assert (store.kept_reading("one"), store.open_readings()) == (begun, [begun])
    store.keep_readings([begun, made])
    assert (store.kept_reading("one"), store.open_readings()) == (made, [])
    assert place.open().kept_reading("two") == entry("two", place.day())


def test_the_readings_that_were_made_first_go_first(place: Place, store: Store, kind: str) -> None:
    with room_for(kind, 1_000):
        for number in range(20):
            store.keep_readings([entry(f"{number}", place.day(-number), bytes(100))])
            store.keep_readings([entry("0", place.day(), bytes(100))])  # made anew each time
    kept = [number for number in range(20) if store.kept_reading(f"{number}")]
    assert kept[0] == 0
    assert kept[1:] == list(range(20 - len(kept) + 1, 20))
    assert 8 <= len(kept) <= 10


@pytest.mark.parametrize("entries", [3, 1])
def test_one_that_is_larger_than_all_room_leaves_no_damage(store: Store, place: Place, kind: str, entries: int) -> None:
    with room_for(kind, 150):
        store.keep_readings([entry(f"{number}", place.day(), bytes(100 * entries)) for number in range(entries)])
        store.keep_readings([entry("last", place.day(), bytes(50))])
    assert store.kept_reading("last")


def test_no_reading_outlives_its_reports(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    fold_all(store)
    first = store.today()
    place.travel(1)
    seal_all(store)
    maintenance.maintain(store, 0)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    for metric in maintenance.unfinalized(store):
        maintenance.finalize(store, metric)
    store.keep_readings([entry("of the day", first), entry("of a later one", first + timedelta(days=9))])
    store.put(Retention(5, None))
    place.travel(5)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    assert store.tallies_from() > first
    assert store.kept_reading("of the day") is None
    assert store.kept_reading("of a later one")
    store.keep_readings([entry("of the day", first), entry("a late one", first, open_=True)])
    assert store.kept_reading("of the day") is None
    assert store.open_readings() == []


def test_readings_are_in_no_backup(place: Place, store: Store) -> None:
    store.keep_readings([entry("one", place.day(), b"what was read of all")])
    assert b"what was read of all" not in b"".join(repr(record).encode() for record in store.dump())
    assert not any(isinstance(record, FinalRecord) for record in store.dump())
