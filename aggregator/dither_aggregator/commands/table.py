"""`dither table`: synthetic records of a table, for all that need rows: a prototype, a test, a tool that takes CSV."""

import argparse
import json
import sys
from collections.abc import Sequence
from math import prod

from dither_aggregator.analysis.reading import View, Window
from dither_aggregator.analysis.tables.pairs import PairTable
from dither_aggregator.analysis.tables.reading import columns_of
from dither_aggregator.analysis.tables.synthesis import CELLS_MAX, SyntheticTable, synthesise_table
from dither_aggregator.arguments.settings import add_action, add_data_argument, add_out_argument, opened
from dither_aggregator.store import StoredPlan
from dither_aggregator.web.query_parameters import add_window_arguments, asked_tally, check_window, named_plan
from dither_shared.domains import Range
from dither_shared.domains.columns import COLUMNS_MIN, symbols_of
from dither_shared.errors import ConfigurationError
from dither_shared.safe_output import behind, to_csv, write

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
    action = add_action(actions, "synthesize", summary, EXAMPLE)
    add_window_arguments(action, "table")
    action.add_argument("--records", type=_count, default=10_000, metavar="N", help="how many (default: %(default)s)")
    action.add_argument(
        "--columns",
        metavar="NAME,NAME",
        help="only these columns, two or more; all of them have 1,000,000 cells at most",
    )
    action.add_argument("--public", metavar="VALUE", help="only devices with this value of the public column")
    add_out_argument(action, "CSV")
    action.add_argument("--json", action="store_true", help="print one JSON document about them; needs --out")
    add_data_argument(action)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= RECORDS_MAX):
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {RECORDS_MAX:,}, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Fit and write; return 1 where the fit did not reach the noise."""
    if args.json and args.out is None:
        raise ConfigurationError("--json needs --out: the records would stand in the way of the document")
    check_window(args)
    with opened(args, read_only=True) as store:
        stored = named_plan(store, args, "tables", "table")
        _check_public(stored, args.public)
        columns = chosen_columns(stored, args.columns)
        window, tally = asked_tally(store, stored, args)
    made = synthesise_table(stored, tally, View(days=window.days), _Steps(), args.public, columns)
    write(to_csv(made.names, made.in_words(made.draw(args.records))), args.out)
    if args.json:
        print(json.dumps(_document(made, window, args.records, args.public)))
    else:
        print("\n".join(_sentences(made, window, args.records)), file=sys.stderr)
    return 0 if made.synthesis.agrees else 1


def _check_public(stored: StoredPlan, value: str | None) -> None:
    if value is None:
        return
    _, *values = columns_of(stored.plan).public or ("",)
    if not values:
        raise ConfigurationError(f"{stored.plan.metric} has no public column: leave --public out")
    if value not in values:
        raise ConfigurationError(f"--public must be {' or '.join(values)}, got {value!r}")


def chosen_columns(stored: StoredPlan, names: str | None) -> Sequence[str]:
    """Return the columns that are asked for; refuse those that a fit has no room for."""
    known = columns_of(stored.plan).columns
    chosen = tuple(dict.fromkeys(names.split(","))) if names else tuple(known)
    if len(chosen) < COLUMNS_MIN or not known.keys() >= set(chosen):
        raise ConfigurationError(f"--columns must be {COLUMNS_MIN} or more of {','.join(known)}, got {names}")
    cells = prod(symbols_of(known[name]) for name in chosen)
    if cells > CELLS_MAX:
        raise ConfigurationError(
            f"records are made of {CELLS_MAX:,} cells at most, these columns have {cells:,}: name fewer with --columns"
        )
    return chosen


class _Steps:
    """How far a fit is, on stderr: redrawn on a terminal, silent elsewhere, where it takes a second or so."""

    def __call__(self, steps: int, ratio: float) -> None:
        if sys.stderr.isatty():
            end = "\r" if ratio > 1 else "\n"
            print(f"step {steps}: {ratio:6.2f} times the noise ", end=end, file=behind(sys.stderr), flush=True)


def _sentences(made: SyntheticTable, window: Window, records: int) -> list[str]:
    names, fit = made.names, made.synthesis
    pairs = ", ".join(_named(pair, names) for pair in made.pairs)
    measured = f"{len(made.pairs)} measured pair{'s' * (len(made.pairs) > 1)} of columns"
    agree = (
        f"They agree with {measured} to within the noise of {made.n:,} reports: {pairs}."
        if fit.agrees
        else f"They do not agree with the measured pairs: after {fit.steps} steps they are "
        f"{fit.chi2 / fit.target:.3g} times as far as noise would be."
    )
    of_days = f"{records:,} records of {window.first} to {window.last}."
    return [of_days, agree, *NOT_FOR, *_rounded(made)]


def _rounded(made: SyntheticTable) -> list[str]:
    """Say what numbers are that coins rounded on the device."""
    columns = columns_of(made.plan).columns
    names = [name for name in made.names if isinstance(columns[name], Range)]
    if not names:
        return []
    return [f"Coins rounded {' and '.join(names)} to one of two ends on the device: means hold, single values do not."]


def _named(pair: PairTable, names: Sequence[str]) -> str:
    return " x ".join(names[column] for column in pair.columns)


def _document(made: SyntheticTable, window: Window, records: int, public: str | None) -> dict[str, object]:
    names, fit = made.names, made.synthesis
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
        "not_for": [*NOT_FOR, *_rounded(made)],
    }
