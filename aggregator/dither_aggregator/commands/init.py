"""`dither init`: make the store of an app, before the first process that uses it."""

import argparse
import json
from contextlib import closing, suppress
from pathlib import Path

from dither_aggregator.arguments.serving import (
    add_key_file_arguments,
    first_write_key,
    register_key_files,
    say_write_key,
)
from dither_aggregator.arguments.settings import add_data_argument, add_lossy_argument, add_settings
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import SHARDS, Store, StoreError, create_store, is_redis, open_store
from dither_shared.registry import Registry, utc_today

EXAMPLE = "dither init metrics.toml --data redis://10.0.0.5:6379/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    add_data_argument(parser)
    add_settings(parser, "shards")
    add_key_file_arguments(parser)
    add_lossy_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Make it, load the registry, and say what devices need to know."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    if args.shards is not None and not is_redis(args.data):
        raise StoreError("a directory's store has one shard: leave --shards away")
    if there := _app_of(args.data):
        raise StoreError(
            f"there is a store of {there} already: `dither metrics load REGISTRY` changes its metrics, "
            "`dither store show` shows it"
        )
    shards = SHARDS if args.shards is None else args.shards
    with closing(create_store(args.data, registry.app, shards, allow_lossy_store=args.allow_lossy_store)) as store:
        Administration(store).start_with(registry)
        register_key_files(store, args)
        key = first_write_key(store, None if is_redis(args.data) else Path(args.data))
        _describe(store, len(registry.metrics), key, args.json)
    return 0


def _app_of(name: str) -> str:
    """Return the app of a store that is there, or ""."""
    with suppress(StoreError), closing(open_store(name, read_only=True, allow_lossy_store=True)) as store:
        return store.app
    return ""


def _describe(store: Store, metrics: int, key: str, as_json: bool) -> None:
    document = {"app": store.app, "shards": store.shards, "generation": store.generation, "key": key or None}
    if as_json:
        print(json.dumps(document))
        return
    print(f"made a store for {store.app}: {metrics} metrics, {store.shards} shards, generation {store.generation}")
    print(say_write_key(key))
