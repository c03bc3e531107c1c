"""Moving a store from one machine to several, so that at no moment both of them take reports.

The directory is held, so that nobody serves it; the new store stays unfinished, so that nobody can open it. Once all
is in it and the ledgers are the same, the directory is marked as moved, and only then the new store is finished. Cut
off before the mark, the new store is emptied by hand and the copy made anew; behind it, running it again finishes it.
"""

from contextlib import closing
from pathlib import Path

from dither_aggregator.store.contract import Store
from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.opening import create_store, open_store
from dither_aggregator.store.records import LedgerRow, StoreError
from dither_aggregator.store.restoring import fill
from dither_aggregator.store.sqlite import SQLiteStore, exclusive


def copy(directory: Path, target: str, shards: int, *, allow_lossy_store: bool = False) -> tuple[list[LedgerRow], str]:
    """Move the store in a directory to a new one; return its ledger and its generation.

    Raises StoreError when the directory is being served, and when the target is not empty.
    """
    with exclusive(directory), closing(SQLiteStore(directory, moved=True)) as source:
        if source.moved_to:
            with closing(open_store(target, allow_lossy_store=allow_lossy_store, unfinished=True)) as made:
                if made.generation != source.moved_to:
                    raise StoreError(
                        f"{directory} was copied to the store {source.moved_to}; {target} holds another one"
                    )
                made.finish()
                return made.ledger(), made.generation
        with closing(
            create_store(target, source.app, shards, allow_lossy_store=allow_lossy_store, unfinished=True)
        ) as made:
            fill(made, source.dump())
            _compare(source, made)
            source.mark_moved(made.generation)
            made.finish()
            return made.ledger(), made.generation


def _compare(source: Store, made: Store) -> None:
    rows = source.ledger()
    if rows != made.ledger():
        raise StoreError("the copy's ledger is not the same: nothing was changed; run `dither fsck` on the directory")
    for kind in KINDS:
        if source.documents(kind) != made.documents(kind):
            raise StoreError(f"the copy's {kind.kind} are not the same: nothing was changed; run it again")
    for stored in source.plans():
        for epoch in source.epochs(stored.plan):
            if source.tally(stored.plan, epoch).digest != made.tally(stored.plan, epoch).digest:
                raise StoreError(
                    f"the copy's tally of {stored.plan.metric} on {epoch} is not the same: nothing was changed; "
                    "run `dither fsck` on the directory"
                )
