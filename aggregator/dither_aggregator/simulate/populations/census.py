"""Devices that are each one person of a census: age, hours of work, education, occupation, country and earnings."""

import csv
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

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

_COUNTRY = """\
kind = "text"
question = "In which country were people born?"
sensitivity = "medium"
{candidates}"""

_WORK = """\
kind = "words"
length = "long"
question = "What do people call their work?"
sensitivity = "medium"\
"""

_CHOICE = """\
kind = "choice"
question = "{question}"
sensitivity = "medium"
{values}"""


@dataclass(frozen=True)
class Census(Population):
    """The people: what each answered, by the name of the column in the data."""

    people: tuple[Mapping[str, str], ...]

    @property
    def devices_max(self) -> int:
        """How many people there are."""
        return len(self.people)

    @cached_property
    def known(self) -> Mapping[str, list[str]]:
        """The values of each column, sorted, without "?"."""
        return {column: sorted({each[column] for each in self.people} - {UNKNOWN}) for column in self.people[0]}

    @property
    def asks(self) -> Mapping[str, str]:
        """Two numbers, with a range for each year and each hour, two choices, a text, words and a table.

        Words ask once more for the occupation, without a list.
        """
        columns = {name: self.known[name] for name in EARNINGS}
        columns["income"] = columns["income"][::-1]  # the demo prints rates of the first column's first value
        return {
            "age": _AGE,
            "hours": _HOURS,
            "education": _CHOICE.format(
                question="Which education have people completed?", values=listed(self.known["education"])
            ),
            "occupation": _CHOICE.format(
                question="What do people do for a living?", values=listed(self.known["occupation"])
            ),
            "country": _COUNTRY.format(candidates=listed(self.known["native_country"], "candidates")),
            "work": _WORK,
            "earnings": _EARNINGS.format(
                columns="\n".join(f"columns.{name} = {json.dumps(values)}" for name, values in columns.items())
            ),
        }

    def draw(self, devices: int, seed: int) -> Answers:
        """Return the answers of so many different people."""
        drawn = np.random.default_rng(seed).choice(len(self.people), size=devices, replace=False)
        people = [self.people[who] for who in drawn]
        return {
            "age": [int(each["age"]) for each in people],
            "hours": [int(each["hours_per_week"]) for each in people],
            "education": [each["education"] for each in people],
            "occupation": [each["occupation"] for each in people],
            "country": [_known(each["native_country"]) for each in people],
            "work": [_known(each["occupation"]) for each in people],
            "earnings": [{name: each[name] for name in EARNINGS} for each in people],
        }


def _known(text: str) -> str | None:
    return None if text == UNKNOWN else text


def census() -> Census:
    """Return the 48,842 people of the UCI adult data."""
    rows = csv.DictReader(gzip.decompress(read_data("adult.csv.gz")).decode("utf-8").splitlines())
    return Census(tuple(rows))
