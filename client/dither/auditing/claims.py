"""A claim: that no outcome tells any two inputs apart by more than a declared factor."""

from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from math import frexp
from typing import Any

from dither.auditing.exact import Paths
from dither.auditing.laws import Law, Likelier, Outcome, check_countable
from dither_shared.frozen import frozen
from dither_shared.rng import Rng

GRAINS = 1_075
"""Halvings until any float is whole."""

Categories = Iterable[tuple[Hashable, Hashable]]
"""An outcome seen in several ways: each way with what is seen."""


def seen(outcome: Any) -> Categories:
    """See an outcome as it is, by its type and length, and of a float the last place that it uses.

    Noise of floats betrays its input by the last place: sums lie on other grids than what is added.
    Raises ConfigurationError for one that cannot be counted, which only randomizers of others return.
    """
    check_countable(outcome)
    yield "outcome", outcome
    yield "type", type(outcome).__name__
    if isinstance(outcome, bytes | str | tuple | frozenset):
        yield "length", len(outcome)
    if isinstance(outcome, float):
        mantissa, exponent = frexp(outcome)
        yield "size", (outcome < 0, exponent)
        yield "last place", _last_place(mantissa, exponent)


def _last_place(mantissa: float, exponent: int) -> int:
    """Return the largest power of two that divides a float."""
    whole = int(mantissa * 2**53) if -1 < mantissa < 1 else 0
    return exponent - 53 + ((whole & -whole).bit_length() - 1) if whole else GRAINS


@frozen
class Input:
    """Something that an outcome is drawn of, with a name for people."""

    label: str
    value: Any


@frozen
class Foreseen:
    """An event that the exact laws give, for two inputs."""

    one: Input
    other: Input
    event: Likelier
    shows_nothing: bool = False
    """Whether the event is of what no answer may show in at all."""


@frozen
class Claim:
    """Outcomes tell any two of these inputs apart by `exp_epsilon` at most."""

    subject: str
    part: str
    exp_epsilon: Fraction
    inputs: tuple[Input, ...]
    draw: Callable[[Any, Rng], Outcome]
    exp_own: Fraction | None = None
    """The loss that the part's own integers declare, at most `exp_epsilon`: the exact law has to have just that."""
    law: Callable[[Any, Paths], Law] | None = None
    """Returns the exact law of an input; None where there is none to be had."""
    no_law: str = ""
    """Why there is none, where people should know."""
    foresee: Callable[[int, float], Foreseen | None] | None = None
    """Returns the event to test with so many samples at an error; None: the best one of the laws."""
    see: Callable[[Outcome], Categories] = seen
    shows_nothing: tuple[Hashable, ...] = ()
    """The ways of seeing an outcome that are the same under all inputs, at a loss of 0."""
    of_devices: bool = False
    """Whether each outcome takes a whole device: of these fewer are drawn."""


@frozen
class Repetition:
    """Something that tells of a device, and holds of one with this probability at most.

    Such as that two of its reports are the same: more would be no fresh noise.
    """

    subject: str
    part: str
    probability: Fraction
    draw: Callable[[Rng], int]
    """Returns of how many devices it holds."""
    at_once: int = 1
    """How many devices are drawn at once, and paired with each other."""
    worse: str = "noise comes again"
    """The verdict where it holds of more."""


@frozen
class Never:
    """Something that no life of a device shows. It is no matter of chance: one life that does is a finding."""

    subject: str
    part: str
    look: Callable[[Rng], str]
    """Returns what a new life shows, in words; "" for nothing."""
    takes: int
    """How many usual devices a life takes as long as."""
    least: int = 0
    """So many lives are looked at even where no devices are asked for."""
