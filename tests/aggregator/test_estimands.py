"""A reading is made once of the same tally and view, also for readers that come together; what is kept is bounded."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock, patch

import numpy as np
import pytest

from dither_aggregator.analysis import estimands
from dither_aggregator.analysis import numbers as numbers_module
from dither_aggregator.analysis.estimands import ROWS_MAX, Ahead, estimate, read_days
from dither_aggregator.analysis.numbers import Numbers
from dither_aggregator.analysis.numeric_fit import most_likely
from dither_aggregator.analysis.reading import View, Window
from dither_aggregator.analysis.shares import Shares
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.language import parse, steps
from dither_aggregator.store import StoredPlan, Tally
from tests.support.drawn_numbers import draw_numbers, places_of
from tests.support.numbers import FRESH, numbers
from tests.support.registries import registry
from tests.support.sites import site_of

DAY = date(2026, 11, 22)
METRIC = registry().metrics["color"]
STORED = StoredPlan(1, METRIC.plan, METRIC.question, (), METRIC.reservation, METRIC.expires, current=True)
TALLY = Tally(100, np.array([100, 40, 30, 20, 10]))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[View]]:
    """Return the views of the readings that are made; each takes until the list's lock is free."""
    read, views = Shares.read, Made()

    def slowly(self: Shares, stored: StoredPlan, epoch: date, tally: Tally, view: View, **how: Any) -> object:
        with views.lock:
            views.append(view)
        return read(self, stored, epoch, tally, view, **how)

    monkeypatch.setattr(Shares, "read", slowly)
    kept().clear()
    yield views
    kept().clear()


class Made(list[View]):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def kept() -> Any:
    return cast(Any, estimands._read_once).cache


def test_the_same_tally_and_view_are_read_once(made: list[View]) -> None:
    first = estimate(STORED, DAY, TALLY)
    again = estimate(replace(STORED, question="Why?"), DAY + timedelta(days=1), TALLY, snapshot="5e")
    assert len(made) == 1
    assert again.rows is first.rows
    assert (again.stored.question, again.epoch, again.snapshot) == ("Why?", DAY + timedelta(days=1), "5e")
    assert (first.stored.question, first.epoch, first.snapshot) == (STORED.question, DAY, None)


def test_another_tally_view_plan_or_state_is_read_anew(made: list[View]) -> None:
    estimate(STORED, DAY, TALLY)
    estimate(STORED, DAY, Tally(100, np.array([100, 41, 29, 20, 10])))
    estimate(STORED, DAY, TALLY, View(simultaneous=True))
    estimate(STORED, DAY, TALLY, View(error_of="reports"))
    estimate(STORED, DAY, TALLY, View(normalised="norm_sub"))
    estimate(STORED, DAY, TALLY, provisional=True)
    estimate(replace(STORED, plan=registry(rev=2).metrics["color"].plan), DAY, TALLY)
    estimate(replace(STORED, candidates=("looked for",)), DAY, TALLY)
    assert len(made) == 8


def test_readers_that_come_together_wait_for_one_reading(made: Made) -> None:
    with ThreadPoolExecutor(8) as pool:
        with made.lock:
            asked = [pool.submit(estimate, STORED, DAY, TALLY) for _ in range(8)]
        rows = {id(one.result(30).rows) for one in asked}
    assert (len(made), len(rows)) == (1, 1)


def test_what_is_kept_is_bounded_by_its_rows(made: list[View], monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept().maxsize == ROWS_MAX
    rows = 1 + len(METRIC.values)
    monkeypatch.setattr(kept(), "_Cache__maxsize", 3 * rows)
    for count in range(5):
        estimate(STORED, DAY, Tally(100, np.array([100, count, 100 - count, 0, 0])))
    assert (len(made), kept().currsize) == (5, 3 * rows)
    estimate(STORED, DAY, Tally(100, np.array([100, 4, 96, 0, 0])))
    assert len(made) == 5


def test_candidates_count_though_there_is_no_row() -> None:
    """A reader with long lists on days without reports fills the room like any other."""
    asked = registry(kind="text", epsilon="1", epsilon_permanent="4").metrics["color"]
    stored = StoredPlan(2, asked.plan, asked.question, (), asked.reservation, asked.expires, current=True)
    kept().clear()
    empty = Tally(0, np.zeros(asked.cells.tally_size, dtype=np.int64))
    estimate(stored, DAY, empty, View(candidates=tuple(map(str, range(1_000)))))
    assert kept().currsize == 1_001
    kept().clear()


def test_a_device_that_may_report_more_often_is_read_anew() -> None:
    """The registry may raise `reports` under the same plan: what was read before is of fewer reports a device."""
    tally, view = Tally(900, np.array([900, 300, 300, 300, 0])), View("population", days=7)
    few = estimate(STORED, DAY, tally, view)
    often = estimate(replace(STORED, reservation=9 * STORED.reservation), DAY, tally, view)
    assert often.rows[0].std_error > few.rows[0].std_error


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("mean(took)", ("mean",)),
        ("quantile(took, .9)", ("q90",)),
        ("share(took > 2 s)", ("at least 2 s",)),
        ("mean(took) - share(took > 2 s)", ("mean", "at least 2 s")),
    ],
)
def test_days_are_prepared_together_and_read_as_each_by_itself(
    tmp_path: Path, asked: str, names: tuple[str, ...]
) -> None:
    """A series of a question and that of a page; one day has too few reports."""
    days, rng = 6, np.random.default_rng(3)
    with site_of(numbers(took={**FRESH, "edges": [0, 1, 2, 4], "epsilon": 4}), tmp_path) as one:
        (stored,) = one.store.plans()
        for back in range(1, days + 1):
            truth = rng.dirichlet(np.ones(places_of(stored.plan)))
            one.hold(stored.plan, draw_numbers(stored.plan, truth, 5_000 if back > 1 else 50, rng), back)
        window, view = Window(one.day(days), one.day(1)), View("population", simultaneous=True, values=names)
        asking, question = Asking(one.store), f"{asked} by day last {days} days"
        alone, of_page = list[Any](), list[Any]()
        for day in steps(window, "day"):
            forget()
            alone += asking.answers_in(parse(question), day, None)
            of_page += estimate(stored, day.last, one.store.tally(stored.plan, day.last), view).rows
        together = prepared(lambda: list(asking.answer(parse(question))))
        read = prepared(lambda: [row for each in read_days(one.store, stored, window, view) for row in each.rows])
    assert ends(together) == [pytest.approx(each, abs=1e-12) for each in ends(alone)]
    assert ends(read) == [pytest.approx(each, abs=1e-12) for each in ends(of_page)]
    assert [row.untold for row in together].count("") == len(of_page) // len(names) == days - 1


def prepared(read: Callable[[], list[Any]]) -> list[Any]:
    """Return what is read while no reading is kept: of the days, the first one alone is fitted by itself."""
    forget()
    with patch("dither_aggregator.analysis.numbers.most_likely", Mock(wraps=most_likely)) as fitted:
        found = read()
    assert fitted.call_count <= 1
    return found


def test_what_is_kept_is_prepared_again_for_no_day(tmp_path: Path) -> None:
    """Four times as many are prepared each time that one is not; the first that is missing is read by itself."""
    with site_of(numbers(took={**FRESH, "edges": [0, 1, 2, 4], "epsilon": 4}), tmp_path) as one:
        (stored,) = one.store.plans()
        windows = [Window(one.day(back), one.day(back)) for back in range(9, 0, -1)]
        with patch.object(Numbers, "prepare", autospec=True) as prepare:
            sizes = list[int]()
            prepare.side_effect = lambda self, stored, tallies: sizes.append(len(tallies))
            ahead = Ahead(one.store, stored, windows)
            for missing in (windows[0], *windows[3:]):
                ahead.tally(missing, View())
    assert sizes == [4, 2]


def ends(rows: Sequence[Any]) -> list[list[float]]:
    return [[row.estimate or 0.0, row.lower or 0.0, row.upper or 0.0] for row in rows]


def forget() -> None:
    kept().clear()
    numbers_module._LIKELIEST.clear()
    numbers_module._FITS.clear()
