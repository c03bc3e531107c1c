"""Tallies of hashed memos of texts: devices that repeat them, and a list that has half of the texts."""

from functools import cache

import numpy as np
import numpy.typing as npt

from dither_aggregator.store import Tally
from dither_shared.domains import Hashed
from dither_shared.mechanisms import MemoizedTwoLevel
from dither_shared.registry import Metric
from dither_shared.rng import SCALE
from tests.support.registries import registry
from tests.support.tallies import draw_tally

TEXTS, DEVICES = 60, 60_000
LISTED = tuple(f"text {number}" for number in range(0, TEXTS, 2))


@cache
def metric() -> Metric:
    return registry(kind="text", epsilon="2", epsilon_permanent="6", color="candidates_expected = 60").metrics["color"]


def shares() -> npt.NDArray[np.float64]:
    """Return the share of each text; a tenth of the devices says what is no text."""
    zipf = 1 / np.arange(1, TEXTS + 1)
    return np.asarray(0.9 * zipf / zipf.sum())


def truth() -> list[float]:
    """Return the shares of the listed texts, and of what is none."""
    return [*shares()[::2], 0.1]


def draw_memos(seed: int, days: int = 1) -> tuple[Hashed, Tally]:
    """Draw what the devices send, under a hash of the seed's own: each device repeats its memo on several days."""
    rng, cells = np.random.default_rng(seed), metric().cells
    memo = cells.mechanism
    assert isinstance(memo, MemoizedTwoLevel)
    domain = Hashed(f"site {seed}", memo.d)
    reads = [*(f"text {number}" for number in range(TEXTS)), domain.unread()]
    rows = []
    for cohort, devices in enumerate(rng.multinomial(DEVICES, [1 / cells.count] * cells.count).tolist()):
        held = np.zeros(memo.d, dtype=np.int64)
        np.add.at(held, [domain.bucket(read, cohort) for read in reads], rng.multinomial(devices, [*shares(), 0.1]))
        memos = draw_tally(memo.permanent, held, rng)
        row = np.zeros(1 + len(memos), dtype=np.int64)
        for _ in range(days):
            kept = rng.binomial(memos, memo.threshold_keep / SCALE)
            others = rng.multinomial(devices - kept.sum(), [1 / len(memos)] * len(memos))
            row += np.array([devices, *(kept + others)])
        rows.append(row)
    return domain, Tally(days * DEVICES, np.concatenate(rows))
