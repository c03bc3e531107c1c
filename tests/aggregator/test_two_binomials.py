"""Exact intervals of the share among n reports. Laws are enumerated: no test here can fail by chance."""

from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import inference
from dither_aggregator.analysis.inference import clopper_pearson, exact_ends
from dither_aggregator.analysis.pure import estimate_shares
from dither_shared.mechanisms import GRR
from tests.support.soaking import thinned

Floats = npt.NDArray[np.float64]

LAWS = [(0.9, 0.01), (0.73, 0.27), (0.9975, 0.0025), (0.5, 0.01), (0.95, 0.6), (0.12, 0.02), (1 - 2e-9, 2e-9)]
SHARES = (0.02, 0.3, 0.5, 0.9, 0.98)


def law(m: int, n: int, p: float, q: float) -> Floats:
    """Return P[C = 0], ..., P[C = n] of C = Bin(m, p) + Bin(n - m, q)."""
    return np.convolve(binom.pmf(np.arange(m + 1), m, p), binom.pmf(np.arange(n - m + 1), n - m, q))


@lru_cache(maxsize=16)
def laws(ms: tuple[int, ...], n: int, p: float, q: float) -> Floats:
    """Return the law of each m, a row each: cases of several alphas share them."""
    return np.array([law(m, n, p, q) for m in ms])


def coverage(ms: tuple[int, ...], n: int, p: float, q: float, ends: tuple[Floats, Floats]) -> Floats:
    """Return for each m how often intervals with these ends, by counts 0 to n, hold the share m / n."""
    shares = np.array(ms)[:, np.newaxis] / n
    held = (ends[0] <= shares) & (shares <= ends[1])
    return np.asarray((laws(ms, n, p, q) * held).sum(axis=1))


@pytest.mark.parametrize(("p", "q"), LAWS)
@pytest.mark.parametrize("n", thinned([1, 2, 7, 40, 120], 0, 2, 3))
def test_intervals_hold_every_share_at_least_as_often_as_they_say(n: int, p: float, q: float) -> None:
    """A proof by enumeration of all counts and all m; 1e-9 is for rounding."""
    for alpha in (0.2, 0.05, 1e-3, 1e-6):
        ends = exact_ends(np.arange(n + 1), n, p, q, alpha)
        assert coverage(tuple(range(n + 1)), n, p, q, ends).min() >= 1 - alpha * (1 + 1e-9) - 1e-14


@pytest.mark.parametrize(("p", "q"), LAWS)
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_at_an_end_the_tail_is_half_of_alpha(p: float, q: float, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tails between two whole m are linear; ends of sums are the inverse to 1e-9 of a report."""
    monkeypatch.setattr(inference, "VARIANCE_MIN", np.inf)
    n = 120
    lower, upper = exact_ends(np.arange(n + 1), n, p, q, alpha)
    chances = laws(tuple(range(n + 1)), n, p, q)
    for count in range(n + 1):
        at_least, at_most = chances[:, count:].sum(axis=1), chances[:, : count + 1].sum(axis=1)
        if at_least[0] < alpha / 2 < at_least[-1]:
            assert lower[count] * n == pytest.approx(crossing(at_least, alpha / 2), abs=1e-9)
        if at_most[-1] < alpha / 2 < at_most[0]:
            assert n - upper[count] * n == pytest.approx(crossing(at_most[::-1], alpha / 2), abs=1e-9)


def crossing(tails: Floats, level: float) -> float:
    """Return where tails that grow with m reach a level."""
    behind = int(np.searchsorted(tails, level))
    return behind - 1 + float((level - tails[behind - 1]) / (tails[behind] - tails[behind - 1]))


@pytest.mark.parametrize(("p", "q"), thinned([*LAWS[:-1], (0.982, 0.018), (0.1, 0.001), (0.999, 0.1)], 0, 2, 5, 7, 8))
@pytest.mark.parametrize("alpha", thinned([0.2, 0.05, 2e-4, 1e-9], 1, 3))
def test_a_saddlepoint_leaves_out_hardly_more_than_a_sum(p: float, q: float, alpha: float) -> None:
    """Each side of an interval misses in at most alpha / 2 of all cases, and 1 % of that more, for all kinds of m."""
    n = 2_000
    lower, upper = exact_ends(np.arange(n + 1), n, p, q, alpha)
    ms = (*range(0, 60, 3), *range(60, n, 97), *range(n - 40, n + 1, 3))
    for m, chances in zip(ms, laws(ms, n, p, q), strict=True):
        assert chances[lower > m / n].sum() <= 1.01 * alpha / 2
        assert chances[upper < m / n].sum() <= 1.01 * alpha / 2


def test_a_saddlepoint_without_its_lattice_correction_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: u = s sqrt(variance), as of a continuous law."""
    right = inference._tilted

    def continuous(
        s: Floats, counts: npt.NDArray[np.int64], n: int, p: float, q: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        m, variance, r, slope = right(s, counts, n, p, q)
        w = np.sqrt(2 * (s * counts - m * np.log1p(p * np.expm1(s)) - (n - m) * np.log1p(q * np.expm1(s))))
        return m, variance, r + np.log(s / -np.expm1(-s)) / w, slope

    monkeypatch.setattr(inference, "_tilted", continuous)
    with pytest.raises(AssertionError):
        test_a_saddlepoint_leaves_out_hardly_more_than_a_sum(0.9, 0.1, 0.05)


@pytest.mark.parametrize(("p", "q"), LAWS)
@pytest.mark.parametrize("n", thinned([1, 20, 1_500, 10**6, 10**9], 1, 2, 4))
def test_ends_grow_with_the_count_and_hold_the_estimate(n: int, p: float, q: float) -> None:
    """Also where Clopper and Pearson's ends begin, and where sums end. A billion reports: to nine digits of a share."""
    rng = np.random.default_rng(6)
    m = np.unique(np.r_[np.geomspace(1, n, 300).astype(np.int64), rng.integers(0, n + 1, 300)])
    counts = np.unique(np.r_[0, 1, n - 1, n, rng.binomial(m, p) + rng.binomial(n - m, q)])
    estimate = (counts / n - q) / (p - q)
    for alpha in (0.2, 0.05, 1e-6):
        lower, upper = exact_ends(counts, n, p, q, alpha)
        assert (lower <= estimate).all()
        assert (estimate <= upper).all()
        for ends in (lower, upper):
            assert (np.diff(ends) > 0).all() if n < 10**9 else (np.diff(ends) >= 0).all()


@pytest.mark.parametrize(("p", "q"), LAWS)
@pytest.mark.parametrize("n", thinned([1, 30, 1_000, 100_000], 0, 1, 3))
def test_an_end_is_on_the_side_of_zero_and_of_one_that_one_binomial_says(n: int, p: float, q: float) -> None:
    """So what stands out, its critical count and its p-value are those of Bin(n, q)."""
    near = np.arange(-500, 501)
    counts = np.unique(np.clip(np.r_[0, n, int(n * q) + near, int(n * p) + near], 0, n))
    for alpha in (0.05, 1e-6):
        lower, upper = exact_ends(counts, n, p, q, alpha)
        assert ((lower > 0) == (binom.sf(counts - 1, n, q) < alpha / 2)).all()
        assert ((upper < 1) == (binom.cdf(counts, n, p) < alpha / 2)).all()
        plain_lower, plain_upper = ((rate - q) / (p - q) for rate in clopper_pearson(counts, n, alpha))
        outside = (plain_lower <= 0) | (plain_lower >= 1)
        assert (lower[outside] == plain_lower[outside]).all()
        outside = (plain_upper <= 0) | (plain_upper >= 1)
        assert (upper[outside] == plain_upper[outside]).all()


def test_the_windows_of_sums_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of a billion reports, too: memory goes with the noise, not with n."""
    columns: list[int] = []
    law_of = inference._law

    def watched(trials: npt.NDArray[np.int64], rate: float) -> tuple[npt.NDArray[np.int64], Floats]:
        first, chances = law_of(trials, rate)
        columns.append(chances.shape[1])
        return first, chances

    monkeypatch.setattr(inference, "_law", watched)
    n = 10**9
    for noise in (0.5, 5, 20):
        p, q = 1 - noise / n, noise / n
        counts = np.unique(np.r_[np.arange(60), np.geomspace(60, n, 200).astype(np.int64), n - np.arange(60)])
        exact_ends(counts, n, p, q, 1e-6)
        exact_ends(counts[counts < n // 3], n, 0.5, q, 1e-6)
    assert len(columns) > 20
    assert max(columns) < 250


# Flags: as narrow as the error, and no narrower.


def relative_widths(epsilon: int, n: int, method: str | None = None) -> Floats:
    """Return widths of a flag's intervals by 2 x 1.96 standard errors, for true shares from 2 to 98 %."""
    mechanism = GRR.for_epsilon(2, Decimal(epsilon))
    p, q = float(mechanism.p), float(mechanism.q)
    counts = np.rint(n * (q + np.linspace(0.02, 0.98, 25) * (p - q))).astype(np.int64)
    read = estimate_shares(mechanism, counts, n, error_of="reports", method=method)  # type: ignore[arg-type]  # a name
    return (read.upper - read.lower) / (2 * 1.96 * read.std_error)


@pytest.mark.parametrize("epsilon", thinned([1, 2, 3, 4, 5, 6], 0, 3, 5))
@pytest.mark.parametrize("n", thinned([300, 1_000, 10_000], 0, 2))
@pytest.mark.parametrize("method", [None, "exact"])
def test_intervals_are_hardly_wider_than_the_error(epsilon: int, n: int, method: str | None) -> None:
    """A count is whole, so exact ends are up to one count farther out: 15 % where noise makes 5 counts, else 45 %."""
    noise = n * float(GRR.for_epsilon(2, Decimal(epsilon)).q)
    widths = relative_widths(epsilon, n, method)
    assert widths.max() <= (1.15 if noise >= 5 else 1.25 if noise >= 2 else 1.45)
    assert widths.min() >= 0.99


@pytest.mark.parametrize(("epsilon", "times"), [(4, 3.8), (6, 10)])
def test_intervals_that_count_the_population_s_variance_would_be_seen(epsilon: int, times: float) -> None:
    """The planted bug, Clopper and Pearson's for one binomial."""
    assert relative_widths(epsilon, 1_000, "clopper-pearson").max() >= times
    assert relative_widths(epsilon, 1_000).max() < 1.25


@pytest.mark.parametrize("epsilon", thinned([1, 2, 3, 4, 5, 6], 0, 3, 5))
@pytest.mark.parametrize("n", thinned([300, 1_000, 3_000, 20_000], 0, 2))
def test_a_flag_s_intervals_hold_about_as_often_as_they_say(epsilon: int, n: int) -> None:
    """By enumeration, Wald's or exact as they are taken: 93 to 97.7 %, or to 99.5 % where noise makes few counts."""
    mechanism = GRR.for_epsilon(2, Decimal(epsilon))
    p, q = float(mechanism.p), float(mechanism.q)
    read = estimate_shares(mechanism, np.arange(n + 1), n, error_of="reports")
    ms = tuple(round(share * n) for share in SHARES)
    held = coverage(ms, n, p, q, (read.lower, read.upper))
    assert held.min() >= (0.93 if read.method == "wald" else 0.95)
    assert held.max() <= (0.977 if n * q >= 7 else 0.995)
    if epsilon >= 4:
        plain = estimate_shares(mechanism, np.arange(n + 1), n, error_of="reports", method="clopper-pearson")
        assert coverage(ms, n, p, q, (plain.lower, plain.upper)).max() > 0.995


def test_a_metric_of_the_most_values_is_read_at_once() -> None:
    """65,535 values, as many different counts as n allows: no more memory than some windows of counts for each."""
    mechanism = GRR.for_epsilon(65_535, Decimal(14))
    n, p, q = 10**9, float(mechanism.p), float(mechanism.q)
    m = np.arange(65_535) // 2
    counts = np.rint(m * p + (n - m) * q).astype(np.int64)
    read = estimate_shares(mechanism, counts, n, error_of="reports", simultaneous=True, method="exact")
    assert (read.lower < read.estimate).all()
    assert (read.estimate < read.upper).all()
