"""Any Redis may carry tasks but the store's own."""

import socket
from contextlib import closing
from urllib.parse import urlsplit

from dither_aggregator.store.records import StoreError
from dither_aggregator.store.redis.client import Client
from dither_shared.errors import ConfigurationError

SCHEMES = ("redis", "rediss")
PORT = 6379


def address(url: str) -> str:
    """Return the address of a Redis as people are told it: without a user and password."""
    with closing(Client(url)) as client:
        return client.name


def check_broker(broker: str, data: str) -> None:
    """Raise ConfigurationError for what cannot be the broker of a store. It need not be reachable.

    Tasks in the store's own Redis would be synced to the disk one by one, and what may fill up or be emptied without
    harm would share the memory of what may not.
    """
    if not broker.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise ConfigurationError("the broker must be a Redis: redis://[:PASSWORD@]HOST:PORT/0")
    try:
        name = address(broker)
    except StoreError as error:
        raise ConfigurationError(str(error)) from None
    if _places(broker) & _places(data) or _run_id(broker) == _run_id(data) != "":
        raise ConfigurationError(
            f"the broker, {name}, is the store's own Redis: start another redis-server for it. Tasks may be lost and "
            "may fill a Redis; reports must not be, and wait for the disk"
        )


def _places(url: str) -> set[tuple[str, int]]:
    """Return where a Redis listens: every address that its host's name means, with the port."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {(parts.path, 0)}
    host, port = parts.hostname or "localhost", parts.port or PORT
    try:
        return {(str(found[4][0]), port) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        return {(host, port)}


def _run_id(url: str) -> str:
    """Return what a running Redis calls itself, whatever its address; "" when it does not say."""
    try:
        with closing(Client(url)) as client:
            return str(client.information().get("run_id", ""))
    except StoreError:
        return ""
