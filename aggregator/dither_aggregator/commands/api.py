"""`dither api`: takes reports and shows estimates, in several processes, on any number of machines."""

import argparse
import json
from contextlib import closing
from functools import partial

from dither_aggregator.arguments.serving import (
    add_limit_arguments,
    add_listening_arguments,
    base_path,
    capacity,
    limits,
    listeners,
    must_have_read_key,
    reachable_reason,
)
from dither_aggregator.arguments.settings import (
    add_broker_argument,
    add_data_argument,
    add_lossy_argument,
    add_processes_argument,
    add_settings,
    must_be_redis,
)
from dither_aggregator.health.status import log_expiries
from dither_aggregator.operations.fork_server import fork_server
from dither_aggregator.operations.signal_handling import answer_signals, open_when_loaded, set_up_logging
from dither_aggregator.store import open_store
from dither_aggregator.web.process_supervisor import HttpProcesses, ServedStore
from dither_aggregator.workers.tasks import check_broker

EXAMPLE = "dither api --data redis://10.0.0.5:6379/0 --broker redis://10.0.0.6:6379/0 --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    add_broker_argument(parser, required=False)
    add_listening_arguments(parser)
    add_limit_arguments(parser)
    add_processes_argument(parser)
    add_lossy_argument(parser)
    add_settings(parser, "log_format", "log_level")
    parser.add_argument("--json", action="store_true", help='print one line {"url": ..., "health": ...} when ready')


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; then answer what is being asked, and stop."""
    set_up_logging(args.log_format, args.log_level)
    answer_signals()
    must_be_redis(args.data, "api")
    with fork_server.running():  # before there is a listener, or a connection to the store
        return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    of_each = limits(args).shared(args.processes)
    # Opened once before the first process starts: whatever is wrong with the store is said by the parent.
    open_ = partial(open_store, args.data, allow_lossy_store=args.allow_lossy_store)
    with closing(open_when_loaded(open_)) as store:
        app, generation = store.app, store.generation
        log_expiries(store)
        if args.broker:
            check_broker(args.broker, args.data)
        public, health = listeners(args)
        reason = reachable_reason(args, public)
        must_have_read_key(store, args.data, reason)
    served = ServedStore(
        args.data,
        args.broker,
        generation,
        args.allow_lossy_store,
        tuple(args.allow_host),
        bool(reason),
        of_each,
        capacity(args),
        base_path(args),
    )
    url = public.url + served.base_path.path
    processes = HttpProcesses(served, public, health, args.processes)

    def announce() -> None:
        if args.json:
            print(json.dumps({"url": url, "health": health.url}), flush=True)
        else:
            print(f"dither api takes reports of {app} at {url}")
            print(f"health for monitors: {health.url}/readyz", flush=True)

    processes.serve(announce)
    return 0
