"""`dither metrics`: look after a registry."""

from __future__ import annotations

import argparse
from types import ModuleType

from dither.commands import loaded
from dither.commands.metrics import check, compiling, diff, docs, new, types
from dither_shared.errors import ConfigurationError

EXAMPLE = check.EXAMPLE

# action: its module, which has SUMMARY, EXAMPLE, add_arguments(parser) and run(args) -> exit code.
ACTIONS: dict[str, ModuleType | str] = {
    "new": new,
    "check": check,
    "compile": compiling,
    "diff": diff,
    "docs": docs,
    "types": types,
    # The aggregator's, by name: only its package brings them.
    "load": "dither_aggregator.commands.load",
    "retire": "dither_aggregator.commands.retire",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ACTIONS:
        try:
            module = _module(name)
        except ConfigurationError as missing:
            # Running it says the same, whatever its arguments are.
            anything = actions.add_parser(name, help=str(missing), add_help=False, prefix_chars="\0")
            anything.add_argument("anything", nargs="*")
            continue
        summary = module.SUMMARY
        action = actions.add_parser(
            name, help=summary, description=summary.capitalize() + ".", epilog=f"example: {module.EXAMPLE}"
        )
        module.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    code: int = _module(args.action).run(args)
    return code


def _module(action: str) -> ModuleType:
    module = ACTIONS[action]
    return loaded(module) if isinstance(module, str) else module
