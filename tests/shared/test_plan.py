"""Plans are the same on every machine and in every release: their digests are pinned."""

import json
from pathlib import Path
from typing import Any

import pytest

from dither_shared.domains import Verbatim
from dither_shared.frozen import replaced
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import DEVICE, GRR, Cells, Part, one_cell
from dither_shared.plan import Plan
from tests.support.registries import VALUES, registry

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "plans.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_plans_are_pinned_and_come_back_the_same_from_where_they_are_stored(vector: dict[str, Any]) -> None:
    plan = registry(**vector["registry"]).metrics[vector["metric"]].plan
    assert plan.to_document() == vector["plan"]
    assert plan.digest == vector["digest"]
    assert plan.memo_key == vector["memo_key"]
    again = Plan.from_document(json.loads(json.dumps(plan.to_document())))
    assert again == plan
    assert again.digest == plan.digest


def test_whatever_changes_a_reports_meaning_changes_the_digest() -> None:
    plan = registry().metrics["color"].plan
    changed = [
        registry(rev=2).metrics["color"].plan,
        registry(epsilon="2.000001").metrics["color"].plan,
        registry(values=("green", "red", "blue")).metrics["color"].plan,
        registry(values=("red", "green")).metrics["color"].plan,
        replaced(plan, presence="hidden"),
        replaced(plan, kind=KINDS["choices"]),
        replaced(plan, domain=Verbatim()),
        replaced(plan, cells=one_cell(GRR(4, 2**63))),
        replaced(plan, cells=Cells((Part(plan.mechanism, 2),))),
        replaced(plan, cells=Cells((Part(plan.mechanism, 2),), DEVICE)),
        replaced(plan, cells=Cells((Part(plan.mechanism, 1), Part(plan.mechanism, 1, 2)))),
    ]
    digests = {plan.digest, *(other.digest for other in changed)}
    assert len(digests) == 1 + len(changed)


def test_what_does_not_change_it_leaves_the_digest() -> None:
    plan = registry().metrics["color"].plan
    same = registry(reports=1, period="7d", quiet_days=3, device_epsilon="19", schedule="spread").metrics["color"].plan
    assert same.digest == plan.digest


def test_a_memo_outlives_what_its_permanent_part_does_not_depend_on() -> None:
    asked: dict[str, Any] = {"epsilon": "1", "epsilon_permanent": "4"}
    plan = registry(**asked).metrics["color"].plan
    same: list[dict[str, Any]] = [{"rev": 2}, {"epsilon": "0.5"}, {"answers": 1}]
    for changes in same:
        assert registry(**asked | changes).metrics["color"].plan.memo_key == plan.memo_key
    other: list[dict[str, Any]] = [{"epsilon_permanent": "5"}, {"values": ("red", "green")}, {"values": VALUES[::-1]}]
    for changes in other:
        assert registry(**asked | changes).metrics["color"].plan.memo_key != plan.memo_key
    assert registry().metrics["color"].plan.memo_key == ""


def test_another_number_of_cohorts_is_another_memo() -> None:
    """A text has other bits in another cohort: the classes that a device has paid would no longer be its texts."""
    keys = set()
    for m in (32, 64):
        parameters = f"parameters = {{ k = 16, h = 2, m = {m}, f = 0.5, p = 0.5, q = 0.75 }}"
        asked = registry(kind="text", epsilon="1.074286", epsilon_permanent="4.39445", color=parameters)
        keys.add(asked.metrics["color"].plan.memo_key)
    assert len(keys) == 2
