"""`dither journal`: who asked for which change of an aggregator, and when."""

import argparse
import json

from dither_aggregator.arguments import number
from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_aggregator.store.document_kinds import JOURNAL_MAX

EXAMPLE = "dither journal --last 20 --data /var/lib/dither"
LAST = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    says = "so many of the last entries (default: %(default)s)"
    parser.add_argument("--last", metavar="N", type=number(1, JOURNAL_MAX), default=LAST, help=says)
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the entries, the latest last."""
    with opened(args, read_only=True) as store:
        entries = [entry.to_document() for entry in store.journal(args.last)]
    if args.json:
        print(json.dumps({"journal": entries}))
        return 0
    for entry in entries:
        print(f"{entry['at']}  {entry['actor']:12}  {entry['action']:17}  {entry['what']}")
    if not entries:
        print("nobody has changed anything")
    return 0
