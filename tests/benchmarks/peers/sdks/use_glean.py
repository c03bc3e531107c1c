"""glean-sdk: events in a ping of their own.

The ping and the metric are made here rather than read from YAML files, whose parsing would come on top.
"""

from pathlib import Path
from typing import Any

from glean import Configuration, Glean  # type: ignore[import-not-found]
from glean.metrics import (  # type: ignore[import-not-found]
    CommonMetricData,
    EventExtras,
    EventMetricType,
    Lifetime,
    PingType,
)


class Extra(EventExtras):  # type: ignore[misc]
    """Which event it is."""

    def __init__(self, event: str) -> None:
        self._event = event

    def to_ffi_extra(self) -> dict[str, str]:
        """Return it as what comes with an event."""
        return {"event": self._event}


def start(endpoint: str, directory: str) -> Any:
    """Initialize; Glean goes on with that in a thread."""
    ping = PingType(
        "benchmark",
        include_client_id=False,
        send_if_empty=False,
        precise_timestamps=True,
        include_info_sections=True,
        schedules_pings=[],
        reason_codes=[],
        uploader_capabilities=[],
    )
    common = CommonMetricData(
        category="benchmark", name="happened", send_in_pings=["benchmark"], lifetime=Lifetime.PING, disabled=False
    )
    Glean.initialize(
        application_id="benchmark",
        application_version="1",
        upload_enabled=True,
        data_dir=Path(directory) / "glean",
        configuration=Configuration(server_endpoint=endpoint),
    )
    return ping, EventMetricType(common, ["event"])


def record(session: Any, i: int) -> None:
    """Record an event, which a thread of Glean's then writes down."""
    session[1].record(Extra(f"event_{i}"))


def finish(session: Any) -> None:
    """Submit the ping: a process of Glean's sends it."""
    session[0].submit()
