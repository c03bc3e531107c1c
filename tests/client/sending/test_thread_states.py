import pytest

from dither.device import Look
from dither.sending.upload_thread import TABLE, Situation, State, state_of

NOW = 1_000.0
LATER, EARLIER = NOW + 60, NOW - 60


def look(
    when: float | None = EARLIER, *, due: bool = True, held_until: float = 0.0, midnight: float | None = None
) -> Look:
    return Look(when, due, held_until, "", midnight)


@pytest.mark.parametrize(
    ("state", "situation"),
    [
        (State.CLOSED, Situation(closed=True, forking=True, stopped=True, look=look())),
        (State.FORKING, Situation(forking=True, stopped=True, look=look())),
        (State.STOPPED, Situation(stopped=True, flushing=True, look=look())),
        (State.DONE, Situation(stopped=True, hidden=True, look=look(), now=NOW)),
        (State.MUTE, Situation(stopped=True, hidden=True, flushing=True, look=look(midnight=LATER), now=NOW)),
        (State.SETTLING, Situation(settle_s=0.5, look=look(), now=NOW)),
        (State.SENDING, Situation(settle_s=0.5, flushing=True, look=look(), now=NOW)),
        (State.PAUSING, Situation(pause_s=0.5, flushing=True, look=look(), now=NOW)),
        (State.TIDYING, Situation(look=look(), untidy=True, flushing=True, now=NOW)),
        (State.DONE, Situation(look=look(None, due=False), flushing=True, now=NOW)),
        (State.RESTING, Situation(look=look(LATER, due=False), flushing=True, now=NOW)),
        (State.HELD, Situation(look=look(LATER, held_until=LATER), flushing=True, now=NOW)),
        (State.WAITING, Situation(look=look(LATER), now=NOW)),
        (State.WAITING, Situation(look=look(LATER, midnight=EARLIER), now=NOW)),
        (State.SENDING, Situation(look=look(LATER), flushing=True, now=NOW)),
        (State.SENDING, Situation(look=look(EARLIER), now=NOW)),
    ],
)
def test_a_situation_has_one_state(state: State, situation: Situation) -> None:
    assert state_of(situation) is state


def test_every_state_has_its_row() -> None:
    assert list(TABLE) == list(State)


def test_a_thread_that_goes_on_waits_or_sends_and_never_spins() -> None:
    situation = Situation(settle_s=1.0, pause_s=2.0, look=look(LATER, midnight=LATER - 10), now=NOW)
    waits = {state: rule.wait_s(situation) for state, rule in TABLE.items() if not rule.ends}
    assert waits.pop(State.SENDING) == waits.pop(State.TIDYING) == 0  # they take their time
    assert waits == {
        State.SETTLING: 1.0,
        State.PAUSING: 2.0,
        State.MUTE: 50.0,
        State.RESTING: 60.0,
        State.HELD: 50.0,
        State.WAITING: 50.0,
    }
