"""Numbers: what a plan tells apart of them, by integers alone.

Edges are whole numbers of steps, with a power of ten of steps in one unit: 250 of 1000 is 0.25 s. Numbers come as a
numerator and a denominator, which is 0 for the two infinities, and are compared without rounding.

    buckets       which of the ranges between neighbouring edges holds it; the first and the last one are open
    range         where it lies between two edges, which cut it; coins round it to a grid
    thresholds    in which step between edges it lies, and where in it: a device compares it with one threshold
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from decimal import Decimal
from itertools import pairwise

from dither_shared.domains.domain import NONE, OTHER, Domain
from dither_shared.errors import InvalidParameter
from dither_shared.exact import digits
from dither_shared.frozen import frozen
from dither_shared.rng import COIN_BITS, SCALE, Rng

EDGE_MAX = 10**18
DECIMALS_MAX = 9
BUCKETS_MAX = 1_024
_CONTEXT = digits(80)
Placed = tuple[int, ...]
"""Finds the range that a number lies in."""


@frozen
class NumberDomain(Domain):
    """Numbers in a unit, told apart by edges."""

    edges: tuple[int, ...]
    """Strictly increasing, in steps."""
    decimals: int
    """A unit has 10^decimals steps."""
    unit: str

    edges_min = 2

    def __post_init__(self) -> None:
        edges = self.edges
        if not (isinstance(edges, tuple) and all(type(edge) is int and abs(edge) <= EDGE_MAX for edge in edges)):
            raise InvalidParameter(f"edges must be integers from {-EDGE_MAX} to {EDGE_MAX}")
        if not self.edges_min <= len(edges) < BUCKETS_MAX:
            raise InvalidParameter(f"there must be {self.edges_min} to {BUCKETS_MAX - 1} edges, got {len(edges)}")
        if any(upper <= lower for lower, upper in pairwise(edges)):
            raise InvalidParameter("edges must strictly increase")
        if not (type(self.decimals) is int and 0 <= self.decimals <= DECIMALS_MAX):
            raise InvalidParameter(f"decimals must be from 0 to {DECIMALS_MAX}, got {self.decimals}")
        if not isinstance(self.unit, str):
            raise InvalidParameter(f"the unit must be a text, got {type(self.unit).__name__}")

    def to_document(self) -> dict[str, object]:
        """Return the edges and their unit."""
        return {"domain": self.name, "edges": list(self.edges), "decimals": self.decimals, "unit": self.unit}

    def agreed(self, *, hidden: bool) -> object:
        """Return the edges and their unit: that coins round a number is no matter of consent, but how finely is."""
        return self.to_document()

    @property
    def size(self) -> int:
        """How many ranges are told apart."""
        return len(self.edges) - 1

    @property
    def summary(self) -> str:
        """How many ranges, and between which ends."""
        return f"{self.size} range{'s' * (self.size > 1)} of {self.between(self.edges[0], self.edges[-1])}"

    @abstractmethod
    def place(self, numerator: int, denominator: int) -> Placed:
        """Return where a number lies."""

    @abstractmethod
    def unread(self) -> Placed:
        """Return where something lies that is no number."""

    @abstractmethod
    def in_words(self, placed: Placed) -> str:
        """Return in words what a device says of a number that lies there."""

    def nothing(self) -> Placed:
        """Return where the answer of a device with nothing to report lies; InvalidParameter where there is no room."""
        raise InvalidParameter(f"{self.name} have no place for a device with nothing to report")

    # In words.

    def in_unit(self, edge: int) -> str:
        """Return an edge as a number of units, exactly."""
        text = f"{Decimal(edge).scaleb(-self.decimals, _CONTEXT):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    def with_unit(self, text: str) -> str:
        """Return a number, or two, with the unit."""
        return f"{text} {self.unit}" if self.unit else text

    def between(self, lower: int | None, upper: int | None) -> str:
        """Return a range of edges in words, `lower` included and `upper` not; one of them may be None, and open."""
        low, high = (None if edge is None else self.in_unit(edge) for edge in (lower, upper))
        if low is None:
            return f"below {self.with_unit(high or '')}"
        return self.with_unit(f"{low} to {high}") if high is not None else f"{self.with_unit(low)} or more"


@frozen
class Buckets(NumberDomain):
    """The ranges between edges, and two open ones: below the first edge, and from the last one."""

    name = "buckets"

    @property
    def size(self) -> int:
        """How many buckets there are."""
        return len(self.edges) + 1

    def ends(self, bucket: int) -> tuple[int | None, int | None]:
        """Return a bucket's edges; None where it is open."""
        return (
            self.edges[bucket - 1] if bucket > 0 else None,
            self.edges[bucket] if bucket < len(self.edges) else None,
        )

    def place(self, numerator: int, denominator: int) -> Placed:
        """Return its bucket."""
        if denominator == 0:
            return (self.size - 1 if numerator > 0 else 0,)
        return (bisect_right(self.edges, numerator * 10**self.decimals // denominator),)

    def unread(self) -> Placed:
        """Return a place beyond all buckets."""
        return (self.size,)

    def nothing(self) -> Placed:
        """Return the place after that."""
        return (self.size + 1,)

    def in_words(self, placed: Placed) -> str:
        """Return the bucket."""
        (bucket,) = placed
        return self.name_of(bucket)

    def name_of(self, bucket: int) -> str:
        """Return a bucket in words, or "other" and "none" of the places beyond."""
        if bucket >= self.size:
            return NONE if bucket > self.size else OTHER
        return self.between(*self.ends(bucket))


@frozen
class Range(NumberDomain):
    """Numbers cut to two edges, which coins round to a grid."""

    name = "range"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.edges) != 2:
            raise InvalidParameter(f"a range has two edges, got {len(self.edges)}")

    def place(self, numerator: int, denominator: int) -> Placed:
        """Return its part of the range, out of 2^64."""
        low, high = self.edges
        return (_part(numerator * 10**self.decimals, denominator, low, high),)

    def unread(self) -> Placed:
        """Return the lowest place: one of its own would tell who has no number."""
        return (0,)

    def in_words(self, placed: Placed) -> str:
        """Return the number, to six digits."""
        low, high = self.edges
        return self.with_unit(f"{(low + (high - low) * placed[0] / SCALE) / 10**self.decimals:.6g}")

    @staticmethod
    def round(placed: Placed, points: int, rng: Rng) -> int:
        """Return one of the two neighbours on a grid of so many points, so that the mean stays."""
        (part,) = placed
        below, rest = divmod(part * (points - 1), SCALE)
        return below + rng.coin(rest)


@frozen
class Thresholds(NumberDomain):
    """Numbers cut to the outermost edges, in steps between edges: one for each cohort of devices.

    A device of a step's cohort compares its numbers with one threshold within that step, which it draws once and tells
    nobody. All devices' thresholds are spread over the steps evenly, so P[a number in the step is above] is the part of
    the step that lies below it, and the mean stays (the one-bit mean of Ding, Kulkarni, Yekhanin 2017, section 2).
    """

    name = "thresholds"

    def place(self, numerator: int, denominator: int) -> Placed:
        """Return its step, and its part of the step out of 2^64."""
        if denominator == 0:
            return (self.size - 1, SCALE) if numerator > 0 else (0, 0)
        scaled = numerator * 10**self.decimals
        step = min(max(bisect_right(self.edges, scaled // denominator) - 1, 0), self.size - 1)
        return step, _part(scaled, denominator, *self.edges[step : step + 2])

    def unread(self) -> Placed:
        """Return the lowest place: one of its own would tell who has no number."""
        return 0, 0

    def in_words(self, placed: Placed) -> str:
        """Return the step."""
        return self.between(*self.edges[placed[0] : placed[0] + 2])

    @staticmethod
    def passes(placed: Placed, cohort: int, rng: Rng) -> bool:
        """Tell whether a number is above the threshold of a device of a cohort, which is what `rng` draws each time."""
        step, part = placed
        above = rng.coin(part)
        return above if step == cohort else step > cohort


def _part(numerator: int, denominator: int, low: int, high: int) -> int:
    """Return the part of the range from low to high below a number, which is cut to it, out of 2^64."""
    if denominator == 0:
        return SCALE if numerator > 0 else 0
    above = numerator - low * denominator
    return min(max((above << COIN_BITS) // ((high - low) * denominator), 0), SCALE)
