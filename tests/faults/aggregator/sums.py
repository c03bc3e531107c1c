"""Reports by where they are, and the choice of uploads that explains them."""

from collections import Counter
from collections.abc import Sequence
from datetime import date

import numpy as np

from tests.faults.aggregator.uploads import Vector

Place = tuple[str, str, date | None]
"""A metric, the digest of its plan, and an epoch: None where only sums over all days are known."""
Sums = dict[Place, Vector]
Garbage = Counter[tuple[str, str, date | None, int, int, bytes]]
"""Groups that cannot be counted, as the log holds them."""


class Rest:
    """Reports by where they are: what is held less what is accounted for, or what one upload adds."""

    def __init__(self, by_day: bool) -> None:
        self._by_day = by_day
        self.sums: Sums = {}
        self.garbage: Garbage = Counter()

    def hold(self, sums: Sums, garbage: Garbage, sign: int = 1) -> None:
        """Add reports, or take them away."""
        for (metric, digest, epoch), vector in sums.items():
            add(self.sums, (metric, digest, epoch if self._by_day else None), sign * vector)
        for (metric, digest, epoch, cell, n, reports), number in garbage.items():
            self.garbage[metric, digest, epoch if self._by_day else None, cell, n, reports] += sign * number

    def covers(self, other: "Rest") -> bool:
        """Whether nothing is missing when the other's reports are taken away."""
        return all(
            (vector <= self.sums.get(place, np.zeros_like(vector))).all() for place, vector in other.sums.items()
        ) and all(number <= self.garbage[group] for group, number in other.garbage.items())

    def __str__(self) -> str:
        parts = []
        for (metric, digest, epoch), vector in self.sums.items():
            if vector.any():
                off = {int(place): int(vector[1 + place]) for place in np.flatnonzero(vector[1:])[:8]}
                parts.append(f"{metric}, plan {digest}, on {epoch}: {vector[0]:+d} reports, counts off by {off}")
        parts += [f"{group[0]} on {group[2]}: {number:+d} damaged" for group, number in self.garbage.items() if number]
        return "what is stored is not what was acknowledged: " + "; ".join(parts or ["nothing is off"])


def explains(rest: Rest, open_: Sequence[Sequence[Rest]], most: Sequence[Rest]) -> bool:
    """Whether the rest is the sum of one way for each open upload. `most` bounds what those from each on add."""
    if not open_:
        return not any(vector.any() for vector in rest.sums.values()) and not any(rest.garbage.values())
    if not most[0].covers(rest):
        return False
    for way in open_[0]:
        if rest.covers(way):
            rest.hold(way.sums, way.garbage, sign=-1)
            found = explains(rest, open_[1:], most[1:])
            rest.hold(way.sums, way.garbage)
            if found:
                return True
    return False


def most_of(open_: Sequence[Sequence[Rest]]) -> Rest:
    """Return more than any choice of ways can add."""
    total = Rest(by_day=True)
    for ways in open_:
        for way in ways:
            total.hold(way.sums, way.garbage)
    return total


def add(sums: Sums, place: Place, vector: Vector) -> None:
    sums[place] = sums[place] + vector if place in sums else vector
