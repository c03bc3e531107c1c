"""Plans are the same on every machine and in every release: their digests are pinned."""

import json
from pathlib import Path

import pytest

from dither_shared.mechanisms import GRR
from dither_shared.plan import Plan
from tests.support.registries import registry

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "plans.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_plans_are_pinned(vector: dict[str, object]) -> None:
    plan = registry(**vector["registry"]).metrics[str(vector["metric"])].plan  # type: ignore[arg-type]
    assert plan.mechanism.name == vector["mechanism"]
    assert plan.mechanism.parameters() == vector["parameters"]
    assert plan.digest == vector["digest"]


def test_a_stored_plan_comes_back_the_same() -> None:
    plan = registry().metrics["color"].plan
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
        Plan(plan.metric, plan.rev, "hidden", plan.values, plan.mechanism),
        Plan(plan.metric, plan.rev, plan.presence, plan.values, GRR(4, 2**63)),
    ]
    digests = {plan.digest, *(other.digest for other in changed)}
    assert len(digests) == 1 + len(changed)


def test_what_does_not_change_it_leaves_the_digest() -> None:
    plan = registry().metrics["color"].plan
    same = registry(reports=1, period="7d", quiet_days=3, device_epsilon="19", schedule="spread").metrics["color"].plan
    assert same.digest == plan.digest
