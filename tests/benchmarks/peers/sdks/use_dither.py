"""dither: `event_i` is a flag of the registry that lies in the directory."""

import os

import dither


def start(endpoint: str, directory: str) -> dither.Telemetry:
    """Start on the directory's disk, from the compiled registry where it lies there."""
    registry = f"{directory}/metrics.json"
    if not os.path.exists(registry):  # noqa: PTH110  # pathlib would be counted as ours
        registry = f"{directory}/metrics.toml"
    return dither.start(registry, endpoint=endpoint, key="key", data_dir=f"{directory}/device", consent=True)


def record(session: dither.Telemetry, i: int) -> None:
    """Answer a yes-or-no question; only its first answer of a day counts."""
    getattr(session, f"event_{i}").record(True)


def finish(session: dither.Telemetry) -> None:
    """Send now instead of within the hour."""
    session.flush(10)
