"""Uploads from the socket to the tally: how many a second, how long each waits, and how far folding is behind.

In each turn the same load goes to a server without a store, to the same one with a store, and to bjoern. Ratios are of
one turn, and the median of them counts: a busy machine slows all of a turn. A rate has the disk in it, so CPU time,
which has not, stands beside it. Every upload that was acknowledged must be folded in the ledger.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dither_aggregator.store import SQLiteStore, Store, create_store, open_store
from dither_aggregator.web.endpoints import parse_upload
from dither_shared.wire import encode_upload, new_upload_id
from tests.benchmarks import workload
from tests.benchmarks.peers import HERE, PeerUnavailable, environment
from tests.benchmarks.uploads import CONNECTIONS, Driven, Load, template
from tests.support.aggregators import ENVIRONMENT, dither, serve, start_afresh
from tests.support.redis_servers import running_redis

TURNS = 3
LOAD_S = 3.0
SUSTAINED_S = 10.0
COHORTS = 8
"""An upload is of one cohort; uploads of so many are sent in turn."""
FOLDED_WITHIN_S = 120.0
PROCESSES = len(os.sched_getaffinity(0))
BATCH = 64
AIMS = {20: 0.3, 1_000: 0.5}
"""Reports an upload, and how much of the rate without a store is meant to be left with one."""
FOLDED = {20: 10_000, 1_000: 1_500}
"""Uploads that are parsed, appended and folded in this process."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """The figures of one load on one server."""

    driven: Driven
    uploads: int
    cpu_us: Mapping[str, float]
    """CPU time of an upload, by program."""
    backlog: Sequence[int]
    """Uploads that waited to be folded, every quarter of a second."""
    lag_s: float
    """From the last acknowledgement until all were folded."""


@dataclass
class Target:
    """A server to load, and the processes that do its work."""

    name: str
    url: str
    processes: Mapping[str, int]
    key: str = "none"
    data: str = ""
    """Its store, if it has one."""
    acknowledged: int = field(default=0, init=False)
    """Reports, so far."""

    def load(self, reports: int, seconds: float, metrics: int = len(workload.KINDS)) -> Turn:
        """Load it, and wait until what it took is folded."""
        plans = [metric.plan for metric in workload.registry(metrics).metrics.values()]
        groups = [workload.wire_groups(plans, reports, cohort) for cohort in range(COHORTS)]
        before = {name: cpu_s(pid) for name, pid in self.processes.items()}
        backlog: list[int] = []
        with self._store() as store:
            watch = (lambda: backlog.append(store.backlog())) if store else (lambda: None)
            driven = Load(self.url, [template(self.url, self.key, each) for each in groups]).run(seconds, watch=watch)
            lag_s = _wait_until_folded(store) - driven.ended if store else 0.0
        self.acknowledged += driven.acknowledged
        uploads = driven.acknowledged // reports
        cpu_us = {name: (cpu_s(pid) - before[name]) / uploads * 1e6 for name, pid in self.processes.items()}
        return Turn(driven, uploads, cpu_us, backlog, lag_s)

    @contextmanager
    def _store(self) -> Iterator[Store | None]:
        if self.data:
            with closing(open_store(self.data, read_only=True)) as store:
                yield store
        else:
            yield None

    def check_counted(self) -> None:
        """Raise AssertionError unless the ledger balances and has every acknowledged report, folded."""
        done = dither("ledger", "--data", self.data, "--json")
        assert done.returncode == 0, f"{self.name}: the ledger does not balance: {done.stdout}{done.stderr}"
        total = json.loads(done.stdout)
        assert total["accepted"] == total["folded"] == self.acknowledged, (
            f"{self.name}: not {self.acknowledged}: {total}"
        )


Place = Callable[[Path], AbstractContextManager[tuple[Target, Target]]]
"""Runs two servers: one without a store, one with."""


def run() -> None:
    """Print the tables; raise AssertionError where a report is missing, or where folding is slower than ingest."""
    with tempfile.TemporaryDirectory(prefix="dither-ingest-") as directory, ExitStack() as opened:
        scratch = Path(directory)
        (scratch / "metrics.toml").write_text(workload.registry_text(), encoding="utf-8")
        bjoern = _bjoern(opened)
        print(f"  {CONNECTIONS} connections, {TURNS} turns of {LOAD_S:g} s. bare: the same server, storing nothing")
        print("  by CPU: of the server's processes. load: how much of a CPU the load itself takes\n")
        print(
            f"  {'':23}{'uploads/s':>10}{'reports/s':>11}{'bare/s':>8}{'ratio':>7}{'aim':>5}{'by CPU':>8}"
            f"{'of bjoern':>11}{'p50':>8}{'p99':>7}{'max ms':>8}{'load':>6}   CPU us an upload"
        )
        sustained = []
        for place in (sqlite, redis):
            with place(scratch) as (bare, real):
                for reports in AIMS:
                    _compare(bare, real, bjoern, reports)
                sustained += [(real.name, reports, real.load(reports, SUSTAINED_S)) for reports in AIMS]
                real.check_counted()
        print(
            f"\n  {SUSTAINED_S:g} s under load: uploads that wait to be folded, and seconds until none does afterwards"
        )
        print(f"  {'':23}{'uploads/s':>10}{'median':>9}{'most':>9}{'at the end':>12}{'lag s':>8}{'of the load':>13}")
        for each in sustained:
            _print_sustained(*each)
        print("\n  one counter beside one process that parses and appends, neither disturbed: uploads a second")
        print(f"  {'':23}{'appended':>10}{'folded':>10}{'ratio':>8}")
        for kind in ("SQLite", "Redis"):
            for reports in AIMS:
                _print_folding(kind, reports, scratch)


def _compare(bare: Target, real: Target, bjoern: Target | None, reports: int) -> None:
    turns = [
        (bare.load(reports, LOAD_S), real.load(reports, LOAD_S), bjoern.load(reports, LOAD_S) if bjoern else None)
        for _ in range(TURNS)
    ]
    best = max((turn for _, turn, _ in turns), key=lambda turn: turn.driven.rate)
    ratio = median(turn.driven.rate / plain.driven.rate for plain, turn, _ in turns)
    by_cpu = median(sum(plain.cpu_us.values()) / sum(turn.cpu_us.values()) for plain, turn, _ in turns)
    beside = [turn.driven.rate / theirs.driven.rate for _, turn, theirs in turns if theirs]
    bare_rate = max(plain.driven.rate for plain, _, _ in turns)
    driven = best.driven
    latencies = [driven.percentile_s(percent) * 1e3 for percent in (50, 99, 100)]
    print(
        f"  {f'{real.name}, {reports:,} reports':23}{driven.rate:10,.0f}{driven.rate * reports:11,.0f}{bare_rate:8,.0f}"
        f"{ratio:7.2f}{AIMS[reports]:5.1f}{by_cpu:8.2f}{f'{median(beside):.2f}' if beside else '-':>11}"
        f"{latencies[0]:8.1f}{latencies[1]:7.0f}{latencies[2]:8.0f}{driven.load_share:6.2f}"
        f"   {', '.join(f'{name} {us:.0f}' for name, us in best.cpu_us.items())}",
        flush=True,
    )


def _print_sustained(name: str, reports: int, turn: Turn) -> None:
    waiting = turn.backlog or [0]
    print(
        f"  {f'{name}, {reports:,} reports':23}{turn.driven.rate:10,.0f}{median(waiting):9,.0f}{max(waiting):9,}"
        f"{waiting[-1]:12,}{turn.lag_s:8.2f}{turn.lag_s / SUSTAINED_S:13.2f}",
        flush=True,
    )
    assert turn.lag_s < SUSTAINED_S, f"{name}: folding took {turn.lag_s:.1f} s more for the load of {SUSTAINED_S:g} s"


def _print_folding(kind: str, reports: int, scratch: Path) -> None:
    with ExitStack() as opened:
        if kind == "Redis":
            server = opened.enter_context(running_redis(scratch / f"redis-{reports}-alone"))
            store = create_store(server.url, "benchmark")
        else:
            store = SQLiteStore.create(scratch / f"sqlite-{reports}-alone", "benchmark")
        opened.enter_context(closing(store))
        appended_s, folded_s = folding(store, reports, FOLDED[reports])
    rates = f"{1 / appended_s:10,.0f}{1 / folded_s:10,.0f}{appended_s / folded_s:7.1f}x"
    print(f"  {f'{kind}, {reports:,} reports':23}{rates}", flush=True)
    assert folded_s < appended_s, f"{kind}: folding an upload of {reports} reports takes longer than taking it"


def folding(store: Store, reports: int, uploads: int) -> tuple[float, float]:
    """Return the seconds of an upload in parsing and group commits, and in being folded by one counter afterwards."""
    store.load(workload.registry())
    plans = [stored.plan for stored in store.plans()]
    before = sum(row.accepted for row in store.ledger())
    groups = [workload.wire_groups(plans, reports, cohort) for cohort in range(COHORTS)]
    bodies = [encode_upload(new_upload_id(secrets.randbits), groups[i % COHORTS]) for i in range(uploads)]
    started = time.perf_counter()
    for at in range(0, uploads, BATCH):
        store.append([(parse_upload(body, store.find_plan), body) for body in bodies[at : at + BATCH]])
    appended = time.perf_counter()
    for shard in range(store.shards):
        store.fold_all(shard)
    folded = time.perf_counter()
    rows = store.ledger()
    assert sum(row.folded for row in rows) == sum(row.accepted for row in rows) == before + uploads * reports
    return (appended - started) / uploads, (folded - appended) / uploads


# Servers.


@contextmanager
def sqlite(scratch: Path) -> Iterator[tuple[Target, Target]]:
    """Run `dither serve`, and its server alone."""
    data = scratch / "sqlite"
    with _bare() as bare, serve(scratch / "metrics.toml", data, starting=start_afresh) as served:
        yield bare, Target("SQLite", served.url, {"serve": served.process.pid}, served.key, str(data))


@contextmanager
def redis(scratch: Path) -> Iterator[tuple[Target, Target]]:
    """Run `dither api` and `dither worker` on a Redis that syncs always, and the server alone."""
    with (
        running_redis(scratch / "redis") as data,
        running_redis(scratch / "broker", appendonly="no") as broker,
        _bare(PROCESSES) as bare,
    ):
        made = dither("init", scratch / "metrics.toml", "--data", data.url, "--json")
        assert made.returncode == 0, made.stderr
        places = ("--data", data.url, "--broker", broker.url, "--json")
        with (
            _running(start_afresh("api", *places, "--port", 0, "--processes", PROCESSES)) as (api, line),
            _running(start_afresh("worker", *places, "--processes", 1)) as (worker, _),
        ):
            assert data.process
            processes = {"api": api.pid, "redis": data.process.pid, "worker": worker.pid}
            said = json.loads(line)
            yield bare, Target("Redis", said["url"], processes, json.loads(made.stdout)["key"], data.url)


@contextmanager
def _bare(*processes: int) -> Iterator[Target]:
    command = [sys.executable, "-m", "tests.benchmarks.bare", *map(str, processes)]
    with _running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)) as (process, line):
        yield Target("bare", line.strip(), {"bare": process.pid})


def _bjoern(opened: ExitStack) -> Target | None:
    """Run bjoern for as long as the stack is open; None, and why, where it cannot be had."""
    try:
        python = environment("bjoern")
    except PeerUnavailable as error:
        print(f"  without bjoern: {error}\n")
        return None
    command = [str(python), str(HERE / "serve_bjoern.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    running, line = opened.enter_context(_running(process))
    return Target("bjoern", f"http://127.0.0.1:{int(line)}", {"bjoern": running.pid})


@contextmanager
def _running(process: subprocess.Popen[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a process and the line that it prints when it is ready; end it afterwards."""
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, f"{process.args!r} did not start"
        yield process, line
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_until_folded(store: Store) -> float:
    """Return when nothing waited to be folded any more, by `time.monotonic`."""
    deadline = time.monotonic() + FOLDED_WITHIN_S
    while store.backlog():
        assert time.monotonic() < deadline, f"{store.backlog()} uploads were not folded within {FOLDED_WITHIN_S:g} s"
        time.sleep(0.02)
    return time.monotonic()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its children so far."""
    directory = Path(f"/proc/{pid}")
    fields = (directory / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    children = (directory / f"task/{pid}/children").read_text(encoding="ascii").split()
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(cpu_s(int(child)) for child in children)
