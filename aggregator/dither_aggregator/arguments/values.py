"""How settings are read: each function takes the text of a value, and raises ArgumentTypeError or ConfigurationError.

None of them repeats a text that may hold a password.
"""

import argparse
import os
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import date
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from dither_aggregator.ingest.request_limits import BY_ADDRESS, Network, Rate
from dither_aggregator.operations.log import FORMATS, LEVELS

_ORIGIN = re.compile(
    r"https?://(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:]+\])(?::[1-9][0-9]{0,4})?"
    r"|chrome-extension://[a-p]{32}|moz-extension://[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_OWN_PORT = re.compile(r"https:.*:443|http:.*:80")
CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://", *CLUSTER_SCHEMES)
LOOPBACK = "127.0.0.1"
PROCESSES_MAX = 1_000
OFF, AUTO = "off", "auto"


def store_name(text: str) -> str:
    """Read a store's name."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory or a Redis")
    if "://" in text and not text.startswith(REDIS_SCHEMES):
        raise argparse.ArgumentTypeError("an address must begin with redis://, rediss://, redis+cluster:// or unix://")
    return text


def day(text: str) -> date:
    """Return a day as people write it, and no other way."""
    with suppress(ValueError):
        if (found := date.fromisoformat(text)).isoformat() == text:
            return found
    raise argparse.ArgumentTypeError(f"must be a day such as 2026-11-20, got {text!r}")


def directory(text: str) -> Path:
    """Read a directory's name."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory")
    if "://" in text:
        raise argparse.ArgumentTypeError("must name a directory; `dither api` serves a store in Redis")
    return Path(text)


def mail_server(text: str) -> str:
    """Read a mail server's address."""
    with suppress(ValueError):
        found = urlsplit(text)
        if found.scheme in ("smtp", "smtps") and found.hostname and found.port != 0 and found.path in ("", "/"):
            return text
    raise argparse.ArgumentTypeError("must be smtp://[USER:PASSWORD@]HOST[:PORT], or smtps:// for TLS from the start")


def port_number(text: str) -> int:
    """Read a TCP port."""
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")
    return int(text)


def place(text: str) -> tuple[str, int]:
    """Read HOST:PORT, or a port on loopback."""
    host, colon, port = text.rpartition(":")
    if colon and not host:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT or PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, port_number(port)


def host_name(text: str) -> str:
    """Read a host's name."""
    name = text.lower().rstrip(".")
    if not name or not name.isascii() or any(each in name for each in ":/ "):
        raise argparse.ArgumentTypeError(f"must be a host's name without scheme and port, got {text!r}")
    return name


def origin(text: str) -> str:
    """Read an origin as browsers say it: scheme, host, and a port that is not the scheme's own; or an extension's."""
    said = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(said) or _OWN_PORT.fullmatch(said):
        raise argparse.ArgumentTypeError(
            f"must be an origin, as https://app.example.org, http://localhost:8000, chrome-extension://ID; got {text!r}"
        )
    return said


def base_path(text: str) -> str:
    """Read the path of a site."""
    from dither_aggregator.web.url_paths import read_base_path  # and with it Flask: only where it is used

    return read_base_path(text)


def network(text: str) -> Network:
    """Read an address, or a network."""
    try:
        return ip_network(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an address or a network, as 10.0.0.0/8, got {text!r}") from None


def processes(text: str) -> int:
    """Read how many processes there are to be."""
    if text == AUTO:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {PROCESSES_MAX}, or {AUTO}, got {text!r}")
    return int(text)


def shards(text: str) -> int:
    """Read how many shards there are to be; the store says how many it may have."""
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return int(text)


def replicas(text: str) -> int:
    """Read how many replicas each primary of a cluster has."""
    from dither_aggregator.store.redis.cluster import REPLICAS_MAX  # and with it redis-py: only where it is used

    if not (text.isascii() and text.isdigit()) or int(text) > REPLICAS_MAX:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to {REPLICAS_MAX}, got {text!r}")
    return int(text)


def with_replicas(store: str, number: int | None) -> str:
    """Return a store's name with a number of replicas, if it is the address of a cluster."""
    return f"{store}?replicas={number}" if store.startswith(CLUSTER_SCHEMES) and number is not None else store


def queues(text: str) -> tuple[str, ...]:
    """Read what workers do."""
    from dither_aggregator.workers.tasks import QUEUES  # and with it Celery: only where it is used

    if text == "all":
        return QUEUES
    asked = tuple(dict.fromkeys(text.split(",")))
    if not set(asked) <= set(QUEUES):
        raise argparse.ArgumentTypeError(f"must be some of {','.join(QUEUES)}, got {text!r}")
    return asked


def rate(text: str) -> Rate | None:
    """Read a rate, or None where it is off."""
    return None if text == OFF else Rate.parse(text)


def rate_of_addresses(text: str) -> tuple[Rate | None, bool]:
    """Read a rate, and whether it holds for this machine's own addresses, too: by default it does not."""
    return (BY_ADDRESS, False) if text == AUTO else (rate(text), True)


def uploads(text: str) -> int | None:
    """Read how many uploads, or None where that is off."""
    if text == OFF:
        return None
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise argparse.ArgumentTypeError(f"must be a number above 0, or {OFF}, got {text!r}")
    return int(text)


def log_format(text: str) -> str:
    """Read how a log is written."""
    return _one_of(FORMATS, text)


def log_level(text: str) -> str:
    """Read the least that is logged."""
    return _one_of(LEVELS, text)


def _one_of(words: Collection[str], text: str) -> str:
    if text not in words:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(words)}, got {text!r}")
    return text
