"""Connections that a process must not use or close: inherited, open at its end, or closed by the app itself."""

import os
import sqlite3
import threading
from contextlib import closing, suppress

from dither.device.sqlite_thread import left_s

ANSWER_WITHIN_S = 0.25


class Probe:
    """Whether a child can use SQLite: a fork copies SQLite's own locks as other threads of the host had taken them."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def answers(self) -> bool:
        """Tell whether SQLite can be used. The first call waits for a moment to find out, a further one does not.

        Raises RuntimeError where no thread can be started to find out.
        """
        wait_s = 0.0
        if self._thread is None:
            thread = threading.Thread(target=_use_sqlite, daemon=True)
            thread.start()
            self._thread, wait_s = thread, left_s(ANSWER_WITHIN_S)
        self._thread.join(wait_s)
        return not self._thread.is_alive()


_IMPORTED_BY = os.getpid()
_probes: dict[int, Probe] = {}


def probe_of_process() -> Probe | None:
    """Return the one probe of a process that was forked since this was imported; None where no fork copied locks."""
    process = os.getpid()
    return None if process == _IMPORTED_BY else _probes.setdefault(process, Probe())


class Sentinel:
    """A descriptor of ours beside those of SQLite, by which to tell whether the app has closed all that it finds.

    SQLite would go on with the numbers of its own, whatever file of the app's has them by now.
    """

    def __init__(self) -> None:
        self._descriptor, other = os.pipe()  # unlike any file's, its identity is never another's
        os.close(other)
        self._identity = self._look()

    def stands(self) -> bool:
        """Tell whether it is as it was."""
        try:
            return self._look() == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless its number is another file's."""
        if self.stands():
            os.close(self._descriptor)

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino


def _use_sqlite() -> None:
    with suppress(sqlite3.Error), closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE x (y)")


def keep_forever(connection: sqlite3.Connection | None) -> None:
    """Never let go of a connection, so that it is never closed.

    One that came with a fork must not be: SQLite forbids to use it, and closing it is a use.
    """
    try:
        from _ctypes import Py_INCREF  # ctypes.pythonapi.Py_IncRef, without the time that ctypes takes
    except ImportError:  # a Python that was built without it
        return
    if connection is not None:
        Py_INCREF(connection)
