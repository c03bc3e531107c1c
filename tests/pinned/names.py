"""Names that others write down: of the package, commands and their options, settings, the API, and what monitors read.

Within a series of releases names may come, and none may go: `shared/stability.md` says how one leaves.
"""

import argparse
import importlib
import inspect
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import dither
import dither.testing
from dither.cli import COMMANDS
from dither_aggregator.arguments.settings import FILE_VARIABLE, OF_DEVICES, SETTINGS
from dither_aggregator.web.reader_process import reading_app
from dither_shared.registry import Registry
from tests.support.aggregators import sqlite_store

ROOT = Path(__file__).parents[2]
REGISTRY = ROOT / "client" / "examples" / "flask_app" / "metrics.toml"


def pinned() -> dict[str, Any]:
    """Return the names of today, each list in order."""
    return {
        "python": {module.__name__: members(module) for module in (dither, dither.testing)},
        "commands": {name: options(module) for name, (module, _) in sorted(COMMANDS.items())},
        "variables": sorted({setting.variable for setting in SETTINGS.values()} | {FILE_VARIABLE, *OF_DEVICES}),
        "api": operations(),
        # Another test holds this page against what a server answers.
        "monitors": sorted(set(re.findall(r"\bdither_\w+", (ROOT / "aggregator" / "health.md").read_text("utf-8")))),
    }


def gone(pinned: Any, today: Any, place: str = "") -> list[str]:
    """Return the pinned names that are no more."""
    if isinstance(pinned, dict):
        return [
            each
            for name, inner in pinned.items()
            for each in ([f"{place}/{name}"] if name not in today else gone(inner, today[name], f"{place}/{name}"))
        ]
    return [f"{place}/{name}" for name in pinned if name not in today]


def members(module: ModuleType) -> dict[str, list[str]]:
    """Return what a module gives away: of a class its public members, of a function its parameters."""
    given = {name: getattr(module, name) for name in sorted(module.__all__)}
    return {
        name: attributes(one) if inspect.isclass(one) else list(inspect.signature(one).parameters)
        for name, one in given.items()
    }


def attributes(cls: type) -> list[str]:
    """Return a class's public methods and fields, without those that every exception or tuple has."""
    fields = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    ours = {name for base in cls.__mro__ if base.__module__ != "builtins" for name in vars(base)}
    return sorted(name for name in fields | ours if not name.startswith("_"))


def options(module: str) -> list[str]:
    """Return a command's options and subcommands: `list`, `list --json`."""
    parser = argparse.ArgumentParser()
    importlib.import_module(module).add_arguments(parser)
    return sorted(said(parser, ""))


def said(parser: argparse.ArgumentParser, before: str) -> set[str]:
    """Return what may be said to a parser, each with the subcommands that come before it."""
    found: set[str] = set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found |= {before + name} | said(inner, f"{before}{name} ")
        found |= {before + option for option in action.option_strings if option.startswith("--")}
    return found - {before + "--help"}


def operations() -> dict[str, list[str]]:
    """Return what the API answers, and of each the parameters that it takes."""
    with tempfile.TemporaryDirectory() as directory, sqlite_store(Registry.load(REGISTRY), Path(directory)) as store:
        described = reading_app(store).test_client().get("/openapi.json").get_json()
    return {
        f"{method.upper()} {path}": sorted({one["name"] for one in operation.get("parameters", ()) if "name" in one})
        for path, item in sorted(described["paths"].items())
        for method, operation in item.items()
        if method != "parameters"
    }
