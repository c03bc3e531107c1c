"""`dither privacy`: what each metric of a registry promises a device, and what its reports can show.

With `--released` it shows what answers lose to somebody who sees published totals alone. With `--scenario` it shows
what a device gives away in so long about several of them together.
"""

import argparse
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from math import sqrt
from pathlib import Path

from dither_aggregator import accounting
from dither_aggregator.accounting import DELTA, SCENARIOS
from dither_aggregator.arguments import installs
from dither_shared.accounting import hundredths, linked_share, millionths_above, percent_above, sure
from dither_shared.errors import ConfigurationError
from dither_shared.exact import MICRO, exp_of_micro, from_micro
from dither_shared.kinds.precision import Worth, critical_share, detectable_share, noise_floor, precision_of
from dither_shared.mechanisms import DEVICES, Cells, PureMechanism, choose, one_cell
from dither_shared.registry import Metric, Registry
from dither_shared.terms import HIDES

EXAMPLE = "dither privacy metrics.toml --scenario year --metric theme --metric tools"
REPORTS = 1_000_000
ALIKE_MAX = 8
"""Parts with the same integers that have a line each; the pairs of a table's columns may be 120."""
FEWER = (2, 4, 10)
"""A long list is compared with ones that are as many times shorter."""

_LEGEND = f"""\
epsilon   the privacy loss of one report, and of everything that a device ever says about the metric
std error of a value that nobody has, at {REPORTS:,} reports; it falls with the root of their number
critical  the least estimate that {REPORTS:,} reports tell from noise; a value with the detectable share exceeds it
          in four of five cases. For texts all three are least values: a list that is long beside k x m raises
          those of a memoized one. For words they are of the reports that decide: a word must be found before it is
          named; for a number that is asked for its mean alone they are parts of its range; for a table they are of
          one of all cells"""
_READ = f"""\
std error of what is read from {REPORTS:,} reports: of a number, if numbers are spread evenly over its edges; of a
          table, for the pair of columns with the most noise: of a cell that nobody is in, and of a rate of one half
          in a group that is a tenth of all. The epsilon of a table's report is of all columns together, however many
          it tells"""
_ODDS = f"""\
sure      what a guess of 1 : 1 about a device's answer can become at most: from one report; from all reports of one
          memoized answer, however many; from everything that a device ever says about the metric
R({DEVICES})    of {DEVICES} devices with the same answer, the share whose reports whoever keeps them all can join over
          time, by the noise that memos repeat and by the cohort; (all) is of a device's metrics together"""


_MADE_UP = f"""\
made up   a chosen report weighs as many honest ones as "up" says where it raises what is named, and as "down" says
          where it lowers it; one may raise so many values at once. Made up, 1 % of the reports raise by so many
          percentage points what nobody has, and lower by so many what everybody has: of a share f by up - f and by
          down + f times their part. A device names its cell itself, so all of them may be among the reports that an
          estimate is read from. "at least" stands where no bound is known
found     so many made up of {REPORTS:,} reports give a value that nobody has the critical share, with which about half
          of all values are found; of words these are to be verified, and more to be proposed at each level"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--metric", action="append", metavar="NAME", help="only this metric; may be repeated")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, help="what one device gives away in so long, all metrics together"
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help="of a scenario: N devices that answer alike, such as a household's (1)"
    )
    parser.add_argument("--delta", metavar="D", help=f"of a scenario: the delta of bounds beside the sum ({DELTA:e})")
    parser.add_argument(
        "--released", action="store_true", help="what answers lose to somebody who sees published totals, and no report"
    )
    installs.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Show the metrics of a registry, in its order."""
    crowd = installs.asked(args)
    registry = Registry.load(args.registry)
    metrics = _asked(registry, args.metric)
    if args.released:
        accounting.show_released(registry, metrics, as_json=args.json)
        return 0
    if _asks_scenario(args):
        accounting.show_scenario(args, registry, metrics)
        return 0
    if args.json:
        more = crowd.documents(registry, metrics) if crowd else [{}] * len(metrics)
        described = zip(metrics, more, strict=True)
        print(json.dumps([{**describe(metric), **({"installs": told} if told else {})} for metric, told in described]))
    else:
        if crowd:
            print(*crowd.lines(registry, metrics), sep="\n", end="\n\n")
        _print_precision(metrics)
        _print_read(metrics)
        _print_choices(metrics)
        _print_odds(metrics)
        _print_hidden(metrics)
        _print_poisoning(metrics)
        _print_integers(metrics)
    return 0


def _asks_scenario(args: argparse.Namespace) -> bool:
    """Tell whether a scenario is asked for; raises ConfigurationError if only its options are."""
    for option in ("devices", "delta"):
        if getattr(args, option) is not None and args.scenario is None:
            raise ConfigurationError(f"--{option} is for a scenario: add --scenario year")
    return args.scenario is not None


def _asked(registry: Registry, names: list[str] | None) -> list[Metric]:
    unknown = sorted(set(names or ()) - registry.metrics.keys())
    if unknown:
        raise ConfigurationError(f"--metric must be one of {', '.join(registry.metrics)}, got {', '.join(unknown)}")
    return [metric for name, metric in registry.metrics.items() if not names or name in names]


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
        "sure_report": millionths_above(sure(cells.exp_epsilon)),
        "sure_permanent": millionths_above(sure(exp_of_micro(metric.charge))) if metric.memoized else None,
        "sure_lifetime": millionths_above(sure(exp_of_micro(metric.reservation))),
        f"linked_of_{DEVICES}": linked_share((cells,)),
        f"linked_of_{DEVICES}_of_fewer_values": dict(_of_fewer(metric)),
        "passed_over": _passed_over(metric),
        "bits_per_report": cells.report_bits,
        "std_error_at_1e6": noise_floor(metric, REPORTS),
        "detectable_at_1e6": detectable_share(metric, metric.d, REPORTS),
        "unit": metric.unit or None,
        "made_up": [_poisoning(metric, worth) for worth in metric.poisoning],
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
        "std_error_at_1e6": sqrt(precision_of(metric.kind).noise_variance(cells) / REPORTS),
        f"linked_of_{DEVICES}": linked_share((cells,)),
    }


def _of_fewer(metric: Metric) -> Iterator[tuple[int, float | None]]:
    """Yield R of a memo that is as private, for shorter lists: by how many values, "other" among them."""
    mechanism = metric.cells.parts[0].mechanism
    if not (metric.memoized and metric.values and isinstance(mechanism, PureMechanism)):
        return
    ticks = mechanism.ticks if metric.kind.several else None
    permanent = Decimal(metric.charge) / MICRO
    for part in FEWER:
        d = metric.d // part
        if d > max(mechanism.ticks, 2):
            fewer = choose(d, metric.epsilon, ticks=ticks, permanent=permanent)
            yield d, linked_share((one_cell(fewer),))


def _print_precision(metrics: list[Metric]) -> None:
    width, values = _width(metrics), max(6, *(len(f"{metric.d:,}") for metric in metrics))
    print(
        f"{'metric':{width}}  {'mechanism':14}  {'values':>{values}}  {'bits':>5}  {'epsilon: report':>15}  "
        f"{'life':>10}  {'std error':>9}  {'critical':>8}  {'detectable':>10}"
    )
    for metric in metrics:
        cells = metric.cells
        name = f"{cells.name} memoized" if metric.memoized else cells.name
        print(
            f"{metric.name:{width}}  {name:14}  {metric.d:{values},}  {cells.report_bits:5,}  "
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
    error = sqrt(precision_of(metric.kind).noise_variance(cells) / REPORTS)
    linked = hundredths(linked_share((cells,)))
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
            f"{hundredths(linked_share((metric.cells,))):>6}"
        )
    if sum(linked_share((each,)) is not None for each in together) > 1:
        print(f"{'(all)':{width}}  {'-':>12}  {'-':>9}  {'-':>9}  {hundredths(linked_share(together)):>6}")
    for metric in metrics:
        fewer = [f"{hundredths(linked)} of {d:,}" for d, linked in _of_fewer(metric)]
        if fewer:
            linked = hundredths(linked_share((metric.cells,)))
            print(f"{metric.name}: R({DEVICES}) is {linked} of {metric.d:,} values; it would be {', '.join(fewer)}")
    print(f"\n{_ODDS}\n")


def _print_hidden(metrics: list[Metric]) -> None:
    """Say what presence that is hidden does not hide."""
    if hidden := ", ".join(metric.name for metric in metrics if metric.hidden):
        print(f"{hidden}: {HIDES}\n")


def _poisoning(metric: Metric, worth: Worth) -> dict[str, object]:
    """Return what a made-up report is worth, and what 1 % of them do, rounded up."""
    return {
        "what": worth.what,
        "bound": "at most" if worth.known else "at least",
        "up": millionths_above(worth.up),
        "down": millionths_above(worth.down),
        "share_of_reports": float(worth.share),
        "values_at_once": worth.at_once,
        "raised_by_1_percent": millionths_above(worth.raised(1, 100)),
        "lowered_by_1_percent": millionths_above(worth.lowered(1, 100)),
        "found_at_1e6": _found(metric, worth),
    }


def _found(metric: Metric, worth: Worth) -> int | None:
    """Return how many made-up reports make a value stand out that nobody has; None of what never stands out."""
    if not worth.stands_out:
        return None
    return worth.needed(Fraction(critical_share(metric, metric.d, REPORTS)), REPORTS)


def _print_poisoning(metrics: list[Metric]) -> None:
    width = _width(metrics)
    print(
        f"{'metric':{width}}  {'made up: of':32}  {'':8}  {'up':>6}  {'down':>6}  {'at once':>7}  {'1% raise':>8}  "
        f"{'lower':>8}  {'found':>7}"
    )
    for metric in metrics:
        for worth in metric.poisoning:
            figures = _poisoning(metric, worth)
            up, down, raised, lowered = (
                float(str(figures[name])) for name in ("up", "down", "raised_by_1_percent", "lowered_by_1_percent")
            )
            at_once, found = (
                "-" if figures[name] is None else f"{figures[name]:,}" for name in ("values_at_once", "found_at_1e6")
            )
            print(
                f"{metric.name:{width}}  {worth.what:32}  {'up to' if worth.known else 'at least':8}  {up:6.2f}  "
                f"{down:6.2f}  {at_once:>7}  {100 * raised:>7.2f}%  {100 * lowered:>7.2f}%  {found:>7}"
            )
    print(f"\n{_MADE_UP}\n")


def _print_integers(metrics: list[Metric]) -> None:
    width = _width(metrics)
    print("the integers of each mechanism; a threshold is a probability out of 2^64:")
    for metric in metrics:
        parts = [(part, list(integers)) for part, integers in groupby(_integers(metric).items(), _part_of)]
        for _, each in groupby(parts, lambda part: [(name.removeprefix(f"{part[0]}."), n) for name, n in part[1]]):
            alike = list(each)
            shown = alike if len(alike) <= ALIKE_MAX else alike[:1]
            for _, integers in shown:
                print(f"{metric.name:{width}}  {'  '.join(f'{name} {value}' for name, value in integers)}")
            if len(shown) < len(alike):
                print(f"{metric.name:{width}}  and the same of each part to {alike[-1][0]}")


def _part_of(integer: tuple[str, int]) -> str:
    """Return the number of the part that an integer is of, "" where there is one: a part has a line of its own."""
    return integer[0].rpartition(".")[0].partition(".")[0]


def _width(metrics: list[Metric]) -> int:
    return max(6, *(len(metric.name) for metric in metrics))


def _integers(metric: Metric) -> dict[str, int]:
    cells = metric.cells
    return {**({"cells": cells.count} if cells.several else {}), **cells.parameters()}
