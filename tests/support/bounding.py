"""Work on what somebody has said, held to a time and to memory."""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

WITHIN_S = 0.25
"""On a busy machine, and slowed by the counting of memory; most work takes some microseconds."""


@contextmanager
def bounded(bytes_max: int, within_s: float = WITHIN_S) -> Iterator[None]:
    """Hold the block to a time, and to so many bytes at once."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        yield
        assert time.thread_time() - began < within_s
        assert tracemalloc.get_traced_memory()[1] < bytes_max
    finally:
        tracemalloc.stop()
