"""Growth with reports and with metrics: each store is loaded through its own commits and folds, as workers do it.

Uploads are made before, as large as the wire takes them, 2,000 reports; only ids and the store's part are new. A case
is a process of its own, so that its peak memory is its own.

    python -m tests.benchmarks.growth KIND METRICS REPORTS...
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from dither_aggregator.analysis.estimands import read
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, create_store
from dither_shared.plan import Plan
from dither_shared.wire import GROUPS_MAX, REPORTS_MAX
from dither_shared.wire.reading import Group, Upload
from tests.benchmarks import workload
from tests.benchmarks.timing import seconds
from tests.support.aggregators import ENVIRONMENT, operators_app
from tests.support.redis_servers import running_redis

FULL = bool(os.environ.get("BENCH_FULL"))
"""Whether every case goes to 100 million reports, which takes a quarter of an hour."""
MILLION = 1_000_000
SIZES = (1 * MILLION, 10 * MILLION, 100 * MILLION)
CASES = (("SQLite", 10), ("SQLite", 1_000), ("Redis", 10), ("Redis", 1_000))
DAY = ("SQLite", 10)
"""Whose last size is a day of 100 million reports in any case."""
CASE_WITHIN_S = 1_800.0
DIFFERENT = 16
"""Different uploads, sent in turn."""
COMMIT_UPLOADS = 256
MIB = 1024 * 1024
FLAT_MAX = 5.0
"""How much longer a thing may take with ten times the reports, where it should take as long."""
FLAT_MS_MIN = 10.0
"""A shorter time counts as this: a Redis that rewrites its file answers later."""
FLAT = ("tally_ms", "estimate_ms", "page_ms", "list_ms", "ledger_ms", "status_ms", "refresh_ms", "maintain_ms")

Figures = dict[str, Any]


def run() -> None:
    """Print the table; raise AssertionError where what should not grow with the reports does."""
    print(
        "  reports of one day, of each kind of metric in turn, through the store's own commits and folds; milliseconds"
    )
    print("  of what is done then. tally, estimate, page: of a text with 128 cohorts of 256 bits and 100 candidates.")
    print(
        "  list: the page of all metrics. to record: looking for days that are final. memory: the most there ever was"
    )
    print("" if FULL else "  BENCH_FULL=1 takes every case to 100 million reports\n")
    print(f"  {'':29}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS))
    for kind, metrics in CASES:
        sizes = SIZES if FULL or (kind, metrics) == DAY else SIZES[:2]
        last: Figures = {}
        for figures in _case(kind, metrics, sizes):
            label = f"{kind}, {metrics:,} metrics, {figures['reports'] // MILLION} M"
            print(f"  {label:29}" + "".join(f"{show(figures):>{width}}" for _, width, show in COLUMNS), flush=True)
            grown = [name for name in FLAT if last and figures[name] > FLAT_MAX * max(last[name], FLAT_MS_MIN)]
            assert not grown, f"{label}: ten times the reports, and more than {FLAT_MAX:g} times {', '.join(grown)}"
            last = figures


def _memory(figures: Figures) -> str:
    redis = f" + {figures['redis_mib']:.0f}" if "redis_mib" in figures else ""
    return f"{figures['memory_mib']:.0f}{redis}"


COLUMNS: tuple[tuple[str, int, Callable[[Figures], str]], ...] = (
    ("load s", 8, lambda figures: f"{figures['load_s']:.1f}"),
    ("M/s", 6, lambda figures: f"{figures['added'] / figures['load_s'] / MILLION:.2f}"),
    ("disk", 6, lambda figures: f"{figures['disk_mib']:.0f}"),
    ("memory MiB", 12, _memory),
    ("segments", 10, lambda figures: f"{figures['segments']:,}"),
    ("compact", 9, lambda figures: f"{figures['compact_ms']:.0f}"),
    ("tally", 8, lambda figures: f"{figures['tally_ms']:.1f}"),
    ("estimate", 10, lambda figures: f"{figures['estimate_ms']:.0f}"),
    ("page", 6, lambda figures: f"{figures['page_ms']:.0f}"),
    ("list", 6, lambda figures: f"{figures['list_ms']:.0f}"),
    ("ledger", 8, lambda figures: f"{figures['ledger_ms']:.1f}"),
    ("status", 8, lambda figures: f"{figures['status_ms']:.2f}"),
    ("refresh", 9, lambda figures: f"{figures['refresh_ms']:.2f}"),
    ("maintain", 10, lambda figures: f"{figures['maintain_ms']:.1f}"),
    ("to finalize", 11, lambda figures: f"{figures['unfinalized_ms']:.1f}"),
)


def _case(kind: str, metrics: int, sizes: Sequence[int]) -> Iterator[Figures]:
    command = [sys.executable, "-m", "tests.benchmarks.growth", kind, str(metrics), *map(str, sizes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout
        timer = threading.Timer(CASE_WITHIN_S, process.terminate)
        timer.start()
        try:
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.terminate()
            raise
        finally:
            timer.cancel()
    assert process.returncode == 0, f"{kind} with {metrics} metrics ended with {process.returncode}"


# One case.


class Loader:
    """Puts reports into a store and folds them, all that one worker would do. It never makes an upload twice."""

    def __init__(self, store: Store, reports: int = REPORTS_MAX) -> None:
        self._store = store
        plans = [stored.plan for stored in store.plans()]
        self._groups = [_groups(plans, reports, number) for number in range(DIFFERENT)]
        self._serials = count()
        self.upload_reports = sum(group.count for group in self._groups[0])

    def load(self, reports: int) -> int:
        """Load and fold about so many reports, and return how many it were."""
        left = reports // self.upload_reports
        while left:
            number = min(left, COMMIT_UPLOADS)
            self._store.append(self.uploads(number))
            for shard in range(self._store.shards):
                self._store.fold_all(shard)
            left -= number
        return reports // self.upload_reports * self.upload_reports

    def uploads(self, number: int) -> list[tuple[Upload, bytes]]:
        """Return so many uploads as a store takes them."""
        return [self._upload(next(self._serials)) for _ in range(number)]

    def _upload(self, serial: int) -> tuple[Upload, bytes]:
        id_ = f"{serial:021d}A"
        return Upload(id_, self._groups[serial % DIFFERENT], ()), id_.encode("ascii")


def _groups(plans: Sequence[Plan], reports: int, number: int) -> tuple[Group, ...]:
    """Return the groups of an upload: of the metrics as many as fit, beginning with another one each time."""
    chosen = [plans[(number * GROUPS_MAX + place) % len(plans)] for place in range(min(GROUPS_MAX, len(plans)))]
    return workload.packed_groups(chosen, reports, number)


def _measure(kind: str, metrics: int, sizes: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="dither-growth-") as directory, ExitStack() as opened:
        scratch = Path(directory)
        if kind == "Redis":
            server = opened.enter_context(running_redis(scratch))
            store = create_store(server.url, "benchmark")
            assert server.process
            redis_pid = server.process.pid
        else:
            store = SQLiteStore.create(scratch, "benchmark")
        opened.enter_context(closing(store))
        store.load(workload.registry(metrics))
        client = Client(operators_app(store))
        loader = Loader(store)
        there = 0
        for size in sizes:
            started = time.perf_counter()
            added = loader.load(size - there)
            figures: Figures = {"load_s": time.perf_counter() - started, "added": added, "reports": size}
            there += added
            figures |= _look(store, client)
            figures["disk_mib"] = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file()) / MIB
            figures["memory_mib"] = _peak_mib(os.getpid())
            if kind == "Redis":
                figures["redis_mib"] = _peak_mib(redis_pid)
            rows = store.ledger()
            assert sum(row.accepted for row in rows) == sum(row.folded for row in rows) == there
            print(json.dumps(figures), flush=True)


def _look(store: Store, client: Client) -> Figures:
    """Compact, and time what is done once a second, once a minute, and by readers."""
    stored = next(item for item in store.plans() if item.plan.metric == "text_3")
    day = store.today()
    segments = sum(1 for _ in store.all_segments(stored.id, [day]))

    def get(path: str) -> Callable[[], object]:
        def work() -> None:
            answer = client.get(path)
            assert answer.status_code == 200, answer.status
            answer.close()

        return work

    return {
        "segments": segments,
        "compact_ms": _compact_s(store) * 1e3,
        "tally_ms": _ms(lambda: store.tally(stored.plan, day)),
        "estimate_ms": _ms(lambda: read(store, stored, day)),
        "page_ms": _ms(get(f"/metrics/{stored.plan.metric}?window=today")),
        "list_ms": _ms(get("/")),
        "ledger_ms": _ms(store.ledger),
        "status_ms": _ms(store.status),
        "refresh_ms": _ms(store.refresh),
        "maintain_ms": _ms(lambda: _maintain(store)),
        "unfinalized_ms": _ms(lambda: maintenance.unfinalized(store)),
    }


def _compact_s(store: Store) -> float:
    started = time.perf_counter()
    for shard in range(store.shards):
        store.compact(shard)
    return time.perf_counter() - started


def _maintain(store: Store) -> None:
    for shard in range(store.shards):
        maintenance.maintain(store, shard)


def _ms(work: Callable[[], object]) -> float:
    return seconds(work, 0.2) * 1e3


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) / 1024


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without ending its Redis
    _measure(sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]])
