"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], within_s: float = 60) -> None:
    """Wait until something is so. Fail when it takes too long."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
