"""The thread that waits for SQLite in place of others, interrupted and starved; what a file leaves of it."""

import os
import threading
from typing import Any

import pytest

from dither.device import file
from dither.device.file import Helper, Overdue, Sentinel
from tests.support.waiting import wait_until

WAIT_S = 20.0


class Interrupted:
    """A lock at whose first release a signal handler raises, before it is released or after."""

    def __init__(self, lock: Any, *, before: bool) -> None:
        self._lock, self._left = lock, [before]

    def release(self) -> None:
        before = self._left.pop() if self._left else None
        if before is not True:
            self._lock.release()
        if before is not None:
            raise KeyboardInterrupt


@pytest.mark.parametrize("before", [True, False])
def test_a_job_that_was_interrupted_while_the_thread_was_told_is_given_back_and_the_next_is_done(before: bool) -> None:
    """Else a transaction would be left open that nobody ends, and the device be busy for ever."""
    helper, came = Helper(), list[object]()
    helper._asked = Interrupted(helper._asked, before=before)
    with pytest.raises(KeyboardInterrupt):
        helper.do(lambda: "begun", WAIT_S, came.append)
    wait_until(lambda: came and not helper.overdue)
    assert helper.do(lambda: "next", WAIT_S, came.append) == "next"
    assert came == ["begun"]
    helper.end(WAIT_S)


def test_a_helper_is_ended_that_has_not_begun_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    work, runs, came = file._work, threading.Event(), list[object]()

    def starved(*arguments: Any) -> None:
        assert runs.wait(WAIT_S)
        work(*arguments)

    monkeypatch.setattr(file, "_work", starved)
    helper = Helper()
    with pytest.raises(Overdue):
        helper.do(lambda: "late", 0.01, came.append)
    helper.end(0.01)
    runs.set()
    assert helper._thread
    helper._thread.join(WAIT_S)
    assert not helper._thread.is_alive()
    assert came == ["late"]


def test_a_sentinel_that_nobody_refers_to_leaves_no_descriptor() -> None:
    """An app that lets go of a device without closing it would else run out of them."""
    descriptor = Sentinel()._descriptor
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
