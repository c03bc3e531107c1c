"""Several processes on one device file: one budget, one upload at a time, every report once."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dither.device import FILE_NAME
from dither.device.file import DURABLE_WAIT_S
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.store import SQLiteStore
from dither_aggregator.web.http_messages import App, HttpAnswer, Scope
from dither_shared.registry import Registry
from tests.faults.apps import Taker, start
from tests.faults.test_kill import registry_text
from tests.support.aggregators import ENVIRONMENT, http_server, sqlite_store, web_app
from tests.support.clocks import Clock
from tests.support.keys import write_key
from tests.support.registries import registry
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

PROCESSES = scaled(4, 8)
FLAGS = scaled(80, 160)
SLOW_S = 0.03
"""The aggregator takes so much longer for an upload, so that two at a time would meet."""


class Gate:
    """An application behind which uploads are counted, and how many there were at one time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._now = 0
        self.most = 0

    async def __call__(self, scope: Scope, body: bytes) -> HttpAnswer:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(SLOW_S)
        self._now -= 1
        return await self._app(scope, body)


@contextmanager
def gated(registry: Registry, directory: Path) -> Iterator[tuple[str, SQLiteStore, Gate]]:
    with sqlite_store(registry, directory) as store, WholeService(store) as service:
        gate = Gate(web_app(service))
        server = http_server(gate)
        with server.in_background():
            yield server.url, store, gate


@pytest.mark.parametrize("round_", range(scaled(1, 20)))
def test_processes_share_one_budget_one_lock_and_every_report(home: Path, round_: int) -> None:
    path = home / "metrics.toml"
    path.write_text(registry_text(FLAGS, reports=1), encoding="utf-8")
    registry = Registry.load(path)
    with gated(registry, home / "aggregator") as (url, store, gate):
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.faults.crowd", path, home / "device", url, write_key(store), str(seed)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
            )
            for seed in range(PROCESSES * round_, PROCESSES * (round_ + 1))
        ]  # fmt: skip
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [(*process.communicate(timeout=120), process.returncode) for process in processes]
        assert [(error, code) for _, error, code in ended] == [("", 0)] * PROCESSES
        saw = [json.loads(out) for out, _, _ in ended]
        recorded = Counter(name for one in saw for name, reason in one["reasons"].items() if reason == "")
        assert recorded == dict.fromkeys(registry.metrics, 1)
        assert {reason for one in saw for reason in one["reasons"].values()} == {"", "answered"}
        assert {one["silent"] for one in saw} == {""}
        assert max(one["slowest_s"] for one in saw) < DURABLE_WAIT_S  # `record` waits a quarter of a second in turn
        accepted = Counter({row.metric: row.accepted for row in store.ledger()})
        assert accepted == recorded
        assert saw[-1]["counts"]["accepted"] <= FLAGS
        assert gate.most == 1


@pytest.mark.parametrize("how", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_file_that_another_process_is_just_making_is_waited_for(home: Path, how: str) -> None:
    """For DURABLE_WAIT_S at most. Else that process has no telemetry for its whole life."""
    with closing(sqlite3.connect(home / FILE_NAME, isolation_level=None, check_same_thread=False)) as other:
        other.execute(how)
        other.execute("SELECT * FROM sqlite_master").fetchall()
        done = threading.Timer(0.3, other.execute, ["COMMIT"])
        done.start()
        telemetry = start(registry(), home, Taker(), Clock())
        done.join()
        assert telemetry.status().silent == ""
        telemetry.close()
