"""A day that leapt ahead with its machine's clock is brought back, and nothing is lost, doubled or left behind."""

import random
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import requests

from dither_aggregator import counting as fold_module
from dither_aggregator.health import checks
from dither_aggregator.health.checks import HealthFinding, Observed
from dither_aggregator.health.status import StoreStatus
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, SQLiteStore, Store, StoreError, StoreUnavailable, dump
from dither_aggregator.store.clock import DayReset, judge
from dither_aggregator.store.document_kinds import Key, Retention, ToldMoves
from dither_aggregator.store.dump import SeenRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import Batch, Counted, KeptReading, pack_counts, unpack_counts
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.redis.client import Client, Command
from dither_aggregator.store.redis.scripts import SCRIPTS
from dither_aggregator.store.restoring import reset, restore
from dither_aggregator.store.sqlite import exclusive
from dither_shared.registry import Registry, utc_today
from dither_shared.wire.reading import Problem
from tests.aggregator.store.conftest import KINDS, place_of
from tests.support.aggregators import dither, serve
from tests.support.clocks import DAY_S
from tests.support.registries import registry_text
from tests.support.soaking import scaled, thinned
from tests.support.stores import Place, RedisPlace, SQLitePlace, answer, append, body_of

LEAP = 60
"""Within the registry's dates: reports are accepted on false days."""
DAY = date(2027, 3, 1)
FAR = 1_500
"""Beyond them: none is."""


def name_of(place: Place) -> str:
    """Return what --data says of a place."""
    if isinstance(place, RedisPlace):
        return place.server.url
    assert isinstance(place, SQLitePlace)
    return str(place.directory)


def keep_up(store: Store) -> None:
    """Do all that maintenance does."""
    for shard in range(store.shards):
        store.fold_all(shard)
        maintenance.maintain(store, shard)
    for metric in maintenance.unfinalized(store):
        maintenance.finalize(store, metric)
    maintenance.maintain_whole(store)


class Life:
    """A store that had a true day, then some false ones, and then the right clock again."""

    def __init__(self, place: Place, asked: Registry, false_days: int) -> None:
        self.place, self.asked, self.store = place, asked, place.make(asked)
        self.bodies: list[bytes] = []
        key = self.store.create_key("write")[0]
        self.store.put(Retention(40, 40))
        self.send(8)
        leap = LEAP if false_days else FAR
        place.travel(leap)
        for _ in range(false_days):
            self.send(6)
            place.travel(1)
        if false_days:
            self.send(5)
        self.store.use_keys([key.id])
        keep_up(self.store)
        place.travel(-leap - false_days)
        self.send(110)  # so many that a batch is cut
        self.store.note("test", "is", "there")

    def send(self, number: int) -> None:
        """Send so many reports of each metric in eight uploads at most, of which the last has the rest; fold them."""
        for at in range(min(number, 8)):
            values = range(at, number if at == 7 else at + 1)
            body = body_of(self.asked, {"color": [each % 3 for each in values], "dark": [each % 2 for each in values]})
            self.bodies.append(body)
            append(self.store, body)
        keep_up(self.store)

    @property
    def last(self) -> date:
        """The day on which reports count."""
        return self.store.today()

    def whole(self) -> Counted:
        """The sum of the ledger."""
        return sum(self.store.counted().values(), Counted())


def goes_on(life: Life, day: date) -> None:
    """Check that a store is sound, knows what it took, and lives through its next days."""
    store = life.store
    store.refresh()
    assert list(check(store)) == []
    assert store.today() == day
    before = life.whole()
    assert all(append(store, body).duplicate for body in life.bodies)
    assert life.whole() == before
    life.send(3)
    assert all(day in store.epochs(life.asked.metrics[metric].plan) for metric in ("color", "dark"))
    life.place.travel(2)
    keep_up(store)
    keep_up(store)  # what is final by now may be given up, if it is old
    assert store.sealed() == store.merged() == life.place.day(1)
    assert all(record.day <= store.today() for record in store.dump() if isinstance(record, SeenRecord))
    assert maintenance.unfinalized(store) == []
    sent = {metric: store.tally(life.asked.metrics[metric].plan, day).n for metric in ("color", "dark")}
    assert sum(sent.values()) == sum(row.folded for (_, epoch), row in store.counted().items() if epoch == day) > 0
    assert (store.batches()[0] or 0) <= store._now_s() / 3_600
    assert all((key.last_used or key.made) <= store.clock_day() for key in store.keys.by_id.values())
    key = next(iter(store.keys.by_id))
    store.use_keys([key])
    assert store.keys.by_id[key].last_used == store.clock_day()
    assert store.wrong_clock(store.status()) is None
    assert list(check(store)) == []


@pytest.mark.parametrize(("kind", "false_days"), thinned([*product(KINDS, (0, 2))], 0, 3))
def test_a_store_whose_day_leapt_ahead_goes_on(
    place: Place, asked: Registry, request: pytest.FixtureRequest, tmp_path: Path, false_days: int
) -> None:
    life = Life(place, asked, false_days)
    store, today, before = life.store, place.day(), life.whole()
    last = place.day(LEAP + false_days if false_days else FAR)
    assert life.last == last
    finals = {key for key in store.all_finals() if key[1] > today}
    assert bool(finals) == bool(false_days)
    file = tmp_path / "leapt.dither" if false_days else None
    store.keep_readings([KeptReading("of a window", last, open=False, content=b"figures")])
    assert store.kept_reading("of a window")

    found = reset(name_of(place), today, file)

    assert store.kept_reading("of a window") is None
    assert found.aside == {place.day(LEAP + each).isoformat(): 12 for each in range(false_days)}
    assert found.joined == {last.isoformat(): 230 if false_days else 220}
    assert found.day == place.day(1)  # a report of the true day is sealed
    store.refresh()
    assert {epoch for _, epoch in store.counted()} == {today, place.day(1)}
    assert all(epoch <= today for _, epoch in store.all_finals())
    (entry,) = [entry for entry in store.journal() if entry.action == "clock reset"]
    assert str(place.day(1)) in entry.what

    moved = Counted()
    if file:
        with closing(place_of("sqlite", tmp_path / "again", request, 1)) as other:
            again = other.begin(dump.app_of(file))
            restore(again, dump.read(file))
            assert list(check(again)) == []
            assert again.all_finals() == finals
            moved = sum(again.counted().values(), Counted())
            assert {epoch for _, epoch in again.counted()} == {place.day(LEAP + each) for each in range(false_days)}
    assert life.whole() + moved == before
    goes_on(life, place.day(1))


def test_a_day_without_sealed_reports_is_open_again_itself(place: Place, asked: Registry) -> None:
    place.make(asked)
    store = place.open()
    place.travel(FAR)
    keep_up(store)
    place.travel(-FAR)
    append(store, body_of(asked, {"dark": [1]}))
    told = ToldMoves("true", place.day(-8), place.day(-2), {})
    for each in (told, ToldMoves("false", place.day(FAR - 7), place.day(FAR - 1), {})):
        store.tell(each)
    found = reset(name_of(place), place.day())
    assert store.documents(ToldMoves) == [told]
    assert (found.day, store.today(), store.sealed()) == (place.day(), place.day(), place.day(-1))
    assert list(store.counted()) == [(store.stored(asked.metrics["dark"].plan).id, place.day())]
    assert list(check(store)) == []


def test_sealed_days_with_reports_are_not_left_behind_in_silence(place: Place, asked: Registry, tmp_path: Path) -> None:
    life = Life(place, asked, 1)
    before = life.store.counted()
    day = place.day(LEAP)
    with pytest.raises(StoreError, match=rf"hold 12 reports of {day}: .* --move-aside"):
        reset(name_of(place), place.day())
    there = tmp_path / "there"
    there.write_text("mine")
    with pytest.raises(StoreError, match="is there already"):
        reset(name_of(place), place.day(), there)
    assert there.read_text() == "mine"
    assert life.store.counted() == before
    assert life.last == place.day(LEAP + 1)
    found = reset(name_of(place), day)  # at the last sealed day with reports nothing is left behind
    assert (found.aside, found.day) == ({}, place.day(LEAP + 1))


def test_a_reset_behind_the_machines_clock_is_refused(place: Place, asked: Registry) -> None:
    Life(place, asked, 0)
    with pytest.raises(StoreError, match=f"says {place.day()}"):
        reset(name_of(place), place.day(-1))


def test_a_reset_where_there_is_nothing_to_reset_changes_nothing(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    before = list(store.dump())
    found = reset(name_of(place), place.day())
    assert not found.changes
    assert list(store.dump()) == before


def test_what_waits_in_quarantine_goes_with_its_day(
    place: Place, asked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(place, asked, 1)
    monkeypatch.setattr(fold_module, "fold", lambda shape, reports: 1 / 0)
    life.send(1)
    place.travel(LEAP + 2)
    life.send(1)
    keep_up(life.store)
    place.travel(-LEAP - 2)
    life.send(1)
    before = life.whole()
    assert before.quarantined == 6
    found = reset(name_of(place), place.day(), tmp_path / "leapt")
    store = life.store
    store.refresh()
    assert sorted(found.aside.values()) == [12, 232]
    assert {(group.epoch, group.n) for group in store.quarantined()} == {(place.day(1), 1)}
    assert life.whole().quarantined == 4
    assert list(check(store)) == []
    shards = [record for record in dump.read(tmp_path / "leapt") if hasattr(record, "quarantine")]
    assert sum(poison.group.n for shard in shards for poison in shard.quarantine) == 2


def test_what_is_shown_of_the_open_day_stays_so_many_reports_behind(
    place: Place, asked: Registry, tmp_path: Path
) -> None:
    life = Life(place, asked, 1)
    place.travel(LEAP + 1)
    for _ in range(3):
        place.travel(1 / 24)
        life.send(101)
    place.travel(1 / 24)
    keep_up(life.store)
    place.travel(-LEAP - 1 - 4 / 24)
    _, before = life.store.batches()
    assert {(one.epoch, one.shown) for one in before} == {(life.last, True), (life.last, False)}
    reset(name_of(place), place.day(), tmp_path / "leapt")
    life.store.refresh()
    _, after = life.store.batches()
    assert [replace(one, epoch=place.day(1)) for one in before] == after
    assert list(check(life.store)) == []
    life.send(101)
    place.travel(1 / 24)
    keep_up(life.store)  # in the next hour by the true clock
    assert all(now.n > then.n for now, then in zip(life.store.batches()[1], after, strict=True))


def test_batches_of_days_that_are_joined_are_added_up() -> None:
    days = [DAY + timedelta(days=each) for each in range(4)]
    batches = [
        Batch(1, days[number], shown, n, pack_counts(np.array([n, 1])))
        for number, shown, n in [
            *((0, True, 7), (1, False, 100), (1, True, 1), (2, True, 9), (3, True, 200), (3, False, 400)),
        ]
    ]
    found = DayReset(days[1], days[1], days[3], days[2]).join_batches(batches)
    assert [(one.epoch, one.shown, one.n, unpack_counts(one.packed, 2).tolist()) for one in found] == [
        (days[0], True, 7, [7, 1]),
        (days[1], False, 500, [500, 2]),
        (days[1], True, 201, [201, 2]),
    ]


def test_a_store_that_is_served_is_not_reset(tmp_path: Path, asked: Registry) -> None:
    with closing(SQLitePlace(tmp_path / "store")) as place:
        life = Life(place, asked, 0)
        with exclusive(place.directory), pytest.raises(StoreError, match="being served"):
            reset(str(place.directory), place.day())
        assert life.last == place.day(FAR)


def test_a_redis_whose_day_is_being_reset_is_refused_to_all_others(
    request: pytest.FixtureRequest, asked: Registry
) -> None:
    with closing(place_of("redis", Path(), request, 0)) as place:
        store = place.make(asked)
        body = body_of(asked, {"dark": [1]})
        with closing(RedisStore(name_of(place), resetting=True)) as held:
            held.hold()
            with pytest.raises(StoreUnavailable, match="being reset"):
                append(store, body)
            with pytest.raises(StoreError, match="being reset: `dither store reset-clock` again"):
                place.open()
            held.release()
        assert append(store, body).accepted == 1  # the same process goes on


def test_a_reset_of_a_redis_that_another_one_overtakes_changes_nothing_any_more(
    request: pytest.FixtureRequest, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(place_of("redis", Path(), request, 0)) as place:
        life, of_shard, others = Life(place, asked, 0), RedisStore._of_shard, list[DayReset | None]()
        before = life.whole()

        def overtaken(store: RedisStore, *given: Any) -> Iterator[Command]:
            yield from of_shard(store, *given)
            if not others:
                others.append(None)
                others.append(reset(name_of(place), place.day()))

        monkeypatch.setattr(RedisStore, "_of_shard", overtaken)
        with pytest.raises(StoreError):
            reset(name_of(place), place.day())
        assert life.whole() == before
        goes_on(life, place.day(1))


@pytest.mark.parametrize("seed", range(scaled(1, 60)))
def test_in_lives_whose_clock_goes_to_and_fro_nothing_is_lost(
    place: Place, asked: Registry, tmp_path: Path, seed: int
) -> None:
    rng, store, moved = random.Random(seed), place.make(asked), Counted()
    taken: list[bytes] = []
    for step in range(25):
        place.travel(rng.choice([0, 0, 1 / 24, 0.3, 1, 1, 2, -1, -2, 30, -30, 90, -90, 400, -400, 1_500, -1_500]))
        for _ in range(rng.randrange(4)):
            body = body_of(asked, {"color": [rng.randrange(3)], "dark": [rng.randrange(2)]})
            if isinstance(answer(store, body), Receipt):
                taken.append(body)
        for shard in range(store.shards):  # some are behind others
            if rng.random() < 0.6:
                store.fold_all(shard)
            if rng.random() < 0.6:
                maintenance.maintain(store, shard)
        if rng.random() < 0.3:
            keep_up(store)
        if rng.random() < 0.3:
            file, today = tmp_path / str(step), store.clock_day()
            found = reset(name_of(place), today, file)
            assert file.exists() == bool(found.aside)
            moved += moved_in(file) if found.aside else Counted()
            store.refresh()
            assert store.today() in (today, today + timedelta(days=1))
            assert clock_check(store).well
            assert list(check(store)) == []
        whole = sum(store.counted().values(), Counted()) + moved
        assert whole.accepted == 2 * len(taken)
    reset(name_of(place), store.clock_day(), tmp_path / "last")
    store.refresh()
    known = [answer(store, body) for body in taken[-20:]]
    assert all(isinstance(one, Problem) or one.duplicate for one in known)
    place.travel(2)
    keep_up(store)
    assert store.sealed() == store.merged() == store.clock_day() - timedelta(days=1)
    assert maintenance.unfinalized(store) == []
    assert list(check(store)) == []


# Cut off anywhere.


class Killed(BaseException):
    """The process is gone."""


class Death:
    """Ends a process before or behind one of its steps: whatever it tries after that fails, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.at = 0
        self.behind = False
        call, write = Client.run_each, dump.write
        transaction = SQLiteStore._transaction

        def run_each(client: Client, commands: list[Command], *, together: bool = False) -> object:
            do = partial(call, client, commands, together=together)
            return self.step(do) if together or any(map(writes, commands)) else do()

        def in_transaction(file: SQLiteStore) -> object:
            return _Both(self, transaction(file))

        monkeypatch.setattr(Client, "run_each", run_each)
        monkeypatch.setattr(SQLiteStore, "_transaction", in_transaction)
        monkeypatch.setattr(dump, "write", lambda *args: self.step(lambda: write(*args)))

    def before(self) -> None:
        self.steps += 1
        if self.at and (self.steps > self.at or (self.steps == self.at and not self.behind)):
            raise Killed

    def step(self, do: Callable[[], object]) -> object:
        self.before()
        done = do()
        self.after()
        return done

    def after(self) -> None:
        if self.at == self.steps:
            raise Killed


def writes(command: Command) -> bool:
    """Whether a command of Redis changes anything: all that we call beside scripts, but in transactions, reads."""
    return command[0] == "EVALSHA" and "no-writes" not in SCRIPTS[str(command[1])].text


class _Both:
    """A transaction, and a death before it or behind its commit."""

    def __init__(self, death: Death, inner: object) -> None:
        self.death, self.inner = death, inner

    def __enter__(self) -> object:
        self.death.before()
        return self.inner.__enter__()  # type: ignore[attr-defined]

    def __exit__(self, *what: object) -> object:
        said = self.inner.__exit__(*what)  # type: ignore[attr-defined]
        if what[0] is None:
            self.death.after()
        return said


def saved(place: Place) -> Callable[[], None]:
    """Return what puts a place back as it is now."""
    if isinstance(place, RedisPlace):
        redis = place.redis
        dumped = {key: redis.dump(key) for key in redis.scan_iter()}

        def back() -> None:
            redis.flushall()
            for key, value in dumped.items():
                redis.restore(key, 0, value)

        return back
    assert isinstance(place, SQLitePlace)
    place.close()
    files = {path: path.read_bytes() for path in place.directory.iterdir()}

    def files_back() -> None:
        for path in place.directory.iterdir():
            path.unlink()
        for path, data in files.items():
            path.write_bytes(data)
            path.chmod(0o600)

    return files_back


@pytest.fixture
def few(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with closing(place_of(kind, tmp_path / "few", request, 0, shards=2)) as made:
        yield made


def test_a_reset_that_is_killed_anywhere_is_finished_by_the_same_command(
    few: Place, asked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(few, asked, 1)
    before, day, name = life.whole(), few.day(), name_of(few)
    back = saved(few)
    file = tmp_path / "leapt"
    with monkeypatch.context() as patched:
        death = Death(patched)
        reset(name, day, file)
        steps = death.steps
    with closing(few.open()) as done:
        kept = done.counted()
    whole = records_of(file)
    assert steps > 5
    # Behind a step is nearly before the next one: every eighth step, the last among them, is enough of both.
    for behind in (False, True):
        for at in range(steps, 0, -scaled(8, 1)):
            back()
            file.unlink(missing_ok=True)
            with monkeypatch.context() as patched:
                death = Death(patched)
                death.at, death.behind = at, behind
                with pytest.raises(Killed):
                    reset(name, day, file)
            reset(name, day, file)
            again = few.open()
            assert again.counted() == kept
            assert records_of(file) == whole
            assert sum(kept.values(), Counted()) + moved_in(file) == before
            assert list(check(again)) == []
            assert len([entry for entry in again.journal() if entry.action == "clock reset"]) in (1, 2)
            again.close()


def test_a_reset_that_was_cut_off_does_not_go_on_without_its_file(
    request: pytest.FixtureRequest, asked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(place_of("redis", Path(), request, 0)) as place:
        life, file, away = Life(place, asked, 2), tmp_path / "leapt", tmp_path / "away"
        before = life.whole()
        with monkeypatch.context() as patched:
            patched.setattr(RedisStore, "reset_day", lambda *_: pytest.fail("cut off"))
            with pytest.raises(pytest.fail.Exception):
                reset(name_of(place), place.day(), file)
        file.rename(away)
        with pytest.raises(StoreError, match="is not there"):
            reset(name_of(place), place.day(), file)
        away.rename(file)
        reset(name_of(place), place.day(), file)
        assert sum(life.store.counted().values(), Counted()) + moved_in(file) == before


def test_a_directory_that_was_served_since_a_reset_was_cut_off_is_reset_as_it_is_now(
    tmp_path: Path, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SQLitePlace(tmp_path / "store")) as place:
        life, file = Life(place, asked, 1), tmp_path / "leapt"
        with monkeypatch.context() as patched:
            patched.setattr(SQLiteStore, "reset_day", lambda *_: pytest.fail("cut off"))
            with pytest.raises(pytest.fail.Exception):
                reset(str(place.directory), place.day(), file)
        for metric in ("color", "dark"):
            append(life.store, body_of(asked, {metric: [1]}))  # and not folded
        before = life.whole()
        reset(str(place.directory), place.day(), file)
        assert sum(life.store.counted().values(), Counted()) + moved_in(file) == replace(
            before, folded=before.folded + before.pending, pending=0
        )
        assert list(check(life.store)) == []


def records_of(file: Path) -> set[str]:
    """Return what a file holds, in any order; the days of its keys may be bounded already."""
    return {repr(record) for record in dump.read(file) if getattr(record, "kind", None) is not Key}


def moved_in(file: Path) -> Counted:
    """Return the sum of the ledger in a file."""
    shards = [record for record in dump.read(file) if hasattr(record, "ledger")]
    return sum((row for shard in shards for row in shard.ledger.values()), Counted())


# Which clock is wrong, and its cure.


def clock_check(store: Store) -> HealthFinding:
    """Return the check of the clock."""
    store_status = StoreStatus.of(store)
    return checks._clock.find(Observed(store_status, store_status.trouble))


@pytest.mark.parametrize(("kind", "false_days"), thinned([*product(KINDS, (0, 1))], 1, 2))
def test_the_cure_in_words_cures_a_store_that_leapt(
    place: Place, asked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, false_days: int
) -> None:
    life = Life(place, asked, false_days)
    check = clock_check(life.store)
    assert not check.well
    assert f"the store's day is wrong, which is {life.last}" in check.value
    assert check.hint.replace("`", "") in dither("doctor", "--data", name_of(place)).stdout
    (command,) = [words for words in check.hint.split("`")[1::2] if words.startswith("dither ")]
    before = life.whole()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DITHER_DATA", name_of(place))
    said = dither(*shlex.split(command)[1:], "--dry-run", DITHER_DATA=name_of(place)).stdout
    assert f"would count on {place.day(1)}" in said
    assert life.whole() == before
    assert not list(tmp_path.glob("*.dither"))
    done = dither(*shlex.split(command)[1:], DITHER_DATA=name_of(place))
    assert done.returncode == 0, done.stderr
    assert done.stdout == said.replace("would count", "count").replace("would move", "moved")
    life.store.refresh()
    assert clock_check(life.store).well
    goes_on(life, place.day(1))


def test_a_server_that_ran_once_in_2031_is_cured_as_its_health_says(tmp_path: Path) -> None:
    path, data = tmp_path / "metrics.toml", tmp_path / "data"
    path.write_text(registry_text(), encoding="utf-8")
    assert dither("init", path, "--data", data).returncode == 0
    with closing(SQLiteStore(data, lambda: time.time() + FAR * DAY_S)) as store:
        keep_up(store)
    with serve(path, data) as served:
        answer = requests.get(f"{served.health}/readyz", timeout=30)
        (check_,) = [one for one in answer.json()["checks"] if not one["ok"]]
        assert (answer.status_code, check_["check"]) == (503, "clock")
        assert "the store's day is wrong" in check_["value"]
        command = check_["hint"].split("`")[1]
        words = [*shlex.split(command)[1:], "--data", data]
        assert "is being served already" in dither(*words).stderr
        served.stop()
    done = dither(*words)
    assert (done.returncode, done.stderr) == (0, "start what serves the store again\n")
    with serve(path, data) as served:
        assert requests.get(f"{served.health}/readyz", timeout=30).status_code == 200


def test_the_cure_in_words_cures_a_machine_whose_clock_is_behind(place: Place, asked: Registry) -> None:
    store = place.make(asked)
    for _ in range(6):
        append(store, body_of(asked, {"dark": [1]}))
        keep_up(store)
        place.travel(1)
    place.travel(-5)
    for back in (0, 3_000):
        place.travel(-back)
        check = clock_check(store)
        assert not check.well
        assert f"the machine's clock is wrong, which says {store.clock_day()}" in check.value
        assert check.hint.startswith("Set the clock of the store's machine")
        assert "`" not in check.hint
        place.travel(back)
    place.travel(5)
    assert clock_check(store).well


@pytest.mark.parametrize(
    ("clock", "day", "came", "expires", "of_machine"),
    [
        (DAY, date(2031, 1, 1), 0, date(2027, 9, 1), False),  # beyond the registry
        (DAY, date(2031, 1, 1), 900, date(2027, 9, 1), False),
        (date(2015, 1, 1), DAY, 0, date(2027, 9, 1), True),  # before any such registry
        (date(1970, 1, 1), DAY, 300, date(2027, 9, 1), True),
        (DAY, DAY + timedelta(days=60), 2, date(2027, 9, 1), False),  # both within it: by the days between
        (DAY - timedelta(days=60), DAY, 55, date(2027, 9, 1), True),
        (DAY, date(2031, 1, 1), 30, None, False),
        (DAY - timedelta(days=400), DAY, 399, None, True),
        (DAY, date(2031, 1, 1), 3, date(2026, 12, 1), False),  # both beyond one that is over
    ],
)
def test_which_clock_is_wrong_is_told_by_registry_and_reports(
    clock: date, day: date, came: int, expires: date | None, of_machine: bool
) -> None:
    used = {clock + timedelta(days=each) for each in range(1, came + 1)}
    told, why = judge(clock, day, used, expires)
    assert told == of_machine
    assert why


def test_which_of_two_machines_has_the_wrong_clock_is_told_by_the_registry() -> None:
    today = utc_today()
    for ahead, expires, which in [
        (FAR, today + timedelta(days=90), "It is the store's that is wrong"),
        (-FAR, today + timedelta(days=90), "It is the store's that is wrong"),
        (FAR, today + timedelta(days=FAR + 90), "It is this machine's that is wrong"),
        (3, today + timedelta(days=90), "Have NTP set"),
        (FAR, None, "Have NTP set"),
    ]:
        check = time_check(ahead * DAY_S, expires)
        assert not check.well
        assert check.hint.startswith(which)
    assert time_check(0, today).well


def time_check(ahead_s: float, expires: date | None) -> HealthFinding:
    """Return the check of the time of two machines."""
    status, store = Mock(StoreStatus, last_expiry=expires), Mock(Store, ahead_s=lambda: ahead_s)
    return checks._both_clocks.find(Observed(status, asked=store))


def test_a_day_that_passes_by_itself_is_no_trouble(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    place.travel(-1)
    assert store.trouble() == {}
    assert clock_check(store).well
    place.travel(-1)
    assert store.trouble().keys() == {"clock"}
    assert not clock_check(store).well
