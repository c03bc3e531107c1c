"""Populations: the metrics of a registry, true answers drawn from real data, and estimates beside that truth.

A compared row is a document: the API's of a value or a statistic, and

    truth          the share of devices with the value, or the statistic of their answers
    truth_upper    of a quantile: the upper end of the range between edges that the true one lies in
    group_truth    of a rate: the share of the devices that are in its group, 1 where that is everybody
"""

import csv
import gzip
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from importlib.resources import files
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from dither_aggregator.analysis.inference import CONFIDENCE, Floats
from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.analysis.words import LONGER
from dither_aggregator.simulate.fleet import Answers
from dither_shared.domains import Buckets
from dither_shared.kinds.precision import NUMBERS_MIN
from dither_shared.registry import Metric

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


# Estimates beside the truth of the devices that answered, by estimand.


Row = dict[str, Any]
TABLE_ROWS = 15
FALSE_ALARM = 1e-9
_ESTIMATED = ("estimate", "std_error", "lower", "upper")
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")
_WIDTH = 8
"""The width of the names of statistics."""


def holds(row: Row) -> bool:
    """Tell whether an interval holds the truth: of a quantile, the whole range that the true one lies in."""
    return bool(row["lower"] <= row["truth"] and row.get("truth_upper", row["truth"]) <= row["upper"])


def too_few_hold(rows: Sequence[Row]) -> bool:
    """Tell whether more intervals fail than chance explains, which one run in 10^9 would show.

    By the binomial law, as if intervals were independent. A metric's quantiles are not, but are few beside the shares.
    """
    n, failed = len(rows), sum(not holds(row) for row in rows)
    chance = sum(comb(n, k) * (1 - CONFIDENCE) ** k * CONFIDENCE ** (n - k) for k in range(failed, n + 1))
    return chance < FALSE_ALARM


class Comparing(ABC):
    """How one estimand is compared with the truth, and shown. It has no state."""

    @abstractmethod
    def rows(self, metric: Metric, answers: Sequence[object], estimated: Sequence[Row]) -> list[Row]:
        """Return rows of the API with the truth beside the estimate."""

    @abstractmethod
    def table(self, metric: Metric, rows: Sequence[Row], *, everything: bool) -> Iterator[str]:
        """Yield the lines of a table of compared rows; without `everything` not all of its rows."""


class ComparingShares(Comparing):
    """Shares of listed values, or of candidates."""

    def rows(self, metric: Metric, answers: Sequence[object], estimated: Sequence[Row]) -> list[Row]:
        """Return a row for each value."""
        counts = Counter(name for answer in answers for name in metric.names(answer))
        return [_compared(row, counts[row["value"]] / len(answers)) for row in estimated]

    def table(self, metric: Metric, rows: Sequence[Row], *, everything: bool) -> Iterator[str]:
        """Yield the values that most devices have."""
        shown = len(rows) if everything else TABLE_ROWS
        yield from _shares_table(rows, shown)
        if shown < len(rows):
            yield f"  ... and {len(rows) - shown} smaller values (--all prints them)"
        yield f"  {_held(rows)}"


class ComparingWords(Comparing):
    """Texts that the reports themselves name, and the starts of longer ones."""

    def rows(self, metric: Metric, answers: Sequence[object], estimated: Sequence[Row]) -> list[Row]:
        """Return a row for each text that was proposed."""
        counts = Counter(name for answer in answers for name in metric.names(answer))
        return [
            _compared(row, _share_of_word(row["value"], counts) / len(answers)) | {"verdict": row["verdict"]}
            for row in estimated
        ]

    def table(self, metric: Metric, rows: Sequence[Row], *, everything: bool) -> Iterator[str]:
        """Yield the texts that stand out; `everything` shows all that were proposed."""
        shown = [row for row in rows if everything or row["verdict"] == "stands out"]
        yield from _shares_table(shown, len(shown)) if shown else ("  no word stands out",)
        if rows:
            yield f"  {_held(rows)}, counting those of all {len(rows)} texts that were proposed"


def _share_of_word(value: str, counts: Counter[str]) -> int:
    if value.endswith(LONGER):
        return sum(count for name, count in counts.items() if name.startswith(value.removesuffix(LONGER)))
    return counts[value]


class ComparingNumbers(Comparing):
    """Mean, quantiles and shares of buckets, where all answers are numbers between the outermost edges."""

    def rows(self, metric: Metric, answers: Sequence[object], estimated: Sequence[Row]) -> list[Row]:
        """Return the rows of these statistics: shares above edges say the same as those of ranges again."""
        numbers = np.array(answers, dtype=np.float64)
        return [
            _compared(row, **_TRUTHS[row["statistic"]](metric, numbers, row))
            | {name: row[name] for name in ("statistic", "low", "high")}
            for row in estimated
            if row["statistic"] in _TRUTHS and row["verdict"] != "untold"
        ]

    def table(self, metric: Metric, rows: Sequence[Row], *, everything: bool) -> Iterator[str]:
        """Yield mean and quantiles. The intervals of ranges' shares are counted; `everything` shows them, too."""
        if not rows:
            yield f"  too few reports to tell: numbers need {NUMBERS_MIN:,}"
            return
        ranges = [row for row in rows if row["statistic"] == "share"]
        yield f"  {metric.unit:{_WIDTH}}  {'true':>8}  {'estimate':>9}  {_INTERVAL:^19}"
        for row in rows:
            if row["statistic"] != "share":
                yield _numbers_line(row)
        yield from _notes(rows)
        if everything:
            yield from _shares_table(ranges, len(ranges))
            yield f"  {_held(rows)}"
        else:
            yield f"  {_held(rows)}, counting those of the shares of {len(ranges)} ranges (--all prints them)"


class ComparingTables(Comparing):
    """Shares of each column's values, and rates: shares within a group by a later column."""

    def rows(self, metric: Metric, answers: Sequence[object], estimated: Sequence[Row]) -> list[Row]:
        """Return a row for each. Cells and rates within groups by an earlier column would say the same again."""
        counts: Counter[tuple[str, ...]] = Counter()
        for each in map(metric.names, answers):
            counts.update((word,) for word in each)
            counts.update(combinations(each, 2))
        return [
            _compared(row, counts[(*share, *group)] / of, group_truth=of / len(answers))
            | {"statistic": row["statistic"]}
            for row, share, group in _of_columns(metric, estimated)
            if (of := counts[group] if group else len(answers))
        ]

    def table(self, metric: Metric, rows: Sequence[Row], *, everything: bool) -> Iterator[str]:
        """Yield the rates of the first column's first value, in the largest groups."""
        name, column = next(iter(metric.asked.domain.columns.items()))
        begin = f"{name} = {column.values[0]} | "
        rates = sorted((row for row in rows if row["value"].startswith(begin)), key=lambda row: -row["group_truth"])
        if not rates:
            yield f"  too few reports to tell any rate of {name} = {column.values[0]}"
        else:
            shown = rows if everything else rates[:TABLE_ROWS]
            yield from _shares_table(shown, len(shown))
        if rows:
            more = "" if everything else ", counting those of all other shares and rates (--all prints them)"
            yield f"  {_held(rows)}{more}"


def _of_columns(metric: Metric, estimated: Sequence[Row]) -> Iterator[tuple[Row, tuple[str, ...], tuple[str, ...]]]:
    """Yield the rows that are compared, with what the share is of and the group, in words."""
    columns = tuple(metric.asked.domain.columns)
    for row in estimated:
        share, group = f"{row['column']} = {row['label']}", f"{row['group_column']} = {row['group']}"
        if row["statistic"] == "share" and row["group"] is None:
            yield row, (share,), ()
        elif row["statistic"] == "rate" and row["group_column"] in columns[columns.index(row["column"]) + 1 :]:
            yield row, (share,), (group,)


def _true_mean(metric: Metric, numbers: Floats, row: Row) -> dict[str, float]:
    return {"truth": float(numbers.mean())}


def _true_quantile(metric: Metric, numbers: Floats, row: Row) -> dict[str, float]:
    """Return the least number up to which there are enough, and where its range ends."""
    truth = float(np.quantile(numbers, QUANTILES[row["value"]], method="inverted_cdf"))
    domain = Buckets.of(metric.asked.domain)
    edges = np.array(domain.edges) / 10**domain.decimals
    above = min(int(np.searchsorted(edges, truth, side="right")), len(edges) - 1)  # ranges are cut to the last edge
    return {"truth": truth, "truth_upper": float(edges[above])}


def _true_share(metric: Metric, numbers: Floats, row: Row) -> dict[str, float]:
    low = -np.inf if row["low"] is None else row["low"]
    high = np.inf if row["high"] is None else row["high"]
    return {"truth": float(((numbers >= low) & (numbers < high)).mean())}


_TRUTHS = {"mean": _true_mean, "quantile": _true_quantile, "share": _true_share}


def _compared(row: Row, truth: float, **more: float) -> Row:
    return {"value": row["value"], "truth": truth, **{name: row[name] for name in _ESTIMATED}, **more}


def _shares_table(rows: Sequence[Row], shown: int) -> Iterator[str]:
    """Yield a line for each of the largest true shares."""
    largest = sorted(rows, key=lambda row: -row["truth"])[:shown]
    width = max(len(row["value"]) for row in largest)
    yield f"  {'value':{width}}  {'true':>8}  {'estimate':>9}  {_INTERVAL:^19}"
    for row in largest:
        numbers = f"{row['truth']:8.2%}  {row['estimate']:9.2%}  {row['lower']:8.2%} .. {row['upper']:7.2%}"
        yield f"  {row['value']:{width}}  {numbers}  {_side(row)}"


def _numbers_line(row: Row) -> str:
    numbers = f"{row['truth']:8.4g}  {row['estimate']:9.4g}  {row['lower']:8.4g} .. {row['upper']:7.4g}"
    return f"  {row['value']:{_WIDTH}}  {numbers}  {_side(row)}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what ranges leave open: numbers are told no more finely than these."""
    mean = rows[0]
    low, high = mean["low"], mean["high"]
    yield f"  mean: {low:.4g} if all numbers are at the lower ends of their ranges, {high:.4g} if at the upper"
    yield "  quantiles: at least the lower end of the interval, and below the upper"
    named = {row["value"] for row in rows}
    if untold := [name for name in QUANTILES if name not in named]:
        yield f"  not told, as they may lie in more than a third of all ranges: {', '.join(untold)}"


def _side(row: Row) -> str:
    return "inside" if holds(row) else "outside"


def _held(rows: Sequence[Row]) -> str:
    held = sum(map(holds, rows))
    missed = len(rows) - held
    return (
        f"{held} of {len(rows)} intervals hold the truth"
        if len(rows) > 1
        else f"its interval {'misses' if missed else 'holds'} the truth"
    )


def by_design(rows: Sequence[Row]) -> str:
    """Say how many intervals miss, beside how many are meant to."""
    missed = sum(not holds(row) for row in rows)
    percent = f"{float(f'{100 * missed / len(rows):.2g}'):g} %" if missed else "none"
    return (
        f"{100 * (1 - CONFIDENCE):.0f} of 100 intervals miss by design; this run: {percent}, {missed} of {len(rows):,}"
    )


COMPARING: dict[str, Comparing] = {
    "shares": ComparingShares(),
    "one share": ComparingShares(),
    "texts": ComparingShares(),
    "numbers": ComparingNumbers(),
    "tables": ComparingTables(),
    "words": ComparingWords(),
}
"""By the name of the estimand."""
