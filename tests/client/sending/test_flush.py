"""Flushes that wait while threads of the app fork it."""

import threading
import time
from collections.abc import Iterator

import pytest

import dither
from dither.sending.uploader import FlushResult, Uploader
from dither.telemetry import Telemetry
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with (
        scripted(Reply(body=accepted)) as (url, _),
        dither.start(registry(), endpoint=url, key="k", data_dir=":memory:", consent=True) as made,
    ):
        yield made


def flushing(telemetry: Telemetry, uploader: Uploader) -> tuple[threading.Thread, list[FlushResult]]:
    """Begin a flush on another thread; return once it waits."""
    results: list[FlushResult] = []
    thread = threading.Thread(target=lambda: results.append(telemetry.flush(20)))
    thread.start()
    while not uploader._flushes and thread.is_alive():
        time.sleep(0.001)
    return thread, results


def test_a_flush_goes_on_though_the_fork_that_ended_the_thread_could_not_start_it_again(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine: whoever forks cannot have the lock for as long as a fork may take."""
    uploader = telemetry._uploader
    assert uploader
    telemetry.dark.record(True)
    uploader.before_fork()
    thread, results = flushing(telemetry, uploader)
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(uploader._changed, "acquire", lambda timeout: False)
        uploader.after_fork_in_parent()
    thread.join()
    assert results == [FlushResult(1, 0, "")]
    assert time.monotonic() - began < 20


def test_a_flush_of_a_device_that_cannot_be_used_returns_at_once(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader = telemetry._uploader
    assert uploader

    def unusable() -> bool:
        raise dither.device.DeviceUnusable("its file is another's")

    telemetry.dark.record(True)
    monkeypatch.setattr(uploader, "_begun", False)
    monkeypatch.setattr(uploader, "_begin", unusable)
    thread, results = flushing(telemetry, uploader)
    thread.join(20)
    assert results == [FlushResult(0, 1, "its file is another's")]
