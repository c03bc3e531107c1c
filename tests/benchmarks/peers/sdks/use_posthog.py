"""posthog: one client with its defaults."""

from typing import Any

from posthog import Posthog  # type: ignore[import-not-found]


def start(endpoint: str, directory: str) -> Any:
    """Start a client, which starts its thread."""
    return Posthog("key", host=endpoint)


def record(session: Any, i: int) -> None:
    """Capture an event of one user."""
    session.capture(f"event_{i}", distinct_id="user")


def finish(session: Any) -> None:
    """Send what waits."""
    session.flush()
