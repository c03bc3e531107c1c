"""`dither metrics`: look after a registry."""

import argparse
import importlib

from dither.commands.metrics import check, diff, docs, new, types

EXAMPLE = check.EXAMPLE

# action: its module, which has SUMMARY, EXAMPLE, add_arguments(parser) and run(args) -> exit code.
ACTIONS = {
    "new": new,
    "check": check,
    "diff": diff,
    "docs": docs,
    "types": types,
    # The aggregator's: they load its extras when they are run.
    "load": importlib.import_module("dither_aggregator.commands.load"),
    "retire": importlib.import_module("dither_aggregator.commands.retire"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, module in ACTIONS.items():
        summary = module.SUMMARY
        action = actions.add_parser(
            name, help=summary, description=summary.capitalize() + ".", epilog=f"example: {module.EXAMPLE}"
        )
        module.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    code: int = ACTIONS[args.action].run(args)
    return code
