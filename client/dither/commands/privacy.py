"""`dither privacy`: what each metric of a registry promises a device, and what its reports can show."""

import argparse
import json
from fractions import Fraction
from itertools import groupby
from math import ceil, sqrt
from pathlib import Path

from dither_shared.accounting.linking import DEVICES, linked_share
from dither_shared.accounting.odds import percent_above, sure
from dither_shared.cells import Cells
from dither_shared.exact import exp_of_micro, from_micro
from dither_shared.precision import critical_share, detectable_share, noise_floor
from dither_shared.registry import Metric, Registry

EXAMPLE = "dither privacy metrics.toml"
REPORTS = 1_000_000

_LEGEND = f"""\
epsilon   the privacy loss of one report, and of everything that a device ever says about the metric
std error of a value that nobody has, at {REPORTS:,} reports; it falls with the root of their number
critical  the least estimate that {REPORTS:,} reports tell from noise; a value with the detectable share exceeds it
          in four of five cases. Of texts all three are least values: a list that is long beside k x m raises
          those of a memoized one. Of words they are of the reports that decide: what is named must be found first;
          of a number that is asked for its mean alone they are parts of its range; of a table they are of one of
          all cells"""
_READ = f"""\
std error of what is read from {REPORTS:,} reports: of a number, if numbers are spread evenly over its edges; of a
          table, for the pair of columns with the most noise: of a cell that nobody is in, and of a rate of one half
          in a group that is a tenth of all. Whatever a report of a table tells, epsilon is of all columns together"""
_ODDS = f"""\
sure      what a guess of 1 : 1 about a device's answer can become at most: from one report; from all reports of one
          memoized answer, however many; from everything that a device ever says about the metric
R({DEVICES})    of {DEVICES} devices with the same answer, the share whose reports whoever keeps them all can join over
          time, by the noise that memos repeat and by the cohort; (all) is of a device's metrics together"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Show every metric of a registry, in its order."""
    metrics = list(Registry.load(args.registry).metrics.values())
    if args.json:
        print(json.dumps([describe(metric) for metric in metrics]))
    else:
        _print_precision(metrics)
        _print_read(metrics)
        _print_choices(metrics)
        _print_odds(metrics)
        _print_integers(metrics)
    return 0


def describe(metric: Metric) -> dict[str, object]:
    """Return what a metric promises and can show, as plain numbers."""
    cells = metric.cells
    return {
        "metric": metric.name,
        "mechanism": cells.name,
        "parameters": cells.parameters(),
        "cells": cells.count,
        "epsilon_report": from_micro(cells.charge),
        "epsilon_lifetime": from_micro(metric.reservation),
        "sure_report": _rounded_up(sure(cells.exp_epsilon)),
        "sure_permanent": _rounded_up(sure(exp_of_micro(metric.charge))) if metric.memoized else None,
        "sure_lifetime": _rounded_up(sure(exp_of_micro(metric.reservation))),
        f"linked_of_{DEVICES}": linked_share((cells,)),
        "passed_over": _passed_over(metric),
        "bits_per_report": cells.report_bits,
        "std_error_at_1e6": noise_floor(metric, REPORTS),
        "detectable_at_1e6": detectable_share(metric, metric.d, REPORTS),
        "unit": metric.unit or None,
        **{f"std_error_{name}_at_1e6": error for name, error in metric.std_errors(REPORTS).items()},
    }


def _passed_over(metric: Metric) -> dict[str, object] | None:
    """Return the same few figures of the mechanism that was not chosen."""
    cells = metric.asked.passed_over
    if cells is None:
        return None
    return {
        "mechanism": cells.name,
        "bits_per_report": cells.report_bits,
        "std_error_at_1e6": sqrt(metric.kind.noise_variance(cells) / REPORTS),
        f"linked_of_{DEVICES}": linked_share((cells,)),
    }


def _rounded_up(probability: Fraction) -> float:
    """Return a probability to six digits, never below it: JSON's 1.0 is above .999999."""
    return ceil(probability * 10**6) / 10**6


def _print_precision(metrics: list[Metric]) -> None:
    width = _width(metrics)
    print(
        f"{'metric':{width}}  {'mechanism':14}  {'values':>6}  {'bits':>5}  {'epsilon: report':>15}  {'life':>10}  "
        f"{'std error':>9}  {'critical':>8}  {'detectable':>10}"
    )
    for metric in metrics:
        cells = metric.cells
        name = f"{cells.name} memoized" if metric.memoized else cells.name
        print(
            f"{metric.name:{width}}  {name:14}  {metric.d:6,}  {cells.report_bits:5,}  "
            f"{from_micro(cells.charge):>15.6g}  {from_micro(metric.reservation):>10.6g}  "
            f"{noise_floor(metric, REPORTS):9.4%}  {critical_share(metric, metric.d, REPORTS):8.3%}  "
            f"{detectable_share(metric, metric.d, REPORTS):10.3%}"
        )
    print(f"\n{_LEGEND}\n")


def _print_read(metrics: list[Metric]) -> None:
    width = _width(metrics)
    errors = {metric: dict(metric.std_errors(REPORTS)) for metric in metrics}
    for metric, of_one in errors.items():
        if metric.asked.domain.columns:
            print(f"{metric.name:{width}}  {metric.asked.domain.summary}")
        if of_one:
            shown = (f"{what} {_error(error, metric.unit)}" for what, error in of_one.items())
            print(f"{metric.name:{width}}  std error: {'  '.join(shown)}")
    if any(errors.values()):
        print(f"\n{_READ}\n")


def _error(error: float, unit: str) -> str:
    return f"{error:.3g} {unit}" if unit else f"{100 * error:.3g}%"


def _print_choices(metrics: list[Metric]) -> None:
    for metric in metrics:
        if metric.asked.passed_over is not None:
            taken, other = (_in_words(metric, cells) for cells in (metric.cells, metric.asked.passed_over))
            name = metric.asked.passed_over.name
            print(f'{metric.name}: {taken} was chosen; mechanism = "{name}" makes it {other}')
    if any(metric.asked.passed_over for metric in metrics):
        print()


def _in_words(metric: Metric, cells: Cells) -> str:
    error = sqrt(metric.kind.noise_variance(cells) / REPORTS)
    linked = _share(linked_share((cells,)))
    return f"{cells.name}, std error {error:.4%}, {cells.report_bits} bits, R({DEVICES}) {linked}"


def _print_odds(metrics: list[Metric]) -> None:
    width = _width(metrics)
    together = tuple(metric.cells for metric in metrics)
    print(f"{'metric':{width}}  {'sure: report':>12}  {'answer':>9}  {'life':>9}  {f'R({DEVICES})':>6}")
    for metric in metrics:
        report, life = sure(metric.cells.exp_epsilon), sure(exp_of_micro(metric.reservation))
        answer = f"{percent_above(sure(exp_of_micro(metric.charge)))}%" if metric.memoized else "-"
        print(
            f"{metric.name:{width}}  {percent_above(report) + '%':>12}  {answer:>9}  {percent_above(life) + '%':>9}  "
            f"{_share(linked_share((metric.cells,))):>6}"
        )
    if sum(linked_share((each,)) is not None for each in together) > 1:
        print(f"{'(all)':{width}}  {'-':>12}  {'-':>9}  {'-':>9}  {_share(linked_share(together)):>6}")
    print(f"\n{_ODDS}\n")


def _share(linked: float | None) -> str:
    return "-" if linked is None else f"{ceil(100 * linked) / 100:.2f}"


def _print_integers(metrics: list[Metric]) -> None:
    width = _width(metrics)
    print("the integers of each mechanism; a threshold is a probability out of 2^64:")
    for metric in metrics:
        for _, integers in groupby(_integers(metric).items(), _part_of):
            print(f"{metric.name:{width}}  {'  '.join(f'{name} {value}' for name, value in integers)}")


def _part_of(integer: tuple[str, int]) -> str:
    """Return the number of the part that an integer is of, "" where there is one: a part has a line of its own."""
    return integer[0].rpartition(".")[0].partition(".")[0]


def _width(metrics: list[Metric]) -> int:
    return max(6, *(len(metric.name) for metric in metrics))


def _integers(metric: Metric) -> dict[str, int]:
    cells = metric.cells
    return {**({"cells": cells.count} if cells.several else {}), **cells.parameters()}
