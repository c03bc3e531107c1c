"""`--broker`, and what else the commands for several machines have in common."""

import argparse
import os

from dither_aggregator.store import StoreError
from dither_aggregator.store.opening import is_redis

ENVIRONMENT = "DITHER_BROKER"
PROCESSES_MAX = 1_000


def add_broker_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add --broker, whose default is the environment's: a Redis password does not belong on a command line."""
    default = os.environ.get(ENVIRONMENT) or None
    parser.add_argument(
        "--broker",
        metavar="REDIS",
        default=default,
        required=required and default is None,
        help=f"the Redis that carries bells, another one than the store's: redis://HOST:PORT/DB "
        f"(default: ${ENVIRONMENT})",
    )


def add_processes_argument(parser: argparse.ArgumentParser) -> None:
    """Add --processes."""
    default = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument(
        "--processes", metavar="N", type=_processes, default=default, help="how many (default: one a CPU, %(default)s)"
    )


def _processes(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {PROCESSES_MAX}, got {text!r}")
    return int(text)


def must_be_redis(data: str, command: str) -> None:
    """Refuse a directory to a command for several machines."""
    if not is_redis(data):
        raise StoreError(
            f"`dither {command}` needs a store in Redis, and {data} is a directory: `dither serve` serves it, "
            "`dither store copy` moves it to Redis"
        )
