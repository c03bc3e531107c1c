"""Devices' answers to questions for several columns, drawn from the exact laws of the mechanisms."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from math import prod
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_shared.mechanisms import Mechanism, PureMechanism, choose
from tests.support.tallies import Counts, draw_tally

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64)

PRODUCT = "product"
PAIRS = "pairs"


def asked(columns: int, design: str) -> list[tuple[int, ...]]:
    """Return the columns of each question: all of them, or every pair."""
    return [tuple(range(columns))] if design == PRODUCT else list(combinations(range(columns), 2))


def mechanism_for(
    sizes: Sequence[int], columns: tuple[int, ...], epsilon: str, *, hidden: bool = False
) -> PureMechanism:
    return choose(prod(sizes[column] for column in columns) + hidden, Decimal(epsilon))


def draw_questions(
    truth: Floats,
    n: int,
    epsilon: str,
    rng: np.random.Generator,
    *,
    design: str = PAIRS,
    silent: float | None = None,
    repeats: int = 1,
) -> tuple[QuestionTally, ...]:
    """Return the reports of n devices whose cells have these shares, float64[sizes of the columns].

    `silent` is the share of those with nothing to say, where that is hidden. With `repeats` each of fewer devices
    sends so many of the n reports, each time to a question that it draws anew.
    """
    sizes, hidden = truth.shape, silent is not None
    every = asked(truth.ndim, design)
    mechanisms = [mechanism_for(sizes, columns, epsilon, hidden=hidden) for columns in every]
    parts = _draw_parts(truth, n, len(every), rng, silent, repeats)
    return tuple(
        QuestionTally(
            columns,
            tuple(sizes[column] for column in columns),
            hidden,
            mechanism,
            draw_tally(mechanism, _cells(part, sizes, columns), rng),
            int(part.sum()),
            repeats,
        )
        for columns, mechanism, part in zip(every, mechanisms, parts, strict=True)
    )


def draw_tallies(
    truth: Floats,
    n: int,
    mechanisms: Sequence[Mechanism],
    questions: Sequence[tuple[int, ...]],
    rng: np.random.Generator,
    silent: float | None = None,
) -> Counts:
    """Return the vector of a tally of n devices: of each question its reports, and what they count."""
    parts = _draw_parts(truth, n, len(questions), rng, silent, 1)
    counted = [
        np.append(part.sum(), draw_tally(cast("PureMechanism", mechanism), _cells(part, truth.shape, columns), rng))
        for mechanism, columns, part in zip(mechanisms, questions, parts, strict=True)
    ]
    return np.concatenate(counted)


def _draw_parts(
    truth: Floats, n: int, questions: int, rng: np.random.Generator, silent: float | None, repeats: int
) -> Counts:
    """Return how many reports of each cell go to each question, int64[questions, cells]: uniformly drawn ones."""
    shares = truth.ravel() if silent is None else np.append((1 - silent) * truth.ravel(), silent)
    devices = rng.multinomial(n // repeats, shares / shares.sum())
    drawn = np.zeros((questions, len(shares)), dtype=np.int64)
    for _ in range(repeats):
        drawn += rng.multinomial(devices, np.full(questions, 1 / questions)).T
    return drawn


def _cells(part: Counts, sizes: tuple[int, ...], columns: tuple[int, ...]) -> Counts:
    """Return the reports of each symbol of a question; of those with nothing to say last."""
    others = tuple(set(range(len(sizes))) - set(columns))
    cells = part[: prod(sizes)].reshape(sizes).sum(axis=others)
    return in_symbols(cells.ravel(), part[prod(sizes) :])


def in_symbols(cells: npt.NDArray[Number], silent: Sequence[float] | npt.NDArray[Number] = ()) -> npt.NDArray[Number]:
    """Return what each symbol has: what its cell has or, of the last where presence is hidden, those who are silent."""
    return np.concatenate([cells, np.asarray(silent, dtype=cells.dtype)])
