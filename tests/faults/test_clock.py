"""Clocks that are set by a year, both ways, at every stage of a report's life.

`Pair` checks after every step that no budget is exceeded and that an aggregator whose own clock is right counts every
report at most once.
"""

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from dither.device import Device
from dither_shared.rng import Rng
from tests.faults.apps import Taker, start
from tests.faults.life import Pair
from tests.faults.questions import Question
from tests.faults.witness import FATES, watched
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, connect
from tests.support.registries import registry
from tests.support.soaking import thinned

YEAR = 366.0
ASKED = registry(reports=40, epsilon="0.5", device_epsilon="40", expires=EXPIRES)


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    with watched():
        devices = Pair(home)
        plenty = Question(charges=30)
        questions = (("hue", plenty), ("mode", Question(charges=30, presence="hidden")), ("size", plenty))
        devices.upgrade(questions, 100, 360)
        devices.agree()
        devices.travel(1)
        yield devices
        devices.close()


def record_all(pair: Pair) -> None:
    pair.record("hue", ("a", "b"))
    pair.record("mode", ("c", "a"))
    pair.record("size", ("b", "b"))


AWAY = list(product([YEAR, -YEAR], ["", *FATES], FATES))


@pytest.mark.parametrize(("days", "before", "there"), thinned(AWAY, *range(0, len(AWAY), 13)))
def test_a_year_away_and_back_counts_nothing_twice_and_what_waits_is_sent(
    pair: Pair, days: float, before: str, there: str
) -> None:
    record_all(pair)
    if before:
        pair.attempt(before)
    pair.jump(days)
    record_all(pair)
    pair.attempt(there)
    pair.jump(-days)
    for _ in range(5):
        pair.attempt("accepted")
    for witness in pair.both:
        # The present period of a metric with hidden presence is still open.
        assert set(witness.account.slots) <= {"mode"}
        assert not witness.account.uploads


def test_after_a_year_ahead_an_upload_is_sent_again_until_it_is_taken(pair: Pair) -> None:
    """The latest day that the device has seen stays a year ahead: it must not age what was first sent today."""
    record_all(pair)
    pair.jump(YEAR)
    pair.jump(-YEAR)
    pair.attempt("unheard")
    pair.travel(0.1)
    assert pair.attempt("accepted") is not None


def test_a_metric_that_is_renewed_within_a_period_is_still_answered_once_in_it(pair: Pair) -> None:
    """It was to expire on day 20783, in the middle of the period that ends on day 20790."""
    pair.upgrade((("hue", Question(charges=30, period=90)),), 100, 5)
    pair.agree()
    pair.record("hue", ("a", "b"))
    pair.renew(300)
    pair.travel(7)
    pair.record("hue", ("a", "b"))
    assert pair.said["answered"] == 2


@pytest.mark.parametrize("days", [YEAR, -YEAR])
def test_no_lease_is_held_by_another_clock(home: Path, days: float) -> None:
    clock = Clock()
    one, other = (Device(ASKED, home / "d", Rng(random.Random(1).getrandbits), clock) for _ in range(2))
    clock.travel(days)
    assert one.lease()
    assert not other.lease()
    clock.travel(-days)
    assert other.lease()
    one.close()
    other.close()


def test_after_a_year_ahead_what_waits_is_sent_and_answers_go_on_when_the_year_is_over(home: Path) -> None:
    clock, taker = Clock(), Taker()
    asked = registry(reports=40, epsilon="0.5", device_epsilon="40", expires=EXPIRES.replace(year=EXPIRES.year + 3))
    telemetry = start(asked, home / "d", taker, clock)
    telemetry.color.record("red")
    clock.travel(YEAR)
    telemetry.dark.record(True)
    clock.travel(-YEAR)
    assert telemetry.flush(5).waiting == 0
    assert taker.sent() == {"color": 1, "dark": 1}
    telemetry.color.record("red")
    assert telemetry.status().counts["clock-behind"] == 1
    clock.travel(YEAR + 1)
    telemetry.color.record("red")
    assert telemetry.flush(5).sent == 1
    telemetry.close()


@pytest.mark.parametrize("days", [YEAR, -YEAR])
def test_quiet_days_are_not_shortened_by_a_clock_that_strays(home: Path, days: float) -> None:
    clock, taker = Clock(), Taker()
    asked = registry(quiet_days=5, expires=EXPIRES)
    telemetry = start(asked, home / "d", taker, clock)
    clock.travel(days)
    start(asked, home / "d", taker, clock).close()
    clock.travel(-days)
    for _ in range(5):
        telemetry.color.record("red")
        telemetry.flush(5)
        clock.travel(1)
    assert not taker.bodies
    telemetry.close()


def test_an_attempt_that_got_a_connection_counts_though_the_clock_stood_still_since(home: Path) -> None:
    """As a clock does that ticks 64 times a second, between two attempts of a flush."""
    clock = Clock()
    device = Device(ASKED, home / "d", Rng(random.Random(1).getrandbits), clock)
    device.agree()
    device.record(ASKED.metrics["color"], "red")
    sent = connect(device)
    again = device.next_upload()
    assert sent
    assert again
    assert again.id == sent.id
    device.put_off(again.id, "no connection", clock.now, clock.now)
    clock.travel(8)  # the aggregator, which may have stored it, has forgotten its id
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}
    device.close()
