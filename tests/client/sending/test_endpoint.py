"""An endpoint is https, or loopback."""

import pytest

from dither.sending.route import check_endpoint
from dither_shared.errors import ConfigurationError


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://telemetry.example.org",
        "https://example.org:8443/dither/",
        "http://127.0.0.1:8080",
        "http://[::1]:80",
        "http://localhost:1",
        "http://127.9.9.9",
    ],
)
def test_https_and_loopback_are_accepted(endpoint: str) -> None:
    assert check_endpoint(endpoint) == endpoint.rstrip("/") + "/v1/reports"


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("http://example.org", "must be https beyond this machine"),
        ("http://10.0.0.1:8080", "must be https"),
        ("http://localhost.example.org", "must be https"),
        ("ftp://example.org", "must be like"),
        ("example.org", "must be like"),
        ("https://", "must be like"),
        ("https://user:pass@example.org", "must be like"),
        ("https://example.org?x=1", "must be"),
        ("https://example.org:99999", "must be like"),
        ("http://[::1", "must be like"),
        ("", "must be like"),
        ("https://example.org/?", "must be like"),
        ("https://:p@example.org", "must be like"),
        ("https://exa mple.org", "must be like"),
        ("https://-example..org", "must be like"),
        ("https://exam\nple.org", "must be like"),
        ("https://[::1]x", "must be like"),
        (None, "must be like"),
        (5, "must be like"),
    ],
)
def test_other_endpoints_are_refused(endpoint: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_endpoint(endpoint)


def test_a_password_in_an_endpoint_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_endpoint("https://someone:marker@example.org")
    assert "marker" not in str(caught.value)
