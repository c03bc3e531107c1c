"""Both stores set damaged entries of a log apart: these hold up nothing, and what they held is told."""

from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.store import Store, StoreError
from dither_aggregator.store import invariants as aside_module
from dither_aggregator.store.invariants import check, set_apart
from dither_aggregator.store.records import NO_CELL, fold_read
from dither_aggregator.store.restoring import restore
from dither_shared.registry import Registry
from tests.aggregator.store.conftest import place_of
from tests.support.soaking import thinned
from tests.support.stores import Change, Place, append, balance, body_in, fold_all, seal_all


def cut(entry: bytes) -> bytes:
    return entry[:-1]


def other_plan(entry: bytes) -> bytes:
    return entry[:4] + b"\x63" + entry[5:]


def far_day(entry: bytes) -> bytes:
    return b"\x00\x00\x00\x40" + entry[4:]


def nothing(entry: bytes) -> bytes:
    return b""


DAMAGE = [cut, other_plan, far_day, nothing]


def damage(place: Place, numbers: set[int], change: Change, shard: int = 0) -> list[bytes]:
    """Damage some entries of a shard's log, counted from 0; return what they are then."""
    seen: list[bytes] = []

    def change_one(entry: bytes) -> bytes:
        seen.append(entry)
        return change(entry) if len(seen) - 1 in numbers else entry

    place.change_log(change_one, shard)
    return [change(seen[number]) for number in sorted(numbers)]


def fill(store: Store, asked: Registry, uploads: int) -> None:
    """Append uploads to the first shard: each with a colour and two of dark."""
    for number in range(uploads):
        append(store, body_in(store, 0, asked, {"color": [number % 3], "dark": [1, 0]}))


def rows(store: Store) -> dict[str, tuple[int, int, int, int]]:
    return {row.metric: (row.accepted, row.folded, row.pending, row.quarantined) for row in store.ledger()}


def balance_of_sound(store: Store) -> tuple[int, ...]:
    """Return accepted, folded, pending and quarantined of a ledger that does not balance."""
    return tuple(map(sum, zip(*rows(store).values(), strict=True)))


@pytest.mark.parametrize(("change", "number"), thinned([*product(DAMAGE, (0, 2, 4))], 0, 4, 8, 11))
def test_one_entry_is_set_aside_and_the_others_are_folded(
    place: Place, store: Store, asked: Registry, change: Change, number: int
) -> None:
    fill(store, asked, 5)
    (kept,) = damage(place, {number}, change)
    with pytest.raises(StoreError):
        store.fold(0)
    assert not all(row.balanced for row in store.ledger())
    assert any(f"log {number + 1}" in found and "quarantine aside" in found for found in check(store))
    done = set_apart(store, 0)
    assert done
    assert [each.one.place for each in done.entries] == [number + 1]
    assert sum(done.held.values()) == 3
    fold_all(store)
    assert rows(store) == {"color": (5, 4, 0, 1), "dark": (10, 8, 0, 2)}
    assert list(check(store)) == []
    assert store.trouble() == {}
    held = store.quarantined()
    assert sorted(group.n for group in held) == [1, 2]
    for group in held:
        assert group.damaged
        assert group.reports.endswith(kept)
        assert f"damaged in the log: {number + 1} (" in group.reason
    assert set_apart(store, 0) is None
    assert rows(store) == {"color": (5, 4, 0, 1), "dark": (10, 8, 0, 2)}


def test_a_sound_log_is_left_as_it_is(store: Store, asked: Registry) -> None:
    fill(store, asked, 3)
    assert set_apart(store, 0) is None
    assert balance(store) == (9, 0, 9, 0)


def test_several_are_set_aside_together_for_nobody_knows_which_held_what(
    place: Place, store: Store, asked: Registry
) -> None:
    fill(store, asked, 3)
    place.travel(1)
    fill(store, asked, 3)
    kept = damage(place, {1, 2, 5}, cut)
    done = set_apart(store, 0)
    assert done
    assert [each.one.place for each in done.entries] == [2, 3, 6]
    assert balance(store) == (18, 3, 6, 9)
    assert list(check(store)) == []
    for group in store.quarantined():
        places = [group.reports.index(one) for one in kept]
        assert places == sorted(places)
    fold_all(store)
    assert balance(store) == (18, 9, 0, 9)
    place.travel(1)
    seal_all(store)
    assert store.sealed() == place.day(1)
    assert list(check(store)) == []


def test_a_counter_that_read_the_log_before_it_was_damaged_changes_nothing(
    place: Place, store: Store, asked: Registry
) -> None:
    fill(store, asked, 3)
    read = store.read_log(0)
    plans = {item.id: item.plan.cells for item in store.plans()}
    damage(place, {0}, cut)
    assert set_apart(store, 0)
    assert not store.commit_fold(0, read, *fold_read(read, plans))
    assert balance(store) == (9, 0, 6, 3)


@pytest.mark.parametrize("change", [lambda entry: entry + b"\x00\x00", cut])
def test_an_entry_that_is_not_the_one_that_was_read_is_left_where_it_is(
    place: Place, store: Store, asked: Registry, change: Change
) -> None:
    fill(store, asked, 3)
    damage(place, {0, 2}, cut)
    found = aside_module.find_damaged_entries(store, 0)
    place.change_log(change)
    oldest, other = found
    assert not store.set_apart(0, oldest.one, {other.one: b"\x00\x00\x00\x00"}, [])
    assert [each.one.place for each in aside_module.find_damaged_entries(store, 0)] == [1, 2, 3]


def test_of_two_operators_one_sets_it_aside(
    place: Place, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, asked, 3)
    damage(place, {1}, cut)
    other = place.open()
    method = type(store).set_apart

    def late(self: Any, *arguments: Any) -> bool:
        monkeypatch.undo()
        assert set_apart(other, 0)
        return method(self, *arguments)

    monkeypatch.setattr(type(store), "set_apart", late)
    assert set_apart(store, 0) is None
    fold_all(store)
    assert balance(store) == (9, 6, 0, 3)
    assert len(store.quarantined()) == 2


def test_an_entry_is_taken_out_only_where_the_cursor_is_before_it(place: Place, store: Store, asked: Registry) -> None:
    """So nobody has read it together with others that he has not committed yet."""
    fill(store, asked, 3)
    damage(place, {1}, cut)
    (found,) = aside_module.find_damaged_entries(store, 0)
    assert not store.set_apart(0, found.one, {}, [])
    assert store.status()[0].cursor == 0
    assert balance_of_sound(store) == (9, 0, 6, 0)


@pytest.mark.parametrize("step", ["_fold_before", "_held"])
def test_who_is_overtaken_by_another_operator_does_nothing(
    place: Place, store: Store, asked: Registry, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, asked, 4)
    damage(place, {1, 3}, other_plan)
    other, method = place.open(), getattr(aside_module, step)

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert set_apart(other, 0)
        return method(*arguments)

    monkeypatch.setattr(aside_module, step, late)
    assert set_apart(store, 0) is None
    fold_all(store)
    assert balance(store) == (12, 6, 0, 6)


def test_counters_that_overtake_it_hide_nothing(
    place: Place, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fold what is before the damaged entry, in steps as long as those in which it is looked for."""
    for module in ("sqlite.sqlite_store", "redis.redis_store"):
        monkeypatch.setattr(f"dither_aggregator.store.{module}.READ_UPLOADS_MAX", 2)
    monkeypatch.setattr("dither_aggregator.store.sqlite.sqlite_store.ROWS_AT_ONCE", 2)
    fill(store, asked, 7)
    damage(place, {6}, cut)
    entries = store.log_entries(0)
    assert next(entries).place == 1
    while store.status()[0].cursor < 6:
        store.fold(0)
    assert [one.place for one in entries] == [2, 7]
    assert [each.one.place for each in aside_module.find_damaged_entries(store, 0)] == [7]


def test_a_ledger_that_does_not_say_what_was_held_is_believed_nothing(
    place: Place, store: Store, asked: Registry
) -> None:
    fill(store, asked, 2)
    place.change_log(lambda entry: entry + entry[4:])  # every group twice: more waits than was accepted
    damage(place, {1}, cut)
    with pytest.raises(StoreError, match=r"does not say what the 1 damaged entries of its log held.*`dither restore`"):
        set_apart(store, 0)
    assert store.quarantined() == []


def test_what_is_left_of_a_damaged_entry_is_dropped_or_waits_for_good(
    place: Place, store: Store, asked: Registry
) -> None:
    fill(store, asked, 2)
    damage(place, {0}, cut)
    assert set_apart(store, 0)
    one, other = store.quarantined()
    assert store.drop(one.id)
    assert store.replay(other.id)  # as no command does: it is not counted, whatever its length
    fold_all(store)
    assert balance(store) == (6, 3, 0, 3)
    (again,) = store.quarantined()
    assert (again.cell, again.reports) == (NO_CELL, other.reports)
    assert list(check(store)) == []


@pytest.mark.parametrize(
    ("kind_of_copy", "shards", "aside"),
    thinned([("sqlite", 1, False), ("redis", 3, True), ("sqlite", 1, True), ("redis", 3, False)], 0, 1),
)
def test_a_copy_has_damaged_entries_and_what_is_left_of_them(
    place: Place,
    store: Store,
    asked: Registry,
    kind_of_copy: str,
    shards: int,
    aside: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    fill(store, asked, 4)
    (kept,) = damage(place, {1}, far_day)
    if aside:
        assert set_apart(store, 0)
    with closing(place_of(kind_of_copy, tmp_path / "copy", request, 1, shards)) as target:
        copy = target.begin(store.app)
        restore(copy, store.dump())
        target.travel(0)
        assert copy.ledger() == store.ledger()
        if not aside:
            assert set_apart(copy, 0)
        assert all(group.reports.endswith(kept) for group in copy.quarantined())
        fold_all(copy)
        assert balance(copy) == (12, 9, 0, 3)
        assert list(check(copy)) == []
