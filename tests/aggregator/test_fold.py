"""The kernels equal a plain version on random and edge inputs."""

import random
from decimal import Decimal
from typing import cast

import numpy as np
import pytest

from dither_aggregator.counting import _count, fold, fold_cells, impossible
from dither_shared.mechanisms import Cells, Mechanism, Part, choose
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols
from tests.benchmarks import naive

SHAPES = [
    *(Bits(size) for size in (2, 8, 9, 16, 31, 40, 64, 65, 130)),
    *(Symbols(size) for size in (2, 256, 257, 70_000)),
    *(Subsets(*shape) for shape in ((9, 4), (128, 2), (40, 12), (600, 3))),
]


def draw_report(shape: ReportShape, rng: random.Random) -> int:
    if isinstance(shape, Subsets):
        return shape.of(rng.sample(range(shape.size), shape.weight))
    return rng.randrange(shape.size if isinstance(shape, Symbols) else 1 << shape.size)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernels_equal_the_plain_fold(shape: ReportShape) -> None:
    for n in (0, 1, 2, 3, 254, 255, 256, 257, 510, 511, 767, 768, 3_000):
        rng = random.Random(n)
        reports = [draw_report(shape, rng) for _ in range(n)]
        counts = fold(shape, shape.pack(reports))
        assert counts.dtype == np.int64
        assert counts.tolist() == naive.fold(shape, reports), f"{n} reports"


@pytest.mark.parametrize("n", [255, 256, 65_535, 65_536, 70_001])
@pytest.mark.parametrize("size", [3, 16, 128, 130])
def test_ones_and_zeros_do_not_overflow(size: int, n: int) -> None:
    ones = ((1 << size) - 1).to_bytes(Bits(size).width, "little")
    assert fold(Bits(size), ones * n).tolist() == [n] * size
    assert fold(Bits(size), bytes(len(ones)) * n).tolist() == [0] * size


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, rng = Bits(130), random.Random(5)
    packed = shape.pack([draw_report(shape, rng) for _ in range(2_000)])
    whole = fold(shape, packed)
    monkeypatch.setattr("dither_aggregator.counting._BLOCK_ROWS", 600)
    assert (fold(shape, packed) == whole).all()


@pytest.mark.parametrize(
    ("shape", "reports"),
    [
        (Bits(9), b"\x00"),
        (Bits(9), b"\x00\x02"),
        (Symbols(3), b"\x03"),
        (Symbols(70_000), b"\xff\xff\xff\xff"),
        (Symbols(300), b"\x00"),
        (Bits(3), b"\xff" * 300),
        (Subsets(9, 4), b"\xff\x00"),
        (Subsets(9, 4), b"\x07\x02"),
        (Subsets(600, 2), b"\x00\x00\x58\x02"),
    ],
)
def test_damaged_bytes_are_refused_and_not_miscounted(shape: ReportShape, reports: bytes) -> None:
    with pytest.raises(ValueError, match="packed report"):
        fold(shape, reports)


def cells_of(*parts: tuple[Mechanism, int]) -> Cells:
    return Cells(tuple(Part(mechanism, cells) for mechanism, cells in parts))


@pytest.mark.parametrize(
    "cells",
    [
        cells_of((choose(3, Decimal(1)), 1)),
        cells_of((choose(3, Decimal(1)), 128)),
        cells_of((choose(40, Decimal(3), name="ss"), 2), (choose(9, Decimal(1), name="oue"), 3)),
        cells_of((choose(300, Decimal(1), name="grr"), 1), (choose(13, Decimal(2), name="pgr"), 1)),
    ],
    ids=lambda cells: cells.name,
)
def test_the_vector_of_a_tally_has_each_cells_number_and_counts(cells: Cells) -> None:
    rng = random.Random(3)
    reports: dict[int, list[int]] = {}
    for _ in range(500):
        cell = rng.randrange(cells.count)
        reports.setdefault(cell, []).append(draw_report(cells.mechanism_of(cell).shape, rng))
    packed = {cell: cells.mechanism_of(cell).shape.pack(listed) for cell, listed in reports.items()}
    expected: list[int] = []
    for cell in range(cells.count):
        listed = reports.get(cell, [])
        expected += [len(listed), *naive.fold(cells.mechanism_of(cell).shape, listed)]
    counts = fold_cells(cells, packed)
    assert counts.dtype == np.int64
    assert counts.tolist() == expected
    assert len(counts) == cells.tally_size
    assert list(impossible(cells, counts, 500)) == []
    assert list(impossible(cells, counts, 501)) != []
    spoiled = counts.copy()
    spoiled[1] += 501
    assert list(impossible(cells, spoiled, 500)) != []


@pytest.mark.parametrize("cell", [-1, 2, 128])
def test_reports_of_a_cell_that_is_none_are_refused(cell: int) -> None:
    cells = cells_of((choose(3, Decimal(1)), 1), (choose(3, Decimal(2)), 1))
    with pytest.raises(ValueError, match="beyond the 2 cells"):
        fold_cells(cells, {0: b"\x01", cell: b"\x01"})


def test_a_shape_that_nobody_counts_is_refused() -> None:
    class Other(Symbols):
        """A shape from outside counts like the one it is made of."""

    assert fold(Other(3), b"\x01\x01\x02").tolist() == [0, 2, 1]
    with pytest.raises(TypeError, match="cannot be counted"):
        _count(cast("ReportShape", object()), b"")
