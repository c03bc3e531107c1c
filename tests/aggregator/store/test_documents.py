"""Documents: a kind that one class adds is kept, changed, moved and checked like those that are there."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Thread

import pytest

from dither_aggregator.analysis.reading import for_readers
from dither_aggregator.store import SQLiteStore, Store, StoreError, documents, dump, open_store
from dither_aggregator.store.document_kinds import Dashboard, DayMark, Document, Retention, ToldMoves
from dither_aggregator.store.invariants import check
from dither_aggregator.store.redis import layout
from dither_aggregator.store.release_ledger import Release
from dither_aggregator.store.restoring import copy, restore
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from tests import house
from tests.aggregator.store.conftest import other_kind, place_of
from tests.support.redis_servers import RedisServer
from tests.support.stores import Place, RedisPlace, SQLitePlace


@dataclass(frozen=True)
class Bell(Document):
    """A kind that a later release might add."""

    kind = "bells"
    most = 3
    room = "; take one away"
    name: str
    tone: int

    @property
    def document_id(self) -> str:
        return self.name

    @property
    def fault(self) -> str:
        return "" if self.tone > 0 else f"a bell must have a tone above 0, got {self.tone}"


@dataclass(frozen=True)
class Stroke(Document):
    """A numbered one."""

    kind = "strokes"
    most = 5
    numbered = True
    hour: int


HIGH, LOW = Bell("high", 880), Bell("low", 220)
STROKES = [Stroke(hour) for hour in range(1, 8)]


@pytest.fixture(autouse=True)
def more_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "KINDS", (*documents.KINDS, Bell, Stroke))
    for module in ("dump", "invariants", "restoring", "sqlite.moving", "redis.moving"):
        monkeypatch.setattr(f"dither_aggregator.store.{module}.KINDS", documents.KINDS)


def test_a_store_names_a_kind_in_its_class_and_in_the_list_alone() -> None:
    """So a new kind touches these two files, and whichever shows it. Two more read marks of older stores."""
    named = {path for path, text in house.sources().items() if "DayMark" in text and "DayMark" in house.names(text)}
    of_store = {path.name for path in named if "store" in path.parts}
    assert of_store == {"document_kinds.py", "documents.py"} | {"dump.py", "schema.py"}


def put(store: Store, *bells: Bell) -> bool:
    return store._change(Bell, lambda kept: bells)


def ring(store: Store) -> None:
    assert put(store, LOW, HIGH)
    store._add(Stroke, STROKES[:4])
    store._add(Stroke, STROKES[4:])


def test_a_kind_that_nobody_knew_is_kept_and_changed(place: Place, store: Store) -> None:
    assert store.documents(Bell) == []
    assert store.documents(Stroke) == []
    ring(store)
    other = place.open()
    assert other.documents(Bell) == [HIGH, LOW]
    assert other.documents(Stroke, 100) == other.documents(Stroke) == STROKES[-5:]
    assert other.documents(Stroke, 2) == STROKES[-2:]
    assert put(other, Bell("low", 110))
    assert store._change(Bell, lambda kept: [], gone=HIGH)
    assert not store._change(Bell, lambda kept: [], gone=HIGH)
    assert store.documents(Bell) == [Bell("low", 110)]


def test_a_read_key_is_told_no_kind_that_does_not_say_so(store: Store) -> None:
    public = (DayMark, Dashboard)
    assert [for_readers(store).documents(DayMark), for_readers(store).documents(Dashboard)] == [[], []]
    for kind in documents.KINDS:
        if kind not in public:
            with pytest.raises(AttributeError, match="a read key is not told the"):
                for_readers(store).documents(kind)


def test_one_that_cannot_be_and_one_too_many_are_refused_and_nothing_is_kept(store: Store) -> None:
    assert put(store, LOW, HIGH)
    with pytest.raises(StoreError, match="a bell must have a tone above 0, got -1"):
        put(store, Bell("third", 1), Bell("fourth", -1))
    with pytest.raises(StoreError, match="a store keeps at most 3 bells; take one away"):
        put(store, Bell("third", 1), Bell("fourth", 1))
    assert put(store, Bell("third", 1))
    assert len(store.documents(Bell)) == 3


def test_changes_that_come_at_once_all_arrive(place: Place, store: Store) -> None:
    """Each adds one to what it read: one that is stored over another's loses that."""
    put(store, Bell("count", 1))

    def count(mine: Store) -> None:
        for _ in range(8):
            mine._change(Bell, lambda kept: [Bell(one.name, one.tone + 1) for one in kept])

    threads = [Thread(target=count, args=(place.open(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.documents(Bell) == [Bell("count", 33)]


def test_a_backup_brings_every_kind(place: Place, store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ring(store)
    store.create_key("read", "the web team")
    store.put(Retention(400, None))
    store.put(DayMark(date(1, 1, 1), "<script>alert('1 2')</script>\N{RIGHT-TO-LEFT OVERRIDE}; DROP TABLE document"))
    store.note("command line", "mark add", "version 158")
    store.backed_up(1_000)
    store.put(Dashboard.parse('[group.color]\n"warm" = ["red", "o*"]\n[question]\n"why" = "?"'))
    plan = store.plans("dark")[0].plan
    store.tell(ToldMoves("a" * 32, date(2026, 10, 1), date(2026, 10, 7), {"dark": ["yes rose"], "color": []}))
    store.put(Release("dark", "?", plan, "month", date(2026, 10, 1), 500_000, 3, 3, date(2026, 11, 2), "", (-1, 2)))
    dump.write(tmp_path / "backup", store.dump())
    with closing(place_of(other_kind(place), tmp_path / "other", request, 1)) as target:
        restore(target.begin(), dump.read(tmp_path / "backup"))
        made = target.open()
        for kind in documents.KINDS:
            assert made.documents(kind) == store.documents(kind) != []


def test_a_copy_brings_every_kind(tmp_path: Path, server: RedisServer, asked: Registry) -> None:
    with closing(SQLitePlace(tmp_path)) as place, closing(RedisPlace(server)):
        ring(place.make(asked))
    copy(tmp_path, server.url, 4)
    with closing(open_store(server.url)) as made:
        assert (made.documents(Bell), made.documents(Stroke)) == ([HIGH, LOW], STROKES[-5:])


def write(place: Place, id_: str, text: str) -> None:
    """Write a bell past every check."""
    if isinstance(place, RedisPlace):
        place.redis.hset(f"{layout.GLOBAL}:bells", id_, text)
    elif isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db, db:
            db.execute("INSERT OR REPLACE INTO document VALUES ('bells', ?, ?)", (id_, text))


def test_every_kind_is_checked(place: Place, store: Store) -> None:
    ring(store)
    assert list(check(store)) == []
    write(place, "cracked", json.dumps({"name": "cracked", "tone": -5}))
    assert list(check(store)) == ["bells: a bell must have a tone above 0, got -5"]
    for number in range(2):
        write(place, f"{number}", json.dumps({"name": f"{number}", "tone": 1}))
    assert "bells: there are 5, and 3 are the most" in list(check(store))
    write(place, "0", "{}")
    assert any(said.startswith("a document of the store (bells) is damaged") for said in check(store))


def test_one_that_another_release_knows_is_left_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        ring(store)
        monkeypatch.undo()
        assert Bell not in documents.KINDS
        assert list(check(store)) == []
        assert not any(getattr(record, "kind", None) is Bell for record in store.dump())
        assert store.documents(Bell) == [HIGH, LOW]


def test_one_of_several_who_claim_a_receiver_at_once_gets_it_and_the_others_see_whose_it_is(
    store: Store, place: Place
) -> None:
    told = ToldMoves("a", date(2026, 11, 14), date(2026, 11, 20), {})
    stores = [store, *(place.open() for _ in range(3))]
    with ThreadPoolExecutor(len(stores)) as pool:
        claims = list(pool.map(lambda each: each.claim(told), stores))
    (own,) = (claim.own for claim in claims if claim.own)
    assert [claim.before for claim in claims if not claim.own] == [own] * 3
    assert stores[0].remove(own)
    assert stores[1].claim(told).own
