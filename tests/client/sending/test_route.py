"""Proxies and private certificate authorities: a real aggregator behind TLS, reached as an app asks for."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.sending.transport import HttpTransport
from dither_aggregator.ingest.service import Service
from dither_shared.errors import ConfigurationError
from tests.support.aggregators import aggregator
from tests.support.certificates import Certificate, certificate
from tests.support.keys import write_key
from tests.support.peers import Proxy, Relay, running
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted

BEYOND = "telemetry.invalid"
"""No name server knows it: only a proxy reaches it."""
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("private"), "127.0.0.1", BEYOND)


@pytest.fixture(scope="module")
def closed() -> int:
    """Return a port where nobody listens."""
    with scripted(Reply()) as (url, _):
        return int(url.rpartition(":")[2])


@dataclass
class Behind:
    """An aggregator behind TLS, and a proxy that leads to it."""

    service: Service
    port: int
    proxy: str
    connects: list[str]
    """A word for each tunnel that the proxy was asked for."""

    @property
    def here(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def beyond(self) -> str:
        return f"https://{BEYOND}:{self.port}"

    def send(self, endpoint: str, **settings: Any) -> tuple[int, str]:
        """Record and flush; return how many reports were sent, and what became of the last attempt."""
        key = write_key(self.service.store)
        with dither.start(
            registry(), endpoint=endpoint, key=key, data_dir=":memory:", consent=True, **settings
        ) as telemetry:
            telemetry.color.record("red")
            assert telemetry.status().silent == ""
            sent = telemetry.flush(20).sent
            return sent, telemetry.status().sending.outcome


@pytest.fixture
def behind(private: Certificate, tmp_path: Path) -> Iterator[Behind]:
    with made(tmp_path, private.server_context()) as one:
        yield one


@contextmanager
def made(directory: Path, context: ssl.SSLContext) -> Iterator[Behind]:
    connects: list[str] = []
    with aggregator(registry(), directory / "data") as (url, service):
        port = int(url.rpartition(":")[2])
        with running(Relay(port, context)) as relay, running(Proxy(connects, relay.port)) as proxy:
            yield Behind(service, relay.port, f"http://127.0.0.1:{proxy.port}", connects)


def test_a_private_authority_is_trusted_where_the_app_names_it(behind: Behind, private: Certificate) -> None:
    assert behind.send(behind.here) == (0, "no answer (SSLError)")
    assert behind.send(behind.here, ca_file=private.authority) == (1, "accepted")
    (row,) = behind.service.store.ledger()
    assert (row.metric, row.accepted) == ("color", 1)
    assert behind.connects == []


def test_an_aggregator_beyond_this_machine_is_reached_by_the_apps_proxy(behind: Behind, private: Certificate) -> None:
    assert behind.send(behind.beyond, ca_file=private.authority)[0] == 0
    assert behind.send(behind.beyond, ca_file=private.authority, proxy=behind.proxy) == (1, "accepted")
    assert behind.connects == ["CONNECT"]


def test_the_apps_proxy_counts_on_loopback_too(behind: Behind, private: Certificate) -> None:
    assert behind.send(behind.here, ca_file=private.authority, proxy=behind.proxy) == (1, "accepted")
    assert behind.connects == ["CONNECT"]


def test_the_environments_proxy_and_authorities_count_where_the_app_says_nothing(
    behind: Behind, private: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", behind.proxy)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(private.authority))
    assert behind.send(behind.beyond) == (1, "accepted")
    assert behind.connects == ["CONNECT"]
    assert behind.send(behind.here) == (1, "accepted")
    assert behind.connects == ["CONNECT"]  # on loopback its authorities count, and its proxy does not


def test_what_the_app_says_goes_before_the_environments(
    behind: Behind, private: Certificate, closed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{closed}")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate(tmp_path, BEYOND).authority))
    assert behind.send(behind.beyond, ca_file=private.authority, proxy=behind.proxy) == (1, "accepted")
    assert behind.connects == ["CONNECT"]


def test_a_file_that_is_named_relative_to_a_directory_is_found_from_another(
    behind: Behind, private: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(private.authority.parent)
    key = write_key(behind.service.store)
    with dither.start(
        registry(), endpoint=behind.here, key=key, data_dir=":memory:", consent=True, ca_file=private.authority.name
    ) as telemetry:
        monkeypatch.chdir(tmp_path)
        telemetry.color.record("red")
        assert telemetry.flush(20).sent == 1


def test_a_proxy_is_told_its_user_and_password() -> None:
    with scripted(Reply(407)) as (url, requests):
        transport = HttpTransport(f"https://{BEYOND}", "k", url.replace("//", "//someone:marker@"))
        transport.post("id", b"{}", lambda: None)
        transport.idle()
    assert [request.path for request in requests] == [f"{BEYOND}:443"]
    assert requests[0].headers["Proxy-Authorization"] == f"Basic {b64encode(b'someone:marker').decode()}"
    assert "Authorization" not in requests[0].headers


PROXIES = ["", "proxy.example.org:3128", "socks5://127.0.0.1:1080", "http://", "http://a b", "http://p:99999", 5, b"x"]


@pytest.mark.parametrize("proxy", [*PROXIES, "http://someone:marker@/", "http://p.example.org/path", "http://[::1"])
def test_a_proxy_that_cannot_be_one_is_refused_and_its_password_not_shown(proxy: Any) -> None:
    with pytest.raises(ConfigurationError, match="proxy must be like http://proxy") as caught:
        HttpTransport("https://example.org", "k", proxy)
    assert "marker" not in str(caught.value)


def test_no_proxy_sees_what_goes_without_tls() -> None:
    with scripted(Reply(body=accepted)) as (url, requests), scripted(Reply(500)) as (proxy, proxied):
        with dither.start(
            registry(), endpoint=url, key="k", consent=True, data_dir=":memory:", proxy=proxy
        ) as telemetry:
            telemetry.color.record("red")
            assert telemetry.flush(20).sent == 1
        assert (len(requests), proxied) == (1, [])


def test_a_file_of_authorities_that_is_missing_turns_telemetry_off(tmp_path: Path) -> None:
    with dither.start(
        registry(), endpoint="https://example.org", key="k", consent=True, data_dir=tmp_path, ca_file=tmp_path / "x.pem"
    ) as telemetry:
        assert telemetry.status().silent == (
            f"ca_file must be a file of certificates in PEM, and there is none at {tmp_path}/x.pem"
        )


SPOILED = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("written", ["", "no certificate\n", SPOILED])
def test_a_file_without_certificates_turns_telemetry_off(written: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pem"
    path.write_text(written, encoding="utf-8")
    said = f"ca_file must be a file of certificates in PEM, and {path} holds none"
    with dither.start(
        registry(), endpoint="https://example.org", key="k", consent=True, data_dir=":memory:", ca_file=path
    ) as telemetry:
        assert telemetry.status().silent == said
    with pytest.raises(ConfigurationError, match="holds none"):
        dither.start(registry(), endpoint="https://example.org", key="k", ca_file=path, strict=True)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_variable_that_names_no_certificates_is_named(
    variable: str, behind: Behind, private: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pem"
    monkeypatch.setenv(variable, str(path))
    needed = f"no answer ({variable} must be a file of certificates in PEM, and"
    assert behind.send(behind.here) == (0, f"{needed} there is none at {path})")
    path.write_bytes(b"")
    assert behind.send(behind.here) == (0, f"{needed} {path} holds none)")
    path.write_bytes(private.authority.read_bytes())
    assert behind.send(behind.here) == (1, "accepted")


def test_a_file_of_authorities_that_is_gone_since_the_start_is_named(
    behind: Behind, private: Certificate, tmp_path: Path
) -> None:
    path = tmp_path / "x.pem"
    path.write_bytes(private.authority.read_bytes())
    transport = HttpTransport(behind.here, "k", ca_file=path)
    path.unlink()
    assert "(ca_file must be a file" in transport.post("id", b"{}", lambda: None).detail


def test_authorities_of_another_type_are_named() -> None:
    wrong: Any = 5
    with dither.start(
        registry(), endpoint="https://example.org", key="k", consent=True, data_dir=":memory:", ca_file=wrong
    ) as telemetry:
        assert telemetry.status().silent == "ca_file must be the path of a PEM file, got one of type int"
