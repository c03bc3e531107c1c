"""Words are not published: which of them are looked up hangs on single reports, whatever noise their shares get."""

from bisect import bisect_left

import numpy as np

from dither_aggregator.analysis.words.search import Level, search
from dither_aggregator.analysis.words.sketches import Sketch
from dither_aggregator.counting.supports import hyperplane
from dither_shared.domains import Coded
from dither_shared.mechanisms import PGR
from dither_shared.registry import Registry
from dither_shared.words.groups import ROWS
from tests.support.registries import metrics_text

TYPED = b"hello"
EACH = 2
"""Reports of each point of each row: of nobody's text more than of another's."""


def test_one_report_decides_whether_a_word_is_looked_up() -> None:
    """The word's own group of reports is the same in both stores, and may show it as clearly as it will.

    So a threshold on its noisy count does not hide the device: in one store the word is published in nearly every draw,
    in the other in none. A delta would have to be near 1.
    """
    asked = {"kind": "words", "reports": 1, "epsilon": 2.0}
    plan = Registry.parse(metrics_text({"name": asked})).metrics["name"].plan
    domain, mechanism = Coded.of(plan.domain), PGR.of(plan.cells.mechanism_of(0))
    length, *_ = domain.levels
    multipliers = [domain.groups.multiplier(0, row) for row in range(ROWS)]
    supports = [
        np.flatnonzero(hyperplane(*mechanism.geometry, domain.bucket(TYPED.decode(), row))) for row in range(ROWS)
    ]

    def proposed(more: int) -> bool:
        table = np.full((ROWS, 1 + mechanism.outputs), EACH, dtype=np.int64)
        for report in range(more):
            row = report % ROWS
            table[row, 1 + supports[row][report // ROWS]] += 1
        table[:, 0] = table[:, 1:].sum(axis=1)
        found = search([Level(length, Sketch.of_tally(mechanism, table, multipliers))]).longer
        return any(prefix.bits == domain.groups.number(TYPED, 0) for prefix in found)

    reports = ROWS * len(supports[0])
    least = bisect_left(range(reports), True, key=proposed)
    assert 0 < least < reports
    assert proposed(least)
    assert not proposed(least - 1)
