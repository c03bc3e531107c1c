"""Making a store in an empty Redis, one that keeps what it acknowledges."""

import secrets
from datetime import date

from dither_aggregator.store.packing import day_at, day_number
from dither_aggregator.store.records import StoreError
from dither_aggregator.store.redis import key_names, store_scripts
from dither_aggregator.store.redis.client import Client, call

START_AGAIN = (
    "unless it is being filled now, empty it (redis-cli FLUSHDB, with its address and database) and make it again"
)


def check_sound(client: Client, allow_lossy_store: bool) -> str:
    """Return why the store may lose what it acknowledges, if that is allowed; else raise StoreError with the reason."""
    client.check()
    reason = client.lossy()
    if reason and not allow_lossy_store:
        raise StoreError(reason)
    return reason


def begin(client: Client, app: str, shards: int) -> None:
    """Make an unfinished store."""
    generation = secrets.token_hex(8)
    token = key_names.token(generation, finished=False)
    state: dict[str, object] = {
        "version": key_names.VERSION,
        "token": token,
        "app": app,
        "digest_key": secrets.token_bytes(32),
        "secret": secrets.token_bytes(32),
        "generation": generation,
        "shards": shards,
        "plans_version": 0,
        "keys_version": 0,
        "tallies_from": day_number(date.min),
    }
    there = client.run(*call(store_scripts.BEGIN, key_names.GLOBAL, *_fields(state)))
    if there == b"other keys":
        raise StoreError(f"{client.name} holds other keys: give dither a Redis, or a database of one, of its own")
    if there is not None:
        unfinished = f", not filled to its end; {START_AGAIN}" if there.endswith(b":unfinished") else ""
        raise StoreError(f"{client.name} holds a store already{unfinished}")
    of_shard = _fields(_first_state(client, token))
    client.run_each([("HSET", key_names.shard_key(shard), *of_shard) for shard in range(shards)])


def _first_state(client: Client, token: str) -> dict[str, object]:
    """Return what stands in the hash of every new shard, by Redis's clock."""
    seconds, _ = client.run("TIME")
    today = day_number(day_at(int(seconds)))
    return {
        "token": token,
        "day": today,
        "sealed": today - 1,
        "cursor": 0,
        "written": 0,
        "waiting_since": seconds,
        "quarantine_last": 0,
    }


def _fields(state: dict[str, object]) -> list[object]:
    return [part for pair in state.items() for part in pair]
