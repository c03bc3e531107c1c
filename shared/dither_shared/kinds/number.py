"""A number: how long, how large, how many; of one report a device come mean, quantiles and the shape of all."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from itertools import pairwise
from operator import index

from dither_shared.domains.number_ranges import DECIMALS_MAX, EDGE_MAX, Buckets, NumberDomain, Placed, Range, Thresholds
from dither_shared.exact import digits
from dither_shared.kinds.kind import (
    FRESH_ONLY,
    MEMOIZED_ONLY,
    Asked,
    Kind,
    Offer,
    read_epsilon,
    read_memoize,
    read_permanent,
)
from dither_shared.light_typing import TYPE_CHECKING, Any
from dither_shared.mechanisms import DEVICE, GRR, Cells, MemoizedTwoLevel, Part, PureMechanism, SquareWave, one_cell
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

# The keys of a metric's table that say where the edges of its ranges lie.

BUCKETS_MAX = 256
"""The shape of more buckets takes seconds to compute: a logarithmic scale needs fewer."""
EDGES_MIN = 2
FINE = 8
"""Steps in the narrowest range: with fewer, edges that are rounded to whole steps would make uneven ranges."""
_CONTEXT = digits(80)
_NEAR = Decimal("1e-40")
"""A power that should be a whole number, to 80 digits, lies within this of it."""


def read_ends(table: TomlTable) -> tuple[tuple[int, ...], int]:
    """Return low and high, in steps, and the decimals of a unit."""
    for key in ("edges", "buckets", "scale"):
        if table.has(key):
            raise table.error(key, "must be left out where only the mean is asked: low and high are all it needs")
    return _made(table, buckets=1, scale="linear")


def read_edges(table: TomlTable, buckets: int | None = None) -> tuple[tuple[int, ...], int]:
    """Return the edges, in steps, and the decimals of a unit; `buckets` is the default of that key."""
    if not table.has("edges"):
        number = table.integer("buckets", 2, BUCKETS_MAX, default=buckets)
        return _made(table, number, table.one_of("scale", ("linear", "log"), default="linear"))
    for key in ("low", "high", "buckets", "scale"):
        if table.has(key):
            raise table.error(key, "must be left out where edges are listed")
    edges = table.integers("edges", EDGES_MIN, BUCKETS_MAX - 1, EDGE_MAX)
    if any(upper <= lower for lower, upper in pairwise(edges)):
        raise table.error("edges", "must strictly increase")
    return edges, table.integer("decimals", 0, DECIMALS_MAX, default=0)


def _made(table: TomlTable, buckets: int, scale: str) -> tuple[tuple[int, ...], int]:
    """Return edges between low and high, with the fewest decimals that place them well unless these are given."""
    low, high = (table.decimal(key, EDGE_MAX, DECIMALS_MAX) for key in ("low", "high"))
    if high <= low:
        raise table.error("high", f"must be above low, {low}, got {high}")
    if scale == "log" and low <= 0:
        raise table.error("low", f"must be above 0 on a logarithmic scale, got {low}")
    given = table.integer("decimals", 0, DECIMALS_MAX) if table.has("decimals") else None
    coarse = None
    for decimals in range(DECIMALS_MAX + 1) if given is None else (given,):
        ends = [end.scaleb(decimals, _CONTEXT) for end in (low, high)]
        if all(-EDGE_MAX <= end <= EDGE_MAX for end in ends) and all(end == int(end) for end in ends):
            edges = _between(int(ends[0]), int(ends[1]), buckets, scale)
            least = min(upper - lower for lower, upper in pairwise(edges))
            if least >= FINE or (least > 0 and _exact(edges, buckets, scale)):
                return edges, decimals
            coarse = (edges, decimals) if least > 0 else coarse
    if coarse is not None:  # as given, or as fine as can be
        return coarse
    ranges = f"{buckets} ranges" if buckets > 1 else "a range"
    if given is not None:
        raise table.error("decimals", f"must be enough to make {ranges} of {low} to {high}, got {given}")
    limits = f"with at most {DECIMALS_MAX} decimals and 18 digits"
    raise table.error("low", f"and high must leave room for {ranges} {limits}, got {low} and {high}")


def _exact(edges: tuple[int, ...], buckets: int, scale: str) -> bool:
    """Tell whether edges lie where they should: one decimal more would move none."""
    return _between(10 * edges[0], 10 * edges[-1], buckets, scale) == tuple(10 * edge for edge in edges)


def _between(low: int, high: int, buckets: int, scale: str) -> tuple[int, ...]:
    """Return the two ends and what lies between, evenly spread or in even ratios, rounded up to whole steps."""
    if scale == "linear":
        return tuple(low - (low - high) * place // buckets for place in range(buckets + 1))
    ratio = _CONTEXT.divide(Decimal(high), Decimal(low)).ln(_CONTEXT)
    return low, *(_power(low, ratio, place, buckets) for place in range(1, buckets)), high


def _power(low: int, ratio: Decimal, place: int, buckets: int) -> int:
    """Return low e^(ratio place / buckets), rounded up; one that is whole but for the last digits stays that."""
    exponent = _CONTEXT.divide(_CONTEXT.multiply(ratio, place), buckets)
    power = _CONTEXT.multiply(exponent.exp(_CONTEXT), low)
    rounded = power.quantize(_NEAR, ROUND_HALF_EVEN, _CONTEXT)
    return int(rounded.to_integral_value(ROUND_CEILING, _CONTEXT))


# A number: how long, how large, how many; of one report a device come mean, quantiles and the shape of all.
#
# Which cells a plan has depends on what is asked:
#
#     mean, quantiles, shape    two cells that each report draws: a window over the buckets, and points of the same
#                               buckets (PGR or GRR), both at the full epsilon. The window tells most of sums of
#                               neighbours, and so of the mean; the points of single buckets, such as a peak at zero.
#                               Together their error is near the least of either (mechanisms.md)
#     mean                      one window, wider, over a grid to which coins round the number
#     memoized                  a cohort for each step between edges: the device says whether its number is above a
#                               threshold within that step, as a flag in two stages


MEAN, ALL = ("mean",), ("mean", "quantiles", "shape")
WINDOW_WEIGHT, POINTS_WEIGHT = 2, 1
"""Two of three reports are windows: against halves that lowers the error of the shape by 2 to 13 %, and raises that of
a single range by 10 to 26 %, which at a peak is still a fifth of that of windows alone, at epsilon 1 and 2."""
COHORTS_MAX = 16
"""Cohorts are lasting, and sent in the clear: with more of them devices could be told apart (mechanisms.md)."""
MEMO_ANSWERS = 2
"""Above its threshold or below: whatever happens to the number, a device has no third answer."""
GRID = 65
"""The points that a number is rounded to where only the mean is asked."""
_REACHES = tuple(
    (Decimal(most), reach)
    for most, reach in (
        ("1.9", 32),
        ("3.3", 16),
        ("4.7", 10),
        ("5.7", 7),
        ("6.6", 5),
        ("7.9", 3),
        ("9.1", 2),
        ("11.4", 1),
    )
)
"""Up to each epsilon, the reach with the least variance where that is largest on the grid, to within 6 %."""


class NumberKind(Kind[NumberDomain, Placed]):
    """A number in a unit. It takes what is equal to a fraction, or infinite; no truth, no text, no NaN."""

    name = "number"
    meaning = "for how long, how large or how many"
    aliases = ("int", "integer", "float", "counter", "quantity", "histogram", "timing", "timespan", "duration")
    starter = 'question = "How long does it take?"\nunit = "ms"\nlow = 1\nhigh = 10000\nbuckets = 32\nscale = "log"'
    web_type = "number | bigint"
    published = True
    estimand = "numbers"
    rounds = True

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read the unit, the edges or what makes them, and what is asked."""
        unit = table.text("unit", 20)
        epsilon, memoize = read_epsilon(table), read_memoize(table)
        for key, reason in (FRESH_ONLY if memoize else MEMOIZED_ONLY).items():
            if table.has(key):
                raise table.error(key, reason)
        mean_alone = _asks_mean_alone(table)
        if hidden and (memoize or mean_alone):
            what = "memoized" if memoize else "asked for its mean alone"
            raise table.error("presence", f'must be "public" for a number that is {what}: it has no room for "none"')
        if memoize:
            return self._memoized(table, unit, epsilon, mean_alone=mean_alone)
        domain = Range(*read_ends(table), unit) if mean_alone else Buckets(*read_edges(table), unit)
        return Asked(domain, self.cells_for(domain, epsilon, hidden=hidden))

    def _memoized(self, table: TomlTable, unit: str, epsilon: Decimal, *, mean_alone: bool) -> Asked:
        if mean_alone:
            raise table.error("asks", "must be left out where a number is memoized: its one bit shows all there is")
        permanent = read_permanent(table, epsilon)
        answers = table.integer("answers", MEMO_ANSWERS, MEMO_ANSWERS, default=MEMO_ANSWERS)
        domain = Thresholds(*read_edges(table, buckets=COHORTS_MAX), unit)
        if not 2 <= domain.size <= COHORTS_MAX or domain.size.bit_count() > 1:
            key = "edges" if table.has("edges") else "buckets"
            raise table.error(key, f"must make 2, 4, 8 or {COHORTS_MAX} ranges, a cohort each, got {domain.size}")
        return Asked(domain, self.cells_for(domain, epsilon, permanent), answers=answers)

    @staticmethod
    def cells_for(
        domain: NumberDomain, epsilon: Decimal, permanent: Decimal | None = None, *, hidden: bool = False
    ) -> Cells:
        """Return the cells of a number: of fresh reports, or of memoized answers of epsilon `permanent`."""
        if isinstance(domain, Range):
            return one_cell(mean_window(epsilon))
        if permanent is not None:
            bit = MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(2, permanent), epsilon)
            return Cells((Part(bit, domain.size),), DEVICE)
        window = SquareWave.for_epsilon(domain.size, epsilon)
        points = choose_points(domain.size + 1 + hidden, epsilon)
        return Cells((Part(window, weight=WINDOW_WEIGHT), Part(points, weight=POINTS_WEIGHT)))

    def takes(self, answer: object, domain: NumberDomain) -> bool:
        """Tell whether it is a number."""
        return ratio_of(answer) is not None

    def read(self, answer: object, domain: NumberDomain) -> Placed:
        """Return where the number lies, or the place of what is none."""
        ratio = ratio_of(answer)
        return domain.unread() if ratio is None else domain.place(*ratio)

    def misread(self, domain: NumberDomain) -> str:
        """Say where it has no place of its own."""
        if isinstance(domain, Buckets):
            return ""
        return f"takes a number: anything else is sent as {domain.with_unit(domain.in_unit(domain.edges[0]))}"

    def unreadable(self, domain: NumberDomain) -> Placed:
        """Return the place of what is no number."""
        return domain.unread()

    def nothing(self, domain: NumberDomain) -> Placed:
        """Return the place of "none"."""
        return domain.nothing()

    def names(self, read: Placed, domain: NumberDomain) -> tuple[str, ...]:
        """Return the bucket, or the number as it was cut."""
        return (domain.in_words(read),)

    def class_of(self, read: Placed, domain: NumberDomain, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the bucket, the point of the grid that coins choose, or whether it is above the cohort's threshold."""
        own = cells.mechanism_of(cell)
        mechanism = own if isinstance(own, SquareWave) else PureMechanism.of(own)
        if cells.lasting:
            return mechanism.class_of([Thresholds.passes(read, cell, rng)])
        if not cells.several:
            return mechanism.class_of([Range.round(read, mechanism.d, rng)])
        return mechanism.class_of(read)

    def offer(self, asked: Asked) -> Offer:
        """Return how finely the number is told."""
        domain = NumberDomain.of(asked.domain)
        ends = [domain.with_unit(domain.in_unit(edge)) for edge in (domain.edges[0], domain.edges[-1])]
        if isinstance(domain, Buckets):
            ranges = f"sent as one of {domain.size} ranges, from below {ends[0]} to {ends[1]} or more"
            return Offer((f"A number: it is {ranges}.", "Anything else is sent as “other”."))
        cut = f"A number, cut to {ends[0]} at least and {ends[1]} at most."
        if isinstance(domain, Range):
            return Offer((cut, f"Coins round it to one of {GRID} steps."))
        return Offer((cut, "All that is sent is whether it is above a threshold that your device drew."))

    def examples(self, asked: Asked) -> list[object]:
        """Return numbers beyond either end, the ends, and one in each range."""
        return number_examples(NumberDomain.of(asked.domain))


def number_examples(domain: NumberDomain) -> list[object]:
    """Return numbers beyond either end of a domain, the ends, and the middle of each range."""
    edges = [Fraction(edge, 10**domain.decimals) for edge in domain.edges]
    width = edges[-1] - edges[0]
    middles = ((lower + upper) / 2 for lower, upper in pairwise(edges))
    return [edges[0] - width, edges[-1] + width, edges[0], edges[-1], *middles]


def mean_window(epsilon: Decimal) -> SquareWave:
    """Return the window for the mean alone."""
    reach = next((reach for most, reach in _REACHES if epsilon < most), 0)
    return SquareWave.for_reach(GRID, reach, epsilon)


def choose_points(d: int, epsilon: Decimal) -> PureMechanism:
    """Return the better one of two mechanisms whose reports are symbols: a tally keeps all that these tell."""
    from dither_shared.mechanisms import choose  # not for a registry that is compiled

    return min((choose(d, epsilon, name=name) for name in ("pgr", "grr")), key=lambda design: design.average_variance)


def ratio_of(answer: object) -> tuple[int, int] | None:
    """Return a number as a numerator and a denominator, 0 for an infinity; None for what is no number.

    Never as large as what a decimal's exponent may say: a number beyond 10^60 is cut to that.
    """
    if isinstance(answer, bool) or type(answer).__name__ in ("bool_", "bool"):
        return None
    if isinstance(answer, Decimal):
        return _ratio_of_decimal(answer)
    number: Any = answer  # of whatever class: its methods tell
    try:
        if hasattr(type(number), "as_integer_ratio"):
            numerator, denominator = number.as_integer_ratio()
            return index(numerator), index(denominator)
        if hasattr(type(number), "__index__"):
            return index(number), 1
    except OverflowError:
        return (1, 0) if number > 0 else (-1, 0)
    except ValueError:
        return None
    return None


_DIGITS_MAX = 60


def _ratio_of_decimal(answer: Decimal) -> tuple[int, int] | None:
    if answer.is_nan():
        return None
    sign = -1 if answer.is_signed() else 1
    if answer.is_zero():  # with any exponent
        return 0, 1
    if answer.is_infinite() or answer.adjusted() > _DIGITS_MAX:
        return sign, 0
    if answer.adjusted() < -_DIGITS_MAX:
        return (0 if sign > 0 else -1), 10**_DIGITS_MAX
    return answer.as_integer_ratio()


def _asks_mean_alone(table: TomlTable) -> bool:
    if not table.has("asks"):
        return False
    asks = table.texts("asks", len(ALL), max(map(len, ALL)))
    if sorted(asks) not in (sorted(MEAN), sorted(ALL)):
        raise table.error("asks", f"must be {list(ALL)}, which is the default, or {list(MEAN)}, got {list(asks)}")
    return len(asks) == len(MEAN)
