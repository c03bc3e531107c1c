"""`dither store`: how a store is, for how long it keeps what, its day, and its move from one machine to several."""

import argparse
import json
import sys
from datetime import date
from pathlib import Path

from dither_aggregator.arguments import is_number
from dither_aggregator.arguments.settings import (
    CLUSTER_SCHEMES,
    Actions,
    add_action,
    add_data_argument,
    add_lossy_argument,
    day,
    opened,
    store_name,
    with_replicas,
)
from dither_aggregator.store import SHARDS, Store, StoreError, is_redis
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.records import total_of
from dither_aggregator.store.restoring import copy, copy_redis, foresee, reset
from dither_shared.errors import reason_of
from dither_shared.files import read_text

EXAMPLE = "dither store show --data /var/lib/dither"
FOR_EVER = "forever"
ADDRESS_BYTES_MAX = 4_096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = _action(actions, "show", "show how far each shard is", EXAMPLE)
    add_data_argument(show)
    keep = _action(
        actions,
        "keep",
        "show or change for how many days after an epoch its tally and its snapshot are kept",
        "dither store keep --tallies 400 --snapshots forever --data /var/lib/dither",
    )
    add_data_argument(keep)
    for what in ("tallies", "snapshots"):
        keep.add_argument(f"--{what}", metavar="DAYS", type=_days, help=f"a number, or {FOR_EVER}")
    clock = _action(
        actions,
        "reset-clock",
        "bring back the day of a store that leapt ahead with its machine's clock; nothing may use the store meanwhile",
        "dither store reset-clock --to 2027-03-01 --move-aside leapt.dither --data /var/lib/dither",
    )
    add_data_argument(clock)
    clock.add_argument("--to", metavar="DAY", type=day, required=True, help="today (UTC), or a later day")
    clock.add_argument(
        "--move-aside",
        metavar="FILE",
        type=Path,
        help="a new file for sealed days after it that have reports; `dither restore` makes a store of it",
    )
    clock.add_argument("--dry-run", action="store_true", help="only say what would change")
    move = _action(
        actions,
        "copy",
        "move a directory's store to Redis, or one Redis's to a cluster; the old one refuses to be served afterwards",
        "dither store copy --data /var/lib/dither --to redis://10.0.0.5:6379/0",
    )
    add_data_argument(move, "the store to leave")
    to = move.add_mutually_exclusive_group(required=True)
    to.add_argument(
        "--to", metavar="STORE", type=store_name, help="an empty redis://HOST:PORT/DB or redis+cluster://HOST:PORT"
    )
    to.add_argument("--to-file", metavar="FILE", type=Path, help="a file with that address: it may hold a password")
    move.add_argument("--shards", type=int, default=SHARDS, help="of the new store (default: %(default)s)")
    add_lossy_argument(move)


def _action(actions: Actions, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    action = add_action(actions, name, summary, example)
    action.add_argument("--json", action="store_true", help="print one JSON document")
    return action


def _days(text: str) -> int:
    """Return a number of days, 0 for ever."""
    if text == FOR_EVER:
        return 0
    if not is_number(text) or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"must be a number of days from 1 to 100000 or {FOR_EVER}, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    if args.action == "copy":
        return _copy(args)
    if args.action == "reset-clock":
        return _reset_clock(args)
    changes = args.action == "keep" and (args.tallies is not None or args.snapshots is not None)
    with opened(args, read_only=not changes) as store:
        if args.action == "show":
            return _show(store, args.json)
        return _keep(store, args)


def _show(store: Store, as_json: bool) -> int:
    shards = [
        {name: value if isinstance(value, int | float) else value.isoformat() for name, value in vars(shard).items()}
        for shard in store.status()
    ]
    trouble = store.trouble()
    days = {"sealed": store.sealed(), "merged": store.merged(), "erased": store.erased()}
    day_texts = {name: each.isoformat() for name, each in days.items()}
    document = {"app": store.app, "generation": store.generation, **day_texts}
    if as_json:
        print(json.dumps({**document, "trouble": trouble, "shards": shards}))
        return 1 if trouble else 0
    never = date.min.isoformat()  # a store that was just made has erased no day yet
    for name, value in document.items():
        print(f"{name:10}  {'never' if value == never else value}")
    print(f"{'shard':>5}  {'uploads':>12}  {'folded':>12}  {'waiting':>8}  {'for s':>6}  {'day':10}  {'sealed':10}")
    for shard in store.status():
        print(
            f"{shard.shard:>5}  {shard.written:>12,}  {shard.cursor:>12,}  {shard.backlog:>8,}  "
            f"{shard.waiting_s:>6.0f}  {shard.day}  {shard.sealed}"
        )
    for kind, text in trouble.items():
        print(f"{kind}: {text}")
    return 1 if trouble else 0


def _keep(store: Store, args: argparse.Namespace) -> int:
    kept = store.retention()
    if args.tallies is not None or args.snapshots is not None:
        kept = Retention(
            kept.tallies_days if args.tallies is None else args.tallies or None,
            kept.snapshots_days if args.snapshots is None else args.snapshots or None,
        )
        store.put(kept)
    if args.json:
        print(json.dumps(vars(kept)))
    else:
        for what, days in (("tallies", kept.tallies_days), ("snapshots", kept.snapshots_days)):
            print(f"{what} are kept {FOR_EVER if days is None else f'for {days} days after their epoch'}")
    return 0


def _reset_clock(args: argparse.Namespace) -> int:
    if args.dry_run:
        with opened(args, read_only=True) as store:
            found = foresee(store, args.to, args.move_aside)
    else:
        found = reset(args.data, args.to, args.move_aside)
    if args.json:
        print(json.dumps({**found.to_document(), "done": found.changes and not args.dry_run}))
        return 0
    for sentence in found.sentences(done=not args.dry_run):
        print(sentence)
    if found.changes and not args.dry_run:
        print("start what serves the store again", file=sys.stderr)
    return 0


def _copy(args: argparse.Namespace) -> int:
    to = with_replicas(args.to or _read_address(args.to_file), args.replicas)
    grows = is_redis(args.data) and to.startswith(CLUSTER_SCHEMES) and not args.data.startswith(CLUSTER_SCHEMES)
    if not is_redis(to) or (is_redis(args.data) and not grows):
        raise StoreError(
            "a store is copied from a directory to Redis, or from one Redis to a cluster; "
            "`dither backup` and `restore` do the rest"
        )
    lossy = args.allow_lossy_store
    if grows:
        rows, generation = copy_redis(args.data, to, args.shards, allow_lossy_store=lossy)
    else:
        rows, generation = copy(Path(args.data), to, args.shards, allow_lossy_store=lossy)
    total = total_of(rows)
    if args.json:
        print(json.dumps({"generation": generation, **total.to_document()}))
    else:
        print(f"copied: {total.equation}")
        print("start `dither api`, `worker` and `beat` on it, then let devices reach it", file=sys.stderr)
    return 0


def _read_address(path: Path) -> str:
    """Return the address in a file; raise StoreError without repeating what is in it."""
    try:
        return store_name(read_text(path, ADDRESS_BYTES_MAX).strip())
    except (OSError, ValueError, argparse.ArgumentTypeError) as error:
        raise StoreError(f"{path} must hold the address of a Redis: {reason_of(error)}") from None
