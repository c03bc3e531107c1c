"""The keys of a metric's table that say where the edges of a number's ranges lie.

Edges are whole numbers of steps, 10^decimals a unit. They are listed, or made of two ends by exact arithmetic, so that
every machine makes the same.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from itertools import pairwise

from dither_shared.domains.number_ranges import DECIMALS_MAX, EDGE_MAX
from dither_shared.exact import digits
from dither_shared.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

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
