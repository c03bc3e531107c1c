"""Both stores keep plans whole and side by side, and one process at a time changes them."""

import json
import threading
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.documents import Offered, Plans
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire.reading import GroupRefused, Problem
from tests.support.registries import registry
from tests.support.stores import Place, answer, append, balance, body_of, fold_all


def test_plans_are_stored_whole(place: Place, store: Store, asked: Registry) -> None:
    for one in (store, place.open()):
        assert [stored.plan for stored in one.plans()] == [metric.plan for metric in asked.metrics.values()]
        assert all(isinstance(stored.plan, Plan) for stored in one.plans())
        assert {stored.epsilon_lifetime for stored in one.plans()} == {6.0}
        assert [one.plan_by_id(stored.id) for stored in one.plans()] == one.plans()


def test_a_store_is_found_again(place: Place, store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"dark": [1]}))
    again = place.open()
    assert (again.app, again.generation, again.shards) == (store.app, store.generation, store.shards)
    fold_all(again)
    assert balance(store) == (1, 1, 0, 0)


def test_unknown_metrics_and_plans_are_told_apart(store: Store) -> None:
    for metric, reason in (("dark", "unknown-plan"), ("light", "unknown-metric")):
        with pytest.raises(GroupRefused, match=reason):
            store.find_plan(metric, "0" * 16)


def test_a_plan_of_another_store_is_a_key_error(store: Store) -> None:
    with pytest.raises(KeyError):
        store.stored(registry(rev=7).metrics["dark"].plan)
    with pytest.raises(KeyError):
        store.plan_by_id(99)


def test_an_expired_metric_is_taken_for_seven_days_more(place: Place, store: Store, asked: Registry) -> None:
    place.travel(106)
    append(store, body_of(asked, {"dark": [1]}))
    place.travel(1)
    problem = answer(store, body_of(asked, {"dark": [1]}))
    assert isinstance(problem, Problem)
    assert problem.slug == "expired"


def test_old_plans_stay_accepted_beside_the_new_one(place: Place, store: Store, asked: Registry) -> None:
    changed = registry(rev=2, values=("cyan", "ochre"), expires=place.day(100))
    store.load(changed)
    append(store, body_of(asked, {"color": [3]}))
    append(store, body_of(changed, {"color": [2, 1]}))
    fold_all(store)
    plans = [stored.plan for stored in store.plans("color")]
    assert [plan.rev for plan in plans] == [2, 1]
    assert [stored.current for stored in store.plans("color")] == [True, False]
    assert [store.tally(plan, place.day()).counts.tolist() for plan in plans] == [[2, 0, 1, 1], [1, 0, 0, 0, 1]]
    rows = [(row.metric, row.plan, row.epoch, row.accepted) for row in store.ledger()]
    assert sorted(rows) == sorted(
        ("color", plan.digest, place.day().isoformat(), n) for plan, n in zip(plans, (2, 1), strict=True)
    )


def test_a_rev_with_another_meaning_is_refused(store: Store, asked: Registry) -> None:
    with pytest.raises(StoreError, match=r"metric\.color: rev 1 was loaded before with another meaning"):
        store.load(registry(values=("cyan", "ochre")))
    assert [stored.plan for stored in store.plans("color")] == [asked.metrics["color"].plan]


def test_a_new_expiry_or_question_is_taken_up(place: Place, store: Store) -> None:
    store.load(registry(expires=place.day(109), reports=1))
    assert {(stored.expires, stored.epsilon_lifetime) for stored in store.plans()} == {(place.day(109), 2)}


def test_another_apps_registry_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="belongs to the app 'example' and the registry to 'other_app'"):
        store.load(registry(app="other_app"))


def test_a_retired_plan_is_refused_until_it_is_taken_back(place: Place, store: Store, asked: Registry) -> None:
    store.retire("dark", 1)
    problem = answer(store, body_of(asked, {"dark": [1]}))
    assert isinstance(problem, Problem)
    assert problem.to_document()["rejected"] == [{"group": 0, "reason": "retired", "count": 1}]
    store.load(asked)
    assert [stored.retired for stored in store.plans("dark")] == [True]
    store.retire("dark", 1, retired=False)
    append(place.open(), body_of(asked, {"dark": [1]}))
    with pytest.raises(StoreError, match=r"there is no rev 5 of metric 'dark'; there is 1"):
        store.retire("dark", 5)
    with pytest.raises(StoreError, match="there is no metric 'light'; there is color, dark"):
        store.retire("light", 1)


def test_another_process_learns_of_a_change_with_its_next_refresh(place: Place, store: Store, asked: Registry) -> None:
    other = place.open()
    store.retire("dark", 1)
    assert [stored.retired for stored in other.plans("dark")] == [False]
    other.refresh()
    assert [stored.retired for stored in other.plans("dark")] == [True]
    other.load(registry(rev=2, values=("cyan",)))
    store.refresh()
    assert [stored.plan.rev for stored in store.plans("color")] == [2, 1]


def test_plans_are_stored_only_over_the_version_that_was_read(
    place: Place, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process loads a registry between this one's look at the plans and its change: it looks again."""
    other = place.open()
    save = store._save
    stored: list[bool] = []

    def overtaken(*args: Any) -> bool:
        if not stored:
            other.load(registry(rev=2, values=("cyan",), expires=place.day() + timedelta(days=50)))
        stored.append(save(*args))
        return stored[-1]

    monkeypatch.setattr(store, "_save", overtaken)
    store.retire("dark", 1)
    assert stored == [False, True]
    other.refresh()
    found = {(item.plan.metric, item.plan.rev): (item.current, item.retired) for item in other.plans()}
    assert found == {
        ("color", 1): (False, False),
        ("color", 2): (True, False),
        ("dark", 1): (False, True),
        ("dark", 2): (True, False),
    }


def test_plans_that_change_all_the_time_are_an_error(
    place: Place, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_save", lambda *arguments: False)
    with pytest.raises(StoreError, match="by somebody else all the time"):
        store.retire("dark", 1)


def test_registries_loaded_at_once_all_arrive(place: Place, store: Store) -> None:
    asked = [registry(rev=rev, values=("cyan", "ochre")[: rev % 2 + 1]) for rev in range(2, 6)]
    stores = [place.open() for _ in asked]
    threads = [threading.Thread(target=one.load, args=(it,)) for one, it in zip(stores, asked, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.refresh()
    assert sorted(item.plan.rev for item in store.plans("color")) == [1, 2, 3, 4, 5]
    assert len({item.id for item in store.plans()}) == 10
    assert sum(item.current for item in store.plans("color")) == 1


def test_a_load_that_is_overtaken_within_its_process_takes_nothing_from_the_other(
    place: Place, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between this load's look at the plans and its write, another process loads and a thread here refreshes."""
    other, second, third = place.open(), registry(rev=2, values=("cyan", "ochre")), registry(rev=3, values=("teal",))
    loading = Plans.loading

    def overtaken(self: Plans, offered: Offered, today: date) -> list[StoredPlan]:
        monkeypatch.setattr(Plans, "loading", loading)
        made = loading(self, offered, today)
        other.load(second)
        store.refresh()
        return made

    monkeypatch.setattr(Plans, "loading", overtaken)
    store.load(third)
    assert sorted(stored.plan.rev for stored in store.plans("color")) == [1, 2, 3]
    assert len({stored.id for stored in store.plans()}) == len(store.plans())
    assert {stored.plan.rev for stored in store.plans("color") if stored.current} == {3}


@pytest.mark.parametrize(
    "damage",
    [
        lambda plan: plan.update(domain=None),
        lambda plan: plan.update(kind="rumour"),
        lambda plan: plan["domain"].update(domain="rumours"),
        lambda plan: plan["domain"].update(last=3),
        lambda plan: plan["cells"].update(drawn="app"),
        lambda plan: plan["cells"]["parts"][0].update(cells=1.0),
        lambda plan: plan["cells"]["parts"][0].update(mechanism="laplace"),
        lambda plan: plan["cells"]["parts"][0]["parameters"].update(d=4.0),
        lambda plan: plan["cells"]["parts"][0]["parameters"].clear(),
        lambda plan: plan.clear(),
    ],
)
def test_a_damaged_plan_is_refused_in_words(asked: Registry, damage: Callable[[dict[str, Any]], None]) -> None:
    metric = asked.metrics["color"]
    stored = StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)
    document: dict[str, Any] = json.loads(json.dumps(stored.to_document()))
    assert StoredPlan.read(json.dumps(document)) == stored
    damage(document["plan"])
    for text in (json.dumps(document), json.dumps(document)[:-1]):
        with pytest.raises(StoreError, match="damaged"):
            StoredPlan.read(text)
