"""A text's hashed memo, decoded by cohorts: intervals that hold, also where a device repeats its memo."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from dither_aggregator.analysis import decoder
from dither_aggregator.analysis.decoder import FREEDOM_MAX, Found
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.texts import TextRow, TextsReading, decode_candidates
from dither_aggregator.store import StoredPlan
from dither_shared.domains import Hashed
from dither_shared.frozen import replaced
from dither_shared.mechanisms import MemoizedTwoLevel
from tests.benchmarks.texts.drawn import Devices, draw_buckets
from tests.support.hashed_memos import DEVICES, LISTED, draw_memos, metric, shares, truth
from tests.support.soaking import scaled, thinned

DAY = date(2026, 11, 23)
ROUNDS = 30


def stored(domain: Hashed) -> StoredPlan:
    asked = metric()
    plan = replaced(asked.plan, domain=domain)
    return StoredPlan(1, plan, asked.question, LISTED, asked.reservation, asked.expires, current=True)


def drawn(seed: int, days: int = 1) -> TextsReading:
    """Read 60,000 devices: a tenth says what is no text, and half of the texts are not in the list.

    Each seed has a hash of its own: intervals hold over the hash as well as over the noise. Each device repeats its
    memo on several days.
    """
    domain, tally = draw_memos(seed, days)
    reading = estimate(stored(domain), DAY, tally, View(days=days))
    assert isinstance(reading, TextsReading)
    return reading


@cache
def readings() -> list[TextsReading]:
    return [drawn(seed) for seed in range(ROUNDS)]


@pytest.mark.slow
def test_intervals_hold_though_texts_are_missing_from_the_list() -> None:
    """930 intervals of 30 tallies; by the binomial law .90 would be seen once in 10 million runs."""
    held = holding(readings())
    assert 0.9 < np.mean(held) < 0.995
    assert [row.value for row in readings()[0].rows][-1] == "other"


def holding(some: Sequence[TextsReading]) -> list[bool]:
    return [
        row.lower <= share <= row.upper for reading in some for row, share in zip(reading.rows, truth(), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("days", thinned([7, 31], 1))
def test_intervals_hold_where_devices_repeat_their_memo(days: int) -> None:
    """The same of 12 windows. Residuals alone show this: `test_repeated_memos` has what they do not show.

    Texts that are missing lie in the same buckets on each day. The planted bug takes their error for news of a day.
    """
    windows = [drawn(seed, days=days) for seed in range(12)]
    assert np.mean(holding(windows)) > 0.9
    assert np.mean(holding([replace(each, rows=[nearer(row, days) for row in each.rows]) for each in windows])) < 0.8


def nearer(row: TextRow, days: int) -> TextRow:
    """Return a row whose interval is that of so many independent days."""
    ends = [row.estimate + (end - row.estimate) / days**0.5 for end in (row.lower, row.upper)]
    return replace(row, lower=ends[0], upper=ends[1])


@pytest.mark.slow
def test_the_mass_that_is_not_listed_is_told() -> None:
    """At least 24 of 30 hold, as for fresh texts."""
    unlisted = 0.9 - shares()[::2].sum()
    fits = [reading.fit for reading in readings() if reading.fit]
    held = [float(str(fit["unexplained_lower"])) <= unlisted <= float(str(fit["unexplained_upper"])) for fit in fits]
    assert sum(held) >= 24


@pytest.mark.slow
def test_what_most_have_is_found_and_what_is_no_text_stands_apart() -> None:
    for reading in readings()[:5]:
        significance = reading.significance()
        assert significance is not None
        assert "text 0" in {each.row.value for each in significance.significant}
        assert [row.value for row in significance.unlisted] == ["other"]


RUNS = scaled(20, 40)


def shown(devices: Devices, domain: Hashed, tally: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """Return how many are found that devices have, the share of others, and of intervals shown that hold.

    Candidates are the listed texts and as many that nobody has.
    """
    cells = metric().cells
    strangers = (f"stranger {number}" for number in range(devices.listed))
    decoded = decode_candidates(domain, cells.mechanism, tally, (*devices.names[: devices.listed], *strangers))
    truth = [*devices.shares[: devices.listed], *[0.0] * devices.listed]
    holds = [
        row.lower <= share <= row.upper for row, share in zip(decoded.shown, truth, strict=True) if row.significant
    ]
    true = sum(row.significant for row in decoded.rows[: devices.listed])
    return true, (len(holds) - true) / max(len(holds), 1), float(np.mean(holds or [True]))


@pytest.mark.slow
def test_what_is_shown_holds_though_one_text_of_many_is_missing_from_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Populations in which one device in nine has a text that the list misses, in eight cohorts.

    The planted bug has a normal law and asks no strangers: that text lies in a few candidates' buckets.
    """
    cells = metric().cells
    populations = [Devices(30, DEVICES, seed, "zipf 1.5", 0.3) for seed in range(RUNS)]
    tallies = [draw_buckets(each, cast("MemoizedTwoLevel", cells.mechanism), cells.count) for each in populations]
    sound = np.mean([shown(each, *tally) for each, tally in zip(populations, tallies, strict=True)], axis=0)
    monkeypatch.setattr(Found, "freedom", FREEDOM_MAX)
    monkeypatch.setattr(decoder, "stranger_chances", lambda gains, hashes, totals: np.zeros(len(totals)))
    planted = np.mean([shown(each, *tally) for each, tally in zip(populations, tallies, strict=True)], axis=0)
    assert sound[2] > 0.93
    assert planted[2] < 0.9
    assert planted[1] - sound[1] > 0.03
