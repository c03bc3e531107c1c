"""What devices answer that are asked for several columns, drawn from the exact laws of the mechanisms."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from math import prod

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.tables.questions import Question
from dither_shared.mechanisms import PureMechanism, choose
from tests.support.tallies import Counts, draw_tally

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
    truth: npt.NDArray[np.float64],
    n: int,
    epsilon: str,
    rng: np.random.Generator,
    *,
    design: str = PAIRS,
    silent: float | None = None,
    repeats: int = 1,
) -> tuple[Question, ...]:
    """Return the reports of n devices whose cells have these shares, float64[sizes of the columns].

    `silent` is the share of those with nothing to say, where that is hidden. With `repeats` each of fewer devices
    sends so many of the n reports, each time to a question that it draws anew.
    """
    sizes, hidden = truth.shape, silent is not None
    shares = truth.ravel() if silent is None else np.append((1 - silent) * truth.ravel(), silent)
    devices = rng.multinomial(n // repeats, shares)
    every = asked(truth.ndim, design)
    drawn = np.zeros((len(every), len(shares)), dtype=np.int64)
    for _ in range(repeats):
        drawn += rng.multinomial(devices, np.full(len(every), 1 / len(every))).T
    questions = []
    for columns, part in zip(every, drawn, strict=True):
        shape = tuple(sizes[column] for column in columns)
        others = tuple(set(range(truth.ndim)) - set(columns))
        cells = part[: truth.size].reshape(sizes).sum(axis=others).ravel()
        cells = np.append(cells, part[truth.size :])
        mechanism = mechanism_for(sizes, columns, epsilon, hidden=hidden)
        tally: Counts = draw_tally(mechanism, cells, rng)
        questions.append(Question(columns, shape, hidden, mechanism, tally, int(part.sum()), repeats))
    return tuple(questions)
