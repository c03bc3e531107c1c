"""`dither fsck`: try every invariant of a store on what it holds."""

import argparse
import json

from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_aggregator.store.invariants import check

EXAMPLE = "dither fsck --data /var/lib/dither"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print what is not as it must be; return 1 when something is not."""
    with opened(args, read_only=True) as store:
        found = []
        for finding in check(store):
            found.append(finding)
            if not args.json:
                print(finding, flush=True)
        if args.json:
            print(json.dumps({"app": store.app, "generation": store.generation, "findings": found}))
        elif not found:
            print(f"the store of {store.app} is as it must be")
    return 1 if found else 0
