"""How many devices a day a deployment holds: by its uploads a second, and by what it keeps of each upload for a week.

Each store takes eight simulated days of uploads, seven that are over and one that is not, through its own commits, with
the upkeep of each. Then each server takes uploads of 1, 20 and 50 groups. deploy/sizes.md has the figures.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

from dither_aggregator.health.capacity import Capacity
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, create_store
from dither_aggregator.store.records import DAY_S
from dither_shared.wire.reading import Upload
from tests.benchmarks import ingest, workload
from tests.support.redis_servers import running_redis

DAYS = 8
"""Ids are kept for seven days, and for the one that is not over."""
DAY_UPLOADS = 50_000
BATCH = 250
GROUPS = (1, 20, 50)
LOAD_S = 3.0
PEAK = 3
"""How much more uploads come in the busiest hour than on average."""
DISK = 40 * 10**9
"""The disk of a small virtual machine: SQLite's file may have all of it but the floor."""
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "redis" / "data.conf"


def run() -> None:
    """Print what is kept of an upload, the rates, and the devices that the least of both allows."""
    print(f"  {DAYS} days of {DAY_UPLOADS:,} uploads. us: CPU and waiting of an upload in the store's own commit")
    print(f"  {'':8}{'bytes kept of an upload':>25}{'us, first day':>15}{'us, last day':>14}")
    kept = {}
    with tempfile.TemporaryDirectory(prefix="dither-sizes-") as directory:
        scratch = Path(directory)
        for kind in ("SQLite", "Redis"):
            kept[kind], first_us, last_us = _fill(kind, scratch / kind)
            print(f"  {kind:8}{kept[kind]:25.1f}{first_us:15.0f}{last_us:14.0f}", flush=True)
        room = {"SQLite": DISK, "Redis": _maxmemory()}
        print(f"\n  devices that upload once a day: by the rate, {PEAK} times the average in the busiest hour; by the")
        print(f"  {room['Redis'] / 2**30:g} GiB of deploy/redis/data.conf, and by {DISK / 1e9:g} GB of disk for SQLite")
        print(f"  {'':20}{'uploads/s':>10}{'p99 ms':>8}{'by rate':>12}{'by room':>14}{'devices':>12}")
        (scratch / "metrics.toml").write_text(workload.registry_text(max(GROUPS)), encoding="utf-8")
        for place in (ingest.sqlite, ingest.redis):
            with place(scratch) as (_, real):
                for groups in GROUPS:
                    driven = real.load(groups, LOAD_S, metrics=groups).driven
                    by_rate, p99_ms = driven.rate * DAY_S / PEAK, driven.percentile_s(99) * 1e3
                    total = room[real.name]
                    by_room = (total - Capacity().floor.of(total)) / (kept[real.name] * DAYS)
                    print(
                        f"  {f'{real.name}, {groups} groups':20}{driven.rate:10,.0f}{p99_ms:8.0f}"
                        f"{by_rate:12,.0f}{by_room:14,.0f}{min(by_rate, by_room):12,.0f}",
                        flush=True,
                    )
                real.check_counted()


def _maxmemory() -> int:
    (size,) = [line.split()[1] for line in CONFIGURATION.read_text().splitlines() if line.startswith("maxmemory ")]
    assert size.endswith("gb")
    return int(size[:-2]) << 30


def _fill(kind: str, directory: Path) -> tuple[float, float, float]:
    """Return the bytes that are kept of an upload, and the microseconds of one on the first day and on the last."""
    with ExitStack() as opened:
        if kind == "Redis":
            server = opened.enter_context(running_redis(directory))
            store = create_store(server.url, "benchmark")
            client = opened.enter_context(closing(server.client()))
        else:
            store = SQLiteStore.create(directory, "benchmark")
        opened.enter_context(closing(store))
        store.load(workload.registry(1))

        def size() -> int:
            if kind == "Redis":
                return int(client.info("memory")["used_memory"])
            return sum(path.stat().st_size for path in directory.glob("*.sqlite3"))

        empty, serials, times = size(), count(), []
        for day in range(DAYS):
            store.set_clock_offset(day * DAY_S)
            _upkeep(store)
            times.append(_take(store, serials))
        _upkeep(store)
        return (size() - empty) / (DAYS * DAY_UPLOADS), times[0] * 1e6, times[-1] * 1e6


def _upkeep(store: Store) -> None:
    for shard in range(store.shards):
        store.fold_all(shard)
        maintenance.maintain(store, shard)
    maintenance.maintain_whole(store)


def _take(store: Store, serials: Iterator[int]) -> float:
    """Take a day's uploads, of one report each; return the seconds of one."""
    groups = workload.packed_groups([stored.plan for stored in store.plans()], 1, 0)
    taken = 0.0
    for _ in range(0, DAY_UPLOADS, BATCH):
        ids = [f"{next(serials):021d}A" for _ in range(BATCH)]
        uploads = [(Upload(id_, groups, ()), id_.encode("ascii")) for id_ in ids]
        started = time.perf_counter()
        store.append(uploads)
        taken += time.perf_counter() - started
    for shard in range(store.shards):
        store.fold_all(shard)
    return taken / DAY_UPLOADS
