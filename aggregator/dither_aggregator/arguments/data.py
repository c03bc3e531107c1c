"""`--data`: which store a command works on. Loads no store before one is opened."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dither_aggregator.arguments.sources import add_settings

if TYPE_CHECKING:
    from dither_aggregator.store.contract import Store


def add_data_argument(parser: argparse.ArgumentParser, what: str = "the store") -> None:
    """Add --data, the name of a store."""
    add_settings(
        parser,
        "data",
        required=True,
        what=f"{what}: a directory (SQLite), redis://HOST:PORT/DB or redis+cluster://HOST:PORT",
    )


def add_lossy_argument(parser: argparse.ArgumentParser) -> None:
    """Add --allow-lossy-store."""
    add_settings(parser, "allow_lossy_store")


@contextmanager
def opened(args: argparse.Namespace, *, read_only: bool = False) -> "Iterator[Store]":
    """Open the store that a command is to work on, and close it afterwards."""
    from dither_aggregator.store.opening import open_store

    store = open_store(args.data, read_only=read_only, allow_lossy_store=True)
    try:
        yield store
    finally:
        store.close()
