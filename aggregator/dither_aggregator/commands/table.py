"""`dither table`: synthetic records of a table, for whoever needs rows: a prototype, a test, a tool that takes CSV."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from dither_aggregator.analysis.estimands import TallyGone, tally_of
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import PairTable
from dither_aggregator.analysis.tables.reading import columns_of
from dither_aggregator.analysis.tables.synthetic import SyntheticTable, synthesise_table
from dither_aggregator.analysis.windows import Window
from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.asking import DAYS_MAX, default_window
from dither_shared.domains import Columns, Range
from dither_shared.errors import ConfigurationError

EXAMPLE = "dither table synthesize stability --records 10000 --out records.csv --data /var/lib/dither"
RECORDS_MAX = 1_000_000
NOT_FOR = (
    "They are not people: no record is anybody's, and none tells what a device said.",
    "Agreement of three columns or more is model: no report says whether it holds, and it has no interval.",
    "Do not compute intervals from them: their number is chosen. The metric's page has intervals.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "write plausible records as CSV, a column each, that agree with every measured pair of columns"
    action = actions.add_parser(
        "synthesize", help=summary, description=f"{summary.capitalize()}.", epilog=f"example: {EXAMPLE}"
    )
    action.add_argument("metric", metavar="METRIC", help="a metric of the kind table")
    action.add_argument("--records", type=_count, default=10_000, metavar="N", help="how many (default: %(default)s)")
    action.add_argument("--from", dest="first", type=_day, metavar="DAY", help="the first day (UTC); goes with --to")
    action.add_argument("--to", dest="last", type=_day, metavar="DAY", help="the last day (default: the last 7 sealed)")
    action.add_argument("--plan", metavar="DIGEST", help="under which plan (default: the registry's)")
    action.add_argument("--public", metavar="VALUE", help="only devices with this value of the public column")
    action.add_argument("--out", type=Path, metavar="FILE", help="write the CSV to a file (default: stdout)")
    action.add_argument("--json", action="store_true", help="print one JSON document about them; needs --out")
    add_data_argument(action)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= RECORDS_MAX):
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {RECORDS_MAX:,}, got {text!r}")
    return int(text)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a day such as 2026-11-20, got {text!r}") from None


def run(args: argparse.Namespace) -> int:
    """Fit and write; return 1 where the fit did not reach the noise."""
    if args.json and args.out is None:
        raise ConfigurationError("--json needs --out: the records would stand in the way of the document")
    if (args.first is None) != (args.last is None):
        raise ConfigurationError("--from and --to go together")
    if args.first and not 1 <= Window(args.first, args.last).days <= DAYS_MAX:
        raise ConfigurationError(f"--from must not be after --to, and a window has at most {DAYS_MAX} days")
    with opened(args, read_only=True) as store:
        stored = _stored(store, args.metric, args.plan)
        _check_public(stored, args.public)
        window = Window(args.first, args.last) if args.first else default_window(store, stored)
        try:
            tally = tally_of(store, stored, window)
        except TallyGone as gone:
            raise ConfigurationError(f"{gone}: choose later days") from None
    made = synthesise_table(stored, tally, View(days=window.days), _Steps(), args.public)
    _write(_csv(made, args.records), args.out)
    if args.json:
        print(json.dumps(_document(made, window, args.records, args.public)))
    else:
        print("\n".join(_sentences(made, window, args.records)), file=sys.stderr)
    return 0 if made.synthesis.agrees else 1


def _stored(store: Store, metric: str, digest: str | None) -> StoredPlan:
    plans = [stored for stored in store.plans(metric) if digest in (None, stored.plan.digest)]
    if not plans:
        raise ConfigurationError(f"there is no metric {metric!r}" + (f" with a plan {digest!r}" if digest else ""))
    if plans[0].plan.kind.estimand != "tables":
        raise ConfigurationError(f"{metric} must be of kind table, got {plans[0].plan.kind.name}")
    return plans[0]


def _check_public(stored: StoredPlan, value: str | None) -> None:
    if value is None:
        return
    _, *values = columns_of(stored.plan).public or ("",)
    if not values:
        raise ConfigurationError(f"{stored.plan.metric} has no public column: leave --public out")
    if value not in values:
        raise ConfigurationError(f"--public must be {' or '.join(values)}, got {value!r}")


class _Steps:
    """How far a fit is, on stderr: redrawn on a terminal, silent elsewhere, where it takes a second or so."""

    def __call__(self, steps: int, ratio: float) -> None:
        if sys.stderr.isatty():
            end = "\r" if ratio > 1 else "\n"
            print(f"step {steps}: {ratio:6.2f} times the noise ", end=end, file=sys.stderr, flush=True)


def _csv(made: SyntheticTable, records: int) -> str:
    out = io.StringIO()
    lines = csv.writer(out)
    lines.writerow(columns_of(made.plan).names)
    lines.writerows(made.in_words(made.draw(records)))
    return out.getvalue()


def _write(text: str, out: Path | None) -> None:
    if out is not None:
        out.write_text(text, encoding="utf-8", newline="")
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # values may be in any language
    print(text, end="")


def _sentences(made: SyntheticTable, window: Window, records: int) -> list[str]:
    names, fit = columns_of(made.plan).names, made.synthesis
    pairs = ", ".join(_named(pair, names) for pair in made.pairs)
    measured = f"{len(made.pairs)} measured pairs of columns"
    agree = (
        f"They agree with {measured} to within the noise of {made.n:,} reports: {pairs}."
        if fit.agrees
        else f"They do not agree with the measured pairs: after {fit.steps} steps they are "
        f"{fit.chi2 / fit.target:.3g} times as far as noise would be."
    )
    of_days = f"{records:,} records of {window.first} to {window.last}."
    return [of_days, agree, *NOT_FOR, *_rounded(columns_of(made.plan))]


def _rounded(columns: Columns) -> list[str]:
    """Say what numbers are that coins rounded on the device."""
    names = [name for name, each in zip(columns.names, columns.domains, strict=True) if isinstance(each, Range)]
    if not names:
        return []
    return [f"Coins rounded {' and '.join(names)} to one of two ends on the device: means hold, single values do not."]


def _named(pair: PairTable, names: Sequence[str]) -> str:
    return " x ".join(names[column] for column in pair.columns)


def _document(made: SyntheticTable, window: Window, records: int, public: str | None) -> dict[str, object]:
    names, fit = columns_of(made.plan).names, made.synthesis
    return {
        "metric": made.plan.metric,
        "plan": made.plan.digest,
        **window.to_document(),
        "public": public,
        "records": records,
        "reports": made.n,
        "agrees": fit.agrees,
        "pairs": [[names[column] for column in pair.columns] for pair in made.pairs],
        "chi2": fit.chi2,
        "chi2_at_most": fit.target,
        "steps": fit.steps,
        "not_for": [*NOT_FOR, *_rounded(columns_of(made.plan))],
    }
