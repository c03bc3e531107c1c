"""Token buckets, beside tokens that drip one by one; what they cost, and what they forget."""

import random
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import pytest

from dither_aggregator.web import request_admission
from dither_aggregator.web.request_admission import TokenBuckets
from dither_aggregator.web.request_limits import HOUR_NS, SECOND_NS, Limits, Rate
from dither_shared.errors import ConfigurationError
from tests.support.soaking import scaled


class Nanoseconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 5 * HOUR_NS

    def __call__(self) -> int:
        return self.now


STEPS = scaled(5_000, 20_000)


class Dripping:
    """The reference: a number of tokens for each, exact, filled up to the burst as time goes by."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.tokens: dict[bytes, tuple[Fraction, int]] = {}

    def take(self, who: bytes, now: int, asked: int = 1) -> int:
        tokens, at = self.tokens.get(who, (Fraction(self.rate.burst), now))
        tokens = min(tokens + Fraction(now - at, self.rate.interval_ns), Fraction(self.rate.burst))
        taken = tokens >= 1
        self.tokens[who] = (tokens - asked if taken else tokens), now
        return 0 if taken else int((1 - tokens) * self.rate.interval_ns)


def differences(rate: Rate, steps: int, longest_ns: int) -> int:
    """Return how often the buckets of some strangers, asked at random moments, differ from the reference."""
    rng = random.Random("buckets")
    clock = Nanoseconds()
    made, reference = TokenBuckets(rate, clock=clock), Dripping(rate)
    found = 0
    for _ in range(steps):
        clock.now += rng.choice((0, 1, rng.randrange(longest_ns)))
        who = b"%d" % rng.randrange(5)
        if rng.random() < 0.05:
            made.forget()
        for asked in rng.choice(((1,), (0,), (0, 1))):  # to look takes nothing
            found += made.take(who, asked) != reference.take(who, clock.now, asked)
    return found


@pytest.mark.parametrize(
    ("rate", "longest_ns"),
    [
        (Rate(SECOND_NS, 5), 2 * SECOND_NS),
        (Rate(7, 1), 20),
        (Rate(333_333_333, 180), SECOND_NS // 2),
        (Rate(3 * 60 * SECOND_NS, 20), HOUR_NS // 60),  # as slow as may be; some 50 hours go by
    ],
    ids=str,
)
def test_a_bucket_is_the_same_as_tokens_that_drip(rate: Rate, longest_ns: int) -> None:
    assert differences(rate, STEPS, longest_ns) == 0


def forgetting(self: TokenBuckets, now: int) -> None:
    """Begin a new hour with nothing of the old one."""
    if now - self._hour.since >= HOUR_NS:
        self._hour = request_admission._Hour(now)


def generous(
    self: TokenBuckets, who: bytes, asked: int, real: Callable[[TokenBuckets, bytes, int], int] = TokenBuckets.take
) -> int:
    """Let one more by than the burst."""
    return wait if (wait := real(self, who, asked)) > self._rate.interval_ns else 0


@pytest.mark.parametrize(("name", "planted"), [("_turn", forgetting), ("take", generous)])
def test_a_planted_bug_is_seen(name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenBuckets, name, planted)
    assert differences(Rate(3 * 60 * SECOND_NS, 20), STEPS, HOUR_NS // 60) > 0


def test_the_change_of_the_hour_gives_no_second_burst() -> None:
    clock = Nanoseconds()
    made = TokenBuckets(Rate(SECOND_NS, 100), clock=clock)
    clock.now += HOUR_NS - 1
    assert [made.take(b"a") for _ in range(100)] == [0] * 100
    clock.now += 1
    assert made.take(b"a") == SECOND_NS - 1


def test_nobody_is_known_once_their_bucket_is_full() -> None:
    clock = Nanoseconds()
    made = TokenBuckets(Rate(SECOND_NS, 100), clock=clock)
    for who in range(1_000):
        made.take(b"%d" % who)
    made.forget()
    assert made.held == 1_000
    clock.now += SECOND_NS
    made.forget()
    assert made.held == 0


def test_neither_an_address_nor_a_lasting_name_of_it_is_in_memory() -> None:
    clock = Nanoseconds()
    made = TokenBuckets(Rate(SECOND_NS, 3_600), clock=clock)

    def names() -> set[bytes]:
        return set(made._hour.full_at)

    made.take(b"192.0.2.7")
    first = names()
    assert b"192.0.2.7" not in b"".join(first)
    assert TokenBuckets(Rate(SECOND_NS, 1))._hour.name(b"192.0.2.7") not in first
    clock.now += HOUR_NS - 1
    made.take(b"192.0.2.7")
    clock.now += 1
    made.take(b"192.0.2.7")
    assert names().isdisjoint(first)
    assert made.held == 1
    clock.now += HOUR_NS
    for _ in range(2):  # as it is done all the time
        made.forget()
    assert (made.held, made._before) == (0, None)


def test_many_addresses_cost_no_more_than_a_bound_and_the_one_that_goes_on_is_kept() -> None:
    clock = Nanoseconds()  # which stands still: nobody's bucket fills
    made = TokenBuckets(Rate(SECOND_NS, 100), clock=clock)
    assert [made.take(b"flood") for _ in range(100)] == [0] * 100
    for who in range(scaled(4 * request_admission.BUCKETS_MAX, 1_000_000)):
        made.take(b"%d" % who)
        if who % 10_000 == 0:
            assert made.take(b"flood") > 0
    assert made.held == request_admission.BUCKETS_MAX


def test_so_many_buckets_take_some_megabytes() -> None:
    clock, most = Nanoseconds(), request_admission.BUCKETS_MAX // scaled(10, 1)
    made = TokenBuckets(Rate(SECOND_NS, 100), most, clock)
    tracemalloc.start()
    try:
        for who in range(2 * most):
            clock.now += who == most // 2 and HOUR_NS - 1
            made.take(b"%d" % who)
        assert tracemalloc.get_traced_memory()[0] < 320 * most  # 16 MB of all that there may be
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "interval_ns", "burst"),
    [("20", 50_000_000, 1_200), ("20:5", 50_000_000, 5), ("0.5", 2 * SECOND_NS, 30), ("0.001", 1_000 * SECOND_NS, 1)],
)
def test_a_rate_is_so_many_a_second_and_so_many_at_once(text: str, interval_ns: int, burst: int) -> None:
    assert Rate.parse(text) == Rate(interval_ns, burst)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "0", "nan", "inf", "1e99", "20:", "20:x", "20:0", "1:2:3", "0.0001", "1:3601"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a rate must be"):
        Rate.parse(text)


def test_several_processes_together_let_no_more_by_than_the_rate() -> None:
    part = Limits(Rate.parse("100:1000"), Rate.parse("20:1200")).shared(8)
    assert part == Limits(Rate.parse("12.5:125"), Rate.parse("2.5:150"))
    assert Limits(None, None).shared(8) == Limits(None, None)
    with pytest.raises(ConfigurationError, match="divided among 64"):
        Limits(Rate.parse("0.001:1")).shared(64)
