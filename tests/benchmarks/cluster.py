"""The cost of an upload to a store in a Redis Cluster: CPU by program, and bytes of the append-only files.

Each primary has a replica, all of it runs on this machine, and uploads come in commits as large as `dither api` makes.
CPU counts here, and not the rate, which is that of all on few cores. deploy/sizes.md multiplies what is printed.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

from dither_aggregator.ingest.service import COMMIT_UPLOADS_MAX
from dither_aggregator.store import Store, create_store
from dither_shared.wire.reading import Upload
from tests.benchmarks import workload
from tests.benchmarks.ingest import cpu_s
from tests.support.redis_servers import RedisCluster, RedisServer, running_cluster

PRIMARIES = (1, 3, 6)
GROUPS = (1, 20)
COMMITS = {1: 80, 20: 20}


def run() -> None:
    """Print a line for each cluster and size of an upload."""
    print("  CPU us an upload: of the process that appends, of the one that folds, of all primaries and all replicas")
    print(f"  {'primaries':>9}{'groups':>8}{'append':>8}{'fold':>8}{'nodes':>8}{'replicas':>10}{'AOF bytes':>11}")
    for primaries in PRIMARIES:
        with (
            tempfile.TemporaryDirectory(prefix="dither-cluster-") as directory,
            running_cluster(Path(directory), primaries) as nodes,
            closing(create_store(nodes.url, "benchmark")) as store,
        ):
            store.load(workload.registry(max(GROUPS)))
            serials = count()
            for groups in GROUPS:
                _measure(nodes, store, groups, serials)


def _measure(nodes: RedisCluster, store: Store, groups: int, serials: Iterator[int]) -> None:
    leading, following = nodes.nodes[: nodes.primaries], nodes.nodes[nodes.primaries :]
    packed = workload.packed_groups([stored.plan for stored in store.plans()][:groups], groups, 0)
    uploads = COMMITS[groups] * COMMIT_UPLOADS_MAX
    cpu, file = [_cpu_s(some) for some in (leading, following)], _told(leading, "aof_current_size")
    append_s = 0.0
    for _ in range(COMMITS[groups]):
        ids = [f"{next(serials):021d}A" for _ in range(COMMIT_UPLOADS_MAX)]
        prepared = [(Upload(id_, packed, ()), id_.encode("ascii")) for id_ in ids]
        began = time.process_time()
        store.append(prepared)
        append_s += time.process_time() - began
    written = _told(leading, "aof_current_size") - file
    began = time.process_time()
    for shard in range(store.shards):
        store.fold_all(shard)
    fold_s = time.process_time() - began
    primary_s, replica_s = (_cpu_s(some) - before for some, before in zip((leading, following), cpu, strict=True))
    times = "".join(
        f"{seconds / uploads * 1e6:{width}.0f}"
        for seconds, width in ((append_s, 8), (fold_s, 8), (primary_s, 8), (replica_s, 10))
    )
    print(f"  {nodes.primaries:9}{groups:8}{times}{written / uploads:11.0f}", flush=True)


def _cpu_s(nodes: list[RedisServer]) -> float:
    return sum(cpu_s(node.process.pid) for node in nodes if node.process)


def _told(nodes: list[RedisServer], fact: str) -> int:
    return sum(int(node.ask("INFO")[fact]) for node in nodes)
