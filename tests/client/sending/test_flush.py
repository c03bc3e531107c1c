"""Flushes that wait while threads of the app fork it."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import dither
from dither.sending.transport import HttpTransport
from dither.sending.upload_thread import ANOTHER_DAY, FlushResult, Uploader
from dither.session import Settings
from dither.telemetry import Telemetry
from tests.support.clocks import Clock
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
    uploader = telemetry._session.uploader
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
    uploader = telemetry._session.uploader
    assert uploader

    def unusable() -> bool:
        raise dither.device.DeviceUnusable("its file is another's")

    telemetry.dark.record(True)
    monkeypatch.setattr(uploader, "_begun", False)
    monkeypatch.setattr(uploader, "_begin", unusable)
    thread, results = flushing(telemetry, uploader)
    thread.join(20)
    assert results == [FlushResult(0, 1, "its file is another's")]


def held_late(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, until: Callable[[], object]) -> None:
    """Let a flush that gives up hold others back only when something is so, or after a while."""
    device = telemetry._session.device
    assert device
    hold = device.hold

    def late(moment: float) -> None:
        deadline = time.monotonic() + 2
        while not until() and time.monotonic() < deadline:
            time.sleep(0.001)
        hold(moment)

    monkeypatch.setattr(device, "hold", late)


def test_a_flush_that_gives_up_does_not_end_another(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = Reply(502, delay_s=0.5), Reply(body=accepted)
    with (
        scripted(*replies) as (url, requests),
        dither.start(registry(), endpoint=url, key="k", data_dir=":memory:", consent=True) as telemetry,
    ):
        uploader = telemetry._session.uploader
        assert uploader
        held_late(telemetry, monkeypatch, lambda: not uploader._sender.busy)
        telemetry.dark.record(True)
        thread, results = flushing(telemetry, uploader)
        while not requests:
            time.sleep(0.001)
        assert telemetry.flush(0.01).waiting == 1
        thread.join()
        assert results == [FlushResult(1, 0, "")]


def test_an_answer_that_comes_while_a_flush_gives_up_lifts_what_it_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        scripted(Reply(502, delay_s=0.2), Reply(body=accepted)) as (url, requests),
        dither.start(registry(), endpoint=url, key="k", data_dir=":memory:", consent=True) as telemetry,
    ):
        held_late(telemetry, monkeypatch, lambda: "502" in telemetry.status().sending.outcome)
        telemetry.dark.record(True)
        assert telemetry.flush(0.1).waiting == 1
        deadline = time.monotonic() + 20
        while telemetry.status().sending.held_until is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert telemetry.flush(20) == FlushResult(1, 0, "")
        assert len(requests) == 2


def test_a_flush_returns_at_once_where_what_waits_leaves_another_day() -> None:
    clock = Clock()
    with scripted(Reply(body=accepted)) as (url, _):
        settings = Settings(registry(reports=10, epsilon="1"), HttpTransport(url, "k"), None, True, clock=clock)
        telemetry = Telemetry(settings)
        for _ in range(2):
            clock.travel(1)
            telemetry.dark.record(True)
        began = time.monotonic()
        assert telemetry.flush(20).waiting == 1
        assert telemetry.flush(20) == FlushResult(0, 1, ANOTHER_DAY)
        assert time.monotonic() - began < 20
        clock.travel(1)
        assert telemetry.flush(20).waiting == 0
        assert telemetry.status().counts["accepted"] == 2
        telemetry.close()
