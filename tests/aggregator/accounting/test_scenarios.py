"""`dither privacy --scenario`: one device, these metrics, a year, as people call it."""

import json
from math import exp, tanh
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.accounting import BASIC, OPTIMAL, ZCDP
from tests.support.aggregators import dither
from tests.support.numbers import MEMO, numbers_text
from tests.support.registries import registry_text

RANGE = {"low": 0, "high": 8, "buckets": 4}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a registry of a memo and of fresh answers, daily and weekly, shown and hidden."""
    metrics: dict[str, dict[str, object]] = {
        "speed": {**RANGE, "reports": 40, "period": "7d", "epsilon": 0.1},
        "size": {**RANGE, "reports": 3, "epsilon": 0.5, "presence": "hidden"},
        "load": {**RANGE, **MEMO},
    }
    path = tmp_path / "metrics.toml"
    path.write_text(numbers_text(**metrics), encoding="utf-8")
    return path


def document(path: Path, *options: object) -> dict[str, Any]:
    done = dither("privacy", path, "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_year_of_one_device_adds_up_and_a_memo_enters_once_for_each_answer(path: Path) -> None:
    year = document(path, "--scenario", "year")
    rows = {row["metric"]: row for row in year["metrics"]}
    assert [(row["times"], row["reports"], row["epsilon_each"]) for row in rows.values()] == [
        (40, 40, 0.1),
        (3, 3, 0.5),
        (2, 366, 2.0),
    ]
    assert [row["epsilon"] for row in rows.values()] == [4.0, 1.5, 4.0]
    assert (year["epsilon"], year["epsilon_if_each_device_answered_one"]) == (9.5, 4.0)
    assert [row["linked_of_200"] is None for row in rows.values()] == [True, True, False]
    assert year["linked_of_200"] == rows["load"]["linked_of_200"]
    assert [(bound["proof"], bound["delta"]) for bound in year["bounds"]] == [(BASIC, 0.0), (ZCDP, 1e-06)]
    assert rows["speed"]["best"]["proof"] == OPTIMAL
    assert rows["speed"]["best"]["epsilon"] < 3.5 < year["bounds"][0]["epsilon"] == 9.5


def test_r_times_epsilon_of_a_memo_would_be_caught(path: Path) -> None:
    """366 reports of epsilon 1 each would be 366; its two answers are 2 x 2, on any number of days."""
    memo = ("--metric", "load", "--scenario")
    assert [document(path, *memo, days)["epsilon"] for days in ("day", "month", "year", "life")] == [2.0, 4.0, 4.0, 4.0]
    assert document(path, *memo, "life")["metrics"][0]["reports"] is None


def test_less_time_and_fewer_metrics_are_less(path: Path) -> None:
    month = document(path, "--scenario", "month", "--metric", "speed", "--metric", "size")
    assert [row["times"] for row in month["metrics"]] == [6, 3]
    assert month["epsilon"] == pytest.approx(2.1, abs=1e-12)
    assert month["linked_of_200"] is None


def test_guesses_are_those_of_the_sum_and_rounded_outward(path: Path) -> None:
    for devices in (1, 3):
        found = document(path, "--scenario", "life", "--metric", "size", "--devices", devices)
        epsilon = 1.5 * devices
        assert found["epsilon"] == epsilon
        for guess in found["guesses"]:
            odds = guess["before"] / (1 - guess["before"])
            most, least = odds * exp(epsilon), odds * exp(-epsilon)
            assert 0 <= guess["at_most"] - most / (1 + most) <= 1.1e-6
            assert 0 <= least / (1 + least) - guess["at_least"] <= 1.1e-6
        assert 0 <= found["any_guess_moves_by"] - tanh(epsilon / 4) <= 1.1e-6


def test_the_table_says_what_the_sum_holds_for_and_what_not(path: Path) -> None:
    done = dither("privacy", path, "--scenario", "year", "--metric", "size", "--metric", "load")
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    for words in (
        "year: the most that one device can answer in 366 days",
        "2 different answers, memoized: 366 reports 2 4 98.3%",
        "5.5 0 basic composition",
        "After all of it a guess of 1 : 1 about these answers together can be above 99% sure, no surer.",
        "4 0 of a device that answers only one of them, if all do",
        "whether there was anything to say: size",
        "where presence is public: load",
        "when a memoized answer changed: the promise is between lives that change at the same times: load",
        "the other metrics of this registry: speed",
        "side channels",
    ):
        assert words in shown
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_bound_that_says_less_than_the_sum_is_not_shown(path: Path) -> None:
    asked = ("--scenario", "year", "--metric", "size", "--metric", "load")
    above = [f"{bound['epsilon']:.6g}" for bound in document(path, *asked)["bounds"] if bound["epsilon"] > 5.5]
    assert above
    shown = dither("privacy", path, *asked).stdout
    assert not any(figure in shown for figure in above)


def test_a_small_epsilon_gains_from_a_delta_and_a_large_one_does_not(path: Path) -> None:
    shown = dither("privacy", path, "--scenario", "year", "--metric", "speed").stdout
    assert "gains next to nothing" not in shown
    assert shown.index(OPTIMAL) < shown.index(ZCDP) < shown.index(BASIC)
    path.write_text(registry_text(epsilon="4.0"), encoding="utf-8")
    assert (
        "A delta of 1e-9 gains next to nothing"
        in dither("privacy", path, "--scenario", "life", "--delta", "1e-9").stdout
    )


def test_without_a_scenario_only_the_metrics_named_are_shown(path: Path) -> None:
    rows = json.loads(dither("privacy", path, "--json", "--metric", "load").stdout)
    assert [row["metric"] for row in rows] == ["load"]
    assert "speed" not in dither("privacy", path, "--metric", "load").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--devices", 2), "--devices is for a scenario: add --scenario year"),
        (("--delta", "1e-6"), "--delta is for a scenario: add --scenario year"),
        (("--scenario", "year", "--metric", "seed"), "--metric must be one of speed, size, load, got seed"),
        (("--scenario", "year", "--devices", 0), "--devices must be from 1 to 100, got 0"),
        (("--scenario", "year", "--delta", "tiny"), "--delta must be a number such as 1e-6, got 'tiny'"),
        (("--scenario", "year", "--delta", "1"), "--delta must be from 1e-100 to 0.5, such as 1e-6, got 1"),
        (("--scenario", "decade"), "invalid choice: 'decade'"),
    ],
)
def test_a_mistake_is_told_with_the_next_step(path: Path, options: tuple[object, ...], message: str) -> None:
    done = dither("privacy", path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
