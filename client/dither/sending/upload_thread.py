"""The uploader: a daemon thread that looks, and then waits or sends; it ends when there is nothing to wait for.

Calls of the app and its forks ask it: to look, to send at a planned moment, or at once in a flush. First its states, by
what it finds when it looks; then one attempt to send; then the thread.

The process that sends is the one that holds a lock, which ends with its process, however that ends. It is on a file of
its own, beside the device's: closing any descriptor of the database would take away SQLite's locks on it. On a file
system without locks a lease in the device's file stands in, which ends after two minutes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from enum import Enum
from math import inf

from dither import app_process
from dither.app_process import DEBUG, WARNING, say
from dither.device import DAY_S, ERASE_AGAIN_S, BuiltUpload, Device, DeviceFault, DeviceUnusable, Look
from dither.device.file import DURABLE_WAIT_S, WAIT_S, left_s, within
from dither.device.outbox import NO_ANSWER_YET
from dither.device.schema import SENDER_NAME
from dither.sending.transport import Answer, Outcome, Transport
from dither.status import CLOSED
from dither_shared.errors import DitherError
from dither_shared.files import NO_LINK
from dither_shared.frozen import frozen, replaced
from dither_shared.rng import jitter

# The states of the thread.


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


# One attempt.

BACKOFF_S = 60.0
BACKOFF_MAX_S = 6 * 3_600.0
BUSY = "another process is sending"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP})
_HELD = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class TakenBack(DitherError):
    """The upload must not leave: it was dropped while the connection was made, or no longer fits the budget."""


class Sender:
    """Sends what a device has built, one upload at a time, on the thread that asks."""

    def __init__(self, device: Device, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._lock = SenderLock(device)
        self._present: BuiltUpload | None = None  # whose answer is waited for
        self._answering = threading.Lock()  # around what is done on the word that there is no answer yet
        self.sent = 0
        """Reports that the aggregator has acknowledged."""
        self.detail = ""
        """Why the latest attempt was not accepted, or not all of it; "" if it was."""
        self.elsewhere = False
        """Whether another process was sending at the latest attempt."""
        self.held = False
        """Whether flushes, too, leave it alone for now, since the latest attempt."""

    def attempt(self) -> Outcome | None:
        """Send one upload, act on the answer and return what it was.

        None where nothing was sent: there is nothing to send, or another process is at it, as `detail` says then.
        """
        self.elsewhere = not self._lock.take()
        if self.elsewhere:
            self.detail = BUSY
            return None
        try:
            upload = self._device.next_upload()
            if upload is None:
                return None
            self._present = upload
            answer = self._transport.post(upload.id, upload.body, lambda: self._charge(upload.id))
            with self._answering:
                self._present = None
            say(DEBUG, "an upload of %d report%s: %s", upload.reports, "s" * (upload.reports != 1), answer.detail)
            whole = answer.outcome is Outcome.ACCEPTED and not (answer.rejected or answer.dry)
            self.detail = "" if whole else answer.detail
            self._act(upload, answer)
        except TakenBack:
            return None
        else:
            return answer.outcome
        finally:
            self._present = None
            self._lock.release()

    def _charge(self, upload_id: str) -> None:
        if not self._device.charge(upload_id):
            raise TakenBack

    def _act(self, upload: BuiltUpload, answer: Answer) -> None:
        device, outcome = self._device, answer.outcome
        if outcome is Outcome.KEPT:
            self._put_off(upload, answer)
        elif outcome is Outcome.STOPPED:
            device.stopped(answer.detail)
        elif outcome is not Outcome.TOO_LARGE:
            settled = device.settle(
                upload.id, outcome.value, answer.detail, answer.rejected, answer.retired, answer.date
            )
            self.sent += settled if outcome is Outcome.ACCEPTED else 0
        elif not device.split(upload.id, answer.detail):
            device.settle(upload.id, Outcome.DROPPED.value, answer.detail)

    def _put_off(self, upload: BuiltUpload, answer: Answer) -> None:
        not_before = self._clock() + answer.retry_after_s
        when = not_before + _backoff_s(upload)
        # Flushes, too, leave alone a server that certainly cannot be reached: those of other processes as well.
        held_until = not_before if answer.retry_after_s else None if answer.connected else when
        self.held = held_until is not None
        if self._device.put_off(upload.id, answer.detail, when, held_until):
            say(WARNING, "telemetry could not send for an hour: %s", answer.detail)

    @property
    def busy(self) -> bool:
        """Whether an attempt waits for its answer."""
        return self._present is not None

    def let_go(self) -> None:
        """Let other processes send, though an attempt may wait for its answer: what they send has the same id."""
        self._lock.release()

    def forget_attempt(self) -> None:
        """Take note, in a forked child, that an attempt is the parent's."""
        self._present = None
        self._answering = threading.Lock()

    def put_off_present(self) -> None:
        """Let flushes of further processes leave the server alone for a while, if the present attempt has no answer.

        An answer that comes meanwhile counts after it, and lifts it.
        """
        answering = self._answering
        if not answering.acquire(timeout=left_s(DURABLE_WAIT_S)):
            return
        try:
            if self._present is not None:
                self._device.hold(self._clock() + _backoff_s(self._present))
        finally:
            answering.release()


def _backoff_s(upload: BuiltUpload) -> float:
    return jitter(min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(upload.failures + 1, 20)))


class SenderLock:
    """The lock of one telemetry object; also two in one process keep each other out. A device in memory needs none."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._path = f"{device.directory}/{SENDER_NAME}" if device.directory else ""
        self._descriptor = -1
        self._leased = False
        app_process.files.add(self)

    def take(self) -> bool:
        """Take the lock and return True, or False if somebody else has it.

        Raises OSError where there are no file descriptors left, or what the device raises for its lease.
        """
        if not self._path:
            return True
        # On the file that has that name by now: what is not inherited by programs that the app starts.
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | NO_LINK | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                self._leased = self._device.lease()
                return self._leased
            if error.errno in _HELD:
                return False
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let others send."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._leased:
            self._leased = False
            self._device.release()

    # Around a fork: the child has a copy of the descriptor, and with it would hold the lock after its parent's end.

    def before_fork(self) -> None:
        """Do nothing: the parent goes on."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_patch(self) -> None:
        """Do nothing: it is the system's lock."""

    def after_fork_in_child(self) -> None:
        """Close the child's copy. The parent's lock stays, and so does its lease."""
        descriptor, self._descriptor, self._leased = self._descriptor, -1, False
        if descriptor >= 0:
            os.close(descriptor)


# The thread.

SEND_WITHIN_S = 3_600.0
"""A report leaves at a random moment of the hour after it was recorded, or after its hidden period has closed."""
PAUSE_S = 0.25
PAUSE_MAX_S = 5.0
"""The longest pause while another process sends, or in a flush."""
FAULT_PAUSE_MAX_S = 6 * 3_600.0
LOOK_AGAIN_S = 3_600.0
"""The longest that the thread sleeps without a look: the clock may be set."""
CLOCK_EVERY_S = 60.0
"""So often it compares the clock where presence is hidden: a suspended machine's sleeps go on when it wakes up."""
LOG_BYTES_MAX = 512 * 1_024
"""A longer log is written into the device's file."""
TIDY_AGAIN_S = 5.0
"""How long until that is tried again, where another process was in the way."""
FLUSH_MAX_S = 3_600.0
NO_THREAD = (
    "no thread can be started now, as while the program ends: it is tried again at the next answer, flush or start"
)
ANOTHER_DAY = "a report of the metric has left today: the next one waits for another day"
SETTLE_S = 1.0
"""So long a forked child does nothing by itself: it may be about to become another program."""
FLUSH_LOOKS_EVERY_S = 0.25
"""A fork that cannot have the lock wakes nobody: a flush looks again by itself."""
WAKE_WAIT_S = 5.0
"""The longest that a call waits for the thread to have looked, where nothing else bounds it."""
FORK_WAIT_S = 0.05
"""The longest that a fork of the host app waits for the thread to end."""
LOG_BYTES_HURRY = 768 * 1_024
"""Above this, who records waits until the thread has written the log into the file, but for HURRY_WAIT_S at most."""
MEASURE_EVERY = 16
"""After so many answers the log is measured: one adds a few KiB."""
HURRY_STEP_S, HURRY_WAIT_S = 0.001, 0.1


@frozen
class FlushResult:
    """The outcome for the reports that waited."""

    sent: int
    """Reports that the aggregator acknowledged during the flush; in a dry run, those that were shown."""
    waiting: int
    """Reports still on the device: they are sent later, or by the next start. 0 where it was closed meanwhile."""
    detail: str
    """Why the last attempt was not accepted, or not all of it, or that it still goes on; "" if it was."""


def delay() -> float:
    """Return after how many seconds something leaves for which nothing was planned yet."""
    return jitter(SEND_WITHIN_S)


def passes(error: Exception) -> bool:
    """Tell whether a fault of the file may be over the next time."""
    return isinstance(error, DeviceFault) or not isinstance(error, DeviceUnusable)


class Uploader:
    """The sending thread of one telemetry object. Nothing that it does depends on an answer to a hidden metric.

    `begin` opens the device: it may fail and is tried again. It returns whether there is anything to do, or None where
    that is to erase what was forgotten and nothing else.

    A fork of the host app ends the thread if it only waits, so that the app forks with no thread of ours; where
    presence is hidden it goes on in either process, else with the next call.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport,
        begin: Callable[[], bool | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._device = device
        self._transport = transport
        self._begin = begin
        self._clock = clock
        self._sender = Sender(device, transport, clock)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._situation = Situation(hidden=device.hidden)
        self._begun = False
        self._flushes: list[float] = []  # until when each goes on, by time.monotonic
        self._asked = self._looked = self._answered = 0  # flushes: begun, seen by the thread, done as far as can be
        self._settled = self._paused = self._tidied = 0.0  # until when, by time.monotonic
        self._pauses = self._faults = 0  # in a row: while another process sends, or in a flush; of the file
        self._rests = True  # the thread may have found nothing to send
        self._called = False  # somebody has asked for a look since the last one began
        self._looking = False  # the thread is in the middle of one
        self._news = False  # an answer was taken since the last one began
        self._shortened_on = -1  # the day on which the log was last shortened before a look
        self._forks = 0  # that have begun and are not over
        self._answered_open = 0  # flushes that were done when it was closed: later ones were cut short
        self._unmeasured = 0  # answers that were taken since the log was measured
        self.wakes = False
        """Whether a fork has ended the thread, or none could be started: the next call should start it."""
        app_process.senders.add(self)

    # Requests of the app.

    def start(self) -> None:
        """Take note of the registry and of what today opens; start the thread if there is anything to wait for."""
        try:
            self._begun = False  # the person may have agreed to more, or the app started again
            begun = self._begin_once()
            waits = begun is None or (begun and self._device.look(delay).when is not None)
        except Exception as error:
            if not passes(error):
                raise
            waits = True  # the thread looks again
        if waits or self._has_long_log():
            self.wake()

    def recorded(self) -> None:
        """Let the thread know of a public answer that was taken. A hidden one leaves no trace here.

        A thread in the middle of a look is not waited for: it sees afterwards that there was an answer.
        """
        self._news = True  # first: a look that is over by the next line has seen it, or has left `_rests`
        if not self._looking and (self._rests or self._thread is None):
            self.wake()
        self._unmeasured += 1
        if self._unmeasured >= MEASURE_EVERY and not self._situation.hidden:
            self._unmeasured = 0
            self._shorten_log()

    def _shorten_log(self) -> None:
        """Have a log that has become long written into the file, and wait a little where it still grows."""
        log_bytes = self._device.log_bytes()
        if log_bytes > LOG_BYTES_MAX:
            self._tidy_soon()
        waited_s = 0.0
        while log_bytes > LOG_BYTES_HURRY and waited_s < left_s(HURRY_WAIT_S):
            time.sleep(HURRY_STEP_S)
            waited_s += HURRY_STEP_S
            log_bytes = self._device.log_bytes()

    def wake(self) -> None:
        """Let the thread look."""
        self._called = True  # it looks once more where it has the lock for too long
        changed = self._changed
        if changed.acquire(blocking=False) or changed.acquire(timeout=left_s(WAKE_WAIT_S)):
            self.wakes = not self._start_thread() or self._forks > 0
            changed.release()

    def flush(self, timeout_s: float) -> FlushResult:
        """Send what waits now; return when all of it is answered for, it stops or is closed, or time is up."""
        timeout_s = min(timeout_s, FLUSH_MAX_S) if timeout_s > 0 else 0.0  # NaN is not above 0 either
        until = time.monotonic() + timeout_s
        if not self._changed.acquire(timeout=left_s(FLUSH_MAX_S)):
            return FlushResult(0, self._device.waiting(), NO_ANSWER_YET)
        try:
            sent_before = self._sender.sent
            self._flushes.append(until)
            self._pauses, self._faults, self._paused = 0, 0, 0.0
            try:
                if not self._situation.stopped:
                    self._sender.detail = ""
                self._asked += 1
                mine = self._asked
                if not self._start_thread():
                    self._sender.detail = NO_THREAD
                    self._device.look(delay)
                while not (done := self._over(mine)) and (rest_s := until - time.monotonic()) > 0:
                    self._changed.wait(min(rest_s, FLUSH_LOOKS_EVERY_S))
            finally:
                self._flushes.remove(until)
            cut_short = self._situation.closed and mine > self._answered_open
            detail = CLOSED if cut_short else self._sender.detail or ("" if done else NO_ANSWER_YET)
            alone = not self._flushing()
        finally:
            self._changed.release()
        if not done and alone:
            with suppress(Exception):
                self._sender.put_off_present()
        try:
            waiting = self._device.waiting()
        except DeviceUnusable:
            if not self._situation.closed:
                raise
            waiting = 0
        return FlushResult(self._sender.sent - sent_before, waiting, detail)

    def _over(self, flush: int) -> bool:
        """Tell whether a flush is over. Start the thread again if a fork, and nothing else, has ended it."""
        if self._situation.closed or self._answered >= flush:
            return True
        if self._thread is None:
            self._start_thread()
        return self._thread is None and not self._forks

    def close(self) -> None:
        """End the thread and close the device, without waiting for the network. Flushes that wait return.

        A thread in the middle of a request closes the device itself when the request is over.
        """
        changed = self._changed
        free = changed.acquire(timeout=left_s(WAKE_WAIT_S))  # else the thread is in the middle of a look, and finds it
        if not self._situation.closed:
            self._answered_open = self._answered
            self._set(closed=True)
            if self._thread is None:
                self._device.close()
            else:
                self._sender.let_go()
        if free:
            changed.notify_all()
            changed.release()
        app_process.senders.discard(self)

    def _tidy_soon(self) -> None:
        """Have the log written into the file: by the thread, or beside it while it waits for a server's answer."""
        if self._sender.busy:
            self.tidy_beside()
        else:
            self.wake()

    def tidy_beside(self) -> None:
        """Have the log written into the file by another thread than the one that looks and sends."""
        with suppress(RuntimeError):  # none can be started now
            threading.Thread(target=self._tidy, name="dither-uploader", daemon=True).start()

    # The thread.

    def _set(self, **facts: object) -> None:
        self._situation = replaced(self._situation, **facts)

    def _start_thread(self) -> bool:
        """Start the thread, or let the one there is look again; return False where none can be started now."""
        ended = self._situation.closed or (self._situation.stopped and not self._situation.hidden)
        if self._thread is None and not (ended or self._forks or app_process.comes_untold()):
            thread = threading.Thread(target=self._run, name="dither-uploader", daemon=True)
            try:
                thread.start()  # it waits for the lock that we hold
            except RuntimeError:
                return False
            self._thread = thread
        self._changed.notify_all()
        return True

    def _begin_once(self) -> bool | None:
        """Open the device, if it is not open yet; return what `begin` did."""
        begun = self._begun or self._begin()
        self._begun = bool(begun)
        return begun

    def _run(self) -> None:
        changed = self._changed
        while (state := self._turn(changed)) is not None:
            if state is State.SENDING:
                self._send()
            elif state is State.TIDYING:
                self._tidy()

    def _turn(self, changed: threading.Condition) -> State | None:
        """Look; then wait, or return that it is time to send, or end the thread and return None.

        Both under one lock, so that whoever records meanwhile finds either a thread that looks again or none.
        """
        with changed:
            if changed is not self._changed:
                return None  # another thread goes on, of the kind that the app has by now
            self._looked = self._asked
            self._looking, self._news = True, False
            looked = self._clock()  # before the look: a midnight that comes in the middle of it is not slept over
            try:
                with self._in_time():
                    state, wait_s = self.decide()
            except Exception as error:
                if not passes(error):
                    self._sender.detail = str(error)
                    self._answered = self._looked
                    self._end()
                    return None
                self._bear(error)
                state, wait_s = State.PAUSING, 0.0
            finally:
                self._looking = False
            if (self._called or (self._news and self._rests)) and state is not State.CLOSED:
                return State.PAUSING  # that is, look again
            rule = TABLE[state]
            if rule.answers:
                self._answered = self._looked
                self._changed.notify_all()
            if rule.ends:
                self._end()
                return None
            self._sleep(wait_s, looked)
            return state

    def _in_time(self) -> AbstractContextManager[None]:
        """Let a look be over when the first flush is: it needs the lock to return."""
        return within(max(0.0, min(self._flushes) - time.monotonic()) + WAIT_S / 2) if self._flushes else nullcontext()

    def _sleep(self, seconds: float, now: float) -> None:
        """Wait until it is time to look again, or somebody asks for it; `now` is by the clock of the last look.

        With hidden presence the time by the clock counts: nobody else looks when a suspend ends, or the day, or when
        the clock is set back.
        """
        changed = self._changed
        left_s = min(seconds, LOOK_AGAIN_S)
        until = min(now + seconds, (now // DAY_S + 1) * DAY_S)
        while left_s > 0:
            step_s = min(left_s, CLOCK_EVERY_S) if self._situation.hidden else left_s
            if changed.wait(step_s) or changed is not self._changed or not now <= self._clock() < until:
                return
            left_s -= step_s

    def decide(self) -> tuple[State, float]:
        """Look, and return the state that sending is in, with the seconds after which to look again."""
        # Before the look: what is recorded after it finds this, and wakes the thread.
        self._rests, self._called = True, False
        now = time.monotonic()
        situation = replaced(
            self._situation,
            forking=self._forks > 0,
            settle_s=self._settled - now,
            pause_s=self._paused - now,
            flushing=self._flushing(),
            now=self._clock(),
        )
        state = state_of(situation)
        if state is State.DONE:  # as far as can be told without a look
            begun = self._begin_once()
            if begun is None:
                situation = replaced(situation, untidy=True, pause_s=self._tidied - now)
                state = state_of(situation)
            elif begun and self._shortens_first():
                return State.TIDYING, 0.0
            elif begun:
                look = self._device.look(delay)
                untidy = now > self._tidied and (look.untidy or self._has_long_log())
                situation = replaced(situation, look=look, untidy=untidy)
                state = state_of(situation)
            self._explain(situation, state)
            self._rests = state in (State.DONE, State.RESTING)
            if state is not State.SENDING:
                self._faults = 0
        return state, TABLE[state].wait_s(situation)

    def _shortens_first(self) -> bool:
        """Tell whether to shorten the log before a day's first look: answers to hidden metrics have lengthened it.

        Else a look might not find the room on the disk that it finds where there were no answers.
        """
        day = int(self._clock() // DAY_S)
        due = self._situation.hidden and self._shortened_on != day and self._device.log_bytes() > 0
        self._shortened_on = day
        return due

    def _has_long_log(self) -> bool:
        """Tell whether the log is to be shortened for its length: of hidden metrics that depends on their answers."""
        return not self._situation.hidden and self._device.log_bytes() > LOG_BYTES_MAX

    def _explain(self, situation: Situation, state: State) -> None:
        """Let flushes say why nothing is sent."""
        if state is State.HELD and not self._sender.detail:
            self._sender.detail = situation.look.outcome
        elif situation.look.another_day and not self._sender.detail:
            self._sender.detail = ANOTHER_DAY
        elif not situation.look.due and (self._sender.elsewhere or self._faults):
            self._sender.detail = (
                ""  # that process has sent everything, or the fault is over and there is nothing to send
            )

    def _send(self) -> None:
        """Make one attempt, unless another process is at it."""
        try:
            outcome = self._sender.attempt()
        except Exception as error:
            with self._changed:
                self._bear(error)
            return
        with self._changed:
            self._faults = 0
            if outcome is Outcome.STOPPED:
                self._set(stopped=True)
            elif outcome is None or (outcome is Outcome.KEPT and self._flushing() and not self._sender.held):
                self._pauses += 1
                self._pause(PAUSE_MAX_S, self._pauses)
            else:
                self._pauses = 0
        if outcome is Outcome.STOPPED:  # not under the lock, which a fork needs: the host's handlers may wait for it
            say(WARNING, "telemetry stopped sending: %s", self._sender.detail)

    def _tidy(self) -> None:
        """Write the log into the file: beside the app's calls, which do not wait for it."""
        try:
            done = self._device.tidy()
        except Exception as error:
            done = False
            say(DEBUG, "the log is not written into the file yet: %s", type(error).__name__)
        with self._changed:
            self._tidied = 0.0 if done else time.monotonic() + TIDY_AGAIN_S

    def _end(self) -> None:
        self._thread = None
        self._rests = True
        self._transport.idle()
        if self._situation.closed:
            self._device.close()
        self._changed.notify_all()

    def _flushing(self) -> bool:
        return any(time.monotonic() < until for until in self._flushes)

    def _bear(self, error: Exception) -> None:
        """Look again ever more seldom after a fault of the file; what waits stays there.

        A flush goes on where another process has the file, and ends where it would have to wait for room on the disk.
        """
        self._sender.detail = f"failed ({type(error).__name__})"
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF != sqlite3.SQLITE_BUSY:
            self._answered = self._looked
            self._changed.notify_all()
        self._shortened_on = -1  # the look may have had no room
        self._faults += 1
        # Periods open and close meanwhile, if anything of the file can be used.
        self._pause(CLOCK_EVERY_S if self._situation.hidden else FAULT_PAUSE_MAX_S, self._faults)

    def _pause(self, longest_s: float, times: int) -> None:
        """Leave it alone for a random while that doubles each time, and is shorter in a flush."""
        most_s = min(PAUSE_MAX_S if self._flushing() else longest_s, PAUSE_S * 2.0 ** min(times, 20))
        self._paused = time.monotonic() + jitter(most_s)

    # Around a fork.

    def before_fork(self) -> None:
        """Let the thread end if it only waits."""
        if self._changed.acquire(timeout=FORK_WAIT_S):
            self._forks += 1
            self.wakes = True
            self._changed.notify_all()
            thread = self._thread
            self._changed.wait_for(lambda: self._thread is None, FORK_WAIT_S)
            if thread is not None and self._thread is None:
                thread.join(FORK_WAIT_S)  # what is said to be over may still have a few steps to go
            self._changed.release()

    def after_fork_in_parent(self) -> None:
        """Go on, by itself where presence is hidden."""
        self._forks = max(0, self._forks - 1)
        if self._changed.acquire(timeout=FORK_WAIT_S):  # else somebody has it, who looks
            if self._device.hidden or self._flushing():
                self._start_thread()
            self._changed.release()

    def after_patch(self) -> None:
        """Have a lock and a thread of the new kind. The present one ends at its next turn; it may be in a request."""
        changed = self._changed
        if changed.acquire(timeout=FORK_WAIT_S):
            self._changed = threading.Condition()
            self._thread = None
            self._looking = False
            self._sender.forget_attempt()
            self.wakes = True
            changed.notify_all()
            changed.release()

    def after_fork_in_child(self) -> None:
        """Go on, by itself where presence is hidden: whether the app calls may depend on an answer."""
        self._changed = threading.Condition()
        self._thread = None
        self._looking = False
        self._flushes = []
        self._rests = True
        self._forks = 0
        self._pauses, self._faults, self._paused = 0, 0, 0.0
        self._sender.forget_attempt()
        self.wakes = True
        self._settled = time.monotonic() + SETTLE_S
        if self._device.hidden:
            self._start_thread()
