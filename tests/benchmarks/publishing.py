"""Publishing as a black box, at length: what a million draws prove of two stores, and how often intervals hold.

The bound must be at most the declared epsilon, and at least nine tenths of it for the worst pair: a device that sends
the same answer as often as it may. The share of 95 % intervals that hold must be 94 to 97 %.
"""

import multiprocessing
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np

from dither_aggregator.publishing.releases import read
from tests.support.released_texts import FEW, NAMES, reading_of, share_held, worst
from tests.support.releases import WEEKLY, Device, Neighbours, published, release_of

DRAWS, ALPHA = 1_000_000, 1e-6
OTHERS: list[Device] = [[(0, 0)], [(1, 1)], [(3, 1)]]
WORST: dict[int, Device] = {1: [(4, 1)], 3: [(0, 1), (2, 1), (5, 1)]}
"""By the most reports of a device: all that it may send of one answer."""
TEXT = 0
"""Stands for the audit of a text, whose reports are in three counts."""
TEXT_RUNS: dict[str, tuple[tuple[str, ...], int, Decimal | None]] = {
    "r = 1": (NAMES, 1, None),
    "r = 1, a heavy one not listed": (NAMES[1:], 1, None),
    "r = 4": (NAMES, 4, None),
    "r = 4, Gaussian noise": (NAMES, 4, Decimal("1e-6")),
}
TEXT_SEEDS = 80
BOUND_MIN = 0.9
HOLD = (0.94, 0.97)
RUNS = {
    "grr, 3 values, r = 1": (("red", "green"), "", 1, 2_000),
    "ss, 30 values, r = 3": (tuple(f"answer {each}" for each in range(29)), 'mechanism = "ss"', 3, 120),
    "pgr, 57 values, r = 4": (tuple(f"answer {each}" for each in range(56)), 'mechanism = "pgr"', 4, 60),
}
N = 20_000


def run(draws: int = DRAWS) -> None:
    """Print the tables; raise AssertionError when an aim is missed."""
    missed: list[str] = []
    with multiprocessing.Pool(2) as pool:
        asked = [(reports, draws) for reports in (*WORST, TEXT)]
        for reports, bound, epsilon in pool.imap(_audited, asked):
            name = f"r = {reports}" if reports else "a text, r = 3, three counts"
            line = f"{name}: {bound:.3f} of epsilon {epsilon:g} proved by {draws:,} draws a side"
            print(line)
            missed += [] if BOUND_MIN * epsilon <= bound <= epsilon else [line]
        for name, held, told in pool.imap(_texts_held, TEXT_RUNS):
            line = f"texts, {name}: {held / told:.4f} of {told:,} published intervals hold"
            print(line)
            missed += [] if HOLD[0] <= held / told <= HOLD[1] else [line]
        for name, held, told in pool.imap(_held, RUNS):
            line = f"{name}: {held / told:.4f} of {told:,} published intervals hold"
            print(line)
            missed += [] if HOLD[0] <= held / told <= HOLD[1] else [line]
    assert not missed, "; ".join(missed)


def _audited(asked: tuple[int, int]) -> tuple[int, float, float]:
    reports, draws = asked
    with tempfile.TemporaryDirectory() as name:
        if reports == TEXT:
            found = Neighbours.of(Path(name), FEW, OTHERS, worst()[1])
            return reports, found.audit(draws, ALPHA), found.entry.epsilon
        registry = published(keys=WEEKLY, reports=reports, values=("red",))  # two counts: fewer draws
        found = Neighbours.of(Path(name), registry, OTHERS, WORST[reports])
    return reports, found.audit(draws, ALPHA), found.entry.epsilon


def _texts_held(name: str) -> tuple[str, int, int]:
    names, reports, delta = TEXT_RUNS[name]
    readings = [(seed, reading_of(seed, names, reports=reports, delta=delta)) for seed in range(TEXT_SEEDS)]
    return name, *share_held(readings)


def _held(name: str) -> tuple[str, int, int]:
    values, color, reports, runs = RUNS[name]
    plan = published(color, values=values).metrics["color"].plan
    d, rng = len(plan.values), np.random.default_rng(11)
    shares = 1 / np.arange(1, d + 1)
    shares /= shares.sum()
    held = told = 0
    for _ in range(runs):
        people = rng.multinomial(N, shares).astype(np.int64)
        rows = read(release_of(plan, people, rng, reports=reports)[0]).rows
        held += sum(row.own_lower <= share <= row.own_upper for row, share in zip(rows, shares, strict=True))
        told += d
    return name, held, told
