"""`dither serve`: the whole aggregator in one process, on one machine, in one directory."""

import argparse
import json
import logging
import signal
import threading
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

from dither_aggregator.arguments.serving import (
    add_key_file_arguments,
    add_limit_arguments,
    add_listening_arguments,
    base_path,
    capacity,
    first_write_key,
    limits,
    listeners,
    must_have_read_key,
    reachable_reason,
    register_key_files,
    say_write_key,
)
from dither_aggregator.arguments.settings import add_settings, directory
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.operations.administration import Administration
from dither_aggregator.operations.fork_server import Computer, fork_server
from dither_aggregator.operations.registry_process import read_apart
from dither_aggregator.operations.signal_handling import answer_signals, set_up_logging
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.documents import Offered
from dither_aggregator.store.sqlite import KEY_NAME, exclusive, kept_key
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.process_messages import ReadingApp
from dither_aggregator.web.public_site import PublicSite
from dither_aggregator.web.reader_pool import Readers
from dither_aggregator.web.request_admission import Admission
from dither_shared.errors import DitherError, RegistryError
from dither_shared.registry import Registry, utc_today

_log = logging.getLogger("dither_aggregator")

EXAMPLE = "dither serve metrics.toml --data /var/lib/dither --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    add_settings(
        parser, "data", required=True, read=directory, what="the directory where reports are kept; made if missing"
    )
    add_listening_arguments(parser)
    add_limit_arguments(parser)
    add_key_file_arguments(parser)
    add_settings(parser, "public", "log_format", "log_level")
    parser.add_argument(
        "--json", action="store_true", help='print one line {"url": ..., "key": ..., "health": ...} when ready'
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; then answer what is being asked, fold what was accepted, and stop."""
    set_up_logging(args.log_format, args.log_level)
    answer_signals()
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    try:
        registry.check_linked(str(args.registry))
    except RegistryError as error:
        _log.warning("`dither metrics check` refuses this registry; its reports are taken, as apps have it: %s", error)
    # The fork server first: it would keep a lock, a listener or a file that were there before.
    with (
        fork_server.running(),
        exclusive(args.data),
        closing(SQLiteStore.open_or_create(args.data, registry.app)) as store,
    ):
        Administration(store).start_with(registry)
        _show_beside(store, args.registry)
        register_key_files(store, args)
        kept = kept_key(args.data)
        key = first_write_key(store, args.data)
        public, health = listeners(args)
        reason = reachable_reason(args, public)
        must_have_read_key(store, str(args.data), reason)
        computer = Computer(store, str(args.data), alone=True)
        with WholeService(store, capacity(args), computer) as service:
            _reload_on_sighup(store, args.registry)
            readers = Readers(str(args.data), store.generation, want=service.want)
            site = PublicSite(args.public) if args.public else None
            app = create_app(service, ReadingApp(readers.answer), args.allow_host, reachable=bool(reason), public=site)
            server = HttpServer(app, public, health, Admission(service, limits(args), base_path(args)), readers.close)
            server.url += args.base_path or ""
            said = say_write_key(key if key != kept else f"in {args.data / KEY_NAME}" if kept else "")
            _serve(server, store.app, key, said, args.json)
    return 0


def _show_beside(store: SQLiteStore, registry: Path) -> None:
    """Take up the dashboard beside the registry; a bad one changes nothing, and the log says why."""
    try:
        Administration(store).show_beside(registry)
    except DitherError as error:
        _log.error("the dashboard was not taken up: %s", error)


def _reload_on_sighup(store: SQLiteStore, path: Path) -> None:
    """Load the registry again on SIGHUP; a bad one changes nothing, and the log says why."""
    asked: SimpleQueue[None] = SimpleQueue()

    def reload() -> None:
        while True:
            asked.get()
            try:
                offered = Offered.from_document(read_apart(path))
                Administration(store).load(offered)
            except (DitherError, OSError) as error:
                _log.error("the registry was not loaded again: %s", error)
            else:
                many = len(offered.metrics)
                _log.warning("the registry was loaded again: %d metric%s", many, "s" * (many != 1))
            _show_beside(store, path)

    # On a thread of its own: the main one may be anywhere, within the store too.
    threading.Thread(target=reload, name="registry", daemon=True).start()
    signal.signal(signal.SIGHUP, lambda *_: asked.put(None))


def _serve(server: HttpServer, app: str, key: str, said: str, as_json: bool) -> None:
    """Announce the address and where the key is, then answer requests until a signal."""
    # The server ends on both signals, after the requests that it is answering; then they do what is set here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if as_json:
            print(json.dumps({"url": server.url, "key": key or None, "health": server.health}), flush=True)
        else:
            print(f"dither serves {app} at {server.url}")
            print(said)
            print(f"health for monitors: {server.health}/readyz")
            print("Ctrl-C stops it", flush=True)
        server.run()
    except KeyboardInterrupt:
        pass
