"""Verdicts on days: how often honest ones are called implausible, what is caught, and what is not."""

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from itertools import combinations_with_replacement, product
from math import lcm
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

from dither_aggregator.analysis.closed_days import ALPHA, CHECKS, Checked, binomial, examine
from dither_aggregator.counting import fold_cells, support_counts
from dither_aggregator.counting import tables as parts_of
from dither_aggregator.store import Tally
from dither_shared.domains import Values
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import GRR, OUE, PGR, RAPPOR, PureMechanism, SubsetSelection, one_cell
from dither_shared.plan import Plan
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from tests.support.drawn_numbers import draw_numbers, stored_number
from tests.support.laws import law
from tests.support.numbers import number
from tests.support.registries import registry
from tests.support.soaking import scaled, thinned
from tests.support.tables import table
from tests.support.tallies import Counts, draw_tally

E1 = Decimal(1)


def plan_of(mechanism: PureMechanism) -> Plan:
    values = Values((*(f"v{value}" for value in range(mechanism.d - 1)), "other"))
    return Plan("asked", 1, "public", KINDS["choice"], values, one_cell(mechanism))


def tally_of(counts: Counts, n: int) -> Tally:
    return Tally(n, np.concatenate([[n], counts]).astype(np.int64))


def least(checked: list[Checked]) -> float:
    return min(each.p_value for each in checked)


def named(plan: Plan, tally: Tally) -> dict[str, Checked]:
    """Return the checks that find something, by name."""
    return {each.check: each for each in examine(plan, tally) if each.implausible}


# How often honest days are called implausible.


@cache
def laws_of(mechanism: PureMechanism, base: int) -> tuple[list[dict[int, int]], int]:
    """Return the law of one report for each value, as whole parts of a number, by what it adds to a tally.

    A tally is an integer, whose digits to the base are its entries.
    """
    laws, shape = [law(mechanism, (value,)) for value in range(mechanism.d)], mechanism.shape
    whole = lcm(*(chance.denominator for each in laws for chance in each.values()))
    folded = {
        report: np.asarray(fold_cells(one_cell(mechanism), {0: shape.pack([report])}))[1:].tolist()
        for report in set().union(*laws)
    }
    added = {report: sum(entry * base**place for place, entry in enumerate(row)) for report, row in folded.items()}
    found = []
    for each in laws:
        parts: dict[int, int] = {}
        for report, chance in each.items():
            parts[added[report]] = parts.get(added[report], 0) + int(chance * whole)
        found.append(parts)
    return found, whole


@cache
def tallies(mechanism: PureMechanism, held: tuple[int, ...], base: int) -> dict[int, int]:
    """Return the exact law of the tallies of devices with these values, as parts of whole ** devices."""
    if not held:
        return {0: 1}
    total: dict[int, int] = {}
    last = laws_of(mechanism, base)[0][held[-1]]
    for (before, chance), (added, further) in product(tallies(mechanism, held[:-1], base).items(), last.items()):
        total[before + added] = total.get(before + added, 0) + chance * further
    return total


@pytest.mark.parametrize(
    ("mechanism", "n"),
    [
        (GRR.for_epsilon(2, Decimal("0.5")), 40),
        (GRR.for_epsilon(3, Decimal("0.3")), 14),
        (PGR.for_design(4, 2, 3, Decimal(3)), 5),
        (OUE.for_epsilon(3, Decimal(2)), 5),
    ],
    ids=str,
)
def test_exactly_no_answers_make_an_honest_day_implausible_oftener_than_is_said(
    mechanism: PureMechanism, n: int
) -> None:
    """Every tally that there is, for all answers that devices may have, at every level that the p-values take."""
    plan, base = plan_of(mechanism), n + 1
    p_values: dict[int, float] = {}
    everything = laws_of(mechanism, base)[1] ** n
    for held in combinations_with_replacement(range(mechanism.d), n):
        found: dict[float, int] = {}
        for tally, chance in tallies(mechanism, held, base).items():
            if tally not in p_values:
                counts = np.array([tally // base**place % base for place in range(mechanism.shape.size)])
                p_values[tally] = least(list(examine(plan, tally_of(counts, n))))
            found[p_values[tally]] = found.get(p_values[tally], 0) + chance
        reached = 0
        for level in sorted(found):
            reached += found[level]
            assert reached / everything <= level * (1 + 1e-9)
        assert reached == everything
    assert min(p_values.values()) < 0.3


Draw = Callable[[np.random.Generator], Tally]


def listed(mechanism: PureMechanism, n: int) -> tuple[Plan, Draw]:
    shares = 1 / np.arange(1, mechanism.d + 1)
    plan = plan_of(mechanism)

    def draw(rng: np.random.Generator) -> Tally:
        return tally_of(draw_tally(mechanism, rng.multinomial(n, shares / shares.sum()), rng), n)

    return plan, draw


def memoized_text(devices: int, repeats: int) -> tuple[Plan, Draw]:
    """Devices that all say one text, and send so many copies of their memo on one day."""
    metric = registry(kind="text", epsilon="2.0", epsilon_permanent="4.0", answers=1).metrics["color"]
    mechanism = metric.cells.mechanism
    assert isinstance(mechanism, RAPPOR)
    bits = np.array(
        [
            [mechanism.class_of("a", cohort) >> bit & 1 for bit in range(mechanism.k)]
            for cohort in range(metric.cells.count)
        ]
    )
    flip, one, zero = (
        threshold / 2**64
        for threshold in (mechanism.threshold_prr, mechanism.threshold_irr_1, mechanism.threshold_irr_0)
    )

    def draw(rng: np.random.Generator) -> Tally:
        cohorts = rng.integers(0, metric.cells.count, devices)
        memos = bits[cohorts] ^ (rng.random((devices, mechanism.k)) < flip)
        counts = np.zeros((metric.cells.count, 1 + mechanism.k), dtype=np.int64)
        chances, own = np.where(memos, one, zero), np.ones(devices, dtype=np.int64)
        of_cohort = csr_array((own, (cohorts, np.arange(devices))), shape=(metric.cells.count, devices))
        for _ in range(repeats):
            counts += of_cohort @ np.column_stack([own, rng.random(memos.shape) < chances])
        return Tally(devices * repeats, counts.ravel())

    return metric.plan, draw


def numbers(memo: str) -> tuple[Plan, Draw]:
    stored = stored_number("edges = [0, 1, 3, 10, 20]" if memo else "low = 0\nhigh = 10\nbuckets = 10", memo=memo)
    places = np.full(5 if memo else 13, 1 / (5 if memo else 13))
    return stored.plan, lambda rng: draw_numbers(stored.plan, places, 2_000, rng)


SOUND: dict[str, Callable[[], tuple[Plan, Draw]]] = {
    "grr": lambda: listed(GRR.for_epsilon(6, E1), 500),
    "few": lambda: listed(GRR.for_epsilon(6, Decimal(4)), 20),
    "pgr": lambda: listed(PGR.for_design(38, 7, 3, Decimal(2)), 400),
    "oue": lambda: listed(OUE.for_epsilon(20, E1), 300),
    "subsets": lambda: listed(SubsetSelection.for_weight(12, 3, E1), 400),
    "window": lambda: numbers(""),
    "memoized number": lambda: numbers("2"),
    "memoized text": lambda: memoized_text(400, 1),
    "memoized text, three reports a device": lambda: memoized_text(150, 3),
}
DAYS = scaled(40, 500)


def most(days: int, level: float) -> float:
    """Return how many of so many days may be implausible: one more, with any metric or level, comes once in 10^6."""
    return float(binom.isf(1e-6 / (2 * len(SOUND)), days, level))


@pytest.mark.parametrize("which", thinned([*SOUND], 0, 2, 3, 5, 8))
def test_of_sound_days_hardly_any_is_implausible(which: str) -> None:
    """Days of each of nine metrics: at most a thousandth is expected at one level, a twentieth at the other."""
    plan, draw = SOUND[which]()
    rng = np.random.default_rng(7)
    found = np.array([least(list(examine(plan, draw(rng)))) for _ in range(DAYS)])
    for level in (ALPHA, 0.05):
        assert np.count_nonzero(found <= level) <= most(DAYS, level)


def test_a_verdict_that_forgets_how_many_counts_it_looks_at_would_be_caught() -> None:
    plan, draw = SOUND["oue"]()
    rng = np.random.default_rng(7)
    spoiled = [min(each.p_value / each.tests / len(CHECKS) for each in examine(plan, draw(rng))) for _ in range(DAYS)]
    assert np.count_nonzero(np.array(spoiled) <= 0.05) > most(DAYS, 0.05)


def test_repeated_noise_taken_for_independent_would_be_caught() -> None:
    """Three reports a device: with the law of single ones cohorts are called uneven too often."""
    plan, draw = memoized_text(600, 3)
    rng, found = np.random.default_rng(7), []
    for _ in range(DAYS // 2):
        sizes = draw(rng).counts.reshape(plan.cells.count, -1)[:, 0]
        found.append(float(binomial(sizes, 1_800, 1 / 128, 1 / 128).min()) * 128)
    assert np.count_nonzero(np.array(found) <= 0.05) > most(len(found), 0.05)


@cache
def real(name: str) -> Metric:
    """Return a metric of each kind and form."""
    made: dict[str, Callable[[], Metric]] = {
        "flag": lambda: registry().metrics["dark"],
        "choices": lambda: registry(kind="choices", color="ticks_max = 2").metrics["color"],
        "ticked bits": lambda: registry(kind="choices", color='ticks_max = 2\nmechanism = "sue"').metrics["color"],
        "memoized choice": lambda: registry(epsilon="1.0", epsilon_permanent="2.0").metrics["color"],
        "text": lambda: registry(kind="text", reports=1).metrics["color"],
        "hashed memo": lambda: registry(
            kind="text", epsilon="1.0", epsilon_permanent="2.0", answers=1, color="candidates_expected = 20"
        ).metrics["color"],
        "words": lambda: registry(kind="words", reports=1).metrics["color"],
        "mean": lambda: number(low=0, high=10, asks=["mean"]),
        "table": lambda: table("a = ['red'], b = ['1', '2', '3'], c = ['p', 'q', 'r', 's']"),
        "arms": lambda: table("a = ['red'], b = ['1', '2']", "arm = ['x', 'y']"),
    }
    return made[name]()


def fleet(metric: Metric, answers: list[Any], devices: int) -> Tally:
    """Return the tally of devices that say one of the answers each, by their own randomizer."""
    chance = random.Random(11)
    rng, reports = Rng(chance.getrandbits), dict[int, list[int]]()
    for _ in range(devices):
        read = metric.read(chance.choice(answers))
        cells = metric.cells
        cell = (
            cells.of_device(chance.randrange(128)) if cells.lasting else cells.draw(rng, chance.randrange(cells.public))
        )
        seen = metric.class_of(read, cell, rng)
        reports.setdefault(cell, []).append(cells.mechanism_of(cell).randomize(seen, rng))
    packed = {cell: metric.cells.mechanism_of(cell).shape.pack(each) for cell, each in reports.items()}
    return Tally(devices, fold_cells(metric.cells, packed))


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        *(("flag", ["shares"]), ("choices", ["shares"]), ("ticked bits", ["shares", "ones"])),
        *(("memoized choice", ["shares"]), ("text", ["cells", "shares", "unused", "unused together"])),
        *(("hashed memo", ["cells", "shares"]), ("words", ["cells", "shares", "unused", "unused together"])),
        *(("mean", ["shares"]), ("table", ["cells", "shares"]), ("arms", ["shares"])),
    ],
)
def test_real_devices_of_every_kind_pass(name: str, checks: list[str]) -> None:
    metric = real(name)
    answers: list[Any] = [True, 3.0, "red", ["red", "green"], {"a": "red", "b": "1"}, None]
    checked = examine(metric.plan, fleet(metric, answers, 2_000))
    assert [each.check for each in checked] == checks
    assert least(list(checked)) > 0.01


def test_a_day_without_reports_has_nothing_to_check() -> None:
    plan = real("text").plan
    assert examine(plan, Tally(0, np.zeros(plan.cells.tally_size, dtype=np.int64))) == []


# Faults that are caught.


def test_two_percent_of_all_ones_are_caught_in_a_unary_code() -> None:
    mechanism = OUE.for_epsilon(20, E1)
    plan, draw = listed(mechanism, 4_900)
    honest = draw(np.random.default_rng(1))
    assert named(plan, honest) == {}
    assert "ones" in named(plan, tally_of(honest.counts[1:] + 100, 5_000))


def test_a_thousand_reports_of_one_cohort_are_caught() -> None:
    plan, draw = memoized_text(10_000, 1)
    honest = draw(np.random.default_rng(2))
    counts = honest.counts.reshape(plan.cells.count, -1).copy()
    counts[17] += 1_000 * counts[17] // counts[17, 0]  # as honest as those of that cohort are
    found = named(plan, Tally(int(counts[:, 0].sum()), counts.ravel()))
    assert found["cells"].of == "reports of cohort 17"


def test_one_report_sent_a_thousand_times_is_caught_by_values_that_nobody_has() -> None:
    mechanism = PGR.for_design(38, 7, 3, Decimal(2))
    plan, draw = listed(mechanism, 20_000)
    tally = draw(np.random.default_rng(3))
    counts = tally.counts[1:].copy()
    counts[5] += 1_000
    assert "unused" in named(plan, tally_of(counts, 21_000))


@pytest.mark.parametrize(("points", "devices"), [(range(38, 57), 3_000), (range(38), 5_000), (range(57), 16_000)])
def test_a_build_that_draws_points_of_its_own_is_caught(points: range, devices: int) -> None:
    """So many of 20,000 devices send only points of values that nobody has, never those, or any, which tells least.

    So many were seen with each of 40 seeds.
    """
    mechanism = PGR.for_design(38, 7, 3, Decimal(2))
    plan, draw = listed(mechanism, 20_000 - devices)
    rng = np.random.default_rng(4)
    counts = draw(rng).counts[1:] + np.bincount(rng.choice(list(points), devices), minlength=57)
    assert {"unused", "unused together"} & set(named(plan, tally_of(counts, 20_000)))


def test_devices_that_send_noise_alone_are_caught_together_where_none_is_by_itself() -> None:
    mechanism = PGR.for_design(38, 7, 3, Decimal(2))
    noise = np.random.default_rng(5).multinomial(5_000, np.full(57, 1 / 57))
    assert list(named(plan_of(mechanism), tally_of(noise, 5_000))) == ["unused together"]


def test_a_build_that_never_names_a_value_is_caught_by_a_share_far_below_zero() -> None:
    mechanism = GRR.for_epsilon(6, E1)
    plan, draw = listed(mechanism, 2_000)
    counts = draw(np.random.default_rng(6)).counts[1:].copy()
    counts[5] = 0
    found = named(plan, tally_of(counts, int(counts.sum())))
    assert (found["shares"].of, found["shares"].observed) == ("reports that support “other”", 0)


def test_rows_that_are_not_drawn_evenly_are_caught() -> None:
    metric = real("text")
    tally = fleet(metric, ["a"], 2_000)
    rows = tally.counts.reshape(4, -1).copy()
    rows[2] += rows[1]
    rows[1] = 0
    assert "cells" in named(metric.plan, Tally(2_000, rows.ravel()))


def test_the_cells_of_each_public_value_are_looked_at_by_themselves() -> None:
    """An arm that one device in a thousand has is no fault; a pair of columns that it never asks is one."""
    metric = table(
        "a = ['x', 'y', 'z'], b = ['1', '2', '3', '4', '5'], c = ['p', 'q', 'r', 's', 't']", "arm = ['x', 'y']"
    )
    assert metric.cells.each == 3
    counts = np.zeros(metric.cells.tally_size, dtype=np.int64)
    tally, rng = Tally(0, counts), np.random.default_rng(8)
    for part, rows, cell in parts_of(metric.cells, counts):
        n = 2_000 if cell < 3 else {3: 12, 4: 0, 5: 13}[cell]
        mechanism = cast("PureMechanism", part.mechanism)
        rows[0, 1:] = draw_tally(mechanism, rng.multinomial(n, np.full(mechanism.d, 1 / mechanism.d)), rng)
        rows[0, 0] = n
        tally = Tally(tally.n + n, counts)
    assert named(metric.plan, tally) == {}
    for _, rows, cell in parts_of(metric.cells, counts):
        if cell in (3, 5):
            rows *= 10
    found = named(metric.plan, Tally(6_250, counts))
    assert found["cells"].of == "reports of cell 4"


# Faults that are not caught.


def test_made_up_answers_with_honest_noise_pass_and_move_the_estimate() -> None:
    """A tenth of the devices say a value that nobody has."""
    mechanism = PGR.for_design(38, 7, 3, Decimal(2))
    shares = np.zeros(38, dtype=np.int64)
    shares[0], shares[30] = 18_000, 2_000
    rng = np.random.default_rng(9)
    tally = tally_of(draw_tally(mechanism, shares, rng), 20_000)
    assert named(plan_of(mechanism), tally) == {}
    support = support_counts(mechanism, tally.counts[1:], 20_000)[30]
    assert (support / 20_000 - float(mechanism.q)) / float(mechanism.p - mechanism.q) > 0.08


def test_several_days_of_the_same_devices_would_always_be_called_uneven() -> None:
    """So days are never checked together: 60 days of 2,000 devices, each in its cohort for good."""
    plan, _ = memoized_text(10, 1)
    rng = np.random.default_rng(10)
    cohorts = np.bincount(rng.integers(0, 128, 2_000), minlength=128)
    counts = np.zeros((128, plan.cells.tally_size // 128), dtype=np.int64)
    mechanism = cast("RAPPOR", plan.mechanism)

    def days(number: int) -> Iterator[Checked]:
        counts[:, 0] = cohorts * number
        counts[:, 1:] = rng.binomial(
            counts[:, :1], (float(mechanism.p_star) + float(mechanism.q_star)) / 2, counts[:, 1:].shape
        )
        yield from (each for each in examine(plan, Tally(2_000 * number, counts.ravel())) if each.check == "cells")

    assert not next(days(1)).implausible
    assert next(days(60)).implausible
