"""The store for one machine, in one SQLite file.

`sqlite_store.py` has it at work, `moving.py` dumps, fills and erases it. `schema.py` has its tables, `directory.py`
names and locks its files.
"""

from dither_aggregator.store.sqlite.directory import FILE_NAME, KEY_NAME, LOCK_NAME, exclusive, keep_key, kept_key
from dither_aggregator.store.sqlite.moving import SQLiteStore

__all__ = ["FILE_NAME", "KEY_NAME", "LOCK_NAME", "SQLiteStore", "exclusive", "keep_key", "kept_key"]
