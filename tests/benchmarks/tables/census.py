"""The truth: five answers of 48,842 people, 4,032 possible combinations of which 1,404 occur."""

from functools import cache
from itertools import combinations
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dither_aggregator.simulate.populations.census import census as simulated

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
COLUMNS = ("sex", "income", "education", "marital_status", "workclass")
Number = TypeVar("Number", np.int64, np.float64)


@cache
def census() -> Counts:
    """Return how many people have each combination, int64[2, 2, 16, 7, 9]."""
    people = simulated().people
    places = []
    for column in COLUMNS:
        labels = sorted({each[column] for each in people})
        places.append([labels.index(each[column]) for each in people])
    counts = np.zeros([max(column) + 1 for column in places], dtype=np.int64)
    np.add.at(counts, tuple(places), 1)
    return counts


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
