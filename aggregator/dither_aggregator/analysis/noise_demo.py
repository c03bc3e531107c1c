"""Noise drawn again on a population that is known, so that estimates can be shown beside the truth.

A simulation on made-up data, for a page that explains. Value k of the d - 1 listed ones has a share proportional to
k^-1.1 (Zipf), and nobody says "other". Let n_v of n reports hold value v. The number of reports that support it is

    C(v) = Binomial(n_v, p) + Binomial(n - n_v, q)

by the mechanism that the registry would choose. Each count has this law. Counts of different values are drawn as
independent ones, which only those of unary codes are: reports that support a fixed number of values tie them slightly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import numpy as np

from dither_aggregator.analysis.pure import Estimates, estimate_shares
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import ShareRow, SharesReading
from dither_aggregator.counting.folding import Counts
from dither_aggregator.store import StoredPlan
from dither_shared.cells import one_cell
from dither_shared.domains import OTHER, Values
from dither_shared.kinds import KINDS
from dither_shared.mechanisms import PureMechanism, choose
from dither_shared.plan import Plan

ZIPF = 1.1
LARGEST = 25
"""So many of the largest estimates are shown each on its own."""
ROLLS = 40
"""Rolls behind an average."""
AVERAGE_SEED = 0
_NO_DAY = date(2000, 1, 1)


@dataclass(frozen=True)
class Known:
    """An estimate with an interval of its own, beside the truth."""

    row: ShareRow
    truth: float
    """The share of the n reports that hold it."""
    most_common: bool
    """Whether it is among the most common values, of which there are as many as estimates are shown."""

    @property
    def misses(self) -> bool:
        """Tell whether the truth lies outside the interval."""
        return not holds(self.row, self.truth)


@dataclass(frozen=True)
class Curse:
    """The winner's curse: how wrong the largest estimates are for being selected, each with an interval of its own.

    Numbers of values, of one roll or averages of several; shares are sums over the values below the noise floor.
    """

    shown: int
    misses: float
    """Intervals that do not hold the truth."""
    strangers: float
    """Values that are not among as many most common ones."""
    below: float
    """Values whose true share is below the noise floor."""
    below_estimated: float
    below_true: float

    @property
    def exaggeration(self) -> float | None:
        """By what factor estimates of values below the noise floor exceed the truth; None where that is none."""
        return self.below_estimated / self.below_true if self.below_true else None


@dataclass(frozen=True)
class Rolled:
    """One roll of the noise, read in two ways."""

    mechanism: PureMechanism
    noise_floor: float
    largest: Sequence[Known]
    """The largest estimates, each with an interval of its own."""
    together: SharesReading
    """All estimates with intervals that hold at once, as a metric's page reads them."""
    truths: Mapping[str, float]
    """The true share of each value, by its name."""

    @property
    def curse(self) -> Curse:
        """How wrong the largest estimates of this roll are."""
        below = [known for known in self.largest if known.truth < self.noise_floor]
        return Curse(
            len(self.largest),
            sum(known.misses for known in self.largest),
            sum(not known.most_common for known in self.largest),
            len(below),
            sum(known.row.estimate for known in below),
            sum(known.truth for known in below),
        )


def population(d: int, n: int) -> Counts:
    """Return how many of n reports hold each of d values, int64[d]: Zipf's shares, and nobody for "other"."""
    weights = np.append(1 / np.arange(1, d) ** ZIPF, 0.0)
    wanted = n * weights / weights.sum()
    counts: Counts = np.floor(wanted).astype(np.int64)
    rest = int(n - counts.sum())
    counts[np.argsort(counts - wanted, kind="stable")[:rest]] += 1
    return counts


def roll(n: int, d: int, epsilon: Decimal, seed: int) -> Rolled:
    """Draw the noise of n reports of d values once; the same seed gives the same noise."""
    mechanism, counts = choose(d, epsilon), population(d, n)
    support = _draw(mechanism, counts, n, np.random.default_rng(seed))
    stored = _stored(mechanism, d)
    chosen = _largest(support)
    alone, truth = estimate_shares(mechanism, support[chosen], n), counts / n
    rows = _rows([stored.plan.values[place] for place in chosen], alone)
    known = [
        Known(row, float(truth[place]), place < len(chosen)) for row, place in zip(rows, chosen.tolist(), strict=True)
    ]
    all_ = estimate_shares(mechanism, support, n, simultaneous=True)
    together = SharesReading(
        stored,
        _NO_DAY,
        provisional=False,
        n=n,
        view=View(simultaneous=True),
        snapshot=None,
        noise_floor=all_.noise_floor,
        method=all_.method,
        rows=_rows(stored.plan.values, all_),
    )
    truths = dict(zip(stored.plan.values, truth.tolist(), strict=True))
    return Rolled(mechanism, all_.noise_floor, known, together, truths)


def holds(row: Row, truth: float) -> bool:
    """Tell whether a row's interval holds the truth."""
    return row.lower <= truth <= row.upper


def average(n: int, d: int, epsilon: Decimal) -> Curse:
    """Return what ROLLS further rolls make of the largest estimates, on average; the same ones whoever asks."""
    mechanism, counts = choose(d, epsilon), population(d, n)
    rng, truth = np.random.default_rng(AVERAGE_SEED), counts / n
    sums = np.zeros(5)
    for _ in range(ROLLS):
        support = _draw(mechanism, counts, n, rng)
        chosen = _largest(support)
        alone, true = estimate_shares(mechanism, support[chosen], n), truth[chosen]
        below = true < alone.noise_floor
        misses = (true < alone.lower) | (true > alone.upper)
        strangers = chosen >= len(chosen)
        sums += [misses.sum(), strangers.sum(), below.sum(), alone.estimate[below].sum(), true[below].sum()]
    return Curse(len(chosen), *(sums / ROLLS).tolist())


def _draw(mechanism: PureMechanism, counts: Counts, n: int, rng: np.random.Generator) -> Counts:
    """Draw in how many reports each value is supported."""
    p, q = float(mechanism.p), float(mechanism.q)
    support: Counts = rng.binomial(counts, p) + rng.binomial(n - counts, q)
    return support


def _largest(support: Counts) -> Counts:
    """Return which of the listed values have the largest estimates, the largest first."""
    order: Counts = np.argsort(-support[:-1], kind="stable")[:LARGEST]
    return order


def _stored(mechanism: PureMechanism, d: int) -> StoredPlan:
    """Return a plan as a store has it, of made-up values that are called after their true rank."""
    values = Values((*(f"value {rank}" for rank in range(1, d)), OTHER))
    plan = Plan("made_up", 1, "public", KINDS["choice"], values, one_cell(mechanism))
    return StoredPlan(0, plan, "", (), mechanism.charge, _NO_DAY, current=True)


def _rows(values: Sequence[str], estimates: Estimates) -> tuple[ShareRow, ...]:
    columns = (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    return tuple(ShareRow(*numbers) for numbers in zip(values, *(column.tolist() for column in columns), strict=True))
