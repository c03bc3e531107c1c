"""The device of the pinned files: what its registry asks, and its first days. Loads nothing of the aggregator."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dither.device import Device
from dither_shared.frozen import replaced
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import connect, open_device

Held = dict[str, Any]
"""The content that a pinned file must have when it is read."""

COMMON = """question = "What?"
presence = "{presence}"
period = "1d"
rev = 1
owners = ["team@example.org"]
sensitivity = "low"
expires = 2027-06-30
"""
LISTED = 'kind = "choice"\nmechanism = "grr"\nvalues = ["red", "green", "blue"]\n'
METRICS = {
    "paint": LISTED + 'epsilon = 2\nreports = 20\nschedule = "early"\n',
    "gone": LISTED + 'epsilon = 1\nreports = 20\nschedule = "early"\n',
    "mood": LISTED + 'epsilon = 1\nreports = 20\nschedule = "early"\n',
    "rare": LISTED + "epsilon = 1\nreports = 30\n",
    "theme": LISTED + "memoize = true\nanswers = 2\nepsilon = 4.9\nepsilon_permanent = 5\n",
    "word": 'kind = "text"\nparameters = {k = 16, h = 1, m = 8, f = 0.5, p = 0.5, q = 0.75}\n'
    "memoize = true\nanswers = 2\nepsilon = 0.537143\nepsilon_permanent = 2.197225\n",
}
"""Fresh, refused, hidden, in periods that are drawn, a memo of listed values, a memo with a cohort."""
HEAD = '[registry]\napp = "pinned"\ndevice_epsilon = 130\nquiet_days = 0\n'
LIVED_DAYS = 8


def device_registry(names: Sequence[str] = tuple(METRICS)) -> Registry:
    """Return the registry of the device, or of some of its metrics."""
    tables = [
        f"[metric.{name}]\n{METRICS[name]}{COMMON.format(presence='hidden' if name == 'mood' else 'public')}"
        for name in names
    ]
    return Registry.parse(HEAD + "\n".join(tables))


def of_today(body: bytes) -> bytes:
    """Return an upload of before 0.1.0, when plans had other digests, as one of today's plans, which mean the same."""
    for metric in ASKED.metrics.values():
        before = replaced(metric.plan, once_a_day=False)
        body = body.replace(before.digest.encode("ascii"), metric.plan.digest.encode("ascii"))
    return body


def answer_everything(device: Device, asked: Registry, theme: str) -> dict[str, str]:
    """Record an answer to every metric; return why each is silent."""
    answers = dict.fromkeys(asked.metrics, "red") | {"theme": theme, "word": "hello"}
    return {name: device.record(metric, answers[name]) for name, metric in asked.metrics.items()}


def lived(directory: Path, clock: Clock) -> Held:
    """Let a device live for eight days; return what it holds, and what it said.

    On the last but one an upload left that nobody answered, so that what was recorded on the last still waits.
    """
    asked, said = device_registry(), Counter[str]()
    device = open_device(asked, directory, clock, seed=7, agree=False)
    device.agree(chosen=True)
    device.begin()
    for day in range(LIVED_DAYS):
        if day == 3:
            device.refuse_metric("gone", refused=True)
        answer_everything(device, asked, "red" if day < 5 else "green")
        upload = connect(device) if day < LIVED_DAYS - 1 else None
        if upload and day < LIVED_DAYS - 2:
            for group in json.loads(upload.body)["groups"]:
                if group["metric"] == "theme" and day < 5:
                    said[group["reports"][0]] += 1
                if group["metric"] == "word":
                    cell = group.get("cell", group.get("cohort"))
            device.settle(upload.id, "accepted", "accepted")
        elif upload:
            device.put_off(upload.id, "no answer", clock())
        clock.travel(1)
    device.close()  # what is only counted in memory is not in the file
    device = open_device(asked, directory, clock, agree=False)
    return {
        "day": clock.now,
        "spent": device.spent(),
        "counters": device.counters(),
        "choice": device.choice(),
        "refused": device.refused(),
        "waiting": device.waiting(),
        "red is": said.most_common(1)[0][0],
        "cell of word": cell,
    }


ASKED = device_registry()


def opened(directory: Path, clock: Clock) -> Device:
    """Start the app: the person is not asked again."""
    device = open_device(ASKED, directory, clock, agree=False)
    device.begin()
    return device
