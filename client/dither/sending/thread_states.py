"""The states of the sending thread, by what it finds when it looks: one enum with one table."""

from collections.abc import Callable
from enum import Enum
from math import inf

from dither.device import ERASE_AGAIN_S, Look
from dither_shared.frozen import frozen


class State(Enum):
    """The states of sending. `TABLE` says when each holds, and what it means."""

    CLOSED = "closed"
    FORKING = "forking"
    STOPPED = "stopped"
    SETTLING = "settling"
    PAUSING = "pausing"
    TIDYING = "tidying"
    DONE = "done"
    MUTE = "mute"
    RESTING = "resting"
    HELD = "held"
    WAITING = "waiting"
    SENDING = "sending"


@frozen
class Situation:
    """The facts that decide the state. Moments of the app's clock but for `pause_s`."""

    closed: bool = False
    """`close()` was called."""
    forking: bool = False
    """A fork of the host app has begun and is not over."""
    stopped: bool = False
    """The aggregator does not know the key: nothing is sent until the next start."""
    hidden: bool = False
    """There are hidden metrics: their periods open and close whether anything may be sent or not."""
    settle_s: float = 0.0
    """How long a forked child still does nothing, for it may be about to become another program."""
    pause_s: float = 0.0
    """How long to leave the file or the other process alone: a fault, or somebody else sends."""
    untidy: bool = False
    """Whether the device's log is long, or holds what was forgotten."""
    flushing: bool = False
    now: float = 0.0
    look: Look = Look(None, False, 0.0, "")


@frozen
class Rule:
    """A state's row of the table."""

    holds: Callable[[Situation], object]
    """Whether the state holds; the first row that holds counts."""
    ends: bool = False
    """Whether the thread ends."""
    answers: bool = False
    """Whether flushes return: all that can be done for them is done."""
    wait_s: Callable[[Situation], float] = lambda it: 0.0
    """How long the thread sleeps before it looks again, at most."""


def _until(it: Situation) -> float:
    return (it.look.when or 0.0) - it.now


def _until_midnight(it: Situation) -> float:
    return (it.look.midnight or 0.0) - it.now


def _until_first(it: Situation) -> float:
    return min(_until(it), _until_midnight(it)) if it.look.midnight else _until(it)


TABLE = {
    State.CLOSED: Rule(lambda it: it.closed, ends=True, answers=True),
    State.FORKING: Rule(lambda it: it.forking, ends=True),  # and is started again after it
    State.STOPPED: Rule(lambda it: it.stopped and not it.hidden, ends=True, answers=True),
    State.SETTLING: Rule(lambda it: it.settle_s > 0 and not it.flushing, wait_s=lambda it: it.settle_s),
    State.PAUSING: Rule(lambda it: it.pause_s > 0, wait_s=lambda it: it.pause_s),
    State.TIDYING: Rule(lambda it: it.untidy),
    State.DONE: Rule(lambda it: (it.look.midnight if it.stopped else it.look.when) is None, ends=True, answers=True),
    State.MUTE: Rule(  # it looks, erases, and does not send
        lambda it: it.stopped,
        answers=True,
        wait_s=lambda it: min(_until_midnight(it), ERASE_AGAIN_S if it.look.untidy else inf),
    ),
    State.RESTING: Rule(lambda it: not it.look.due, answers=True, wait_s=_until),
    State.HELD: Rule(lambda it: it.look.held_until > it.now, answers=True, wait_s=_until_first),
    State.WAITING: Rule(lambda it: _until(it) > 0 and not it.flushing, wait_s=_until_first),
    State.SENDING: Rule(lambda it: True),
}


def state_of(situation: Situation) -> State:
    """Return the state that a situation is in."""
    return next(state for state, rule in TABLE.items() if rule.holds(situation))
