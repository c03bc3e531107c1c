"""The telemetry object that a host app holds, with a handle for each metric. No fault in here reaches the app."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from time import perf_counter_ns
from weakref import WeakSet

from dither import app_process
from dither.app_process import DEBUG, WARNING, say
from dither.device import Device, DeviceBusy, DeviceUnusable
from dither.device.file import WAIT_S, within
from dither.device.recording import NEXT_STEPS, UNUSED
from dither.sending.upload_thread import FlushResult, Uploader, delay
from dither.session import CATCH_UP_EVERY_S, Session, Settings
from dither.status import Mode, Preview, Standing, Status, describe_error, nothing_sent, status_of
from dither_shared.domains import OTHER
from dither_shared.errors import ConfigurationError, InvalidAnswer
from dither_shared.exact import from_micro
from dither_shared.frozen import replaced
from dither_shared.installed import Installed
from dither_shared.light_typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, cast
from dither_shared.registry import Metric

if TYPE_CHECKING:
    from dither.terms_sentences import Sentence


P = ParamSpec("P")
T = TypeVar("T")


class Handle:
    """One metric of the telemetry object."""

    def __init__(self, metric: Metric, record: Callable[[Metric, object], None]) -> None:
        self.metric = metric
        self._record = record


class OwnUse(Handle):
    """A metric that the device answers by itself, of its own use: there is nothing to record.

    `telemetry.active()`, any call that records an answer, and `telemetry.session()` are what it measures.
    """

    def record(self, answer: NoReturn) -> None:
        """Say that there is nothing to record; strict telemetry raises InvalidAnswer."""
        self._record(self.metric, answer)


class Flag(Handle):
    """A yes-or-no question, answered with True or False; anything else, None included, is read as False.

    Use for a setting that is on or off. Do not use for events: a device answers once in a period. A metric that must
    tell "no answer" apart is a choice.

        telemetry.dark_mode.record(True)
    """

    def record(self, answer: bool) -> None:
        """Randomize True or False, numpy's too, and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choice(Handle):
    """One of the listed values; whatever is not listed is "other".

    Use for a question with known answers. Do not use for free text: everything would be "other".

        telemetry.browser.record("Firefox 158")
    """

    def record(self, answer: str) -> None:
        """Randomize the answer and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choices(Handle):
    """Several of the listed values; whatever is not listed is "other".

    Use for a question with several answers at once. Do not use for more ticks than `ticks_max`: of those the first
    listed count.

        telemetry.languages.record(["Python", "Rust"])
    """

    def record(self, answer: Collection[str]) -> None:
        """Randomize the list, tuple or set of answers, and keep the report to send. Never raises."""
        self._record(self.metric, answer)


class Text(Handle):
    """A word that nobody can list beforehand, up to 200 characters.

    Use for short texts that many devices share. Do not use for names or sentences: what is rare is not found.

        telemetry.homepage.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize the text and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Words(Handle):
    """A word that nobody knows beforehand, up to 200 characters: the totals name those that many devices have.

    Use for short texts of which nobody has a list. Do not use where there is a list: as a text the same reports tell
    more.

        telemetry.search_engine.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize a part of the text's code and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Number(Handle):
    """A number in the metric's unit: how long, how large, how many. Anything but a number is "other", or the lowest.

    Use for times, sizes and counts. Do not use for numbers that stand for something: a number that says who is a name.

        telemetry.load_time.record(0.25)
    """

    def record(self, answer: float | Decimal | Fraction) -> None:
        """Randomize the number and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)

    def timing(self) -> Timing:
        """Return a context manager, which also decorates functions, `async` ones too: it records how long they take.

            with telemetry.load_time.timing():
                load()

        By a clock that only goes forward, also when they raise; of a generator, how long it takes to make it. Raises
        ConfigurationError where the unit is no time.
        """
        unit = self.metric.unit
        if unit not in NANOSECONDS:
            raise ConfigurationError(
                f"timing() is for metrics in one of {', '.join(NANOSECONDS)}: {self.metric.name} is in {unit!r}"
            )
        per_unit = NANOSECONDS[unit]
        return Timing(perf_counter_ns, lambda begun: self.record(Fraction(perf_counter_ns() - begun, per_unit)))


class Table(Handle):
    """Several short questions answered together: a dict of columns, each with a listed value or a number.

    Use to ask what goes with what, such as which version crashes. Do not use for questions of their own: asked
    together they share one epsilon, and each is told less precisely. An answer that is missing or not listed is that
    column's "other".

        telemetry.stability.record({"crashed": "yes", "version": "157"})
    """

    def record(self, answer: Mapping[str, object]) -> None:
        """Randomize the answers together and keep the one report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9
}  # fmt: skip
"""The nanoseconds of each unit of time, by its name in a registry."""


class Timing:
    """Times a `with` block, or a call of a decorated function, `async` or not. One may be used several times.

    `begin` returns what `end` is given, such as a moment.

    Blocks may lie within each other. A block in another thread or task needs a `timing()` of its own; a call does not.
    """

    def __init__(self, begin: Callable[[], int], end: Callable[[int], None]) -> None:
        self._begin = begin
        self._end = end
        self._begun: list[int] = []

    def __enter__(self) -> None:
        self._begun.append(self._begin())

    def __exit__(self, *raised: object) -> None:
        self._end(self._begun.pop())

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a function that does the same; each call is timed, of an `async` one until it has been awaited."""
        import inspect  # only where something is decorated

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def timed_until_awaited(*args: P.args, **kwargs: P.kwargs) -> object:
                begun = self._begin()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._end(begun)

            return cast("Callable[P, T]", timed_until_awaited)

        @wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            begun = self._begin()
            try:
                return function(*args, **kwargs)
            finally:
                self._end(begun)

        return timed


HANDLES = Installed[type[Handle]](
    "dither.handles",
    {handle.__name__.lower(): handle for handle in (Flag, Choice, Choices, Number, Table, Text, Words)},
)
"""The handle of each kind of metric."""


_UNMEASURED = -1
"""The beginning of a session that nobody had agreed to."""
LOOK_WITHIN_S = 1.0
"""The longest that `status()` and `preview()` wait for the file, all in all."""

_started_in: str | None = None
"""The working directory in which the program was started, as far as is known: relative paths of its command hold there.
"""
with suppress(OSError):  # there may be none
    _started_in = os.getcwd()

_made: WeakSet[Telemetry] = WeakSet()
"""Those that there are: a test's own stands in for them."""


class Telemetry:
    """An app's telemetry: an attribute for each metric of the registry. Made by `start()`.

    Nothing but asking for a metric that there is not raises, unless it is strict.
    """

    def __init__(self, settings: Settings) -> None:
        _made.add(self)
        self._settings = settings
        self._session = self._new_session(settings)
        self._failures: Counter[str] = Counter()
        self._warned: set[str] = set()
        metrics = settings.registry.metrics
        self._handles = {
            name: OwnUse(metric, self._nothing_to_record)
            if metric.measures
            else HANDLES[metric.kind.name](metric, self._record)
            for name, metric in metrics.items()
        }
        self._guarded(self._session.begin, self._session.fail if self._session.speaks else lambda error: None)

    def _new_session(self, settings: Settings) -> Session:
        return Session(settings)

    def __getattr__(self, name: str) -> Any:
        """Return the handle of a metric: a Flag, a Choice, Choices or a Text, as its kind says."""
        handles = self.__dict__.get("_handles", {})
        if name in handles:
            return handles[name]
        raise AttributeError(f"the registry has no metric {name!r}; it has {', '.join(handles)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._handles]

    # Beginning and ending.

    def __enter__(self) -> Self:
        """Return this object; the context's end closes it."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, without waiting for the network. The next start sends what waits in the device's file.

        A flush that waits in another thread or task returns at once.
        """
        self._session.close()
        self._guarded(self._session.end, lambda error: None)

    def _guarded(self, action: Callable[[], T], failed: Callable[[Exception], T]) -> T:
        """Return what `action` returns, or what `failed` makes of its error: the app must not notice."""
        try:
            app_process.notice()
            return action()
        except Exception as error:
            if self._settings.strict:
                raise
            return failed(error)

    # Recording and sending.

    def active(self) -> None:
        """Say that the device is used today: for what it measures of its days of use (`measures` in the registry).

        So does every call that records an answer, taken or not, unless its presence is hidden. Returns quickly and
        never raises.
        """
        with within(WAIT_S):
            speaking = self._speaking()
            if speaking:
                self._use(*speaking)

    def session(self) -> Timing:
        """Measure how long a block takes, a time of use, for each metric that measures `session_length`.

        It is a context manager that also decorates functions, `async` ones too. A block that begins before the person
        has agreed is not measured.
        """
        return Timing(self._begin_session, self._end_session)

    def _begin_session(self) -> int:
        self.active()
        return time.perf_counter_ns() if self._session.speaks else _UNMEASURED

    def _end_session(self, begun: int) -> None:
        taken = time.perf_counter_ns() - begun
        self.active()  # it may have lasted into another day
        for metric in self._settings.registry.metrics.values():
            if metric.measures == "session_length" and begun != _UNMEASURED:
                self._record(metric, Fraction(taken, NANOSECONDS[metric.unit]))

    def _nothing_to_record(self, metric: Metric, answer: object) -> None:
        """Say what to call in place of recording what the device measures."""
        words = f"{metric.name} is answered by the device itself: {NEXT_STEPS[UNUSED]}, and record nothing"
        if self._settings.strict:
            raise InvalidAnswer(words)
        say(WARNING, "%s", words)

    def _use(self, device: Device, uploader: Uploader) -> None:
        try:
            if device.use(delay):
                uploader.recorded()
        except Exception as error:
            self._failures["failed"] += 1
            say(DEBUG, "a day of use was not kept: %s", type(error).__name__)
            if self._settings.strict:
                raise

    def _record(self, metric: Metric, answer: object) -> None:
        if self._settings.strict:
            _check(metric, answer)
        elif self._settings.development and not metric.takes(answer):
            with suppress(Exception):  # of the answer's own methods
                say(WARNING, "%s: %s", metric.name, _becomes(metric, answer))
        with within(WAIT_S):
            if metric.hidden:
                self._replace(metric, answer)
                return
            app_process.notice()
            session = self._session
            device, uploader = session.device, session.uploader
            if session.standing.mode is not Mode.SPEAKS or device is None or uploader is None:
                speaking = self._speaking()
                if not speaking:
                    return
                device, uploader = speaking
            if device.measured:
                self._use(device, uploader)
            try:
                skip_reason = device.record(metric, answer, delay)
                if not (skip_reason or metric.takes(answer)):
                    self._note_unlisted(metric)
            except Exception as error:
                # The exception's text is not logged: it may come from the answer itself.
                self._failures["failed"] += 1
                say(DEBUG, "an answer to %s was not recorded: %s", metric.name, type(error).__name__)
                if self._settings.strict:
                    raise
                return
            if not skip_reason or uploader.wakes:
                try:
                    uploader.recorded()
                except Exception:  # the answer waits in the file, also if no thread can be started now
                    if self._settings.strict:
                        raise
            say(DEBUG, "%s: %s", metric.name, skip_reason or "recorded")

    def _speaking(self) -> tuple[Device, Uploader] | None:
        """Return the device and its uploader, or None where telemetry is silent."""
        app_process.notice()
        session = self._session
        if session.standing.mode is not Mode.SPEAKS or session.uploader is None:
            self._guarded(lambda: session.catch_up(CATCH_UP_EVERY_S), lambda error: None)
        device, uploader = session.device, session.uploader
        if device is not None and uploader is not None and session.standing.mode is Mode.SPEAKS:
            return device, uploader
        return None

    def _replace(self, metric: Metric, answer: object) -> None:
        """Put a hidden answer into its slot, if a look has opened one; count, log and wake nothing, whatever happens.

        Telemetry does not begin because of it either: that would tell that there is an answer.
        """
        session = self._session
        device = session.device if session.uploader else None
        if device is not None and session.standing.mode is Mode.SPEAKS:
            with suppress(DeviceUnusable, DeviceBusy, sqlite3.Error):  # strict telemetry raises what else goes wrong
                try:
                    device.record(metric, answer)
                except Exception:
                    if self._settings.strict:
                        raise

    def _note_unlisted(self, metric: Metric) -> None:
        self._failures["unlisted"] += 1
        if self._settings.development:  # which has said so
            return
        if (misread := metric.kind.misread(metric.asked.domain)) and metric.name not in self._warned:
            self._warned.add(metric.name)
            say(WARNING, "%s %s", metric.name, misread)

    def flush(self, timeout: float = 10.0) -> FlushResult:
        """Send what waits now instead of at its random moment; wait for at most `timeout` seconds.

        For tests, trials and short-lived programs. An app need not call it: what waits is sent by the next start. It
        returns at once where there certainly is no connection, and while the wait after such a failure lasts.
        """

        session = self._session

        def send() -> FlushResult:
            until = time.monotonic() + _seconds(timeout)
            with within(_seconds(timeout) + WAIT_S):
                self._guarded(session.catch_up, lambda error: None)
                uploader, standing = session.uploader, session.standing
                if uploader is None or standing.mode is not Mode.SPEAKS:
                    return FlushResult(0, 0, standing.silent)
                try:
                    result = uploader.flush(until - time.monotonic())
                    return result if result.sent or result.detail else self._with_reasons(result)
                except Exception:
                    if session.speaks:
                        raise
                    return FlushResult(0, 0, session.standing.silent)  # closed or refused: nothing has failed

        def failed(error: Exception) -> FlushResult:
            say(WARNING, "telemetry could not be flushed: %s", describe_error(error))
            return FlushResult(0, 0, describe_error(error))

        return self._guarded(send, failed)

    def _with_reasons(self, result: FlushResult) -> FlushResult:
        """Return the result of a flush that had nothing to send with the reasons, and the next steps."""
        device, metrics = self._session.device, self._settings.registry.metrics
        if device is None:
            return result
        hidden = [name for name, metric in metrics.items() if metric.hidden]
        own = [name for name, metric in metrics.items() if metric.measures]
        with suppress(Exception):  # the file cannot be looked into now: then nothing is said
            return replaced(result, detail=nothing_sent(device.skip_reasons(), hidden, own))
        return result

    async def flush_async(self, timeout: float = 10.0) -> FlushResult:
        """Do what `flush` does, on a thread of its own: the event loop goes on meanwhile.

        A task that is cancelled stops waiting; what was begun goes on for the rest of `timeout`, or until `close()`.
        """
        import asyncio  # an app that awaits this has it already; others need not wait for it
        from concurrent.futures import Future
        from contextvars import copy_context

        flushed: Future[FlushResult] = Future()
        flushed.set_running_or_notify_cancel()  # from here on a task that is cancelled leaves it to the thread

        def flush() -> None:
            try:
                flushed.set_result(self.flush(timeout))
            except BaseException as error:  # telemetry is strict; whatever it is, nobody is left waiting
                flushed.set_exception(error)

        try:
            # No thread of the loop's executor: asyncio waits for those at its end, however long a flush still takes.
            threading.Thread(target=copy_context().run, args=(flush,), name="dither-flush", daemon=True).start()
        except RuntimeError as error:  # no thread can be started
            if self._settings.strict:
                raise
            return FlushResult(0, 0, describe_error(error))
        return await asyncio.wrap_future(flushed)

    def deliver_in_background(self, arguments: Sequence[str] = ("--deliver",)) -> bool:
        """Start this program once more, to send what waits, if anything does; return whether it was started.

        For a command that ends long before the random moment of its reports: nobody waits for the network, nor for the
        library that speaks to it. Run with these `arguments`, the program is to call `start()` and `flush(10)`, and do
        nothing else. A frozen app starts itself. Nothing is started while a server could not be reached or has asked to
        be left alone, nor from a notebook: what waits is then left to a later run.
        """

        def deliver() -> bool:
            from dither.delivering import start_another, this_program  # on most runs it is not needed

            status = self.status()
            program = this_program()
            kept = self._settings.directory is not None  # another process finds it, as none does in an app's tests
            if not (kept and program and status.waiting) or status.sending.held_until:
                return False
            start_another([*program, *arguments], _started_in)
            return True

        def failed(error: Exception) -> bool:
            say(WARNING, "no process could be started to send what waits: %s", describe_error(error))
            return False

        return self._guarded(deliver, failed)

    # Looking.

    def status(self) -> Status:
        """Return what this device has done, why each metric is silent if it is, and what became of sending."""

        session, settings = self._session, self._settings

        def look(device: Device | None, standing: Standing) -> Status:
            with within(LOOK_WITHIN_S):
                return status_of(
                    device, settings.registry.metrics, standing, self._failures, development=settings.development
                )

        def failed(error: Exception) -> Status:
            return look(None, Standing(Mode.FAULT, describe_error(error)) if session.speaks else session.standing)

        self._guarded(session.catch_up, lambda error: None)
        device = session.device if session.uploader else None
        return self._guarded(lambda: look(device, session.standing), failed)

    def preview(self) -> Preview:
        """Return the upload that is sent next and what it costs, without building or charging it."""
        device = self._session.device if self._session.uploader else None
        if device is None:
            return Preview(b"", {})

        def look() -> Preview:
            with within(LOOK_WITHIN_S):
                body, cost = device.preview()
            return Preview(body, {metric: from_micro(micro) for metric, micro in cost.items()})

        return self._guarded(look, lambda error: Preview(b"", {}))

    # The person's choices.

    def terms(self) -> list[Sentence]:
        """Return what the person is asked to agree to, a short sentence each: for a dialog, before `set_consent`.

        `str()` of each is English; `client/consent.md` says how to translate them.
        """
        from dither.terms_sentences import terms_of  # a dialog is seldom shown

        return self._guarded(lambda: terms_of(self._settings.registry), lambda error: [])

    def set_consent(self, given: object, metric: str | None = None) -> bool:
        """Keep what the person chose: for the whole app, or with `metric` for one metric. Return whether it was kept.

        Agreeing is to the terms of this registry, and counts until a later one asks for more (`status().asks`).
        Refusing drops what waits; what was charged stays charged. It goes before what `start()` was given. Only True
        and False are choices: anything else changes nothing.
        """
        if metric is not None:
            self.__getattr__(str(metric))
        if given is not True and given is not False:
            if self._settings.strict:
                raise ConfigurationError(f"set_consent takes True or False, got a {type(given).__name__}")
            say(WARNING, "set_consent takes True or False, and got neither: nothing has changed")
            return False
        session = self._session
        return self._guarded(lambda: session.agree(metric) if given is True else session.refuse(metric), self._not_kept)

    def forget(self) -> None:
        """Erase what this device knows of the person's answers, keep what was spent, and be silent for 30 days.

        While another process reads the file, what was erased is still to be found in its log: it is tried again until
        it is gone, and `status().erasing` says so.
        """

        def erase() -> bool:
            self._session.erase()
            return True

        self._guarded(erase, self._not_kept)

    def _not_kept(self, error: Exception) -> bool:
        self._failures["failed"] += 1
        say(WARNING, "not kept on this device: %s", describe_error(error))
        return False


LISTED_MAX, NEAREST_MAX = 8, 3
"""So many listed values are named, where an answer is none of them: all that there are, or the nearest."""


def _check(metric: Metric, answer: object) -> None:
    """Refuse, in strict telemetry, an answer that the metric does not ask for, and name those that it does."""
    if metric.takes(answer):
        return
    place = metric.misplaced(answer)
    came = f"what came in {place}" if place else "what came"
    listed = _listed(metric, place)
    shown = ", ".join([*listed[:LISTED_MAX], *["..."][: len(listed) - LISTED_MAX]])
    asked = f" ({shown})" if listed else ""
    misread = metric.kind.misread(metric.asked.domain)
    becomes = f"it {misread}" if misread else f'it would be sent as "{OTHER}"'
    raise InvalidAnswer(f"{came} is no answer that {metric.name} asks for{asked}; {becomes}")


def _becomes(metric: Metric, answer: object) -> str:
    """Return what becomes of an answer that is not asked for, with the nearest listed ones: for development alone.

    Not the answer itself: logs are kept.
    """
    from difflib import get_close_matches

    place = metric.misplaced(answer)
    listed = _listed(metric, place)
    came = "what came" if not place else f"what came in {place}"
    misread = metric.kind.misread(metric.asked.domain)
    becomes = f"{came} is not asked for: it {misread or f'is sent as “{OTHER}”'}"
    if not listed:
        return becomes
    written = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, list | tuple | set) else []
    unlisted = [each for each in written if isinstance(each, str) and each not in listed]
    near = [close for each in unlisted for close in get_close_matches(each, listed, NEAREST_MAX)]
    nearest = [*dict.fromkeys(near)][:NEAREST_MAX]
    return f"{becomes}; {'did you mean' if nearest else 'listed are'} {', '.join(nearest or listed[:NEAREST_MAX])}?"


def _listed(metric: Metric, place: str) -> list[str]:
    """Return the listed values, or those of the column that is named."""
    listed = metric.kind.offer(metric.asked).listed
    return [each for each in listed if not place or each.startswith(f"{place}: ")]


def _seconds(timeout: float) -> float:
    try:
        return float(timeout)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"timeout must be a number of seconds, got one of type {type(timeout).__name__}"
        ) from None
