"""The lines of a worker's log that are left out while it stops."""

import logging

import pytest
from billiard.common import human_status
from billiard.exceptions import WorkerLostError

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
