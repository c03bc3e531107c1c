"""A host app to be killed: days go by as fast as it records an answer to every metric and flushes.

Writes "ready", a line for every day before it begins, and one for every answer after `record` has returned "".
"""

import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dither.sending.connection  # noqa: F401  # now: else most of a short life would be over when it is loaded
from dither.device import Device
from dither.device.outbox import Outbox
from dither.device.recording import Budget
from dither.sending.transport import Answer, HttpTransport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Metric, Registry
from tests.support.clocks import Clock

STEPS: dict[str, tuple[type, str]] = {
    "recorded": (Device, "record"),
    "built": (Device, "next_upload"),
    "charged": (Device, "charge"),
    "posted": (HttpTransport, "post"),
    "settled": (Device, "settle"),
}
"""The steps of a report's life: a recorder can die after each, before it knows of it."""
BUGS = ("another-id", "charged-late")


def say(line: object) -> None:
    """Write a line, whole."""
    os.write(1, f"{line}\n".encode())


def die_after(step: str, times: int) -> None:
    """Let the process die when a step has been done so often."""
    holder, name = STEPS[step]
    method: Callable[..., Any] = getattr(holder, name)
    left = times

    def last(*args: Any) -> Any:
        nonlocal left
        result = method(*args)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, last)


def plant(bug: str) -> None:
    """Send every attempt under an id of its own, or charge an upload only when it was answered for."""
    post, charge, forget = HttpTransport.post, Budget.charge_upload, Outbox.forget

    def post_anew(self: HttpTransport, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        another = f"{secrets.randbelow(10**21):021}A"
        return post(self, another, body.replace(upload_id.encode(), another.encode()), stands)

    def charge_and_forget(self: Outbox, upload_id: str, outcome: str, refused: int = 0) -> int:
        charge(self._budget, upload_id)
        return forget(self, upload_id, outcome, refused)

    if bug == "another-id":
        HttpTransport.post = post_anew  # type: ignore[method-assign]
    else:
        Budget.charge_upload = lambda self, upload_id: None  # type: ignore[method-assign]
        Outbox.forget = charge_and_forget  # type: ignore[method-assign]


def run(registry: Registry, directory: Path, transport: HttpTransport, day: int) -> None:
    """Record and flush until the process is killed."""
    clock = Clock()
    clock.travel(day)
    telemetry = Telemetry(Settings(registry, transport, directory, consent=True, clock=clock))
    device = telemetry._session.device
    assert device
    record = device.record

    def record_and_say(metric: Metric, answer: object, delay: Callable[[], float] = lambda: 0.0) -> str:
        reason = record(metric, answer, delay)
        if not reason:
            say(metric.name)
        return reason

    device.record = record_and_say  # type: ignore[method-assign]
    say("ready")
    telemetry.flush(20)
    while True:
        day += 1
        clock.travel(1)
        say(day)
        for name in registry.metrics:
            getattr(telemetry, name).record(answer=True)
        telemetry.flush(20)


def main(
    path: str, directory: str, url: str, key: str, day: str, step: str = "", times: str = "1", bug: str = ""
) -> None:
    """Run as the parent says."""
    if bug:
        plant(bug)
    if step:
        die_after(step, int(times))
    run(Registry.load(path), Path(directory), HttpTransport(url, key), int(day))


if __name__ == "__main__":
    main(*sys.argv[1:])
