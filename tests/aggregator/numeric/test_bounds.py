"""Bounds, against slower ways to the same: a general solver, and a scan of all places."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from dither_aggregator.analysis import numeric_fit as bounds_module
from dither_aggregator.analysis.channel import channel_of
from dither_aggregator.analysis.numeric_fit import HEAVY, Bounds, Nearest, fit, quantile_bounds, ratio_bounds
from dither_aggregator.store import StoredPlan
from tests.aggregator.numeric.test_channel import FRESH, HIDDEN, MEMO, spread
from tests.support.drawn_numbers import Floats, draw_numbers, places_of
from tests.support.soaking import scaled

Z = 1.96
PLANS = pytest.mark.parametrize("stored", [FRESH, HIDDEN, MEMO], ids=["fresh", "hidden", "memoized"])


def bounds_of(stored: StoredPlan, truth: Floats, n: int, seed: int) -> Bounds:
    tally = draw_numbers(stored.plan, truth, n, np.random.default_rng(seed))
    return Bounds(fit(channel_of(stored.plan, tally.counts, tally.n)), Z)


def nearest(bounds: Bounds, zero: Floats | None = None) -> float:
    """The least squared distance from the counts of shares, at which a functional is zero: by a general solver."""
    root, raw = bounds.fit.root, bounds.fit.raw
    rules: list[dict[str, Any]] = [{"type": "eq", "fun": lambda f: f.sum() - 1, "jac": np.ones_like}]
    if zero is not None:
        rules.append({"type": "eq", "fun": lambda f: f @ zero, "jac": lambda f: zero})
    hessian, solve = root.T @ root, cast("Any", minimize)  # its stubs know no rules with a "jac"
    ends = [
        solve(
            lambda f: float((f - raw) @ hessian @ (f - raw)),
            start,
            jac=lambda f: 2 * hessian @ (f - raw),
            bounds=[(0, 1)] * len(raw),
            constraints=rules,
            method="SLSQP",
            options={"maxiter": 2_000, "ftol": 1e-12},
        )
        for start in (np.full(len(raw), 1 / len(raw)), np.clip(raw, 0, 1))
    ]
    return min(float(end.fun) for end in ends if abs(end.x.sum() - 1) < 1e-6)


def slowly(bounds: Bounds, functional: Floats) -> float:
    """How far away it is that a functional is zero, as `Bounds.distance` says it should be."""
    strict = np.sqrt(max(nearest(bounds, functional) - nearest(bounds), 0.0))
    estimate = functional @ bounds.fit.raw
    if estimate <= functional @ bounds.nearest:
        return float(strict)
    return min(float(strict), max(-float(estimate), 0.0) / float(bounds.fit.std_error(functional)))


def values_of(bounds: Bounds) -> tuple[Floats, Floats, Floats]:
    places = bounds.fit.channel.places
    rest = np.zeros(len(places.others))
    return np.append(places.mean_lower, rest), np.append(places.mean_upper, rest), places.is_number


@PLANS
@pytest.mark.parametrize("n", [3_000, 100_000])
def test_the_ends_of_a_mean_are_z_from_the_counts(stored: StoredPlan, n: int) -> None:
    bounds = bounds_of(stored, spread(places_of(stored.plan)), n, 1)
    lower, upper, is_number = values_of(bounds)
    low, high = ratio_bounds(bounds, lower, upper, is_number)
    assert lower.min() < low < high < upper.max()
    for functional in (np.where(is_number > 0, low - lower, 0), np.where(is_number > 0, upper - high, 0)):
        assert slowly(bounds, functional) == pytest.approx(Z, rel=0.01)


@PLANS
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_a_scan_of_all_places_finds_the_same_ends_of_a_quantile(stored: StoredPlan, probability: float) -> None:
    bounds = bounds_of(stored, spread(places_of(stored.plan)), 20_000, 2)
    is_number, places = bounds.fit.channel.places.is_number, bounds.fit.channel.places.numbers
    above = np.tril(np.ones((places, len(is_number)))) - probability * is_number
    may = [
        [bool(each @ bounds.nearest >= 0) or bounds.distance(each) <= Z for each in functionals]
        for functionals in (above, -above)
    ]
    # The shares up to a place may be enough if those up to a lower one may be, and may be too few as well.
    enough, too_few = np.maximum.accumulate(may[0][:-1]), np.maximum.accumulate(may[1][-2::-1])[::-1]
    where = np.flatnonzero(np.append(enough, True) & np.insert(too_few, 0, True))
    assert quantile_bounds(bounds, probability) == (where[0], where[-1])


@PLANS
def test_distances_are_those_of_a_general_solver(stored: StoredPlan) -> None:
    bounds = bounds_of(stored, spread(places_of(stored.plan)), 20_000, 3)
    is_number, places = bounds.fit.channel.places.is_number, bounds.fit.channel.places.numbers
    for at in range(0, places - 1, scaled(4, 1)):
        functional = np.tril(np.ones((places, len(is_number))))[at] - 0.5 * is_number
        functional *= -np.sign(functional @ bounds.nearest)
        assert bounds.distance(functional) == pytest.approx(slowly(bounds, functional), rel=0.01, abs=0.02)


@pytest.mark.parametrize("at", [0, -1], ids=["lowest", "highest"])
def test_a_mean_at_the_end_of_the_axis_is_reached(at: int) -> None:
    bounds = bounds_of(MEMO, np.eye(places_of(MEMO.plan))[at], 3_000, 5)
    low, high = ratio_bounds(bounds, *values_of(bounds))
    assert low <= values_of(bounds)[0][at] <= high


@PLANS
def test_the_nearest_shares_are_those_of_a_solver_that_begins_anew(stored: StoredPlan) -> None:
    """It must not matter what was asked before, although that is where the guess of empty places comes from."""
    for seed, n in enumerate((300, 5_000, 200_000)):
        fitted = bounds_of(stored, spread(places_of(stored.plan)), n, seed).fit
        found, root = Nearest(fitted), fitted.root
        weight = HEAVY * float(np.abs(root).max())
        lower, _, is_number = values_of(Bounds(fitted, Z))
        means = [np.where(is_number > 0, lower - mean, 0) for mean in np.linspace(lower.max(), lower.min(), 9)[1:-1]]
        up_to = np.tril(np.ones((len(lower), len(lower)))) - 0.7 * is_number
        for zero in (None, *means, *up_to[:-1], None):
            rows, wanted = [root, np.full(len(lower), weight)], [*(root @ fitted.raw), weight]
            if zero is not None:
                rows, wanted = [*rows, zero * weight / np.abs(zero).max()], [*wanted, 0.0]
            shares, distance = nnls(np.vstack(rows), np.array(wanted))
            slowly_found = found._from_nothing(None if zero is None else zero / np.abs(zero).max())
            assert slowly_found[1] == pytest.approx(distance, rel=1e-8, abs=1e-7)
            for own, other in zip(found.at(zero), (shares, distance), strict=True):
                assert own == pytest.approx(other, rel=1e-8, abs=1e-7)


@PLANS
@pytest.mark.parametrize("n", [3_000, 200_000])
def test_an_end_that_is_reckoned_is_that_of_a_solver_with_heavier_sums(stored: StoredPlan, n: int) -> None:
    """Both sums hold exactly there; beside weights of 1e3 as in `Nearest` shares gain a millionth of the distance."""
    bounds = bounds_of(stored, spread(places_of(stored.plan)), n, 6)
    lower, upper, is_number = values_of(bounds)
    root, raw, ones = bounds.fit.root, bounds.fit.raw, np.ones(len(lower))
    weight = 100 * HEAVY * float(np.abs(root).max())

    def squares(*sums: Floats) -> float:
        rows, wanted = [root, *(weight * each for each in sums)], [*(root @ raw), weight, *[0.0] * (len(sums) - 1)]
        return float(nnls(np.vstack(rows), np.array(wanted))[1] ** 2)

    for values in (-lower, upper):
        mean = bounds.largest_mean(values, float(values[is_number > 0].max()))
        assert mean is not None
        zero = values - mean * is_number
        distance = np.sqrt(squares(ones, zero / np.abs(zero).max()) - squares(ones))
        assert distance == pytest.approx(Z, rel=1e-6)
        assert bounds.strict(zero) == pytest.approx(Z, rel=1e-4)


def test_an_end_is_reckoned_with_what_answers_of_few_devices_widen() -> None:
    once = bounds_of(FRESH, spread(places_of(FRESH.plan)), 2_000, 7)
    bounds = Bounds(once.fit.repeated(None, 20), Z)
    lower, upper, is_number = values_of(bounds)
    for values in (-lower, upper):
        mean = bounds.largest_mean(values, float(values[is_number > 0].max()))
        assert mean is not None
        functional = values - mean * is_number
        assert bounds.fit.widening(functional, Z) > 1.1
        assert bounds.strict(functional) == pytest.approx(Z, rel=1e-4)


@PLANS
def test_no_mean_beyond_an_end_is_possible(stored: StoredPlan) -> None:
    """A scan of 100 means up to the end of the axis finds the last possible one before it, and the next beyond."""
    kinds = set[str]()
    for seed in range(12):
        bounds = bounds_of(stored, np.eye(places_of(stored.plan))[1], 3_000, seed)
        lower, upper, is_number = values_of(bounds)
        low, high = ratio_bounds(bounds, lower, upper, is_number)
        for end, values in ((-low, -lower), (high, upper)):
            top = float(values[is_number > 0].max())
            inside = float(values @ bounds.nearest / (is_number @ bounds.nearest))
            means = np.linspace(inside, top, 100)
            possible = np.flatnonzero([bounds.distance(values - mean * is_number) <= Z for mean in means[1:]])
            last = int(possible[-1]) + 1 if len(possible) else 0
            assert means[last] <= end + 2e-3 * abs(end - inside)
            assert last == 99 or end <= means[last + 1]
            strict = bounds.largest_mean(values, top)
            kinds.add("top" if end == top else "strict" if end == strict else "wald")
    assert kinds >= {"strict", "wald"}


@PLANS
def test_ends_that_are_searched_are_those_that_are_reckoned(
    stored: StoredPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (3_000, 100_000):
        bounds = bounds_of(stored, spread(places_of(stored.plan)), n, 8)
        lower, upper, is_number = values_of(bounds)
        reckoned = ratio_bounds(bounds, lower, upper, is_number)
        with monkeypatch.context() as patch:
            patch.setattr(bounds_module, "TURNS", 0)
            searched = ratio_bounds(Bounds(bounds.fit, Z), lower, upper, is_number)
        width = reckoned[1] - reckoned[0]
        assert searched == pytest.approx(reckoned, abs=2e-3 * width)
        assert searched != reckoned


def test_a_mean_does_not_depend_on_rounding_where_no_share_is_negative() -> None:
    """Then raw shares are the best ones, and Wald's interval counts, whichever is larger in the last digit."""
    fitted = bounds_of(FRESH, np.full(places_of(FRESH.plan), 1 / places_of(FRESH.plan)), 1_000_000, 3).fit
    assert fitted.raw.min() > 0
    ends = []
    for off in (-1e-15, 0.0, 1e-15):
        bounds = Bounds(replace(fitted, raw=fitted.raw + off * np.arange(len(fitted.raw))), Z)
        lower, upper, is_number = values_of(bounds)
        ends.append(ratio_bounds(bounds, lower, upper, is_number))
        assert bounds.distance(lower - ends[-1][1]) <= bounds.strict(lower - ends[-1][1])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
    assert ends[2] == pytest.approx(ends[1], rel=1e-9)
