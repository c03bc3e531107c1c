"""For an app's own tests: a telemetry object without a network, and an aggregator that fails on demand.

In the `conftest.py` of the project's root (PYTEST_DONT_REWRITE: it may import from here, too):

    pytest_plugins = ["dither.testing"]

brings the fixtures `telemetry` and `fake_aggregator`. They use `dither_registry`, which reads the file that the ini
option of this name says, by default `metrics.toml` in the root, and `dither_consent`, which is True: a project, or one
test, may override both. Without pytest, FakeAggregator stands alone, and so does
ask_crowd: simulated devices, and what their reports tell.
"""

from dither.testing.aggregator import FakeAggregator, Request
from dither.testing.crowd import ask_crowd, new_metric
from dither.testing.offline_telemetry import Recorded, TelemetryForTests

__all__ = ["FakeAggregator", "Recorded", "Request", "TelemetryForTests", "ask_crowd", "new_metric"]

pytest_plugins = ["dither.testing.pytest_plugin"]
