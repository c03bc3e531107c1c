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
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import ceil, isfinite
from traceback import extract_tb
from typing import Any

from dither.auditing.claims import Claim, Input
from dither.auditing.laws import Law, Paths, check_countable, law_of, outcome_of, repeats
from dither_shared.errors import ConfigurationError
from dither_shared.exact import MICRO, exp_of_micro
from dither_shared.rng import SYSTEM

LABEL_MAX = 60
TRIES = 64
"""Times that an adapter has to repeat itself before its law is told exactly."""
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
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise ConfigurationError(f"the module {module_name} needs {error.name}, which is not installed") from None
        raise ConfigurationError(
            f"there is no module {module_name} here: run this where {module_name}.py is, or set PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"the module {module_name} cannot be imported: {_printed(error)}") from error
    if not hasattr(module, name):
        raise ConfigurationError(f"the module {module_name} has no {name}")
    adapter = getattr(module, name)
    if isinstance(adapter, type):
        try:
            adapter = adapter()
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"the adapter {name} cannot be made: {_printed(error)}") from error
    claim = claim_of(name, adapter)
    _try(name, adapter, claim)
    return claim


def _printed(error: BaseException) -> str:
    """Return an exception in words, with the last of its lines that is known: an author looks for it."""
    frames = extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _try(name: str, adapter: Any, claim: Claim) -> None:
    """Run an adapter a few times; raise ConfigurationError where an audit of it would tell nothing."""
    first = claim.inputs[0].value
    if all(_same(first, each.value) for each in claim.inputs):
        raise ConfigurationError(f"all inputs of the adapter {name} are equal: two that differ are compared")
    errors: list[BaseException] = []
    for each in claim.inputs:
        try:
            outcome = adapter.randomize(each.value, SYSTEM)
        except (Exception, SystemExit) as error:  # an outcome, too: an audit tells whether it depends on the input
            errors.append(error)
        else:
            check_countable(outcome)
    if len(errors) == len(claim.inputs):
        raise ConfigurationError(f"randomize of the adapter {name} raises for every input: {_printed(errors[0])}")
    if claim.law and not all(repeats(partial(adapter.randomize, each.value), TRIES) for each in claim.inputs):
        raise ConfigurationError(
            f"the adapter {name} says exact = True, and the same draws of rng give different outcomes: it keeps "
            "something between calls, or draws elsewhere. Leave exact out"
        )


def _same(one: object, other: object) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # as of arrays, which have no single answer
        return False


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
        law=_law(name, adapter) if getattr(adapter, "exact", False) else None,
        no_law="it is seen from outside; an adapter that draws by rng alone may say exact = True",
    )


def _law(name: str, adapter: Any) -> Callable[[Any, Paths], Law]:
    """Return what tells the exact law of an input.

    It raises ConfigurationError where an outcome that is really drawn is not among those of the law.
    """

    def law(value: Any, paths: Paths) -> Law:
        draw = partial(adapter.randomize, value)
        found = law_of(draw, paths)
        for _ in range(TRIES):
            outcome = outcome_of(draw, SYSTEM)
            check_countable(outcome)
            if not found.probability(outcome):
                raise ConfigurationError(
                    f"the adapter {name} says exact = True, and returns what its law does not have: it draws "
                    "elsewhere, or asks for a type. Leave exact out"
                )
        return found

    return law
