"""`dither serve` under attack: how long good uploads wait, what it costs in memory, and how soon it is as before.

The server has a core, and all clients another one. Each attack has a server of its own: good uploads come to it at a
steady rate, first alone, then beside the attackers, then alone again. In the end the ledger must have each of them,
once. On a machine with one core everything shares it, and waits say little.

    python -m tests.benchmarks.attacks SECONDS [NAME...]    # attacks of another length, or some of them
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from dither_aggregator.store import SQLiteStore
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from tests.benchmarks import workload
from tests.benchmarks.attackers import ADMIN, ADMINS, APART, ATTACKERS
from tests.benchmarks.growth import Loader
from tests.benchmarks.outcomes import (
    APART_WAIT_RATIO,
    BACK_WITHIN_S,
    LOG_BYTES_MAX,
    MEMORY_MAX_MIB,
    RECOVERY_S,
    WAIT_RATIO,
    Outcome,
    wait_max_s,
)
from tests.benchmarks.steady import RATE, WITHIN_S, Try, Uploader, Waits, streak
from tests.benchmarks.swarm import OTHER
from tests.benchmarks.uploads import template
from tests.benchmarks.watching import LOOK_EVERY_S, Watch, spent_by
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.clusters import SERVE, OneMachine, running
from tests.support.failing import Orders

SECONDS = 30.0
BASE_SHARE = 3
"""An attack is so many times as long as the time before it, which is the base."""
WARM_S = 1.0
BASE_MIN_S = 1.0
"""The time before an attack is this long at least: it shows how long good uploads wait without one."""
BUSY_S = 0.1
"""Without an attack, good uploads' p99 is above this only where something else has the machine or its disk."""
BACK_UPLOADS = 100
"""The server is back when so many good uploads in a row did not wait long."""
END_WITHIN_S = 20.0
APART_WITHIN_S = 60.0
"""Processes that read apart have a few hundredths of a busy machine."""
VALUES = 50_000
SEEDED = 100_000
"""Reports that the store holds before: the pages and estimates of all metrics show some."""
GOOD = "flag_0"
KINDS = {
    "flag": workload.KINDS["flag"],
    "choice": 'kind = "choice"\nvalues_file = "wide.txt"\nreports = 1',
    "text": workload.KINDS["text"],
    "other": workload.KINDS["flag"],
}


@dataclass(frozen=True)
class Attack:
    """Attackers by their name, and how many files the server may open: soft and hard, or soft alone."""

    name: str
    attackers: str
    files: str = ""
    """As `prlimit --nofile` takes them; "" leaves them as they are."""

    def before(self, core: int) -> list[str]:
        """Return the command that starts another one on a core, within the limits."""
        limited = ["prlimit", f"--nofile={self.files}"] if self.files else []
        return ["taskset", "--cpu-list", str(core), *limited]


ATTACKS = (
    Attack("500 slow senders", "slow"),
    Attack("30 pipelines unread", "pipelining"),
    Attack("2,100 idle, 1,024 files", "idle", "1024:1024"),
    Attack("2,100 idle, soft 1,024", "idle", "1024:"),
    Attack("wrong keys", "wrong-keys"),
    Attack("64 answers unread", "never-reading"),
    Attack("4 readers of 50,000", "readers"),
    Attack("posted candidates", "candidates"),
    Attack("hostile registries", "registries"),
    Attack("one, of small ones", "small-registries"),
    Attack("one, of large ones", "large-registries"),
    Attack("hostile bodies", "bodies"),
)


# The table.

COLUMNS: tuple[tuple[str, int, Callable[[Outcome], str]], ...] = (
    ("p50", 7, lambda each: f"{each.base.percentile_s(50) * 1e3:.1f}"),
    ("p99", 7, lambda each: f"{each.base.percentile_s(99) * 1e3:.1f}"),
    ("attacked", 10, lambda each: f"{each.attacked.percentile_s(50) * 1e3:.1f}"),
    ("p99", 8, lambda each: f"{each.attacked.percentile_s(99) * 1e3:.1f}"),
    ("limit", 7, lambda each: f"{each.limit_s * 1e3:.1f}"),
    ("failed", 16, lambda each: f"{each.attacked.failures.total():,} of {each.attacked.tried:,}"),
    ("MiB", 6, lambda each: f"{each.memory_mib:.0f}"),
    ("log B", 9, lambda each: f"{each.log_bytes:,}"),
    ("back s", 8, lambda each: f"{each.back_s:.1f}"),
    ("health p99", 12, lambda each: f"{each.health.percentile_s(99) * 1e3:.0f}"),
    ("failed", 8, lambda each: f"{each.health.failures.total()}"),
)


def run(seconds: float = SECONDS, names: Sequence[str] = ()) -> None:
    """Print the table; raise AssertionError with every aim that was missed."""
    cores = sorted(os.sched_getaffinity(0))
    print(f"  {seconds:g} s each; milliseconds that good uploads wait, before and beside the attack: one that failed")
    print(f"  counts as {WITHIN_S:g} s. limit: of p99, the larger of {WAIT_RATIO} times the base's and 50 ms; where a")
    print(f"  process of its own reads what comes, {APART_WAIT_RATIO} times the base's. MiB: at most {MEMORY_MAX_MIB}.")
    print(f"  log B: at most {LOG_BYTES_MAX:,}. back s: at most {BACK_WITHIN_S:g}")
    print("" if len(cores) > 1 else "  one core for server and clients: what waits say is less than it seems\n")
    print(f"  {'':25}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS))
    wrong = []
    with tempfile.TemporaryDirectory(prefix="dither-attacks-") as directory:
        seed(Path(directory))
        for attack in ATTACKS:
            if names and attack.attackers not in names:
                continue
            outcome = measure(attack, seconds, Path(directory))
            print(f"  {attack.name:25}" + "".join(f"{show(outcome):>{width}}" for _, width, show in COLUMNS))
            print(f"    {_in_words(outcome)}", flush=True)
            wrong += [f"{attack.name}: {each}" for each in outcome.missed()]
    assert not wrong, "missed:\n  " + "\n  ".join(wrong)


def _in_words(outcome: Outcome) -> str:
    """Return what both sides did, for whoever reads a row."""
    did = ", ".join(f"{name} {number:,}" for name, number in sorted(outcome.done.items()))
    failures = ", ".join(f"{how} {number:,}" for how, number in outcome.attacked.failures.items())
    busy = outcome.base.percentile_s(99) > BUSY_S
    return (
        f"attackers: {did}"
        + (f"; good uploads that failed: {failures}" if failures else "")
        + ("; the machine was busy with something else: the limit says little" if busy else "")
    )


# One attack.


def seed(directory: Path) -> None:
    """Make a registry, and a store with reports of every metric; `measure` copies both."""
    (directory / "wide.txt").write_text("\n".join(f"value {place}" for place in range(VALUES)), encoding="utf-8")
    (directory / "metrics.toml").write_text(workload.registry_text(len(KINDS), KINDS), encoding="utf-8")
    registry = Registry.load(directory / "metrics.toml")
    with closing(SQLiteStore.create(directory / "store", registry.app)) as store:
        store.load(registry)
        Loader(store).load(SEEDED)


def measure(
    attack: Attack,
    seconds: float,
    seeded: Path,
    *,
    before: Sequence[str] | None = None,
    orders: Orders | None = None,
    apart_s: float = 0.0,
) -> Outcome:
    """Attack a new server for so long, and until the processes that read apart had so much processor time.

    `before` is a command that starts it in another way, or another one.
    """
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=seeded)))
        shutil.copytree(seeded / "store", home / "store")
        shutil.copy(seeded / "wide.txt", home)
        if attack.attackers in ADMINS:  # with a key in the store, others would be turned away without one
            with closing(SQLiteStore(home / "store")) as store:
                store.register_key("admin", ADMIN, "of the attackers")
        machine = OneMachine(home, (seeded / "metrics.toml").read_text(encoding="utf-8"), orders)
        opened.enter_context(running(machine))
        opened.enter_context(_pinned(cores[-1]))
        plans = {name: metric.plan for name, metric in Registry.load(home / "metrics.toml").metrics.items()}
        there = _accepted(machine.store_name)
        machine[SERVE].launch(*(attack.before(cores[0]) if before is None else before))
        outcome = _observe(machine, attack, seconds, plans, apart_s)
        machine.kill_all()  # what was acknowledged is on the disk
        outcome.counted = _accepted(machine.store_name) - there
        return outcome


def _observe(machine: OneMachine, attack: Attack, seconds: float, plans: dict[str, Plan], apart_s: float) -> Outcome:
    """Return what good uploads and a look at the server every now and then show; the ledger is not read yet."""
    said = machine[SERVE].ready()
    url, log = said["url"], machine.directory / f"{SERVE}.log"
    if attack.attackers in ADMINS:  # the first such request loads what answers them
        requests.get(f"{url}/v1/admin/keys", headers={"Authorization": f"Bearer {ADMIN}"}, timeout=WITHIN_S)
    good = template(url, said["key"], [(GOOD, plans[GOOD].digest, [1])])
    with Uploader(url, good, RATE) as uploader:
        uploader.run_for(min(WARM_S, seconds))
        base = Waits.of(_answered(uploader, uploader.run_for(max(seconds / BASE_SHARE, BASE_MIN_S))))
        logged = log.stat().st_size
        with (
            Watch(machine[SERVE], said.get("health", url)) as watch,
            _attacking(attack, url, said["key"], plans[OTHER].digest) as attackers,
        ):
            attacked, until = uploader.run_for(seconds), time.perf_counter() + APART_WITHIN_S
            while (spent := spent_by(machine[SERVE])).apart_s < apart_s and time.perf_counter() < until:
                attacked += uploader.run_for(LOOK_EVERY_S)
            log_bytes = log.stat().st_size - logged
            done = _end(attackers, uploader)
        back_s = _back_s(uploader, wait_max_s(base))
        settled = uploader.settle()
        waits, health = Waits.of(attacked), Waits.of(watch.health)
        apart = attack.attackers in APART
        return Outcome(
            *(base, waits, health, watch.memory_mib, log_bytes, back_s, settled, len(uploader.tries), 0),
            *(done, apart, spent),
        )


def _answered(uploader: Uploader, tries: list[Try]) -> list[Try]:
    """Go on until all of them have an answer."""
    uploader.run(lambda: all(one.end for one in tries))
    return tries


def _back_s(uploader: Uploader, limit_s: float) -> float:
    """Go on until good uploads are fast again; return how long that took."""
    began, first, due = time.perf_counter(), len(uploader.tries), None
    while due is None and time.perf_counter() < began + RECOVERY_S:
        uploader.run_for(LOOK_EVERY_S)
        due = streak(uploader.tries[first:], BACK_UPLOADS, limit_s)
    return math.inf if due is None else max(due - began, 0.0)


def _accepted(data: str) -> int:
    """Return how many good reports the ledger has. Raises AssertionError where it does not balance."""
    read = dither("ledger", "--data", data, "--json")
    assert read.returncode == 0, f"the ledger does not balance: {read.stdout}{read.stderr}"
    return sum(row["accepted"] for row in json.loads(read.stdout)["rows"] if row["metric"] == GOOD)


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """Keep this thread, and what it starts, on a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _attacking(attack: Attack, url: str, key: str, plan: str) -> Iterator[subprocess.Popen[str]]:
    """Attack while the block runs, at the most."""
    command = [sys.executable, "-m", "tests.benchmarks.attackers", attack.attackers, url, key, plan]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline(), f"the attackers of {attack.name} did not start"
            yield process
        finally:
            process.kill()


def _end(attackers: subprocess.Popen[str], uploader: Uploader) -> Counter[str]:
    """End an attack while good uploads go on; return what was done in it."""
    assert attackers.stdin
    assert attackers.stdout
    attackers.stdin.close()
    deadline = time.perf_counter() + END_WITHIN_S
    uploader.run(lambda: attackers.poll() is not None or time.perf_counter() > deadline)
    assert attackers.returncode == 0, f"the attackers ended with {attackers.returncode}"
    return Counter(json.loads(attackers.stdout.read()))


if __name__ == "__main__":
    unknown = set(sys.argv[2:]) - ATTACKERS.keys()
    assert not unknown, f"attacks are {', '.join(ATTACKERS)}, got {', '.join(unknown)}"
    run(float(sys.argv[1]), sys.argv[2:])
