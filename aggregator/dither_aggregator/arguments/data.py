"""The arguments of many commands: a store, a broker, a file for the output. Loads no store before one is opened."""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dither_aggregator.arguments.settings import add_settings
from dither_shared.safe_output import behind

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


# `--broker`, and what else the commands for several machines have in common.


def add_broker_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add --broker."""
    add_settings(parser, "broker", required=required)


def add_processes_argument(parser: argparse.ArgumentParser) -> None:
    """Add --processes."""
    add_settings(parser, "processes")


def must_be_redis(data: str, command: str) -> None:
    """Refuse a directory to a command for several machines."""
    from dither_aggregator.store import StoreError
    from dither_aggregator.store.opening import is_redis

    if not is_redis(data):
        raise StoreError(
            f"`dither {command}` needs a store in Redis, and {data} is a directory: `dither serve` serves it, "
            "`dither store copy` moves it to Redis"
        )


# The argument that says where a command writes its lines.


def add_out_argument(action: argparse.ArgumentParser, what: str) -> None:
    """Add --out."""
    action.add_argument("--out", type=Path, metavar="FILE", help=f"write the {what} to a file (default: stdout)")


def write(text: str, out: Path | None) -> None:
    """Write lines in UTF-8, as they are, to a file or to stdout."""
    if out is not None:
        out.write_text(text, encoding="utf-8", newline="")
        return
    stdout = behind(sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8", newline="")  # values may be in any language
    print(text, end="", file=sys.stdout if stdout.isatty() else stdout)
