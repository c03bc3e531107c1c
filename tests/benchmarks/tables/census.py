"""The truth: five answers of 48,842 people, 4,032 possible combinations of which 1,404 occur."""

import csv
from functools import cache
from itertools import combinations
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dither_aggregator.simulate.populations.population import read_data

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64)


@cache
def census() -> Counts:
    """Return how many people have each combination, int64[2, 2, 16, 7, 9]."""
    lines = read_data("adult_counts.csv").decode("utf-8").splitlines()
    _, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    table = np.array(rows, dtype=np.int64)
    counts = np.zeros(table[:, :-1].max(axis=0) + 1, dtype=np.int64)
    counts[tuple(table[:, :-1].T)] = table[:, -1]
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
