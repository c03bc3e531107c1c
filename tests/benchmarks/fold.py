"""Folding packed reports, beside counting one report at a time."""

import random
from functools import partial

from dither_aggregator.fold import fold
from dither_shared.reports import Bits, ReportShape, Symbols
from tests.aggregator.test_fold import plain_fold
from tests.benchmarks.timing import row, seconds

REPORTS = 20_000
NAIVE_REPORTS = 200


def run() -> None:
    """Print microseconds a report."""
    rng = random.Random(1)
    shapes: list[ReportShape] = [Symbols(128), Symbols(1024), Bits(128), Bits(512)]
    for shape in shapes:
        top = shape.size if isinstance(shape, Symbols) else 1 << shape.size
        reports = [rng.randrange(top) for _ in range(REPORTS)]
        naive_s = seconds(partial(plain_fold, shape, reports[:NAIVE_REPORTS])) / NAIVE_REPORTS
        row(str(shape), seconds(partial(fold, shape, shape.pack(reports))) / REPORTS, naive_s, "report")
