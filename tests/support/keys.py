"""Keys for the tests: a store tells the text of a key only when it is made."""

from weakref import WeakKeyDictionary

from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import WRITE

STRONG = "9f3c07b1e5d28a4660cf19e7b35d82a4f10c6e97"
"""The text of a key that was made elsewhere."""
_write_keys: "WeakKeyDictionary[Store, str]" = WeakKeyDictionary()


def write_key(store: Store) -> str:
    """Return what devices show to be let in: a key that is made when it is first asked for."""
    if store not in _write_keys:
        _write_keys[store] = store.create_key(WRITE, "of the tests")[1]
    return _write_keys[store]


def bearer(key: str) -> dict[str, str]:
    """Return the header that shows a key."""
    return {"Authorization": f"Bearer {key}"}
