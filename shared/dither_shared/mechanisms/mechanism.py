"""The interface of a mechanism, whatever its reports mean: integers, an exact epsilon, a randomizer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Self

from dither_shared.errors import InvalidParameter
from dither_shared.exact import micro_epsilon
from dither_shared.mechanisms.equiprobable import SymbolLaw
from dither_shared.rng import Rng
from dither_shared.shapes import ReportShape


class Mechanism(ABC):
    """A randomizer, fixed by integers, with its exact epsilon. Subclasses are frozen."""

    name: str
    memoized = False
    """Whether the first stage draws the noise of one answer once, and each report repeats it with noise of its own."""

    @classmethod
    def of(cls, mechanism: "Mechanism") -> Self:
        """Return a mechanism that is one of this class; raise TypeError for any other."""
        if not isinstance(mechanism, cls):
            raise TypeError(f"the mechanism must be a {cls.__name__}, got {mechanism.name}")
        return mechanism

    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """Return all the integers that fix the mechanism."""

    def to_document(self) -> dict[str, object]:
        """Return the name and the integers. The integers that a memo depends on stand apart."""
        memo = self.memo_parameters()
        rest = {name: integer for name, integer in self.parameters().items() if name not in memo}
        return {"mechanism": self.name, "parameters": rest, **({"memo": memo} if self.memoized else {})}

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> "Mechanism":
        """Make the mechanism of a document's integers; `memo` is None for fresh noise."""
        if memo is not None:
            raise InvalidParameter(f"{cls.name} is not memoized")
        return cls(**parameters)

    @property
    @abstractmethod
    def exp_epsilon(self) -> Fraction:
        """e^epsilon: the largest ratio of the probabilities of one report under two answers, exactly."""

    @property
    def first_stage(self) -> "Mechanism":
        """The part that sees the answer: the whole mechanism, or the permanent part of a memoized one."""
        return self

    def memo_parameters(self) -> dict[str, int]:
        """Return the integers that a memo depends on; none where nothing is memoized."""
        return {}

    def memo_law(self) -> SymbolLaw:
        """Return the law of the permanent symbol of one answer; nothing where nothing is memoized.

        If answers have different laws, it is that of an answer whose memo tells a device most from others.
        """
        return ()

    @property
    @abstractmethod
    def shape(self) -> ReportShape:
        """The set of possible reports."""

    @abstractmethod
    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a report for an answer, given by its class."""

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return a report out of what the first stage drew: that itself, unless it is memoized."""
        return memo

    @cached_property
    def charge(self) -> int:
        """The cost of one report, in micro-epsilon: epsilon rounded up."""
        return micro_epsilon(self.exp_epsilon)
