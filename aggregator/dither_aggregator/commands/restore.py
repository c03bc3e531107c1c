"""`dither restore`: a new store from a backup."""

import argparse
import json
from pathlib import Path

from dither_aggregator.arguments.settings import add_data_argument, add_lossy_argument
from dither_aggregator.store import SHARDS, create_store, dump
from dither_aggregator.store.records import total_of
from dither_aggregator.store.restoring import restore

EXAMPLE = "dither restore dither-2027-01-31.gz --data /var/lib/dither-again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("file", metavar="FILE", type=Path, help="as `dither backup` wrote it")
    add_data_argument(parser, "the new store")
    parser.add_argument("--shards", type=int, default=SHARDS, help="of a Redis store (default: %(default)s)")
    add_lossy_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Fill a new store; it refuses to be opened until all of the backup is in it."""
    app = dump.app_of(args.file)
    store = create_store(args.data, app, args.shards, allow_lossy_store=args.allow_lossy_store, unfinished=True)
    try:
        restore(store, dump.read(args.file))
        total = total_of(store.ledger())
    except dump.UNFIT as error:
        raise dump.unfit(args.file, error) from None
    finally:
        store.close()
    if args.json:
        print(json.dumps({"app": store.app, "generation": store.generation, **total.to_document()}))
    else:
        print(f"the store of {store.app} is as it was when the backup was made: {total.equation}")
        print("what was acknowledged after that is not in it")
    return 0
