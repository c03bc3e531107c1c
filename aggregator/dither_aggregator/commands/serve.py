"""`dither serve`: the whole aggregator in one process, on one machine, in one directory."""

import argparse
import json
import logging
import signal
import threading
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

from dither_aggregator.arguments.data import add_place_argument
from dither_aggregator.arguments.listening import add_listening_arguments, listeners
from dither_aggregator.running import answer_signals, set_up_logging
from dither_aggregator.service import Service, WholeService
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.sqlite import exclusive
from dither_aggregator.web import create_app
from dither_aggregator.web.readers import Readers
from dither_aggregator.web.reading import ReadingApp
from dither_aggregator.web.server import HttpServer
from dither_shared.errors import DitherError
from dither_shared.registry import Registry, utc_today

_log = logging.getLogger("dither_aggregator")

EXAMPLE = "dither serve metrics.toml --data /var/lib/dither --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    add_place_argument(parser, "DIR", directory, "where reports are kept; made if missing")
    add_listening_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help='print one line {"url": ..., "key": ..., "health": ...} when ready'
    )


def directory(text: str) -> Path:
    """Read a directory's name."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory")
    if "://" in text:  # not repeated: there may be a password in it
        raise argparse.ArgumentTypeError("must name a directory; `dither api` serves a store in Redis")
    return Path(text)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; then answer what is being asked, fold what was accepted, and stop."""
    set_up_logging()
    answer_signals()
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    with exclusive(args.data), closing(SQLiteStore.open_or_create(args.data, registry.app)) as store:
        store.load(registry)
        with WholeService(store) as service:
            _reload_on_sighup(store, args.registry)
            _serve(service, args)
    return 0


def _reload_on_sighup(store: SQLiteStore, path: Path) -> None:
    """Load the registry again on SIGHUP; a bad one changes nothing, and the log says why."""
    asked: SimpleQueue[None] = SimpleQueue()

    def reload() -> None:
        while True:
            asked.get()
            try:
                registry = Registry.load(path)
                registry.check_dates(utc_today(), str(path))
                store.load(registry)
            except (DitherError, OSError) as error:
                _log.error("the registry was not loaded again: %s", error)
            else:
                _log.warning("the registry was loaded again: %d metrics", len(registry.metrics))

    # On a thread of its own: the main one may be anywhere, within the store too.
    threading.Thread(target=reload, name="registry", daemon=True).start()
    signal.signal(signal.SIGHUP, lambda *_: asked.put(None))


def _serve(service: Service, args: argparse.Namespace) -> None:
    """Announce the address and the key, then answer requests until a signal."""
    readers = Readers(str(args.data), service.store.generation)
    app = create_app(service, ReadingApp(readers.answer), args.allow_host)
    server = HttpServer(app, *listeners(args), close=readers.close)
    # The server ends on both signals, after the requests that it is answering; then they do what is set here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.json:
            print(json.dumps({"url": server.url, "key": service.store.key, "health": server.health}), flush=True)
        else:
            print(f"dither serves {service.store.app} at {server.url}")
            print(f"key for devices: {service.store.key}")
            print(f"health for monitors: {server.health}/readyz")
            print("Ctrl-C stops it", flush=True)
        server.run()
    except KeyboardInterrupt:
        pass
