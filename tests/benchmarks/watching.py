"""A look at a server every now and then: how much memory it takes, and whether it says that it is well."""

import http.client
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.benchmarks.growth import MIB
from tests.benchmarks.steady import ACKNOWLEDGED, Try
from tests.support.clusters import Process

LOOK_EVERY_S = 0.25
HEALTH = ("/livez", "/readyz")
"""Asked in turn. An attacker must not make a server look dead, nor unready: nothing is wrong with its store."""
HEALTH_WITHIN_S = 5.0
NICENESS = 16
"""Its place in /proc/PID/stat, behind the command's name."""


class Spent(NamedTuple):
    """Processor time of a server's processes but for the one that takes uploads. No busy machine changes it much."""

    urgent_s: float = 0.0
    """The time of those that are as urgent as that one."""
    apart_s: float = 0.0
    """The time of less urgent ones."""


class Watch:
    """Looks at a server every now and then, on threads of its own. Use as a context manager."""

    def __init__(self, server: Process, health_url: str) -> None:
        self.memory_mib = 0.0
        """The most there was."""
        self.health: list[Try] = []
        self._server = server
        self._place = urlsplit(health_url)
        self._ending = threading.Event()
        # Two, so that a server that does not answer is weighed all the same.
        self._threads = [threading.Thread(target=self._go_on, args=(look,)) for look in (self._weigh, self._ask)]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, look: Callable[[], None]) -> None:
        look()
        while not self._ending.wait(LOOK_EVERY_S):
            look()

    def _weigh(self) -> None:
        self.memory_mib = max(self.memory_mib, sum(map(memory_mib_of, self._server.session())))

    def _ask(self) -> None:
        one = Try(len(self.health), time.perf_counter(), "no answer")
        self.health.append(one)
        connection = http.client.HTTPConnection(self._place.netloc, timeout=HEALTH_WITHIN_S)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", HEALTH[one.serial % 2])
            status = connection.getresponse().status
            one.end = ACKNOWLEDGED if status == 200 else str(status)
        one.waited_s = time.perf_counter() - one.due


def spent_by(server: Process) -> Spent:
    """Return the processor time of a server's living processes so far, and of those that they have waited for."""
    ticks = [0, 0]
    for pid in server.session():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks[int(fields[NICENESS]) > 0] += 0 if pid == server.pid else sum(map(int, fields[11:15]))
    return Spent(*(each / os.sysconf("SC_CLK_TCK") for each in ticks))


def memory_mib_of(pid: int) -> float:
    """Return a process's memory, with its part of what it shares; 0 for one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / MIB
    return 0.0
