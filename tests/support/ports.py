"""Ports for a process that is told its port, or has the same one when it starts again."""

import os
import socket
from contextlib import ExitStack
from itertools import cycle

from dither_aggregator.arguments.values import LOOPBACK

FIRST, STRETCH, PROCESSES = 12_000, 2_000, 10
"""Below 32,768, from where Linux takes the ports of connections and of whoever asks for any. It would take one of them
between the moment that a test looked at it and the moment that the test's process listens."""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = cycle(range(FIRST + WORKER % PROCESSES * STRETCH, FIRST + (WORKER % PROCESSES + 1) * STRETCH, 2))


def free_port() -> int:
    """Return a port of the loopback on which nothing listens, neither on the next one, where health's is by default.

    No other call in this process, or in another worker of the same run, of ten at most, returns it before a thousand
    others were returned. Two runs at the same time, or a pytest within a test, may be given the same.
    """
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with ExitStack() as probes:
        try:
            for each in (port, port + 1):
                probes.enter_context(socket.create_server((LOOPBACK, each)))
        except OSError:
            return False
        return True
