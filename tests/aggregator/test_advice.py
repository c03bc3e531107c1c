"""Advice: a line where other questions or another schedule show more for the same price, and none where they do not."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pytest

from dither.commands.metrics.new import OWNER, registry_text
from dither_aggregator.analysis.advice import _of_flag, advice, advice_together
from dither_aggregator.analysis.functional import variance_at
from dither_aggregator.analysis.installs import Installs, outlook_of
from dither_aggregator.analysis.planning import plan
from dither_aggregator.analysis.planning_tables import TableQuestion
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry, utc_today

TODAY = utc_today()
TWO_FLAGS = '{ crashed = ["no", "yes"], hung = ["no", "yes"] }'


def asked(kind: str, *lines: tuple[str, str]) -> str:
    """Return a starter's registry of one metric with other lines."""
    text = registry_text("planned", [("asked", kind)], OWNER)
    for line, other in lines:
        assert line in text
        text = text.replace(line, other)
    return text


def told(text: str, installs: Installs, days: int = 365) -> list[str]:
    """Return the advice of a registry's one metric."""
    whole = Registry.parse(text)

    def reread(changed: Mapping[str, object]) -> Metric:
        return Registry.changed(text, "asked", changed)

    today = whole.metrics["asked"].expires - timedelta(days=days)
    now = outlook_of(whole.metrics["asked"], installs, whole.quiet_days, today)
    return list(advice(now, whole.quiet_days, reread, today))


def table(columns: str, epsilon: str = "2.0", reports: int = 2, head: str = "") -> str:
    start = next(line for line in asked("table").splitlines() if line.startswith("columns = "))
    return asked(
        "table",
        (start, f"columns = {columns}"),
        ("\nepsilon = 1.0", f"\nepsilon = {epsilon}"),
        ("reports = 3", f"reports = {reports}"),
        ("device_epsilon = 3.0", "device_epsilon = 90.0"),
        ("quiet_days = 1", f"quiet_days = 1\n{head}"),
        ('"spread"', '"early"'),
    )


# A schedule.


def test_one_answer_is_told_sooner_by_early() -> None:
    (line,) = told(asked("flag"), Installs(2_000))
    assert line == (
        'schedule = "early" shows 3.5 % in the first week after a release, "spread" 3.5 % in a year, at the same '
        'price: take "early" for one answer, "spread" to follow it over the year'
    )


def test_weeks_that_show_enough_are_not_spoken_against() -> None:
    assert told(asked("flag"), Installs(100_000)) == []
    (line,) = told(asked("flag"), Installs(100_000, smallest=0.01))
    assert line.startswith('schedule = "early" shows ')
    assert told(asked("flag", ('"spread"', '"early"')), Installs(2_000)) == []
    assert told(asked("flag"), Installs(20)) == []  # nor would early do


def test_a_short_study_is_told_how_many_answers_arrive() -> None:
    (line,) = told(asked("flag"), Installs(400), days=42)
    assert line.startswith("of 1,200 reports that the devices may send until it expires, 138 arrive: ")
    assert '; schedule = "early" has them all, and shows 7.8 %, not 23 %' in line
    first, *_ = told(asked("flag"), Installs(400), days=300)
    assert first.startswith("of 1,200 reports that the devices may send until it expires, 986 arrive: ")
    assert "early" not in first


def test_a_hidden_answer_leaves_after_its_period() -> None:
    (line,) = told(asked("flag", ('"public"', '"hidden"')), Installs(2_000))
    assert " in the week after its first period, " in line


# Ranges.


def test_more_ranges_are_named_where_they_leave_more_of_a_mean_open_than_noise() -> None:
    even = ('scale = "log"', ""), ('"spread"', '"early"')
    (line,) = told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(20_000))
    assert line == (
        "of low to high, ranges leave 13 % open in the mean and noise 2.4 % in a week: buckets = 39 makes both alike, "
        "with an interval 5.1 % wide, not 15 %, at the same price"
    )
    assert told(asked("number", ("buckets = 32", "buckets = 39"), *even), Installs(20_000)) == []
    (most,) = told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(2_000_000))
    assert "buckets = 256 is the most there are" in most
    assert told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(20)) == []


# Tables and flags.


@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5", "6"])
def test_a_flags_variance_is_that_of_its_page(epsilon: str) -> None:
    metric = Registry.changed(asked("flag"), "asked", {"epsilon": Decimal(epsilon)})
    mechanism = PureMechanism.of(metric.mechanism)
    assert _of_flag(metric.epsilon) == pytest.approx(
        variance_at(mechanism, np.array([0.0, 1.0]), np.array([0.5, 0.5])), rel=1e-4
    )


def test_an_experiment_is_told_what_its_table_tells_and_what_flags_of_each_arm_would() -> None:
    text = table(TWO_FLAGS, head='public = { arm = ["a", "b"] }')
    effect, one, both = told(text, Installs(500_000))
    alone = plan(TableQuestion("table", 3, columns=2), 10**6, Decimal(2), None)
    assert alone.target
    assert effect == f"a difference of {100 * alone.target:.2g} points between arm and the others is told in a week"
    names = "a flag for each arm (crashed_a, crashed_b, which only its arm answers)"
    assert one.startswith(f"for one of its columns alone {names} with epsilon = 2, reports = 2 costs a device the same")
    assert both.startswith(f"for each of its columns {names} with epsilon = 2, reports = 1 costs a device the same")


def test_a_table_that_tells_as_much_is_not_spoken_against() -> None:
    long = '{ crashed = ["no", "yes"], version = ["1", "2", "3", "4"] }'
    assert told(table(long), Installs(500_000)) == []
    (line,) = told(table(long, head='public = { arm = ["a", "b"] }'), Installs(500_000))
    assert line.startswith("a difference of ")


def test_a_table_of_flags_is_told_what_flags_would_show() -> None:
    (line,) = told(table(TWO_FLAGS), Installs(500_000))
    assert line.startswith("a flag for each column with epsilon = 2, reports = 1 costs the same: ")
    assert line.endswith("only a table tells which answers go together")


def test_flags_are_told_what_a_table_of_them_would_show() -> None:
    text = registry_text("planned", [("crashed", "flag"), ("hung", "flag"), ("load", "number")], OWNER)
    metrics = Registry.parse(text).metrics.values()
    (line,) = advice_together([outlook_of(metric, Installs(500_000), 1) for metric in metrics])
    assert line.startswith("nothing tells which of crashed, hung go together, or compares arms of an experiment: ")
    assert "a table of them with epsilon = 3" in line
    one = [outlook_of(metric, Installs(500_000), 1) for metric in list(metrics)[1:]]
    assert list(advice_together(one)) == []
