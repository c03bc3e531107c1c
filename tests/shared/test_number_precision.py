"""The planning figures of numbers, against simulations of a million reports from the mechanisms' exact laws."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_shared.kinds import number_precision
from dither_shared.kinds.number import GRID, mean_window
from dither_shared.mechanisms import GRR, PureMechanism, SquareWave
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.registry import Metric
from dither_shared.rng import SCALE
from tests.support.laws import law_of_class
from tests.support.numbers import MEMO, number

Floats = NDArray[np.float64]
N = 1_000_000
RUNS = 4_000
WITHIN = 6 / (2 * RUNS) ** 0.5
"""Six times the relative standard error of a standard deviation of so many runs: 6.7 %, a false alarm of 2e-9."""
OWN = 0.03
"""The figures are of numbers that are spread evenly over ranges; rounding to a grid makes that a little untrue."""


def law_of_window(window: SquareWave) -> Floats:
    """Return A[y, v] = P[y | v]."""
    inside = window.threshold / SCALE
    law = np.full((window.outputs, window.d), (1 - inside) / (window.outputs - window.width))
    for place in range(window.d):
        law[place : place + window.width, place] = inside / window.width
    return law


def law_of_points(points: PureMechanism, d: int) -> Floats:
    """Return that of the first d values, of a design that is small enough to enumerate."""
    columns = [law_of_class(points, value) for value in range(d)]
    return np.array([[float(column[y]) for column in columns] for y in sorted(columns[0])])


def spread(law: Floats, shares: Floats, functional: Floats, rng: np.random.Generator) -> float:
    """Return the standard deviation of functional . f in runs of N reports, estimated with least variance."""
    expected = law @ shares
    weighted = law / expected[:, None]
    weights = weighted @ np.linalg.solve(law.T @ weighted, functional)
    assert weights @ expected == pytest.approx(functional @ shares)  # unbiased
    counts = rng.multinomial(N, expected / expected.sum(), size=RUNS)
    return float(np.std(counts @ weights / N))


def simulated_of_buckets(metric: Metric, seed: int) -> Mapping[str, float]:
    """Return the errors of the mean and of F at the middle edge, times the width of all ranges."""
    window, points = (part.mechanism for part in metric.cells.parts)
    assert isinstance(window, SquareWave)
    law = np.vstack([2 * law_of_window(window), law_of_points(cast("PureMechanism", points), window.d)]) / 3
    edges = np.array(cast("list[int]", metric.asked.domain.to_document()["edges"]), dtype=float)
    widths = np.array([1e-3 * (edges[-1] - edges[0]), *np.diff(edges), 1e-3 * (edges[-1] - edges[0])])
    middles = np.array([edges[0], *(edges[1:] + edges[:-1]) / 2, edges[-1]])
    rng, shares = np.random.default_rng(seed), widths / widths.sum()
    half = np.argmin(np.abs(edges - (edges[0] + edges[-1]) / 2))
    at_half = spread(law, shares, (np.arange(window.d) <= half).astype(float), rng)
    return {"mean": spread(law, shares, middles, rng), "median": at_half * (edges[-1] - edges[0])}


def simulated_of_mean(metric: Metric, seed: int) -> Mapping[str, float]:
    """Return the error of the mean of numbers that are evenly spread over the range, and rounded by coins."""
    window = cast("SquareWave", metric.mechanism)
    shares = np.array([0.5, *[1.0] * (window.d - 2), 0.5]) / (window.d - 1)
    low, high = cast("list[int]", metric.asked.domain.to_document()["edges"])
    places = low + (high - low) * np.arange(window.d) / (window.d - 1)
    return {"mean": spread(law_of_window(window), shares, places, np.random.default_rng(seed))}


def simulated_of_thresholds(metric: Metric, seed: int) -> Mapping[str, float]:
    """Return the errors of the sum over steps, and of the one step that the middle is the end of."""
    bit = cast("PureMechanism", metric.mechanism)
    edges = np.array(cast("list[int]", metric.asked.domain.to_document()["edges"]), dtype=float)
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    p, q = float(bit.p), float(bit.q)
    rates = q + (p - q) * (edges[-1] - middles) / (edges[-1] - edges[0])
    rng = np.random.default_rng(seed)
    devices = rng.multinomial(N, [1 / len(widths)] * len(widths), size=RUNS)
    above = (rng.binomial(devices, rates) / devices - q) / (p - q)
    step = np.searchsorted(edges, (edges[0] + edges[-1]) / 2, "right") - 1
    return {
        "mean": float(np.std(above @ widths)),
        "median": float(np.std(above[:, step]) * (edges[-1] - edges[0])),
    }


EVEN: dict[str, object] = {"low": 0, "high": 30, "buckets": 6}
LOG: dict[str, object] = {"low": 1, "high": 1000, "buckets": 9, "scale": "log"}
Simulate = Callable[[Metric, int], Mapping[str, float]]
CASES: list[tuple[Metric, Simulate]] = [
    *(
        (number(**keys, epsilon=Decimal(epsilon)), simulated_of_buckets)
        for keys in (EVEN, LOG)
        for epsilon in ("0.5", "1", "4", "10")
    ),
    *(
        (number(low=-5, high=30, asks=["mean"], epsilon=Decimal(epsilon)), simulated_of_mean)
        for epsilon in ("0.5", "1", "2", "4", "8")
    ),
    *(
        (number(**{**MEMO, "epsilon_permanent": 8}, **keys, epsilon=epsilon), simulated_of_thresholds)
        for keys in ({**EVEN, "buckets": 16}, {**LOG, "buckets": 8})
        for epsilon in (1, 4)
    ),
]


def named(case: object) -> str:
    return f"{case.asked.domain.name} {case.epsilon}" if isinstance(case, Metric) else ""


@pytest.mark.parametrize(("metric", "simulate"), CASES, ids=named)
def test_std_errors_are_those_of_simulated_reports(metric: Metric, simulate: Simulate) -> None:
    """Over all cases some 30 deviations of 4,000 runs, each within six of its own standard errors and 3 %."""
    step = 10.0 ** -cast("int", metric.asked.domain.to_document()["decimals"])
    planned, simulated = metric.std_errors(N), simulate(metric, 5)
    assert planned.keys() == simulated.keys()
    for name, error in simulated.items():
        assert planned[name] == pytest.approx(error * step, rel=WITHIN + OWN), name


def test_errors_that_leave_out_who_was_sampled_would_be_caught() -> None:
    """A planted bug: noise alone, without that the devices are a sample. At epsilon 8 most of the error is that."""
    metric, simulate = next(case for case in CASES if case[0].epsilon == 8)
    sample = 35 / 12**0.5 / N**0.5
    noise_alone = (metric.std_errors(N)["mean"] ** 2 - sample**2) ** 0.5
    assert noise_alone != pytest.approx(simulate(metric, 5)["mean"], rel=WITHIN + OWN)


@pytest.mark.parametrize("n", [1, 100, 10**9])
def test_errors_fall_with_the_root_of_the_number_of_reports(n: int) -> None:
    for metric, _ in CASES[::4]:
        for name, error in metric.std_errors(n).items():
            assert error * n**0.5 == pytest.approx(metric.std_errors(1)[name])


def test_the_decimals_change_nothing_in_the_unit() -> None:
    one, more = (number(**EVEN, decimals=decimals).std_errors(N) for decimals in (0, 6))
    assert one == pytest.approx(more)


def worst_variance(window: SquareWave) -> float:
    """Return the variance of one report's part in the mean, of the number for which it is largest."""
    law, places = law_of_window(window), np.linspace(0, 1, window.d)
    weighted = law / law.mean(axis=1)[:, None]
    weights = weighted @ np.linalg.solve(law.T @ weighted, places)
    return float((weights**2 @ law - places**2).max())


@pytest.mark.parametrize(
    "epsilon", ["0.01", "0.5", "1", "1.8", "1.9", "3.2", "3.3", "4.7", "5.7", "6.6", "8", "10", "15"]
)
def test_the_reach_for_the_mean_is_within_six_percent_of_the_best(epsilon: str) -> None:
    wanted = Decimal(epsilon)
    every = [worst_variance(SquareWave.for_reach(GRID, reach, wanted)) for reach in range(48)]
    assert every[mean_window(wanted).reach] <= 1.06 * min(every)


def test_points_that_are_taken_for_equally_likely_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that was here: on a logarithmic scale at epsilon 4 the variance came out below zero."""

    def alike(points: TwoLevel, shares: Sequence[float]) -> list[list[float]]:
        same, other = points.law.information
        return [[same if v == w else other for v in range(len(shares))] for w in range(len(shares))]

    monkeypatch.setattr(number_precision, "_of_points", alike)
    with pytest.raises(ValueError, match="math domain"):
        number(**LOG, epsilon=4).std_errors(N)


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "2", "4", "5", "20"])
@pytest.mark.parametrize("high", ["0.02", "60", "1e9"])
def test_every_metric_has_errors_however_skew_its_ranges_are(high: str, epsilon: str) -> None:
    keys: dict[str, object] = {
        "low": Decimal("0.01"),
        "high": Decimal(high),
        "scale": "log",
        "epsilon": Decimal(epsilon),
    }
    for metric in (number(**keys, buckets=2), number(**keys, buckets=30)):
        assert all(error > 0 for error in metric.std_errors(N).values())


def test_a_mean_costs_less_alone_than_as_one_of_all() -> None:
    """Nor as one bit, to which a coin rounds the number: half of the range over p - q."""
    for epsilon in ("0.5", "1", "2", "4"):
        alone = number(low=0, high=30, asks=["mean"], epsilon=Decimal(epsilon)).std_errors(N)["mean"]
        mixture = number(**{**EVEN, "buckets": 64, "decimals": 2}, epsilon=Decimal(epsilon)).std_errors(N)["mean"]
        bit = GRR.for_epsilon(2, Decimal(epsilon))
        assert alone < 30 * 0.5 / float(bit.p - bit.q) / N**0.5
        assert alone < mixture < 2.2 * alone
