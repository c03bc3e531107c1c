"""Advice: a line where other questions or another schedule show more for the same price, and none where they do not."""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pytest

from dither.commands.metrics.new import OWNER, registry_text
from dither_aggregator.analysis.advice import _of_flag, advice, advice_together
from dither_aggregator.analysis.functional import variance_at
from dither_aggregator.analysis.installs import Installs, outlook_of
from dither_aggregator.analysis.planning import TableQuestion, plan
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


ONCE = asked("flag", ("reports = 3", "reports = 1"))


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
    line, _ = told(asked("flag"), Installs(2_000))
    assert line == (
        'schedule = "early" shows 3.5 % in the first week after a release, "spread" 3.5 % in a year, at the same '
        'price: take "early" for one answer, "spread" to follow it over the year'
    )


def test_weeks_that_show_enough_are_not_spoken_against() -> None:
    assert told(ONCE, Installs(100_000)) == []
    (line,) = told(ONCE, Installs(100_000, smallest=0.01))
    assert line.startswith('schedule = "early" shows ')
    assert told(ONCE.replace('"spread"', '"early"'), Installs(2_000)) == []
    assert told(ONCE, Installs(20)) == []  # nor would early do


def test_a_short_study_is_told_how_many_answers_arrive() -> None:
    line, *_ = told(asked("flag"), Installs(400), days=42)
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
    even = ('scale = "log"', ""), ('"spread"', '"early"'), ("reports = 3", "reports = 1")  # once: no memos are named
    (line,) = told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(60_000))
    assert line == (
        "of low to high, ranges leave 13 % open in the mean and noise 2.4 % in a week: buckets = 39 makes both alike, "
        "with an interval 5.1 % wide, not 15 %, at the same price"
    )
    assert told(asked("number", ("buckets = 32", "buckets = 39"), *even), Installs(60_000)) == []
    (most,) = told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(6_000_000))
    assert "buckets = 256 is the most there are" in most
    assert told(asked("number", ("buckets = 32", "buckets = 8"), *even), Installs(20)) == []


# A study.


@pytest.mark.parametrize(("stay", "told_of"), [(0.9, True), (None, False), (0.01, False)])
def test_a_study_that_all_join_at_once_is_told_to_leave_stay_out(stay: float | None, told_of: bool) -> None:
    """With almost nobody there a month later as many come each week as there are."""
    lines = told(ONCE.replace('"spread"', '"early"'), Installs(2_000, stay=stay))
    begin = "--stay counts installs that come as others go; in a study that all join at once, and just after a first "
    assert [line.startswith(begin) for line in lines] == [True] * told_of
    together = outlook_of(Registry.parse(ONCE.replace('"spread"', '"early"')).metrics["asked"], Installs(2_000), 1)
    assert not told_of or lines[0].endswith(f"and the first week shows {together.week}")


# A state.


def test_a_state_that_is_asked_again_is_told_of_memos() -> None:
    """The registry that it names is as private, and shows what it says."""
    text = asked("choice")
    *_, line = told(text, Installs(20_000))
    assert line.startswith(
        "where it is a state that lasts, such as a theme, memoize = true, answers = 2, epsilon = 1, epsilon_permanent "
        "= 1.5 in place of reports and schedule show "
    )
    other = {"reports": None, "schedule": None, "memoize": True, "answers": 2, "epsilon_permanent": Decimal("1.5")}
    metric, now = Registry.changed(text, "asked", other), Registry.parse(text).metrics["asked"]
    assert metric.reservation == now.reservation
    shown, before = (outlook_of(each, Installs(20_000), 1).week for each in (metric, now))
    assert f"show {shown} in a week, not {before}, and a guess becomes no surer" in line
    assert "a third different answer is not seen, so it suits no mood" in line


@pytest.mark.parametrize("changed", [("reports = 3", "reports = 1"), ('"public"', '"hidden"')], ids=str)
def test_one_answer_and_what_happens_are_told_of_none(changed: tuple[str, str]) -> None:
    assert not any("memoize" in line for line in told(asked("choice", changed), Installs(20_000)))


# Tables and flags.


@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5", "6"])
def test_a_flags_variance_is_that_of_its_page(epsilon: str) -> None:
    metric = Registry.changed(asked("flag"), "asked", {"epsilon": Decimal(epsilon)})
    mechanism = PureMechanism.of(metric.mechanism)
    assert _of_flag(metric.epsilon) == pytest.approx(
        variance_at(mechanism, np.array([0.0, 1.0]), np.array([0.5, 0.5])), rel=1e-4
    )


def test_an_experiment_is_told_what_its_table_tells_and_what_flags_of_each_arm_would() -> None:
    text = table(TWO_FLAGS, epsilon="1.0", head='public = { arm = ["A", "b c"] }')
    effect, one, both = told(text, Installs(500_000))
    alone = plan(TableQuestion("table", 3, columns=2), 10**6, Decimal(1), None)
    assert alone.target
    assert effect == f"a difference of {100 * alone.target:.2g} points between arm and the others is told in a week"
    names = "a flag for each arm (crashed_a, crashed_b_c, which only its arm answers)"
    begin = "keep the table if you ask which answers go together; if not, for"
    keys = "costs a device the same"
    assert one.startswith(f"{begin} one of its columns alone {names} with epsilon = 1, reports = 2 {keys}")
    assert both.startswith(f"{begin} each of its columns {names} with epsilon = 1, reports = 1 {keys}")
    assert both.endswith("device_epsilon then holds all arms': 4")


def test_advice_for_arms_ends() -> None:
    """The flags that a table is told of are a registry, which is not told of a table again."""
    names = [f"{column}_{arm}" for column in ("crashed", "hung") for arm in ("a", "b_c")]
    text = registry_text("planned", [(name, "flag") for name in names], OWNER)
    (line,) = advice_together([outlook_of(each, Installs(500_000), 1) for each in _metrics(text)])
    assert line.startswith(f"if {', '.join(names)} are of the arms of an experiment, and each is answered by its own ")


def test_flags_of_arms_are_told_the_difference_that_a_table_s_advice_names() -> None:
    """The advice for a table of 1,000,000 installs in two arms is that of flags with 500,000 each."""
    text = table(TWO_FLAGS, epsilon="1.0", reports=1, head='public = { arm = ["A", "b c"] }')
    *_, one, both = told(text, Installs(1_000_000))
    for line, columns, epsilon in ((one, ["crashed"], "1"), (both, ["crashed", "hung"], "0.5")):
        names = [f"{column}_{arm}" for column in columns for arm in ("a", "b_c")]
        flags = registry_text("planned", [(name, "flag") for name in names], OWNER).replace('"spread"', '"early"')
        keys = {"epsilon": Decimal(epsilon), "reports": 1}
        metrics = [Registry.changed(flags, name, keys) for name in names]
        (said,) = advice_together([outlook_of(each, Installs(500_000), 1) for each in metrics])
        (points,) = re.findall(r" tells (a difference of .* points) between two arms in a week; --installs are", said)
        assert f"dither ask tells {points} in a week; " in line


def test_flags_that_make_a_guess_nearly_certain_are_no_advice() -> None:
    """Those of both arms would reserve 8 of a device, with which an even guess may be 99.97 % sure."""
    (effect,) = told(table(TWO_FLAGS, head='public = { arm = ["a", "b"] }'), Installs(500_000))
    assert effect.startswith("a difference of ")


def test_a_difference_that_no_arm_can_have_is_none() -> None:
    text = table(TWO_FLAGS, head='public = { arm = ["a", "b"] }')
    assert told(text, Installs(4))[0] == "no difference between arm and the others is told, however large"
    (slow,) = told(text.replace('"early"', '"spread"'), Installs(500))[-1:]
    assert slow.startswith("no difference between arm and the others is told in a week, and of ")


def _metrics(text: str) -> Iterable[Metric]:
    return Registry.parse(text).metrics.values()


def test_a_table_that_tells_as_much_is_not_spoken_against() -> None:
    long = '{ crashed = ["no", "yes"], version = ["1", "2", "3", "4"] }'
    assert told(table(long), Installs(500_000)) == []
    (line,) = told(table(long, head='public = { arm = ["a", "b"] }'), Installs(500_000))
    assert line.startswith("a difference of ")


def test_a_table_of_flags_is_told_what_flags_would_show() -> None:
    (line,) = told(table(TWO_FLAGS), Installs(500_000))
    assert line.startswith(
        "keep the table if you ask which answers go together; if not, a flag for each column with epsilon = 2, "
        "reports = 1 is as private, and a share of one half has an interval "
    )


def test_flags_are_told_what_a_table_of_them_would_show() -> None:
    text = registry_text("planned", [("crashed", "flag"), ("hung", "flag"), ("load", "number")], OWNER)
    metrics = _metrics(text)
    (line,) = advice_together([outlook_of(metric, Installs(500_000), 1) for metric in metrics])
    assert line.startswith("keep crashed, hung as flags, unless you ask which of them go together or compare arms of ")
    assert "a table of them with epsilon = 3" in line
    one = [outlook_of(metric, Installs(500_000), 1) for metric in list(metrics)[1:]]
    assert list(advice_together(one)) == []
