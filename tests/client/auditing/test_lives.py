"""Lives of simulated devices, and what is planted in them: memos that end, answers that show, reports that lack."""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dither.auditing.claims import NOTHING, Never
from dither.auditing.devices import AGAIN, ANEW, FEW, OTHERWISE, SHARED, draws_claim
from dither.auditing.simulated import SHOWS, Life, life_claim
from dither.device import Device, recording
from dither.device.outbox import Outbox
from dither.device.recording import EPOCH, Days, Slots
from dither_shared.frozen import replaced
from dither_shared.registry import Registry
from dither_shared.rng import Rng, keyed_rng
from tests.support.audits import EVERY, audited, devices, of_metric, seeded
from tests.support.soaking import SOAK, scaled, thinned

BESIDE = 'name = "beside"\nkind = "flag"\nepsilon = 1\nreports = 4'
MEMO_BESIDE = f'name = "beside"\n{EVERY["flag again"]}'
PROVED = "samples prove a larger loss"


def shown(claim: Never, lives: int) -> set[str]:
    """Return what some lives show."""
    rng = seeded(1)
    return {claim.look(rng) for _ in range(lives)}


def draws_of(registry: Registry, lives: int = 2) -> set[str]:
    return shown(draws_claim(registry, registry.metrics["asked"]), lives)


def lives_of(registry: Registry, lives: int) -> set[str]:
    return shown(life_claim(registry, registry.metrics["asked"]), lives)


def soon_shown(registry: Registry, lives: int) -> bool:
    """Tell whether one of so many pairs of lives shows an answer; none is looked at after that one."""
    claim, rng = life_claim(registry, registry.metrics["asked"]), seeded(1)
    return any(claim.look(rng) == SHOWS for _ in range(lives))


# Sound devices.


@pytest.mark.parametrize("name", thinned(list(EVERY), 8, 11, 13))
def test_each_draw_of_a_device_is_one_of_its_law(name: str) -> None:
    assert draws_of(of_metric(EVERY[name], BESIDE), scaled(1, 20)) == {""}


def test_a_metric_with_longer_periods_beside_it_is_sound_as_well() -> None:
    weekly = 'name = "beside"\nkind = "flag"\npresence = "hidden"\nepsilon = 1\nreports = 4\nperiod = "30d"'
    registry = of_metric(EVERY["flag"], weekly)
    for metric in registry.metrics.values():
        assert shown(draws_claim(registry, metric), 1) == {""}


@pytest.mark.parametrize("name", thinned(list(EVERY), 13))
def test_no_answer_shows_in_when_and_what_a_sound_device_sends(name: str) -> None:
    assert lives_of(of_metric(EVERY[name], BESIDE), scaled(4, 200)) == {""}


def test_a_life_has_ninety_days_and_all_that_happens_to_devices() -> None:
    registry = of_metric(EVERY["flag, hidden"], BESIDE)
    rng = seeded(1)
    lives = [Life.drawn(registry, registry.metrics["asked"], registry.metrics["beside"], rng) for _ in range(20)]
    assert all(sum(days for _, days in life.happens) >= 90 for life in lives)
    assert {life.metric.schedule for life in lives} == {"early", "spread"}
    for what in ("answer", "sleep", "night", "restart", "refused", "put off", "killed", "other process"):
        assert all(what in dict(life.happens) for life in lives[:3]), what
    for life in lives:
        assert ("answer", "sleep") in {(one, other) for (one, _), (other, _) in pairwise(life.happens)}, (
            "no look between"
        )


# Planted.


@pytest.fixture
def _today(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the day on which a device was last used."""
    noted, whole = [0], Days.today

    def noting(self: Days) -> int:
        noted[0] = whole(self)
        return noted[0]

    monkeypatch.setattr(Days, "today", noting)
    return noted


CLEAR = EVERY["flag again"].replace("= 1\n", "= 1.4\n").replace("permanent = 3", "permanent = 1.5")


@pytest.fixture
def _anew(monkeypatch: pytest.MonkeyPatch, _today: list[int]) -> None:
    """Draw a memo anew every 20 days."""
    monkeypatch.setattr(
        recording, "keyed_rng", lambda secret, context: keyed_rng(secret, context + b" %d" % (_today[0] // 20))
    )


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("name", ["flag again", "rappor", "number again"])
def test_a_memo_that_is_drawn_anew_every_20_days_is_caught_by_one_life(name: str) -> None:
    assert draws_of(of_metric(EVERY[name]), 1) == {ANEW}


if SOAK:  # else by one life, as above, and by samples where it is drawn each time (test_catches.py)

    @pytest.mark.usefixtures("_anew")
    def test_a_memo_that_is_drawn_anew_every_20_days_is_caught_by_samples_of_200_devices() -> None:
        (found,) = audited(devices(of_metric(CLEAR), "device, repeated"), 200)
        assert found.verdict == PROVED


def shared_by_values(secret: bytes, context: bytes) -> Rng:
    return keyed_rng(secret, context.split()[0])


def shared_by_devices(secret: bytes, context: bytes) -> Rng:
    return keyed_rng(b"the same everywhere", context)


def shared_by_metrics(secret: bytes, context: bytes) -> Rng:
    return keyed_rng(secret, context.split()[1])


FRESH = seeded(3)


def drawn_each_time(secret: bytes, context: bytes) -> Rng:
    return FRESH


@pytest.mark.parametrize("shared", [shared_by_values, shared_by_devices, shared_by_metrics, drawn_each_time])
def test_memos_that_share_their_coins_are_caught_by_one_life(
    shared: Callable[[bytes, bytes], Rng], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or are drawn each time."""
    registry = of_metric(EVERY["flag again"], MEMO_BESIDE)
    assert draws_of(registry, 1) == {""}
    monkeypatch.setattr(recording, "keyed_rng", shared)
    assert draws_of(registry, 1) == {ANEW if shared is drawn_each_time else SHARED}


def test_noise_that_comes_again_is_caught_by_one_life(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = of_metric(EVERY["flag again"])
    fixed = random.Random(1)

    def again(rng: Rng) -> Rng:
        fixed.seed(1)
        return Rng(fixed.getrandbits)

    made = Slots.__init__

    def spoiled(self: Slots, *arguments: Any) -> None:
        made(self, *arguments)
        own = self._rng
        type(self)._rng = property(lambda self: again(own), lambda self, value: None)  # type: ignore[assignment]

    monkeypatch.setattr(Slots, "_rng", None, raising=False)
    monkeypatch.setattr(Slots, "__init__", spoiled)
    assert draws_of(registry, 1) == {AGAIN}


def test_a_report_that_is_put_in_the_place_of_the_drawn_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in 5 answers, by coins of its own that no law knows of."""
    registry = of_metric(EVERY["grr"])
    coins = random.Random(2)
    build = Outbox.build

    def swapped(self: Outbox) -> bool:
        if coins.random() < 0.2:
            self._file.execute("UPDATE slot SET report = '0' WHERE metric = 'asked'")
        return build(self)

    monkeypatch.setattr(Outbox, "build", swapped)
    assert OTHERWISE in draws_of(registry, 2)


def test_reports_that_get_lost_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = of_metric(EVERY["flag"])
    record = Device.record
    monkeypatch.setattr(Device, "record", lambda self, *given: "" if self._days.today() % 3 else record(self, *given))
    assert draws_of(registry, 1) == {FEW}


# Presence: what a device sends must not depend on a hidden answer.


def opening(self: Device, metric: Any) -> None:
    """Let a hidden answer open its period itself, as a look does."""
    with self._file.transaction():
        self._slots.open_periods()


def planning(self: Device, metric: Any) -> None:
    """Let a hidden answer plan an upload."""
    with self._file.transaction():
        self._send_schedule.planned(lambda: 0.0)


def building(self: Device, metric: Any) -> None:
    """Let a hidden answer build what waits."""
    with self._file.transaction():
        self._outbox.build()


FAULTS = {"opens its period": opening, "plans": planning, "builds": building}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("keys", thinned(["flag, hidden", "flag again, hidden"], 0))
def test_a_hidden_answer_that_does_more_than_to_replace_is_caught_by_50_pairs_of_lives(
    name: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = of_metric(EVERY[keys], BESIDE)
    record = Device.record

    def spoiled(self: Device, metric: Any, *given: Any) -> str:
        if metric.hidden:
            FAULTS[name](self, metric)
        return record(self, metric, *given)

    monkeypatch.setattr(Device, "record", spoiled)
    assert soon_shown(registry, 50)


def test_one_refused_key_shows_an_answer_where_answers_open_their_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator refuses the key once; the app runs on, and starts again under a new one when the metric has expired.

    Before that each day has one report of either device.
    """
    registry = of_metric(EVERY["flag, hidden"], BESIDE)
    life = Life.drawn(registry, registry.metrics["asked"], registry.metrics["beside"], seeded(2))
    expires = EPOCH + timedelta(days=life.day + 6)
    asked = replaced(life.metric, schedule="early", charges=90, expires=expires)
    happens = (
        ("refused", 0),
        ("sleep", 3),
        ("answer", 0),
        ("sleep", 3),
        ("restart", 0),
        ("send", 0),
        ("sleep", 1),
        ("send", 0),
    )
    life = replaced(
        life,
        metric=asked,
        registry=replaced(life.registry, metrics={**life.registry.metrics, "asked": asked}),
        happens=happens,
    )
    record = Device.record

    def spoiled(self: Device, metric: Any, *given: Any) -> str:
        opening(self, metric)
        return record(self, metric, *given)

    monkeypatch.setattr(Device, "record", spoiled)
    one, other = (life.seen([answer], b"the same coins  ") for answer in (True, NOTHING))
    assert one != other


if SOAK:  # else by the one life above

    @pytest.mark.parametrize("keys", ["flag, hidden", "flag again, hidden"])
    def test_an_answer_that_opens_its_period_once_a_key_is_refused_is_caught_by_300_pairs_of_lives(
        keys: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry = of_metric(EVERY[keys], BESIDE)
        claim = life_claim(registry, registry.metrics["asked"])
        record, stopped, started = Device.record, Device.stopped, Device.__init__
        refused: set[int] = set()

        def noting(self: Device, *given: Any) -> None:
            refused.add(id(self))
            stopped(self, *given)

        def begun(self: Device, *given: Any, **named: Any) -> None:
            refused.discard(id(self))
            started(self, *given, **named)

        def spoiled(self: Device, metric: Any, *given: Any) -> str:
            if metric.hidden and id(self) in refused:
                opening(self, metric)
            return record(self, metric, *given)

        monkeypatch.setattr(Device, "__init__", begun)
        monkeypatch.setattr(Device, "stopped", noting)
        monkeypatch.setattr(Device, "record", spoiled)
        for seed in range(100):
            rng = seeded(seed)
            assert any(claim.look(rng) == SHOWS for _ in range(300)), seed


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant that on 1 device in 20 the "none" of a period is lost when it closes."""
    coins = random.Random(3)
    made, opens = Slots.__init__, Slots.open_periods
    broken: dict[int, bool] = {}

    def spoiled(self: Slots, *arguments: Any) -> None:
        made(self, *arguments)
        broken[id(self)] = coins.random() < 1 / 20

    def losing(self: Slots) -> None:
        if broken[id(self)]:
            self._file.execute("DELETE FROM slot WHERE replaceable AND leaves <= ?", (self._days.today(),))
        opens(self)

    monkeypatch.setattr(Slots, "__init__", spoiled)
    monkeypatch.setattr(Slots, "open_periods", losing)


if SOAK:  # else by pairs of lives, as below; its event is held against its law in test_bounds.py

    def test_none_that_lacks_on_1_of_20_devices_is_caught_with_1_000_devices_at_an_error_of_one_in_a_million(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A rare outcome that the other side never has: the bounds of two binomials do not find it."""
        n = 1_000
        registry = of_metric(EVERY["flag, hidden"])
        missing(monkeypatch)
        (found,) = audited(devices(registry, "device, presence"), n, error=1e-6)
        assert found.verdict == PROVED
        never = next(each for each in found.tests if each.event == "never on the other side")
        assert (never.one, never.others) == ("nothing", 0)
        assert n / 40 < never.hits < n / 12
        assert all(each.p_value > 1e-6 for each in found.tests if each is not never)


def test_none_that_lacks_on_1_of_20_devices_is_caught_by_50_pairs_of_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    assert soon_shown(of_metric(EVERY["flag, hidden"], BESIDE), 50)
