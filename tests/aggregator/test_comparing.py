"""Estimates beside what is true of the devices that answered."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import ESTIMANDS
from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.simulate.populations import COMPARING, by_design, census, holds, too_few_hold
from dither_shared.registry import Metric, Registry, utc_today
from tests.support.registries import registry

AGES = [20] * 6 + [30] * 3 + [90]


@cache
def metrics() -> Mapping[str, Metric]:
    return Registry.parse(census().registry(utc_today())).metrics


def told(value: str, statistic: str, lower: float, upper: float, *ends: float | None) -> dict[str, Any]:
    low, high = ends or (None, None)
    return {
        "value": value,
        "estimate": lower,
        "std_error": 1.0,
        "lower": lower,
        "upper": upper,
        "verdict": None,
        "statistic": statistic,
        "low": low,
        "high": high,
    }


def compared(metric: Metric, answers: Sequence[object], *rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    comparing = COMPARING[metric.kind.estimand]
    return {row["value"]: row for row in comparing.rows(metric, answers, rows)}


def test_the_true_mean_and_shares_are_those_of_the_answers() -> None:
    rows = compared(
        metrics()["age"],
        AGES,
        told("mean", "mean", 29, 31, 29.5, 30.5),
        told("20 to 21 years", "share", 0.5, 0.7, 20, 21),
        told("below 17 years", "share", -0.1, 0.1, None, 17),
        told("90 years or more", "share", 0.2, 0.3, 90, None),
    )
    assert rows["mean"]["truth"] == 30
    assert [row["truth"] for row in rows.values()] == [30, 0.6, 0, 0.1]
    assert [holds(row) for row in rows.values()] == [True, True, True, False]


def test_what_says_a_share_again_is_left_out() -> None:
    rows = (told("at least 20 years", "share_above", 0, 1, 20, None), told("a number", "share_of_reports", 0, 1))
    assert compared(metrics()["age"], AGES, *rows) == {}


@pytest.mark.parametrize(
    ("value", "lower", "upper", "held"),
    [
        ("median", 20, 21, True),  # six of ten are 20, which is told as 20 to 21
        ("median", 18, 20, False),  # from 18 to below 20
        ("median", 21, 22, False),
        ("q75", 30, 31, True),
        ("q75", 29, 30, False),
        ("q90", 30, 31, True),  # nine of ten are 30 or younger
        ("q95", 85, 90, True),  # 90 or more is told as 90
        ("q95", 90, 90, True),
        ("q95", 80, 89, False),
    ],
)
def test_an_interval_of_a_quantile_holds_the_range_of_the_true_one(
    value: str, lower: float, upper: float, held: bool
) -> None:
    assert holds(compared(metrics()["age"], AGES, told(value, "quantile", lower, upper))[value]) is held


def test_true_quantiles_of_all_people_are_those_of_the_census() -> None:
    answers = census().draw(48_842, seed=1)
    wanted = ("q5", "q25", "median", "q75", "q95")
    for metric, truths in ((metrics()["age"], [19, 28, 37, 48, 63]), (metrics()["hours"], [17, 40, 40, 45, 60])):
        numbers = np.array(answers[metric.name])
        rows = compared(metric, list(numbers), *(told(value, "quantile", 0, 0) for value in wanted))
        assert [row["truth"] for row in rows.values()] == truths
        for value, truth in zip(wanted, truths, strict=True):
            assert (numbers < truth).mean() < QUANTILES[value] <= (numbers <= truth).mean()


@pytest.mark.parametrize(("wider", "caught"), [(1.0, False), (1.6, True)])
def test_noise_larger_than_its_standard_error_is_caught(wider: float, caught: bool) -> None:
    """Too many of 225 intervals that fail with chance .05 do so in one run of 10^9. With the wider noise .22 fail."""
    noise = np.random.default_rng(7).normal(scale=wider, size=225)
    assert too_few_hold([{"truth": 0.0, "lower": each - 1.96, "upper": each + 1.96} for each in noise]) is caught


@pytest.mark.parametrize("presence", ["public", "hidden"])
def test_a_flag_has_one_row_of_yes_and_counts_once(presence: str) -> None:
    """The API leaves out the row of no, which is the same estimate again: one that misses would be counted twice."""
    flag = registry(presence=presence).metrics["dark"]
    values = [value for value in flag.values if value != "no"]
    rows = list(
        compared(flag, [True, True, False, True], *(told(value, "value", 0.1, 0.2) for value in values)).values()
    )
    assert [row["value"] for row in rows] == ["yes", *["none"] * (presence == "hidden")]
    assert rows[0]["truth"] == 0.75
    if presence == "public":
        assert table(flag, rows).splitlines()[-1] == "  its interval misses the truth"
        rows[0]["upper"] = 0.8
        assert table(flag, rows).splitlines()[-1] == "  its interval holds the truth"


@pytest.mark.parametrize(
    ("missed", "of", "said"),
    [(0, 265, "none, 0 of 265"), (9, 265, "3.4 %, 9 of 265"), (1, 2000, "0.05 %, 1 of 2,000"), (1, 1, "100 %, 1 of 1")],
)
def test_the_end_says_how_many_are_meant_to_miss(missed: int, of: int, said: str) -> None:
    rows = [{"truth": 0.0, "lower": float(place < missed), "upper": 1.0} for place in range(of)]
    assert by_design(rows) == f"5 of 100 intervals miss by design; this run: {said}"


def table(metric: Metric, rows: list[dict[str, Any]], *, everything: bool = False) -> str:
    return "\n".join(COMPARING[metric.kind.estimand].table(metric, rows, everything=everything))


def test_a_table_of_numbers_shows_truth_beside_estimate_and_interval() -> None:
    rows = compared(
        metrics()["age"],
        AGES,
        told("mean", "mean", 29, 31, 29.5, 30.5),
        told("median", "quantile", 19, 23),
        told("q90", "quantile", 31, 35),
        told("20 to 21 years", "share", 0.5, 0.7, 20, 21),
    )
    brief, full = (table(metrics()["age"], [*rows.values()], everything=everything) for everything in (False, True))
    lines = [line.split() for line in brief.splitlines()]
    assert lines[:4] == [
        ["years", "true", "estimate", "95", "%", "interval"],
        ["mean", "30", "29", "29", "..", "31", "inside"],
        ["median", "20", "19", "19", "..", "23", "inside"],
        ["q90", "30", "31", "31", "..", "35", "outside"],
    ]
    assert "mean: 29.5 if all numbers are at the lower ends of their ranges, 30.5 if at the upper" in brief
    assert "not told, as they may lie in more than a third of all ranges: q5, q10, q25, q75, q95, q99" in brief
    assert "3 of 4 intervals hold the truth, counting those of the shares of 1 ranges (--all prints them)" in brief
    assert "20 to 21 years" not in brief
    assert "20 to 21 years    60.00%" in full


def test_numbers_of_too_few_reports_are_not_told() -> None:
    assert table(metrics()["age"], []) == "  too few reports to tell: numbers need 3,000"
    assert not too_few_hold([])


def test_a_table_of_shares_shows_the_largest() -> None:
    values = metrics()["occupation"].values
    rows = [told(value, "", 0.0, 0.2) for value in values]
    both = [*compared(metrics()["occupation"], ["Sales", "?"], *rows).values()]
    assert [row["value"] for row in both if row["truth"]] == ["Sales", "other"]
    text = table(metrics()["occupation"], both * 2)
    assert "and 15 smaller values (--all prints them)" in text
    assert "smaller values" not in table(metrics()["occupation"], both * 2, everything=True)


# Tables.

PEOPLE = [
    *({"income": ">50K", "sex": "Male"} for _ in range(3)),
    *({"income": "<=50K", "sex": "Male"} for _ in range(3)),
    *({"income": "<=50K", "sex": "Female", "workclass": "Private"} for _ in range(4)),
]


def told_of(statistic: str, column: str, label: str, group_column: str = "", group: str = "") -> dict[str, Any]:
    value = f"{column} = {label}" + (f" | {group_column} = {group}" if group else "")
    columns = {"column": column, "label": label, "group_column": group_column or None, "group": group or None}
    return told(value, statistic, 0.4, 0.6) | columns


def test_true_rates_are_those_within_the_group() -> None:
    rows = compared(
        metrics()["earnings"],
        PEOPLE,
        told_of("share", "income", ">50K"),
        told_of("rate", "income", ">50K", "sex", "Male"),
        told_of("rate", "income", ">50K", "workclass", "Private"),
        told_of("rate", "sex", "Female", "workclass", "other"),
    )
    assert {value: (row["truth"], row["group_truth"]) for value, row in rows.items()} == {
        "income = >50K": (0.3, 1),
        "income = >50K | sex = Male": (0.5, 0.6),
        "income = >50K | workclass = Private": (0, 0.4),
        "sex = Female | workclass = other": (0, 0.6),
    }
    assert [holds(row) for row in rows.values()] == [False, True, False, False]


def test_what_says_a_rate_again_or_is_of_a_group_without_devices_is_left_out() -> None:
    assert not compared(
        metrics()["earnings"],
        PEOPLE,
        told_of("rate", "sex", "Male", "income", ">50K"),
        told_of("cell", "income", ">50K", "sex", "Male"),
        told_of("difference", "income", ">50K", "sex", "Male"),
        told_of("association", "income", "", "sex", ""),
        told_of("rate", "income", ">50K", "education", "Bachelors"),
        told_of("rate", "income", ">50K", "arm", "b"),
        told_of("share", "income", ">50K", "arm", "b"),
    )


def test_a_table_of_rates_shows_the_first_value_in_the_largest_groups() -> None:
    rows = compared(
        metrics()["earnings"],
        PEOPLE,
        told_of("share", "income", ">50K"),
        told_of("rate", "income", ">50K", "sex", "Female"),
        told_of("rate", "income", ">50K", "sex", "Male"),
        told_of("rate", "income", "<=50K", "sex", "Male"),
    )
    brief, full = (
        table(metrics()["earnings"], [*rows.values()], everything=everything) for everything in (False, True)
    )
    lines = [line.split() for line in brief.splitlines()]
    assert [line[:8] for line in lines[1:3]] == [
        ["income", "=", ">50K", "|", "sex", "=", "Male", "50.00%"],
        ["income", "=", ">50K", "|", "sex", "=", "Female", "0.00%"],
    ]
    assert "2 of 4 intervals hold the truth, counting those of all other shares and rates (--all" in brief
    assert "<=50K" not in brief
    assert len(full.splitlines()) == 6
    assert "income = <=50K | sex = Male" in full


def test_rates_of_too_few_reports_are_not_told() -> None:
    assert table(metrics()["earnings"], []) == "  too few reports to tell any rate of income = >50K"


def word(value: str, lower: float, upper: float, verdict: str = "cannot be told from zero") -> dict[str, Any]:
    return {"value": value, "estimate": lower, "std_error": 0.1, "lower": lower, "upper": upper, "verdict": verdict}


def test_words_stand_beside_how_many_say_them_and_starts_beside_all_that_begin_so() -> None:
    said = ["Sales"] * 5 + ["Craft-repair"] * 2 + ["Craftsman", None, None]
    rows = COMPARING["words"].rows(
        metrics()["work"],
        said,
        [word("Sales", 0.4, 0.6, "stands out"), word("Craft…", 0.2, 0.4), word("other", 0, 0.3)],
    )
    assert [row["truth"] for row in rows] == [0.5, 0.3, 0.2]
    short, long = (list(COMPARING["words"].table(metrics()["work"], rows, everything=all_)) for all_ in (False, True))
    assert [line.split()[0] for line in short[1:-1]] == ["Sales"]
    assert [line.split()[0] for line in long[1:-1]] == ["Sales", "Craft…", "other"]
    assert short[-1] == "  3 of 3 intervals hold the truth, counting those of all 3 texts that were proposed"


def test_where_no_word_stands_out_the_table_says_so() -> None:
    assert list(COMPARING["words"].table(metrics()["work"], [], everything=True)) == ["  no word stands out"]


def test_every_estimand_is_compared_with_the_truth() -> None:
    assert COMPARING.keys() == ESTIMANDS.keys()
