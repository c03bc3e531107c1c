"""Signals, and a store that is still loading: shared by the commands that run until they are told to end."""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from textwrap import indent
from types import FrameType
from typing import Any, NoReturn

from dither_aggregator.store import Store, StoreLoading
from dither_shared.safe_output import visible

# How a command that runs for long writes its log to stderr. Loads no store: settings are read with it.


SAME_AGAIN_AFTER_S = 60.0
MESSAGES_MAX = 1_000
FORMATS = ("text", "json")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMAT_ENVIRONMENT, LEVEL_ENVIRONMENT = "DITHER_LOG_FORMAT", "DITHER_LOG_LEVEL"
"""How a command tells the processes that it starts."""

_log = logging.getLogger("dither_aggregator")


def set_up_logging(form: str = "", level: str = "") -> None:
    """Log to stderr, the same line at most once a minute: a client that causes one fills no disk.

    `form` is one of FORMATS and `level` one of LEVELS; without them, as the process that started this one does. The
    libraries' words below a warning are never logged: they may name addresses.
    """
    os.environ[FORMAT_ENVIRONMENT] = form = form or os.environ.get(FORMAT_ENVIRONMENT) or "text"
    os.environ[LEVEL_ENVIRONMENT] = level = level or os.environ.get(LEVEL_ENVIRONMENT) or "warning"
    handler = logging.StreamHandler()
    handler.addFilter(_Damper())
    handler.setFormatter(_JsonLines() if form == "json" else _Lines())
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[handler])
    _log.setLevel(LEVELS[level])


class _Lines(logging.Formatter):
    """Makes each record a line of words, and indents what was raised: no message passes for another line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the line."""
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback."""
        return indent(visible(super().formatException(ei), keep="\n"), "  ")


class _JsonLines(logging.Formatter):
    """Makes each record one line of JSON: time (UTC), level, logger, message, and what was raised, if anything was."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time_ = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time_.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _Damper(logging.Filter):
    """Lets a message through, then none from the same place for a while; then says how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a record."""
        message = record.getMessage()
        key = record.name, record.lineno, message.partition("\n")[0]
        now = time.monotonic()
        since, dropped = self._last.get(key, (-SAME_AGAIN_AFTER_S, 0))
        if now - since < SAME_AGAIN_AFTER_S:
            self._last[key] = since, dropped + 1
            return False
        if len(self._last) >= MESSAGES_MAX:
            self._last.clear()
        self._last[key] = now, 0
        if dropped:
            record.msg, record.args = f"{message} (and {dropped} times more before)", ()
        return True


LOOK_EVERY_S = 0.25
_STDERR = 2
_SIGUSR1 = {signal.SIGUSR1}


def answer_signals() -> None:
    """Say on SIGUSR1 where every thread is, and go on; end on SIGQUIT as on SIGTERM, and say so.

    To be called first: by default both end a process, and the second leaves its memory on the disk. SIGHUP does nothing
    until a command says otherwise.
    """
    parent = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == parent:  # its processes hear a terminal's too, and end when it asks them to
            os.write(_STDERR, b"dither: SIGQUIT ends this in order, as SIGTERM does\n")
            signal.raise_signal(signal.SIGTERM)

    say_stacks_on_sigusr1()
    signal.signal(signal.SIGQUIT, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def say_stacks_on_sigusr1() -> None:
    """Write the stack of every thread to stderr on SIGUSR1, and go on.

    The main thread writes them between two steps of its own, while no other thread runs. `faulthandler` would not wait
    for it, but it reads frames that change meanwhile: a busy process ended by SIGSEGV within five signals.
    """
    signal.signal(signal.SIGUSR1, _say_stacks)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGUSR1)  # it may have been started by a process that blocks it


def say_stacks_by_a_thread() -> None:
    """Do the same where the handler is somebody else's: there the signal stays blocked, and a thread waits for it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGUSR1)

    def answer() -> None:
        while signal.sigwait(_SIGUSR1):
            _write(_stacks(sys._current_frames()))

    threading.Thread(target=answer, name="stacks", daemon=True).start()


def _say_stacks(_: int, interrupted: FrameType | None) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a second signal would interrupt this, and a third that
    stacks = _stacks(sys._current_frames(), interrupted)
    say_stacks_on_sigusr1()  # before it writes: who has read one stack may ask for the next
    _write(stacks)


def _stacks(frames: Mapping[int, FrameType], interrupted: FrameType | None = None) -> str:
    """Return the stack of every thread, the main thread's last: where a terminal shows it."""
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: list[str] = []
    for ident in sorted(frames, key=lambda ident: ident == main):
        frame = (interrupted if ident == main else None) or frames[ident]
        stacks += [f"thread {names.get(ident, ident)}:\n", *traceback.format_stack(frame)]
    return "".join(stacks)


def _write(stacks: str) -> None:
    with suppress(OSError):  # raised here, it would be raised wherever the main thread is
        os.write(_STDERR, stacks.encode("utf-8", "replace"))


def open_when_loaded(open_: Callable[[], Store]) -> Store:
    """Open a store; while it says that it is loading what it holds, say so once and wait.

    A store that hangs does not say so within its timeout: that is raised, as everything else is. SIGTERM and SIGINT
    end the process at once, with 0: nothing has begun. For the main thread.
    """
    try:
        return open_()
    except StoreLoading as error:
        loading = str(error)
    with _ended_by_signals():
        _log.warning("%s; waiting for it", loading)
        while True:
            time.sleep(LOOK_EVERY_S)
            with suppress(StoreLoading):
                return open_()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        sys.exit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
