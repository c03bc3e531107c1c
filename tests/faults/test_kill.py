"""`kill -9` while a device records and uploads, against a real aggregator.

After every kill, for each metric:    accepted <= charged
After the last, when all is sent:     accepted = charged,    acknowledged <= accepted,
and over all metrics                  accepted - acknowledged <= kills

where a report is acknowledged when the recorder has written a line after `record` returned "": a kill may fall between
the two, once. "Disappeared" would be accepted < acknowledged, "counted twice" accepted > charged.
"""

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from shutil import copy

import pytest

from dither.device import FILE_NAME
from dither.sending.transport import HttpTransport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_aggregator.ingest.service import Service
from dither_shared.registry import Registry
from tests.faults.recorder import BUGS, STEPS
from tests.support.aggregators import ENVIRONMENT, aggregator, nursery
from tests.support.clocks import Clock
from tests.support.keys import write_key
from tests.support.nursery import Piped
from tests.support.registries import metrics_text
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

FLAGS = 20
ALIVE_S = 0.4
"""A recorder is killed within so long of its start: three to thirty of its days. A slow machine's lives longer."""


def registry_text(flags: int = FLAGS, reports: int = 5_000) -> str:
    flag = {"kind": "flag", "epsilon": 0.01, "reports": reports, "schedule": "early", "expires": date(2099, 1, 1)}
    return metrics_text({f"flag_{number}": flag for number in range(flags)}, app="flags", device_epsilon=1000)


@dataclass
class Killed:
    """A device whose recorders are killed, the aggregator it sends to, and what both say."""

    path: Path
    directory: Path
    url: str
    service: Service
    day: int = 0
    kills: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)

    def start(self, *how: object) -> Piped:
        arguments = (self.path, self.directory, self.url, write_key(self.service.store), self.day, *how)
        return nursery().piped("tests.faults.recorder", [str(argument) for argument in arguments], ENVIRONMENT)

    def kill(self, process: Piped, after_s: float) -> None:
        """Kill a recorder so long after it began, or wait for it to do it."""
        lines = [process.stdout.readline()]
        time.sleep(after_s)
        if after_s:
            process.kill()
        rest, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (-9, "")
        lines += rest.splitlines()
        for line in (line.strip() for line in lines):
            if line.isdigit():
                self.day = int(line)
            elif line != "ready":
                self.acknowledged[line] += 1
        self.kills += 1

    def accepted(self) -> Counter[str]:
        return Counter({row.metric: row.accepted for row in self.service.store.ledger()})

    def charged(self) -> Counter[str]:
        """Return the reports charged, by metric, read from a copy: the next recorder must find what a kill leaves."""
        copied = self.directory.with_name("copied")
        copied.mkdir(exist_ok=True)
        for suffix in ("", "-wal"):
            if (self.directory / f"{FILE_NAME}{suffix}").exists():
                copy(self.directory / f"{FILE_NAME}{suffix}", copied)
        with closing(sqlite3.connect(copied / FILE_NAME)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = db.execute("SELECT name, spent FROM metric").fetchall()
        charge = Registry.load(self.path).metrics["flag_0"].charge
        return Counter({name: micro // charge for name, micro in rows})

    def check(self) -> None:
        accepted, charged = self.accepted(), self.charged()
        assert accepted <= charged, f"more was accepted than charged: {accepted - charged}"

    def send_the_rest(self) -> Mapping[str, int]:
        """Send all that waits, and return what the device counted."""
        clock = Clock()
        clock.travel(self.day)
        transport = HttpTransport(self.url, write_key(self.service.store))
        telemetry = Telemetry(Settings(Registry.load(self.path), transport, self.directory, consent=True, clock=clock))
        assert telemetry.flush(60).waiting == 0
        counts = telemetry.status().counts
        telemetry.close()
        return counts

    def check_the_end(self) -> None:
        counts = self.send_the_rest()
        accepted, acknowledged = self.accepted(), self.acknowledged
        assert accepted == self.charged()
        assert acknowledged <= accepted, f"disappeared: {acknowledged - accepted}"
        assert accepted.total() - acknowledged.total() <= self.kills
        # Each was settled once, and none any other way.
        assert counts == {"accepted": accepted.total()}


@contextmanager
def killed(home: Path) -> Iterator[Killed]:
    path = home / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    with aggregator(Registry.load(path), home / "aggregator") as (url, service):
        yield Killed(path, home / "device", url, service)


def test_kills_at_random_moments_lose_nothing_and_double_nothing(home: Path) -> None:
    """However slow the machine is, kills go on until the recorders have been through some days."""
    kills, days = scaled(15, 200), scaled(12, 20)
    rng = random.Random(kills)
    with killed(home) as device:
        while device.kills < kills or device.acknowledged.total() <= days * FLAGS:
            device.kill(device.start(), rng.uniform(0, ALIVE_S * (1 + device.kills // kills)))
            device.check()
        device.check_the_end()


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_after_each_step_of_a_reports_life_loses_and_doubles_nothing(home: Path, step: str) -> None:
    with killed(home) as device:
        for times in range(1, scaled(3, 12)):
            device.kill(device.start(step, times), 0)
            device.check()
        device.check_the_end()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_a_kill(home: Path, bug: str) -> None:
    with killed(home) as device:
        device.kill(device.start("posted", 2, bug), 0)
        device.kill(device.start("posted", 2, bug), 0)
        with pytest.raises(AssertionError, match="more was accepted than charged"):
            device.check()
