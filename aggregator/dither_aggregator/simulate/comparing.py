"""The aggregator's estimates of a metric, beside the truth of the devices that answered: by estimand.

A compared row is a document: the API's of a value or a statistic, and

    truth          the share of devices with the value, or the statistic of their answers
    truth_upper    of a quantile: the upper end of the range between edges that the true one lies in
    group_truth    of a rate: the share of the devices that are in its group, 1 where that is everybody
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from dither_aggregator.analysis.inference import CONFIDENCE, Floats
from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.analysis.words import LONGER
from dither_shared.domains import Buckets
from dither_shared.kinds.precision import NUMBERS_MIN
from dither_shared.registry import Metric

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
