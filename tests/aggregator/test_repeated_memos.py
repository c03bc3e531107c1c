"""Texts of a window in which every device repeats its memo: intervals know that few devices made the many reports."""

from datetime import date

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import clopper_pearson
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.texts import TextsReading, candidate_bits
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Metric
from tests.support.registries import registry

DAY = date(2026, 11, 23)
SHARES = (0.5, 0.25, 0.15, 0.1)
"""The shares of the texts that there are. Who has which is drawn once, however often it is sent."""
DEVICES, DAYS, MONTHS = 10_000, 30, 60


def metric() -> Metric:
    """RAPPOR with little noise: nine bits in ten are sent as the memo has them, and 31 in 32 of these are true."""
    parameters = "parameters = { k = 64, h = 1, m = 16, f = 0.0625, p = 0.1, q = 0.9 }"
    return registry(
        kind="text", epsilon="3.891821", epsilon_permanent="6.867975", color=parameters, device_epsilon="100"
    ).metrics["color"]


def month(asked: Metric, seed: int, devices: int = DEVICES) -> Tally:
    """Draw what so many devices send on 30 days. Each seed has texts, and with them a hash, of its own."""
    rng, memo, m = np.random.default_rng(seed), asked.mechanism, asked.cells.count
    assert isinstance(memo, RAPPOR)
    bits = candidate_bits(names(seed), memo.k, memo.h, m)
    kept, flipped = float(memo.permanent.p), float(memo.permanent.q)
    rows = []
    for cohort, here in enumerate(rng.multinomial(devices, [1 / m] * m).tolist()):
        held = np.bincount(bits[:, cohort, 0], rng.multinomial(here, SHARES), memo.k).astype(np.int64)
        memos = rng.binomial(held, kept) + rng.binomial(here - held, flipped)
        sent = rng.binomial(DAYS * memos, 0.9) + rng.binomial(DAYS * (here - memos), 0.1)
        rows.append([DAYS * here, *sent])
    return Tally(DAYS * devices, np.concatenate(rows))


def names(seed: int) -> tuple[str, ...]:
    return tuple(f"text {number} of {seed}" for number in range(len(SHARES)))


def read(asked: Metric, seed: int, tally: Tally, view: View) -> TextsReading:
    """Read the texts that there are."""
    stored = StoredPlan(1, asked.plan, asked.question, names(seed), asked.reservation, asked.expires, current=True)
    reading = estimate(stored, DAY, tally, view)
    assert isinstance(reading, TextsReading)
    return reading


def held(asked: Metric, seed: int, tally: Tally, days: int) -> list[bool]:
    """Tell whether each interval holds, read as the reports of so many days."""
    rows = read(asked, seed, tally, View(days=days)).rows
    return [row.lower <= share <= row.upper for row, share in zip(rows, SHARES, strict=True)]


@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_intervals_of_few_devices_hold_the_exact_ones_of_as_many(confidence: float) -> None:
    """100 devices whose answers are known leave as much open; those of standard errors are shorter."""
    asked = metric()
    for seed in range(5):
        reading = read(asked, seed, month(asked, seed, 100), View(confidence=confidence, days=DAYS))
        for row in reading.rows:
            share = np.clip(row.estimate, 0.0, 1.0)
            lower, upper = clopper_pearson(np.array(100 * share), 100, 1 - confidence)
            assert row.lower - row.estimate < lower - share
            assert row.upper - row.estimate > upper - share


@pytest.mark.slow
def test_intervals_of_a_month_hold_and_would_not_as_those_of_a_day() -> None:
    """60 months, 240 intervals: by the binomial law .9 would be seen once in a thousand runs, and .85 in 10 million.

    The planted bug takes all reports for those of different devices. Residuals show noise that repeats, but not that
    the devices are one draw of the population, which weighs 30 times as much here.
    """
    asked = metric()
    tallies = [month(asked, seed) for seed in range(MONTHS)]
    sound, planted = (
        np.mean([held(asked, seed, tally, days) for seed, tally in enumerate(tallies)]) for days in (DAYS, 1)
    )
    assert sound > 0.9
    assert planted < 0.85
