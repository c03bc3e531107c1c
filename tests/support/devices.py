"""Devices for the tests: made, recorded to, and sent from without a network."""

import json
import random
from pathlib import Path
from typing import Any

from dither.device import BuiltUpload, Device
from dither.device.recording import EPOCH
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from tests.support.clocks import Clock
from tests.support.registries import registry

EXPIRES = EPOCH.fromordinal(EPOCH.toordinal() + 20_777 + 100)
"""A hundred days after the clock starts."""

MEMO: dict[str, Any] = {"epsilon": "1", "epsilon_permanent": "4", "device_epsilon": "16"}
"""Both metrics memoized, for two answers of 4."""

_made: list[Device] = []


def open_device(
    asked: Registry, directory: Path | None, clock: Clock, rng: Rng | None = None, seed: int = 1, *, agree: bool = True
) -> Device:
    """Return a device whose person agrees to the registry unless told otherwise; it is closed when the test ends."""
    device = Device(asked, directory, rng or Rng(random.Random(seed).getrandbits), clock)
    _made.append(device)  # also one that cannot be opened has a connection
    device.open()
    if agree:
        device.agree()
    return device


def close_all() -> None:
    """Close the devices of a test."""
    while _made:
        _made.pop().close()


def make(clock: Clock, directory: Path | None = None, seed: int = 1, **changes: object) -> tuple[Device, Registry]:
    """Return a device and its registry, of which `changes` are the keywords."""
    asked = registry(**{"expires": EXPIRES, **changes})
    return open_device(asked, directory, clock, seed=seed), asked


def begun(directory: Path | None = None, seed: int = 1, **changes: object) -> tuple[Device, Registry, Clock]:
    """Return a device, its registry, and its clock, which begins."""
    clock = Clock()
    return *make(clock, directory, seed, **changes), clock


def record(device: Device, asked: Registry, metric: str = "color", answer: object = "red") -> str:
    """Record an answer, and return why the metric is silent if it is."""
    return device.record(asked.metrics[metric], answer)


def send(device: Device) -> dict[str, Any] | None:
    """Send the upload, pretend that it was accepted, and return its body."""
    upload = connect(device)
    if upload is None:
        return None
    device.settle(upload.id, "accepted", "accepted")
    body: dict[str, Any] = json.loads(upload.body)
    return body


def connect(device: Device) -> BuiltUpload | None:
    """Begin an attempt: build the upload and charge it, as when a connection stands."""
    upload = device.next_upload()
    if upload is not None:
        assert device.charge(upload.id)
    return upload


def classes(device: Device, metric: str = "color") -> list[tuple[str, int]]:
    """Return the classes that a memoized metric has answered with, and whether each was charged."""
    with device._file.peek():
        sql = "SELECT class, charged FROM class WHERE metric = ? ORDER BY place"
        return device._file.execute(sql, (metric,)).fetchall()
