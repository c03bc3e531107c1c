"""Bounds of numbers: the search finds what bisection finds, and an estimate lies in its own interval."""

import random
from datetime import date
from pathlib import Path
from typing import cast

import numpy as np

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.numbers import NumbersReading
from dither_aggregator.analysis.numeric_fit import _first
from dither_aggregator.analysis.reading import View
from tests.support.numeric import FORMS, draw_numbers, hump, number_site


def test_the_search_finds_the_first_place_wherever_it_begins() -> None:
    coins = random.Random(1)
    tried = 0
    for _ in range(5_000):
        last = coins.randrange(300)
        first, near = coins.randrange(last + 5), coins.randrange(last + 2)
        asked: list[int] = []

        def holds(place: int, first: int = first, asked: list[int] = asked) -> bool:
            asked.append(place)
            return place >= first

        low = coins.randrange(last + 1)
        assert _first(low, last, holds, near) == min(max(first, low), last)
        assert len(asked) <= 2 * last.bit_length() + 2
        tried += all(0 <= place <= last for place in asked)
    assert tried == 5_000


def test_every_estimate_lies_in_its_interval_although_raw_shares_may_be_negative(tmp_path: Path) -> None:
    """All numbers at the lowest place: half of all raw means lie below any that is possible; bounds alone leave these
    out, which 20 seeded tallies show."""
    beyond = 0
    with number_site(tmp_path, {"load": FORMS["load"]}) as one:
        stored, rng = one.store.plans("load")[0], np.random.default_rng(2)
        shares = hump(stored.plan) * 0
        shares[0] = 1.0
        for _ in range(20):
            tally = draw_numbers(stored.plan, shares, 5_000, rng)
            reading = cast("NumbersReading", estimate(stored, date(2026, 11, 1), tally, View(simultaneous=True)))
            for row in reading.distinct:
                assert row.lower <= row.estimate <= row.upper
            mean = reading.distinct[0]
            assert mean.fitted is not None
            assert mean.low is not None
            assert mean.high is not None
            assert mean.low <= mean.fitted <= mean.high <= mean.upper
            beyond += mean.estimate < 0.01
    assert beyond > 2
