"""`dither uploads` writes what a server takes, and wrk sends it as deploy/sizes.md says."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from dither_aggregator.ingest.service import Service
from dither_shared.registry import Registry
from dither_shared.wire import PATH
from tests.support.aggregators import aggregator, dither
from tests.support.keys import bearer, write_key
from tests.support.registries import registry_text
from tests.support.tools import tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = registry_text()
METRICS = 2


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, Service]]:
    (tmp_path / "metrics.toml").write_text(TEXT, encoding="utf-8")
    with aggregator(Registry.parse(TEXT), tmp_path / "data") as (url, service):
        (tmp_path / "write.key").write_text(f"{write_key(service.store)}\n", encoding="utf-8")
        yield url, service


def written(place: Path, number: int) -> list[str]:
    """Return the lines of the command."""
    done = dither("uploads", place / "metrics.toml", "--number", number)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def accepted(service: Service) -> int:
    """Return how many uploads were."""
    return sum(row.accepted for row in service.store.ledger()) // METRICS


def test_each_line_is_an_upload_of_its_own_with_a_report_of_each_metric(
    running: tuple[str, Service], tmp_path: Path
) -> None:
    url, service = running
    lines = written(tmp_path, 100)
    assert len({json.loads(line)["upload"] for line in lines}) == 100
    assert len({json.dumps(json.loads(line)["groups"]) for line in lines}) > 1
    for line in lines[:20]:
        answer = requests.post(url + PATH, line, headers=_headers(service), timeout=30)
        assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (202, METRICS, [])
    wait_until(lambda: accepted(service) == 20)


def _headers(service: Service) -> dict[str, str]:
    return {"Content-Type": "application/json", **bearer(write_key(service.store))}


def load(url: str, place: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run wrk as the page says, with fewer connections and for less time."""
    (line,) = re.findall(r"^wrk (.*)$", (ROOT / "deploy" / "sizes.md").read_text(encoding="utf-8"), re.MULTILINE)
    places = {
        "-c32 -d30s": f"-c4 -d{seconds}s",
        "deploy/load.lua": str(ROOT / "deploy" / "load.lua"),
        "http://127.0.0.1:18080/v1/reports": url + PATH,
        "uploads scratch/write.key": f"{place}/uploads {place}/write.key",
    }
    for shown, here in places.items():
        assert shown in line
        line = line.replace(shown, here)
    return subprocess.run([tool("wrk"), *shlex.split(line)], capture_output=True, text=True, timeout=120)


def test_wrk_sends_each_line_once(running: tuple[str, Service], tmp_path: Path) -> None:
    url, service = running
    (tmp_path / "uploads").write_text("\n".join(written(tmp_path, 30_000)), encoding="utf-8")
    done = load(url, tmp_path, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Non-2xx" not in done.stdout
    (number,) = map(int, re.findall(r"(\d+) requests in", done.stdout))
    assert number > 0
    assert "99%" in done.stdout
    wait_until(lambda: 0 <= accepted(service) - number <= 4)


def test_wrk_ends_with_an_error_where_all_is_sent(running: tuple[str, Service], tmp_path: Path) -> None:
    """Else it would divide by seconds in which it sent nothing."""
    url, _ = running
    (tmp_path / "uploads").write_text("\n".join(written(tmp_path, 50)), encoding="utf-8")
    done = load(url, tmp_path, 60)
    assert done.returncode == 1
    assert "all uploads of the file are sent: write more of them" in done.stderr


@pytest.mark.parametrize("number", ["0", "10000001", "1e3", "many"])
def test_a_number_that_is_none_is_refused(number: str, tmp_path: Path) -> None:
    done = dither("uploads", tmp_path / "metrics.toml", "--number", number)
    assert done.returncode == 2
    assert f"must be a number from 1 to 10000000, got {number!r}" in done.stderr
