"""Fresh texts: shares of candidates and of all others, out of rows of hashed buckets."""

import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from math import isfinite
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtr

from dither_aggregator.analysis import pure
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.pure import HashedShares, Rows
from dither_aggregator.analysis.rows import benjamini_hochberg
from dither_aggregator.counting import Counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Hashed
from dither_shared.mechanisms import PGR, choose
from tests.support.points import draw_points
from tests.support.registries import registry

Mask = npt.NDArray[np.bool_]

ROWS, BUCKETS = 4, 1_024
TEXTS, DEVICES = 400, 100_000
HEAVY = 0.3
LISTED = slice(0, None, 2)
"""Every other text is in the list: near half of the mass."""
FALSE_ALARM = 1e-7
"""A test of a count or a mean fails so rarely by chance."""
SIGMA = -NormalDist().inv_cdf(FALSE_ALARM / 2)
ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Drawn:
    """A tally of rows, and the truth that it was drawn from."""

    domain: Hashed
    table: Counts
    names: tuple[str, ...]
    truth: Floats


def population() -> Floats:
    """One text that many have, and others by Zipf's law."""
    shares = 1 / np.arange(1, TEXTS + 1)
    shares[1:] *= (1 - HEAVY) / shares[1:].sum()
    shares[0] = HEAVY
    return shares


@cache
def drawn(seed: int, epsilon: str = "4") -> Drawn:
    """Draw each device's text, row and report, with a hash of its own for each seed."""
    rng = np.random.default_rng(seed)
    domain, mechanism = Hashed(f"site {seed}", BUCKETS), mechanism_of(epsilon)
    names, shares = tuple(f"text {place}" for place in range(TEXTS)), population()
    rows = []
    for row, devices in enumerate(rng.multinomial(DEVICES, [1 / ROWS] * ROWS).tolist()):
        places = np.array([domain.bucket(name, row) for name in names])
        values = places[rng.choice(TEXTS, devices, p=shares)]
        tally = draw_points(mechanism, np.bincount(values, minlength=mechanism.d), rng)
        rows.append([devices, *tally.tolist()])
    return Drawn(domain, np.array(rows), names, shares)


@cache
def mechanism_of(epsilon: str) -> PGR:
    mechanism = choose(BUCKETS, Decimal(epsilon), name="pgr")
    assert isinstance(mechanism, PGR)
    return mechanism


def rows_of(one: Drawn, epsilon: str = "4") -> Rows:
    """Return rows of which nothing has been asked: what they find then depends on constants that tests spoil."""
    return copy(decoded(one, epsilon))


@cache
def decoded(one: Drawn, epsilon: str) -> Rows:
    return Rows(mechanism_of(epsilon), one.domain, one.table)


def holding(shares: HashedShares, truth: Floats, alpha: float = 0.05) -> Mask:
    lower, upper = shares.ends(alpha)
    return np.asarray((lower <= truth) & (truth <= upper))


def test_the_estimate_of_expected_counts_is_the_share_less_what_others_add_on_average() -> None:
    mechanism, share = mechanism_of("4"), np.array([0.0, 0.25, 0.9])
    p, q, n = float(mechanism.p), float(mechanism.q), 10**12
    mass = share + 1 / BUCKETS
    support = np.rint(n * (q + (p - q) * mass)).astype(np.int64)
    read = HashedShares(("a", "b", "c"), mechanism, support, np.full(3, n), 1 / BUCKETS, np.zeros(3), np.zeros(3), 1)
    assert np.abs(read.estimate - share).max() <= 0.51 / (n * (p - q))


def test_a_candidate_is_looked_up_in_the_buckets_that_devices_hash_it_into() -> None:
    one = drawn(1)
    names = ("other", "none", "text:other", "é", *one.names)
    for buckets in (40, BUCKETS, 1 << 17, (1 << 32) - 5, 1 << 32):
        domain = Hashed("site", buckets, hidden=True)
        found = Rows(mechanism_of("4"), domain, one.table)._buckets(names)
        assert found.tolist() == [[domain.bucket(domain.named(name), row) for name in names] for row in range(ROWS)]


@pytest.mark.slow
def test_intervals_hold_though_half_of_the_mass_is_not_in_the_list() -> None:
    """30 tallies of 200 candidates. Candidates of one tally share its noise, so the bound is that of 30 tallies."""
    held = np.array([each_held(seed) for seed in range(ROUNDS)])
    rates = held.mean(axis=1)
    assert abs(rates.mean() - 0.95) < 0.02
    assert rates.std() / ROUNDS**0.5 * SIGMA < 0.02


@cache
def listed(seed: int) -> HashedShares:
    """Return the shares of the list: nothing that a test spoils is part of them."""
    one = drawn(seed)
    return rows_of(one).shares(one.names[LISTED])


def each_held(seed: int) -> Mask:
    return holding(listed(seed), drawn(seed).truth[LISTED])


@pytest.mark.slow
def test_without_the_heavy_texts_and_the_collisions_intervals_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bugs: both parts of the error by others are needed."""
    sound = np.mean([each_held(seed) for seed in range(ROUNDS)])
    with monkeypatch.context() as patched:
        patched.setattr(HashedShares, "ends", without_collisions(HashedShares.ends))
        blind = np.mean([each_held(seed) for seed in range(ROUNDS)])
    assert sound - blind > 0.02
    near = [near_the_heavy(seed) for seed in range(ROUNDS)]
    monkeypatch.setattr(pure, "HEAVIEST", 0)
    monkeypatch.setattr(pure, "FAR", 1e9)
    believed = [near_the_heavy(seed, spoiled=True) for seed in range(ROUNDS)]
    assert np.concatenate(near).mean() > 0.8
    assert np.concatenate(believed).mean() < 0.6


Ends = Callable[[HashedShares, float], tuple[Floats, Floats]]


def without_collisions(ends: Ends) -> Ends:
    def planted(self: HashedShares, alpha: float) -> tuple[Floats, Floats]:
        return ends(replace(self, collisions=np.zeros(len(self.n))), alpha)

    return planted


def near_the_heavy(seed: int, spoiled: bool = False) -> Mask:
    """Whether the intervals of those hold that share a bucket with the text that many have."""
    one = drawn(seed)
    rows, names = rows_of(one), one.names[LISTED]
    places = rows._buckets(names)
    meets = (places == places[:, [0]]).any(axis=0)
    meets[0] = False
    shares = rows.shares(names) if spoiled else listed(seed)
    return np.asarray(holding(shares, one.truth[LISTED])[meets])


@pytest.mark.slow
def test_the_mass_that_is_not_in_the_list_has_an_interval_that_holds() -> None:
    """At least 24 of 30 hold: by the binomial law fewer do in one of 6 million runs, if each holds with .95."""
    scores = []
    for seed in range(ROUNDS):
        one = drawn(seed)
        rows = rows_of(one)
        found = rows.unlisted(listed(seed))
        scores.append((found.estimate - (1 - one.truth[LISTED].sum())) / found.std_error)
    held = np.abs(scores) < 1.96
    assert held.sum() >= 24
    assert abs(np.mean(scores)) < SIGMA / ROUNDS**0.5
    assert 0.4 < np.std(scores) < 1.75


def test_of_a_list_with_everything_nothing_is_left() -> None:
    one = drawn(2)
    rows = rows_of(one)
    found = rows.unlisted(rows.shares(one.names))
    assert abs(found.estimate) < SIGMA * found.std_error


def test_a_row_without_reports_is_left_out() -> None:
    one = drawn(3)
    alone = one.table.copy()
    alone[1:] = 0
    read = Rows(mechanism_of("4"), one.domain, alone).shares(one.names)
    assert (read.n == one.table[0, 0]).all()


@pytest.mark.slow
def test_texts_that_nobody_has_are_as_rarely_called_found_as_is_said() -> None:
    """Simes' test at .05 may reject 1.5 of 30 lists of 2,000 strangers; more than 9 once in 4 million runs."""
    lists = list(map(of_strangers, range(ROUNDS)))
    found = sum(bool(benjamini_hochberg(each.chances, 0.05).any()) for each in lists)
    assert found <= 9
    assert abs(np.mean([(each.chances < 0.1).mean() for each in lists]) - 0.1) < 0.01


@pytest.mark.slow
def test_a_normal_law_would_call_those_found_that_share_a_bucket_with_what_many_have() -> None:
    """A planted bug: without the law of strangers most lists have a false one."""
    lists = list(map(of_strangers, range(ROUNDS)))
    normal = [ndtr(-each.estimate / each.std_error) for each in lists]
    assert sum(bool(benjamini_hochberg(chances, 0.05).any()) for chances in normal) > 15


@cache
def of_strangers(seed: int) -> HashedShares:
    return rows_of(drawn(seed)).shares(strangers(seed))


def strangers(seed: int) -> tuple[str, ...]:
    return tuple(f"stranger {seed} {number}" for number in range(2_000))


@pytest.mark.parametrize("sizes", [(1, 0, 0, 0), (1, 1, 0, 0), (2, 1, 1, 1)])
def test_a_few_reports_are_read_without_a_number_that_is_none(sizes: tuple[int, ...]) -> None:
    """The worst of them: all reports of a row are one point. Nothing stands out, and nothing is told of the rest."""
    metric = registry(kind="text", reports=1, candidates=("a", "b", "none")).metrics["color"]
    kept = StoredPlan(1, metric.plan, metric.question, ("a", "b", "none"), 0, metric.expires, current=True)
    counts = np.zeros(metric.cells.tally_size, dtype=np.int64)
    ((_, table, _),) = tables(metric.cells, counts)
    table[:, 0] = table[:, 7] = sizes
    reading = estimate(kept, date(2026, 11, 23), Tally(sum(sizes), counts))
    significance = reading.significance()
    assert significance is not None
    assert not significance.significant
    assert all(isfinite(each.lower) and isfinite(each.expected) for each in significance.bins)
    assert "fit" not in json.loads(json.dumps(reading.to_document(), allow_nan=False))
