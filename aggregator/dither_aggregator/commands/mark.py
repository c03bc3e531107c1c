"""`dither mark`: releases and other events that the operator names, to be shown beside a metric's days."""

import argparse
import json
from datetime import date

from dither_aggregator.arguments.settings import add_action, add_data_argument, day, opened
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import MARK_CHARACTERS_MAX, DayMark

EXAMPLE = 'dither mark add 2026-11-20 "version 158" --data /var/lib/dither'
ACTIONS = {
    "add": "name what happened on a day, such as a release; the same again adds nothing",
    "list": "list the marks: day and text",
    "remove": "take a mark away, or all marks of a day",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in ACTIONS.items():
        action = add_action(actions, name, summary, _example(name))
        if name != "list":
            action.add_argument("day", metavar="DAY", type=day, help="the day (UTC), such as 2026-11-20")
        if name == "add":
            action.add_argument(
                "text", metavar="TEXT", help=f"1 to {MARK_CHARACTERS_MAX} characters; anybody may read it"
            )
        if name == "remove":
            action.add_argument("text", metavar="TEXT", nargs="?", help="the mark's text; without it all of the day go")
        add_data_argument(action)
        action.add_argument("--json", action="store_true", help="print one JSON document")


def _example(action: str) -> str:
    return EXAMPLE.replace("add", action) if action != "list" else "dither mark list --data /var/lib/dither"


def run(args: argparse.Namespace) -> int:
    """Do the action; return 1 when there is no mark to remove."""
    with opened(args, read_only=args.action == "list") as store:
        if args.action == "add":
            return _add(store, args.day, args.text, args.json)
        if args.action == "remove":
            return _remove(store, args.day, args.text, args.json)
        return _list(store, args.json)


def _add(store: Store, day: date, text: str, as_json: bool) -> int:
    mark, added = Administration(store).add_mark(day, text)
    if as_json:
        print(json.dumps({**mark.to_document(), "added": added}))
    else:
        print(f"{'marked' if added else 'marked before'}: {mark.day} {mark.text}")
    return 0


def _list(store: Store, as_json: bool) -> int:
    marks = store.documents(DayMark)
    if as_json:
        print(json.dumps({"marks": [mark.to_document() for mark in marks]}))
        return 0
    for mark in marks:
        print(f"{mark.day}  {mark.text}")
    if not marks:
        print("no day is marked")
    return 0


def _remove(store: Store, day: date, text: str | None, as_json: bool) -> int:
    removed = Administration(store).remove_marks(day, text)
    if as_json:
        print(json.dumps({"removed": [mark.to_document() for mark in removed]}))
    else:
        for mark in removed:
            print(f"removed: {mark.day} {mark.text}")
        if not removed:
            print(f"{day} has no {'mark' if text is None else 'such mark'}; `dither mark list` shows them")
    return 0 if removed else 1
