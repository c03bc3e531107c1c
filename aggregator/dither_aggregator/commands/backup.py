"""`dither backup`: everything that a store holds, in one file."""

import argparse
import json
from pathlib import Path

from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.store import StoreError, archive
from dither_shared.errors import reason_of

EXAMPLE = "dither backup dither-2027-01-31.gz --data /var/lib/dither"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a new file; it holds the store's keys: keep it safe")
    add_data_argument(parser)
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write the backup; the store may be in use."""
    if args.file.exists() and not args.force:
        raise StoreError(f"{args.file} is there already; --force replaces it")
    if args.file.exists() and not args.file.is_file():
        raise StoreError(f"{args.file} is no file: name one that is new, or a backup to be replaced")
    with opened(args, read_only=True) as store:
        try:
            records = archive.write(args.file, store.dump())
        except OSError as error:
            raise StoreError(f"{args.file} cannot be written: {reason_of(error)}; nothing is left of it") from None
        size = args.file.stat().st_size
        if args.json:
            print(
                json.dumps({"file": str(args.file), "generation": store.generation, "records": records, "bytes": size})
            )
        else:
            print(f"{args.file}: {records:,} records of {store.app} in {size:,} bytes")
    return 0
