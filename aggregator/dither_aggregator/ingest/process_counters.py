"""The counts that a server process keeps in memory: limits hit, requests refused, copies, and how long commits take.

Everything else that `/metrics` shows is read from the store. All label values are known when this module is loaded, so
nobody who sends requests adds a series.

The processes of one `dither api` share one array: each adds to a row of its own, and the one that is asked adds the
rows up. A process that takes the place of another goes on in its row. prometheus-client's own way for several processes
keeps two files a process in a directory, which a killed parent leaves behind: here it only writes what is read.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableSequence
from itertools import accumulate
from multiprocessing import get_context
from threading import Lock
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dither_shared.wire.reading import PROBLEMS

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
_BUCKETS = [*map(str, COMMIT_BUCKETS_S), "+Inf"]
_NAMES = [
    *(("limit", limit) for limit in LIMITS),
    *(("problem", slug) for slug in PROBLEMS),
    *(("within", bucket) for bucket in _BUCKETS),
    *(("commits", counted) for counted in ("duplicates", "failed", "seconds", "taken")),
]
_PLACES = {name: place for place, name in enumerate(_NAMES)}
"""The place of each number in a row."""
SLOTS = len(_PLACES)


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
_lock = Lock()


def _add(kind: str, name: str, amount: float = 1) -> None:
    with _lock:
        _shared.numbers[_shared.place * SLOTS + _PLACES[kind, name]] += amount


def _total(kind: str, name: str) -> float:
    return sum(_shared.numbers[_PLACES[kind, name] :: SLOTS])


class _Counted(Collector):
    """All counts: one that is zero is shown as zero."""

    def collect(self) -> Iterator[Metric]:
        yield _by_label("dither_limits_hit", "Times that a limit was hit.", "limit", LIMITS)
        yield _by_label("dither_requests_refused", "Requests that were refused as a whole.", "problem", PROBLEMS)
        duplicates, failed, seconds = (_total("commits", each) for each in ("duplicates", "failed", "seconds"))
        text = "Copies of uploads that were accepted before."
        yield CounterMetricFamily("dither_uploads_duplicate", text, value=duplicates)
        yield CounterMetricFamily("dither_commits_failed", "Commits of uploads that failed.", value=failed)
        text = "How long commits of uploads took until they were durable."
        within = zip(_BUCKETS, accumulate(_total("within", bucket) for bucket in _BUCKETS), strict=True)
        yield HistogramMetricFamily("dither_commit_duration_seconds", text, buckets=list(within), sum_value=seconds)


def _by_label(name: str, text: str, label: str, values: Iterable[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value in values:
        family.add_metric([value], _total(label, value))
    return family


REGISTRY = CollectorRegistry()
REGISTRY.register(_Counted())


def limit_hit(limit: str) -> None:
    """Count that one of LIMITS was hit. Raises KeyError for another one."""
    _add("limit", limit)


def request_refused(slug: str) -> None:
    """Count a request that was refused with one of PROBLEMS. Raises KeyError for another one."""
    _add("problem", slug)


ORIGINS_NAMED_MAX = 10
ORIGIN_NAMED_S = 86_400.0
_ORIGIN = re.compile(rb"(?:https?|chrome-extension|moz-extension)://[a-z0-9._-]{1,100}(:[0-9]{1,5})?")
_origins: dict[str, float] = {}


def origin_refused(origin: bytes) -> None:
    """Keep the origin of a page that was refused, the latest last, where it is written as browsers write one.

    In this process alone, and of no use to whoever sends many: they only push each other out.
    """
    if _ORIGIN.fullmatch(origin):
        name = origin.decode("ascii")
        with _lock:
            _origins.pop(name, None)
            _origins[name] = time.monotonic()
            if len(_origins) > ORIGINS_NAMED_MAX:
                del _origins[next(iter(_origins))]


def refused_origins() -> tuple[int, list[str]]:
    """Return how many requests were refused for their origin, and the origins of the last day that this process saw."""
    since = time.monotonic() - ORIGIN_NAMED_S
    with _lock:
        names = [name for name, at in _origins.items() if at >= since]
    return int(_total("problem", "origin-not-allowed")), names[::-1]


def refused_keys() -> tuple[int, int]:
    """Return how many requests were refused for a key that is not known, and for one of another scope."""
    return int(_total("problem", "key-wrong")), int(_total("problem", "key-scope"))


def taken() -> int:
    """Return how many uploads were accepted, copies included."""
    return int(_total("commits", "taken"))


def committed(seconds: float, taken: int, duplicates: int) -> None:
    """Count a commit, how long it took, how many uploads it took, and how many of these were known already."""
    _add("commits", "taken", taken)
    _add("within", _BUCKETS[bisect_left(COMMIT_BUCKETS_S, seconds)])
    _add("commits", "seconds", seconds)
    _add("commits", "duplicates", duplicates)


def commit_failed() -> None:
    """Count a commit that failed."""
    _add("commits", "failed")
