import random
from collections import Counter
from datetime import date, timedelta

import pytest

from dither.device.recording import answers_always, day_number, draw_periods, period_start
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from tests.support.registries import registry

EXPIRES = date(2027, 6, 30)


def metric(**changes: object) -> Metric:
    return registry(schedule="spread", expires=EXPIRES, **changes).metrics["color"]


def draw(asked: Metric, seed: int) -> list[int]:
    return draw_periods(asked, Rng(random.Random(seed).getrandbits))


def test_days_are_counted_from_1970() -> None:
    assert day_number(date(1970, 1, 1)) == 0
    assert day_number(date(1970, 1, 1) + timedelta(days=20_777)) == 20_777


def test_a_period_starts_on_the_same_day_for_everybody() -> None:
    assert [period_start(day, 7) for day in (20_776, 20_777, 20_782, 20_783)] == [20_776, 20_776, 20_776, 20_783]


@pytest.mark.parametrize(("reports", "period"), [(1, "1d"), (5, "1d"), (10, "7d"), (12, "30d"), (2, "366d")])
def test_as_many_periods_are_drawn_as_there_are_reports_all_in_the_year_before_expiry(
    reports: int, period: str
) -> None:
    drawn = draw(metric(reports=reports, period=period, epsilon="0.5"), seed=3)
    days = int(period[:-1])
    assert len(drawn) == len(set(drawn)) == min(reports, 2 if days == 366 else reports)
    last = day_number(EXPIRES) - 1
    for day in drawn:
        assert day % days == 0
        assert last - 365 - days < day <= last


def test_every_period_is_drawn_equally_often() -> None:
    """Seeded: 4,000 draws of 3 in 53 weeks, no week 5 sigma from its share."""
    asked = metric(reports=3, period="7d")
    counts = Counter(day for seed in range(4_000) for day in draw(asked, seed))
    expected = 4_000 * 3 / len(counts)
    assert len(counts) in (53, 54)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


def test_nothing_is_drawn_when_all_periods_are_answered() -> None:
    assert answers_always(registry(schedule="early").metrics["color"])
    assert answers_always(metric(reports=60, period="7d", epsilon="0.1"))
    assert not answers_always(metric(reports=52, period="7d", epsilon="0.1"))
