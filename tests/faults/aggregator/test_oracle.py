"""The oracle itself: that it knows what was sent, and that it sees what it is there to see."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.counting import fold_cells
from dither_aggregator.store import Receipt, SQLiteStore, Store, StoreUnavailable
from dither_aggregator.store.records import LogRead, fold_read
from dither_shared.shapes import Bits, Subsets, Symbols
from dither_shared.wire.reading import Problem, Upload, parse_upload
from tests.faults.aggregator.editions import APP, editions
from tests.faults.aggregator.oracle import Oracle
from tests.faults.aggregator.places import FIRST_DAY, NOON
from tests.faults.aggregator.uploads import BAD_REPORT, UNKNOWN_METRIC, UNKNOWN_PLAN, Uploads, count
from tests.support.clocks import DAY_S, Clock

REGISTRY, *_ = editions(FIRST_DAY)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON.timestamp())


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with closing(SQLiteStore.create(tmp_path / "store", APP, clock)) as made:
        made.load(REGISTRY)
        yield made


@pytest.fixture
def oracle() -> Oracle:
    return Oracle("oracle", REGISTRY)


def parsed(store: Store, body: bytes) -> Upload:
    return parse_upload(body, store.find_plan)


def send(store: Store, oracle: Oracle, id_: str, *, told: bool = True, body: bytes | None = None) -> None:
    """Append an upload, and tell the oracle what was answered, or that nothing was."""
    body = body or oracle.body(id_)
    (answer,) = store.append([(parsed(store, body), body)])
    if not told:
        oracle.unknown(id_, body=body)
    elif isinstance(answer, Receipt):
        oracle.acknowledged(id_, answer.to_document(), body=body)
    else:
        oracle.refused(id_, answer.to_document(), body=body)


def ledger(store: Store) -> list[dict[str, object]]:
    return [vars(row) for row in store.ledger()]


def test_uploads_have_every_shape_fault_and_number_of_groups() -> None:
    uploads = Uploads(1, [REGISTRY])
    drawn = [uploads.draw() for _ in range(200)]
    groups = [group for sent in drawn for group in sent.groups]
    shapes = {uploads.plans[group.plan].mechanism.shape for group in groups if not group.fault}
    assert {type(shape) for shape in shapes} == {Symbols, Bits, Subsets}
    assert any(uploads.plans[group.plan].cells.several for group in groups if not group.fault)
    assert {shape.listed for shape in shapes if isinstance(shape, Subsets)} == {False, True}
    assert {group.fault for group in groups} == {"", UNKNOWN_METRIC, UNKNOWN_PLAN, BAD_REPORT}
    assert {1, 50} <= {len(sent.groups) for sent in drawn}


def test_counting_one_by_one_agrees_with_the_fold() -> None:
    uploads = Uploads(1, [REGISTRY])
    for group in (group for _ in range(40) for group in uploads.draw().groups):
        if not group.fault:
            cells = uploads.plans[group.plan].cells
            counted = count(cells, group.cell, group.packed, group.n)
            assert counted is not None
            assert counted.tolist() == [group.n, *fold_cells(cells, {group.cell: group.packed})]


def test_damaged_groups_are_not_countable_for_anybody() -> None:
    uploads = Uploads(1, [REGISTRY])
    for group in (uploads.damaged().groups[-1] for _ in range(100)):
        cells = uploads.plans[group.plan].cells
        shape = cells.mechanism_of(group.cell).shape
        assert count(cells, group.cell, group.packed, group.n) is None
        if len(group.packed) == group.n * shape.width:
            with pytest.raises(ValueError, match=r"lies beyond|must name"):
                fold_cells(cells, {group.cell: group.packed})


@pytest.mark.parametrize("stored", [True, False])
def test_an_upload_without_an_answer_may_be_there_or_not(store: Store, oracle: Oracle, stored: bool) -> None:
    for _ in range(12):
        id_, _ = oracle.upload()
        if stored:
            send(store, oracle, id_, told=False)
        else:
            oracle.unknown(id_)
    oracle.check(store)
    oracle.check_ledger(ledger(store))
    for id_ in oracle.unsettled():
        send(store, oracle, id_)
    assert oracle.unsettled() == []
    oracle.check(store)


def lose_one(store: Store, oracle: Oracle) -> None:
    id_, body = oracle.upload()
    answer = parsed(store, body)
    oracle.acknowledged(id_, Receipt(id_, sum(group.count for group in answer.groups), False, rejected_of(answer)))


def rejected_of(upload: Upload) -> list[dict[str, object]]:
    return [refusal.to_document() for refusal in upload.refused]


def store_half_of_one(store: Store, oracle: Oracle) -> None:
    while True:
        id_, body = oracle.upload()
        upload = parsed(store, body)
        if len(upload.groups) > 1:
            break
    store.append([(Upload(upload.id, upload.groups[1:], upload.refused), body)])
    oracle.unknown(id_)


def store_one_twice(store: Store, oracle: Oracle) -> None:
    id_, body = oracle.upload()
    send(store, oracle, id_)
    other = Upload("A" * 22, parsed(store, body).groups, ())
    store.append([(other, b"")])


def fold_one_wrong(store: Store, oracle: Oracle) -> None:
    send(store, oracle, oracle.upload()[0])
    read = store.read_log(0)
    groups = [group._replace(reports=bytes(len(group.reports))) for group in read.groups]
    cells = {stored.id: stored.plan.cells for stored in store.plans()}
    store.commit_fold(0, read, *fold_read(LogRead(read.low, read.high, groups, read.mark), cells))


WRONGS: list[Callable[[Store, Oracle], None]] = [lose_one, store_half_of_one, store_one_twice, fold_one_wrong]


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda wrong: wrong.__name__)
def test_what_is_wrong_is_said(store: Store, oracle: Oracle, wrong: Callable[[Store, Oracle], None]) -> None:
    for _ in range(5):
        send(store, oracle, oracle.upload()[0])
    for _ in range(4):
        send(store, oracle, oracle.upload()[0], told=False)
    oracle.check(store)
    wrong(store, oracle)
    with pytest.raises(AssertionError, match=r"what is stored is not what was acknowledged: \w+, plan \w+, on None:"):
        oracle.check(store)


def test_a_receipt_must_be_that_of_the_upload(store: Store, oracle: Oracle) -> None:
    id_, body = oracle.upload()
    other, _ = oracle.upload()
    (receipt,) = store.append([(parsed(store, body), body)])
    assert isinstance(receipt, Receipt)
    with pytest.raises(AssertionError, match="was given to"):
        oracle.acknowledged(other, receipt)
    with pytest.raises(AssertionError, match=r"reports of .* were accepted, it holds"):
        oracle.acknowledged(id_, {**receipt.to_document(), "accepted": receipt.accepted + 1})
    with pytest.raises(AssertionError, match="is said to be a copy, and never came before"):
        oracle.acknowledged(id_, {**receipt.to_document(), "duplicate": True})
    oracle.acknowledged(id_, receipt)
    with pytest.raises(AssertionError, match="was accepted twice"):
        oracle.acknowledged(id_, receipt)


def test_a_copy_may_count_again_when_its_id_is_forgotten(
    store: Store, oracle: Oracle, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither_aggregator.store.sqlite.sqlite_store.DEDUPE_DAYS_MIN", 0)
    id_, _ = oracle.upload()
    send(store, oracle, id_)
    clock.now += 8 * DAY_S
    store.forget(0)
    with pytest.raises(AssertionError, match="was accepted twice"):
        send(store, oracle, id_)  # nobody said which day it is
    by_day = Oracle("oracle", REGISTRY)
    body = by_day.upload()[1]
    rejected = rejected_of(parsed(store, body))
    n = sum(group.count for group in parsed(store, body).groups)
    by_day.acknowledged(id_, Receipt(id_, n, False, rejected), epoch=FIRST_DAY)
    by_day.acknowledged(id_, Receipt(id_, n, False, rejected), epoch=store.today())
    by_day.check(store)


def test_another_body_under_an_id_conflicts_once_one_is_stored(store: Store, oracle: Oracle) -> None:
    id_, _ = oracle.upload()
    other = oracle.another_body(id_)
    send(store, oracle, id_, told=False)
    send(store, oracle, id_, body=other)
    assert oracle.unsettled() == []
    oracle.check(store)


def test_a_conflict_tells_nothing_of_an_attempt_when_the_id_was_stored_before_it(
    store: Store, oracle: Oracle, clock: Clock
) -> None:
    """An id may be kept for longer than it must: the conflict is with what was stored under it then."""
    id_, body = oracle.upload()
    other = oracle.another_body(id_)

    def append(body: bytes) -> Receipt | Problem:
        (answer,) = store.append([(parsed(store, body), body)])
        return answer

    first = append(body)
    assert isinstance(first, Receipt)
    oracle.acknowledged(id_, first, epoch=store.today())
    clock.travel(8)
    append(body)
    oracle.unknown(id_, epoch=store.today())
    problem = append(other)
    assert isinstance(problem, Problem)
    oracle.refused(id_, problem, body=other, epoch=store.today())
    assert oracle.unsettled() == [id_]
    oracle.check(store)


def test_a_store_that_fails_is_not_one_that_is_wrong(oracle: Oracle, tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, APP)) as made:
        made.close()
        with pytest.raises(StoreUnavailable):
            oracle.check(made)
