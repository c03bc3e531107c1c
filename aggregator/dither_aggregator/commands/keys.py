"""`dither keys`: who may upload, read and administer."""

import argparse
import json
import sys

from dither_aggregator.arguments.settings import add_action, add_data_argument, opened
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import KEYS_MAX, LABEL_CHARACTERS_MAX, SCOPES, WAITING, Key

EXAMPLE = 'dither keys create read --label "the web team" --data /var/lib/dither'
ACTIONS = {
    "create": ("make a key and print it, this once: write uploads, read reads, admin changes and reads", EXAMPLE),
    "list": ("list all keys, without their texts", "dither keys list --data /var/lib/dither"),
    "revoke": ("let nobody in with a key from now on", "dither keys revoke 3f9a01bc --wait --data /var/lib/dither"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, example) in ACTIONS.items():
        action = add_action(actions, name, summary, example)
        if name == "create":
            action.add_argument("scope", metavar="SCOPE", choices=SCOPES, help=" or ".join(SCOPES))
            says = f"whose it is, in at most {LABEL_CHARACTERS_MAX} characters"
            action.add_argument("--label", metavar="TEXT", default="", help=says)
        if name == "revoke":
            action.add_argument("id", metavar="ID", help="as `list` prints it, and as it stands within the key")
            action.add_argument(
                "--wait",
                action="store_true",
                help="have its uploads come again later: until apps have the next key",
            )
        add_data_argument(action)
        action.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Do the action; running processes follow within a second."""
    with opened(args, read_only=args.action == "list") as store:
        if args.action == "create":
            return _create(store, args.scope, args.label, args.json)
        if args.action == "revoke":
            return _revoke(store, args.id, args.wait, args.json)
        return _list(store.keys.listed(), args.json)


def _create(store: Store, scope: str, label: str, as_json: bool) -> int:
    opens = scope != "write" and not store.keys.reading_needs_key
    key, text = Administration(store).create_key(scope, label)
    if as_json:
        print(json.dumps({**key.without_digest(), "key": text}))
        return 0
    print(text)  # alone: stdout may be a file that is to hold the key
    print(f"a {scope} key, {key.id}; it is not shown again: the store has a hash of it", file=sys.stderr)
    if opens:
        print("from now on nobody reads without a read or admin key", file=sys.stderr)
    return 0


def _list(keys: list[Key], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"keys": [key.without_digest() for key in keys]}))
        return 0
    print(f"{'id':8}  {'scope':5}  {'state':7}  {'made':10}  {'last used':10}  label")
    for key in keys:
        last_used = str(key.last_used or "never")
        print(f"{key.id:8}  {key.scope:5}  {key.state:7}  {key.made}  {last_used:10}  {key.label}")
    print(f"{len(keys)} of at most {KEYS_MAX:,} keys")
    return 0


def _revoke(store: Store, id_: str, wait: bool, as_json: bool) -> int:
    key = Administration(store).revoke_key(id_, wait=wait)
    if as_json:
        print(json.dumps(key.without_digest()))
    elif key.state == WAITING:
        print(f"uploads with {key.id} are to come again later: a device keeps one for six days at most")
    else:
        print(f"{key.id} lets nobody in any more")
    return 0
