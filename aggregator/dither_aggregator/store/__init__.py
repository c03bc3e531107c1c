"""The store: log, tallies, ledger, quarantine and deduplication, where nothing is counted twice or lost.

`contract.py` says what a store does, and does what both kinds do alike; `sqlite/` and `redis/` do the rest.
"""

from dither_aggregator.store.contract import Store, at_one_moment
from dither_aggregator.store.documents import StoredPlan
from dither_aggregator.store.opening import create_store, open_store
from dither_aggregator.store.records import LedgerRow, Receipt, StoreError, StoreLoading, StoreUnavailable, Tally
from dither_aggregator.store.sqlite import SQLiteStore

__all__ = [
    "LedgerRow",
    "Receipt",
    "SQLiteStore",
    "Store",
    "StoreError",
    "StoreLoading",
    "StoreUnavailable",
    "StoredPlan",
    "Tally",
    "at_one_moment",
    "create_store",
    "open_store",
]
