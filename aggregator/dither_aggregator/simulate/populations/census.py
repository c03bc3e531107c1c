"""Devices that are each one person of a census: age, hours of work, education and occupation; and who earns how much.

The last is a table of five columns, counted apart from the others: a device has the table's answers of another person.
"""

import csv
import gzip
import json
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

_EARNINGS = """\
kind = "table"
question = "Who earns more than 50,000 dollars a year?"
sensitivity = "medium"
{columns}"""
EARNINGS = ("income", "sex", "education", "marital_status", "workclass")

_CHOICE = """\
kind = "choice"
question = "{question}"
sensitivity = "medium"
{values}"""


@dataclass(frozen=True)
class Census(Population):
    """The people, in one order for the first four."""

    age: tuple[int, ...]
    """Whole years, from 17 to 90."""
    hours_per_week: tuple[int, ...]
    """From 1 to 99."""
    education: tuple[str, ...]
    occupation: tuple[str, ...]
    earnings: tuple[Mapping[str, str], ...]
    """The five columns of each, in an order of their own."""

    @property
    def devices_max(self) -> int:
        """How many people there are."""
        return len(self.age)

    @property
    def asks(self) -> Mapping[str, str]:
        """Two numbers, with a range for each year and each hour, two choices and a table, of all values but "?"."""
        columns = {name: _known(tuple(each[name] for each in self.earnings)) for name in EARNINGS}
        columns["income"].reverse()  # rates of the first column's first value are those that the demo prints
        return {
            "age": _AGE,
            "hours": _HOURS,
            "education": _CHOICE.format(
                question="Which education have people completed?", values=listed(_known(self.education))
            ),
            "occupation": _CHOICE.format(
                question="What do people do for a living?", values=listed(_known(self.occupation))
            ),
            "earnings": _EARNINGS.format(
                columns="\n".join(f"columns.{name} = {json.dumps(values)}" for name, values in columns.items())
            ),
        }

    def draw(self, devices: int, seed: int) -> Answers:
        """Return the answers of so many different people."""
        rng = np.random.default_rng(seed)
        drawn, others = (rng.choice(len(self.age), size=devices, replace=False) for _ in range(2))
        columns = (self.age, self.hours_per_week, self.education, self.occupation)
        together = {name: [column[who] for who in drawn] for name, column in zip(self.asks, columns, strict=False)}
        return {**together, "earnings": [self.earnings[who] for who in others]}


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
        earnings=_earnings(),
    )


def _earnings() -> tuple[Mapping[str, str], ...]:
    """Return the five columns of each person. The file counts combinations; its comments list each column's values."""
    lines = read_data("adult_counts.csv").decode("utf-8").splitlines()
    labels = {}
    for line in lines:
        name, _, values = line.removeprefix("#").strip().partition(": ")
        labels[name] = values.split(", ")
    people: list[Mapping[str, str]] = []
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        person = {name: labels[name][int(row[name])] for name in EARNINGS}
        people += [person] * int(row["count"])
    return tuple(people)
