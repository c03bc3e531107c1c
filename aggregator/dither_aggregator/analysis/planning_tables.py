"""Planning an experiment with a table: the target is the effect, a difference that arms of one size tell.

The effect is the least difference of a value's share between one arm and all others together that gets a verdict four
times in five. With G tests, n reports of k arms, and V the variance of the share times the reports of all questions

    effect = (z(1 - 5 % / 2 G) + z(80 %)) sqrt(V k / n + V k / ((k - 1) n))        G = k times all columns' values

and of two arms half as many tests, since each is the other's. Holm's first step has this level, and the later ones tell
a little more. V is that of a value that half of all have, where sampling is worst, with the noise of the mechanism. For
a projective geometry that depends on which symbols lie on a line, and differs by up to an eighth from value to value: V
is the largest of all columns' values.

A question that asks for the column has its part of the reports. All that do have the same mechanism here, so that their
pooling by inverse variance adds up their reports.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import ceil, isqrt, prod, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import variance_at
from dither_aggregator.analysis.planning import Design, Question, Unplannable
from dither_aggregator.analysis.tables.arms import REPORTS_MIN
from dither_aggregator.analysis.tables.statistics import ALPHA, CELLS_MAX
from dither_aggregator.counting.supports import hyperplane_sums
from dither_shared.cells import PUBLIC_MAX, Cells
from dither_shared.domains import OTHER, Columns, Values
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN, symbols_of
from dither_shared.errors import InvalidParameter
from dither_shared.kinds import PublicColumn, TableKind
from dither_shared.kinds.table import FRESH
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.precision import POWER

KIND = TableKind.name
ARMS_MIN, ARMS_MAX = 2, PUBLIC_MAX
D_MAX = isqrt(CELLS_MAX)
"""A page tells no pair of two larger columns, and their exact noise would take too long to plan."""
HALF = 0.5
LOTS = 3
"""Standard deviations by which lots may leave a question of an arm fewer reports than expected."""
PUBLIC = "arm"


@dataclass(frozen=True)
class _Experiment(Design["TableQuestion"]):
    variance: float
    """V."""

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the effect; None where reports are too few, or one arm cannot differ so much from all others."""
        effect = self._of_one / sqrt(n)
        told = n >= self._n_min and effect <= self.question.effect_max
        return {"effect": effect if told else None}

    def n_about(self, wanted: float) -> float:
        """Return it without a bound."""
        return max((self._of_one / wanted) ** 2, self._n_min)

    @property
    def _n_min(self) -> int:
        return self.question.n_min(self.cells.each)

    @property
    def _of_one(self) -> float:
        """The effect times the root of n."""
        return effect_of_one(self.variance, self.question.arms, self.question.tests)


@dataclass(frozen=True)
class TableQuestion(Question):
    """Columns of d values each, "other" included, that are compared between the arms of an experiment."""

    columns: int = 3
    arms: int = 2

    target_name = target_figure = "effect"
    too_small = "so small an effect"

    def __post_init__(self) -> None:
        if self.kind != KIND:
            raise Unplannable(f"the kind must be {KIND}, got {self.kind}")
        if not 2 <= self.d <= D_MAX:
            raise Unplannable(f"d must be from 2 to {D_MAX} for a column of a table, got {self.d:,}")
        if not COLUMNS_MIN <= self.columns <= COLUMNS_MAX:
            raise Unplannable(f"columns must be from {COLUMNS_MIN} to {COLUMNS_MAX}, got {self.columns}")
        if not ARMS_MIN <= self.arms <= ARMS_MAX:
            raise Unplannable(f"arms must be from {ARMS_MIN} to {ARMS_MAX}, got {self.arms}")
        if self.epsilon_permanent is not None:
            raise Unplannable(f"epsilon_permanent {FRESH}")
        super().__post_init__()

    @property
    def tests(self) -> int:
        """How many differences a page tests at once."""
        return self.columns * self.d * (self.arms if self.arms > 2 else 1)

    @property
    def effect_max(self) -> float:
        """The most that one arm can differ from all others in a value that half of all have."""
        return min(HALF * self.arms / (self.arms - 1), 1.0)

    def n_min(self, questions: int) -> int:
        """Return the reports of which less tell nothing: by lot one question of one arm may get too few."""
        return ceil(self.arms * questions * (REPORTS_MIN + LOTS * sqrt(REPORTS_MIN)))

    def _compiled(self, epsilon: Decimal) -> _Experiment:
        values = Values((*self._values, OTHER))
        try:
            asked = TableKind.asked_of(dict.fromkeys(self._columns, values), epsilon)
        except InvalidParameter as error:
            raise Unplannable(f"the plan: columns {error}; plan fewer columns or values") from None
        asked = TableKind().beside(asked, PublicColumn(PUBLIC, self._arms))
        return _Experiment(self, asked.cells, column_variance(Columns.of(asked.domain), asked.cells, 0))

    @property
    def _arms(self) -> tuple[str, ...]:
        return tuple(f"arm {number}" for number in range(1, self.arms + 1))

    @property
    def _columns(self) -> Sequence[str]:
        return [f"column_{number}" for number in range(1, self.columns + 1)]

    @property
    def _values(self) -> Sequence[str]:
        return [f"value {number}" for number in range(1, self.d)]

    def beside(self) -> Sequence[str]:
        """Return the line with the arms."""
        return [f"public = {{ {PUBLIC} = [{_listed(self._arms)}] }}  # the app says which is its own, in the clear"]

    def answers(self) -> Sequence[str]:
        """Return a line for each column."""
        return [f"columns.{name} = [{_listed(self._values)}]" for name in self._columns]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def effect_of_one(variance: float, arms: int, tests: int) -> float:
    """Return the effect times the root of n, where a difference must be told whatever all others are."""
    z = -NormalDist().inv_cdf(ALPHA / 2 / tests)
    return (z + NormalDist().inv_cdf(POWER)) * sqrt(variance * (arms + arms / (arms - 1)))


def tests_of(domain: Columns, arms: int) -> int:
    """Return how many differences a page of these columns tests at once."""
    return sum(map(symbols_of, domain.domains)) * (arms if arms > 2 else 1)


def column_variance(domain: Columns, cells: Cells, column: int) -> float:
    """Return V of a column, of which all questions that ask it have mechanisms alike."""
    asking = [place for place, columns in enumerate(domain.questions) if column in columns]
    mechanism, shape = PureMechanism.of(cells.mechanism_of(asking[0])), domain.shape(asking[0])
    return len(domain.questions) / len(asking) * share_variance(mechanism, tuple(shape))


def share_variance(mechanism: PureMechanism, shape: tuple[int, ...]) -> float:
    """Return n times the variance of the share of the value where it is largest, of columns with so many values each.

    Half of all have the value, spread evenly over its symbols, and the others are spread evenly over all others. If
    reports are points, it matters which symbols a value has; else one value of each column tells it.
    """
    if mechanism.geometry is not None:
        return float(_points_variances(mechanism, shape).max())
    return max(_half_variance(mechanism, symbols[0]) for symbols in _symbols(shape))


def _symbols(shape: tuple[int, ...]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the symbols of each value of a column, int64[values, symbols], column by column."""
    cells = np.arange(prod(shape)).reshape(shape)
    for column, values in enumerate(shape):
        yield np.moveaxis(cells, column, 0).reshape(values, -1)


def _half_variance(mechanism: PureMechanism, own: npt.NDArray[np.int64]) -> float:
    has = np.zeros(mechanism.d)
    has[own] = 1.0
    return variance_at(mechanism, has, HALF * has / has.sum() + (1 - HALF) * (1 - has) / (1 - has).sum())


def _points_variances(mechanism: PureMechanism, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return the same for each value of every column, if reports are points: E[w^2] - 1/4.

    A point on h of the m hyperplanes of a value and on g of all d has w = (h - q m) / (p - q), and is reported with the
    probability off + (on - off) (h / 2 m + (g - h) / 2 (d - m)).
    """
    assert mechanism.geometry is not None
    assert isinstance(mechanism, TwoLevel)
    p, q, size = float(mechanism.p), float(mechanism.q), mechanism.shape.size
    share, inside = float(mechanism.law.share), float(mechanism.law.inside)
    on, off = inside / (size * share), (1 - inside) / (size * (1 - share))
    m, (one, h, h2, h3, g, gh, gh2) = _moments(mechanism.geometry, size, shape)
    own, others, mean = HALF / m, (1 - HALF) / (mechanism.d - m), q * m
    all_of, own_of, d_of = (c - 2 * mean * b + mean**2 * a for a, b, c in ((one, h, h2), (h, h2, h3), (g, gh, gh2)))
    square = off * all_of + (on - off) * ((own - others) * own_of + others * d_of)
    return np.asarray(square / (p - q) ** 2 - HALF**2)


@lru_cache(maxsize=32)  # a plan tries one geometry at many epsilons
def _moments(
    geometry: tuple[int, int, int], size: int, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return m for each value, int64[values], and the sums over all points of 1, h, h^2, h^3, g, g h and g h^2."""

    def through(symbols: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        held = np.zeros(size, dtype=np.int64)
        held[symbols] = 1
        return hyperplane_sums(held, *geometry)

    owns = [own for symbols in _symbols(shape) for own in symbols]
    g = through(np.arange(prod(shape)))
    sums = [[each.sum() for each in (h**0, h, h**2, h**3, g, g * h, g * h**2)] for h in map(through, owns)]
    return np.array([len(own) for own in owns]), np.array(sums).T
