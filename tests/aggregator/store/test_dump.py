"""A dump of either store fills another of either kind, and nothing is lost, doubled or taken for new."""

import json
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from dither_aggregator import counting as fold_module
from dither_aggregator.counting import Counts
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.document_kinds import DayMark, Retention
from dither_aggregator.store.dump import Identity, Record, SeenRecord, ShardRecord, TallyRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import Final, RefusedCount, RefusedKey
from dither_aggregator.store.restoring import fill, restore
from dither_shared.registry import Registry
from dither_shared.shapes import ReportShape
from dither_shared.wire.reading import Problem
from tests.aggregator.store.conftest import KINDS, place_of
from tests.support.registries import registry
from tests.support.soaking import thinned
from tests.support.stores import Place, answer, append, balance, body_in, body_of, fold_all, seal_all

TEXT = b"0123456789abcdef0123" + b"fedcba98765432100000"
"""The text of a key."""
ROUTES = thinned(
    [(kind, *pair) for kind in KINDS for pair in (("sqlite", 1), ("redis", 4), ("redis", 3), ("redis", 9))],
    0,
    2,
    4,
    7,
    10,
)
"""From one kind of store to another with so many shards: a dump says nothing of the kind that it came from."""


@pytest.fixture(params=ROUTES, ids=lambda route: "{}-to-{}-{}".format(*route))
def route(request: pytest.FixtureRequest) -> tuple[str, str, int]:
    found: tuple[str, str, int] = request.param
    return found


@pytest.fixture
def kind(route: tuple[str, str, int]) -> str:
    return route[0]


@pytest.fixture
def target(route: tuple[str, str, int], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    _, kind, shards = route
    with closing(place_of(kind, tmp_path / "target", request, 1, shards)) as made:
        yield made


@pytest.fixture
def bodies() -> list[bytes]:
    return []


@pytest.fixture
def lived(place: Place, store: Store, asked: Registry, bodies: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of some days: two revs, folded and pending, quarantined and dropped, sealed and final."""
    rng = random.Random(4)
    fold = fold_module.fold

    def fail(shape: ReportShape, reports: bytes) -> Counts:
        if b"\x03\x03\x03" in reports:
            raise ValueError("poison")
        return fold(shape, reports)

    monkeypatch.setattr(fold_module, "fold", fail)
    changed = registry(rev=2, values=("cyan", "ochre"), expires=place.day(100))
    for day in range(3):
        for _ in range(12):
            source = rng.choice([asked, changed] if day else [asked])
            bodies.append(
                body_of(source, {"color": [rng.randrange(3)], "dark": [rng.randrange(2)] * rng.randrange(1, 4)})
            )
            append(store, bodies[-1])
        bodies += [body_of(asked, {"color": [3, 3, 3]}) for _ in range(2)]
        for body in bodies[-2:]:
            append(store, body)
        if day < 2:
            fold_all(store)
            place.travel(1)
            seal_all(store)
        if day == 0:
            store.load(changed)
    color = asked.metrics["color"].plan
    store.finalize(color, place.day(), Final("digest", "a" * 64), b"snapshot")
    store.finalize(asked.metrics["dark"].plan, place.day(), Final("digest-2", "b" * 64), b"")
    store.put(Retention(400, 500))
    store.put(DayMark(place.day(1), "version 158"))
    store.put(DayMark(place.day(), "a day that was \N{SNOWMAN}"))
    store.register_key("write", TEXT.decode(), "the app")
    store.revoke_key(store.create_key("read")[0].id)
    for what in ("first", "second"):
        store.note("command line", "mark add", what)
    store.retire("dark", 1)
    answer(store, body_of(asked, {"dark": [1, 0]}))  # refused
    held = store.quarantined()
    store.drop(held[0].id)
    store.replay(held[1].id)
    return store


def copied(source: Store, target: Place) -> Store:
    made = target.begin(source.app)
    restore(made, source.dump())
    return made


def test_a_copy_is_the_same(lived: Store, place: Place, target: Place, asked: Registry) -> None:
    copy = copied(lived, target)
    target.travel(2)
    assert copy.app == lived.app
    assert copy.keys.listed() == lived.keys.listed()
    assert {key.state for key in copy.keys.listed()} == {"active", "revoked"}
    assert copy.keys.find(TEXT) == lived.keys.find(TEXT) != None  # noqa: E711 - neither is missing
    assert copy.signing_secret(b"session") == lived.signing_secret(b"session")
    assert copy.journal() == lived.journal()
    assert [entry.what for entry in copy.journal()] == ["first", "second"]
    assert copy.generation != lived.generation
    assert (copy.retention(), copy.tallies_from()) == (lived.retention(), lived.tallies_from())
    assert copy.plans() == lived.plans()
    assert (
        copy.documents(DayMark)
        == lived.documents(DayMark)
        == [
            DayMark(place.day(), "a day that was \N{SNOWMAN}"),
            DayMark(place.day(1), "version 158"),
        ]
    )
    assert copy.ledger() == lived.ledger()
    refused = {RefusedKey(place.day(2), "dark", "retired"): RefusedCount(1, 2)}
    assert copy.refused(place.day(), place.day(2)) == lived.refused(place.day(), place.day(2)) == refused
    assert copy.sealed() == lived.sealed() == place.day(1)
    assert copy.today() == lived.today() == place.day(2)
    _same_tallies(copy, lived)
    for stored in lived.plans():
        assert copy.finals(stored.plan) == lived.finals(stored.plan)
        assert copy.epochs(stored.plan) == lived.epochs(stored.plan)
    assert (copy.snapshot("a" * 64), copy.snapshot("b" * 64)) == (b"snapshot", b"")
    assert _held(copy) == _held(lived)
    assert copy.trouble() == {}
    assert copy.integrity() == []


def test_a_copy_is_opened_and_goes_on(lived: Store, target: Place, asked: Registry, bodies: list[bytes]) -> None:
    copied(lived, target)
    target.travel(2)
    copy = target.open()
    before = balance(copy)
    for body in bodies:
        assert append(copy, body).duplicate
    assert balance(copy) == before
    conflict = answer(copy, bodies[0] + b" ")
    assert isinstance(conflict, Problem)
    assert conflict.slug == "upload-conflict"
    fold_all(copy)
    fold_all(lived)
    _same_tallies(copy, lived)
    assert copy.ledger() == lived.ledger()
    append(copy, body_of(asked, {"color": [0]}))
    fold_all(copy)
    (held, *_) = copy.quarantined()
    assert copy.replay(held.id)
    target.travel(1)
    fold_all(copy)
    seal_all(copy)
    assert copy.sealed() == target.day(2)
    assert balance(copy)[0] == before[0] + 1


def test_a_copy_of_a_copy_is_the_same(
    lived: Store, target: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    copy = copied(lived, target)
    with closing(place_of("sqlite", tmp_path / "third", request, 0)) as third:
        again = copied(copy, third)
        assert again.ledger() == lived.ledger()
        assert (_held(again), again.sealed()) == (_held(lived), lived.sealed())
        _same_tallies(again, lived)


def test_a_dump_is_of_one_instant(place: Place, store: Store, asked: Registry, target: Place) -> None:
    """Uploads that come and are folded while it is read are whole in it, or not in it: a shard at a time in Redis."""
    before = [body_of(asked, {"color": [number % 4], "dark": [1, 0]}) for number in range(12)]
    for body in before:
        append(store, body)
    copy, later = target.begin(store.app), list[bytes]()
    restore(copy, beside(place.open(), asked, store.dump(), later))
    target.travel(0)
    assert list(check(copy)) == []
    fold_all(copy)
    accepted, folded, pending, _ = balance(copy)
    assert (folded, pending) == (accepted, 0)
    assert folded == sum(copy.tally(item.plan, day).n for item in copy.plans() for day in copy.epochs(item.plan)) >= 36
    assert all(append(copy, body).duplicate for body in before)
    for body in later:  # those that are in it are copies, whose refused groups are counted already
        append(copy, body)
    refused = sum(copy.refused(place.day(), place.day()).values(), RefusedCount())
    assert refused == RefusedCount(len(later), len(later))


def beside(store: Store, asked: Registry, records: Iterator[Record], sent: list[bytes]) -> Iterator[Record]:
    """Yield records; append and fold behind each an upload with a refused group, behind a shard one of a new plan."""
    for record in records:
        yield record
        if isinstance(record, ShardRecord):
            new = registry(rev=max(item.plan.rev for item in store.plans()) + 1, expires=store.today() + timedelta(9))
            store.load(new)
            append(store, body_in(store, store.shards - 1, new, {"color": [1]}))
        document = json.loads(body_of(asked, {"color": [1]}))
        document["groups"].append({"metric": "nothing", "plan": "0" * 16, "reports": [1]})
        sent.append(json.dumps(document).encode())
        append(store, sent[-1])
        fold_all(store)


def test_a_copy_remembers_for_as_long_as_the_source(
    lived: Store, place: Place, target: Place, bodies: list[bytes]
) -> None:
    copy = copied(lived, target)
    target.travel(7)
    for shard in range(copy.shards):
        copy.forget(shard)
    assert all(append(copy, body).duplicate for body in bodies)
    target.travel(365)
    for shard in range(copy.shards):
        copy.forget(shard)  # no later day has uploads
    assert all(append(copy, body).duplicate for body in bodies)
    seen = [digest for record in copy.dump() if isinstance(record, SeenRecord) for digest in record.bodies]
    assert sorted(seen) == sorted(copy.digest(_id(body)) for body in bodies)


def test_a_clock_that_is_behind_does_not_make_a_copy_forget(lived: Store, target: Place, bodies: list[bytes]) -> None:
    """The latest ids may have come to a shard that had not used their day."""
    copied(lived, target)
    target.travel(0)
    copy = target.open()
    assert all(append(copy, body).duplicate for body in bodies)


def test_an_unfinished_store_is_refused(store: Store, target: Place) -> None:
    made = target.begin()
    with pytest.raises(StoreError, match="not filled to its end"):
        target.open()
    fill(made, store.dump())
    with pytest.raises(StoreError, match="not filled to its end"):
        target.open()
    made.finish()
    assert target.open().ledger() == []
    made.finish()


def test_a_dump_that_was_cut_off_is_refused(store: Store, target: Place) -> None:
    made = target.begin()
    with pytest.raises(StoreError, match="the dump has no shard in it"):
        restore(made, (record for record in store.dump() if not isinstance(record, ShardRecord | TallyRecord)))
    with pytest.raises(StoreError, match="not filled to its end"):
        target.open()


def test_a_dump_begins_with_what_the_store_is(lived: Store) -> None:
    records = list(lived.dump())
    assert isinstance(records[0], Identity)
    assert records[0].generation == lived.generation
    shards = [record.shard for record in records if isinstance(record, ShardRecord)]
    assert shards == list(range(lived.shards))
    tallies = [(record.shard, record.plan, record.epoch) for record in records if isinstance(record, TallyRecord)]
    assert len(set(tallies)) == len(tallies)


def _same_tallies(one: Store, other: Store) -> None:
    for stored in other.plans():
        for epoch in other.epochs(stored.plan):
            assert one.tally(stored.plan, epoch).digest == other.tally(stored.plan, epoch).digest


def _held(store: Store) -> list[tuple[object, ...]]:
    return sorted((group.plan, group.epoch, group.n, group.reason, group.reports) for group in store.quarantined())


def _id(body: bytes) -> bytes:
    return str(json.loads(body)["upload"]).encode()
