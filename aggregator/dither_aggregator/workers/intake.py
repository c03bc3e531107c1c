"""The intake of a worker: of all that lies in its queues it takes tasks, and drops whatever else is there.

Celery and its transport trust a broker: a message that is no JSON, or whose headers have another shape, ends a worker;
one for a later time holds a place for ever; others are logged with all that they hold. Many may be able to write to a
broker, and no message is worth anything, so none of them is handed on: a task is read out of it, within bounds, and a
message of ours is made of the task.

Redis's answers come by here before the transport sees them, by the client's own means for that. An answer that is none
is what the transport gets when its wait was over, and it waits again.
"""

import base64
import json
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from celery import bootsteps

from dither_aggregator.operations.computing_process import Address
from dither_aggregator.workers.tasks import ESTIMATE, FOLD, LOOK, MAINTAIN, READ, Task

MESSAGE_BYTES_MAX = 4_096
"""A task of ours has about 800, most of them Celery's headers."""
SHARD_MAX = 65_535
LOG_EVERY_S = 60.0
_READS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys((FOLD, MAINTAIN), lambda about: type(about) is int and 0 <= about <= SHARD_MAX),
    **dict.fromkeys(
        (ESTIMATE, LOOK), lambda about: isinstance(about, str) and bool(re.fullmatch("[a-z0-9_]{1,64}", about))
    ),
    READ: lambda about: isinstance(about, str) and _is_page(about),
}
"""By kind, whether there may be a shard of that number, or a metric or ticket of that name."""

_log = logging.getLogger("dither_aggregator")


class _Headers(msgspec.Struct):
    task: str


class _Message(msgspec.Struct):
    """The parts of Celery's message that say what a task says."""

    body: str
    headers: _Headers


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_body = msgspec.json.Decoder(tuple[tuple[int | str], Any, Any]).decode


def _is_page(text: str) -> bool:
    try:
        return Address.parse(text).is_short
    except ValueError:
        return False


def read_task(queue: str, message: bytes) -> Task:
    """Read the task that a message in a queue says. Raises ValueError for any other message, with what it is."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError("too long")
    try:
        decoded = _decode_message(message)
        (about,), _, _ = _decode_body(base64.b64decode(decoded.body, validate=True))
    except (ValueError, RecursionError):  # msgspec's and base64's own are among them
        raise ValueError("not a message of Celery's with one argument") from None
    if decoded.headers.task != queue or not _READS[queue](about):
        raise ValueError("for another queue, or about what there cannot be")
    return Task(queue, about)


def write_task(task: Task) -> bytes:
    """Return the message that Celery is handed: none of it but the task comes from the broker."""
    id_ = secrets.token_hex(16)
    body = json.dumps([[task.about], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    message = {
        "body": base64.b64encode(body.encode("ascii")).decode("ascii"),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": task.kind, "id": id_, "root_id": id_, "retries": 0, "ignore_result": True},
        "properties": {
            "correlation_id": id_,
            "delivery_tag": id_,
            "delivery_info": {"exchange": "", "routing_key": task.kind},
            "body_encoding": "base64",
        },
    }
    return json.dumps(message).encode("ascii")


class Intake:
    """Reads what the broker answers, and counts what it drops."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.dropped: Counter[str] = Counter()
        """How many messages were dropped, by what they were."""
        self._clock = clock
        self._logged = 0
        self._say_at = clock()

    def take(self, answer: Sequence[bytes] | None, **_: object) -> tuple[bytes, bytes] | None:
        """Return the queue and message that Redis answered, made anew; None where there is none, or no task."""
        if not answer:
            return None
        queue, message = answer
        try:
            return queue, write_task(read_task(queue.decode("utf-8"), message))
        except ValueError as error:
            self.dropped[str(error)] += 1
        if self._clock() >= self._say_at:
            self.say()
        return None

    def say(self) -> None:
        """Log how many messages were dropped so far, if there are more than were said."""
        if (total := self.dropped.total()) > self._logged:
            reason = "; ".join(f"{n:,} {what}" for what, n in self.dropped.items())
            _log.warning("dropped %s messages of the broker that are no tasks: %s", f"{total:,}", reason)
            self._logged, self._say_at = total, self._clock() + LOG_EVERY_S

    def step(self) -> type[bootsteps.StartStopStep]:
        """Return the step by which a worker's consumer takes all that it hears by here, after each connection."""
        intake = self

        class BellsAlone(bootsteps.StartStopStep):
            requires = ("celery.worker.consumer.tasks:Tasks",)

            def start(self, c: Any) -> None:
                c.task_consumer.channel.client.set_response_callback("BRPOP", intake.take)

        return BellsAlone
