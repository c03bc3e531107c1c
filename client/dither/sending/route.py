"""The way to the aggregator: its address, a proxy, the authorities whose certificates are trusted."""

from __future__ import annotations

import os
from os import PathLike

from dither_shared.errors import ConfigurationError
from dither_shared.files import StrPath, absolute
from dither_shared.frozen import frozen
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.wire import PATH

if TYPE_CHECKING:
    from urllib.parse import SplitResult


@frozen
class Route:
    """The way that uploads take."""

    url: str
    proxy: str = ""
    """The app's proxy; "" for the environment's, if the aggregator is beyond this machine."""
    ca_file: str = ""
    """The app's certificate authorities; "" for the environment's, or those of `requests`."""

    @property
    def has_path(self) -> bool:
        """Whether the endpoint has a path of its own, as behind `--base-path`."""
        return "/" in self.url.removesuffix(PATH).partition("://")[2]

    @property
    def here(self) -> bool:
        """Whether the aggregator is on this machine's loopback."""
        from urllib.parse import urlsplit

        return is_loopback(urlsplit(self.url).hostname or "")


def find_route(endpoint: str, proxy: str | None = None, ca_file: StrPath | None = None) -> Route:
    """Return the way that an app asks for; raise ConfigurationError for one that cannot work."""
    url = check_endpoint(endpoint)
    through = "" if proxy is None else _check_proxy(proxy)
    if url.startswith("http:"):
        through = ""  # on loopback, where DITHER_ENDPOINT may lead a developer; a proxy would read reports and key
    return Route(url, through, "" if ca_file is None else _check_file(ca_file))


def check_endpoint(endpoint: str) -> str:
    """Return the address that uploads go to; raise ConfigurationError unless it is https, or http on loopback."""
    if _is_plain(endpoint):
        return endpoint.rstrip("/") + PATH
    parts = split_endpoint(endpoint)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"endpoint must be https beyond this machine, got {endpoint!r}")
    return endpoint.rstrip("/") + PATH


def _is_plain(endpoint: str) -> bool:
    """Tell whether an address is usual, and right: a start does without the parser of others."""
    if not isinstance(endpoint, str) or not endpoint.isascii():
        return False
    scheme, _, place = endpoint.removesuffix("/").partition("://")
    host, colon, port = place.partition(":")
    if colon and not (port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        return False
    if scheme == "https":
        return host.islower() and host.replace("-", "").replace(".", "").isalnum() and _is_host(host, place)
    return scheme == "http" and host in ("127.0.0.1", "localhost")


def split_endpoint(endpoint: str) -> SplitResult:
    """Return the parts of an aggregator's address; raise ConfigurationError for one that cannot be."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and _is_host(parts.hostname or "", parts.netloc)
        valid = valid and endpoint.isprintable() and not any(character in endpoint for character in " ?#")
    except (ValueError, AttributeError, TypeError):
        valid = False
    if isinstance(endpoint, str) and "@" in endpoint:
        raise ConfigurationError("endpoint must be like https://telemetry.example.org, without a user or a password")
    if not valid:
        raise ConfigurationError(f"endpoint must be like https://telemetry.example.org, got {endpoint!r}")
    return parts


def _check_proxy(proxy: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(proxy)
        # Its user and password are not looked at, and not shown: the message says none of it.
        valid = parts.scheme in ("http", "https") and parts.port != 0
        valid = valid and _is_host(parts.hostname or "", parts.netloc.rpartition("@")[2])
        valid = valid and parts.path in ("", "/") and proxy.isprintable() and not {" ", "?", "#"} & set(proxy)
    except (ValueError, AttributeError, TypeError):
        valid = False
    if not valid:
        raise ConfigurationError("proxy must be like http://proxy.example.org:3128, or http://user:password@...")
    return proxy


def _check_file(ca_file: StrPath) -> str:
    if not isinstance(ca_file, str | PathLike):
        raise ConfigurationError(f"ca_file must be the path of a PEM file, got one of type {type(ca_file).__name__}")
    # Absolute: where the app goes later, its authorities stay.
    path = absolute(ca_file)
    check_authorities(path, "ca_file")
    return path


def check_authorities(path: str, name: str) -> None:
    """Raise ConfigurationError unless a file holds certificates; `name` is that of the argument or variable."""
    import ssl  # only for a file that is named

    needed = f"{name} must be a file of certificates in PEM"
    if not os.path.isfile(path):
        raise ConfigurationError(f"{needed}, and there is none at {path}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        pass  # no certificate, or one that is spoiled
    except OSError as error:
        raise ConfigurationError(f"{needed}, and {path} cannot be read: {error.strerror}") from None
    if not context.cert_store_stats()["x509"]:
        raise ConfigurationError(f"{needed}, and {path} holds none")


def _is_host(host: str, netloc: str) -> bool:
    """Tell whether a host's name or address may be one. Plain calls: a pattern would take as long as a start may."""
    if "[" in netloc:
        return netloc.endswith("]") or "]:" in netloc
    labels = host.removesuffix(".").split(".")
    return all(label and not label.startswith("-") and not label.endswith("-") for label in labels)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's loopback."""
    import ipaddress  # only for addresses without TLS

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
