"""A simulated year: two releases, two registries, a key rotated, a restore, a move to Redis. Nothing is lost."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.cli import main
from dither.device import FILE_NAME
from dither.device.migrations import STEPS
from dither_aggregator.store import SQLiteStore, StoreError
from dither_aggregator.store.invariants import check as fsck
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.sqlite import FILE_NAME as STORE_NAME
from dither_shared.frozen import replaced
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from tests.faults.year import Books, Phone, Year
from tests.pinned.devices import COMMON, LISTED, METRICS, device_registry
from tests.pinned.files import CUTS, FILES, steps_of, unpack
from tests.support.clocks import Clock
from tests.support.redis_servers import running_redis
from tests.support.soaking import scaled, thinned

pytestmark = pytest.mark.slow

STREAM = "changes"
EVERY = scaled(24, 1)
"""On each so many days the apps run: a day with reports takes the aggregator as long as its snapshots do."""
SELDOM = scaled(60, 1)
"""With a planted bug, on each so many."""
NEW_PHONES = scaled(3, 12)
DAYS = 366
OLD_STORE = sorted(FILES.glob(f"store-*-{STREAM}.sqlite3.gz"))[0]


def second_registry() -> Registry:
    """Return the registry of the second release: a metric leaves, one comes, one is asked more often, all for longer.

    The memos go on: another rev redraws nothing.
    """
    metrics = {name: text for name, text in METRICS.items() if name != "rare"}
    metrics["paint"] = metrics["paint"].replace("reports = 20", "reports = 40")
    metrics["size"] = LISTED + 'epsilon = 1\nreports = 10\nschedule = "early"\n'
    revs = {"theme": 2, "paint": 2}
    text = '[registry]\napp = "pinned"\ndevice_epsilon = 175\nquiet_days = 0\n'
    for name, lines in metrics.items():
        common = COMMON.format(presence="hidden" if name == "mood" else "public")
        common = common.replace("rev = 1", f"rev = {revs.get(name, 1)}").replace("2027-06-30", "2028-03-31")
        text += f"[metric.{name}]\n{lines}{common}"
    return Registry.parse(text)


FIRST, SECOND = device_registry(), second_registry()


def streamed() -> list[Registry]:
    """Return the registries of the release before, with the plans of that time."""
    registries = [Registry.parse(**step["with"]) for step in steps_of(STREAM)[: CUTS[STREAM]] if step["do"] == "load"]
    for metric in (metric for registry in registries for metric in registry.metrics.values()):
        vars(metric)["plan"] = replaced(metric.plan, once_a_day=False)
    return registries


def books_of_the_release_before() -> Books:
    """Return an account of what the pinned store holds."""
    registries = streamed()
    books = Books(*registries, FIRST, SECOND)
    plans = {(metric.name, metric.rev): metric.plan.digest for one in registries for metric in one.metrics.values()}
    for step in steps_of(STREAM)[: CUTS[STREAM]]:
        if step["do"] == "upload":
            groups = [
                (group["metric"], plans[group["metric"], group.get("rev", 1)], group["reports"], group.get("cell"))
                for group in step["with"]["groups"]
            ]
            books.stored_before(step["with"]["id_"], groups)
    return books


def phones_of(home: Path, key: str, new: int) -> tuple[list[Phone], float]:
    """Return the phones of the release before, whose files are pinned, and new ones; and the moment of those files."""
    phones, now = [], 0.0
    for packed in sorted(FILES.glob("device-*.gz")):
        name = packed.name.split(".")[0]
        held = unpack(packed, home / name, FILE_NAME)
        with closing(sqlite3.connect(home / name / FILE_NAME)) as db:
            left = {id_ for (id_,) in db.execute("SELECT id FROM upload WHERE charged")}
        phones.append(Phone(home / name, name, FIRST, key, spent=held["spent"], left=left))
        now = held["day"]
    phones += [Phone(home / f"new-{number}", f"new-{number}", FIRST, key) for number in range(new)]
    return phones, now


@pytest.mark.parametrize("seed", range(scaled(1, 5)))
def test_a_year_loses_nothing_and_counts_nothing_twice(home: Path, seed: int) -> None:
    live(home, seed)


def live(home: Path, seed: int = 0, every: int = EVERY, new: int = NEW_PHONES) -> None:
    """Live through the year with so many new phones, in which the apps run on each so many days."""
    key = unpack(OLD_STORE, home / "store", STORE_NAME)["key"]
    phones, now = phones_of(home, key, new)
    begun = {phone.name: dict(phone.spent) for phone in phones}
    year = Year(home, Clock(now), books_of_the_release_before(), phones, seed)
    with running_redis(home / "redis") as server, closing(year):
        release(year)
        year.pass_until(60, every=every)
        rotate_the_key(year, key, every)
        change_the_registry(year, every)
        year.pass_until(180, every=every)
        directory = lose_and_restore(year, every)
        year.pass_until(252, every=every)
        move(year, directory, server.url)
        year.pass_until(DAYS, every=every)
        end(year, begun)


def _refreshes(db: sqlite3.Connection) -> None:
    STEP_OF_4(db)
    db.execute("UPDATE metric SET spent = 0")


STEP_OF_4 = STEPS[4]
BUGS: dict[str, tuple[Any, str, Any, str]] = {
    "a step refreshes budgets": (STEPS, "4", _refreshes, "was refreshed"),
    "a restore forgets what was answered": (SQLiteStore, "fill_seen", lambda *_: None, "accepted twice"),
    "a move forgets what was answered": (RedisStore, "fill_seen", lambda *_: None, "accepted twice"),
    "a rev redraws memos": (Plan, "memo_key", property(lambda plan: f"{plan.metric} {plan.rev}"), "device-5"),
}


@pytest.mark.parametrize("bug", thinned([*BUGS], 0, 1))  # of a device and of a store
def test_a_year_shows_a_planted_bug(home: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    place, name, planted, seen = BUGS[bug]
    if isinstance(place, dict):
        monkeypatch.setitem(place, int(name), planted)
    else:
        monkeypatch.setattr(place, name, planted)
    with pytest.raises(AssertionError, match=seen):
        live(home, every=SELDOM, new=1)


def release(year: Year) -> None:
    """Deploy the aggregator first, on the store of the release before; its one key goes on."""
    store = SQLiteStore(year.home / "store", year.clock)
    assert store.backlog() > 0
    store.load(FIRST)
    year.serve(store)
    year.run_phones()
    year.check()


def rotate_the_key(year: Year, old: str, every: int) -> None:
    """Make the next write key, ship it, let the old one wait, and revoke it: as deploy/keys.md says."""
    assert year.store
    _, new = year.store.create_key("write", "the second release")
    *others, late, last = year.phones
    for number, phone in enumerate(others):
        phone.key = new
        year.pass_until(60 + 32 * (number + 1) // len(others), every=every)
    found = year.store.keys.find(old.encode())
    assert found
    year.store.revoke_key(found.id, wait=True)
    year.store.refresh()
    year.run_phones()
    late.key = new  # within the six days for which a device keeps what was not answered
    year.pass_until(96, every=every)
    year.run_phones()
    assert waited(late)
    year.store.revoke_key(found.id)
    year.store.refresh()
    year.run_phones()
    year.pass_until(104, every=every)
    last.key = new
    year.run_phones()
    assert any(answer.startswith("401") for answer in last.answers), last.answers
    year.check()


def waited(phone: Phone) -> bool:
    """Tell whether uploads with a key that waits were put off."""
    return any(answer.startswith("503") for answer in phone.answers)


def change_the_registry(year: Year, every: int) -> None:
    """Load the second registry, and ship it from phone to phone. One person does not agree to more."""
    year.pass_until(120, every=every)
    assert year.store
    year.store.load(SECOND)
    year.phones[-1].agrees = False
    for number, phone in enumerate(year.phones):
        phone.registry = SECOND
        year.pass_until(120 + 40 * (number + 1) // len(year.phones), every=every)
    year.check()


def lose_and_restore(year: Year, every: int) -> Path:
    """Lose the store after a backup that was made while uploads were refused: nothing acknowledged is lost.

    A backup that was made while it took uploads loses exactly those that came later.
    """
    year.back_up(year.home / "nightly", year.home / "store")
    as_of_the_night = year.books.oracle.copy()
    year.pass_until(184, every=every)
    with year.silenced():
        year.run_phones()
    year.stop()
    year.run_phones()  # nobody is there
    year.back_up(year.home / "stopped", year.home / "store")
    shutil.rmtree(year.home / "store")
    with closing(year.restored(year.home / "nightly", year.home / "night")) as night:
        as_of_the_night.check(night)
    year.serve(year.restored(year.home / "stopped", year.home / "restored"))
    hear_again(year)
    return year.home / "restored"


def hear_again(year: Year) -> None:
    """Let the phones send what nobody answered: it is known, wherever the store has gone."""
    copies = year.books.copies
    year.check()
    year.run_phones()
    assert year.books.copies > copies
    year.check()
    for phone in year.phones:
        assert all(len(memo) <= 1 for memo in phone.memos.values()), f"{phone.name} has drawn a memo again"


def move(year: Year, directory: Path, url: str) -> None:
    """Move the store to Redis, as deploy/moving.md says."""
    with year.silenced():
        year.run_phones()
    year.stop()
    assert main(["store", "copy", "--data", str(directory), "--to", url, "--shards", "4"]) == 0
    with pytest.raises(StoreError, match="goes on in its place"):
        SQLiteStore(directory, year.clock)
    year.serve(RedisStore(url, year.clock))
    hear_again(year)


def end(year: Year, begun: dict[str, dict[str, int]]) -> None:
    """Look at all that the year must have left as it was."""
    year.run_phones()
    year.check()
    assert year.store
    assert list(fsck(year.store)) == []
    assert all(row.balanced and row.pending == 0 for row in year.store.ledger())
    assert year.books.oracle.unsettled() == []
    for phone in year.phones:
        check_phone(phone, begun[phone.name])
    told = {metric for phone in year.phones for metric in phone.said}
    assert told == {"gone", "mood", "paint", "rare", "size", "theme", "word"}


def check_phone(phone: Phone, begun: dict[str, int]) -> None:
    """Look at one budget in other words than the device's, and at its memos."""
    for name in ("gone", "mood", "paint", "rare", "size"):
        metric = SECOND.metrics.get(name) or FIRST.metrics[name]
        assert phone.spent.get(name, 0) == begun.get(name, 0) + phone.said[name] * metric.charge, (phone.name, name)
        assert phone.spent.get(name, 0) <= metric.reservation
    drawn = 0 if phone.name == "device-4" else 1  # a step ended its memos: all that was reserved for them is spent
    assert {name: len(memo) for name, memo in phone.memos.items()} == {"theme": drawn, "word": drawn}, phone.name
    assert phone.spent["theme"] == (10_000_000 if begun else 5_000_000)
    # At first, and where a memo has ended: the next one may be joined, which nobody has agreed to.
    assert phone.asked == (not begun or phone.name == "device-4") + phone.agrees
