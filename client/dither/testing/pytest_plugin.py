"""The pytest plugin of `dither.testing`: its fixtures, and the ini option that says where the registry is.

PYTEST_DONT_REWRITE: nothing is asserted here, so it may be imported beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dither.sending.transport import HttpTransport
from dither.telemetry import _made
from dither.testing.aggregator import FakeAggregator
from dither.testing.offline_telemetry import Clock, TelemetryForTests
from dither_shared.errors import RegistryError
from dither_shared.registry import Registry


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option."""
    parser.addini("dither_registry", "the app's registry, relative to the rootdir", default="metrics.toml")


@pytest.fixture(scope="session")
def dither_registry(pytestconfig: pytest.Config) -> Registry:
    """Return the registry of the tests; a project that overrides this may return a path, too."""
    try:
        return Registry.load(pytestconfig.rootpath / pytestconfig.getini("dither_registry"))
    except RegistryError as error:
        pytest.fail(
            f"{error}\nThe tests' registry is the file that the ini option dither_registry names, "
            f"relative to {pytestconfig.rootpath}, or what a fixture dither_registry of yours returns.",
            pytrace=False,
        )


@pytest.fixture
def dither_consent() -> bool | None:
    """Return what the person said before the test: that they agree. It counts where the app's `start` has no `consent`.

    It is None for a person who was never asked:

        @pytest.mark.parametrize("dither_consent", [None])
        def test_the_dialog_is_shown(telemetry): ...
    """
    return True


@pytest.fixture
def _dither_clock() -> Clock:
    return Clock()


@pytest.fixture
def telemetry(
    request: pytest.FixtureRequest, dither_registry: Registry, dither_consent: bool | None, _dither_clock: Clock
) -> Iterator[TelemetryForTests]:
    """Yield the telemetry of one test: strict, in memory, without a network, whatever the environment says.

        def test_the_theme_is_recorded(telemetry):
            telemetry.theme.record("dark")
            assert telemetry.recorded() == [Recorded("theme", "dark")]

    A start by the app within the test returns this object, and an object that it started before stands for it
    meanwhile. With `fake_aggregator` in the same test, `flush()` delivers there; else it says that the network is
    refused.
    """
    transport = None
    if "fake_aggregator" in request.fixturenames:
        fake = request.getfixturevalue("fake_aggregator")
        transport = HttpTransport(fake.url, fake.key)
    telemetry = TelemetryForTests(dither_registry, transport, _dither_clock, dither_consent)
    with standing_in(telemetry):
        yield telemetry
    telemetry._end_test()


@contextmanager
def standing_in(telemetry: TelemetryForTests) -> Iterator[None]:
    """Let `telemetry` stand for whatever telemetry the app starts or has kept."""
    kept = [one for one in _made if one is not telemetry]
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("DITHER_DRY_RUN", raising=False)  # it would agree in the person's place
        # Not `dither.start`, which the app may have imported by name. So its arguments are checked as ever.
        patched.setattr("dither.starting.Telemetry", telemetry._start_again)
        for one in kept:
            patched.setattr(one, "__class__", TelemetryForTests)
            patched.setattr(one, "__dict__", telemetry.__dict__)
        yield


@pytest.fixture
def fake_aggregator(
    dither_registry: Registry, _dither_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeAggregator]:
    """Yield an aggregator that takes the reports of the registry, on the clock of `telemetry`.

        def test_the_theme_is_delivered(telemetry, fake_aggregator):
            telemetry.theme.record("dark")
            assert telemetry.flush().sent == fake_aggregator.reports["theme"] == 1

    Without `telemetry`, `dither.start` is the real one with `key=fake_aggregator.key`. The environment sends it to this
    address and keeps its state in memory: set DITHER_DATA_DIR for a device whose file is part of the test.
    """
    with FakeAggregator(dither_registry, clock=_dither_clock) as fake:
        for variable in ("DO_NOT_TRACK", "DITHER_DRY_RUN"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("DITHER_TELEMETRY", "1")
        monkeypatch.setenv("DITHER_ENDPOINT", fake.url)
        monkeypatch.setenv("DITHER_DATA_DIR", ":memory:")
        yield fake
