"""Lives with a clock that goes to and fro, a hostile server, captive portals, kills and forgetting.

`live_to_and_fro` sets the clock right at the end, and sees that the devices speak within the silent days. `Pair` and
its witnesses see after every step that no period had two reports charged, no budget was exceeded, no report was counted
twice, nothing depends on a hidden answer, and the day reached moved by a use or a charge, or back to the clock's day by
a receipt that agrees with the clock, or by the silent days: by nothing else that a server says.
"""

from collections import Counter
from collections.abc import Callable

import pytest

import dither.device.slots
from dither.device import Device, reached
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from tests.faults.schedules import live_to_and_fro
from tests.support.soaking import SOAK

pytestmark = pytest.mark.slow

PARTS = [range(first, first + 500) for first in range(0, 10_000, 500)] if SOAK else [range(50, 90)]
"""Lives: 10,000 in a soak. In `make test` forty, of which each bug below spoils at least one."""


@pytest.mark.parametrize("lives", PARTS, ids=str)
def test_no_clock_answers_a_period_twice_exceeds_a_budget_or_silences_a_device_for_long(lives: range) -> None:
    said: Counter[str] = Counter()
    for seed in lives:
        said += live_to_and_fro(seed)
    assert said.keys() >= {"", "answered", "clock-behind", "expired", "forgotten", "quiet", "spent", "waiting"}


# Bugs that such a life does not survive.


def go_by_a_servers_date_alone(patch: pytest.MonkeyPatch) -> None:
    def go(file: DeviceFile, date: float | None) -> None:
        if date is not None:
            file.set("last_day", int(date // 86_400))

    patch.setattr(reached, "agree", go)


def fall_back_on_any_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reached, "agree", lambda file, date: reached._fall_back(file))


def fall_back_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reached, "SILENT_DAYS", 0)


def forget_used_periods(patch: pytest.MonkeyPatch) -> None:
    fall_back = reached._fall_back

    def forget(file: DeviceFile) -> None:
        fall_back(file)
        file.execute("DELETE FROM used WHERE until > ?", file.clock_day())

    patch.setattr(reached, "_fall_back", forget)


def keep_the_latest_period_alone(patch: pytest.MonkeyPatch) -> None:
    use = reached.use

    def keep(file: DeviceFile, metric: str, first: int, until: int) -> None:
        file.execute("DELETE FROM used WHERE metric = ?", metric)
        use(file, metric, first, until)

    patch.setattr(dither.device.slots, "use", keep)


def take_all_days_before_for_used(patch: pytest.MonkeyPatch) -> None:
    """As before."""
    use = reached.use
    patch.setattr(dither.device.slots, "use", lambda file, metric, first, until: use(file, metric, 0, until))


def reach_a_day_by_a_look(patch: pytest.MonkeyPatch) -> None:
    """As before."""
    look = Device.look

    def keep(self: Device, *arguments: Callable[[], float]) -> object:
        with self._file.transaction():
            reached.reach(self._file)
        return look(self, *arguments)

    patch.setattr(Device, "look", keep)


def refund_what_a_false_future_cost(patch: pytest.MonkeyPatch) -> None:
    fall_back = reached._fall_back

    def refund(file: DeviceFile) -> None:
        fall_back(file)
        file.execute("UPDATE metric SET spent = 0")

    patch.setattr(reached, "_fall_back", refund)


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
    see_no_clock_but_at_attempts: 84,
    keep_the_latest_period_alone: 53,
    take_all_days_before_for_used: 8,
}
"""The life that shows a bug, where it is none of the first: to begin with it saves those before it."""
LIVES_MAX = 1_000


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_life_to_and_fro_shows_a_planted_bug(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=BUGS[bug]):
        live_on(FIRST_LIVES.get(bug, 0))


def live_on(first: int) -> None:
    for seed in range(first, first + LIVES_MAX):
        live_to_and_fro(seed)
