import asyncio
import decimal
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dither
from dither.device import FILE_NAME
from dither.status import NOT_ASKED, REFUSED
from tests.support.registries import registry, registry_text
from tests.support.servers import Reply, Request, accepted, problem, scripted
from tests.support.waiting import wait_until


@contextmanager
def telemetry(
    *replies: Reply, data_dir: str | Path = ":memory:", strict: bool = False, **changes: object
) -> Iterator[tuple[dither.Telemetry, list[Request]]]:
    with scripted(*replies or [Reply(body=accepted)]) as (url, requests):
        started = dither.start(
            registry(**changes), endpoint=url, key="k", data_dir=data_dir, consent=True, strict=strict
        )
        try:
            yield started, requests
        finally:
            started.close()


def held(until: threading.Event) -> Reply:
    """Return an acceptance that comes when the event is set."""

    def body(upload: bytes) -> bytes:
        assert until.wait(20)
        return accepted(upload)

    return Reply(body=body)


def test_record_and_flush_send_one_upload() -> None:
    with telemetry() as (device, requests):
        device.color.record("red")
        device.dark.record(True)
        assert device.flush(10) == dither.FlushResult(sent=2, waiting=0, detail="")
        assert len(requests) == 1
        status = device.status()
        assert (status.silent, status.waiting, status.spent) == ("", 0, {"color": 2.0, "dark": 2.0})
        assert (status.counts, status.asks, status.refused) == ({"accepted": 2}, {}, ())
        assert {metric.silent for metric in status.metrics.values()} == {"answered"}
        assert (status.sending.outcome, status.sending.next) == ("accepted", None)
        assert (status.erasing, status.ask) == (False, False)


def test_handles_are_typed_by_kind() -> None:
    with telemetry() as (device, _):
        assert isinstance(device.color, dither.Choice)
        assert isinstance(device.dark, dither.Flag)
        assert {"color", "dark", "flush"} <= set(dir(device))
        with pytest.raises(AttributeError, match="no metric 'colour'; it has color, dark"):
            _ = device.colour


def test_start_refuses_only_a_bad_registry(tmp_path: Path) -> None:
    with pytest.raises(dither.RegistryError, match="cannot be read"):
        dither.start(tmp_path / "none.toml", endpoint="https://example.org", key="k", consent=True)


@pytest.mark.parametrize(
    ("endpoint", "key", "why"), [("http://example.org", "k", "must be https"), ("https://example.org", "", "key must")]
)
def test_an_endpoint_or_key_that_cannot_work_is_said_and_not_raised(
    endpoint: str, key: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dither"):
        device = dither.start(registry(), endpoint=endpoint, key=key, data_dir=":memory:", consent=True)
    device.color.record("red")
    assert why in device.status().silent
    assert why in caplog.text
    device.close()
    with pytest.raises(dither.ConfigurationError, match=why):
        dither.start(registry(), endpoint=endpoint, key=key, data_dir=":memory:", consent=True, strict=True)


def test_a_directory_relative_to_one_that_is_gone_is_said_and_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    device = dither.start(registry(), endpoint="https://example.org", key="k", data_dir="device", consent=True)
    assert "No such file" in device.status().silent
    device.close()


def test_a_registry_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    started = dither.start(path, endpoint="https://example.org", key="k", data_dir=":memory:", consent=True)
    assert started.status().silent == ""
    started.close()


@pytest.mark.parametrize(("consent", "why"), [(None, NOT_ASKED), (False, REFUSED)])
def test_without_consent_nothing_is_kept_or_sent(tmp_path: Path, consent: bool | None, why: str) -> None:
    with scripted(Reply(body=accepted)) as (url, requests):
        device = dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path / "d", consent=consent)
        device.color.record("red")
        assert device.flush(1) == dither.FlushResult(0, 0, why)
        assert device.status().silent == why
        device.close()
        assert device.status().silent == why
        assert requests == []
    assert list(tmp_path.iterdir()) == []


def test_after_close_nothing_happens() -> None:
    with telemetry() as (device, requests):
        device.close()
        device.close()
        device.color.record("red")
        assert device.flush(1) == dither.FlushResult(0, 0, "closed")
        assert requests == []


def test_a_context_closes_it_and_lets_the_apps_own_error_pass() -> None:
    with scripted(Reply(body=accepted)) as (url, _):
        device = dither.start(registry(), endpoint=url, key="k", data_dir=":memory:", consent=True)

        def live() -> None:
            with device as entered:
                assert (entered, device.status().silent) == (device, "")
                raise KeyError("the app's")

        with pytest.raises(KeyError, match="the app's"):
            live()
        assert device.status().silent == "closed"


def test_a_flush_in_asyncio_lets_others_run_meanwhile() -> None:
    answered = threading.Event()  # the event loop must run on for this answer to come

    async def live() -> dither.FlushResult:
        device.color.record("red")
        flushing = asyncio.create_task(device.flush_async(20))
        while not requests and not flushing.done():
            await asyncio.sleep(0.01)
        answered.set()
        return await flushing

    with telemetry(held(answered)) as (device, requests):
        assert asyncio.run(live()) == dither.FlushResult(sent=1, waiting=0, detail="")


def test_a_flush_in_asyncio_that_is_cancelled_holds_no_program() -> None:
    answered = threading.Event()

    async def live() -> None:
        device.color.record("red")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(device.flush_async(40), 0.2)

    with telemetry(held(answered)) as (device, requests):
        asyncio.run(live())  # which waits for every thread of the loop's executor
        assert "dither-flush" in [thread.name for thread in threading.enumerate()]
        answered.set()
        wait_until(lambda: device.status().waiting == 0)  # it was begun, and went on
        assert device.flush(10).waiting == 0
        assert (len(requests), device.status().counts) == (1, {"accepted": 1})


def test_a_strict_flush_in_asyncio_raises_into_the_task() -> None:
    with telemetry(strict=True) as (device, _), pytest.raises(dither.ConfigurationError, match="timeout must be"):
        asyncio.run(device.flush_async("soon"))  # type: ignore[arg-type]


def test_a_flush_in_asyncio_without_a_thread_raises_nothing_into_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    async def live() -> dither.FlushResult:
        monkeypatch.setattr(threading, "Thread", NoThread)
        device.color.record("red")
        return await device.flush_async(1)

    with telemetry() as (device, requests):
        assert asyncio.run(live()) == dither.FlushResult(0, 0, "failed (RuntimeError)")
        assert (device.status().waiting, requests) == (1, [])


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flush that failed try again soon: its first pause is up to half a second, the next ones longer."""
    monkeypatch.setattr("dither.sending.upload_thread.PAUSE_S", 0.02)


@pytest.mark.usefixtures("soon_again")
def test_a_flush_tries_again_until_the_aggregator_is_back() -> None:
    away = Reply(502, b"<html>")
    with telemetry(away, away, problem(503, "unavailable"), Reply(body=accepted)) as (device, requests):
        device.color.record("red")
        assert device.flush(30) == dither.FlushResult(1, 0, "")
        assert len(requests) == 4
        assert len({request.body for request in requests}) == 1


@pytest.mark.parametrize("timeout", [float("nan"), -1.0, 0.0])
def test_a_flush_without_time_returns_at_once(timeout: float) -> None:
    with telemetry(Reply(502, b"")) as (device, _):
        device.color.record("red")
        assert device.flush(timeout).waiting == 1


def test_a_flush_may_be_given_all_the_time_there_is() -> None:
    with telemetry() as (device, _):
        device.color.record("red")
        assert device.flush(float("inf")).sent == 1


@pytest.mark.usefixtures("soon_again")
def test_flushes_at_the_same_time_do_not_end_each_other() -> None:
    with telemetry(Reply(502, b""), Reply(502, b""), Reply(502, b""), Reply(502, b""), Reply(body=accepted)) as (
        device,
        _,
    ):
        device.color.record("red")
        short = threading.Thread(target=device.flush, args=(0.01,))
        short.start()
        assert device.flush(30).waiting == 0
        short.join()


def test_a_passing_fault_does_not_stop_sending_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    with telemetry() as (device, _):
        device.color.record("red")
        with monkeypatch.context() as patched:
            patched.setattr("dither.device.Device.next_upload", locked)
            assert device.flush(1) == dither.FlushResult(0, 1, "failed (OperationalError)")
        assert device.flush(5) == dither.FlushResult(1, 0, "")


def test_a_record_while_the_thread_ends_is_not_forgotten() -> None:
    """Many short lives of the thread: after each flush nothing may wait without a thread and a plan."""
    with telemetry(reports=10_000, epsilon="0.01", device_epsilon="500") as (device, _):
        recorder = threading.Thread(target=lambda: [device.dark.record(True) for _ in range(300)])
        recorder.start()
        for _ in range(100):
            device.color.record("red")
            device.flush(5)
        recorder.join()
        device.flush(5)
        assert device.status().waiting == 0


def test_a_host_with_few_decimal_digits_is_no_trouble() -> None:
    with decimal.localcontext(prec=2):
        asked = registry(epsilon="1.234567", reports=2)
        assert asked.metrics["dark"].reservation == 2 * 1_234_567


@pytest.mark.parametrize("directory", ["a\0b", "/proc/none/such"])
def test_a_directory_that_cannot_be_is_no_trouble(directory: str) -> None:
    device = dither.start(registry(), endpoint="https://example.org", key="k", data_dir=directory, consent=True)
    device.color.record("red")
    assert "cannot be used" in device.status().silent
    device.close()


def test_a_directory_of_another_type_is_named() -> None:
    wrong: Any = 5
    device = dither.start(registry(), endpoint="https://example.org", key="k", data_dir=wrong, consent=True)
    assert device.status().silent == "data_dir must be the path of a directory, got one of type int"
    device.close()


@pytest.mark.parametrize("wrong", [None, "soon", [3]])
def test_a_timeout_that_is_no_number_is_named(wrong: Any) -> None:
    with telemetry() as (device, requests):
        device.color.record("red")
        assert device.flush(wrong) == dither.FlushResult(
            0, 0, f"timeout must be a number of seconds, got one of type {type(wrong).__name__}"
        )
        assert requests == []
        assert device.flush(10).sent == 1


def test_without_a_home_directory_telemetry_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    device = dither.start(registry(), endpoint="https://example.org", key="k", consent=True)
    assert device.status().silent == "data_dir is needed, or DITHER_DATA_DIR: Could not determine home directory."
    device.close()


@pytest.fixture
def uploaders() -> Callable[[], list[threading.Thread]]:
    """Return what returns the threads that send and began in this test: another test's may still be in a request."""
    before = threading.enumerate()
    return lambda: [
        thread for thread in threading.enumerate() if thread.name == "dither-uploader" and thread not in before
    ]


def test_reports_leave_by_themselves_at_a_random_moment(
    monkeypatch: pytest.MonkeyPatch, uploaders: Callable[[], list[threading.Thread]]
) -> None:
    monkeypatch.setattr("dither.sending.upload_thread.SEND_WITHIN_S", 0.1)
    with telemetry() as (device, requests):
        device.color.record("red")
        wait_until(lambda: not device.status().waiting)
        assert len(requests) == 1
        wait_until(lambda: not uploaders())  # idle: the thread has ended


def test_a_program_too_short_to_send_spends_nothing_and_loses_nothing(tmp_path: Path) -> None:
    with telemetry(data_dir=tmp_path) as (device, requests):
        device.color.record("red")
        planned = device.status().sending.next
        assert planned is not None
    with telemetry(data_dir=tmp_path) as (device, requests):
        status = device.status()
        assert (status.waiting, status.spent) == (1, {"color": 0.0, "dark": 0.0})
        assert status.sending.next == planned
        assert requests == []
        assert device.flush(10).sent == 1
    with telemetry(data_dir=tmp_path) as (device, requests):
        assert device.flush(10).sent == 0


def test_close_does_not_wait_for_a_request_in_flight(
    tmp_path: Path, uploaders: Callable[[], list[threading.Thread]]
) -> None:
    closed = threading.Event()
    with telemetry(held(closed), data_dir=tmp_path) as (device, requests):
        device.color.record("red")
        wait_until(lambda: device.flush(0.2) and requests)
        started = time.monotonic()
        device.close()
        assert time.monotonic() - started < 10  # the request goes on until it is over
        assert uploaders()
        closed.set()
        wait_until(lambda: not uploaders())
    with telemetry(data_dir=tmp_path) as (device, _):
        assert device.status().counts == {"accepted": 1}  # its answer still counted


@pytest.mark.parametrize("strict", [False, True])
def test_a_flush_that_meets_close_says_so_and_warns_of_nothing(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()
    with caplog.at_level(logging.WARNING, "dither"), telemetry(held(closed), strict=strict) as (device, requests):
        device.color.record("red")
        results: list[dither.FlushResult] = []
        flushing = threading.Thread(target=lambda: results.append(device.flush(10)))
        flushing.start()
        wait_until(lambda: requests)
        device.close()
        flushing.join(8)  # though the request goes on
        assert not flushing.is_alive()
        closed.set()
    assert [result.detail for result in results] == ["closed"]
    assert caplog.text == ""


def test_a_flush_that_comes_while_it_is_closed_does_not_say_that_all_was_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[dither.FlushResult] = []
    with telemetry() as (device, _):
        device.color.record("red")
        session = device._session
        stop = session.stop

        def stop_and_flush() -> None:
            stop()
            results.append(device.flush(1))

        monkeypatch.setattr(session, "stop", stop_and_flush)
        device.close()
    assert set(results) == {dither.FlushResult(0, 0, "closed")}


def test_an_unusable_file_turns_telemetry_off_and_the_app_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
    with caplog.at_level(logging.WARNING, "dither"), telemetry(data_dir=tmp_path) as (device, requests):
        device.color.record("red")
        assert device.flush(1).sent == 0
        assert "cannot be used" in device.status().silent
        assert requests == []
    assert "telemetry is off" in caplog.text


class Rude:
    def __bool__(self) -> bool:
        raise SystemError("marker-secret")


def test_odd_answers_neither_raise_nor_show_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "dither"), telemetry() as (device, _):
        device.color.record({"marker-secret": 1})
        device.dark.record(Rude())
        assert device.flush(10).sent == 2
    assert "marker" not in caplog.text


def test_a_broken_device_is_counted_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    with telemetry() as (device, _):
        monkeypatch.setattr("dither.device.Device.record", fail)
        device.color.record("red")
        assert device.status().counts == {"failed": 1}


def test_many_threads_record_one_answer_a_metric() -> None:
    with telemetry() as (device, requests):
        threads = [threading.Thread(target=lambda: [device.color.record("red") for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert device.flush(10).sent == 1
        assert device.status().counts == {"accepted": 1, "answered": 159}
        assert len(requests) == 1
