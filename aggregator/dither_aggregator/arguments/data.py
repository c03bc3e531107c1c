"""`--data`: which store a command works on. Loads no store before one is opened."""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_aggregator.store.interface import Store

ENVIRONMENT = "DITHER_DATA"


def add_data_argument(parser: argparse.ArgumentParser, what: str = "the store") -> None:
    """Add --data, the name of a store."""
    add_place_argument(parser, "STORE", store_name, f"{what}: a directory (SQLite) or redis://HOST:PORT/DB")


def add_place_argument(parser: argparse.ArgumentParser, metavar: str, read: Callable[[str], object], what: str) -> None:
    """Add --data, whose default is the environment's: a Redis password does not belong on a command line."""
    default = os.environ.get(ENVIRONMENT) or None
    parser.add_argument(
        "--data",
        metavar=metavar,
        type=read,
        default=default,
        required=default is None,
        help=f"{what} (default: ${ENVIRONMENT})",
    )


def add_lossy_argument(parser: argparse.ArgumentParser) -> None:
    """Add --allow-lossy-store."""
    parser.add_argument(
        "--allow-lossy-store",
        action="store_true",
        help="use a Redis that may lose acknowledged reports; every page then says so",
    )


def store_name(text: str) -> str:
    """Read a store's name. What looks like an address and is none is not repeated: there may be a password in it."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory or a Redis")
    if "://" in text and not text.startswith(("redis://", "rediss://", "unix://")):
        raise argparse.ArgumentTypeError("an address must begin with redis://, rediss:// or unix://")
    return text


@contextmanager
def opened(args: argparse.Namespace, *, read_only: bool = False) -> "Iterator[Store]":
    """Open the store that a command is to work on, and close it afterwards."""
    from dither_aggregator.store.opening import open_store

    store = open_store(args.data, read_only=read_only, allow_lossy_store=True)
    try:
        yield store
    finally:
        store.close()
