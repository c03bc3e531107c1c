"""Any Redis may carry tasks but the store's own."""

import socket
from contextlib import closing
from urllib.parse import urlsplit

from dither_aggregator.store.records import StoreError
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.redis.cluster import connect
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
    if _places(broker) & _places(data) or _run_ids(broker) & _run_ids(data):
        raise ConfigurationError(
            f"the broker, {name}, is the store's own Redis: start another redis-server for it. Tasks may be lost and "
            "may fill a Redis; reports must not be, and wait for the disk"
        )


def _places(url: str) -> set[tuple[str, int]]:
    """Return where a Redis listens: every address that its host's name means, with the port."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {(parts.path, 0)}
    places: set[tuple[str, int]] = set()
    for node in map(urlsplit, (f"//{each}" for each in parts.netloc.rpartition("@")[2].split(","))):
        host, port = node.hostname or "localhost", node.port or PORT
        try:
            places |= {(str(found[4][0]), port) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except OSError:
            places.add((host, port))
    return places


def _run_ids(url: str) -> set[str]:
    """Return what a running Redis calls itself, whatever its address; of a cluster, what each node does."""
    try:
        with closing(connect(url)) as client:
            return {str(one["run_id"]) for one in client.information() if "run_id" in one}
    except StoreError:
        return set()
