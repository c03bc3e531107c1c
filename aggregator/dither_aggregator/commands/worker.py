"""`dither worker`: processes that fold, estimate and maintain a store in Redis."""

import argparse
import json
from contextlib import closing, nullcontext
from functools import partial

from dither_aggregator.arguments.settings import (
    add_broker_argument,
    add_data_argument,
    add_lossy_argument,
    add_processes_argument,
    add_settings,
    must_be_redis,
)
from dither_aggregator.operations.fork_server import fork_server
from dither_aggregator.operations.signal_handling import answer_signals, open_when_loaded, set_up_logging
from dither_aggregator.store import open_store
from dither_aggregator.workers.candidate_jobs import secret_of
from dither_aggregator.workers.tasks import FOLD, LOOK, READ, address, check_broker
from dither_aggregator.workers.worker import work

EXAMPLE = "dither worker --data redis://10.0.0.5:6379/0 --broker redis://10.0.0.6:6379/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    add_broker_argument(parser, required=True)
    add_processes_argument(parser)
    add_settings(parser, "queues")
    add_lossy_argument(parser)
    add_settings(parser, "log_format", "log_level")
    parser.add_argument("--json", action="store_true", help="print one line of JSON when ready")


def run(args: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT. Faults of the store are found before the first process starts."""
    set_up_logging(args.log_format, args.log_level)
    answer_signals()
    must_be_redis(args.data, "worker")
    with fork_server.running() if {READ, LOOK} & {*args.queues} else nullcontext():  # before there is a connection
        return _work(args)


def _work(args: argparse.Namespace) -> int:
    open_ = partial(open_store, args.data, allow_lossy_store=args.allow_lossy_store)
    with closing(open_when_loaded(open_)) as store:
        app, shards, generation, secret = store.app, store.shards, store.generation, secret_of(store)
    check_broker(args.broker, args.data)

    def announce() -> None:
        if args.json:
            ready = {"app": app, "shards": shards, "processes": args.processes, "queues": list(args.queues)}
            print(json.dumps(ready), flush=True)
        else:
            what = f"folds {shards} shards of" if FOLD in args.queues else f"does {' and '.join(args.queues)} for"
            print(f"dither worker {what} {app}: {address(args.data)}", flush=True)

    return work(open_, args.data, generation, args.broker, secret, args.processes, args.queues, announce)
