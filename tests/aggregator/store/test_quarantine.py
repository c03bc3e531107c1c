"""Both stores lose nothing of the quarantine: a group goes back as a whole or is given up."""

import threading

import pytest

from dither_aggregator import counting as fold_module
from dither_aggregator.counting import Counts
from dither_aggregator.store import Store
from dither_aggregator.store.records import Quarantined
from dither_shared.registry import Registry
from dither_shared.shapes import ReportShape
from tests.support.stores import Place, append, balance, body_in, body_of, fold_all, seal_all

POISON = b"\x03\x03\x03"


@pytest.fixture
def poisonous(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Folding fails on these three reports, as it might with a bug that is mended later. Undo it to mend it."""
    fold = fold_module.fold

    def fail(shape: ReportShape, reports: bytes) -> Counts:
        if POISON in reports:
            raise ValueError("poison")
        return fold(shape, reports)

    monkeypatch.setattr(fold_module, "fold", fail)
    return monkeypatch


@pytest.fixture
def held(store: Store, asked: Registry, poisonous: pytest.MonkeyPatch) -> Quarantined:
    """Three poisonous colours in the last shard, one good one in the first, and one dark."""
    append(store, body_in(store, store.shards - 1, asked, {"color": [3, 3, 3], "dark": [1]}))
    append(store, body_in(store, 0, asked, {"color": [1]}))
    fold_all(store)
    (group,) = store.quarantined()
    assert balance(store) == (5, 2, 0, 3)
    return group


def test_a_group_is_kept_with_its_reason(place: Place, store: Store, asked: Registry, held: Quarantined) -> None:
    assert held.id == f"{store.shards - 1}-1"
    assert (held.n, held.reports, held.reason) == (3, POISON, "ValueError: poison")
    assert (held.plan, held.epoch) == (store.stored(asked.metrics["color"].plan).id, place.day())
    assert place.open().quarantined() == [held]


def test_groups_are_listed_oldest_first(store: Store, asked: Registry, poisonous: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        append(store, body_in(store, 0, asked, {"color": [3, 3, 3]}))
        fold_all(store)
    assert [group.id for group in store.quarantined()] == [f"0-{number}" for number in range(1, 13)]


def test_what_is_replayed_is_counted(
    place: Place, store: Store, asked: Registry, held: Quarantined, poisonous: pytest.MonkeyPatch
) -> None:
    poisonous.undo()
    assert store.replay(held.id)
    assert store.quarantined() == []
    assert balance(store) == (5, 2, 3, 0)
    assert not store.replay(held.id)
    fold_all(store)
    assert balance(store) == (5, 5, 0, 0)
    assert store.tally(asked.metrics["color"].plan, place.day()).counts.tolist() == [4, 0, 1, 0, 3]


def test_what_is_replayed_and_still_poison_is_quarantined_again(store: Store, held: Quarantined) -> None:
    assert store.replay(held.id)
    fold_all(store)
    (again,) = store.quarantined()
    assert again.id != held.id
    assert again.reports == held.reports
    assert balance(store) == (5, 2, 0, 3)


def test_an_epoch_that_only_had_what_was_replayed_is_no_epoch_any_more(
    place: Place, store: Store, asked: Registry, poisonous: pytest.MonkeyPatch
) -> None:
    append(store, body_in(store, 0, asked, {"color": [3, 3, 3]}))
    fold_all(store)
    place.travel(1)
    assert store.replay("0-1")
    assert store.epochs(asked.metrics["color"].plan) == [place.day(1)]
    assert [row.epoch for row in store.ledger()] == [place.day(1).isoformat()]


def test_a_replay_holds_the_seal_of_its_new_day(
    place: Place, store: Store, held: Quarantined, poisonous: pytest.MonkeyPatch
) -> None:
    assert store.replay(held.id)
    place.travel(1)
    seal_all(store)
    assert store.sealed() == place.day(-1)


def test_what_is_dropped_stays_counted_as_quarantined(store: Store, held: Quarantined) -> None:
    assert store.drop(held.id)
    assert store.quarantined() == []
    assert balance(store) == (5, 2, 0, 3)
    assert sum(row.dropped for row in store.ledger()) == 3
    assert not store.drop(held.id)
    assert not store.replay(held.id)
    assert sum(row.dropped for row in store.ledger()) == 3


def test_an_id_that_there_is_not_is_not_there(store: Store, held: Quarantined) -> None:
    for id_ in ("", "0", "0-", "-1", "0-99", "99-1", "0-1-1", "a-1", "0-x", "0-²", "0--1", " 0-1"):
        assert not store.replay(id_), id_
        assert not store.drop(id_), id_
    assert len(store.quarantined()) == 1


def test_a_group_is_replayed_or_dropped_once(place: Place, store: Store, held: Quarantined) -> None:
    done: list[bool] = []
    stores = [place.open() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda one=one, way=way: done.append(getattr(one, way)(held.id)))
        for one in stores
        for way in ("replay", "drop")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 7 + [True]
    assert balance(store)[0] == 5


def test_a_copy_of_what_is_quarantined_is_a_copy(store: Store, asked: Registry, poisonous: pytest.MonkeyPatch) -> None:
    body = body_of(asked, {"color": [3, 3, 3]})
    append(store, body)
    fold_all(store)
    assert append(store, body).duplicate
    assert balance(store) == (3, 0, 0, 3)
