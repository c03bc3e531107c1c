"""A certificate that a test may trust, and an environment as for a host beyond this machine."""

import pytest

from tests.support.certificates import Certificate, certificate
from tests.support.in_memory import tmp_path as tmp_path


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "telemetry.invalid")


@pytest.fixture
def _beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment count, as for a host beyond this machine, and only what a test puts there."""
    monkeypatch.setattr("dither.sending.route.is_loopback", lambda host: False)
    monkeypatch.setattr("dither.sending.route.check_endpoint", lambda endpoint: endpoint + "/v1/reports")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
