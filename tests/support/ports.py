"""Ports for a process that is told its port, or has the same one when it starts again."""

import atexit
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import cycle

from dither_aggregator.arguments.settings import LOOPBACK

FIRST, STRETCH, STRETCHES = 12_000, 400, 50
"""Below 32,768, from where Linux takes the ports of connections and of whoever asks for any. It would take one of them
between the moment that a test looked at it and the moment that the test's process listens."""


def free_port() -> int:
    """Return a port of the loopback on which nothing listens, neither on the next one, where health's is by default.

    No other process of tests is given it while this one runs. This one is given it again after two hundred others.
    """
    return next(port for port in _stretch() if _is_free(port))


@cache
def _stretch() -> Iterator[int]:
    """Take ports by a name that only one process of this network namespace has at a time, until it ends."""
    for first in range(FIRST, FIRST + STRETCH * STRETCHES, STRETCH):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0dither-tests-ports-{first}")
        except OSError:
            name.close()
        else:
            atexit.register(name.close)
            return cycle(range(first, first + STRETCH, 2))
    raise AssertionError(f"{STRETCHES} processes of tests have all ports")


def _is_free(port: int) -> bool:
    with ExitStack() as probes:
        try:
            for each in (port, port + 1):
                probes.enter_context(socket.create_server((LOOPBACK, each)))
        except OSError:
            return False
        return True
