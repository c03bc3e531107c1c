from decimal import Decimal
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from dither_aggregator.analysis.words import Numbers, Sketch, Sketched
from dither_shared.mechanisms import PGR, choose
from tests.support.points import draw_points, points_on

ROWS = 4


@cache
def mechanism(bits: int = 10) -> PGR:
    chosen = choose(1 << bits, Decimal(2), name=PGR.name)
    assert isinstance(chosen, PGR)
    return chosen


def multipliers(rng: np.random.Generator) -> list[int]:
    return [int(each) | 1 for each in rng.integers(1 << 63, size=ROWS)]


def test_reports_drawn_in_bulk_follow_the_law_of_the_mechanism() -> None:
    """100,000 reports of three values, chi-square over all 31 points: a false alarm in 1e6. Another law is seen."""
    small = PGR.for_design(9, 5, 3, Decimal(1))
    counts = np.array([50_000, 0, 30_000, 0, 0, 0, 0, 0, 20_000])
    law = np.zeros(small.outputs)
    points = np.array([small.unrank(point) for point in range(small.outputs)])
    s = float(small.law.share) * small.outputs
    for value, count in enumerate(counts):
        on = points @ points[value] % small.order == 0
        law += count * np.where(on, float(small.inside) / s, float(1 - small.inside) / (small.outputs - s))
    line = chi2.isf(1e-6, small.outputs - 1)
    rng = np.random.default_rng(1)
    assert ((draw_points(small, counts, rng) - law) ** 2 / law).sum() < line
    assert ((draw_points(small, counts[::-1].copy(), rng) - law) ** 2 / law).sum() > line


def test_points_drawn_on_a_hyperplane_lie_on_it_uniformly() -> None:
    """Every value of the plane over 5, 2,000 points each: chi-square over its 6 points, a false alarm in 1e6."""
    small = PGR.for_design(31, 5, 3, Decimal(1))
    points = np.array([small.unrank(point) for point in range(small.outputs)])
    drawn = points_on(small, np.repeat(np.arange(31), 2_000), np.random.default_rng(2)).reshape(31, -1)
    for value in range(31):
        on = points @ points[value] % small.order == 0
        seen = np.bincount(drawn[value], minlength=small.outputs)
        assert not seen[~on].any()
        expected = 2_000 / on.sum()
        assert ((seen[on] - expected) ** 2 / expected).sum() < chi2.isf(1e-6 / 31, on.sum() - 1)


def tally_of(
    numbers: Numbers, held: npt.NDArray[np.int64], factors: list[int], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw the tally of four equal rows."""
    rows = []
    for factor in factors:
        here = rng.multinomial(held.sum() // ROWS, held / held.sum())
        buckets = (numbers * np.uint64(factor) >> np.uint64(54)).astype(np.int64)
        counts = np.bincount(buckets, weights=here, minlength=1 << 10).astype(np.int64)
        rows.append(np.concatenate([[here.sum()], draw_points(mechanism(), counts, rng)]))
    return np.array(rows)


def test_estimates_are_unbiased_and_have_the_stated_error() -> None:
    """200,000 devices: 300 texts are estimated within 5.6 standard errors, a false alarm in 1e5 texts of 1e-8 each.

    The squared scores add up to their number within 5 sigma; with rows exchanged (the planted bug) they do not.
    """
    rng = np.random.default_rng(3)
    numbers = rng.integers(1 << 63, size=300).astype(np.uint64)
    held = rng.multinomial(200_000, np.full(300, 1 / 300))
    factors = multipliers(rng)
    tally = tally_of(numbers, held, factors, rng)
    shares = np.full(300, 1 / 300)

    def scores(order: list[int]) -> npt.NDArray[np.float64]:
        read = Sketch.of_tally(mechanism(), tally, order)
        places = np.array([read.buckets(numbers, row) for row in range(ROWS)])
        collisions = np.sqrt((shares**2).sum() / (ROWS << 10))
        error = np.hypot(read.std_error, collisions)
        assert places.max() < 1 << 10
        return np.asarray((read.shares_of(numbers) - shares) / error)

    right, exchanged = scores(factors), scores(factors[::-1])
    assert np.abs(right).max() < 5.6
    assert abs((right**2).sum() - 300) < 5 * np.sqrt(600)
    assert abs(exchanged.mean()) > 5 / np.sqrt(300)


def test_texts_are_estimated_without_the_rows_that_they_share_with_a_heavy_one() -> None:
    factors = [1, 3, 5, 7]
    heavy, light = np.uint64(0), np.uint64((1 << 54) - 1)
    read = sketch_of({int(heavy): 0.5, int(light): 0.01}, factors)
    places = [read.buckets(np.array([heavy, light]), row).tolist() for row in range(ROWS)]
    met = [row for row, (one, other) in enumerate(places) if one == other]
    assert met == [0]
    assert read.shares_of(np.array([light]))[0] > 0.1
    apart = read.apart(np.array([light, heavy]))
    assert np.allclose(apart.shares, [0.01, 0.5], atol=1e-6)
    assert apart.n.tolist() == [750_000, 750_000]
    lighter = sketch_of({int(heavy): 0.5, int(light): 0.004}, factors).apart(np.array([light, heavy]))
    assert np.allclose(lighter.shares, [0.004, 0.501], atol=1e-6), "what may be noise takes nothing from a heavier one"
    assert lighter.n.tolist() == [750_000, 1_000_000]


def test_a_text_that_shares_every_row_with_a_lighter_one_keeps_one() -> None:
    """A text shares each of its rows with another one. None of these is told from it, and it keeps its own."""
    factors, rng = [1, 3, 5, 7], np.random.default_rng(8)
    heavy = np.uint64(1 << 62)
    bare = sketch_of({}, factors)
    own = [int(bare.buckets(np.array([heavy]), row)[0]) for row in range(ROWS)]
    numbers = rng.integers(1 << 64, size=20_000, dtype=np.uint64)
    meets = np.array([bare.buckets(numbers, row) == own[row] for row in range(ROWS)])
    others = [int(numbers[meets[row] & (meets.sum(axis=0) == 1)][0]) for row in range(ROWS)]
    read = sketch_of({int(heavy): 0.3, **dict.fromkeys(others, 0.05)}, factors)
    apart = read.apart(np.array([heavy, *others], dtype=np.uint64))
    assert (apart.n > 0).all()
    assert apart.n[0] == 250_000
    assert apart.shares[0] == pytest.approx(0.35, abs=1e-6)
    assert np.allclose(apart.shares[1:], 0.05, atol=1e-6)


def test_every_candidate_that_is_heavier_than_noise_ever_is_takes_its_buckets() -> None:
    """A text that nobody has shares a bucket of one row with the lightest of 60: alone, it would have 0.2 %."""
    factors, heavy = [1, 3, 5, 7], [number << 54 for number in range(60)]
    shares = {number: 0.02 - 0.0002 * place for place, number in enumerate(heavy)}
    read = sketch_of(shares, factors)
    taken = np.array([read.buckets(np.array(heavy, dtype=np.uint64), row) for row in range(ROWS)])
    numbers = np.random.default_rng(5).integers(1 << 63, size=5_000).astype(np.uint64)
    meets = np.array([read.buckets(numbers, row) for row in range(ROWS)])
    lightest = (meets == taken[:, [-1]]).sum(axis=0) == 1
    others = sum(np.isin(meets[row], taken[row, :-1]) for row in range(ROWS)) == 0
    unlucky = numbers[lightest & others][0]
    assert read.shares_of(np.array([unlucky]))[0] > 0.0015
    apart = read.apart(np.array([*heavy, unlucky], dtype=np.uint64))
    assert abs(apart.shares[-1]) < 1e-6
    assert apart.n[-1] == 750_000


def test_what_stands_out_by_noise_alone_takes_no_buckets_but_for_a_few() -> None:
    """Three standard errors are passed by 1,600 of a million candidates, and 2,000 others lose 3 % of their reports.

    So many buckets of a row have the 30 that are taken: 6 sigma, a false alarm of 1e-9. Were all taken that pass (the
    planted bug), the others lost 8 %.
    """
    rng = np.random.default_rng(6)
    error = np.sqrt(float(mechanism().noise_variance) / 250_000)
    noise = rng.normal(scale=error, size=(ROWS, 1 << 10)).astype(np.float32)
    factors = np.array(multipliers(rng), dtype=np.uint64)
    read = Sketch(noise, np.full(ROWS, 250_000), factors, mechanism())
    many, others = (rng.integers(1 << 63, size=size).astype(np.uint64) for size in (1_000_000, 2_000))
    out = many[read.shares_of(many) > read.share_at(3.0)]
    assert len(out) > 1_000
    apart = read.apart(np.concatenate([out, others]))
    assert apart.n[-len(others) :].mean() > 960_000


def test_a_row_far_above_a_texts_others_is_left_out_where_texts_may_be_heavy_that_are_no_candidates() -> None:
    """Nobody has the light one. A row that noise may have made stays, and so do all rows of the heavy one."""
    factors = [1, 3, 5, 7]
    heavy, light = np.uint64(0), np.uint64((1 << 54) - 1)
    alone = np.array([light])
    for share, kept in ((0.5, 750_000), (0.005, 1_000_000)):
        read = sketch_of({int(heavy): share}, factors)
        assert read.apart(alone).n.tolist() == [1_000_000]
        told = read.apart(alone, unlisted=True)
        assert told.n.tolist() == [kept]
        assert told.shares[0] == pytest.approx(0.0 if kept < 1_000_000 else share / 4, abs=1e-6)
        assert read.apart(np.array([heavy]), unlisted=True).n.tolist() == [1_000_000]


def test_of_few_reports_no_row_is_far_above_others_by_chance() -> None:
    """2,000 texts of 400 reports at epsilon 6, where one report is four standard errors: hardly any loses a row."""
    chosen = choose(1 << 10, Decimal(6), name=PGR.name)
    assert isinstance(chosen, PGR)
    rng = np.random.default_rng(9)
    numbers = rng.integers(1 << 64, size=2_000, dtype=np.uint64)
    rows = [
        np.concatenate([[100], draw_points(chosen, rng.multinomial(100, np.full(1 << 10, 2**-10)), rng)])
        for _ in range(ROWS)
    ]
    read = Sketch.of_tally(chosen, np.array(rows), multipliers(rng))
    lost = read.apart(numbers).n - read.apart(numbers, unlisted=True).n
    assert np.count_nonzero(lost) < 20


def test_rows_without_reports_tell_nothing() -> None:
    design = mechanism()
    empty = np.zeros((ROWS, 1 + design.outputs), dtype=np.int64)
    read = Sketch.of_tally(design, empty, [1, 3, 5, 7])
    estimates = read.apart(np.array([1, 2], dtype=np.uint64))
    assert estimates.shares.tolist() == [0, 0]
    assert estimates.n.tolist() == [0, 0]
    assert not (read.shares_of(np.arange(9, dtype=np.uint64)) > read.share_at(3.0)).any()


def sketch_of(shares: dict[int, float], factors: list[int]) -> Sketch:
    """Return the sketch of a million devices without noise."""
    table = np.zeros((ROWS, 1 << 10), dtype=np.float32)
    for row, factor in enumerate(factors):
        for number, share in shares.items():
            table[row, (number * factor & (1 << 64) - 1) >> 54] += share
    return Sketch(table, np.full(ROWS, 250_000), np.array(factors, dtype=np.uint64), mechanism())


def test_a_count_of_none_has_a_score_with_an_end() -> None:
    scores = Sketched(np.array([-1.0, 0.0, 1.0]), np.full(3, 50), mechanism()).scores
    assert np.isfinite(scores).all()
    assert (np.diff(scores) > 0).all()


def test_the_error_of_a_window_is_that_of_its_interval() -> None:
    """Both know that one device may have sent nine of the reports: the same answers add to both.

    Nine times fewer devices have an exact interval, a little wider than one of standard errors.
    """
    one = Sketched(np.array([0.3]), np.array([200_000]), mechanism())
    for repeats in (1, 9):
        lower, upper = one.ends(0.05, repeats)
        assert (upper - lower) / 2 / 1.959964 == pytest.approx(one.std_errors(repeats), rel=5e-3)
