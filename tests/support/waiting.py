"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], within_s: float = 60) -> float:
    """Wait until something is so; return how long that took. Fail when it takes too long."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + within_s, "it did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - began
