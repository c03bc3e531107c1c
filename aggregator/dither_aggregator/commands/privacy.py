"""`dither privacy`: what each metric of a registry promises a device, and what its reports can show.

With `--released` it shows what answers lose to somebody who sees published totals alone. With `--scenario` it shows
what a device gives away in so long about several of them together.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from math import sqrt
from pathlib import Path

from dither_aggregator.accounting import blanket, scenarios
from dither_aggregator.accounting.scenarios import DELTA, SCENARIOS
from dither_aggregator.analysis.installs import (
    INSTALLS_MAX,
    Change,
    Installs,
    Outlook,
    Reread,
    Shown,
    changes,
    described,
    outlook_of,
)
from dither_shared.accounting.linking import hundredths, linked_share
from dither_shared.accounting.odds import millionths_above, percent_above, sure
from dither_shared.accounting.poisoning import Worth
from dither_shared.cells import Cells, one_cell
from dither_shared.domains import Buckets, Range
from dither_shared.errors import ConfigurationError
from dither_shared.exact import MICRO, exp_of_micro, from_micro
from dither_shared.kinds.number_precision import told_of
from dither_shared.mechanisms import DEVICES, PureMechanism, choose
from dither_shared.precision import critical_share, detectable_share, noise_floor
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.terms import HIDES

# `--installs`: what the reports of so many installs show, for `privacy`, `metrics new` and `metrics check`.
#
# The latter two are of the package dither, and find this by name where it is installed (`dither/commands/__init__.py`).


FEW = 1_000
"""With fewer installs the page that helps to choose names better ways."""
_FEW = (
    f"at fewer than about {FEW:,} installs use something else for everything but one or two flags that are read once a "
    f"year: shared/choosing.md says what"
)
_MEANING = """\
reports are averages, if every install's app runs each day and records each metric; intervals are those of 95 %.
shared/choosing.md says what the words mean, and what --on, --stay and --smallest change"""
_LESS = {
    "flag": "more installs, or to read what you count anyway",
    "number": 'asks = ["mean"]',
    "words": 'a list: kind = "text" with candidates, or better "choice" or "choices" with values',
    "text": 'a short list: kind = "choice" or "choices" with values',
}
"""Less that may be asked. Other kinds may have fewer values."""


def add_installs(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--installs", metavar="N", type=_count, help="so many active installs: what their reports would show"
    )
    parser.add_argument("--on", metavar="PERCENT", type=_part, help="of them: in how many telemetry is on (100)")
    parser.add_argument("--stay", metavar="PERCENT", type=_part, help="of them: how many are there a month later")
    parser.add_argument("--smallest", metavar="PERCENT", type=_part, help="the least share that you look for")


def asked(args: argparse.Namespace) -> "AskedInstalls | None":
    """Return the installs that are asked for; raise ConfigurationError if only their options are."""
    for option in ("on", "stay", "smallest"):
        if args.installs is None and getattr(args, option) is not None:
            raise ConfigurationError(f"--{option} is of installs: add --installs 5000")
    if args.installs is None:
        return None
    on = 1.0 if args.on is None else args.on
    return AskedInstalls(Installs(args.installs, on, args.stay, args.smallest), args.registry)


_COUNT = re.compile(r"([0-9]{1,3}(?:[,_][0-9]{3}){1,3}|[0-9]{1,11}(?:[.][0-9]{1,3})?)([kKmM]?)", re.ASCII)
_UNITS = {"": 1, "k": 10**3, "m": 10**6}


def _count(text: str) -> int:
    """Return a number of installs, written as people do: 2000, 2_000, 2,000, 2k or 1.5M."""
    written = _COUNT.fullmatch(text)
    count = Decimal(re.sub("[,_]", "", written[1])) * _UNITS[written[2].lower()] if written else Decimal()
    if not 1 <= count <= INSTALLS_MAX or count % 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {INSTALLS_MAX}, such as 2000, 2_000, 2k or 1.5M, got {text[:20]!r}"
        )
    return int(count)


def _part(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(f"must be a percentage above 0 and at most 100, got {text!r}")
    return percent / 100


@dataclass(frozen=True)
class AskedInstalls:
    """The installs that were asked for, beside the registry's file."""

    installs: Installs
    path: Path

    def lines(self, registry: Registry, metrics: Sequence[Metric]) -> Iterator[str]:
        """Yield the lines that show what their reports tell, with those for what other keys would change."""
        from dither_aggregator.analysis.advice import advice_together  # and with it scipy: only where it is used

        yield f"with {_installs_in_words(self.installs)}:"
        if self.installs.count * self.installs.on < FEW:
            yield _FEW
        outlooks = self._outlooks(registry, metrics)
        for now in outlooks:
            told = now.whole.told
            yield f"{now.metric.name}: reports: {_of_windows(now, lambda shown: f'{shown.reports:,.0f}')}"
            if told:
                yield f"  {told.what}: {_of_windows(now, lambda shown: shown.words)}"
            if told and isinstance(now.metric.asked.domain, Range | Buckets):
                yield f"  {_of_mean(now, now.metric.asked.domain)}"
            if now.whole.half is not None:
                differ = "a change between two windows shows from 1.4 times that"
                yield f"  a share near one half: {_of_windows(now, _around_half)}; {differ}"
            yield f"  {now.verdict}"
            yield from (f"  advice: {line}" for line in self._advice(registry, now))
            others = self._changes(registry, now)
            if not now.useful:
                help_ = " or ".join(change.lines for change in others if change.outlook.useful)
                yield f"  what would help: {help_ or _less(now.metric)}"
            yield from (f"  {change}" for change in others)
        yield from (f"advice: {line}" for line in advice_together(outlooks))
        yield _MEANING

    def documents(self, registry: Registry, metrics: Sequence[Metric]) -> list[dict[str, object]]:
        """Return the same as plain numbers."""
        return [
            {"metric": now.metric.name, **described(now, self._changes(registry, now), self._advice(registry, now))}
            for now in self._outlooks(registry, metrics)
        ]

    def _outlooks(self, registry: Registry, metrics: Sequence[Metric]) -> Sequence[Outlook]:
        return [outlook_of(metric, self.installs, registry.quiet_days, utc_today()) for metric in metrics]

    def _changes(self, registry: Registry, now: Outlook) -> Sequence[Change]:
        return list(changes(now, registry.quiet_days, self._reread(now.metric), utc_today()))

    def _advice(self, registry: Registry, now: Outlook) -> Iterator[str]:
        from dither_aggregator.analysis.advice import advice

        return advice(now, registry.quiet_days, self._reread(now.metric), utc_today())

    def _reread(self, metric: Metric) -> Reread:
        return lambda changed: Registry.reread(self.path, metric.name, changed)


def _less(metric: Metric) -> str:
    if metric.kind.name == "number" and isinstance(metric.asked.domain, Range):
        return _LESS["flag"]  # its mean alone is asked
    return _LESS.get(metric.kind.name, "to ask for less: fewer values, or a flag")


def _installs_in_words(installs: Installs) -> str:
    on = "" if installs.on == 1 else f", telemetry on in {100 * installs.on:g} % of them"
    stay = "" if installs.stay is None else f", of which {100 * installs.stay:g} % are there a month later"
    return f"{installs.count:,} installs{on}{stay}"


def _of_mean(now: Outlook, domain: Range | Buckets) -> str:
    """Return half the widths of the mean's intervals in its unit."""
    from dither_aggregator.analysis.planning_numbers import TOGETHER_ON_A_PAGE, page_times  # and with it scipy

    low, high = (domain.edges[end] / 10**domain.decimals for end in (0, -1))

    def around(shown: Shown) -> str:
        told = told_of(domain, now.metric.asked.cells, shown.worth)[0] if shown.enough else None
        if told is None or told.part > 1:
            return "nothing"
        return f"+- {float(f'{told.part * (high - low) / 2:.2g}'):,.12g}"

    together = (
        f"; a page has {TOGETHER_ON_A_PAGE} intervals that hold together, with noise {page_times():.2g} times as wide"
        * isinstance(domain, Buckets)
    )
    return f"the mean of {low:,.12g} to {high:,.12g} {domain.unit}: {_of_windows(now, around)}{together}"


def _around_half(shown: Shown) -> str:
    return "nothing" if shown.half is None or shown.half > 1 / 2 else f"+- {100 * shown.half:.2g} points"


def _of_windows(now: Outlook, written: Callable[[Shown], str]) -> str:
    return ", ".join(f"{written(shown)} in {name}" for name, shown in now.windows.items())


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
    add_installs(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Show the metrics of a registry, in its order."""
    crowd = asked(args)
    registry = Registry.load(args.registry)
    metrics = _asked(registry, args.metric)
    if args.released:
        blanket.show(registry, metrics, as_json=args.json)
        return 0
    if _asks_scenario(args):
        scenarios.show(args, registry, metrics)
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
        "std_error_at_1e6": sqrt(metric.kind.noise_variance(cells) / REPORTS),
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
    error = sqrt(metric.kind.noise_variance(cells) / REPORTS)
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
