"""The commands that need no aggregator; `audit`, `attack` and scenarios come with its package all the same."""

import importlib
from types import ModuleType

from dither_shared.errors import ConfigurationError


def loaded(module_name: str) -> ModuleType:
    """Return the module of a command or an action, which may be of the aggregator's package."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in {"dither_aggregator", module_name}:
            raise
    raise ConfigurationError("this comes with the aggregator: pip install dither-aggregator")
