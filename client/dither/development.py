"""Development: what a device does over a year, seen at once and on this machine alone.

A device in development has neither quiet days nor drawn periods, a file of its own, and an aggregator on loopback. So
whatever a developer tries reaches no real count, and an app that is shipped by mistake with it sends nothing.
"""

from __future__ import annotations

from types import MappingProxyType

from dither.sending.route import is_loopback, split_endpoint
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import replaced
from dither_shared.registry import Registry

FOLDER = "development"
"""The folder of its device's file, within the one of the app."""


def without_waiting(registry: Registry) -> Registry:
    """Return a registry whose metrics are answered from a new device's first period on."""
    metrics = {name: replaced(metric, schedule="early") for name, metric in registry.metrics.items()}
    return replaced(registry, quiet_days=0, metrics=MappingProxyType(metrics))


def check_here(endpoint: str) -> None:
    """Raise ConfigurationError unless an endpoint is an address on loopback."""
    if not is_loopback(split_endpoint(endpoint).hostname or ""):
        raise ConfigurationError(
            f"endpoint must be on this machine in development, like http://127.0.0.1:8080, got {endpoint!r}: "
            "start `dither serve` here, or leave development out"
        )
