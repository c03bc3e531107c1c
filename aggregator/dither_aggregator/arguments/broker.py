"""`--broker`, and what else the commands for several machines have in common."""

import argparse

from dither_aggregator.arguments.sources import add_settings
from dither_aggregator.store import StoreError
from dither_aggregator.store.opening import is_redis


def add_broker_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add --broker."""
    add_settings(parser, "broker", required=required)


def add_processes_argument(parser: argparse.ArgumentParser) -> None:
    """Add --processes."""
    add_settings(parser, "processes")


def must_be_redis(data: str, command: str) -> None:
    """Refuse a directory to a command for several machines."""
    if not is_redis(data):
        raise StoreError(
            f"`dither {command}` needs a store in Redis, and {data} is a directory: `dither serve` serves it, "
            "`dither store copy` moves it to Redis"
        )
