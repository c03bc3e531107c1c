"""Made-up reports in the real readings: each is added to honest ones, and its weight is read off.

A linear estimate of n reports, m of them chosen alike, is ((n - m) f + m w) / n, with f that of the others alone. So
two readings show w, whatever the honest reports happened to say.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.reading import View
from dither_aggregator.counting import fold_cells, hyperplane, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Coded, Hashed
from dither_shared.kinds.precision import Worth, critical_share, of_support, precision_of
from dither_shared.mechanisms import RAPPOR, PureMechanism
from dither_shared.plan import Plan
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from tests.support.drawn_numbers import draw_numbers, stored_number
from tests.support.drawn_tables import alone, draw_table, shape_of, stored_table
from tests.support.points import draw_texts
from tests.support.registries import registry
from tests.support.tables import table
from tests.support.tallies import draw_tally

DAY = date(2026, 11, 23)
Seen = Callable[[Tally], float]


def stored(metric: Metric, *candidates: str) -> StoredPlan:
    plan, life = metric.plan, metric.reservation
    return StoredPlan(0, plan, metric.question, candidates, life, metric.expires, current=True)


def value(one: StoredPlan, name: str, view: View | None = None) -> Seen:
    """Return what reads a row's estimate out of a tally."""

    def read(tally: Tally) -> float:
        (row,) = [row for row in estimate(one, DAY, tally, view or View()).rows if row.value == name]
        return row.estimate

    return read


def add(plan: Plan, tally: Tally, cell: int, entries: Sequence[int], made_up: int) -> Tally:
    """Return a tally with so many more reports of a cell, each of which raises these entries."""
    return add_each(plan, tally, cell, [entries], made_up)


def add_each(plan: Plan, tally: Tally, cell: int, reports: Sequence[Sequence[int]], made_up: int = 1) -> Tally:
    """Return a tally with more reports of a cell, of each kind so many: a kind is the entries that it raises."""
    counts = tally.counts.copy()
    for part, rows, first in tables(plan.cells, counts):
        if first <= cell < first + part.cells:
            for entries in reports:
                rows[cell - first, 0] += made_up
                rows[cell - first, [1 + entry for entry in entries]] += made_up
    return Tally(tally.n + made_up * len(reports), counts)


def of_cell(plan: Plan, tally: Tally, cells: Sequence[int]) -> int:
    """Return how many reports some cells have."""
    found = 0
    for part, rows, first in tables(plan.cells, tally.counts):
        found += sum(int(rows[cell - first, 0]) for cell in cells if first <= cell < first + part.cells)
    return found


def weights(
    one: StoredPlan, seen: Seen, tally: Tally, cells: Sequence[int], chosen: Sequence[Sequence[int]]
) -> list[float]:
    """Return the w of each chosen report, in the first of the cells that an estimate is read from."""
    honest, n = seen(tally), of_cell(one.plan, tally, cells)
    made_up = n // 10
    with_them = [seen(add(one.plan, tally, cells[0], entries, made_up)) for entries in chosen]
    return [((n + made_up) * moved - n * honest) / made_up for moved in with_them]


def check(found: Sequence[float], worth: Worth) -> None:
    """The largest and the least w are what is said."""
    assert worth.known
    assert [max(found), -min(found)] == pytest.approx([float(worth.up), float(worth.down)], abs=1e-6)


@pytest.mark.parametrize("mechanism", ["grr", "pgr", "oue"])
def test_listed_values(mechanism: str) -> None:
    metric = registry(color=f'mechanism = "{mechanism}"', values=tuple("abcdef")).metrics["color"]
    one, rng = stored(metric), np.random.default_rng(1)
    design = metric.cells.mechanism
    assert isinstance(design, PureMechanism)
    drawn = draw_tally(design, np.array([500, 300, 100, 50, 25, 25, 0]), rng)
    tally = Tally(1_000, np.concatenate([[1_000], drawn]))
    chosen = [[entry] for entry in range(len(drawn))] if mechanism != "oue" else [[], list(range(7))]
    check(weights(one, value(one, "b"), tally, [0], chosen), metric.poisoning[0])


def test_the_mean_alone() -> None:
    one = stored_number('low = 0\nhigh = 10\nasks = ["mean"]')
    tally = draw_numbers(one.plan, np.full(65, 1 / 65), 2_000, np.random.default_rng(2))
    size = one.plan.mechanism.shape.size
    found = weights(one, value(one, "mean"), tally, [0], [[symbol] for symbol in range(0, size, 16)])
    (worth,) = precision_of(one.plan.kind).poisoning(one.plan.domain, one.plan.cells)
    check([w / 10 for w in found], worth)


def test_a_memoized_number() -> None:
    one = stored_number("edges = [0, 1, 3, 10, 20]", memo="2")
    tally = draw_numbers(one.plan, np.array([0.1, 0.2, 0.3, 0.3, 0.1]), 20_000, np.random.default_rng(3))
    mean, above = precision_of(one.plan.kind).poisoning(one.plan.domain, one.plan.cells)
    (name,) = [row.value for row in estimate(one, DAY, tally).rows if row.value.startswith("above a point of 10")]
    check(weights(one, value(one, name), tally, [3], [[0], [1]]), above)
    everywhere = tally
    for cell in range(4):
        everywhere = add(one.plan, everywhere, cell, [1], 500)
    seen = value(one, "mean")
    raised = seen(everywhere) / 20 - seen(tally) / 20
    assert 0 < raised < float(mean.raised(2_000, 22_000))


@pytest.mark.parametrize(
    ("columns", "asked"),
    [("a = ['x', 'y'], b = ['1', '2', '3'], c = ['p', 'q']", 3), ("a = ['x'], b = ['1'], c = ['p']", 1)],
)
def test_a_cell_of_a_table_moves_no_farther(columns: str, asked: int) -> None:
    """Asked in pairs a cell is one symbol, asked at once several: the bound of the worst pair holds for all of them."""
    metric = table(columns, epsilon=2)
    one = stored_table(metric)
    assert metric.cells.count == asked
    shape = shape_of(one.plan)
    even = alone(*(np.full(size, 1 / size) for size in shape))
    tally = draw_table(one.plan, [even], [6_000], np.random.default_rng(4))
    (worth,) = metric.poisoning
    assert worth.known
    cells = [row.value for row in estimate(one, DAY, tally).rows if row.value.count(" & ") == 1]
    extremes = []
    for cell in range(asked):
        mechanism = metric.cells.mechanism_of(cell)
        chosen = reports_of(mechanism)
        base = {row.value: row.estimate for row in estimate(one, DAY, tally).rows}
        n = of_cell(one.plan, tally, [cell])
        for entries in chosen:
            read = estimate(one, DAY, add(one.plan, tally, cell, entries, n // 10)).rows
            for row in read:
                if row.value in cells and row.estimate != base[row.value]:
                    extremes.append(((n + n // 10) * row.estimate - n * base[row.value]) / (n // 10))
    assert max(extremes) == pytest.approx(float(worth.up), abs=1e-6)
    assert min(extremes) == pytest.approx(-float(worth.down), abs=1e-6)


def reports_of(mechanism: object) -> list[list[int]]:
    """Return some reports of a mechanism: all symbols, or every subset that begins anywhere."""
    assert isinstance(mechanism, PureMechanism)
    raises, size = mechanism.shape.raises, mechanism.shape.size
    assert raises is not None
    return [sorted((start + step) % size for step in range(raises)) for start in range(size)]


# Texts: fresh ones by the law of their points, memos through the real randomizers.


def fleet(metric: Metric, said: Sequence[str], seed: int) -> dict[int, list[int]]:
    """Return the reports of devices that say these texts, by cell."""
    chance = random.Random(seed)
    rng = Rng(chance.getrandbits)
    reports: dict[int, list[int]] = {}
    for answer in said:
        cell = metric.cells.of_device(chance.randrange(128)) if metric.cells.lasting else metric.cells.draw(rng)
        seen = metric.class_of(metric.read(answer), cell, rng)
        reports.setdefault(cell, []).append(metric.cells.mechanism_of(cell).randomize(seen, rng))
    return reports


def folded(metric: Metric, reports: dict[int, list[int]]) -> Tally:
    packed = {cell: metric.cells.mechanism_of(cell).shape.pack(each) for cell, each in reports.items()}
    return Tally(sum(map(len, reports.values())), fold_cells(metric.cells, packed))


@pytest.mark.parametrize("alike", [True, False])
def test_a_fresh_text_moves_no_farther(alike: bool) -> None:
    """Reports that are alike fill other buckets so far that these do not count for the mean: that weighs more."""
    metric = registry(kind="text", epsilon="2.0", reports=1).metrics["color"]
    one = stored(metric, "evil", "a")
    tally = draw_texts(metric, [f"text {device}" for device in range(6_000)], 5)
    domain, points, (worth,) = metric.asked.domain, metric.cells.mechanism, metric.poisoning
    assert isinstance(domain, Hashed)
    assert isinstance(points, PureMechanism)
    assert points.geometry is not None
    seen, honest, rng, found = value(one, "evil"), value(one, "evil")(tally), np.random.default_rng(6), []
    for on in (True, False):
        spread = tally
        for row in range(metric.cells.count):
            lies_on = np.flatnonzero(hyperplane(*points.geometry, domain.bucket("evil", row)) == on)
            for point in [lies_on[row]] * 100 if alike else rng.choice(lies_on, 100, replace=False):
                spread = add(one.plan, spread, row, [int(point)], 1)
        found.append((spread.n * seen(spread) - tally.n * honest) / 400)
    usual = of_support("a text", points.p, points.q)
    assert float(worth.up) >= found[0] > float(usual.up) - 0.05
    assert -float(worth.down) <= found[1] < (0.0 if alike else -float(usual.down) + 0.05)
    assert (found[0] > float(usual.up) + 0.05) == alike


def test_words_are_moved_in_the_verification_group() -> None:
    metric = registry(kind="words", epsilon="4", reports=1).metrics["color"]
    one = stored(metric)
    tally = draw_texts(metric, [f"{device}" for device in range(3_000)], 6)
    domain, (worth,) = metric.asked.domain, metric.poisoning
    assert isinstance(domain, Coded)
    last = metric.cells.parts[-1]
    cells = list(range(metric.cells.count - last.cells, metric.cells.count))
    points = last.mechanism
    assert isinstance(points, PureMechanism)
    assert points.geometry is not None
    lies_on = hyperplane(*points.geometry, domain.bucket("evil", cells[0]))
    chosen = [[int(np.flatnonzero(lies_on == on)[0])] for on in (True, False)]
    found = weights(
        one, value(one, "evil", View(values=("evil",), error_of="population", simultaneous=True)), tally, cells, chosen
    )
    assert found == pytest.approx([float(worth.up), -float(worth.down)], abs=1e-4)
    share = of_cell(one.plan, tally, cells) / tally.n
    assert abs(share - float(worth.share)) < 5 * (float(worth.share) / tally.n) ** 0.5


@pytest.mark.slow
def test_a_made_up_report_counts_less_in_a_word_that_later_levels_tell_as_well() -> None:
    """A code of 15 bits ends in the first level, so 35 of 50 reports judge the word where 15 tell one looked up."""
    metric = registry(kind="words", epsilon="4", reports=1).metrics["color"]
    one, rng, (worth,) = stored(metric), np.random.default_rng(2), metric.poisoning
    honest = draw_texts(metric, ["to" if device % 2 else f"{device}" for device in range(6_000)], 6)
    lying, last, lies = honest, metric.cells.parts[-1], 100
    for cell in range(metric.cells.count - last.cells, metric.cells.count):
        design = metric.cells.mechanism_of(cell)
        assert isinstance(design, PureMechanism)
        assert design.geometry is not None
        answer = metric.class_of(metric.read("to"), cell, Rng(random.Random(3).getrandbits))
        points = rng.choice(np.flatnonzero(hyperplane(*design.geometry, answer)), lies)
        lying = add_each(one.plan, lying, cell, [[int(point)] for point in points])
    for view, part in ((View(values=("to",)), 15 / 50), (View(), 35 / 50)):
        before, after = (
            next(row for row in estimate(one, DAY, tally, view).rows if row.value == "to") for tally in (honest, lying)
        )
        judged = part * honest.n
        moved = last.cells * lies * (float(worth.up) - before.estimate) / (judged + last.cells * lies)
        assert after.estimate - before.estimate == pytest.approx(moved, rel=0.1)


def test_made_up_bits_make_a_text_be_found_that_nobody_has() -> None:
    """Twice as many as give the critical share."""
    metric = registry(kind="text", epsilon="2.0", epsilon_permanent="4.0", answers=1, candidates=()).metrics["color"]
    mechanism = metric.cells.mechanism
    assert isinstance(mechanism, RAPPOR)
    names = tuple(f"text {number}" for number in range(20))
    one, n, (worth,) = stored(metric, *names, "evil"), 6_000, metric.poisoning
    needed = worth.needed(Fraction(critical_share(metric, len(names) + 1, n)), n)
    assert needed is not None
    made_up, chance = 2 * needed, random.Random(8)
    reports = fleet(metric, [chance.choice(names) for _ in range(n - made_up)], 7)
    for _ in range(made_up):
        cohort = chance.randrange(metric.cells.count)
        others = sum((chance.random() < float(mechanism.p_star)) << bit for bit in range(mechanism.k))
        reports.setdefault(cohort, []).append(others | mechanism.class_of("evil", cohort))
    reading = estimate(replace(one, candidates=(*names, "evil")), DAY, folded(metric, reports))
    (row,) = [row for row in reading.rows if row.value == "evil"]
    assert abs(row.estimate - float(worth.raised(made_up, n))) < 5 * row.std_error
    significance = reading.significance()
    assert significance
    assert "evil" in [each.row.value for each in significance.significant]


def test_as_many_as_are_needed_make_a_value_be_found_about_half_of_the_time() -> None:
    """It is found on 25 to 75 % of 200 days: pages ask for a little more than the critical share of plans."""
    metric = registry(color='mechanism = "pgr"', values=tuple(f"v{number}" for number in range(39))).metrics["color"]
    one, n, rng, (worth,) = stored(metric), 20_000, np.random.default_rng(9), metric.poisoning
    design = metric.cells.mechanism
    assert isinstance(design, PureMechanism)
    assert design.geometry is not None
    needed = worth.needed(Fraction(critical_share(metric, metric.d, n)), n)
    assert needed is not None
    points = np.flatnonzero(hyperplane(*design.geometry, 30))
    held, found = np.zeros(40, dtype=np.int64), 0
    held[0] = n - needed
    for _ in range(200):
        chosen = np.bincount(rng.choice(points, needed), minlength=design.shape.size)
        counts = np.concatenate([[n], draw_tally(design, held, rng) + chosen])
        significance = estimate(one, DAY, Tally(n, counts), View(simultaneous=True)).significance()
        assert significance
        found += "v30" in [each.row.value for each in significance.significant]
    assert 50 <= found <= 150


@pytest.mark.slow
def test_twice_as_many_at_each_level_make_a_word_be_named_that_nobody_has() -> None:
    metric = registry(kind="words", epsilon="4", reports=1).metrics["color"]
    one, n, rng, (worth,) = stored(metric), 12_000, np.random.default_rng(1), metric.poisoning
    needed = worth.needed(Fraction(critical_share(metric, metric.d, n)), n)
    assert needed is not None
    tally = draw_texts(metric, [f"{device}" for device in range(n)], 6)
    for cell in range(metric.cells.count):
        design = metric.cells.mechanism_of(cell)
        assert isinstance(design, PureMechanism)
        assert design.geometry is not None
        answer = metric.class_of(metric.read("evilone"), cell, Rng(random.Random(3).getrandbits))
        points = rng.choice(np.flatnonzero(hyperplane(*design.geometry, answer)), 2 * needed // 4)
        tally = add_each(one.plan, tally, cell, [[int(point)] for point in points])
    significance = estimate(one, DAY, tally).significance()
    assert significance
    assert "evilone" in [each.row.value for each in significance.significant]
