"""Devices that are each one person of a census: age, hours of work, education and occupation."""

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dither_aggregator.simulate.fleet import Answers
from dither_aggregator.simulate.populations.population import Population, listed, read_data

UNKNOWN = "?"
"""In the data: it is not among the listed values, so that a device reports "other"."""

_AGE = """\
kind = "number"
question = "How old are people?"
sensitivity = "medium"
unit = "years"
low = 17
high = 90
buckets = 73"""

_HOURS = """\
kind = "number"
question = "How many hours a week do people work?"
sensitivity = "medium"
unit = "hours"
low = 1
high = 99
buckets = 98"""

_CHOICE = """\
kind = "choice"
question = "{question}"
sensitivity = "medium"
{values}"""


@dataclass(frozen=True)
class Census(Population):
    """The people, in one order for all four columns."""

    age: tuple[int, ...]
    """Whole years, from 17 to 90."""
    hours_per_week: tuple[int, ...]
    """From 1 to 99."""
    education: tuple[str, ...]
    occupation: tuple[str, ...]

    @property
    def devices_max(self) -> int:
        """How many people there are."""
        return len(self.age)

    @property
    def asks(self) -> Mapping[str, str]:
        """Two numbers, with a range for each year and each hour, and two choices of all values but the unknown."""
        return {
            "age": _AGE,
            "hours": _HOURS,
            "education": _CHOICE.format(
                question="Which education have people completed?", values=listed(_known(self.education))
            ),
            "occupation": _CHOICE.format(
                question="What do people do for a living?", values=listed(_known(self.occupation))
            ),
        }

    def draw(self, devices: int, seed: int) -> Answers:
        """Return the answers of so many different people."""
        drawn = np.random.default_rng(seed).choice(len(self.age), size=devices, replace=False)
        columns = (self.age, self.hours_per_week, self.education, self.occupation)
        return {name: [column[who] for who in drawn] for name, column in zip(self.asks, columns, strict=True)}


def _known(column: tuple[str, ...]) -> list[str]:
    return sorted(set(column) - {UNKNOWN})


def census() -> Census:
    """Return the 48,842 people of the UCI adult data."""
    rows = list(csv.DictReader(gzip.decompress(read_data("adult.csv.gz")).decode("utf-8").splitlines()))
    return Census(
        age=tuple(int(row["age"]) for row in rows),
        hours_per_week=tuple(int(row["hours_per_week"]) for row in rows),
        education=tuple(row["education"] for row in rows),
        occupation=tuple(row["occupation"] for row in rows),
    )
