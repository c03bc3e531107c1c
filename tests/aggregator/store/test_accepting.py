"""Both stores take each upload once, answer its copies alike, and count it on a day that never goes back."""

import json
import threading
from datetime import date

from dither_aggregator.store import Receipt, Store
from dither_aggregator.store.contract import DEDUPE_DAYS_MIN
from dither_shared.registry import Registry
from dither_shared.wire.reading import Problem
from tests.support.registries import registry
from tests.support.stores import Place, answer, append, balance, body_in, body_of, fold_all, parsed

ID = "AAECAwQFBgcICQoLDA0ODw"


def test_reports_are_accepted_folded_and_counted(place: Place, store: Store, asked: Registry) -> None:
    receipt = append(store, body_of(asked, {"color": [0, 0, 2], "dark": [1]}))
    assert (receipt.accepted, receipt.duplicate, list(receipt.rejected)) == (4, False, [])
    assert balance(store) == (4, 0, 4, 0)
    fold_all(store)
    assert balance(store) == (4, 4, 0, 0)
    tally = store.tally(asked.metrics["color"].plan, place.day())
    assert (tally.n, tally.counts.tolist()) == (3, [3, 2, 0, 1, 0])
    assert store.tally(asked.metrics["dark"].plan, place.day()).counts.tolist() == [1, 0, 1]
    assert store.epochs(asked.metrics["dark"].plan) == [place.day()]


def test_nothing_is_zeros(place: Place, store: Store, asked: Registry) -> None:
    tally = store.tally(asked.metrics["color"].plan, place.day())
    assert (tally.n, tally.counts.tolist()) == (0, [0, 0, 0, 0, 0])
    assert store.epochs(asked.metrics["color"].plan) == []
    assert store.ledger() == []
    assert store.append([]) == []


def test_an_upload_counts_once_however_often_it_comes(store: Store, asked: Registry) -> None:
    body = body_of(asked, {"dark": [1, 1]})
    first = append(store, body)
    for _ in range(5):
        again = append(store, body)
        assert (again.upload, again.accepted, again.duplicate) == (first.upload, 2, True)
    twice = store.append([parsed(store, body)] * 2)
    assert [isinstance(one, Receipt) and one.duplicate for one in twice] == [True, True]
    fold_all(store)
    assert append(store, body).duplicate
    assert balance(store) == (2, 2, 0, 0)


def test_copies_in_one_batch_count_once(store: Store, asked: Registry) -> None:
    one, other = body_of(asked, {"dark": [1]}), body_of(asked, {"color": [2, 2]})
    answers = store.append([parsed(store, body) for body in (one, other, one, other, one)])
    receipts = [item for item in answers if isinstance(item, Receipt)]
    assert [(receipt.accepted, receipt.duplicate) for receipt in receipts] == [
        (1, False),
        (2, False),
        (1, True),
        (2, True),
        (1, True),
    ]
    assert balance(store) == (3, 0, 3, 0)


def test_a_batch_is_answered_in_its_order_whatever_the_shards(store: Store, asked: Registry) -> None:
    sizes = range(1, 60)
    bodies = [body_of(asked, {"color": [1] * size}) for size in sizes]
    answers = store.append([parsed(store, body) for body in bodies])
    assert [item.accepted for item in answers if isinstance(item, Receipt)] == list(sizes)
    assert [item.upload for item in answers if isinstance(item, Receipt)] == [
        json.loads(body)["upload"] for body in bodies
    ]
    assert balance(store) == (sum(sizes), 0, sum(sizes), 0)


def test_a_large_batch_is_taken_whole(store: Store, asked: Registry) -> None:
    bodies = [body_in(store, 0, asked, {"dark": [1]}) for _ in range(600)]
    answers = store.append([parsed(store, body) for body in [*bodies, *bodies]])
    assert [item.duplicate for item in answers if isinstance(item, Receipt)] == [False] * 600 + [True] * 600
    assert balance(store) == (600, 0, 600, 0)


def test_an_id_with_another_body_is_a_conflict(store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}, ID))
    other = body_of(asked, {"dark": [0]}, ID)
    conflict = answer(store, other)
    assert isinstance(conflict, Problem)
    assert conflict.slug == "upload-conflict"
    one, two = store.append([parsed(store, other), parsed(store, body_of(asked, {"dark": [1]}, ID))])
    assert isinstance(one, Problem)
    assert isinstance(two, Receipt)
    assert two.duplicate
    assert balance(store) == (1, 0, 1, 0)


def test_an_id_with_another_body_in_the_same_batch_is_a_conflict(store: Store, asked: Registry) -> None:
    bodies = [body_of(asked, {"dark": [report]}, ID) for report in (1, 0)]
    first, second = store.append([parsed(store, body) for body in bodies])
    assert isinstance(first, Receipt)
    assert isinstance(second, Problem)
    assert second.slug == "upload-conflict"
    assert balance(store) == (1, 0, 1, 0)


def test_a_refused_group_is_told_again_to_a_copy(store: Store, asked: Registry) -> None:
    good = json.loads(body_of(asked, {"dark": [1]}))
    good["groups"].append({"metric": "nowhere", "plan": "0" * 16, "reports": [1, 2]})
    body = json.dumps(good).encode()
    refused = [{"group": 1, "reason": "unknown-metric", "count": 2}]
    assert append(store, body).rejected == refused
    assert append(store, body).rejected == refused
    assert balance(store) == (1, 0, 1, 0)


def test_an_upload_with_nothing_acceptable_is_a_problem_and_is_not_remembered(store: Store, asked: Registry) -> None:
    body = body_of(registry(rev=9), {"dark": [1]}, ID)
    for _ in range(2):
        problem = answer(store, body)
        assert isinstance(problem, Problem)
        assert problem.slug == "refused"
        assert problem.to_document()["rejected"] == [{"group": 0, "reason": "unknown-plan", "count": 1}]
    assert store.ledger() == []
    assert not append(store, body_of(asked, {"dark": [1]}, ID)).duplicate


def test_a_copy_of_which_nothing_is_acceptable_any_more_is_a_copy(store: Store, asked: Registry) -> None:
    """It is no upload that is refused, though the plan was retired since: its reports are counted."""
    body = body_of(asked, {"dark": [1]})
    append(store, body)
    store.retire("dark", 1)
    again = answer(store, body)
    assert isinstance(again, Receipt)
    assert (again.accepted, again.duplicate) == (0, True)
    assert again.rejected == [{"group": 0, "reason": "retired", "count": 1}]
    assert balance(store) == (1, 0, 1, 0)


def test_one_upload_from_many_threads_is_taken_once(store: Store, asked: Registry) -> None:
    body = body_of(asked, {"dark": [1, 0, 1]})
    receipts: list[Receipt] = []

    def send() -> None:
        for _ in range(5):
            receipts.append(append(store, body))

    _run_all(send, 8)
    assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 39
    assert balance(store) == (3, 0, 3, 0)


def test_many_threads_append_beside_each_other(store: Store, asked: Registry) -> None:
    def send() -> None:
        for _ in range(10):
            batch = [parsed(store, body_of(asked, {"color": [1], "dark": [1, 1]})) for _ in range(5)]
            assert all(isinstance(item, Receipt) and not item.duplicate for item in store.append(batch))

    _run_all(send, 6)
    assert balance(store) == (900, 0, 900, 0)


def _run_all(work: object, number: int) -> None:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# Days.


def test_ids_are_remembered_for_seven_days_and_then_forgotten(place: Place, store: Store, asked: Registry) -> None:
    bodies = [body_in(store, shard, asked, {"dark": [1]}) for shard in range(store.shards)]
    for body in bodies:
        append(store, body)
    place.travel(7)
    _forget_all(store)
    for body in bodies:
        assert append(store, body).duplicate
    _pass_days_with_uploads(place, store, asked)
    _forget_all(store)
    for body in bodies:
        assert not append(store, body).duplicate


def test_a_clock_that_leaps_ahead_and_back_forgets_nothing(place: Place, store: Store, asked: Registry) -> None:
    """The days that were leapt over have no uploads of their own: the ids of the last eight that have are kept."""
    bodies = [body_in(store, shard, asked, {"dark": [1]}) for shard in range(store.shards)]
    for body in bodies:
        append(store, body)
    place.travel(30)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    _forget_all(store)
    place.travel(-30)
    _forget_all(store)
    for body in bodies:
        assert append(store, body).duplicate


def _pass_days_with_uploads(place: Place, store: Store, asked: Registry) -> None:
    for _ in range(DEDUPE_DAYS_MIN):
        place.travel(1)
        for shard in range(store.shards):
            append(store, body_in(store, shard, asked, {"dark": [1]}))


def test_forgetting_is_not_needed_to_be_remembered_anew(place: Place, store: Store, asked: Registry) -> None:
    body = body_in(store, 0, asked, {"dark": [1]})
    append(store, body)
    _pass_days_with_uploads(place, store, asked)
    _forget_all(store)
    assert not append(store, body).duplicate
    place.travel(7)
    assert append(store, body).duplicate
    _forget_all(store)
    assert append(store, body).duplicate


def _forget_all(store: Store) -> None:
    for shard in range(store.shards):
        store.forget(shard)


def test_an_epoch_is_the_day_of_acceptance_and_never_goes_back(place: Place, store: Store, asked: Registry) -> None:
    plan = asked.metrics["dark"].plan
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.travel(1)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.travel(-5)
    append(store, body_in(store, 0, asked, {"dark": [0]}))
    fold_all(store)
    assert [store.tally(plan, place.day(day)).n for day in (-4, 0, 1)] == [0, 1, 2]
    assert store.epochs(plan) == [place.day(1), place.day()]
    assert store.today() == place.day(1)
    assert store.clock_day() == place.day(-4)


def test_the_day_does_not_go_back_in_a_store_that_is_opened_again(place: Place, store: Store, asked: Registry) -> None:
    place.travel(3)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    place.travel(-3)
    again = place.open()
    append(again, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(again)
    assert again.tally(asked.metrics["dark"].plan, place.day(3)).n == 2


def test_a_clock_that_is_behind_is_told(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    assert store.trouble() == {}
    place.travel(-2)
    (trouble,) = store.trouble().items()
    assert trouble[0] == "clock"
    assert str(place.day()) in trouble[1]


def test_another_process_takes_up_the_moved_clock(place: Place, store: Store) -> None:
    other = place.open()
    place.travel(2)
    assert (store.clock_day(), other.clock_day()) == (place.day(2), place.day(2))
    assert all(shard.clock_day == place.day(2) for shard in other.status())


# The stored content.


def test_no_id_is_kept(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}, ID))
    stored = place.content()
    assert ID.encode() not in stored
    assert bytes(range(16)) not in stored


def test_status_counts_uploads(place: Place, store: Store, asked: Registry) -> None:
    before = store.status()
    assert [(one.shard, one.written, one.cursor, one.backlog, one.waiting_s) for one in before] == [
        (shard, 0, 0, 0, 0.0) for shard in range(store.shards)
    ]
    for _ in range(3):
        append(store, body_in(store, 0, asked, {"dark": [1, 1]}))
    status = store.status()[0]
    assert (status.written, status.cursor, status.backlog, status.day) == (3, 0, 3, place.day())
    assert store.backlog() == 3
    place.travel(1 / 24)
    assert 3_590 < store.status()[0].waiting_s < 3_700
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    assert store.status()[0].waiting_s > 3_590
    fold_all(store)
    status = store.status()[0]
    assert (status.written, status.cursor, status.backlog, status.waiting_s) == (4, 4, 0, 0.0)
    assert status.sealed < place.day()
    assert isinstance(status.sealed, date)
