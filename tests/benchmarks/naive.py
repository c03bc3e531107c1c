"""The simple versions: what the fast ones must equal, and what they are measured beside."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from dither_shared.mechanisms import GRR, PGR, MemoizedUnary, PrivSet, PureMechanism, SubsetSelection, Unary
from dither_shared.mechanisms.subset import draw_distinct
from dither_shared.rng import Rng
from dither_shared.shapes import Packed, ReportShape, Subsets, Symbols
from tests.support.laws import supports

Counts = npt.NDArray[np.int64]


def randomize(mechanism: PureMechanism, value: int, rng: Rng) -> int:
    """Randomize as the definition says: a coin for each bit, a member at a time, points until one fits."""
    if isinstance(mechanism, MemoizedUnary):
        return randomize(mechanism.permanent, value, rng)
    if isinstance(mechanism, Unary):
        return _bit_by_bit(mechanism, value, rng)
    if isinstance(mechanism, SubsetSelection):
        return _member_by_member(mechanism, value, rng)
    if isinstance(mechanism, PGR):
        return _until_it_fits(mechanism, value, rng)
    if isinstance(mechanism, PrivSet):
        return _until_it_meets(mechanism, value, rng)
    assert isinstance(mechanism, GRR)
    others = [other for other in range(mechanism.d) if other != value]
    return value if rng.coin(mechanism.threshold) else others[rng.uniform(len(others))]


def _bit_by_bit(mechanism: Unary, value: int, rng: Rng) -> int:
    report = 0
    for place in range(mechanism.d):
        report |= rng.coin(mechanism.threshold_p if place == value else mechanism.threshold_q) << place
    return report


def _member_by_member(mechanism: SubsetSelection, value: int, rng: Rng) -> int:
    members = [value] if rng.coin(mechanism.threshold) else []
    others = [other for other in range(mechanism.d) if other != value]
    while len(members) < mechanism.weight:
        members.append(others.pop(rng.uniform(len(others))))
    return mechanism.shape.of(members)


def _until_it_fits(mechanism: PGR, value: int, rng: Rng) -> int:
    on = rng.coin(mechanism.threshold)
    while True:
        point = rng.uniform(mechanism.outputs)
        if supports(mechanism, point, value) == on:
            return point


def _until_it_meets(mechanism: PrivSet, value: int, rng: Rng) -> int:
    meets = rng.coin(mechanism.threshold)
    answer = {value, *range(mechanism.d, mechanism.padded - 1)}
    while True:
        members = draw_distinct(mechanism.padded, mechanism.weight, rng)
        if answer.isdisjoint(members) != meets:
            return mechanism.shape.of(members)


def fold(shape: ReportShape, reports: list[int]) -> list[int]:
    """Count one report at a time."""
    counts = [0] * shape.size
    for report in reports:
        if isinstance(shape, Symbols):
            counts[report] += 1
        elif isinstance(shape, Subsets):
            for member in shape.members(report):
                counts[member] += 1
        else:
            for place in range(shape.size):
                counts[place] += report >> place & 1
    return counts


def unpacked(shape: ReportShape, reports: bytes) -> Counts:
    """Count bits by unpacking all of them: what numpy offers in one line."""
    rows = np.frombuffer(reports, dtype=np.uint8).reshape(-1, shape.width)
    counts: Counts = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0)[: shape.size]
    return counts


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let uploads be parsed a report at a time, as `ReportShape` reads columns and its shapes do faster."""
    fast = [(shape, shape.read_column) for shape in (Symbols, Packed)]
    # Not by `patch`, which takes longer than to read most of the uploads that a fuzzer makes.
    for shape, _ in fast:
        shape.read_column = ReportShape.read_column  # type: ignore[method-assign]
    try:
        yield
    finally:
        for shape, read_column in fast:
            shape.read_column = read_column  # type: ignore[method-assign]


def hyperplane_sums(histogram: Counts, order: int, dimension: int) -> Counts:
    """Sum over hyperplanes by one transform of the whole space, every multiple of every point in it."""
    vectors = np.stack(np.unravel_index(np.arange(order**dimension), (order,) * dimension), axis=1)
    first = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    points = vectors[first == 1]
    space = np.zeros((order,) * dimension)
    for factor in range(1, order):
        space[tuple((factor * points % order).T)] = histogram
    transformed = np.fft.fftn(space).real[tuple(points.T)]
    sums: Counts = np.rint((transformed + histogram.sum()) / order).astype(np.int64)
    return sums
