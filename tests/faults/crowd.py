"""One of many processes of a host app on one device file: records every metric in an order of its own, and flushes.

Waits for a line before it starts its telemetry. Then it writes what it saw as one JSON document.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dither.sending.transport import HttpTransport
from dither.session import Settings
from dither.status import Status
from dither.telemetry import Telemetry
from dither_shared.registry import Metric, Registry
from tests.support.clocks import Clock

FLUSH_EVERY = 25
WITHIN_S = 60


def look(telemetry: Telemetry) -> Status:
    """Return the status, asked again while the file is busy for longer than an app is to wait."""
    deadline = time.monotonic() + WITHIN_S
    while (status := telemetry.status()).silent and time.monotonic() < deadline:
        time.sleep(0.01)
    return status


def main(path: str, directory: str, url: str, key: str, seed: str) -> None:
    """Record and flush once the parent says so."""
    registry = Registry.load(path)
    print("ready", flush=True)
    sys.stdin.readline()
    noon, began = Clock().now, time.monotonic()

    def clock() -> float:
        # All on one day, wherever the test is in its own.
        return noon + time.monotonic() - began

    telemetry = Telemetry(Settings(registry, HttpTransport(url, key), Path(directory), consent=True, clock=clock))
    silent = look(telemetry).silent
    reasons: dict[str, str] = {}
    slowest_s = 0.0
    device = telemetry._session.device
    assert device, silent
    record = device.record

    def record_and_note(metric: Metric, answer: object, delay: Callable[[], float] = lambda: 0.0) -> str:
        reason = record(metric, answer, delay)
        reasons[metric.name] = reason
        return reason

    device.record = record_and_note  # type: ignore[method-assign]
    names = list(registry.metrics)
    random.Random(int(seed)).shuffle(names)
    for place, name in enumerate(names):
        while name not in reasons:  # the file was busy: the app may say it again
            before = time.monotonic()
            getattr(telemetry, name).record(answer=True)
            slowest_s = max(slowest_s, time.monotonic() - before)
        if place % FLUSH_EVERY == 0:
            telemetry.flush(0.2)
    while telemetry.flush(5).waiting:
        pass
    counts = look(telemetry).counts
    telemetry.close()
    print(json.dumps({"reasons": reasons, "silent": silent, "slowest_s": slowest_s, "counts": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
