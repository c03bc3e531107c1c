"""The store for one machine, in one SQLite file.

`sqlite_store.py` has it at work, `moving.py` dumps, fills and erases it. `schema.py` has its tables,
and names and locks its files.
"""

from dither_aggregator.store.sqlite.moving import SQLiteStore
from dither_aggregator.store.sqlite.schema import FILE_NAME, KEY_NAME, LOCK_NAME, exclusive, keep_key, kept_key

__all__ = ["FILE_NAME", "KEY_NAME", "LOCK_NAME", "SQLiteStore", "exclusive", "keep_key", "kept_key"]
