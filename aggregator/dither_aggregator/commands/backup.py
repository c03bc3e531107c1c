"""`dither backup`: everything that a store holds, in one file; and whether such a file would bring it back."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from dither_aggregator.arguments.settings import add_settings, opened
from dither_aggregator.store import Store, StoreError, create_store, dump, open_store
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import total_of
from dither_aggregator.store.restoring import restore
from dither_shared.errors import ConfigurationError, reason_of

EXAMPLE = "dither backup dither-2027-01-31.gz --data /var/lib/dither"
VERIFY = "verify"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.usage = (
        "dither backup FILE --data STORE [--force] [--json]\n"
        "       dither backup verify FILE [--scratch DIRECTORY] [--json]"
    )
    parser.add_argument(
        "file",
        nargs="+",
        metavar="FILE",
        help="a new file; it holds the store's keys: keep it safe. After `verify`, one that is there: it is restored "
        "into a directory that is thrown away, and each invariant is tried on that",
    )
    add_settings(
        parser, "data", what="the store: a directory (SQLite), redis://HOST:PORT/DB or redis+cluster://HOST:PORT"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--scratch", metavar="DIRECTORY", type=Path, help="where verify restores it (default: the system's for such)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write a backup of a store, which may be in use; or return 1 where one would not bring back all that it holds."""
    *what, file = args.file
    if what not in ([], [VERIFY]):
        raise ConfigurationError("name one FILE, or `verify` and one")
    if what:
        return _verify(Path(file), args.scratch, args.json)
    if args.data is None:
        raise ConfigurationError("say the store: --data, DITHER_DATA, or data in the file of --settings")
    return _write(args, Path(file))


def _write(args: argparse.Namespace, file: Path) -> int:
    if file.exists() and not args.force:
        raise StoreError(f"{file} is there already; --force replaces it")
    if file.exists() and not file.is_file():
        raise StoreError(f"{file} is no file: name one that is new, or a backup to be replaced")
    with opened(args, read_only=True) as store:
        try:
            records = dump.write(file, store.dump())
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {reason_of(error)}; nothing is left of it") from None
        size = file.stat().st_size
        app, generation = store.app, store.generation
    _tell_store(args.data, size)
    if args.json:
        print(json.dumps({"file": str(file), "generation": generation, "records": records, "bytes": size}))
    else:
        print(f"{file}: {records:,} records of {app} in {size:,} bytes")
    return 0


def _tell_store(data: str, size: int) -> None:
    """Keep in the store when it was last backed up, which its monitors watch. One that is only read does without."""
    try:
        store = open_store(data, allow_lossy_store=True)
    except StoreError:
        return
    try:
        store.backed_up(size)
    except StoreError as error:
        print(f"dither: the backup is whole, and the store could not be told: {error}", file=sys.stderr)
    finally:
        store.close()


def _verify(file: Path, scratch: Path | None, as_json: bool) -> int:
    """Restore a backup where nobody serves it."""
    app = dump.app_of(file)
    try:
        with tempfile.TemporaryDirectory(prefix="dither-verify-", dir=scratch) as directory:
            place = str(Path(directory) / "store")
            store = create_store(place, app, unfinished=True)
            try:
                restore(store, dump.read(file))
                return _told(file, store, as_json)
            except dump.UNFIT as error:
                raise dump.unfit(file, error) from None
            finally:
                store.close()
    except OSError as error:
        raise StoreError(
            f"{file} cannot be restored for a look: {reason_of(error)}; --scratch names another place"
        ) from None


def _told(file: Path, store: Store, as_json: bool) -> int:
    findings, rows = list(check(store)), store.ledger()
    findings += [f"{row.metric} of {row.epoch} does not balance" for row in rows if not row.balanced]
    total = total_of(rows)
    if as_json:
        print(json.dumps({"file": str(file), "app": store.app, "findings": findings, **total.to_document()}))
    elif findings:
        print("\n".join(findings))
    else:
        print(f"{file} brings back the store of {store.app} as it must be: {total.equation}")
    return 1 if findings else 0
