"""The lines of a worker's log that are left out while it stops."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from billiard import pool
from billiard.common import human_status
from billiard.exceptions import WorkerLostError
from celery.exceptions import WorkerShutdown
from celery.worker import state
from celery.worker.consumer.consumer import CONNECTION_ERROR  # type: ignore[attr-defined]  # but it has

from dither_aggregator.workers import worker
from dither_aggregator.workers.worker import _filter_logs


@pytest.mark.parametrize(
    ("stops", "exitcode", "said"), [(False, 0, True), (True, 0, False), (True, -9, True), (True, 1, True)]
)
def test_a_process_that_ended_well_while_its_worker_stops_is_not_called_lost(
    stops: bool, exitcode: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy parent may not have read the last result in time: billiard then says that the process was lost."""
    handler = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    _filter_logs("redis://127.0.0.1:6379/0", lambda: stops)
    lost = WorkerLostError(f"Worker exited prematurely: {human_status(exitcode)} Job: 0.")
    words = ("Task handler raised error: %r", (lost,))
    record = logging.LogRecord("celery.worker.request", logging.ERROR, "request.py", 1, *words, None)
    assert bool(handler.filter(record)) is said


def test_a_broker_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    _filter_logs("redis at 127.0.0.1:6379/0", lambda: False)
    words = (CONNECTION_ERROR, ("redis://:secret@127.0.0.1:6379/0", OSError("refused"), "Trying again in 2 seconds"))
    record = logging.LogRecord("celery.worker.consumer.consumer", logging.ERROR, "consumer.py", 1, *words, None)
    assert handler.filter(record), f"Celery says otherwise than {worker.CANNOT_CONNECT!r} that a broker is away"
    said = record.getMessage()
    assert said == "the broker, redis at 127.0.0.1:6379/0, cannot be reached: refused; trying again"


def test_the_names_that_a_worker_has_of_celery_and_billiard_still_mean_what_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "should_terminate", None)
    monkeypatch.setattr(state, "should_stop", 0)
    with pytest.raises(WorkerShutdown):  # the loop of a worker ends no more when celery.worker.state.should_stop is set
        state.maybe_shutdown()
    looked: list[float] = []
    monkeypatch.setattr("billiard.pool.time.sleep", looked.append)
    monkeypatch.setattr(pool, "GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT", worker.RESULTS_READ_WITHIN_TRIES)
    process: Any = pool.Worker
    process._ensure_messages_consumed(SimpleNamespace(on_ready_counter=SimpleNamespace(value=0)), completed=1)
    assert sum(looked) == pytest.approx(0.5), "billiard waits otherwise for its parent to read the last results"
