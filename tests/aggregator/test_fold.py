"""The kernels equal a plain version on random and edge inputs."""

import random

import numpy as np
import pytest

from dither_aggregator.fold import fold
from dither_shared.reports import Bits, ReportShape, Symbols


def plain_fold(shape: ReportShape, reports: list[int]) -> list[int]:
    """Count one report at a time: what `fold` must equal."""
    counts = [0] * shape.size
    for report in reports:
        if isinstance(shape, Symbols):
            counts[report] += 1
        else:
            for place in range(shape.size):
                counts[place] += report >> place & 1
    return counts


@pytest.mark.parametrize("n", [0, 1, 2, 254, 255, 256, 510, 511, 3_000])
@pytest.mark.parametrize(
    "shape", [Bits(2), Bits(8), Bits(9), Bits(130), Symbols(2), Symbols(256), Symbols(257), Symbols(70_000)], ids=str
)
def test_the_kernels_equal_the_plain_fold(shape: ReportShape, n: int) -> None:
    rng = random.Random(n)
    top = shape.size if isinstance(shape, Symbols) else 1 << shape.size
    reports = [rng.randrange(top) for _ in range(n)]
    counts = fold(shape, shape.pack(reports))
    assert counts.dtype == np.int64
    assert counts.tolist() == plain_fold(shape, reports)


def test_a_full_block_of_ones_does_not_overflow() -> None:
    assert fold(Bits(16), b"\xff\xff" * 65_536).tolist() == [65_536] * 16


@pytest.mark.parametrize(
    ("shape", "reports"),
    [
        (Bits(9), b"\x00"),
        (Bits(9), b"\x00\x02"),
        (Symbols(3), b"\x03"),
        (Symbols(300), b"\x00"),
        (Bits(3), b"\xff" * 300),
    ],
)
def test_damaged_bytes_are_refused_and_not_miscounted(shape: ReportShape, reports: bytes) -> None:
    with pytest.raises(ValueError, match="packed report"):
        fold(shape, reports)
