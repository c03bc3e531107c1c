"""A fleet: many simulated devices, each with its own state, noise and upload over HTTP.

`send` runs devices in this process. `Fleet` runs them in child processes, which read their jobs from standard input and
write their progress to standard output; a child whose parent is gone finds its input closed and ends.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from dither.device import Device
from dither.sending.route import check_endpoint
from dither.sending.transport import HEADERS, Answer, Outcome, check_key, read_answer
from dither.sending.upload_thread import Sender
from dither_shared.registry import Registry
from dither_shared.rng import Rng

THREADS = 8
"""Devices of a process that wait for the aggregator at the same time. One of them computes: SQLite gives up Python's
lock at every statement, and threads that all want it back spend as long on that as on the statements."""
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

    Calls `on_device` with the number of reports that a device could not send, after each, from any thread, from one at
    a time.
    """
    metrics = [registry.metrics[name] for name in answers]
    devices = zip(*answers.values(), strict=True)
    turn = threading.Lock()

    def work() -> None:
        transport = KeptConnection(endpoint, key, turn)
        device: Device | None = None
        with turn:
            for device_answers in devices:
                device = Device(registry, None, Rng(secrets.randbits), follows=device)
                device.open()
                device.agree_once()
                for metric, answer in zip(metrics, device_answers, strict=True):
                    device.record(metric, answer)
                _deliver(Sender(device, transport), turn)
                on_device(device.waiting())
            if device:
                device.close()
        transport.close()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@contextmanager
def _left(turn: threading.Lock) -> Iterator[None]:
    """Let other threads compute, until this one has waited for something."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


class KeptConnection:
    """A transport for many devices: the SDK's request and reading of answers, over one connection that stays open.

    By http.client, since a fleet would spend most of its time in a fuller library; loopback needs none of the rest.
    A thread that sends has the turn, and leaves it to others until the answer is there.
    """

    def __init__(self, endpoint: str, key: str, turn: threading.Lock) -> None:
        self._turn = turn
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
            with _left(self._turn):
                self._connection.request("POST", self._path, body, self._headers)
                response = self._connection.getresponse()
                content = response.read()
            return read_answer(response.status, dict(response.headers), content, upload_id)
        except (OSError, HTTPException) as error:
            self.close()
            return Answer(Outcome.KEPT, f"no answer ({type(error).__name__})")

    def idle(self) -> None:
        """Keep the connection for the next device."""

    def close(self) -> None:
        """Close the connection; the next upload opens another."""
        self._connection.close()


def _deliver(sender: Sender, turn: threading.Lock) -> None:
    """Send until nothing waits, or the aggregator has refused the key or been away for too long."""
    give_up_at = time.monotonic() + DEVICE_TIMEOUT_S
    while (outcome := sender.attempt()) is not None:
        if outcome is Outcome.STOPPED or time.monotonic() > give_up_at:
            return
        if outcome is Outcome.KEPT:
            with _left(turn):
                time.sleep(RETRY_S)


class Fleet:
    """Child processes that share devices between them, and go on to the next ones when those are done.

    Use as a context manager: leaving it ends the children.
    """

    def __init__(self, registry: Path, endpoint: str, key: str, processes: int) -> None:
        self._place = {"registry": str(registry), "endpoint": endpoint, "key": key}
        self._processes = processes
        self._children: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._lines: SimpleQueue[tuple[int, dict[str, int] | None]] = SimpleQueue()
        """The lines of each child; None when it has ended."""
        self._ended = 0

    def __enter__(self) -> "Fleet":
        try:
            for _ in range(self._processes):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
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
        self._listeners.append(threading.Thread(target=self._listen, args=(len(self._listeners),), daemon=True))
        self._listeners[-1].start()
        self._tell(child, self._place)

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

    def send(self, answers: Answers) -> Iterator[Progress]:
        """Let a device for each answer send it; yield their progress as it changes.

        It ends when every child is done with its devices, or has ended without having sent for them all.
        """
        for place, child in enumerate(self._children):
            self._tell(child, {metric: list(values[place :: self._processes]) for metric, values in answers.items()})
        latest = [Progress(0, 0)] * self._processes
        done = 0
        while done + self._ended < self._processes:
            place, news = self._lines.get()
            if news is None:
                self._ended += 1
                continue
            latest[place] = Progress(news["devices"], news["unsent"])
            done += news["done"]
            yield Progress(sum(p.devices for p in latest), sum(p.unsent for p in latest))

    @staticmethod
    def _tell(child: "subprocess.Popen[str]", what: Mapping[str, object]) -> None:
        assert child.stdin
        with suppress(BrokenPipeError):  # it has ended, as its listener says
            print(json.dumps(what), file=child.stdin, flush=True)

    def _listen(self, place: int) -> None:
        stdout = self._children[place].stdout
        assert stdout
        for line in stdout:
            self._lines.put((place, json.loads(line)))
        self._lines.put((place, None))


def main() -> None:
    """Run one child's devices, job by job."""
    jobs: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    place = jobs.get()
    registry = Registry.load(place["registry"])
    while True:
        _run(registry, place["endpoint"], place["key"], jobs.get())


def _run(registry: Registry, endpoint: str, key: str, answers: Answers) -> None:
    """Run the devices of one job."""
    devices = unsent = 0
    shown_at = time.monotonic()

    def say(done: int) -> None:
        print(json.dumps({"devices": devices, "unsent": unsent, "done": done}), flush=True)

    def on_device(waiting: int) -> None:
        nonlocal devices, unsent, shown_at
        devices += 1
        unsent += waiting
        if time.monotonic() > shown_at + PROGRESS_EVERY_S:
            shown_at = time.monotonic()
            say(0)

    send(registry, endpoint, key, answers, on_device)
    say(1)


def _read(jobs: "SimpleQueue[Any]") -> None:
    """Read jobs to the end of standard input: the parent is gone then, and with it the aggregator."""
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(1)


if __name__ == "__main__":
    main()
