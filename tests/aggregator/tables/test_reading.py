"""Readings of tables: their rows and names, what too few reports tell, verdicts, views, windows and public values."""

from dataclasses import replace
from datetime import date
from typing import cast, get_args
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import ESTIMANDS, estimate
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import BadView, View
from dither_aggregator.analysis.rows import JudgedRow, Statistic, TableRow
from dither_aggregator.analysis.tables import statistics
from dither_aggregator.analysis.tables.reading import TablesReading, arms_of
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.frozen import replaced
from dither_shared.registry import Metric
from tests.benchmarks.tables.coverage import joint
from tests.support.questions import draw_tallies
from tests.support.tables import domain_of, table

DAY = date(2026, 11, 22)
COLUMNS = (
    'version = ["156", "157"], crashed = ["yes", "no"], start = { low = 2, high = 12, unit = "s", asks = ["mean"] }'
)
PAIRS = table(COLUMNS + ', plan = ["a", "b", "c", "d", "e"]', epsilon=4)
TWO = table('version = ["156", "157"], crashed = ["yes", "no"]', epsilon=4)
HIDDEN = table('version = ["156", "157"], crashed = ["yes", "no"]', epsilon=4, presence="hidden")
ARMS = table('version = ["156", "157"], crashed = ["yes", "no"]', 'arm = ["old", "new"]', epsilon=4)
TRUTH = joint((3, 3, 3, 6), 1)
CRASHES = np.array([[0.02, 0.28, 0.0], [0.1, 0.5, 0.05], [0.0, 0.05, 0.0]])


def stored(metric: Metric) -> StoredPlan:
    return StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


def tally(metric: Metric, truth: Floats, n: int, seed: int = 0, silent: float | None = None) -> Tally:
    domain = domain_of(metric)
    rng = np.random.default_rng(seed)
    counts = draw_tallies(truth, n, [part.mechanism for part in metric.cells.parts], domain.questions, rng, silent)
    return Tally(n, counts)


def read(metric: Metric, counted: Tally, view: View | None = None, *, provisional: bool = False) -> TablesReading:
    reading = estimate(stored(metric), DAY, counted, view or View(), provisional=provisional)
    assert isinstance(reading, TablesReading)
    return reading


def rows(reading: TablesReading) -> dict[str, TableRow]:
    return {row.value: row for row in reading.rows}


MANY = tally(PAIRS, TRUTH, 60_000)
CRASHED = tally(TWO, CRASHES, 20_000)


def test_a_row_is_named_after_what_it_says_and_by_no_other() -> None:
    reading = read(PAIRS, MANY)
    told = rows(reading)
    assert len(told) == len(reading.rows)
    assert {row.statistic for row in reading.rows} == set(get_args(Statistic))
    assert told["crashed = yes | version = 157"].group == "157"
    assert told["crashed = yes | version = 157, less all others"].statistic == "difference"
    assert told["version = 157 & crashed = yes"].group_column == "crashed"
    assert told["version with start"].statistic == "association"
    assert told["mean of start"].label is None
    assert 2 <= told["mean of start | plan = a"].lower < told["mean of start | plan = a"].upper <= 12


def test_coins_make_no_groups_and_no_cells() -> None:
    told = rows(read(PAIRS, MANY))
    assert not any("start =" in name for name in told)
    assert {row.group_column for row in told.values() if row.column == "start" and row.group} == {
        "version",
        "crashed",
        "plan",
    }


def test_every_row_lies_near_what_is_true() -> None:
    """One of four rows is beyond six standard errors with eight of a billion seeds."""
    told = rows(read(PAIRS, MANY))
    version, crashed = TRUTH.sum(axis=(2, 3)).sum(axis=1), TRUTH.sum(axis=(2, 3))
    ends = TRUTH.sum(axis=(1, 3))[1, :2]
    expected = {
        "version = 157": version[1],
        "version = 157 & crashed = yes": crashed[1, 0],
        "crashed = yes | version = 157": crashed[1, 0] / version[1],
        "mean of start | version = 157": 2 + 10 * ends[1] / ends.sum(),
    }
    for name, truth in expected.items():
        assert abs(told[name].estimate - truth) < 6 * told[name].std_error
        assert told[name].lower <= told[name].estimate <= told[name].upper


def test_verdicts_are_told_of_groups_and_associations_and_in_the_table() -> None:
    reading = read(TWO, CRASHED)
    told = rows(reading)
    assert told["crashed = yes | version = 156, less all others"].verdict == "lower"
    assert told["crashed = yes | version = 157, less all others"].verdict == "higher"
    assert told["version with crashed"].verdict == "associated"
    assert told["crashed = yes | version = 156"].verdict is None
    written = list(reading.table(map(JudgedRow, reading.rows)))
    assert {line.value: line.verdict for line in written} == {row.value: row.verdict for row in reading.rows}
    assert {type(line) for line in written} == {reading.row}
    assert reading.row.__struct_fields__[-6:] == ("statistic", "column", "label", "group_column", "group", "p_value")


def test_a_group_that_hardly_anybody_is_in_is_left_out() -> None:
    nobody = np.zeros((3, 3))
    nobody[:2, :2] = 0.25
    told = rows(read(TWO, tally(TWO, nobody, 5_000)))
    assert "crashed = yes | version = 157" in told
    assert "crashed = yes | version = other" not in told
    assert "version = other" in told


def test_few_reports_tell_nothing_and_say_so() -> None:
    reading = read(TWO, tally(TWO, CRASHES, 299))
    assert not reading.rows
    assert reading.nothing_to_show == "299 reports are too few to tell: each of 1 questions needs 300."
    silent = read(HIDDEN, tally(HIDDEN, CRASHES, 400, silent=1.0))
    assert not silent.rows
    assert "nothing can be told" in silent.nothing_to_show
    empty = read(TWO, Tally(0, np.zeros(TWO.cells.tally_size, dtype=np.int64)))
    assert not empty.rows


def test_a_question_with_too_few_reports_is_left_out_alone() -> None:
    counts = MANY.counts.copy()
    width = 1 + PAIRS.cells.parts[0].mechanism.shape.size
    lost = int(counts[0])
    counts[:width] = 0
    told = rows(read(PAIRS, Tally(MANY.n - lost, counts)))
    assert "version with crashed" not in told
    assert {"version with start", "version = 156", "crashed with plan"} <= set(told)


def test_shares_are_of_those_with_something_to_say() -> None:
    """Six standard errors are passed by two shares in a billion."""
    told = rows(read(HIDDEN, tally(HIDDEN, CRASHES, 40_000, silent=0.5)))
    row = told["version = 156"]
    assert abs(row.estimate - 0.3) < 6 * row.std_error


def test_a_view_of_shares_alone_asks_for_no_pair() -> None:
    whole = rows(read(PAIRS, MANY))
    with patch.object(statistics.TableStatistics, "of_pairs", side_effect=AssertionError):
        shares = read(PAIRS, MANY, View(values=("version = 157", "plan = a")))
    assert rows(shares) == {name: whole[name] for name in ("version = 157", "plan = a")}
    one = read(PAIRS, MANY, View(values=("crashed = yes | version = 157",)))
    assert list(rows(one)) == ["crashed = yes | version = 157"]


def test_devices_that_report_again_widen_a_window() -> None:
    day, week = (rows(read(TWO, CRASHED, View(days=days))) for days in (1, 7))
    assert all(week[name].std_error > day[name].std_error for name in day if "other" not in name)


def test_reports_of_all_public_values_are_read_together() -> None:
    arms = [tally(TWO, CRASHES, 10_000, seed) for seed in (1, 2)]
    both = Tally(20_000, np.concatenate([arm.counts for arm in arms]))
    told, added = read(ARMS, both), read(TWO, Tally(20_000, arms[0].counts + arms[1].counts))
    assert rows(added).items() <= rows(told).items()
    assert {row.group_column for row in told.rows[len(added.rows) :]} == {"arm"}
    assert dict(told.asked) == {"arm = old": 10_000, "arm = new": 10_000, "version, crashed": 20_000}
    assert told.groupings == ("arm", "version", "crashed")


def test_too_many_cells_leave_the_columns_by_themselves() -> None:
    with patch.object(statistics, "CELLS_MAX", 8):
        reading = read(TWO, CRASHED, View(confidence=0.9))  # which no other test has read
    assert {row.statistic for row in reading.rows} == {"share"}


def test_windows_are_compared_by_shares() -> None:
    reading = read(PAIRS, MANY)
    names = ESTIMANDS["tables"].names(stored(PAIRS))
    assert [row.value for row in reading.distinct] == list(names)
    assert {"version with crashed", "mean of start"} <= set(ESTIMANDS["tables"].shares(stored(PAIRS)))
    chances = reading.change_chances(reading, list(names))
    assert (chances == 1).all()


def test_a_document_has_the_rows_and_leaves_out_what_they_lack() -> None:
    document = read(TWO, CRASHED).to_document()
    first, *_ = cast("list[dict[str, object]]", document["rows"])
    assert first["value"] == "version = 156"
    assert "verdict" not in first
    assert document["error_of"] == "population"


@pytest.mark.parametrize(
    ("view", "asked", "message"),
    [
        (View(error_of="population"), "error_of", "values are listed"),
        (View(normalised="norm_sub"), "normalised", "values are listed"),
        (View(), "top", "of columns"),
        (View(candidates=("a",)), "candidates", "for texts"),
    ],
)
def test_what_is_for_other_kinds_is_refused(view: View, asked: str, message: str) -> None:
    with pytest.raises(BadView, match=message):
        ESTIMANDS["tables"].check(PAIRS.plan, view, frozenset({asked}))


def test_a_table_of_before_is_read_in_the_order_of_its_time() -> None:
    """The cell i of 9 had the symbol (8 - i)^3 modulo 11, cubed again while it was above 8; it is read as today's."""
    of_cell = [pow(8 - cell, 3, 11) for cell in range(9)]
    while max(of_cell) > 8:
        of_cell = [symbol if symbol <= 8 else pow(symbol, 3, 11) for symbol in of_cell]
    before = replace(stored(TWO), plan=replaced(TWO.plan, once_a_day=False))
    scattered = np.empty_like(CRASHED.counts)
    scattered[0] = CRASHED.counts[0]
    scattered[1 + np.array(of_cell)] = CRASHED.counts[1:]
    (((today,),), ((then,),)) = (
        arms_of(one, counted, View())
        for one, counted in ((stored(TWO), CRASHED), (before, Tally(CRASHED.n, scattered)))
    )
    assert np.array_equal(then.table((0, 1)).shares, today.table((0, 1)).shares)
    assert np.array_equal(then.table((1,)).shares, today.table((1,)).shares)
