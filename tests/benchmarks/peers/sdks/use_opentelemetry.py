"""OpenTelemetry: a counter, exported over OTLP and HTTP every minute and at exit, the reader's defaults.

Its attribute names the event. Each export holds what was counted since the last one (delta): cumulative, every export
would repeat all events, and copies could not be told from repetitions.
"""

from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # type: ignore[import-not-found]
    OTLPMetricExporter,
)
from opentelemetry.sdk.metrics import Counter, MeterProvider  # type: ignore[import-not-found]
from opentelemetry.sdk.metrics.export import (  # type: ignore[import-not-found]
    AggregationTemporality,
    PeriodicExportingMetricReader,
)


def start(endpoint: str, directory: str) -> Any:
    """Make a provider and a counter."""
    delta = {Counter: AggregationTemporality.DELTA}
    exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", preferred_temporality=delta)
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)])
    return provider, provider.get_meter("benchmark").create_counter("events")


def record(session: Any, i: int) -> None:
    """Count one."""
    session[1].add(1, {"event": f"event_{i}"})


def finish(session: Any) -> None:
    """Export what was counted."""
    session[0].force_flush()
