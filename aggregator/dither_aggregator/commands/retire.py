"""`dither metrics retire`: refuse the reports of a plan from now on. Light until it is run."""

import argparse
import json

from dither_aggregator.arguments.settings import add_data_argument, opened

SUMMARY = "refuse the reports of a metric's rev from now on; counted reports stay"
EXAMPLE = "dither metrics retire browser --rev 3 --data redis://10.0.0.5:6379/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("metric", metavar="METRIC", help="the metric's name")
    parser.add_argument("--rev", type=int, required=True, help="which of its revs")
    parser.add_argument("--undo", action="store_true", help="take its reports again")
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Retire the plan, or take it back; running processes follow within seconds."""
    from dither_aggregator.operations.administration import Administration

    with opened(args) as store:
        Administration(store).retire(args.metric, args.rev, undo=args.undo)
    if args.json:
        print(json.dumps({"metric": args.metric, "rev": args.rev, "retired": not args.undo}))
        return 0
    print(f"reports of {args.metric} rev {args.rev} are {'taken again' if args.undo else 'refused from now on'}")
    return 0
