"""Settings of a command that serves: where, under which names it is read, whom it believes, how much may come."""

import argparse
from typing import TYPE_CHECKING

from dither_aggregator.arguments.sources import add_settings
from dither_aggregator.arguments.values import LOOPBACK
from dither_aggregator.health.capacity import Capacity
from dither_aggregator.ingest.request_limits import Limits
from dither_aggregator.store.opening import is_redis
from dither_aggregator.web.allowed_hosts import is_local
from dither_aggregator.web.listeners import Listener
from dither_aggregator.web.url_paths import BasePath
from dither_shared.errors import ConfigurationError

if TYPE_CHECKING:
    from dither_aggregator.store import Store


def add_listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --host, --port, --health, --allow-host, --allow-origin, --trusted-proxy and --base-path."""
    add_settings(parser, "host", "port", "health", "allow_host", "allow_origin", "trusted_proxy", "base_path")


def listeners(args: argparse.Namespace) -> tuple[Listener, Listener]:
    """Return the public listener and health's. Raises ConfigurationError when an address cannot be had."""
    host, port = args.health or (LOOPBACK, _next_port(args.port))
    if port and port == args.port:  # also at another address: they are told apart by the port
        raise ConfigurationError(f"--health must have another port than {port}")
    public = Listener(args.host, args.port)
    try:
        return public, Listener(host, port, "--health")
    except ConfigurationError:
        public.socket.close()
        raise


def base_path(args: argparse.Namespace) -> BasePath:
    """Return the path of a site below which all stands, also as a trusted proxy says it."""
    return BasePath(args.base_path or "", args.trusted_proxy)


def reachable_reason(args: argparse.Namespace, public: Listener) -> str:
    """Return why readers may come from beyond this machine, as the start of a sentence; "" where they may not."""
    if public.reachable_from_elsewhere:
        return f"--host {args.host} can be reached from elsewhere"
    if args.trusted_proxy:
        return "--trusted-proxy passes on what comes from elsewhere"
    beyond = [name for name in args.allow_host if not is_local(name)]
    return f"--allow-host {beyond[0]} is a name for readers elsewhere" if beyond else ""


def must_have_read_key(store: "Store", data: str, reason: str) -> None:
    """Raise ConfigurationError where there is a reason to need a read key, and none was ever made.

    One that was revoked is enough: then nobody may read, and uploads are taken.
    """
    if reason and not store.keys.reading_needs_key:
        if is_redis(data):  # its address may have a password in it, and `dither api` takes over no keys from files
            cure = "make one with `dither keys create read`, for the same store as here"
        else:
            cure = f"make one with `dither keys create read --data {data}`, or name a file in DITHER_READ_KEY_FILE"
        raise ConfigurationError(f"{reason}, so reading must need a key: {cure}")


def _next_port(port: int) -> int:
    return port + 1 if 0 < port < 65_535 else 0


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --limit-address, --limit-key, --backlog-max and --disk-floor."""
    add_settings(parser, "limit_address", "limit_key", "backlog_max", "disk_floor")


def limits(args: argparse.Namespace) -> Limits:
    """Return how often uploads may come."""
    by_address, this_machine = args.limit_address
    return Limits(args.limit_key, by_address, this_machine, tuple(args.trusted_proxy), tuple(args.allow_origin))


def capacity(args: argparse.Namespace) -> Capacity:
    """Return what the store must have left."""
    return Capacity(args.backlog_max, args.disk_floor)
