"""A fleet: many simulated devices, each with its own state, noise and upload over HTTP.

`send` runs devices in this process. `Fleet` runs them in child processes, which read a job from their standard input
and write their progress to their standard output; a child whose parent is gone finds the pipe closed and ends.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from dither.telemetry import assemble
from dither.transport import HttpTransport
from dither_shared.registry import Registry

THREADS = 8
PROGRESS_EVERY_S = 0.2
DEVICE_TIMEOUT_S = 120.0

Answers = dict[str, Sequence[object]]
"""The true answers: for each metric one a device."""


@dataclass(frozen=True)
class Progress:
    """How far a fleet is: devices that are done, and their reports that no aggregator has acknowledged."""

    devices: int
    unsent: int


def send(
    registry: Registry, endpoint: str, key: str, answers: Answers, on_device: Callable[[int], None], threads: int = THREADS
) -> None:
    """Let every device record its answers and send them; call `on_device(unsent reports)` after each, from any thread."""
    local = threading.local()

    def run(device: tuple[object, ...]) -> None:
        if not hasattr(local, "transport"):
            local.transport = HttpTransport(endpoint, key, keep_alive=True)
        telemetry = assemble(registry, local.transport, None)
        for metric, answer in zip(answers, device, strict=True):
            getattr(telemetry, metric).record(answer)
        result = telemetry.flush(DEVICE_TIMEOUT_S)
        telemetry.close()
        on_device(result.waiting)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, zip(*answers.values(), strict=True), chunksize=1):
            pass


class Fleet:
    """Child processes that share the devices between them. Use as a context manager: leaving it ends the children."""

    def __init__(self, registry: Path, endpoint: str, key: str, answers: Answers, processes: int) -> None:
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]
        for place, child in enumerate(self._children):
            part = {metric: list(values[place::processes]) for metric, values in answers.items()}
            job = {"registry": str(registry), "endpoint": endpoint, "key": key, "answers": part}
            assert child.stdin
            child.stdin.write(json.dumps(job))
            child.stdin.close()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for child in self._children:
            child.kill()
            child.wait()
            assert child.stdout
            child.stdout.close()

    def progress(self) -> Iterator[Progress]:
        """Yield the fleet's progress as it changes; end when every child has ended."""
        lines: SimpleQueue[tuple[int, Progress | None]] = SimpleQueue()
        for place in range(len(self._children)):
            threading.Thread(target=self._listen, args=(place, lines), daemon=True).start()
        latest = [Progress(0, 0)] * len(self._children)
        running = len(latest)
        while running:
            place, news = lines.get()
            if news is None:
                running -= 1
                continue
            latest[place] = news
            yield Progress(sum(p.devices for p in latest), sum(p.unsent for p in latest))

    def _listen(self, place: int, lines: "SimpleQueue[tuple[int, Progress | None]]") -> None:
        stdout = self._children[place].stdout
        assert stdout
        for line in stdout:
            lines.put((place, Progress(**json.loads(line))))
        lines.put((place, None))


def main() -> None:
    """Run one child's devices."""
    job = json.load(sys.stdin)
    lock = threading.Lock()
    devices = unsent = 0
    said_at = time.monotonic()

    def say() -> None:
        print(json.dumps({"devices": devices, "unsent": unsent}), flush=True)

    def on_device(waiting: int) -> None:
        nonlocal devices, unsent, said_at
        with lock:
            devices += 1
            unsent += waiting
            if time.monotonic() > said_at + PROGRESS_EVERY_S:
                said_at = time.monotonic()
                say()

    send(Registry.load(job["registry"]), job["endpoint"], job["key"], job["answers"], on_device)
    say()


if __name__ == "__main__":
    main()
