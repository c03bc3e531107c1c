"""A read key is told no cell of a few reports of a window, of every kind of metric."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from dither.auditing.claims import inputs_of, report_of
from dither_aggregator.analysis.closed_days import examine
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.reading import (
    CELL_MIN,
    Pooled,
    Window,
    crowded,
    for_readers,
    reports_max,
    sizes,
    without_few,
)
from dither_aggregator.counting import fold_cells, tables
from dither_aggregator.store import SQLiteStore, StoredPlan, Tally
from dither_aggregator.store.documents import Offered, Plans
from dither_shared.frozen import replaced
from dither_shared.registry import Metric, Registry
from tests.aggregator.store.test_readers import maintain_all, reader
from tests.support.audits import seeded
from tests.support.drawn_tables import stored_table
from tests.support.laws import pure
from tests.support.stores import SQLitePlace, append, body_of, fold_all
from tests.support.tables import table
from tests.test_every_kind import METRICS, registry_text

DAY = date(2026, 11, 20)


def asked_for(name: str) -> tuple[Metric, StoredPlan]:
    """Return a metric, and its plan as a store has it."""
    registry = Registry.parse(registry_text([name]))
    (stored,) = Plans([], 0).loading(Offered.of(registry), DAY)
    return registry.metrics[name], stored


def drawn(metric: Metric, n: Sequence[int]) -> Tally:
    """Return a day of so many reports in each cell, all of one answer."""
    rng, cells = seeded(1), metric.plan.cells
    answer = inputs_of(metric)[0].value
    reports = {}
    for cell, number in enumerate(n):
        shape, draw = cells.mechanism_of(cell).shape, report_of(metric, cell % cells.each)
        reports[cell] = shape.pack([draw(answer, rng) for _ in range(number)])
    return Tally(sum(n), fold_cells(cells, reports))


@pytest.mark.parametrize("name", [name for name in METRICS if name != "words"])
def test_every_kind_is_read_without_its_cells_of_a_few(name: str) -> None:
    metric, stored = asked_for(name)
    cells = metric.plan.cells
    least = CELL_MIN
    few = least + 5 + 80 * (cells.count == 1), least, least - 1, 1, 0
    n = [few[cell % 5] for cell in range(cells.count)]
    tally = drawn(metric, n)
    pooled = Pooled.of(stored, Window.ending(DAY, 1), [tally])
    told = without_few(stored, pooled)
    if tally.n < 100:
        assert (told.n, told.left_out, int(told.counts.sum())) == (0, None, 0)
        return
    kept = [number if number >= least else 0 for number in n]
    assert sizes(cells, told.counts).tolist() == kept
    assert (told.n, told.left_out) == (sum(kept), sum(n) - sum(kept))
    reading = estimate(stored, DAY, told)
    assert (reading.n, reading.left_out) == (told.n, told.left_out)
    assert bool(reading.left_out_sentences) == bool(told.left_out)
    assert not (told.left_out and "cells" in {each.check for each in examine(stored.plan, told)})
    for (_, ours, _), (_, all_, _) in zip(tables(cells, told.counts), tables(cells, tally.counts), strict=True):
        assert (ours == all_ * (ours[:, :1] > 0)).all()


def test_a_memo_that_is_repeated_does_not_make_a_crowd_of_one_device() -> None:
    """Three weeks of one device in a cohort are more than twenty reports; a day of twenty devices is told."""
    metric, stored = asked_for("text")
    cells = metric.plan.cells
    window = Window(DAY - timedelta(days=27), DAY)
    n = [0] * cells.count
    n[0], n[1] = 1, CELL_MIN
    day, few = drawn(metric, n), drawn(metric, [3, *n[1:]])
    pooled = Pooled.of(stored, window, [day] * 28)
    assert sizes(cells, pooled.tally.counts)[:2].tolist() == [28, 28 * CELL_MIN]
    assert crowded(stored, pooled)[:3].tolist() == [False, True, True]
    least = (CELL_MIN - 1) * reports_max(stored, 28) + 1  # so many can be of no fewer devices
    for number, told in ((least - 1, False), (least, True)):
        spread = [few] * (number // 3) + [drawn(metric, [number % 3, *n[1:]])]
        assert bool(crowded(stored, Pooled.of(stored, window, spread))[0]) == told


@pytest.mark.parametrize("days", [1, 7])
def test_devices_that_were_away_make_no_crowd_by_sending_three_memoized_reports_on_one_day(days: int) -> None:
    """Those of before 0.1.0 could; of today's each report of a day is another device's."""
    metric, stored = asked_for("text")
    n = [0] * metric.plan.cells.count
    n[:3] = 3 * 7, 3 * (CELL_MIN - 1), 3 * (CELL_MIN - 1) + 1
    for once_a_day in (False, True):
        of_then = replace(stored, plan=replaced(stored.plan, once_a_day=once_a_day))
        pooled = Pooled.of(of_then, Window.ending(DAY, days), [drawn(metric, n)])
        assert crowded(of_then, pooled)[:3].tolist() == [once_a_day, once_a_day, True]


def test_totals_of_a_table_say_that_they_are_without_its_rarest_arms() -> None:
    metric = table('one = ["a", "b"], two = ["c", "d"]', 'arm = ["x", "y"]')
    stored = stored_table(metric)
    each = metric.plan.cells.each
    tally = drawn(metric, [400] * each + [3] * each)
    told = without_few(stored, Pooled.of(stored, Window.ending(DAY, 1), [tally]))
    (sentence,) = estimate(stored, DAY, told).left_out_sentences
    assert sentence.startswith(f"{3 * each} reports are left out")
    assert sentence.endswith("they are of devices with other values of arm.")


def test_what_is_not_listed_of_a_store_is_not_told(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path / "store", "example")) as store:
        told = for_readers(store)
        assert (told.app, told.backlog(), told.generation == store.generation) == ("example", 0, False)
        for name in {each for each in dir(store) if not each.startswith("_")} - TOLD:
            with pytest.raises(AttributeError, match="a read key is not told"):
                getattr(told, name)


TOLD = {
    *("app", "lossy", "plans", "stored", "plan_by_id", "today", "sealed", "tallies_from", "finals", "documents"),
    *("snapshot", "generation", "backlog", "epochs", "all_epochs", "tally", "tallies", "keeper"),
    "measuring_people",  # some of `plans`
}


def test_who_reads_and_uploads_surrounds_a_report_and_learns_no_more_than_its_noise_lets_through(
    tmp_path: Path,
) -> None:
    """So batches are no guarantee, and epsilon is: what is left of the figures is one noisy report, whole."""
    asked = Registry.parse(registry_text(["named_grr"]))
    metric, own = asked.metrics["named_grr"], 0
    mechanism = pure(metric.plan)
    p, q = float(mechanism.p), float(mechanism.q)
    report = random.Random(3).randrange(1, mechanism.d)
    with closing(SQLitePlace(tmp_path / "store")) as place:
        store = place.make(asked, app=asked.app)
        client, counts = reader(store), []
        maintain_all(store)
        for sent in ([own] * 100, [*[own] * 99, report], [own] * 100, [own] * 100):
            append(store, body_of(asked, {metric.name: sent}))
            fold_all(store)
            place.travel(1 / 24)
            maintain_all(store)
            told = client.get(f"/v1/metrics/{metric.name}/estimates?window=today").get_json()
            n, shares = told["meta"]["n"], [row["estimate"] for row in told["rows"]]
            counts.append(np.rint([n * (q + share * (p - q)) for share in shares or [0] * mechanism.d]))
    batch = counts[2] - counts[1] - 99 * (np.arange(mechanism.d) == own)
    assert np.flatnonzero(batch).tolist() == [report]
    assert p / q <= float(mechanism.exp_epsilon) + 1e-12
