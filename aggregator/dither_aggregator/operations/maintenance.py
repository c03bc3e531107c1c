"""The work on a store besides taking uploads, by the threads of `dither serve` and by workers.

Each step is atomic in the store, so that any number of processes may do any of them at any time, twice, or never to
the end.
"""

from dither_aggregator.store import Store, StoreUnavailable
from dither_shared.errors import DitherError


def maintain(store: Store, shard: int) -> None:
    """Close the days that are over, compact, forget what need not be kept, and merge what is closed."""
    store.seal(shard)
    store.sort_ids(shard)
    store.compact(shard)
    store.forget(shard)
    store.merge(shard)


def maintain_whole(store: Store) -> str:
    """Do what is of no shard, once a round: cut batches, forget snapshots, erase; return what `erase` says."""
    store.cut_batches()
    store.forget_snapshots()
    return store.erase()


def unfinalized(store: Store) -> list[str]:
    """Return the metrics of which an epoch is merged and not finalized."""
    merged, epochs, finals = store.merged(), store.all_epochs(), store.all_finals()
    return sorted(
        {
            stored.plan.metric
            for stored in store.plans()
            if any(epoch <= merged and (stored.id, epoch) not in finals for epoch in epochs.get(stored.id, ()))
        }
    )


def finalize(store: Store, metric: str) -> int:
    """Finalize the epochs of a metric, each with its snapshot; return how many were new.

    Raises what the first that could not be finalized raised, after the others.
    """
    from dither_aggregator.analysis import closed_days

    merged, done = store.merged(), 0
    failed: list[DitherError] = []
    for stored in store.plans(metric):
        finals = store.finals(stored.plan)
        for epoch in reversed(store.epochs(stored.plan)):
            if epoch <= merged and epoch not in finals:
                try:
                    closed_days.take(store, stored, epoch)
                    done += 1
                except StoreUnavailable:
                    raise
                except DitherError as error:
                    failed.append(error)
    if failed:
        raise failed[0]
    return done
