"""Both stores close a day once: nothing enters it afterwards, and what is final stays."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dither_aggregator.store import Store, at_one_moment
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.records import Final
from dither_shared.registry import Registry
from tests.support.stores import Place, append, balance, body_in, fold_all, seal_all


def test_a_late_entry_holds_only_its_own_day_and_later_ones(place: Place, store: Store, asked: Registry) -> None:
    place.travel(2)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.travel(2)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    assert store.seal(0) == place.day(1)


def test_nothing_enters_a_sealed_day(place: Place, store: Store, asked: Registry) -> None:
    """The clock is set back after the day was sealed: what comes counts on the day after it."""
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    place.travel(1)
    assert store.seal(0) == place.day()
    place.travel(-1)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    append(place.open(), body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    plan = asked.metrics["dark"].plan
    assert [store.tally(plan, place.day(day)).n for day in (0, 1)] == [1, 2]
    assert store.seal(0) == place.day()


def test_an_empty_store_closes_its_days_too(place: Place, store: Store) -> None:
    place.travel(5)
    seal_all(store)
    assert store.sealed() == place.day(4)
    assert store.today() == place.day(5)


def test_all_that_is_read_at_one_moment_is_of_the_same_days(place: Place, store: Store) -> None:
    """A day that closes in between is seen by the next request, and by every other thread."""
    with at_one_moment():
        before = store.sealed(), store.merged(), store.backlog()
        place.travel(5)
        seal_all(store)
        assert (store.sealed(), store.merged(), store.backlog()) == before
        with ThreadPoolExecutor(1) as other:
            assert other.submit(store.sealed).result() == place.day(4)
        assert place.open().sealed() == place.day(4)
    assert store.sealed() == place.day(4)


def test_the_days_and_final_days_of_all_plans_are_those_of_each(place: Place, store: Store, asked: Registry) -> None:
    assert (store.all_epochs(), store.all_finals()) == ({}, set())
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.travel(1)
    append(store, body_in(store, 0, asked, {"dark": [1], "color": [1]}))
    store.finalize(asked.metrics["dark"].plan, place.day(), Final("digest", "a" * 64), b"")
    store.finalize(asked.metrics["color"].plan, place.day(1), Final("digest", "b" * 64), b"")
    for stored in store.plans():
        assert store.all_epochs()[stored.id] == store.epochs(stored.plan)
    assert store.all_finals() == {(item.id, day) for item in store.plans() for day in store.finals(item.plan)}
    assert len(store.all_finals()) == 2


def test_an_epoch_is_final_when_every_shard_has_sealed_it(place: Place, store: Store) -> None:
    before = store.sealed()
    place.travel(1)
    for shard in range(store.shards):
        assert store.sealed() == before
        store.seal(shard)
    assert store.sealed() == place.day()


def test_a_final_digest_is_recorded_once(place: Place, store: Store, asked: Registry) -> None:
    color, dark = asked.metrics["color"].plan, asked.metrics["dark"].plan
    first, second = Final("digest", "a" * 64), Final("other", "b" * 64)
    assert store.finals(color) == {}
    assert store.finalize(color, place.day(), first, b"first") == first
    assert place.open().finalize(color, place.day(), second, b"second") == first
    assert store.finalize(color, place.day(), first, b"first") == first
    assert store.finalize(color, place.day(-1), second, b"second") == second
    assert store.finals(color) == {place.day(): first, place.day(-1): second}
    assert store.finals(dark) == {}
    assert (store.snapshot("a" * 64), store.snapshot("b" * 64)) == (b"first", b"second")
    assert store.snapshot("c" * 64) is None


def test_days_between_two_are_given_and_no_others(place: Place, store: Store, asked: Registry) -> None:
    color = asked.metrics["color"].plan
    for _ in range(4):
        append(store, body_in(store, 0, asked, {"color": [1]}))
        place.travel(1)
    days = [place.day(number) for number in range(4)]
    kept = {day: store.finalize(color, day, Final("digest", f"snapshot-{day}"), b"content") for day in days}
    for first, last in ((0, 3), (1, 2), (2, 2), (3, 1)):
        between = days[first : last + 1]
        assert store.epochs(color, days[first], days[last]) == between[::-1]
        assert store.finals(color, days[first], days[last]) == {day: kept[day] for day in between}


def test_a_refused_final_leaves_no_snapshot(place: Place, store: Store, asked: Registry) -> None:
    plan = asked.metrics["color"].plan
    store.finalize(plan, place.day(), Final("digest", "a" * 64), b"first")
    store.finalize(plan, place.day(), Final("other", "b" * 64), b"second")
    assert store.snapshot("b" * 64) is None


# Retention.


def test_everything_is_kept_unless_told_otherwise(place: Place, store: Store) -> None:
    assert store.retention() == Retention(None, None)
    store.put(Retention(tallies_days=30))
    assert place.open().retention() == Retention(30, None)
    store.put(Retention(snapshots_days=0))
    assert place.open().retention() == Retention(None, 0)


def test_tallies_go_when_their_time_is_over_and_they_are_final(place: Place, store: Store, asked: Registry) -> None:
    color, dark = asked.metrics["color"].plan, asked.metrics["dark"].plan
    for _ in range(3):
        for shard in range(store.shards):
            append(store, body_in(store, shard, asked, {"color": [1], "dark": [1]}))
        fold_all(store)
        place.travel(1)
    for epoch in (place.day(0), place.day(1)):
        store.finalize(color, epoch, Final("digest", f"color {epoch}".replace(" ", "-")), b"content")
    _forget_all(store)
    assert store.tallies_from() < place.day(-300)
    assert store.tally(color, place.day()).n == store.shards
    store.put(Retention(tallies_days=2))
    _forget_all(store)
    assert store.tallies_from() == place.day(1)
    assert [store.tally(color, place.day(day)).n for day in range(3)] == [0, store.shards, store.shards]
    assert [store.tally(dark, place.day(day)).n for day in range(3)] == [store.shards] * 3
    assert len(store.finals(color)) == 2
    assert balance(store) == (6 * store.shards, 6 * store.shards, 0, 0)
    assert store.epochs(color) == [place.day(2), place.day(1), place.day()]


def test_a_longer_retention_does_not_bring_back_what_is_gone(place: Place, store: Store) -> None:
    store.put(Retention(tallies_days=1))
    _forget_all(store)
    store.put(Retention(tallies_days=100))
    _forget_all(store)
    assert store.tallies_from() == place.day(-1)


def test_what_one_shard_gave_up_the_others_give_up(place: Place, store: Store, asked: Registry) -> None:
    plan = asked.metrics["dark"].plan
    for shard in range(store.shards):
        append(store, body_in(store, shard, asked, {"dark": [1]}))
    fold_all(store)
    store.finalize(plan, place.day(), Final("digest", "a" * 64), b"content")
    place.travel(3)
    store.put(Retention(tallies_days=1))
    store.forget(0)
    store.put(Retention(tallies_days=100))
    _forget_all(store)
    assert store.tallies_from() == place.day(2)
    assert store.tally(plan, place.day()).n == 0


def test_tallies_are_given_up_by_the_day_that_was_reached(place: Place, store: Store, asked: Registry) -> None:
    """A clock that is behind gives nothing up too late, and one that is set back nothing too early."""
    store.put(Retention(tallies_days=1))
    place.travel(4)
    _forget_all(store)
    place.travel(-4)
    _forget_all(store)
    assert store.tallies_from() == place.day(3)


def test_snapshots_go_when_their_time_is_over(place: Place, store: Store, asked: Registry) -> None:
    plan = asked.metrics["color"].plan
    for day in range(3):
        store.finalize(plan, place.day(day), Final("digest", f"{day}" * 64), b"content")
    store.forget_snapshots()
    place.travel(3)
    store.put(Retention(snapshots_days=2))
    store.forget_snapshots()
    assert [store.snapshot(f"{day}" * 64) for day in range(3)] == [None, b"content", b"content"]
    assert len(store.finals(plan)) == 3


@pytest.mark.parametrize("days", [1, 2])
def test_no_snapshot_comes_back_for_a_final_day(place: Place, store: Store, asked: Registry, days: int) -> None:
    plan = asked.metrics["color"].plan
    store.finalize(plan, place.day(), Final("digest", "a" * 64), b"content")
    store.put(Retention(snapshots_days=days - 1))
    place.travel(days)
    store.forget_snapshots()
    assert store.finalize(plan, place.day(), Final("digest", "a" * 64), b"content") == Final("digest", "a" * 64)
    assert store.snapshot("a" * 64) is None


def _forget_all(store: Store) -> None:
    for shard in range(store.shards):
        store.forget(shard)
