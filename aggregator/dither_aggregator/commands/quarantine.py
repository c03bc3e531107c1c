"""`dither quarantine`: accepted reports that could not be counted, and what becomes of them."""

import argparse
import json

from dither_aggregator.arguments.settings import add_action, add_data_argument, opened
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.invariants import SetApart
from dither_aggregator.store.records import Quarantined

EXAMPLE = "dither quarantine list --data /var/lib/dither"
ACTIONS = {
    "list": "list what waits: id, metric, rev, epoch, reports, reason",
    "show": "show one of them with its reports in hexadecimal: noise and all, as the device sent them",
    "replay": "put some back into the log, to be counted today",
    "drop": "give some up for good: they stay counted as quarantined",
    "aside": "set damaged entries of the log apart, so that what is behind them is counted; they are kept here",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in ACTIONS.items():
        action = add_action(actions, name, summary, _example(name))
        add_data_argument(action)
        action.add_argument("--json", action="store_true", help="print one JSON document")
        if name == "show":
            action.add_argument("id", metavar="ID", help="as `list` prints it, such as 0-17")
        if name in ("replay", "drop"):
            which = action.add_mutually_exclusive_group(required=True)
            which.add_argument("id", metavar="ID", nargs="*", default=[], help="as `list` prints them")
            which.add_argument("--all", action="store_true", help="everything that waits now")


def _example(action: str) -> str:
    return f"dither quarantine {action} {'' if action in ('list', 'aside') else '0-17 '}--data /var/lib/dither"


def run(args: argparse.Namespace) -> int:
    """Do the action; return 1 when an id that is to be settled is not there."""
    with opened(args, read_only=args.action in ("list", "show")) as store:
        if args.action == "aside":
            return _aside(store, args.json)
        waiting = {item.id: item for item in store.quarantined()}
        if args.action == "list":
            return _list(store, list(waiting.values()), args.json)
        if args.action == "show":
            return _show(store, waiting, args.id, args.json)
        lost = {item.id for item in waiting.values() if args.action == "replay" and item.damaged}
        ids = [id_ for id_ in waiting if id_ not in lost] if args.all else args.id
        return _settle(store, args.action, ids, args.json)


def _list(store: Store, waiting: list[Quarantined], as_json: bool) -> int:
    rows = [_describe(store, item) for item in waiting]
    if as_json:
        print(json.dumps({"quarantined": rows}))
        return 0
    width = max([6, *(len(str(row["metric"])) for row in rows)])
    print(f"{'id':>8}  {'metric':{width}}  {'rev':>4}  {'epoch':10}  {'reports':>8}  reason")
    for row in rows:
        print(
            f"{row['id']:>8}  {row['metric']:{width}}  {row['rev']:>4}  {row['epoch']:10}  {row['reports']:>8,}  "
            f"{row['reason']}"
        )
    print(f"{sum(item.n for item in waiting):,} reports wait")
    return 0


def _show(store: Store, waiting: dict[str, Quarantined], id_: str, as_json: bool) -> int:
    if id_ not in waiting:
        raise StoreError(f"nothing with the id {id_!r} is in quarantine; `dither quarantine list` says what is")
    item = waiting[id_]
    document = {**_describe(store, item), "packed": item.reports.hex()}
    if as_json:
        print(json.dumps(document))
    else:
        for name, value in document.items():
            print(f"{name:8}  {value}")
    return 0


def _aside(store: Store, as_json: bool) -> int:
    done = Administration(store).set_apart()
    if as_json:
        print(json.dumps({"aside": [_describe_aside(one) for one in done]}))
        return 0
    for one in done:
        for each in one.entries:
            print(f"shard {one.shard}, log {each.one.place}: {len(each.kept):,} bytes: {each.reason}")
        where = "it" if len(one.entries) == 1 else "them"
        print(f"shard {one.shard}: {sum(one.held.values()):,} reports were in {where}, and count as quarantined")
    if not done:
        print("no entry of the log is damaged")
    return 0


def _describe_aside(one: SetApart) -> dict[str, object]:
    return {
        "shard": one.shard,
        "entries": [{"log": each.one.place, "bytes": len(each.kept), "damage": each.reason} for each in one.entries],
        "reports": sum(one.held.values()),
    }


def _settle(store: Store, action: str, ids: list[str], as_json: bool) -> int:
    hands = Administration(store)
    done = hands.replay(ids) if action == "replay" else hands.drop(ids)
    missing = [id_ for id_ in ids if id_ not in done]
    if as_json:
        print(json.dumps({action: done, "missing": missing}))
    else:
        print(f"{action}: {len(done)} of {len(ids)}")
        if missing:
            print(f"not in quarantine: {', '.join(missing)}")
    return 1 if missing else 0


def _describe(store: Store, item: Quarantined) -> dict[str, object]:
    plan = store.plan_by_id(item.plan).plan
    return {
        "id": item.id,
        "metric": plan.metric,
        "rev": plan.rev,
        "plan": plan.digest,
        "epoch": item.epoch.isoformat(),
        "reports": item.n,
        "reason": item.reason,
    }
