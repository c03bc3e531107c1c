"""`start(development=True)`: answers at once, on this machine alone, in a file of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import FILE_NAME
from dither.status import NOT_ASKED
from dither_shared.registry import Registry
from tests.support.registries import registry
from tests.support.servers import Reply, Request, accepted, scripted

PATIENT = {"quiet_days": 9, "schedule": "spread", "reports": 1, "epsilon": "1"}
"""A registry whose devices say nothing for nine days, and then on one day of the year."""


@contextmanager
def started(
    directory: Path | str, asked: Registry | None = None, *, development: bool = True
) -> Iterator[tuple[dither.Telemetry, list[Request]]]:
    with (
        scripted(Reply(body=accepted)) as (url, requests),
        dither.start(
            asked or registry(**PATIENT),
            endpoint=url,
            key="k",
            data_dir=directory,
            consent=True,
            development=development,
        ) as telemetry,
    ):
        yield telemetry, requests


def test_a_device_in_development_answers_at_once(tmp_path: Path) -> None:
    with started(tmp_path) as (telemetry, requests):
        telemetry.color.record("red")
        assert telemetry.flush(20) == dither.FlushResult(sent=1, waiting=0, detail="")
        assert telemetry.status().metrics["color"].silent == "answered"
        assert telemetry.status().development
    assert len(requests) == 1
    with started(tmp_path, development=False) as (telemetry, requests):
        telemetry.color.record("red")
        assert telemetry.flush(20).sent == 0
        assert telemetry.status().metrics["color"].silent == "quiet"
        assert not telemetry.status().development
    assert requests == []


def test_its_file_is_its_own_and_the_devices_budget_is_untouched(tmp_path: Path) -> None:
    with started(tmp_path, registry(), development=False) as (telemetry, _):
        telemetry.color.record("red")
        telemetry.flush(20)
    with started(tmp_path, registry()) as (telemetry, _):
        assert telemetry.status().spent == {"color": 0.0, "dark": 0.0}
        telemetry.dark.record(True)
        telemetry.flush(20)
        assert telemetry.status().spent == {"color": 0.0, "dark": 2.0}
    with started(tmp_path, registry(), development=False) as (telemetry, _):
        assert telemetry.status().spent == {"color": 2.0, "dark": 0.0}
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(FILE_NAME))
    assert files == [f"development/{FILE_NAME}", FILE_NAME]


def test_in_memory_it_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with started(":memory:") as (telemetry, _):
        telemetry.color.record("red")
        assert telemetry.flush(20).sent == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("in_environment", [True, False])
def test_an_endpoint_beyond_this_machine_is_refused_whoever_says_it(
    in_environment: bool, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, beyond = "http://127.0.0.1:9", f"{scheme}://telemetry.example.org"
    if in_environment:
        monkeypatch.setenv("DITHER_ENDPOINT", beyond)
    settings = {"endpoint": here if in_environment else beyond, "key": "k", "data_dir": tmp_path, "development": True}
    with dither.start(registry(), consent=True, **settings) as telemetry:  # type: ignore[arg-type]
        telemetry.color.record("red")
        status = telemetry.status()
        assert status.silent.startswith("endpoint must be on this machine in development")
        assert (status.development, status.waiting) == (True, 0)
        assert telemetry.flush(1).sent == 0
    with pytest.raises(dither.ConfigurationError, match="or leave development out"):
        dither.start(registry(), consent=True, strict=True, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", ["http://[", "ftp://127.0.0.1", "http://someone:marker@example.org", None])
def test_an_endpoint_that_cannot_be_is_refused_as_ever(endpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(dither.ConfigurationError, match=r"^endpoint must be like https://") as refused:
        dither.start(registry(), endpoint=endpoint, key="k", data_dir=tmp_path, development=True, strict=True)
    assert "marker" not in str(refused.value)


def test_the_person_is_asked_as_ever(tmp_path: Path) -> None:
    with dither.start(
        registry(), endpoint="http://127.0.0.1:9", key="k", data_dir=tmp_path, development=True
    ) as telemetry:
        assert telemetry.status().silent == NOT_ASKED
        assert telemetry.status().development
    assert list(tmp_path.iterdir()) == []
