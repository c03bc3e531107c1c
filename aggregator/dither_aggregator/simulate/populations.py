"""A population: the metrics of a registry, and the true answers of devices drawn from real data."""

import csv
import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from importlib.resources import files

import numpy as np

from dither_aggregator.simulate.fleet import Answers

_HEAD = """\
[registry]
app = "demo"
device_epsilon = {device_epsilon}
quiet_days = 0
{year}"""

_METRIC = """
[metric.{name}]
rev = 1
{asks}
epsilon = {epsilon}
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["demo@example.org"]
expires = {expires}
"""


class Population(ABC):
    """Devices that each answer every metric once."""

    epsilon = 2.0
    """The epsilon of each report."""

    publish_epsilon_year: float | None = None
    """The most that releases may cost a device in a year, where `asks` says that totals are published."""

    @property
    def devices_max(self) -> int | None:
        """How many devices can be drawn; None where there is no end of them."""
        return None

    @property
    @abstractmethod
    def asks(self) -> Mapping[str, str]:
        """By metric: the lines of the registry that are its own, from `kind` on."""

    @abstractmethod
    def draw(self, devices: int, seed: int) -> Answers:
        """Return the true answers of so many devices: for each metric one a device."""

    def registry(self, today: date) -> str:
        """Return the text of a registry that asks for all metrics, and lets a device answer each once."""
        terms = {"epsilon": self.epsilon, "expires": today + timedelta(days=30)}
        metrics = (_METRIC.format(name=name, asks=asks, **terms) for name, asks in self.asks.items())
        year = f"publish_epsilon_year = {self.publish_epsilon_year}\n" if self.publish_epsilon_year else ""
        return _HEAD.format(device_epsilon=self.epsilon * len(self.asks), year=year) + "".join(metrics)


def read_data(name: str) -> bytes:
    """Return a file of real data; data/README.md says where it is from."""
    return files("dither_aggregator.simulate").joinpath("data", name).read_bytes()


def listed(values: Iterable[str], key: str = "values") -> str:
    """Return the registry's lines that list values under a key."""
    lines = "\n".join(f'    "{value}",' for value in values)
    return f"{key} = [\n{lines}\n]"


# Devices whose browsers follow the world's shares of use.


MOBILE = frozenset(
    {
        "Chrome for Android",
        "Safari on iOS",
        "Samsung Internet",
        "Opera Mobile",
        "UC Browser for Android",
        "Firefox for Android",
        "Android Browser",
    }
)

_BROWSER = """\
kind = "choice"
question = "Which browser versions do people run?"
sensitivity = "low"
publish = "week"
publish_epsilon = 0.5
why = "We test the versions that people run, and drop those that nobody does."
issue = "https://example.org/issues/1"
{values}"""

_MOBILE = """\
kind = "flag"
question = "Is it a browser of a phone or tablet?"
sensitivity = "low"
publish = "week"
publish_epsilon = 0.5
why = "Pages for small screens are work: we do it if people use them."
issue = "https://example.org/issues/2\""""


@dataclass(frozen=True)
class Browsers(Population):
    """The browser versions, their shares of use (summing to one), and which are mobile."""

    publish_epsilon_year = 53.0
    labels: tuple[str, ...]
    shares: tuple[float, ...]
    mobile: tuple[bool, ...]

    @property
    def asks(self) -> Mapping[str, str]:
        """The version, and whether it is mobile."""
        return {"browser": _BROWSER.format(values=listed(self.labels)), "mobile": _MOBILE}

    def draw(self, devices: int, seed: int) -> Answers:
        """Return the browsers of devices that are drawn independently."""
        drawn = np.random.default_rng(seed).choice(len(self.labels), size=devices, p=self.shares)
        return {"browser": [self.labels[v] for v in drawn], "mobile": [self.mobile[v] for v in drawn]}


def browsers() -> Browsers:
    """Return the world's browsers, from caniuse-lite."""
    rows = list(csv.DictReader(read_data("browser_share.csv").decode("utf-8").splitlines()))
    shares = np.array([float(row["share_percent"]) for row in rows])
    return Browsers(
        labels=tuple(f"{row['browser']} {row['version']}" for row in rows),
        shares=tuple((shares / shares.sum()).tolist()),
        mobile=tuple(row["browser"] in MOBILE for row in rows),
    )


# Devices that are each one person of a census: age, hours of work, education, occupation, country and earnings.


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
