"""dither: telemetry under local differential privacy.

Every answer is randomized on the device before anything leaves it. `start()` is the way in; `client/device.md`
explains what a device keeps, sends and never says.
"""

from __future__ import annotations

from dither.device import Sending
from dither.sending.upload_thread import FlushResult
from dither.starting import start
from dither.status import MetricStatus, Preview, Status
from dither.telemetry import Choice, Choices, Flag, Number, OwnUse, Table, Telemetry, Text
from dither_shared.errors import ConfigurationError, DitherError, InvalidAnswer, InvalidParameter, RegistryError
from dither_shared.light_typing import TYPE_CHECKING, Any
from dither_shared.registry import Registry

if TYPE_CHECKING:
    from dither.terms_sentences import Sentence

__all__ = [
    "Choice",
    "Choices",
    "ConfigurationError",
    "DitherError",
    "Flag",
    "FlushResult",
    "InvalidAnswer",
    "InvalidParameter",
    "MetricStatus",
    "Number",
    "OwnUse",
    "Preview",
    "Registry",
    "RegistryError",
    "Sending",
    "Sentence",
    "Status",
    "Table",
    "Telemetry",
    "Text",
    "start",
]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: reading the distribution's metadata, and what words need, would slow every import.
    if name == "__version__":
        from importlib.metadata import version

        return version("dither")
    if name == "Sentence":
        from dither.terms_sentences import Sentence

        return Sentence
    raise AttributeError(f"module 'dither' has no attribute {name!r}")
