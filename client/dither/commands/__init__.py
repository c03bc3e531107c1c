"""The commands for an app's registry and its devices' files; all others come with the aggregator's package."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType
from typing import Any

from dither_shared.errors import ConfigurationError

INSTALLS = "dither_aggregator.arguments.installs"
INSTALLS_OPTIONS = ("installs", "on", "stay", "smallest")


def loaded(module_name: str) -> ModuleType:
    """Return the module of a command, an action or an option, which may be of the aggregator's package."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in {"dither_aggregator", module_name}:
            raise
    raise ConfigurationError("this comes with the aggregator: pip install dither-aggregator")


def add_installs(parser: argparse.ArgumentParser) -> None:
    """Describe `--installs`, or say where it comes from."""
    try:
        loaded(INSTALLS).add_arguments(parser)
    except ConfigurationError as error:
        missing = str(error)

        def refuse(_: str) -> None:
            raise argparse.ArgumentTypeError(missing)

        for option in INSTALLS_OPTIONS:
            parser.add_argument(f"--{option}", metavar="N", type=refuse, help=missing)


def installs_of(args: argparse.Namespace) -> Any:
    """Return the installs that are asked for, which show what their reports tell; None where none are."""
    if all(getattr(args, option) is None for option in INSTALLS_OPTIONS):
        return None
    return loaded(INSTALLS).asked(args)
