"""Any randomizer as a claim, by an adapter of three lines:

    class Mine:
        inputs, epsilon = ("yes", "no"), 1.0
        def randomize(self, value, rng): ...  # returns anything that can be hashed

`rng` draws from the system: `rng.coin(threshold)` out of 2^64, `rng.uniform(size)`, `rng.coins(threshold, count)`,
`rng.randbits(count)`. An adapter that says `exact = True` promises that it draws by the first three alone, and keeps
nothing between calls: then its law is told exactly. Others may use randomness of their own.
"""

import importlib
import sys
from decimal import Decimal
from math import ceil, isfinite
from typing import Any

from dither.auditing.claims import Claim, Input
from dither.auditing.exact import law_of
from dither_shared.errors import ConfigurationError
from dither_shared.exact import MICRO, exp_of_micro

LABEL_MAX = 60
EPSILON_MAX = 1_000
"""A larger loss is no promise, and e to it is too large a number."""


def load(place: str) -> Claim:
    """Return the claim of an adapter, given as MODULE:NAME; raise ConfigurationError for what is none."""
    module_name, colon, name = place.partition(":")
    if not (module_name and colon and name):
        raise ConfigurationError(f"an adapter is named as MODULE:NAME, such as mine:Mine, got {place!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the present directory
    try:
        adapter = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise ConfigurationError(f"the module {module_name} needs {error.name}, which is not installed") from None
        raise ConfigurationError(
            f"there is no module {module_name} here: run this where {module_name}.py is, or set PYTHONPATH"
        ) from None
    except AttributeError:
        raise ConfigurationError(f"the module {module_name} has no {name}") from None
    return claim_of(name, adapter() if isinstance(adapter, type) else adapter)


def claim_of(name: str, adapter: Any) -> Claim:
    """Return the claim of an adapter; raise ConfigurationError where something lacks."""
    for attribute in ("inputs", "epsilon", "randomize"):
        if not hasattr(adapter, attribute):
            raise ConfigurationError(f"the adapter {name} needs {attribute}: it has inputs, epsilon and randomize")
    try:
        inputs = tuple(adapter.inputs)
    except TypeError:
        raise ConfigurationError(f"inputs of the adapter {name} must be a tuple, got {adapter.inputs!r}") from None
    if len(inputs) < 2:
        raise ConfigurationError(f"the adapter {name} needs two inputs or more, got {len(inputs)}")
    try:
        epsilon = Decimal(str(adapter.epsilon))
    except ArithmeticError:
        raise ConfigurationError(f"epsilon of the adapter {name} must be a number, got {adapter.epsilon!r}") from None
    if not (isfinite(epsilon) and 0 <= epsilon <= EPSILON_MAX):
        raise ConfigurationError(
            f"epsilon of the adapter {name} must be a number from 0 to {EPSILON_MAX}, got {epsilon}"
        )
    return Claim(
        name,
        "outcome",
        exp_of_micro(ceil(epsilon * MICRO)),
        tuple(Input(f"{str(value)[:LABEL_MAX]} ({place})", value) for place, value in enumerate(inputs)),
        adapter.randomize,
        law=_law(adapter) if getattr(adapter, "exact", False) else None,
        no_law="it is seen from outside; an adapter that draws by rng alone may say exact = True",
    )


def _law(adapter: Any) -> Any:
    return lambda value, paths: law_of(lambda rng: adapter.randomize(value, rng), paths)
