"""sentry-sdk: its metrics, with the defaults of `init`."""

from typing import Any

import sentry_sdk  # type: ignore[import-not-found]


def start(endpoint: str, directory: str) -> Any:
    """Start with a DSN of the endpoint."""
    return sentry_sdk.init(dsn=endpoint.replace("://", "://key@") + "/1")


def record(session: Any, i: int) -> None:
    """Count one."""
    sentry_sdk.metrics.count(f"event_{i}", 1)


def finish(session: Any) -> None:
    """Send what waits."""
    sentry_sdk.flush(10)
