"""The counts that a server process keeps in memory: limits hit, requests refused, copies, and how long commits take.

Everything else that `/metrics` shows is read from the store. All label values are known when this module is loaded, so
nobody who sends requests adds a series.

The processes of one `dither api` share one array: each adds to a row of its own, and the one that is asked adds the
rows up. A process that takes the place of another goes on in its row. prometheus-client's own way for several processes
keeps two files a process in a directory, which a killed parent leaves behind.
"""

from collections.abc import MutableSequence
from itertools import count
from multiprocessing import get_context
from threading import Lock
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, values

from dither_shared.wire.problems import PROBLEMS

LIMITS: dict[str, str] = {
    "address": "requests of one address or network in a time",
    "backlog": "uploads that are not folded",
    "bodies": "bytes of bodies that are not whole yet",
    "connections": "connections at a time",
    "disk": "free space for the store",
    "key": "requests with one key in a time",
    "login": "logins that failed, of one address or network and of all in a time",
    "long": "registries, and long lists of candidates, in a time",
    "parsing": "long uploads that wait to be read",
    "readers": "requests that wait for pages and API",
    "waiting": "uploads that wait for the store",
}
"""Each limit that may be hit, and what it limits. `limit_hit` takes no other."""

COMMIT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
SLOTS = 256
"""Numbers in a row; there are far fewer."""


class Shared(NamedTuple):
    """Rows of numbers that processes share, and the place of the one row that a process writes."""

    numbers: MutableSequence[float]
    place: int


def shared_rows(processes: int) -> MutableSequence[float]:
    """Return rows for so many processes, all zero. They can be handed to a process that is being started, as it is."""
    numbers: MutableSequence[float] = get_context("spawn").RawArray("d", processes * SLOTS)
    return numbers


def share(shared: Shared) -> None:
    """Count in a row that others read, from now on. To be called before anything is counted."""
    global _shared
    _shared = shared


_shared = Shared([0.0] * SLOTS, 0)
_slots = count()


class _Slot:
    """One number of each row, with the methods of prometheus-client's own values."""

    _multiprocess = False

    def __init__(self, *_: object, **__: object) -> None:
        self._slot = next(_slots)
        self._lock = Lock()

    def inc(self, amount: float) -> None:
        with self._lock:
            _shared.numbers[_shared.place * SLOTS + self._slot] += amount

    def get(self) -> float:
        return sum(_shared.numbers[self._slot :: SLOTS])

    def get_exemplar(self) -> None:
        return None


def _made(kind: type, name: str, text: str, labels: dict[str, list[str]] | None = None, **options: Any) -> Any:
    """Make a metric, and each of its series: one that is zero is shown as zero."""
    metric = kind(name, text, list(labels or ()), registry=REGISTRY, **options)
    for label_values in (labels or {}).values():
        for value in label_values:
            metric.labels(value)
    return metric


disable_created_metrics()  # type: ignore[no-untyped-call]
values.ValueClass = _Slot  # the seam by which prometheus-client is told of others
REGISTRY = CollectorRegistry()
_LIMITS_HIT: Counter = _made(Counter, "dither_limits_hit", "Times that a limit was hit.", {"limit": list(LIMITS)})
_REQUESTS_REFUSED: Counter = _made(
    Counter, "dither_requests_refused", "Requests that were refused as a whole.", {"problem": list(PROBLEMS)}
)
_DUPLICATES: Counter = _made(Counter, "dither_uploads_duplicate", "Copies of uploads that were accepted before.")
_COMMITS_FAILED: Counter = _made(Counter, "dither_commits_failed", "Commits of uploads that failed.")
_COMMIT: Histogram = _made(
    Histogram,
    "dither_commit_duration_seconds",
    "How long commits of uploads took until they were durable.",
    buckets=COMMIT_BUCKETS_S,
)


def limit_hit(limit: str) -> None:
    """Count that one of LIMITS was hit. Raises KeyError for another one."""
    LIMITS[limit]
    _LIMITS_HIT.labels(limit).inc()


def request_refused(slug: str) -> None:
    """Count a request that was refused with one of PROBLEMS. Raises KeyError for another one."""
    PROBLEMS[slug]
    _REQUESTS_REFUSED.labels(slug).inc()


def committed(seconds: float, duplicates: int) -> None:
    """Count a commit, how long it took, and how many of its uploads were known already."""
    _COMMIT.observe(seconds)
    _DUPLICATES.inc(duplicates)


def commit_failed() -> None:
    """Count a commit that failed."""
    _COMMITS_FAILED.inc()
