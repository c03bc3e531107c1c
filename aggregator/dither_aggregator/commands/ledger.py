"""`dither ledger`: where every accepted report is."""

import argparse
import json

from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_aggregator.store import LedgerRow
from dither_aggregator.store.records import total_of

EXAMPLE = "dither ledger --data /var/lib/dither"
COLUMNS = ("accepted", "folded", "pending", "quarantined")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the ledger; return 1 when it does not balance."""
    with opened(args, read_only=True) as store:
        rows = store.ledger()
    total = total_of(rows)
    balanced = all(row.balanced for row in rows)
    if args.json:
        print(json.dumps({"balanced": balanced, **total.to_document(), "rows": [vars(row) for row in rows]}))
    else:
        _print_table(rows)
        print(f"total: {total.equation}{'' if balanced else '  NOT BALANCED: `dither fsck` says where'}")
    return 0 if balanced else 1


def _print_table(rows: list[LedgerRow]) -> None:
    width = max([6, *(len(row.metric) for row in rows)])
    print(f"{'metric':{width}}  {'plan':16}  {'epoch':10}" + "".join(f"  {column:>11}" for column in COLUMNS))
    for row in rows:
        numbers = "".join(f"  {getattr(row, column):>11,}" for column in COLUMNS)
        print(f"{row.metric:{width}}  {row.plan}  {row.epoch}{numbers}{'' if row.balanced else '  NOT BALANCED'}")
