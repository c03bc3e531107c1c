"""Simulated devices in child processes: job after job, and what is told of a child that ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_aggregator.ingest.service import Service
from dither_aggregator.simulate import fleet as fleets
from dither_aggregator.simulate.fleet import Answers, Fleet, Progress
from dither_shared.registry import Registry
from tests.support.aggregators import aggregator
from tests.support.keys import write_key
from tests.support.registries import registry_text

pytestmark = pytest.mark.slow

DEVICES = 30
ANSWERS: Answers = {"color": ["red", "green", "blue"] * (DEVICES // 3), "dark": [True, False] * (DEVICES // 2)}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Fleet, Service]]:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(reports=1), encoding="utf-8")
    with (
        aggregator(Registry.load(path), tmp_path / "data") as (url, service),
        Fleet(path, url, write_key(service.store), processes=2) as fleet,
    ):
        yield fleet, service


def test_a_fleet_does_job_after_job_and_every_report_is_accepted_once(running: tuple[Fleet, Service]) -> None:
    fleet, service = running
    for job in (1, 2, 3):
        *_, last = fleet.send(ANSWERS)
        assert last == Progress(DEVICES, unsent=0)
        assert sum(row.accepted for row in service.store.ledger()) == job * DEVICES * len(ANSWERS)


def test_a_job_ends_though_a_child_was_killed_and_says_how_far_it_came(running: tuple[Fleet, Service]) -> None:
    fleet, service = running
    fleet._children[0].kill()
    for job in (1, 2):
        *_, last = fleet.send(ANSWERS)
        assert last == Progress(DEVICES // 2, unsent=0)
        assert sum(row.accepted for row in service.store.ledger()) == job * DEVICES // 2 * len(ANSWERS)


def test_a_child_ends_with_its_parent() -> None:
    command = [sys.executable, "-m", fleets.__name__]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode == 1
