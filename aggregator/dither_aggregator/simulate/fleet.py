"""A fleet: many simulated devices, each with its own state, noise and upload over HTTP.

`send` runs devices in this process. `Fleet` runs them in child processes, which read a job from their standard input
and write their progress to their standard output; a child whose parent is gone finds its input closed and ends.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

from dither.device import Device
from dither.sending.route import check_endpoint
from dither.sending.sender import Sender
from dither.sending.transport import HEADERS, Answer, Outcome, check_key, read_answer
from dither_shared.registry import Registry
from dither_shared.rng import Rng

THREADS = 8
"""Devices of a process that wait for the aggregator at the same time."""
RETRY_S = 0.5
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
    registry: Registry,
    endpoint: str,
    key: str,
    answers: Answers,
    on_device: Callable[[int], None],
    threads: int = THREADS,
) -> None:
    """Let every device record its answers and send them.

    Calls `on_device` with the number of reports that a device could not send, after each and from any thread.
    """
    metrics = [registry.metrics[name] for name in answers]
    devices = zip(*answers.values(), strict=True)
    taking = threading.Lock()

    def work() -> None:
        transport = KeptConnection(endpoint, key)
        while True:
            with taking:
                device_answers = next(devices, None)
            if device_answers is None:
                transport.close()
                return
            device = Device(registry, None, Rng(secrets.randbits))
            device.open()
            device.agree_once()
            for metric, answer in zip(metrics, device_answers, strict=True):
                device.record(metric, answer)
            _deliver(Sender(device, transport))
            on_device(device.waiting())
            device.close()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class KeptConnection:
    """A transport for many devices: the SDK's request and reading of answers, over one connection that stays open.

    By http.client, since a fleet would spend most of its time in a fuller library; loopback needs none of the rest.
    """

    def __init__(self, endpoint: str, key: str) -> None:
        parts = urlsplit(check_endpoint(endpoint))
        self._path = parts.path
        self._headers = {**HEADERS, "Authorization": f"Bearer {check_key(key)}"}
        self._connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=DEVICE_TIMEOUT_S)

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Send one upload and say what to do with it."""
        try:
            if self._connection.sock is None:
                self._connection.connect()
        except OSError as error:
            return Answer(Outcome.KEPT, f"no answer ({type(error).__name__})", connected=False)
        stands()
        try:
            self._connection.request("POST", self._path, body, self._headers)
            response = self._connection.getresponse()
            return read_answer(response.status, dict(response.headers), response.read(), upload_id)
        except (OSError, HTTPException) as error:
            self.close()
            return Answer(Outcome.KEPT, f"no answer ({type(error).__name__})")

    def idle(self) -> None:
        """Keep the connection for the next device."""

    def close(self) -> None:
        """Close the connection; the next upload opens another."""
        self._connection.close()


def _deliver(sender: Sender) -> None:
    """Send until nothing waits, or the aggregator has refused the key or been away for too long."""
    give_up_at = time.monotonic() + DEVICE_TIMEOUT_S
    while (outcome := sender.attempt()) is not None:
        if outcome is Outcome.STOPPED or time.monotonic() > give_up_at:
            return
        if outcome is Outcome.KEPT:
            time.sleep(RETRY_S)


class Fleet:
    """Child processes that share the devices between them.

    Use as a context manager: leaving it ends the children.
    """

    def __init__(self, registry: Path, endpoint: str, key: str, answers: Answers, processes: int) -> None:
        common = {"registry": str(registry), "endpoint": endpoint, "key": key}
        parts = (
            {metric: list(values[place::processes]) for metric, values in answers.items()} for place in range(processes)
        )
        self._jobs = [{**common, "answers": part} for part in parts]
        self._children: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []

    def __enter__(self) -> "Fleet":
        try:
            for job in self._jobs:
                self._start(job)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, job: Mapping[str, object]) -> None:
        # In a session of its own, so that a Ctrl-C reaches the parent alone, which then ends it. Its standard input
        # stays open for as long as the parent lives.
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._children.append(child)
        assert child.stdin
        print(json.dumps(job), file=child.stdin, flush=True)

    def __exit__(self, *exc_info: object) -> None:
        for child in self._children:
            child.kill()
            child.wait()
        for listener in self._listeners:
            listener.join()
        for child in self._children:
            assert child.stdin
            assert child.stdout
            with suppress(BrokenPipeError):  # a job that it never read
                child.stdin.close()
            child.stdout.close()

    def progress(self) -> Iterator[Progress]:
        """Yield the fleet's progress as it changes; end when every child has ended."""
        lines: SimpleQueue[tuple[int, Progress | None]] = SimpleQueue()
        for place in range(len(self._children)):
            self._listeners.append(threading.Thread(target=self._listen, args=(place, lines), daemon=True))
            self._listeners[-1].start()
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
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
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


def _end_with_parent() -> None:
    """Wait for the end of standard input: the parent is gone, and with it the aggregator."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
