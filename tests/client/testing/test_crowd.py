"""A crowd's devices are the SDK's, and what comes back is the truth within its intervals."""

import random

import pytest

from dither.testing import ask_crowd, new_metric
from dither_shared.errors import InvalidParameter, RegistryError
from dither_shared.registry import Registry
from dither_shared.rng import RandBits
from tests.support.registries import registry


def bits(seed: int) -> RandBits:
    return random.Random(seed).getrandbits


def test_each_share_lies_within_its_interval_widened_to_one_miss_in_a_million() -> None:
    answers = ["a"] * 180 + ["b"] * 360 + ["elsewhere"] * 60
    for share in ask_crowd(new_metric("choice", values=["a", "b", "c"], epsilon=3.0), answers, bits(1)):
        true = {"a": 0.3, "b": 0.6, "c": 0.0, "other": 0.1}[share.value]
        assert abs(share.estimate - true) < 5 * share.std_error


def test_of_a_flag_yes_alone_is_told_and_a_hidden_one_says_none() -> None:
    (yes,) = ask_crowd(new_metric("flag", epsilon=2), [True] * 120 + [False] * 120, bits(2))
    assert yes.value == "yes"
    assert abs(yes.estimate - 0.5) < 5 * yes.std_error
    hidden = new_metric("flag", epsilon=2, presence="hidden")
    shares = {share.value: share for share in ask_crowd(hidden, [True] * 240, bits(3))}
    assert list(shares) == ["yes", "none"]
    assert abs(shares["yes"].estimate - 1) < 5 * shares["yes"].std_error + 0.05
    assert abs(shares["none"].estimate) < 5 * shares["none"].std_error


def test_a_metric_of_a_registry_is_asked_as_well(registry_with_memo: Registry) -> None:
    metric = registry_with_memo.metrics["color"]
    assert metric.memoized
    rows = ask_crowd(metric, ["red"] * 400, bits(4))
    assert abs(rows[0].estimate - 1) < 5 * rows[0].std_error + 0.05


@pytest.fixture
def registry_with_memo() -> Registry:
    return registry(epsilon="1", epsilon_permanent="4", device_epsilon="16")


def test_keys_are_checked_as_in_a_registry() -> None:
    with pytest.raises(RegistryError, match="epsilon must be"):
        new_metric("flag", epsilon=0.0)


def test_a_number_is_refused_with_where_it_is_read() -> None:
    with pytest.raises(
        InvalidParameter, match=r"must be a flag or a list, .*got number: that is read by the aggregator"
    ):
        ask_crowd(new_metric("number"), [3.0] * 300, bits(5))


def test_so_few_answers_that_no_normal_law_holds_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="reports for a normal law, got 3"):
        ask_crowd(new_metric("flag"), [True] * 3, bits(5))
