"""`dither words`: the texts that a metric of words found, as a list for a choice's values or a text's candidates."""

import argparse
import json
import sys
from collections.abc import Iterator

from dither_aggregator.analysis.reading import View, Window, reports_max, windows_together
from dither_aggregator.analysis.words import Wanted, WordRow, rows_of, search_tally
from dither_aggregator.arguments.settings import add_action, add_data_argument, add_out_argument, opened
from dither_aggregator.store import StoredPlan
from dither_aggregator.web.query_parameters import add_window_arguments, asked_tally, check_window, named_plan
from dither_shared.domains.hashed_texts import UNTEXTS
from dither_shared.errors import ConfigurationError
from dither_shared.safe_output import behind, write

EXAMPLE = "dither words candidates search_engine --out engines.txt --data /var/lib/dither"
LIKELY = 1.5
"""Standard errors above which a text is worth asking for: a list with a few false ones costs little there."""
NEXT = "Read the list before you use it, as candidates_file of a text or, with a new rev, as values_file of a choice."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "write the texts that were found or nearly so, a line each, for a person to read and a registry to list"
    action = add_action(actions, "candidates", summary, EXAMPLE)
    add_window_arguments(action, "words")
    action.add_argument("--found", action="store_true", help="only those that are told to be there")
    add_out_argument(action, "list")
    action.add_argument("--json", action="store_true", help="print one JSON document with each text's numbers")
    add_data_argument(action)


def run(args: argparse.Namespace) -> int:
    """Search and write; return 1 where nothing was found."""
    if args.json and args.out is not None:
        raise ConfigurationError("--json prints a document in place of the list: leave --out out")
    check_window(args)
    with opened(args, read_only=True) as store:
        stored = named_plan(store, args, "words", "words")
        window, tally = asked_tally(store, stored, args)
        view = View(days=window.days, together=windows_together(store, stored, window))
    if tally.n == 0:
        raise ConfigurationError(f"there are no reports of {window.first} to {window.last}: choose other days")
    wanted = Wanted(view.own_confidence, reports_max(stored, window.days))
    _, words = search_tally(stored.plan, tally, wanted, _progress)
    rows = [row for row in rows_of(stored.plan, words) if row.whole and (row.named if args.found else row.z > LIKELY)]
    listed = [row for row in rows if _listable(row)]
    if args.json:
        print(json.dumps(_document(stored, window, tally.n, listed)))
    else:
        write("".join(f"{row.value}\n" for row in listed), args.out)
        print(" ".join(_sentences(rows, listed, window, tally.n)), file=sys.stderr)
    return 0 if listed else 1


def _listable(row: WordRow) -> bool:
    """Tell whether a text can be a line of a list, where "other" and "none" are always there."""
    return row.value.strip("“”") not in UNTEXTS and row.value.isprintable() and row.value != ""


def _sentences(rows: list[WordRow], listed: list[WordRow], window: Window, n: int) -> Iterator[str]:
    named = sum(bool(row.named) for row in listed)
    yield f"{len(listed):,} texts, {named:,} of them told to be there, by {n:,} reports"
    yield f"of {window.first} to {window.last}."
    if len(listed) < len(rows):
        yield f"{len(rows) - len(listed)} more cannot be a line of a list."
    yield NEXT


def _progress(done: float) -> None:
    """Show how far the search is on a terminal."""
    if sys.stderr.isatty():
        print(f"searched {done:4.0%}", end="\n" if done >= 1 else "\r", file=behind(sys.stderr), flush=True)


def _document(stored: StoredPlan, window: Window, n: int, rows: list[WordRow]) -> dict[str, object]:
    return {
        "metric": stored.plan.metric,
        "plan": stored.plan.digest,
        **window.to_document(),
        "reports": n,
        "candidates": [vars(row) for row in rows],
    }
