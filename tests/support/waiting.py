"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable

ASKING = 8
"""How many times as long as a question took it is not asked again."""


def wait_until(holds: Callable[[], object], within_s: float = 60, what: str = "it") -> None:
    """Wait until something is so. Fail when it takes too long, and say what did.

    A question that takes long is asked less often, so that what is waited for has most of the processor.
    """
    deadline = time.monotonic() + within_s
    while True:
        began = time.thread_time()
        if holds():
            return
        assert time.monotonic() < deadline, f"{what} was not so within {within_s:.0f} seconds"
        time.sleep(max(0.01, ASKING * (time.thread_time() - began)))
