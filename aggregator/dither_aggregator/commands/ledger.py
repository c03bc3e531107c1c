"""`dither ledger`: where every accepted report is."""

import argparse
import json

from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.store import LedgerRow

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
    total = {column: sum(getattr(row, column) for row in rows) for column in COLUMNS}
    balanced = all(row.balanced for row in rows)
    if args.json:
        print(json.dumps({"balanced": balanced, **total, "rows": [vars(row) for row in rows]}))
    else:
        _print_table(rows)
        print(f"total: {describe(total)}{'' if balanced else '  NOT BALANCED: `dither fsck` says where'}")
    return 0 if balanced else 1


def describe(total: dict[str, int]) -> str:
    """Return the ledger's equation with its numbers."""
    return "{accepted:,} accepted = {folded:,} folded + {pending:,} pending + {quarantined:,} quarantined".format(
        **total
    )


def _print_table(rows: list[LedgerRow]) -> None:
    width = max([6, *(len(row.metric) for row in rows)])
    print(f"{'metric':{width}}  {'plan':16}  {'epoch':10}" + "".join(f"  {column:>11}" for column in COLUMNS))
    for row in rows:
        numbers = "".join(f"  {getattr(row, column):>11,}" for column in COLUMNS)
        print(f"{row.metric:{width}}  {row.plan}  {row.epoch}{numbers}{'' if row.balanced else '  NOT BALANCED'}")
