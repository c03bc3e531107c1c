"""The arguments of `start()`, after the environment had its say."""

import time
from collections.abc import Callable

from dither.sending.transport import Transport
from dither_shared.files import StrPath
from dither_shared.frozen import frozen
from dither_shared.registry import Registry


@frozen
class Settings:
    """The settings of one telemetry object."""

    registry: Registry
    transport: Transport
    directory: StrPath | None
    """The directory of the device's file, or None for a device in memory."""
    consent: bool | None
    silent: str = ""
    """Why nothing may be recorded, kept or sent, whatever the person chose."""
    strict: bool = False
    public: int = 0
    """The place of the device's value in the registry's public column."""
    development: bool = False
    """Whether this is a developer's machine: `status()` says so."""
    clock: Callable[[], float] = time.time
