"""The time of pages of five words and text metrics by the clock: from a fresh start, kept, beside four busy loops.

The store is a real one, with other reports on each of 16 sealed days.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import requests

from dither_aggregator.operations import ONE_THREAD, maintenance
from dither_aggregator.operations.fork_server import unmade
from dither_aggregator.store import SQLiteStore
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.rng import Rng
from dither_shared.wire import WireGroup, encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.aggregators import serve, start_afresh
from tests.support.clocks import DAY_S, Clock
from tests.support.stores import fold_all, seal_all
from tests.support.waiting import wait_until

DAYS, REPORTS = 16, 1_500
BATCH, GROUPS = 190, 10
"""Reports to a group, and groups to an upload."""
TEXTS = [f"site{number}.example.org" for number in range(1_500)]
SAID = [f"word{number}" for number in range(300)]
WEIGHTS = [1 / (number + 1) ** 1.2 for number in range(300)]
COMPUTED_MAX_S, OPEN_MAX_S = 1.0, 2.0
"""Aims on two quiet cores: once computed, and the first page of a fresh start."""
LOOPS = 4
PATHS = ("/", "/changes", "/metrics/w1", "/metrics/w1/time", "/compare?metric=w1", "/metrics/t1", "/metrics/t1/time")


def run() -> None:
    """Print the tables."""
    subprocess.run([sys.executable, "-m", __name__], env=os.environ | ONE_THREAD, check=True)


def _text() -> str:
    until = utc_today() + timedelta(days=180)
    fresh, memo = 'reports = 3\nschedule = "early"', "memoize = true\nepsilon_permanent = 4\nanswers = 2"
    listed = f"candidates = {TEXTS!r}".replace("'", '"')
    metrics = dict.fromkeys(("w1", "w2", "w3"), ('kind = "words"', 4, fresh))
    metrics |= {"t1": (f'kind = "text"\n{listed}', 2, memo), "t2": (f'kind = "text"\n{listed}', 2, fresh)}
    metrics |= {"dark": ('kind = "flag"', 2, fresh)}
    parts = ['[registry]\napp = "example"\ndevice_epsilon = 1000\nquiet_days = 0\nlinkable = true\n']
    for name, (kind, epsilon, life) in metrics.items():
        parts.append(
            f'[metric.{name}]\n{kind}\nquestion = "What is {name}?"\nrev = 1\nepsilon = {epsilon}\n{life}\n'
            'presence = "public"\nperiod = "1d"\nowners = ["team@example.org"]\nsensitivity = "low"\n'
            f"expires = {until}\n"
        )
    return "\n".join(parts)


def _fill(home: Path) -> None:
    """Make a store with sealed days up to yesterday."""
    (home / "metrics.toml").write_text(_text(), encoding="utf-8")
    asked, rng, clock = Registry.parse(_text()), random.Random(1), Clock(time.time() - DAYS * DAY_S)
    with closing(SQLiteStore.create(home / "data", asked.app, clock)) as store:
        store.load(asked)
        for _ in range(DAYS):
            groups = [group for metric in asked.metrics.values() for group in _groups(metric, rng)]
            for first in range(0, len(groups), GROUPS):
                body = encode_upload(new_upload_id(rng.getrandbits), groups[first : first + GROUPS])
                store.append([(parse_upload(body, store.find_plan), body)])
            fold_all(store)
            clock.travel(1)
            seal_all(store)
        maintenance.maintain(store, 0)
        for name in asked.metrics:
            maintenance.finalize(store, name)


def _groups(metric: Metric, rng: random.Random) -> Iterator[WireGroup]:
    """Yield the reports of a day, by cell, a hundred or two to a group."""
    coins, cells = Rng(rng.getrandbits), dict[int, list[int | str]]()
    for _ in range(REPORTS):
        said: object = rng.random() < 0.3
        if metric.name != "dark":
            said = rng.choices(SAID if metric.name.startswith("w") else TEXTS[: len(WEIGHTS)], WEIGHTS)[0]
        cell = rng.randrange(metric.cells.count) if metric.cells.memoized else metric.cells.draw(coins)
        mechanism = metric.cells.mechanism_of(cell)
        report = mechanism.randomize(metric.class_of(metric.read(said), cell, coins), coins)
        cells.setdefault(cell, []).append(mechanism.shape.to_wire(report))
    for cell, reports in cells.items():
        for first in range(0, len(reports), BATCH):
            own = (cell,) if metric.cells.count > 1 else ()
            yield (metric.name, metric.plan.digest, reports[first : first + BATCH], *own)


def _served(home: Path) -> None:
    """Print how long pages of a server take by the clock."""
    arguments = home / "metrics.toml", home / "data"
    with (
        serve(*arguments, starting=start_afresh) as served,
        closing(SQLiteStore(arguments[1], read_only=True)) as store,
    ):
        opened = _clock(served.url)
        began = time.monotonic()
        wait_until(lambda: store.merged() == store.sealed() and not any(unmade(store)), within_s=3_600)
        took = time.monotonic() - began
        computed = _clock(served.url)
    with serve(*arguments, starting=start_afresh) as served:
        again = _clock(served.url)
        with _busy(LOOPS):
            beside = _clock(served.url)
    with _busy(LOOPS), serve(*arguments, starting=start_afresh) as served:
        started = _clock(served.url)
    print(f"\n  by the clock, in seconds; all was computed {took:.0f} s after the fresh start\n")
    names = ("fresh start", "computed", "restarted", f"beside {LOOPS}", "started so")
    print(f"    {'':28}" + "".join(f"{name:>13}" for name in names))
    for path, *each in zip(PATHS, opened, computed, again, beside, started, strict=True):
        print(f"    {path:28}" + "".join(f"{one:13.2f}" for one in each), flush=True)
    for says, most, each in (("with rows open", OPEN_MAX_S, opened[:1]), ("computed", COMPUTED_MAX_S, computed)):
        print(f"    {says}: {max(each):.2f}, aim {most:.2f}{'' if max(each) <= most else ', MISSED'}")


def _clock(url: str) -> list[float]:
    return [_took(lambda path=path: requests.get(url + path, timeout=120).raise_for_status()) for path in PATHS]  # type: ignore[misc]


def _took(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@contextmanager
def _busy(loops: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    with ExitStack() as opened:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
        for each in busy:
            opened.callback(each.wait)
            opened.callback(each.kill)
        yield busy


def _run() -> None:
    with tempfile.TemporaryDirectory() as place:
        _fill(Path(place))
        _served(Path(place))


if __name__ == "__main__":
    _run()
