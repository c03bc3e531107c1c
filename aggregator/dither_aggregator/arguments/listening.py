"""`--host`, `--port`, `--health` and `--allow-host`: where a command listens, and under which names it is read."""

import argparse
import sys

from dither_aggregator.web.listener import Listener
from dither_shared.errors import ConfigurationError

LOOPBACK = "127.0.0.1"


def add_listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--host", default=LOOPBACK, help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port_number, default=8080, help="0 for any free one (default: %(default)s)")
    parser.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        type=_place,
        help=f"where monitors ask for /livez and /readyz (default: {LOOPBACK}, and the port after --port)",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        type=_host_name,
        help="a name, beside localhost, under which pages and estimates are read; may be repeated; * for any",
    )


def port_number(text: str) -> int:
    """Read a TCP port."""
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")
    return int(text)


def _place(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if colon and not host:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT or PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, port_number(port)


def _host_name(text: str) -> str:
    name = text.lower().rstrip(".")
    if not name or not name.isascii() or any(each in name for each in ":/ "):
        raise argparse.ArgumentTypeError(f"must be a host's name without scheme and port, got {text!r}")
    return name


def listeners(args: argparse.Namespace) -> tuple[Listener, Listener]:
    """Return the public listener and health's. Raises ConfigurationError when an address cannot be had."""
    host, port = args.health or (LOOPBACK, _next_port(args.port))
    if port and port == args.port:  # also at another address: they are told apart by the port
        raise ConfigurationError(f"--health must have another port than {port}")
    public, health = Listener(args.host, args.port), Listener(host, port, "--health")
    if public.reachable_from_elsewhere:
        print(
            f"{args.host} can be reached from elsewhere: pages and estimates need no key, devices need TLS",
            file=sys.stderr,
        )
    return public, health


def _next_port(port: int) -> int:
    return port + 1 if 0 < port < 65_535 else 0
