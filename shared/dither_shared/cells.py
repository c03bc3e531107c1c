"""Cells: the public part of a report, fixed before the answer is looked at and sent in the clear.

A plan with one cell says nothing of it. With several, each report names its cell: RAPPOR's cohort, the part of a
mixture, the row of a sketch, the columns that are told. Cells may have mechanisms and reports of different shapes, and
unequal shares of the reports. Every cell accepts every answer, and who draws it looks at none:

    device    one number below 128 that a device draws once and keeps for all its metrics: it takes the low bits
    report    each report draws its own, with a uniform integer below the sum of the weights

The app may set one public value beside what is drawn, such as the arm of an experiment: then all of this comes once for
each such value, those of the first value first.

A cell tells nothing of the answer, so the privacy loss of a report is that of its cell's mechanism, and the epsilon of
a plan is the largest of them. A tally has, cell after cell, the number of the cell's reports and then their counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.light_typing import Any
from dither_shared.mechanisms import Mechanism, from_document
from dither_shared.rng import Rng

DEVICE, REPORT = "device", "report"
DEVICE_CELLS_MAX = 128
"""A device draws one number below this for all of its metrics: several would be an identifier."""
CELLS_MAX = 65_536
WEIGHT_MAX = 1 << 32
PUBLIC_MAX = 16
"""Public values that an app sets: more would tell devices apart."""
TALLY_SIZE_MAX = 1 << 25
"""A tally is added up in memory: 256 MiB of it."""


@frozen
class Part:
    """Cells that are alike: `cells` of them, each with this mechanism and this weight."""

    mechanism: Mechanism
    cells: int = 1
    weight: int = 1
    """A cell's share of the reports is its weight over the sum of all cells' weights."""

    def __post_init__(self) -> None:
        if not (type(self.cells) is int and 1 <= self.cells <= CELLS_MAX):
            raise InvalidParameter(f"a part must have 1 to {CELLS_MAX} cells, got {self.cells}")
        if not (type(self.weight) is int and 1 <= self.weight <= WEIGHT_MAX):
            raise InvalidParameter(f"a weight must be from 1 to 2^32, got {self.weight}")

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {**self.mechanism.to_document(), "cells": self.cells, "weight": self.weight}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Part:
        """Make the part of a stored document."""
        return cls(from_document(document), document["cells"], document["weight"])


@frozen
class Cells:
    """The cells of a plan, numbered from 0, part after part."""

    parts: tuple[Part, ...]
    drawn: str = REPORT
    """By whom: DEVICE, once for good, or REPORT, anew each time."""
    public: int = 1
    """How many public values the app may set: the parts come once for each."""

    def __post_init__(self) -> None:
        if not (type(self.public) is int and 1 <= self.public <= PUBLIC_MAX):
            raise InvalidParameter(f"there must be 1 to {PUBLIC_MAX} public values, got {self.public}")
        if self.public > 1 and self.drawn == DEVICE:
            raise InvalidParameter("a public value goes beside cells that each report draws, not a device's own")
        if not 1 <= self.count <= CELLS_MAX:
            raise InvalidParameter(f"a plan must have 1 to {CELLS_MAX} cells, got {self.count}")
        if self.tally_size > TALLY_SIZE_MAX:
            raise InvalidParameter(f"a tally must have at most {TALLY_SIZE_MAX} entries, got {self.tally_size}")
        if self.drawn not in (DEVICE, REPORT):
            raise InvalidParameter(f"cells must be drawn by the {DEVICE} or the {REPORT}, got {self.drawn!r}")
        if self.drawn == DEVICE and not self._equally_likely:
            raise InvalidParameter(f"a device's cells must be alike, and 1, 2, 4 .. {DEVICE_CELLS_MAX} of them")
        if any(part.mechanism.memoized != self.memoized for part in self.parts):
            raise InvalidParameter("either all cells must be memoized or none")
        # In each of its cells an answer has a memo of its own: with a new cell it would be paid for again.
        if self.several and self.memoized and self.drawn == REPORT:
            raise InvalidParameter("memoized answers need cells of the device's own, got cells that each report draws")

    @cached_property
    def count(self) -> int:
        """How many cells there are."""
        return self.public * self.each

    @cached_property
    def each(self) -> int:
        """How many cells each public value has."""
        return sum(part.cells for part in self.parts)

    @property
    def _equally_likely(self) -> bool:
        """Whether the low bits of a device's number name each cell equally often."""
        return len(self.parts) == 1 and self.count <= DEVICE_CELLS_MAX and self.count.bit_count() == 1

    @cached_property
    def several(self) -> bool:
        """Whether a report names its cell."""
        return self.count > 1

    @cached_property
    def lasting(self) -> int:
        """How many cells a device's lasting number tells apart in the clear; 0 where none."""
        return self.count if self.drawn == DEVICE and self.several else 0

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of cells that all have the same one; raises TypeError for others."""
        if len(self.parts) > 1:
            raise TypeError("the cells have several mechanisms")
        return self.parts[0].mechanism

    def mechanism_of(self, cell: int) -> Mechanism:
        """Return a cell's mechanism."""
        if not 0 <= cell < self.count:
            raise IndexError("there is no such cell")
        if len(self.parts) == 1:
            return self.parts[0].mechanism
        return self._part_of(lambda part: part.cells, cell % self.each)[0].mechanism

    # Drawing.

    def of_device(self, number: int) -> int:
        """Return the cell of a device that has drawn this number, below 128."""
        return number & (self.count - 1)

    def draw(self, rng: Rng, public: int = 0) -> int:
        """Return the cell of a fresh report of a device with this public value."""
        return public * self.each + self._draw(rng)

    def _draw(self, rng: Rng) -> int:
        if self.each == 1:
            return 0
        ticket = rng.uniform(sum(part.cells * part.weight for part in self.parts))
        part, before, rest = self._part_of(lambda part: part.cells * part.weight, ticket)
        return before + rest // part.weight

    def _part_of(self, size: Callable[[Part], int], place: int) -> tuple[Part, int, int]:
        """Return the part that holds a place, the cells before it, and the place within, where parts have a size."""
        before = 0
        for part in self.parts:
            if place < size(part):
                break
            place -= size(part)
            before += part.cells
        return part, before, place

    # All cells together.

    @property
    def name(self) -> str:
        """The mechanisms' names, each once."""
        return " and ".join(dict.fromkeys(part.mechanism.name for part in self.parts))

    def parameters(self) -> dict[str, int]:
        """Return the integers of the mechanism; where there are several, with the part's number before each.

        An integer of a mechanism whose name is one of the part's own has the mechanism's name before it.
        """
        if len(self.parts) == 1:
            return self.mechanism.parameters()
        integers: dict[str, int] = {}
        for place, part in enumerate(self.parts, 1):
            own = {"cells": part.cells, "weight": part.weight}
            integers |= {f"{place}.{name}": value for name, value in own.items()}
            for name, value in part.mechanism.parameters().items():
                integers[f"{place}.{part.mechanism.name}.{name}" if name in own else f"{place}.{name}"] = value
        return integers

    @cached_property
    def memoized(self) -> bool:
        """Whether a repeated answer repeats its noise."""
        return self.parts[0].mechanism.memoized

    @cached_property
    def exp_epsilon(self) -> Fraction:
        """e^epsilon of one report, exactly: the largest of its cells'."""
        return max(part.mechanism.exp_epsilon for part in self.parts)

    @cached_property
    def charge(self) -> int:
        """The most that one report costs, in micro-epsilon."""
        return max(part.mechanism.charge for part in self.parts)

    @cached_property
    def first_charge(self) -> int:
        """The most that an answer costs with all reports of its first stage, in micro-epsilon."""
        return max(part.mechanism.first_stage.charge for part in self.parts)

    @cached_property
    def report_bits(self) -> int:
        """The bits of the longest report, before any encoding."""
        return max(part.mechanism.shape.bits for part in self.parts)

    @cached_property
    def tally_size(self) -> int:
        """The entries of a tally: for each cell one for n, and its counts."""
        return self.public * sum(part.cells * (1 + part.mechanism.shape.size) for part in self.parts)

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make these again."""
        public = {"public": self.public} if self.public > 1 else {}
        return {"drawn": self.drawn, "parts": [part.to_document() for part in self.parts], **public}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Cells:
        """Make the cells of a stored document."""
        return cls(
            tuple(Part.from_document(part) for part in document["parts"]), document["drawn"], document.get("public", 1)
        )


def one_cell(mechanism: Mechanism) -> Cells:
    """Return the cells of a plan that has only one."""
    return Cells((Part(mechanism),))
