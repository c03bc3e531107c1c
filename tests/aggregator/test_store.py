import gzip
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator import store as store_module
from dither_aggregator.records import Receipt, StoreError
from dither_aggregator.store import FILE_NAME, Store, exclusive
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire import GroupRefused, Problem, encode_upload, new_upload_id, parse_upload
from tests.support.clocks import Clock
from tests.support.registries import registry

EXPIRES = date(2026, 11, 20) + timedelta(days=100)
TODAY = date(2026, 11, 20)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asked() -> Registry:
    return registry(expires=EXPIRES)


@pytest.fixture
def store(tmp_path: Path, clock: Clock, asked: Registry) -> Iterator[Store]:
    with closing(Store(tmp_path, clock)) as made:
        made.load(asked)
        yield made


def body_of(asked: Registry, reports: dict[str, list[int]], upload_id: str = "") -> bytes:
    groups = [
        (name, asked.metrics[name].plan.digest, [asked.metrics[name].plan.mechanism.shape.to_wire(r) for r in values])
        for name, values in reports.items()
    ]
    return encode_upload(upload_id or new_upload_id(random.getrandbits), groups)


def append(store: Store, body: bytes) -> Receipt:
    (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
    assert isinstance(answer, Receipt), answer
    return answer


def fold_all(store: Store) -> int:
    return sum(iter(store.fold, 0))


def balance(store: Store) -> tuple[int, int, int]:
    rows = store.ledger()
    assert all(row.balanced for row in rows)
    return tuple(sum(getattr(row, name) for row in rows) for name in ("accepted", "folded", "pending"))


def test_reports_are_accepted_folded_and_counted(store: Store, asked: Registry) -> None:
    receipt = append(store, body_of(asked, {"color": [0, 0, 2], "dark": [1]}))
    assert (receipt.accepted, receipt.duplicate, receipt.rejected) == (4, False, [])
    assert balance(store) == (4, 0, 4)
    assert fold_all(store) == 4
    assert balance(store) == (4, 4, 0)
    tally = store.tally(asked.metrics["color"].plan, TODAY)
    assert (tally.n, tally.counts.tolist()) == (3, [2, 0, 1, 0])
    assert store.tally(asked.metrics["dark"].plan, TODAY).counts.tolist() == [0, 1]
    assert store.epochs(asked.metrics["dark"].plan) == [TODAY]


def test_an_upload_counts_once_however_often_it_comes(store: Store, asked: Registry) -> None:
    body = body_of(asked, {"dark": [1, 1]})
    first = append(store, body)
    for _ in range(5):
        again = append(store, body)
        assert (again.upload, again.accepted, again.duplicate) == (first.upload, 2, True)
    upload = parse_upload(body, store.find_plan)
    twice = store.append([(upload, body), (upload, body)])
    assert [isinstance(answer, Receipt) and answer.duplicate for answer in twice] == [True, True]
    fold_all(store)
    assert append(store, body).duplicate
    assert balance(store) == (2, 2, 0)


def test_an_id_with_another_body_is_a_conflict(store: Store, asked: Registry) -> None:
    upload_id = "AAECAwQFBgcICQoLDA0ODw"
    append(store, body_of(asked, {"dark": [1]}, upload_id))
    other = body_of(asked, {"dark": [0]}, upload_id)
    (answer,) = store.append([(parse_upload(other, store.find_plan), other)])
    assert isinstance(answer, Problem)
    assert answer.slug == "upload-conflict"
    assert balance(store) == (1, 0, 1)


def test_a_refused_group_is_told_again_to_a_copy(store: Store, asked: Registry) -> None:
    good = json.loads(body_of(asked, {"dark": [1]}))
    good["groups"].append({"metric": "nowhere", "plan": "0" * 16, "reports": [1, 2]})
    body = json.dumps(good).encode()
    refused = [{"group": 1, "reason": "unknown-metric", "count": 2}]
    assert append(store, body).rejected == refused
    assert append(store, body).rejected == refused
    assert balance(store) == (1, 0, 1)


def test_an_upload_with_nothing_acceptable_is_a_problem_and_is_not_remembered(store: Store, asked: Registry) -> None:
    body = body_of(registry(rev=9, expires=EXPIRES), {"dark": [1]})
    for _ in range(2):
        (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
        assert isinstance(answer, Problem)
        assert answer.slug == "refused"
        assert answer.to_document()["rejected"] == [{"group": 0, "reason": "unknown-plan", "count": 1}]
    assert store.ledger() == []


def test_an_expired_metric_is_taken_for_seven_days_more(store: Store, asked: Registry, clock: Clock) -> None:
    clock.travel(106)
    append(store, body_of(asked, {"dark": [1]}))
    clock.travel(1)
    body = body_of(asked, {"dark": [1]})
    (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
    assert isinstance(answer, Problem)
    assert answer.slug == "expired"


def test_unknown_metrics_and_plans_are_told_apart(store: Store) -> None:
    for metric, reason in (("dark", "unknown-plan"), ("light", "unknown-metric")):
        with pytest.raises(GroupRefused, match=reason):
            store.find_plan(metric, "0" * 16)


def test_ids_are_forgotten_after_seven_days_and_not_before(store: Store, asked: Registry, clock: Clock) -> None:
    body = body_of(asked, {"dark": [1]})
    append(store, body)
    clock.travel(7)
    store.forget_uploads()
    assert append(store, body).duplicate
    clock.travel(1)
    store.forget_uploads()
    assert not append(store, body).duplicate


def test_an_epoch_is_the_day_of_acceptance_and_never_goes_back(store: Store, asked: Registry, clock: Clock) -> None:
    plan = asked.metrics["dark"].plan
    append(store, body_of(asked, {"dark": [1]}))
    clock.travel(1)
    append(store, body_of(asked, {"dark": [1]}))
    clock.travel(-5)
    append(store, body_of(asked, {"dark": [0]}))
    fold_all(store)
    assert [store.tally(plan, TODAY + timedelta(days=day)).n for day in (-4, 0, 1)] == [0, 1, 2]
    assert store.today() == TODAY + timedelta(days=1)


def test_an_epoch_is_open_until_its_day_is_over_and_nothing_is_pending(
    store: Store, asked: Registry, clock: Clock
) -> None:
    plan = asked.metrics["dark"].plan
    append(store, body_of(asked, {"dark": [1]}))
    assert store.is_open(plan, TODAY)
    clock.travel(1)
    assert store.is_open(plan, TODAY)
    fold_all(store)
    assert not store.is_open(plan, TODAY)


def fill(store: Store, asked: Registry, uploads: int, seed: int = 1) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = random.Random(seed)
    expected = np.zeros(4, dtype=np.int64)
    for _ in range(uploads):
        reports = [rng.randrange(4) for _ in range(3)]
        append(store, body_of(asked, {"color": reports}))
        np.add.at(expected, reports, 1)
    return expected


def test_folds_of_any_size_and_compaction_keep_the_sums(
    store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FOLD_ROWS_MAX", 2)
    monkeypatch.setattr(store_module, "COMPACT_SEGMENTS", 5)
    plan = asked.metrics["color"].plan
    expected = np.zeros(4, dtype=np.int64)
    for step in range(6):
        expected += fill(store, asked, 7, seed=step)
        fold_all(store)
        assert store.tally(plan, TODAY).counts.tolist() == expected.tolist()
        store.compact()
        assert store.tally(plan, TODAY).counts.tolist() == expected.tolist()
        assert store.tally(plan, TODAY).n == expected.sum()
    assert balance(store) == (126, 126, 0)


def test_a_folder_that_was_overtaken_changes_nothing(
    store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder commits between this one's read and its commit."""
    expected = fill(store, asked, 4)
    segments = Store._segments

    def overtaken(self: Store, rows: object) -> object:
        monkeypatch.setattr(Store, "_segments", segments)
        assert self.fold() == 12
        return segments(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "_segments", overtaken)
    assert store.fold() == 0
    assert store.tally(asked.metrics["color"].plan, TODAY).counts.tolist() == expected.tolist()
    assert balance(store) == (12, 12, 0)


def test_many_folders_at_once_count_once(store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FOLD_ROWS_MAX", 3)
    expected = fill(store, asked, 40)

    def work() -> None:
        while store.pending():
            store.fold()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.tally(asked.metrics["color"].plan, TODAY).counts.tolist() == expected.tolist()
    assert balance(store) == (120, 120, 0)


def test_a_failed_commit_stores_nothing(store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = body_of(asked, {"dark": [1]}), body_of(asked, {"dark": [0]})
    uploads = [(parse_upload(body, store.find_plan), body) for body in (good, bad)]
    accept = Store._accept

    def fail_on_the_second(self: Store, *args: object) -> object:
        if args[0] is uploads[1][0]:
            raise sqlite3.OperationalError("disk full")
        return accept(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "_accept", fail_on_the_second)
    with pytest.raises(sqlite3.OperationalError):
        store.append(uploads)
    monkeypatch.undo()
    assert store.ledger() == []
    assert not append(store, good).duplicate


def test_a_ledger_that_does_not_balance_shows_it(store: Store, asked: Registry, tmp_path: Path) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("DELETE FROM log")
    assert [row.balanced for row in store.ledger()] == [False]


def test_a_damaged_log_is_not_folded(store: Store, asked: Registry, tmp_path: Path) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("UPDATE log SET reports = x'0101'")
    with pytest.raises(StoreError, match="does not hold the 1 reports"):
        store.fold()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("UPDATE log SET reports = x'07'")
    with pytest.raises(ValueError, match="beyond"):
        store.fold()
    assert balance(store) == (1, 0, 1)


def test_the_log_holds_no_upload_id_and_no_plain_id_is_kept(store: Store, asked: Registry, tmp_path: Path) -> None:
    body = body_of(asked, {"dark": [1]}, "AAECAwQFBgcICQoLDA0ODw")
    append(store, body)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"AAECAwQFBgcICQoLDA0ODw" not in stored
    assert bytes(range(16)) not in stored


def test_a_store_is_found_again(tmp_path: Path, clock: Clock, asked: Registry) -> None:
    with closing(Store(tmp_path, clock)) as first:
        first.load(asked)
        key = first.key
        append(first, body_of(asked, {"dark": [1]}))
    with closing(Store(tmp_path, clock)) as second:
        second.load(asked)
        assert second.key == key
        assert fold_all(second) == 1
    with closing(Store(tmp_path, clock, read_only=True)) as reader:
        assert balance(reader) == (1, 1, 0)


def test_old_plans_stay_accepted_beside_the_new_one(store: Store, asked: Registry) -> None:
    changed = registry(rev=2, values=("cyan", "ochre"), expires=EXPIRES)
    store.load(changed)
    append(store, body_of(asked, {"color": [3]}))
    append(store, body_of(changed, {"color": [2, 1]}))
    fold_all(store)
    plans = [stored.plan for stored in store.plans("color")]
    assert [plan.rev for plan in plans] == [2, 1]
    assert [stored.current for stored in store.plans("color")] == [True, False]
    assert [store.tally(plan, TODAY).counts.tolist() for plan in plans] == [[0, 1, 1], [0, 0, 0, 1]]


def test_a_rev_with_another_meaning_is_refused(store: Store, asked: Registry) -> None:
    with pytest.raises(StoreError, match=r"metric\.color: rev 1 was loaded before with another meaning"):
        store.load(registry(values=("cyan", "ochre"), expires=EXPIRES))
    assert [stored.plan for stored in store.plans("color")] == [asked.metrics["color"].plan]


def test_a_new_expiry_or_question_is_taken_up(store: Store) -> None:
    store.load(registry(expires=EXPIRES + timedelta(days=9), reports=1))
    assert {(stored.expires, stored.epsilon_lifetime) for stored in store.plans()} == {(EXPIRES + timedelta(days=9), 2)}


def test_another_apps_registry_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="belongs to the app 'example' and the registry to 'other_app'"):
        store.load(registry(app="other_app"))


def test_unusable_stores_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no store"):
        Store(tmp_path, read_only=True)
    (tmp_path / FILE_NAME).write_bytes(gzip.compress(random.Random(1).randbytes(9000)))
    with pytest.raises(StoreError, match="cannot be used: file is not a database"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / FILE_NAME)
    other = tmp_path / "other"
    Store(other).close()
    with closing(sqlite3.connect(other / FILE_NAME)) as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match="version 7; this dither reads 2"):
        Store(other)


def test_a_directory_is_served_once(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(StoreError, match="is being served already"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_plans_are_stored_whole(store: Store, asked: Registry) -> None:
    assert [stored.plan for stored in store.plans()] == [metric.plan for metric in asked.metrics.values()]
    assert all(isinstance(stored.plan, Plan) for stored in store.plans())
    assert {stored.epsilon_lifetime for stored in store.plans()} == {6.0}
