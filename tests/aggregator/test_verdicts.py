"""Verdicts come from intervals: of every kind none is given whose simultaneous interval holds zero."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Literal

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import differences as changes_module
from dither_aggregator.analysis.differences import Comparison, Difference, differences, view_of
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import open_chance, open_z
from dither_aggregator.analysis.numbers import MEAN
from dither_aggregator.analysis.pure import estimate_shares, noise_chance, significance_shares
from dither_aggregator.analysis.reading import Reading, View, Window
from dither_aggregator.analysis.tables.reading import TablesReading
from dither_aggregator.counting import tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Coded, Domain, Hashed
from dither_shared.mechanisms import PGR, PureMechanism
from tests.support.drawn_numbers import Population, draw_numbers, population, stored_number
from tests.support.drawn_tables import draw_table, shape_of, stored_table
from tests.support.laws import pure
from tests.support.points import draw_points
from tests.support.registries import registry
from tests.support.soaking import scaled
from tests.support.tables import table
from tests.support.tallies import draw_tally

DAY = date(2026, 11, 22)
SEEDS, LONG_SEEDS = 40, scaled(8, 40)
"""The latter of what takes long: a fit, or a table."""
VALUES = tuple(f"v{place}" for place in range(7))
LISTED: dict[str, dict[str, object]] = {
    "flag": {"epsilon": "2.0"},
    "choice": {"values": VALUES, "epsilon": "2.0"},
    "memoized choice": {"values": VALUES, "epsilon": "1.0", "epsilon_permanent": "4.0"},
    "choices": {"kind": "choices", "values": VALUES, "epsilon": "2.0", "color": 'mechanism = "oue"\nticks_max = 3'},
}
FORMS = {
    "buckets": stored_number("low = 0\nhigh = 80\nbuckets = 16", epsilon="2"),
    "mean alone": stored_number('low = 0\nhigh = 80\nasks = ["mean"]', epsilon="2"),
    "memoized": stored_number("low = 0\nhigh = 80\nbuckets = 8", epsilon="4", memo="8"),
}


def stored(kind: str) -> StoredPlan:
    metric = registry(device_epsilon="400.0", **LISTED[kind]).metrics["dark" if kind == "flag" else "color"]
    return StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


def draw_listed(mechanism: PureMechanism, shares: np.ndarray[tuple[int], np.dtype[np.float64]], seed: int) -> Tally:
    """Draw 5,000 reports; where answers hold several values, each is ticked by a part of its own."""
    rng, n = np.random.default_rng(seed), 5_000
    if mechanism.ticks == 1:
        drawn = draw_tally(mechanism, rng.multinomial(n, shares), rng)
    else:
        held = rng.binomial(n, shares)
        drawn = rng.binomial(held, float(mechanism.p)) + rng.binomial(n - held, float(mechanism.q))
    return Tally(n, np.append(n, drawn))


def pairs_of(kind: str) -> Iterator[tuple[Reading, Reading]]:
    """Yield two windows of a kind, of which some values moved by about what can be told."""
    for seed in range(SEEDS if kind in LISTED else LONG_SEEDS):
        rng = np.random.default_rng(seed)
        if kind in LISTED:
            kept = stored(kind)
            shares = rng.dirichlet(np.ones(len(kept.plan.values)))
            moved = 0.75 * shares + 0.25 * np.roll(shares, 1)
            tallies = [draw_listed(pure(kept.plan), each, 2 * seed + at) for at, each in enumerate((shares, moved))]
        else:
            kept = FORMS[kind]
            worlds = [population(np.arange(0.25, 80, 0.5), rng.dirichlet(np.full(160, 0.2))) for _ in "ab"]
            tallies = [draw_numbers(kept.plan, world.places(kept.plan), 20_000, rng) for world in worlds]
        old, new = (estimate(kept, DAY, tally, view_of(1, 0.05)) for tally in tallies)
        yield old, new


@pytest.mark.parametrize("kind", [*LISTED, *FORMS])
def test_no_value_moved_whose_interval_holds_zero(kind: str) -> None:
    told = 0
    for old, new in pairs_of(kind):
        for row in differences(old, new):
            told += row.verdict is not None
            assert row.verdict in (None, "rose" if row.lower > 0 else "fell" if row.upper < 0 else None)
    assert told >= 5


def test_a_metric_without_a_verdict_is_still_whatever_its_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of a metric is Bonferroni's; its values are told by intervals, too, at a level of its own."""
    old, new = next(pairs_of("flag"))
    row = Difference("yes", 0.1, 0.05, -0.01, 0.2, True, 0.4, 0.5, 1e-9)
    window = Window.ending(DAY, 1)
    monkeypatch.setattr(changes_module, "made_once", lambda *asked: asked[-1]())
    verdicts: tuple[Literal["rose"] | None, ...] = ("rose", None)
    for verdict in verdicts:
        comparison = Comparison(old, new, (replace(row, verdict=verdict),), 0.05)
        monkeypatch.setattr(changes_module, "compare", lambda *asked, told=comparison: told)
        found = changes_module.changes(None, [new.stored], window, window)  # type: ignore[arg-type]  # nothing is read
        assert (len(found.moved), len(found.still)) == ((1, 0) if verdict else (0, 1))


@pytest.mark.parametrize("kind", LISTED)
def test_nothing_stands_out_whose_interval_holds_zero(kind: str) -> None:
    for reading, _ in pairs_of(kind):
        significance = reading.significance()
        assert significance is not None
        for row, verdict, *_ in significance.tell(provisional=False):
            assert verdict != "stands out" or row.lower > 0


@pytest.mark.parametrize("kind", ["choice", "memoized choice"])
@pytest.mark.parametrize(("epsilon", "n"), [(2, 20_000), (4, 20_000), (2, 70_000)])
def test_pages_snapshots_and_the_list_of_metrics_have_one_line(kind: str, epsilon: int, n: int) -> None:
    """Each count next to the line stands out by its p-value, the line and its interval, or by none of them."""
    permanent = {"epsilon_permanent": str(2 * epsilon)} if kind != "choice" else {}
    metric = registry(
        values=tuple(f"v{place}" for place in range(15)), epsilon=str(epsilon), device_epsilon="400", **permanent
    ).metrics["color"]
    mechanism = pure(metric.plan)
    p, q = float(mechanism.p), float(mechanism.q)
    critical, _ = significance_shares(mechanism, n)
    assert critical is not None
    line = round(n * (q + critical * (p - q)))
    for count in range(line - 40, line + 20):
        share = (count / n - q) / (p - q)
        shown = estimate_shares(mechanism, np.array([count]), n, simultaneous=True).lower[0] > 0
        assert shown == (count >= line) == (noise_chance(mechanism, n, share) <= 0.05)


TEXTS = tuple(f"text {number}" for number in range(40))


def stored_texts(kind: str) -> StoredPlan:
    """Return the plan of texts that are looked for, or of words, whose level of verification alone is read."""
    keys: dict[str, dict[str, object]] = {
        "text": {},
        "memoized text": {"epsilon": "2", "epsilon_permanent": "6", "color": "candidates_expected = 40"},
        "words": {"color": ""},
    }
    metric = registry(kind=kind.split()[-1], device_epsilon="400.0", **{"epsilon": "4", **keys[kind]}).metrics["color"]
    candidates = () if kind == "words" else TEXTS
    return StoredPlan(1, metric.plan, metric.question, candidates, metric.reservation, metric.expires, current=True)


def draw_texts(kept: StoredPlan, seed: int) -> Tally:
    """Draw 20,000 reports, of words those that verify, of which a few texts have shares near what can be told."""
    rng, domain = np.random.default_rng(seed), kept.plan.domain
    counts = np.zeros(kept.plan.cells.tally_size, dtype=np.int64)
    shares = np.append(rng.uniform(0, 0.04, 16), np.zeros(24))
    *_, (part, rows, first) = tables(kept.plan.cells, counts)
    mechanism, n = PureMechanism.of(part.mechanism), 20_000 // len(rows) * len(rows)
    for at, row in enumerate(rows, first):
        said = rng.multinomial(n // len(rows), [*shares, 1 - shares.sum()])
        held = rng.multinomial(said[-1], np.full(mechanism.d, 1 / mechanism.d))
        np.add.at(held, [bucket_of(domain, name, at) for name in TEXTS], said[:-1])
        drawn = draw_points(mechanism, held, rng) if isinstance(mechanism, PGR) else draw_tally(mechanism, held, rng)
        row[:] = [n // len(rows), *drawn]
    return Tally(n, counts)


def bucket_of(domain: Domain, name: str, at: int) -> int:
    if isinstance(domain, Coded):
        return domain.groups.bucket(domain.typed_of(name), at)
    hashed = Hashed.of(domain)
    return hashed.bucket(hashed.named(name), at)


def test_no_word_is_named_whose_interval_holds_zero() -> None:
    kept, told = stored_texts("words"), 0
    for seed in range(scaled(4, 8)):
        significance = estimate(kept, DAY, draw_texts(kept, seed), View(values=TEXTS)).significance()
        assert significance is not None
        for row, verdict, *_ in significance.tell(provisional=False):
            assert verdict != "stands out" or row.lower > 0
            told += verdict == "stands out"
    assert told >= 8


@pytest.mark.parametrize("kind", ["text", "memoized text"])
def test_candidates_that_stand_out_are_those_of_which_so_many_may_be_false(kind: str) -> None:
    """More may be false, more stand out, the ones before among them: by tests, so that an interval may hold zero.

    5 % of what stands out may be false: more than the bound, 12 of 44 in a soak, are rarer than 1e-6.
    """
    kept, told, false = stored_texts(kind), {0.01: 0, 0.05: 0, 0.2: 0}, 0
    for seed in range(scaled(2, 4)):
        before: set[str] = set()
        tally = draw_texts(kept, seed)
        for share in told:
            view = View(simultaneous=True, false_share=share)
            significance = estimate(kept, DAY, tally, view).significance()
            assert significance is not None
            assert significance.false_share == share
            out = {each.row.value for each in significance.significant}
            assert before <= out
            before, told[share] = out, told[share] + len(out)
            false += share == 0.05 and sum(int(name.split()[1]) >= 16 for name in out)
            assert not out & {row.value for row in significance.rest}
    assert 4 <= told[0.01] < told[0.05] < told[0.2]
    assert false <= binom.isf(1e-6, told[0.05], 0.05)


def test_no_group_differs_whose_interval_holds_zero() -> None:
    """Also where intervals are shown that hold each by itself: verdicts come from those that hold together."""
    columns = 'theme = ["light", "dark"], version = ["a", "b", "c"]'
    metric = table(columns, 'arm = ["one", "two"]', epsilon=3, reports=1)
    told = {"difference": 0, "association": 0}
    for seed in range(LONG_SEEDS):
        rng = np.random.default_rng(seed)
        shape = shape_of(metric.plan)
        arms = [rng.dirichlet(np.ones(np.prod(shape))).reshape(shape) for _ in "ab"]
        mixed = [0.7 * arms[0] + 0.3 * each for each in arms]
        tally = draw_table(metric.plan, mixed, [4_000, 4_000], rng)
        kept, shown = stored_table(metric), {}
        for simultaneous in (True, False):
            reading = estimate(kept, DAY, tally, View(simultaneous=simultaneous))
            assert isinstance(reading, TablesReading)
            shown[simultaneous] = {row.value: row for row in reading.rows}
        for name, row in shown[True].items():
            if row.verdict in ("higher", "lower", "associated"):
                assert row.upper < 0 if row.verdict == "lower" else row.lower > 0
                told[row.statistic] += 1
            assert shown[False][name].verdict == row.verdict
    assert min(told.values()) >= 5


# Ranges leave open where in them a number is.

SIXTEEN = FORMS["buckets"]
"""Ranges of 5: a mean says where numbers lie up to that alone."""


def within(place: float, middle: float) -> Population:
    """Return numbers at one place within their ranges, in the ranges around a middle one."""
    ranges = np.arange(16, dtype=np.float64)
    return population(5 * ranges + place, np.exp(-((ranges - middle) ** 2) / 8))


@pytest.mark.parametrize(
    ("before", "after"), [(within(4.95, 5.6), within(0.05, 6.4)), (within(4.9, 6), within(0.1, 7))]
)
def test_a_mean_that_moves_within_its_ranges_is_not_told_to_have_moved(before: Population, after: Population) -> None:
    """The middles of ranges rise by 4 and by 5, 6 standard errors, while the mean falls by 1 or stays: nothing is told.

    No seed may tell it: the numbers lie so that the mean is at the end of what the ranges leave open.
    """
    assert -1.2 < after.mean(0, 80) - before.mean(0, 80) < 0.5
    for seed in range(scaled(4, 8)):
        rng = np.random.default_rng(seed)
        tallies = [draw_numbers(SIXTEEN.plan, each.places(SIXTEEN.plan), 100_000, rng) for each in (before, after)]
        readings = [estimate(SIXTEEN, DAY, tally, view_of(1, 0.05)) for tally in tallies]
        (row,) = [row for row in differences(*readings) if row.value == MEAN]
        assert row.estimate > 5 * row.std_error
        assert row.verdict is None
        assert row.lower < after.mean(0, 80) - before.mean(0, 80) < row.upper


def test_an_interval_of_an_open_number_reaches_as_far_as_imbens_and_manski_say() -> None:
    for part, z in ((0.0, 1.96), (0.5, 1.77), (1.0, 1.68), (2.0, 1.65), (3.0, 1.645)):
        assert open_z(0.05, part) == pytest.approx(z, abs=0.006)
        assert open_chance(open_z(0.05, part), part) == pytest.approx(0.05)
