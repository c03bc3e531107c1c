"""Pure Python's estimates are those of the aggregator."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from dither.testing import new_metric
from dither_aggregator.analysis import pure
from dither_aggregator.counting import support_counts
from dither_shared.errors import InvalidParameter
from dither_shared.estimating import estimate_shares
from dither_shared.mechanisms import PureMechanism
from dither_shared.plan import Plan
from dither_shared.rng import Rng

CASES = {
    "grr": ("choice", {"values": ["a", "b", "c"], "epsilon": 2}),
    "ss": ("choice", {"values": list("abcdefghij"), "epsilon": 1}),
    "pgr": ("choice", {"values": list("abcdefghij"), "epsilon": 1, "mechanism": "pgr"}),
    "oue": ("choices", {"values": list("abcdef"), "mechanism": "oue", "epsilon": 1}),
    "privset": ("choices", {"values": list("abcdef"), "mechanism": "privset", "epsilon": 2}),
}


def drawn(plan: Plan, answers: Sequence[Sequence[int]], seed: int) -> list[int]:
    mechanism, rng = PureMechanism.of(plan.mechanism), Rng(random.Random(seed).getrandbits)
    return [mechanism.randomize(mechanism.class_of(answer), rng) for answer in answers]


@pytest.mark.parametrize("name", CASES)
def test_they_are_the_aggregators_to_the_last_digits(name: str) -> None:
    kind, keys = CASES[name]
    plan = new_metric(kind, **keys).plan
    mechanism = PureMechanism.of(plan.mechanism)
    assert mechanism.name == name
    reports = drawn(plan, [(index % 3,) for index in range(4_000)], 1)
    if mechanism.geometry is None:
        tally = Counter(value for report in reports for value in mechanism.shape.members(report))
        size = max(mechanism.d, *(value + 1 for value in tally))
    else:
        tally, size = Counter(reports), mechanism.shape.size
    counts = np.array([tally[index] for index in range(size)], dtype=np.int64)
    expected = pure.estimate_shares(mechanism, support_counts(mechanism, counts, 4_000), 4_000)
    ours = estimate_shares(plan, reports)
    assert expected.method == "wald"
    for mine, theirs in (("estimate", "estimate"), ("std_error", "std_error"), ("lower", "lower"), ("upper", "upper")):
        assert [getattr(share, mine) for share in ours] == pytest.approx(getattr(expected, theirs), abs=1e-12)
    assert [share.value for share in ours] == list(plan.domain.values)


def test_reports_that_are_too_few_for_a_normal_law_are_refused_by_the_same_line() -> None:
    plan = new_metric("flag", epsilon=1).plan
    mechanism = PureMechanism.of(plan.mechanism)
    with pytest.raises(InvalidParameter, match="must have 68 reports") as refused:
        estimate_shares(plan, [0] * 67)
    assert "got 67" in str(refused.value)
    assert pure.estimate_shares(mechanism, np.array([34, 33]), 67).method != "wald"
    assert pure.estimate_shares(mechanism, np.array([34, 34]), 68).method == "wald"
    assert len(estimate_shares(plan, [0] * 68)) == 1


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="a flag or a list, whose shares are told here, got number"):
        estimate_shares(new_metric("number").plan, [])
