"""The truth: five answers of 48,842 people, 4,032 possible combinations of which 1,404 occur."""

from collections import Counter
from functools import cache
from itertools import combinations
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dither_aggregator.simulate.populations import census as simulated

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
COLUMNS = ("sex", "income", "education", "marital_status", "workclass")
Number = TypeVar("Number", np.int64, np.float64)


@cache
def _read() -> tuple[Counts, dict[str, list[str]]]:
    counted = Counter(map(itemgetter(*COLUMNS), simulated().people))
    labels = {column: sorted({each[place] for each in counted}) for place, column in enumerate(COLUMNS)}
    counts = np.zeros([len(each) for each in labels.values()], dtype=np.int64)
    for answers, people in counted.items():
        counts[tuple(known.index(each) for known, each in zip(labels.values(), answers, strict=True))] = people
    return counts, labels


def census() -> Counts:
    """Return how many people have each combination, int64[2, 2, 16, 7, 9]."""
    return _read()[0]


def census_labels() -> dict[str, list[str]]:
    """Return the answers of each column, in the order of the axes of `census`."""
    return _read()[1]


def devices(n: int, rng: np.random.Generator) -> Counts:
    """Return the people of the census, or where n is another number a sample of their shares."""
    people = census()
    if n == people.sum():
        return people
    return np.asarray(rng.multinomial(n, people.ravel() / people.sum()).reshape(people.shape), dtype=np.int64)


def margin(table: npt.NDArray[Number], columns: tuple[int, ...]) -> npt.NDArray[Number]:
    """Return the sums over all other columns."""
    return np.asarray(table.sum(axis=tuple(set(range(table.ndim)) - set(columns))))


def total_variation(weights: Floats, truth: Floats, ways: int) -> float:
    """Return half the sum of absolute errors, averaged over all margins of so many columns."""
    return float(
        np.mean(
            [
                np.abs(margin(weights, columns) - margin(truth, columns)).sum() / 2
                for columns in combinations(range(truth.ndim), ways)
            ]
        )
    )
