"""`dither api`: takes reports and shows estimates, in several processes, on any number of machines."""

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from dither_aggregator.arguments.broker import add_broker_argument, add_processes_argument, must_be_redis
from dither_aggregator.arguments.data import add_data_argument, add_lossy_argument
from dither_aggregator.commands.serve import port_number
from dither_aggregator.service import Service
from dither_aggregator.store import StoreError, open_store
from dither_aggregator.web import create_app
from dither_aggregator.web.processes import HttpProcesses, Worker
from dither_aggregator.workers.bells import Rope, make_app
from dither_aggregator.workers.brokers import check_broker
from dither_aggregator.workers.ringer import Ringer

EXAMPLE = "dither api --data redis://10.0.0.5:6379/0 --broker redis://10.0.0.6:6379/0 --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    add_broker_argument(parser, required=False)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port_number, default=8080, help="0 for any free one (default: %(default)s)")
    add_processes_argument(parser)
    add_lossy_argument(parser)
    parser.add_argument("--json", action="store_true", help='print one line {"url": ..., "key": ...} when ready')


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; then answer what is being asked, and stop."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    must_be_redis(args.data, "api")
    # What can be wrong with the store is found, and let go of, before the first process is forked.
    with closing(open_store(args.data, allow_lossy_store=args.allow_lossy_store)) as store:
        app, key, generation = store.app, store.key, store.generation
    if args.broker:
        check_broker(args.broker, args.data)
    http = HttpProcesses(lambda: _worker(args, generation), args.host, args.port, args.processes)
    if http.reachable_from_elsewhere:
        print(
            f"{args.host} can be reached from elsewhere: pages and estimates need no key, devices need TLS",
            file=sys.stderr,
        )

    def announce() -> None:
        if args.json:
            print(json.dumps({"url": http.url, "key": key}), flush=True)
        else:
            print(f"dither api takes reports of {app} at {http.url}")
            print(f"key for devices: {key}", flush=True)

    http.run(announce)
    return 0


@contextmanager
def _worker(args: argparse.Namespace, generation: str) -> Iterator[Worker]:
    """Open what one process needs of its own. It rings for what it wrote last before it ends.

    One that is started again takes up no other store: whoever's key that does not know would be told so for good.
    """
    with ExitStack() as opened:
        store = opened.enter_context(closing(open_store(args.data, allow_lossy_store=args.allow_lossy_store)))
        if store.generation != generation:
            raise StoreError("another store was put in the place of the one that this was started on: restart it")
        if args.broker:
            rope = opened.enter_context(closing(Rope(make_app(args.broker))))
            ringer = opened.enter_context(Ringer(rope.ring))
            service = opened.enter_context(Service(store, ringer.reports_came))
        else:
            service = opened.enter_context(Service(store))
        yield Worker(create_app(service), store.refresh)
