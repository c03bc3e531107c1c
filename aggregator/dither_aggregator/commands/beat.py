"""`dither beat`: gives workers tasks for whatever waits in a store, and notices when nobody comes."""

import argparse
import json
import logging
import signal
import time
from contextlib import closing
from functools import partial

from dither_aggregator.arguments.settings import add_broker_argument, add_data_argument, add_settings, must_be_redis
from dither_aggregator.operations.signal_handling import answer_signals, open_when_loaded, set_up_logging
from dither_aggregator.store import StoreError, open_store
from dither_aggregator.workers.tasks import LOOK_EVERY_S, TaskQueue, Watchdog, address, check_broker, make_app

EXAMPLE = "dither beat --data redis://10.0.0.5:6379/0 --broker redis://10.0.0.6:6379/0"

_log = logging.getLogger("dither_aggregator")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    add_broker_argument(parser, required=True)
    add_settings(parser, "log_format", "log_level")
    parser.add_argument("--json", action="store_true", help="print one line of JSON when ready")


def run(args: argparse.Namespace) -> int:
    """Look every few seconds until SIGTERM or SIGINT; return 1 when the store is not the one it was any more."""
    set_up_logging(args.log_format, args.log_level)
    answer_signals()
    must_be_redis(args.data, "beat")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with closing(open_when_loaded(partial(open_store, args.data, allow_lossy_store=True))) as store:
        check_broker(args.broker, args.data)
        task_queue = TaskQueue(make_app(args.broker))
        watchdog = Watchdog(store, task_queue.publish)
        try:
            if args.json:
                print(json.dumps({"app": store.app, "shards": store.shards}), flush=True)
            else:
                print(f"dither beat watches {store.shards} shards of {store.app}: {address(args.data)}", flush=True)
            while True:
                watchdog.look()
                time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            return 0
        except StoreError as error:
            _log.critical("%s", error)
            return 1
        finally:
            task_queue.close()
