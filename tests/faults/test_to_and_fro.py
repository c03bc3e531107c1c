"""Lives with a clock that goes to and fro, a hostile server, captive portals, kills and forgetting.

`live_to_and_fro` sets the clock right at the end, and sees that the devices speak within the silent days. `Pair` and
its witnesses see after every step that no period had two reports charged, no budget was exceeded, no report was counted
twice, nothing depends on a hidden answer, and the day reached moved by a use or a charge, or back to the clock's day by
a receipt that agrees with the clock, or by the silent days: by nothing else that a server says.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from dither.device import Device
from dither.device.outbox import Outbox
from dither.device.recording import Days
from tests.faults.schedules import live_to_and_fro
from tests.support.soaking import SOAK, thinned

pytestmark = pytest.mark.slow

PARTS: list[Sequence[int]] = (
    [range(first, first + 500) for first in range(0, 10_000, 500)] if SOAK else [[210, 212, 213, 229, 323]]
)
"""Lives: 10,000 in a soak. In `make test` five, of which each bug below spoils at least one."""


@pytest.mark.parametrize("lives", PARTS, ids=lambda lives: f"{lives[0]} to {lives[-1]}")
def test_no_clock_answers_a_period_twice_exceeds_a_budget_or_silences_a_device_for_long(lives: Sequence[int]) -> None:
    said: Counter[str] = Counter()
    for seed in lives:
        said += live_to_and_fro(seed)
    assert said.keys() >= {"", "answered", "clock-behind", "expired", "forgotten", "quiet", "spent", "waiting"}


# Bugs that such a life does not survive.


def go_by_a_servers_date_alone(patch: pytest.MonkeyPatch) -> None:
    def go(self: Days, date: float | None) -> None:
        if date is not None:
            self._file.set("last_day", int(date // 86_400))

    patch.setattr(Days, "agree", go)


def fall_back_on_any_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Days, "agree", lambda self, date: self._fall_back())


def fall_back_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dither.device.recording.SILENT_DAYS", 0)


def forget_used_periods(patch: pytest.MonkeyPatch) -> None:
    fall_back = Days._fall_back

    def forget(self: Days) -> None:
        fall_back(self)
        self._file.execute("DELETE FROM used WHERE until > ?", (self._file.day,))

    patch.setattr(Days, "_fall_back", forget)


def keep_the_latest_period_alone(patch: pytest.MonkeyPatch) -> None:
    use = Days.use

    def keep(self: Days, metric: str, first: int, until: int) -> None:
        self._file.execute("DELETE FROM used WHERE metric = ?", (metric,))
        use(self, metric, first, until)

    patch.setattr(Days, "use", keep)


def take_all_days_before_for_used(patch: pytest.MonkeyPatch) -> None:
    """As before."""
    use = Days.use
    patch.setattr(Days, "use", lambda self, metric, first, until: use(self, metric, 0, until))


def reach_a_day_by_a_look(patch: pytest.MonkeyPatch) -> None:
    """As before."""
    look = Device.look

    def keep(self: Device, *arguments: Callable[[], float]) -> object:
        with self._file.transaction():
            self._days.reach()
        return look(self, *arguments)

    patch.setattr(Device, "look", keep)


def refund_what_a_false_future_cost(patch: pytest.MonkeyPatch) -> None:
    fall_back = Days._fall_back

    def refund(self: Days) -> None:
        fall_back(self)
        self._file.execute("UPDATE metric SET spent = 0")

    patch.setattr(Days, "_fall_back", refund)


def see_no_clock_but_at_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "see_clock", lambda self: None)
    patch.setattr(Outbox, "notice_clock", lambda self: None)


BUGS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    go_by_a_servers_date_alone: "the day reached went from|fell back from|was reached by nothing",
    fall_back_on_any_receipt: "fell back from .* after 0 silent days",
    fall_back_at_once: "fell back from .* after 0 silent days",
    forget_used_periods: "answered twice in a period|had two reports charged",
    keep_the_latest_period_alone: "answered twice in a period|had two reports charged",
    take_all_days_before_for_used: "was not answered on day",
    reach_a_day_by_a_look: "was reached by nothing",
    refund_what_a_false_future_cost: "was refreshed",
    see_no_clock_but_at_attempts: "counted twice",
}


FIRST_LIVES: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    go_by_a_servers_date_alone: 2,
    fall_back_on_any_receipt: 28,
    fall_back_at_once: 2,
    forget_used_periods: 1,
    see_no_clock_but_at_attempts: 323,
    keep_the_latest_period_alone: 210,
    refund_what_a_false_future_cost: 1,
    take_all_days_before_for_used: 18,
}
"""The life that shows a bug, soonest: to begin with it saves those before it."""
LIVES_MAX = 1_000


@pytest.mark.parametrize("bug", thinned([*BUGS], 0, 3, 6, 7), ids=lambda bug: bug.__name__)
def test_a_life_to_and_fro_shows_a_planted_bug(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=BUGS[bug]):
        live_on(FIRST_LIVES.get(bug, 0))


def live_on(first: int) -> None:
    for seed in range(first, first + LIVES_MAX):
        live_to_and_fro(seed)
