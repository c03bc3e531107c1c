"""The store for one machine: everything in one SQLite file, as one shard, every effect one transaction.

The roles stand on `opened.py`, and that on `file.py`; `schema.py` has the tables, `rows.py` what their rows mean.
"""

from dither_aggregator.store.interface import Store
from dither_aggregator.store.sqlite.batches import SQLiteBatches
from dither_aggregator.store.sqlite.epochs import SQLiteEpochs
from dither_aggregator.store.sqlite.erasing import SQLiteErasing
from dither_aggregator.store.sqlite.file import FILE_NAME
from dither_aggregator.store.sqlite.journal import SQLiteJournal
from dither_aggregator.store.sqlite.keyring import SQLiteKeyring
from dither_aggregator.store.sqlite.lock import LOCK_NAME, exclusive
from dither_aggregator.store.sqlite.log import SQLiteLog
from dither_aggregator.store.sqlite.marks import SQLiteMarks
from dither_aggregator.store.sqlite.moving import SQLiteMoving
from dither_aggregator.store.sqlite.quarantine import SQLiteQuarantine
from dither_aggregator.store.sqlite.readings import SQLiteReadings
from dither_aggregator.store.sqlite.refused import SQLiteRefusing
from dither_aggregator.store.sqlite.resetting import SQLiteResetting
from dither_aggregator.store.sqlite.tallies import SQLiteTallies

__all__ = ["FILE_NAME", "LOCK_NAME", "SQLiteStore", "exclusive"]


class SQLiteStore(
    SQLiteLog,
    SQLiteQuarantine,
    SQLiteMoving,
    SQLiteErasing,
    SQLiteResetting,
    SQLiteBatches,
    SQLiteTallies,
    SQLiteEpochs,
    SQLiteReadings,
    SQLiteMarks,
    SQLiteKeyring,
    SQLiteJournal,
    SQLiteRefusing,
    Store,
):
    """A store in a directory. Each thread has its own connection, until `close`."""
