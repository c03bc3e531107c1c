"""Arms of an experiment, drawn from the exact laws of the devices' mechanisms, with what is true of them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import TableRow
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.reading import ArmStatistics, together
from dither_shared.domains import OTHER, Columns, Domain, Range, Values
from tests.support.questions import PAIRS, PRODUCT, asked, draw_questions

Floats = npt.NDArray[np.float64]

VIEW = View(error_of="population")
SIZES = (3, 3, 3, 3)
"""Two labels and "other" in each column; the last one is a number that coins round."""


def columns(arms: int, design: str, shape: tuple[int, ...] = SIZES) -> Columns:
    """Return columns of these sizes; the last of the usual ones is a number."""
    domains: list[Domain] = [Values((*("no", "yes", *map(str, range(size)))[: size - 1], OTHER)) for size in shape]
    if shape == SIZES:
        domains[-1] = Range((0, 10), 0, "s")
    names = tuple("abcd"[: len(shape)])
    questions = tuple(asked(len(shape), design))
    return Columns(names, tuple(domains), questions, False, ("arm", *(f"arm {place}" for place in range(arms))))


def population(yes: float, high: float) -> Floats:
    """Return the shares of all cells: the columns are independent, and nearly nobody says "other"."""
    first = np.array([0.98 - yes, yes, 0.02])
    shares = first
    for column in (np.array([0.6, 0.39, 0.01]), np.array([0.3, 0.7, 0.0]), np.array([1 - high, high, 0.0])):
        shares = np.multiply.outer(shares, column)
    return shares


def read(
    arms: Sequence[Sequence[QuestionTally]], view: View = VIEW, design: str = PAIRS, shape: tuple[int, ...] = SIZES
) -> list[TableRow]:
    domain = columns(len(arms), design, shape)
    return list(ArmStatistics(domain, together(arms), view, False, arms).of_arms())


def draw(
    seed: int, n: Sequence[int], truth: Sequence[Floats], epsilon: str, design: str
) -> list[tuple[QuestionTally, ...]]:
    rng = np.random.default_rng([seed, 17])
    return [draw_questions(shares, size, epsilon, rng, design=design) for size, shares in zip(n, truth, strict=True)]


EFFECT = (population(0.2, 0.5), population(0.3, 0.4), population(0.2, 0.5))
SAME = (population(0.2, 0.5),) * 3
CASES = [((20_000, 20_000), "1", PAIRS), ((6_000, 30_000), "4", PAIRS), ((3_000, 3_000, 9_000), "2", PRODUCT)]


def truth_of(row: TableRow, arms: int, n: Sequence[int]) -> float:
    """Return what is true of a row: of its arm, or of it less all others by their numbers."""
    place = int((row.group or "").split()[1])
    shares = [_of_column(row, EFFECT[arm]) for arm in range(arms)]
    if row.statistic != "difference":
        return shares[place]
    others = [arm for arm in range(arms) if arm != place]
    return shares[place] - sum(n[arm] * shares[arm] for arm in others) / sum(n[arm] for arm in others)


def _of_column(row: TableRow, shares: Floats) -> float:
    axis = "abcd".index(row.column)
    margin = shares.sum(axis=tuple(other for other in range(4) if other != axis))
    if row.label is None:
        return float(10 * margin[1] / margin[:2].sum())
    return float(margin[("no", "yes", OTHER).index(row.label)])


def coverage(case: int, seeds: int) -> float:
    n, epsilon, design = CASES[case]
    held = [
        row.lower <= truth_of(row, len(n), n) <= row.upper
        for seed in range(seeds)
        for row in read(draw(seed, n, EFFECT[: len(n)], epsilon, design), design=design)
    ]
    return float(np.mean(held))


def false_pages(seeds: int, arms: int) -> float:
    """Return on which part of the pages of arms that are the same any is told to differ."""
    return _false((6_000,) * arms, SAME[:arms], "2", seeds)


def false_pages_of_uneven_arms(seeds: int) -> float:
    """Return the same of an arm of 300 beside one of 30,000, with little noise and many rare values."""
    rare = 1 / np.arange(1, 21)
    shares = np.multiply.outer(np.array([0.7, 0.2, 0.1]), rare / rare.sum())
    return _false((300, 30_000), (shares, shares), "8", seeds)


def _false(n: Sequence[int], truth: Sequence[Floats], epsilon: str, seeds: int) -> float:
    pages = [
        read(draw(seed, n, truth, epsilon, PRODUCT), design=PRODUCT, shape=truth[0].shape) for seed in range(seeds)
    ]
    return float(np.mean([any(row.verdict in ("higher", "lower") for row in rows) for rows in pages]))
