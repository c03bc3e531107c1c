"""Everything a device says, as a tree of events, and how much it can tell together.

    Outputs(micro, times)    independent outputs of one epsilon each, fixed before: reports under fresh noise, or
                             memoized answers, each with all of its reports
    Filter(micro, rho)       outputs whose epsilons are chosen after earlier ones were seen, as a filter admits them
    AllOf(parts)             all of them are of one device: losses add
    OneOf(parts)             a device is in one part only, whatever it answers: the largest loss counts

A memo enters with the epsilon of its permanent part, once for each different answer. Its reports are copies of that
part, so any number of them tells no more; r times the epsilon of a report would be too much for many of them, and too
little for a few (`dither_shared/mechanisms/memoized.py`).

Post-processing tells no more, with whatever else it uses that does not come from the answer: P <= e^e Q + delta on sets
of outputs holds on their images. The answers of k devices may change together, as those of a household do, and all that
each of them says is seen: `group` composes it, and at delta 0 it is e^{k epsilon}.
"""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from dither_shared.accounting.composition import of_zcdp, optimal
from dither_shared.errors import InvalidParameter
from dither_shared.exact import MICRO
from dither_shared.frozen import frozen

BASIC = "basic composition"
ZCDP = "zCDP, conversion by Canonne, Kamath, Steinke"
OPTIMAL = "optimal for equal ones, by Kairouz, Oh, Viswanath"
PARALLEL = "parallel composition"


@frozen
class Proven:
    """One proven bound: an epsilon, in micro-epsilon, at a delta."""

    micro: int
    delta: Decimal
    proof: str


class Event:
    """Something that a device says."""

    micro: int
    """The loss at delta 0, in micro-epsilon: it holds for every outcome."""
    rho: Fraction
    """The loss as zCDP."""
    equal: tuple[int, int] | None = None
    """(micro, times), where it is so many outputs of one epsilon, or no worse than these."""

    def bounds(self, delta: Decimal) -> list[Proven]:
        """Return every bound known at a delta of 1e-100 to 1/2, the best first."""
        found = [Proven(self.micro, Decimal(0), BASIC), Proven(of_zcdp(self.rho, delta), delta, ZCDP)]
        if self.equal:
            found.append(Proven(optimal(*self.equal, delta), delta, OPTIMAL))
        return sorted(found, key=lambda bound: (bound.micro, bound.delta))


@frozen
class Outputs(Event):
    """Independent outputs of equal epsilon: reports, or memoized answers with all their reports."""

    each: int
    """Micro-epsilon."""
    times: int

    def __post_init__(self) -> None:
        if self.each < 0 or self.times < 1:
            raise InvalidParameter(
                f"outputs must be 1 or more of 0 or more micro-epsilon, got {self.times} of {self.each}"
            )

    @property
    def micro(self) -> int:  # type: ignore[override]  # read-only, like every field
        """Their sum."""
        return self.each * self.times

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """Half the sum of their squares."""
        return self.times * rho_of(self.each)

    @property
    def equal(self) -> tuple[int, int]:  # type: ignore[override]
        """Themselves."""
        return self.each, self.times


@frozen
class AllOf(Event):
    """Events of one device. Their answers may be anything, and the same: no independence of answers is needed."""

    parts: tuple[Event, ...]

    @property
    def micro(self) -> int:  # type: ignore[override]
        """The sum."""
        return sum(part.micro for part in self.parts)

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """The sum."""
        return sum((part.rho for part in self.parts), Fraction(0))

    @property
    def equal(self) -> tuple[int, int] | None:  # type: ignore[override]
        """All outputs, if each has the same epsilon."""
        each = [part.equal for part in self.parts if part.equal]
        if len(each) < len(self.parts) or len({micro for micro, _ in each}) != 1:
            return None
        return each[0][0], sum(times for _, times in each)


@frozen
class OneOf(Event):
    """Events of disjoint devices: which part a device is in must not depend on its answers."""

    parts: tuple[Event, ...]

    @property
    def micro(self) -> int:  # type: ignore[override]
        """The largest."""
        return max(part.micro for part in self.parts)

    @property
    def rho(self) -> Fraction:  # type: ignore[override]
        """The largest."""
        return max(part.rho for part in self.parts)

    def bounds(self, delta: Decimal) -> list[Proven]:
        """Return the largest of the parts' best, whichever proof that has."""
        worst = max((part.bounds(delta)[0] for part in self.parts), key=lambda bound: bound.micro)
        return [Proven(worst.micro, delta, f"{PARALLEL}: {worst.proof}")]


@frozen
class Filter(Event):
    """Outputs whose epsilons are chosen as one goes, within budgets that were fixed beforehand.

    Their sum stays within `micro`, and half the sum of their squares within `rho`; with `rho_of(micro)` only the sum
    counts. Both bounds hold against whoever chooses by what they have seen: Rogers, Roth, Ullman, Vadhan 2016; Feldman,
    Zrnic 2021. A bound of the epsilons that turned out to be spent does not, however good it is.
    """

    micro: int
    rho: Fraction

    def admits(self, spent: Iterable[int], further: int) -> bool:
        """Tell whether one more output fits beside what was spent, in micro-epsilon. Ask before it is drawn."""
        each = [*spent, further]
        return sum(each) <= self.micro and sum(map(rho_of, each)) <= self.rho


def group(event: Event, devices: int) -> AllOf:
    """Return what so many devices say whose answers are the same: each has noise of its own."""
    return AllOf((event,) * devices)


def rho_of(micro: int) -> Fraction:
    """Return the zCDP of one output: epsilon^2 / 2, exactly."""
    return Fraction(micro * micro, 2 * MICRO * MICRO)
