"""The keys of the SQLite store: a row a key."""

import json
from collections.abc import Sequence

from dither_aggregator.store.interface.keyring import Keyring
from dither_aggregator.store.keys import Key
from dither_aggregator.store.sqlite.opened import SQLiteOpened


class SQLiteKeyring(SQLiteOpened, Keyring):
    """Keys of the one file."""

    def _save_keys(self, keys: Sequence[Key], version: int) -> bool:
        with self._transaction() as db:
            if not self._next_version("keys_version", version):
                return False
            rows = [(key.id, json.dumps(key.to_document())) for key in keys]
            db.executemany("INSERT OR REPLACE INTO key VALUES (?, ?)", rows)
        return True
