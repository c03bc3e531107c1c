"""Counting, by the shape of reports: packed reports to a tally, and a tally to support counts. Nothing is estimated.

**Folding.** Everything that is counted is counted here. The reports of one cell are counted into one entry for each
symbol, bit or member. A tally's vector has, cell after cell, the number of the cell's reports and then these counts.
Counts add, so reports may be folded in any order and any grouping.

**Supports.** For most mechanisms the tally counts in how many of the reports each of the d values is supported. For
projective geometry response it counts points, and a report supports the values on whose hyperplanes its point lies: one
pass of Fourier transforms gives all these sums.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache, singledispatch
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dither_shared.errors import DitherError
from dither_shared.mechanisms import Cells, Part, PureMechanism
from dither_shared.mechanisms.pgr import points
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols

Counts = npt.NDArray[np.int64]

_BYTE_MAX = 255
"""Rows whose bits can be summed in one byte a bit."""
_BLOCK_ROWS = 1 << 20
"""Rows that are added up at once: it bounds the memory, at about twice their size."""


class BadTally(DitherError, ValueError):
    """A tally that no n reports of its mechanism can have, or too large to be decoded: nothing is estimated."""


class TallyGone(DitherError):
    """The counts of an epoch are no longer kept: `snapshot` is the id of what was made of them, if that is kept."""

    def __init__(self, epoch: date, snapshot: str | None) -> None:
        where = f"; snapshot {snapshot} has their estimates" if snapshot else ", nor is their snapshot"
        super().__init__(f"the counts of {epoch} are no longer kept{where}")
        self.epoch, self.snapshot = epoch, snapshot


def tables(cells: Cells, counts: Counts) -> Iterator[tuple[Part, Counts, int]]:
    """Yield each part of a plan's cells with its rows of a tally's vector, and the number of its first cell.

    If the app sets a public value, the parts come once for each value.
    The rows, int64[cells, 1 + size], are a view: for each cell the number n of its reports, then their counts.
    """
    first = start = 0
    for part in cells.parts * cells.public:
        width = 1 + part.mechanism.shape.size
        yield part, counts[start : start + part.cells * width].reshape(part.cells, width), first
        first, start = first + part.cells, start + part.cells * width


def fold_cells(cells: Cells, reports: Mapping[int, bytes]) -> Counts:
    """Count packed reports, given by cell, into the vector of a tally: see `tables`. Raises ValueError like `fold`."""
    if not all(0 <= cell < cells.count for cell in reports):
        raise ValueError(f"a packed report lies beyond the {cells.count} cells")
    counts = np.zeros(cells.tally_size, dtype=np.int64)
    for part, table, first in tables(cells, counts):
        shape = part.mechanism.shape
        for cell in reports.keys() & range(first, first + part.cells):
            table[cell - first, 0] = len(reports[cell]) // shape.width
            table[cell - first, 1:] = fold(shape, reports[cell])
    return counts


def fold(shape: ReportShape, reports: bytes) -> Counts:
    """Count how often each symbol was sent, each bit set, or each member named, in reports packed back to back.

    Returns int64[size]. Raises ValueError when the bytes are not whole, valid reports: a store that hands out such
    bytes is damaged, and a wrong count would be worse than none.
    """
    if len(reports) % shape.width:
        raise ValueError(f"packed reports must be a multiple of {shape.width} bytes, got {len(reports)}")
    counts = _count(shape, reports)
    if len(counts) > shape.size and counts[shape.size :].any():
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols or bits")
    if shape.raises is not None and counts.sum() != len(reports) // shape.width * shape.raises:
        raise ValueError(f"packed reports must name {shape.raises} values each")
    return counts[: shape.size]


@singledispatch
def _count(shape: ReportShape, reports: bytes) -> Counts:
    raise TypeError(f"reports of {type(shape).__name__} cannot be counted")


@_count.register
def _(shape: Symbols, reports: bytes) -> Counts:
    symbols = np.frombuffer(reports, dtype=f"<u{shape.width}")
    if len(symbols) and symbols.max() >= shape.size:  # before a count as long as the largest is made
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols")
    counts: Counts = np.bincount(symbols, minlength=shape.size).astype(np.int64, copy=False)
    return counts


@_count.register
def _(shape: Bits, reports: bytes) -> Counts:
    return _count_bits(shape.width, reports)


@_count.register
def _(shape: Subsets, reports: bytes) -> Counts:
    return _count(shape.member, reports) if shape.listed else _count_bits(shape.width, reports)


def _count_bits(width: int, reports: bytes) -> Counts:
    rows = np.frombuffer(reports, dtype=np.uint8).reshape(-1, width)
    if len(rows) <= _BYTE_MAX:
        return _sum_bytes(rows)
    counts = np.zeros(8 * width, dtype=np.int64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        counts += _positional_popcount(_as_words(rows[start : start + _BLOCK_ROWS]))[: 8 * width]
    return counts


def _as_words(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.unsignedinteger]:
    """Return rows of bytes as rows of the widest words, with zeros behind them where they do not fill one."""
    count, width = rows.shape
    word = width if width in (1, 2, 4) else 8
    padding = -width % word
    if padding:
        padded = np.zeros((count, width + padding), dtype=np.uint8)
        padded[:, :width] = rows
        rows = padded
    words: npt.NDArray[np.unsignedinteger] = rows.view(f"u{word}")
    return words


def _positional_popcount(rows: npt.NDArray[np.unsignedinteger]) -> Counts:
    """Count each bit over rows of words, with carry-save adders.

    An adder takes three rows of the same weight to two, their sum bits and, of twice the weight, their carries: five
    operations on whole words in place of unpacking 64 bits. It is done to thirds of all rows at once, until few enough
    rows of a weight are left to be unpacked. Harley and Seal's method; Mula, Kurz, Lemire 2018.
    """
    counts = np.zeros(rows.shape[1] * rows.itemsize * 8, dtype=np.int64)
    weight = 0
    while True:
        carries = []
        while len(rows) > _BYTE_MAX:
            third = len(rows) // 3
            a, b, c = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third]
            carry = a ^ b
            sums = np.empty((len(rows) - 2 * third, rows.shape[1]), rows.dtype)
            np.bitwise_xor(carry, c, out=sums[:third])
            sums[third:] = rows[3 * third :]
            carry &= c
            carry |= a & b
            carries.append(carry)
            rows = sums
        counts += _sum_bytes(rows.view(np.uint8)) << weight
        if not carries:
            return counts
        rows = np.concatenate(carries)
        weight += 1


def _sum_bytes(rows: npt.NDArray[np.uint8]) -> Counts:
    """Count each bit over at most 255 rows of bytes."""
    ones: Counts = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.uint8).astype(np.int64)
    return ones


# Damage: why a tally cannot be that of n reports of a plan's cells.


def impossible(cells: Cells, counts: Counts, n: int) -> Iterator[str]:
    """Yield why so many reports cannot have these counts."""
    if counts.min(initial=0) < 0 or n < 0:
        yield "it has a negative count"
    rows = list(tables(cells, counts))
    total = sum(int(table[:, 0].sum()) for _, table, _ in rows)
    if total != n:
        yield f"its cells have {total} reports in place of {n}"
    for part, table, _ in rows:
        yield from _impossible_rows(part.mechanism.shape, table)


def _impossible_rows(shape: ReportShape, table: Counts) -> Iterator[str]:
    """Yield why cells of one shape cannot have these rows, each n and its counts."""
    if shape.raises is not None:
        for row in table[table[:, 1:].sum(axis=1) != table[:, 0] * shape.raises][:1]:
            yield f"its counts add up to {row[1:].sum()} in place of {row[0] * shape.raises}"
    for row in table[table[:, 1:].max(axis=1) > table[:, 0]][:1]:
        yield f"it has a count of {row[1:].max()} in {row[0]} reports"


# From a tally to support counts.


REPORTS_MAX = 1 << 42
"""With so many every sum is exact, in the transform as in int64: four million million."""
ONE_BY_ONE_MAX = 12
"""So many hyperplanes take less time than a transform."""
KEPT_POINTS_MAX = 200_000
"""Coordinates of spaces up to this size are kept: at most 17 MiB each, for four spaces."""
KEPT_LINES_MAX = 300_000
"""Lines through spaces up to this size are kept: 2 MiB of one, and of all smaller ones within it 2 MiB at most."""
ROUNDING_MAX = 0.25
"""How far a transformed count may lie from an integer: one half could hide a wrong one."""


def support_counts(mechanism: PureMechanism, tally: Counts, n: int) -> Counts:
    """Return int64[d]: how many of the n reports support each value.

    Raises BadTally when the tally's sum is not that of n reports, or the transform fails its own check.
    """
    _check(mechanism, tally, n)
    if mechanism.geometry is None:
        return tally[: mechanism.d]  # without PrivSet's dummies
    order, dimension, _ = mechanism.geometry
    sums = hyperplane_sums(tally, *mechanism.geometry)
    # Each point lies on equally many hyperplanes, whatever was reported.
    if sums.sum() != n * points(order, dimension - 1):
        raise BadTally("the sums over hyperplanes do not add up to the reports")
    return sums[: mechanism.d]


def noisy_support(mechanism: PureMechanism, tally: Counts) -> Counts:
    """Return the same of the noisy counts of a release, which no reports need have made."""
    if mechanism.geometry is None:
        return tally[: mechanism.d]
    return hyperplane_sums(tally, *mechanism.geometry)[: mechanism.d]


def support_of(mechanism: PureMechanism, tally: Counts, n: int, values: Sequence[int]) -> Counts:
    """Return the same of a few of the values alone, each in O(K) time: K counts and no transform."""
    _check(mechanism, tally, n)
    if mechanism.geometry is None:
        return tally[list(values)]
    each = (hyperplane(*mechanism.geometry, value) for value in values)
    return np.array([int(tally[on].sum()) for on in each], dtype=np.int64)


def _check(mechanism: PureMechanism, tally: Counts, n: int) -> None:
    raises = mechanism.shape.raises
    if tally.min() < 0 or tally.max() > n:
        raise BadTally(f"the tally's counts must be from 0 to {n}, got {tally.min()} to {tally.max()}")
    if raises is not None and tally.sum() != n * raises:
        raise BadTally(f"the tally's sum, {tally.sum()}, is not that of {n} reports")
    if mechanism.geometry is not None and n > REPORTS_MAX:
        raise BadTally(f"at most {REPORTS_MAX} reports can be decoded, got {n}")


@lru_cache(maxsize=16)
def hyperplane(order: int, dimension: int, prime: int, value: int) -> npt.NDArray[np.bool_]:
    """Return which points u have <u, value> = 0."""
    coordinates = _kept(order, dimension, prime)
    inner = np.zeros(len(coordinates[0]), dtype=np.int64)
    for along in coordinates:
        inner += along * along[value]
    on: npt.NDArray[np.bool_] = inner % order == 0
    return on


def lies_on(order: int, dimension: int, prime: int, values: Counts, reported: Counts) -> npt.NDArray[np.bool_]:
    """Return on the hyperplanes of which values some points lie: bool[values, points]."""
    coordinates = np.array(_kept(order, dimension, prime))
    one, other = (coordinates[:, each].astype(np.float64) for each in (values, reported))  # floats multiply quickest
    on: npt.NDArray[np.bool_] = (one.T @ other).astype(np.int64) % order == 0
    return on


def hyperplanes_through(order: int, dimension: int, prime: int, values: Counts) -> Counts:
    """Return, for each point of a projective space, on how many of the hyperplanes of some values it lies: int64[K].

    A few values are counted one by one, more by one transform.
    """
    if len(values) <= ONE_BY_ONE_MAX:
        each = (hyperplane(order, dimension, prime, value) for value in values.tolist())
        lies_on: Counts = np.sum([np.zeros(points(order, dimension), dtype=np.int64), *each], axis=0)
        return lies_on
    inside = np.zeros(points(order, dimension), dtype=np.int64)
    inside[values] = 1
    return hyperplane_sums(inside, order, dimension, prime)


Numbers = TypeVar("Numbers", Counts, npt.NDArray[np.float64])


def hyperplane_sums(histogram: Numbers, order: int, dimension: int, prime: int) -> Numbers:
    """Return, for each point v of a projective space, the sum of the histogram over the points u with <u, v> = 0.

    Counts in, counts out, int64[K] and exact; or weights, float64[K], to rounding. Both are by the points' numbers;
    O(K log K) time, 50 to 160 bytes of memory a point. Raises BadTally when a sum comes out too far from an integer.
    """
    if not prime:
        return _sums_in_order(histogram, order, dimension)
    places = places_of_points(len(histogram), prime)
    ordered = np.empty_like(histogram)
    ordered[places] = histogram
    return _sums_in_order(ordered, order, dimension)[places]


def places_of_points(size: int, prime: int) -> Counts:
    """Return the place of each point in lexicographic order, by its number: int64[size]. See dither_shared's pgr.py."""
    return _kept_places(size, prime) if size <= KEPT_POINTS_MAX else _places(size, prime)


@lru_cache(maxsize=16)
def _kept_places(size: int, prime: int) -> Counts:
    return _places(size, prime)


def _places(size: int, prime: int) -> Counts:
    if not prime:
        return np.arange(size)
    places = _cubes(np.arange(size - 1, -1, -1), prime)
    while (beyond := places >= size).any():
        places[beyond] = _cubes(places[beyond], prime)
    return places


def _cubes(numbers: Counts, prime: int) -> Counts:
    return np.asarray(numbers * numbers % prime * numbers % prime)


def _sums_in_order(histogram: Numbers, order: int, dimension: int) -> Numbers:
    """Return the same by the points' places in lexicographic order.

    Points are split by their first coordinate. Those of (0, ...) are a space of one dimension less: the same function.
    Those of (1, u) make a grid H[u] of order^(dimension - 1). With F its Fourier transform and w a point of that space,

        sum of H[u] over <u, w> = -b      = 1 / order  sum over c of  e^(-2 pi i b c / order) F[c w]

    which is a transform along the line of multiples of w. H is real, so that F[-c w] is the conjugate of F[c w], and
    half of the line is enough. v = (0, w) has b = 0; v = (1, a w) has b = 1 / a. A transform of the whole space would
    take order times as long.
    """
    if dimension == 1:
        return np.zeros_like(histogram)
    smaller = points(order, dimension - 1)
    inner = _sums_in_order(histogram[:smaller], order, dimension - 1)
    grid = histogram[smaller:].reshape((order,) * (dimension - 1)).astype(np.float64)
    lines_of = _kept_multiples if len(histogram) <= KEPT_LINES_MAX else _multiples
    multiples = lines_of(order, dimension - 1)
    from scipy.fft import fftn, hfft  # who folds does without, and starts in half the time

    half = fftn(grid).ravel()[multiples[:, : order // 2 + 1]]
    lines = hfft(half, n=order, axis=1)
    lines /= order
    along = (_integers(lines) if histogram.dtype == np.int64 else lines) + inner[:, np.newaxis]
    # b = 1 / a is also the place at which the multiple a of w finds its sum.
    inverses = [pow(a, -1, order) for a in range(1, order)]
    outer = np.empty(order ** (dimension - 1), dtype=histogram.dtype)
    outer[0] = histogram[:smaller].sum()  # v = (1, 0, ...): no point (1, u), and every point (0, ...)
    outer[multiples[:, 1:]] = along[:, inverses]
    return np.concatenate([along[:, 0], outer])


def _integers(sums: npt.NDArray[np.float64]) -> Counts:
    """Return sums that came out of a transform as the integers that they are."""
    rounded = np.rint(sums)
    sums -= rounded
    if np.abs(sums, out=sums).max() > ROUNDING_MAX:
        raise BadTally("the transform lost precision")
    return rounded.astype(np.int64)


@lru_cache(maxsize=32)
def _kept_multiples(order: int, dimension: int) -> npt.NDArray[np.int64]:
    return _multiples(order, dimension)


def _multiples(order: int, dimension: int) -> npt.NDArray[np.int64]:
    """Return, for each point w of a space and each a below `order`, the place of a w in the flat grid of vectors."""
    factors = np.arange(order)
    places = np.zeros((points(order, dimension), order), dtype=np.int64)
    for coordinate in _coordinates(order, dimension):
        places *= order
        places += coordinate[:, np.newaxis] * factors % order
    return places


def _kept(order: int, dimension: int, prime: int) -> list[Counts]:
    kept = points(order, dimension) <= KEPT_POINTS_MAX
    return (_kept_coordinates if kept else _coordinates_of)(order, dimension, prime)


@lru_cache(maxsize=4)
def _kept_coordinates(order: int, dimension: int, prime: int) -> list[Counts]:
    return _coordinates_of(order, dimension, prime)


def _coordinates_of(order: int, dimension: int, prime: int) -> list[Counts]:
    """Return the points' first coordinates, their second ones, and so on, by the points' numbers."""
    places = _places(points(order, dimension), prime)
    return [along[places] for along in _coordinates(order, dimension)]


def _coordinates(order: int, dimension: int) -> list[Counts]:
    """Return the same by the points' places in lexicographic order."""
    vectors = np.arange(order ** (dimension - 1))
    tails = [vectors // order**place % order for place in range(dimension - 2, -1, -1)]
    if dimension == 1:
        return [np.ones(1, dtype=np.int64)]
    inner = _coordinates(order, dimension - 1)
    first = np.repeat([0, 1], [points(order, dimension - 1), len(vectors)])
    return [first, *(np.concatenate(pair) for pair in zip(inner, tails, strict=True))]
