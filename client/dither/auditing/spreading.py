"""The processes that draw the samples: this one, or one a core, each a share of them."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from time import sleep
from typing import Any, Protocol

from dither_shared.errors import ConfigurationError


class Spread(Protocol):
    """The way in which work for so many samples is done."""

    def __call__(self, work: Callable[[int], Any], samples: int, each: int = 1, /) -> list[Any]:
        """Do it in shares, and return what each share came to. A sample takes as long as `each` usual ones."""


SHARES = 4
"""Shares a process: those that are done early take another one."""
WORTH = 1_000
"""Samples for which it is worth to start processes."""

LOOKS_EVERY_S = 0.25

_work: Callable[[int], Any] = lambda share: None  # noqa: E731


def in_turn(work: Callable[[int], Any], samples: int, each: int = 1) -> list[Any]:
    """Do all of it here."""
    return [work(samples)] if samples else []


def over_cores(processes: int = os.cpu_count() or 1) -> Spread:
    """Return what forks so many processes. Their randomness must be the system's: all others would draw the same."""
    if processes == 1 or sys.platform != "linux":
        return in_turn

    def spread(work: Callable[[int], Any], samples: int, each: int = 1) -> list[Any]:
        global _work
        if samples * each < WORTH:
            return in_turn(work, samples)
        _work = work  # which a child inherits: it need not be such that it can be sent to one
        parts = processes * SHARES
        shares = [samples // parts + (place < samples % parts) for place in range(parts)]
        with _interrupts_held() as let_in, _forking(processes) as pool:
            results = [pool.submit(_do, share) for share in shares]  # the first one forks them all
            let_in()
            return _collected(results)

    return spread


@contextmanager
def _forking(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of forks. They are killed where the block raises: nobody waits for their shares then."""
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _end_with, (os.getpid(),)) as pool:
        try:
            yield pool
        except BaseException:
            for each in multiprocessing.active_children():
                if each not in others:
                    each.kill()
            raise


def _end_with(parent: int) -> None:
    """Have this process end when its parent does: one that is killed would leave it at work to the end of its share."""

    def look() -> None:
        while os.getppid() == parent:
            sleep(LOOKS_EVERY_S)
        os._exit(1)

    Thread(target=look, daemon=True).start()


def _collected(results: "Sequence[Future[Any]]") -> list[Any]:
    """Return all results; raise ConfigurationError where a process ended before it had its own.

    Waits are short, because an interrupt that comes right before one is seen after it.
    """
    left: Collection[Future[Any]] = results
    try:
        while left:
            done, left = wait(left, LOOKS_EVERY_S, FIRST_EXCEPTION)
            for each in done:
                each.result()
    except BrokenProcessPool:
        raise ConfigurationError(
            "a process that drew samples ended: it was killed, perhaps for want of memory, or the randomizer ends its "
            "process. --processes 1 draws in this one"
        ) from None
    return [each.result() for each in results]


@contextmanager
def _interrupts_held() -> Iterator[Callable[[], None]]:
    """Hold interrupts back until the yielded function is called, or the context ends.

    A pool starts within, so that an interrupt comes when its `with` can end it: one that comes while it starts would
    leave processes and threads behind that nobody ends. They have the same mask, and leave interrupts to this process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def let_in() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_in
    finally:
        let_in()


def _do(share: int) -> Any:
    return _work(share)
