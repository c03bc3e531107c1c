"""Planning a number: planned widths are those of readings of simulated reports, and the lines compile to the plan."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from unittest.mock import PropertyMock, patch

import numpy as np
import pytest

from dither_aggregator.analysis.advice import HIGH, LOW, NumberQuestion
from dither_aggregator.analysis.channel import law_matrix
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numbers import Numbers
from dither_aggregator.analysis.planning import Planned, Unplannable, plan, registry_lines
from dither_aggregator.analysis.reading import View
from dither_aggregator.counting import tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Buckets, Thresholds
from dither_shared.plan import Plan
from dither_shared.registry import Metric, Registry, utc_today
from tests.support.soaking import thinned

READINGS = 12
RANGES = NumberQuestion("number", 64)
MEMOIZED = NumberQuestion("number", 16, epsilon_permanent=Decimal(4))
MEAN = NumberQuestion("number", 30, mean_alone=True)
QUESTIONS = {
    "ranges": (RANGES, 30_000, "1"),
    "ranges, little noise": (RANGES, 3_000, "4"),
    "ranges, much noise": (RANGES, 100_000, "0.5"),
    "few ranges": (NumberQuestion("number", 9), 50_000, "1"),
    "not a power of two": (NumberQuestion("number", 30), 4_000, "1.5"),
    "many ranges": (NumberQuestion("number", 128), 10_000, "4"),
    "memoized": (MEMOIZED, 30_000, "1"),
    "memoized, a week": (replace(MEMOIZED, days=7), 100_000, "2"),
    "memoized, few steps": (replace(MEMOIZED, d=8), 100_000, "1"),
    "mean": (MEAN, 1_000, "1"),
    "mean, little noise": (MEAN, 300, "4"),
}


def metric_of(planned: Planned[NumberQuestion]) -> Metric:
    parsed = Registry.parse(
        registry_lines(planned, "example", planned.question.life(utc_today() + timedelta(days=180)))
    )
    parsed.check_dates(utc_today())
    (metric,) = parsed.metrics.values()
    return metric


def evenly(asked: Plan) -> Floats:
    """Return the shares of places, "other" included, of numbers that are spread evenly."""
    if isinstance(asked.domain, Buckets):
        inside = asked.domain.size - 2
        return np.array([0.0, *np.full(inside, 1 / inside), 0.0, 0.0])
    points = (
        asked.domain.size + 1
        if isinstance(asked.domain, Thresholds)
        else law_matrix(asked.cells.mechanism).shape[1] - 1
    )
    shares = np.ones(points)
    shares[[0, -1]] = 0.5  # a number rounds to its neighbours on both sides, which the ends have on one
    return np.asarray(shares / shares.sum())


def draw(asked: Plan, n: int, rng: np.random.Generator) -> Tally:
    """Return a tally of n reports, each of another device."""
    shares, counts = evenly(asked), np.zeros(asked.cells.tally_size, dtype=np.int64)
    weights = np.array([part.weight for part in asked.cells.parts for _ in range(part.cells)], dtype=float)
    sizes = iter(rng.multinomial(n, weights / weights.sum()).tolist())
    for part, rows, first in tables(asked.cells, counts):
        for at, row in enumerate(rows):
            law = law_matrix(part.mechanism)
            columns = np.arange(len(shares))
            rates = (
                law[:, (columns > first + at).astype(int) if isinstance(asked.domain, Thresholds) else columns] @ shares
            )
            row[0] = next(sizes)
            row[1:] = rng.multinomial(row[0], rates / rates.sum())
    return Tally(n, counts)


@dataclass(frozen=True)
class Seen:
    """Widths of the intervals of some readings, in parts of the range; a median that was not told is NaN."""

    mean: Floats
    median: Floats


def seen(planned: Planned[NumberQuestion], readings: int = READINGS) -> Seen:
    metric, rng, widths = metric_of(planned), np.random.default_rng(5), []
    stored = StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)
    stored = replace(stored, period_days=metric.period_days)
    view = View(simultaneous=True, values=("mean", "median"), days=planned.question.days)
    for _ in range(readings):
        tally = draw(metric.plan, planned.n, rng)
        reading = Numbers().read(stored, date(2027, 1, 1), tally, view, provisional=False, snapshot=None)
        told = {row.value: (row.upper - row.lower) / (HIGH - LOW) for row in reading.rows}
        widths.append([told.get(name, np.nan) for name in ("mean", "median")])
    return Seen(*np.array(widths).T)


def mean_is_right(planned: Planned[NumberQuestion], found: Seen) -> bool:
    return planned.figures["mean_width"] == pytest.approx(found.mean.mean(), rel=0.15)


def median_is_right(planned: Planned[NumberQuestion], found: Seen) -> bool:
    average = float(found.median.mean())
    return planned.figures["median_width"] == pytest.approx(average, abs=0.25 * average + 1 / planned.question.d)


@pytest.mark.parametrize("name", thinned([*QUESTIONS], 0, 1, 4, 7, 9))
def test_a_planned_width_is_that_of_readings(name: str) -> None:
    """Averages of 12 readings, seeded: the mean's width within 15 %, the median's within 25 % and a range.

    These margins are at least 4.9 standard errors of the averages of 12 (measured): false alarms 1e-6.
    """
    question, n, epsilon = QUESTIONS[name]
    planned = plan(question, n, Decimal(epsilon), None)
    found = seen(planned)
    assert mean_is_right(planned, found)
    assert planned.figures["median_width"] is None if question.mean_alone else median_is_right(planned, found)


def test_a_plan_of_intervals_that_hold_each_on_its_own_would_be_seen() -> None:
    """Planted: the z of a single interval, 1.96 in place of 2.77."""
    question, n, epsilon = QUESTIONS["memoized"]
    with patch.object(NumberQuestion, "alpha", PropertyMock(return_value=0.05)):
        planned = plan(question, n, Decimal(epsilon), None)
    assert not mean_is_right(planned, seen(planned))


def test_a_plan_that_forgets_that_noise_comes_again_would_be_seen() -> None:
    question, n, epsilon = QUESTIONS["memoized, a week"]
    found = seen(plan(question, n, Decimal(epsilon), None))
    assert not mean_is_right(plan(replace(question, days=1), n, Decimal(epsilon), None), found)


def test_a_plan_by_the_unbiased_error_of_many_ranges_would_be_seen() -> None:
    """Planted: ranges are never taken together. Shares that are not negative make intervals much narrower."""
    question = NumberQuestion("number", 256)
    with patch.object(NumberQuestion, "_coarser", lambda self: iter(())):
        planned = plan(question, 50_000, Decimal("0.5"), None)
    found = seen(planned, readings=4)
    assert not median_is_right(planned, found)
    assert mean_is_right(planned, found)


# Two given.


@pytest.mark.parametrize(("question", "least"), [(RANGES, 3_000), (MEMOIZED, 3_000), (MEAN, 300)])
def test_as_many_reports_as_tell_anything_are_planned(question: NumberQuestion, least: int) -> None:
    assert plan(question, None, Decimal("3.9"), 1.0).n == least
    less = plan(question, least - 1, Decimal("3.9"), None)
    assert (less.figures["mean_width"], less.figures["median_width"]) == (None, None)
    with pytest.raises(Unplannable, match=f"Fewer than {least:,} reports tell nothing of a number, got {least - 1:,}"):
        plan(question, least - 1, None, 0.5)


def test_windows_help_points_to_be_sure_that_there_are_numbers() -> None:
    """6,191 reports have a share of numbers of five standard errors; points alone would need 7,291."""
    question = NumberQuestion("number", 30)
    assert plan(question, 6_150, Decimal("0.2"), None).figures["mean_width"] is None
    assert plan(question, 6_250, Decimal("0.2"), None).figures["mean_width"] is not None


@pytest.mark.parametrize("d", [2, 7, 50, 256])
def test_the_lines_compile_to_even_ranges_and_the_cells_that_are_shown(d: int) -> None:
    planned = plan(NumberQuestion("number", d), 30_000, Decimal("1.5"), None)
    metric = metric_of(planned)
    edges = np.diff(metric.asked.domain.edges)  # type: ignore[attr-defined]
    assert metric.plan.cells == planned.cells
    assert len(edges) == d
    assert edges.max() - edges.min() <= 1


@pytest.mark.parametrize("question", [MEMOIZED, MEAN])
def test_lines_of_other_forms_compile_to_the_cells_that_are_shown(question: NumberQuestion) -> None:
    planned = plan(question, 30_000, Decimal("1.5"), None)
    assert metric_of(planned).plan.cells == planned.cells


@pytest.mark.parametrize(("d", "n", "epsilon"), [(4, 20_000, "2"), (100, 20_000, "2"), (20, 10_000, "0.5")])
def test_as_many_ranges_as_a_plan_names_leave_as_much_open_as_noise(d: int, n: int, epsilon: str) -> None:
    alike = NumberQuestion("number", d).alike(n, Decimal(epsilon))
    assert alike
    planned = plan(NumberQuestion("number", alike), n, Decimal(epsilon), None)
    assert planned.figures["mean_width"] == pytest.approx(2 / alike, rel=0.1)
    assert [question.alike(n, Decimal(epsilon)) for question in (MEMOIZED, MEAN)] == [None, None]
