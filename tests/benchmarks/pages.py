"""The processor time of pages, beside one estimate of the same counts: with 50,001 values, and with 200 and 1,000
metrics; and how long the first page of a server takes. That of questions is beside the page of a metric that they ask:
with 100 metrics.

The store is a real one, with reports on each of 366 days. It runs in the environment of a reader.
"""

import asyncio
import gc
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import numpy as np
from flask.testing import FlaskClient

from dither_aggregator.analysis import estimands, functional, numbers
from dither_aggregator.analysis.estimands import read
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.reading_cache import Computing, Kept
from dither_aggregator.counting import tables
from dither_aggregator.operations import ONE_THREAD, maintenance
from dither_aggregator.operations.fork_server import CANDIDATES_MAX
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.records import DAY_S, KeptReading
from dither_aggregator.web.process_messages import Place, ReadAnswer, ReadRequest
from dither_aggregator.web.reader_pool import FIRST_WITHIN_S, ReaderProcess
from dither_aggregator.web.reader_process import prepare
from dither_shared.plan import Plan
from dither_shared.registry import Registry, utc_today
from dither_shared.rng import Rng
from dither_shared.wire import REPORTS_MAX, encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.clocks import Clock
from tests.support.drawn_numbers import draw_numbers, places_of
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.stores import fold_all, seal_all

VALUES = 50_000
DAYS = 366
OPEN = b'<p class="answer">Being computed.</p>'
REPORTS_A_DAY = 900
NUMBERS_A_DAY = 20_000
METRICS = 200, 1_000
FRONT_MAX_S, FRONT_METRICS = 1.0, 200
"""The front page may take so long, with however many metrics: those that are not read by then come later. If all is
computed ahead, that of so many metrics has all."""
VISITS_MAX = 30
"""Their front page is whole after as many visits, each five seconds after the one before, if nobody computes ahead."""
ASKED_METRICS = 100
ASKED_MAX_S = 1.0
"""A question may take so long, with all days of a year."""
BEYOND_MAX_S = 0.2
"""The first page of a window may take so much longer than one estimate of it."""
KNOWN_MAX_S = 0.02
"""The answer that nothing has changed may take so long."""
TIMES = 9
"""How often that is asked: the first answer is held to the aim, the median is shown beside it."""
SERIES_MAX_S = 1.5
FIRST_MAX_S = 1.5
"""A reader that is started for it may take so long for the first page."""
BYTES_MAX, PACKED_MAX = 300_000, 60_000


def run() -> None:
    """Print the tables; raise CalledProcessError where a page is too large. Times are printed beside aims."""
    subprocess.run([sys.executable, "-m", __name__], env=os.environ | ONE_THREAD, check=True)


def _run() -> None:
    print("  seconds of processor time; bytes as they are and in gzip\n")
    with tempfile.TemporaryDirectory() as place:
        _wide(Path(place))
    for number in METRICS:
        with tempfile.TemporaryDirectory() as place:
            _many(Path(place), number)
    with tempfile.TemporaryDirectory() as place:
        _first(Path(place))
    with tempfile.TemporaryDirectory() as place:
        _asked(Path(place))


@contextmanager
def _filled(
    asked: Registry, place: Path, days: int, reports: int, drawn: Sequence[str] = ()
) -> Iterator[tuple[SQLiteStore, FlaskClient]]:
    """Give a store with the same reports of each metric on each of some sealed days, and its pages.

    Metrics of numbers that are to be `drawn` have as many as tell numbers beside, which are others on each day.
    """
    clock, rng = Clock(), Rng(random.Random(1).getrandbits)
    clock.travel(-days)  # it ends when the metrics have not expired
    groups = [group for name, metric in asked.metrics.items() for group in _groups(name, metric, reports, rng)]
    numbers_rng = np.random.default_rng(1)
    with sqlite_store(asked, place, clock) as store:
        for _ in range(days):
            uploads = [groups[first : first + 16] for first in range(0, len(groups), 16)]
            uploads += [[group] for name in drawn for group in _drawn(name, asked.metrics[name].plan, numbers_rng)]
            for some in uploads:
                body = encode_upload(new_upload_id(random.getrandbits), some)
                store.append([(parse_upload(body, store.find_plan), body)])
            fold_all(store)
            clock.travel(1)
            seal_all(store)
        maintenance.maintain(store, 0)
        client = operators_app(store).test_client()
        client.get("/metrics/dark")  # templates are compiled
        gc.collect()
        gc.freeze()  # as the process does that readers are forked of
        yield store, client
        gc.unfreeze()


def _groups(name: str, metric: Any, number: int, rng: Rng) -> Iterator[Any]:
    """Yield the groups of a metric's reports in an upload, one for each of its cells."""
    columns = metric.plan.domain.columns
    if not (columns or metric.plan.domain.unit):
        yield name, metric.plan.digest, _reports(metric.plan, number, rng)
        return
    by_cell: dict[int, list[Any]] = {}
    for place in range(number):
        answer = (
            {"a": "xy"[place % 2], "b": "xyz"[place % 3], "c": "xyz"[place // 2 % 3]} if columns else place % 8 + 0.5
        )
        cell = metric.cells.draw(rng)
        mechanism = metric.cells.mechanism_of(cell)
        report = mechanism.randomize(metric.class_of(metric.read(answer), cell, rng), rng)
        by_cell.setdefault(cell, []).append(mechanism.shape.to_wire(report))
    for cell, reports in by_cell.items():
        yield name, metric.plan.digest, reports, cell


def _drawn(name: str, plan: Plan, rng: np.random.Generator) -> Iterator[Any]:
    """Yield groups of the reports of a day's devices, drawn by the laws of its cells."""
    places = np.exp(-4 * np.linspace(-1, 1, places_of(plan)) ** 2)
    for part, table, first in tables(plan.cells, draw_numbers(plan, places / places.sum(), NUMBERS_A_DAY, rng).counts):
        for cell, row in enumerate(table, first):
            symbols = np.repeat(np.arange(len(row) - 1), row[1:]).tolist()
            for begin in range(0, len(symbols), REPORTS_MAX):
                some = symbols[begin : begin + REPORTS_MAX]
                yield name, plan.digest, [part.mechanism.shape.to_wire(each) for each in some], cell


def _reports(plan: Any, number: int, rng: Rng) -> list[Any]:
    mechanism = pure(plan)
    answers = (mechanism.class_of([place % 5 % len(plan.values)]) for place in range(number))
    return [mechanism.shape.to_wire(mechanism.randomize(answer, rng)) for answer in answers]


def _wide(place: Path) -> None:
    values = tuple(f"model {number}" for number in range(VALUES))
    asked = registry(values=values, epsilon="4.0", reports=1, device_epsilon="400.0")
    with _filled(asked, place, DAYS, REPORTS_A_DAY) as (store, client):
        (stored,) = store.plans("color")
        window = View(simultaneous=True, days=7)
        _forget()
        one = _processor(lambda: read(store, stored, store.sealed(), window))[0]
        _forget()
        print(f"  {VALUES + 1:,} values: one estimate of a week    {one:7.3f}")
        cold, answer = _processor(lambda: client.get("/metrics/color"))
        _line("its page, first", cold, answer.data, one + BEYOND_MAX_S)
        _line("its page, again", *_again(client, "/metrics/color"), None)
        tag = {"If-None-Match": answer.headers["ETag"]}
        known = [_processor(lambda: client.get("/metrics/color", headers=tag)) for _ in range(TIMES)]
        assert {same.status_code for _, same in known} == {304}
        _line("its page, unchanged", known[0][0], b"", KNOWN_MAX_S)
        _line(f"its page, unchanged, median of {TIMES}", median(took for took, _ in known), b"", None)
        last = store.sealed()
        named = "&".join(f"values=model {number}" for number in range(5))
        days = f"/metrics/color/time?{named}&from={last - timedelta(days=DAYS - 1)}&to={last}"
        _forget()
        took, answer = _processor(lambda: client.get(days))
        _line(f"five values of {DAYS} days", took, answer.data, SERIES_MAX_S)
        for path in ("/compare?metric=color", "/changes", "/"):
            _forget()
            _line(path, *_again(client, path), None)


def _many(place: Path, metrics: int) -> None:
    text = "".join(_metric(number) for number in range(metrics))
    head = '[registry]\napp = "example"\ndevice_epsilon = 1000.0\nquiet_days = 0\n'
    with _filled(Registry.parse(head + text), place, 14, 40) as (store, client):
        print(f"\n  {metrics:,} metrics of 20 values")
        prepare()  # as the process has from which readers are forked
        few = metrics <= FRONT_METRICS
        _line("/ first, no reading is there", *_front(store, whole=few), FRONT_MAX_S)
        for name in [stored.plan.metric for stored in store.plans()]:
            maintenance.finalize(store, name)
        made: list[KeptReading] = []
        store.keeper = Computing(store, made.append, alone=True)
        _forget()
        operators_app(store).test_client().get("/")
        store.keep_readings(list({each.key: each for each in made}.values()))
        _line("/ first, computed ahead", *_front(store, whole=True), FRONT_MAX_S if few else None)
        for path in ("/changes", "/pipeline"):
            _line(f"{path} first", *_again(client, path), None)
            _line(f"{path} again", *_again(client, path), None)


def _front(store: SQLiteStore, *, whole: bool) -> tuple[float, bytes]:
    """Return what the front page takes of a reader that was just forked, and go on until it is `whole`."""
    _forget()
    store.keeper, client = Kept(store), operators_app(store).test_client()
    first = took, page = _again(client, "/")
    visits = [took]
    print(f"      {page.count(OPEN)} of the {page.count(b'<article')} cards come later:", end=" ")
    while whole and b'http-equiv="refresh"' in page:
        assert len(visits) < VISITS_MAX
        took, page = _again(client, "/")
        visits.append(took)
    assert not whole or OPEN not in page
    print(f"{len(visits)} visits, at most {max(visits):.3f}")
    return first


QUESTIONS = (
    'share(m0000 = "v3")',
    'share(m0000 in "v1*")',
    'share(m0000 in "v1*") / share(m0000 in ("v2", "v3", "v4"))',
    'share(m0000 = "v3", last 7 days) - share(m0000 = "v3", last 366 days)',
    'share(m0000 = "v3") - share(m0001 = "v4") last 366 days',
    'share(m0000 = "v3") by week last 366 days',
    'share(m0000 in "v1*") by day last 366 days',
    'share(m0000 = "v3") + share(m0001 = "v3") by day last 199 days',
    "mean(m0099)",
    "quantile(m0099, .9) last 366 days",
    "mean(m0099) by week last 366 days",
    "share(m0099 > 3 s) by day last 366 days",
    "mean(m0098) by week last 366 days",
    "mean(m0098) by day last 366 days",
    "quantile(m0098, .9) by day last 366 days",
    "share(m0098 > 3.0159 s) by day last 366 days",
    "1 / mean(m0098) last 366 days",
    "top(m0000, 5)",
    "top(m0000 group by family, 5) last 366 days",
    'share(m0097.a = "x" and b = "x") by week last 366 days',
    'share(m0097.a = "x" | b = "x") - share(m0097.a = "x" | b = "y") by week last 366 days',
    'regress(m0097.a = "x" on b, c) last 366 days',
    'logistic(m0097.a = "x" on b) last 366 days',
)
OTHERS = {
    "m0097": 'kind = "table"\ncolumns = { a = ["x", "y"], b = ["x", "y", "z"], c = ["x", "y", "z"] }',
    "m0098": 'kind = "number"\nlow = 0.01\nhigh = 60\nbuckets = 64\nscale = "log"\nunit = "s"',
    "m0099": 'kind = "number"\nedges = [0, 1, 2, 3, 5, 8]\nunit = "s"',
}
"""The lines that say of which kind a metric is; all others are of 20 values."""


def _asked(place: Path) -> None:
    metrics = [_metric(number, OTHERS.get(f"m{number:04}", "")) for number in range(ASKED_METRICS)]
    registry_text = '[registry]\napp = "example"\ndevice_epsilon = 1000.0\nquiet_days = 0\n' + "".join(metrics)
    with _filled(Registry.parse(registry_text), place, DAYS, 40, drawn=("m0098", "m0099")) as (_, client):
        print(f"\n  {ASKED_METRICS} metrics, {DAYS} days: the page of one, then questions, each the first time")
        _forget()
        page = _again(client, "/metrics/m0000?window=28")[0]
        _line("page of 28 days", page, b"", None)
        for question in QUESTIONS:
            _forget()
            took, content = _again(client, f"/v1/query?q={quote(question)}")
            _line(f"{question[:37]}", took, content[:1], ASKED_MAX_S)
            rows = json.loads(content)["rows"]
            told = sum(row["estimate"] is not None for row in rows)
            print(f"      {took / page:.1f} times the page; {told} of {len(rows)} answers are told")
        _forget()
        _line("/ask, with examples", *_again(client, "/ask"), ASKED_MAX_S)


def _metric(number: int, lines: str = "") -> str:
    values = ", ".join(f'"v{place}"' for place in range(20))
    listed = f'kind = "choice"\nvalues = [{values}]'
    return f"""
[metric.m{number:04}]
{lines or listed}
question = "Which of these do people use most, asked for the {number}th time?"
rev = 1
epsilon = 0.9
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {utc_today() + timedelta(days=180)}
"""


def _first(place: Path) -> None:
    """A reader that is started is asked for the first page, as the first who looks at a server asks."""
    text = "".join(_metric(number) for number in range(40))
    head = '[registry]\napp = "example"\ndevice_epsilon = 1000.0\nquiet_days = 0\n'
    with _filled(Registry.parse(head + text), place, DAYS, 40) as (store, _):
        store.set_clock_offset((store.today() - utc_today()).days * DAY_S)

        async def ask() -> tuple[float, ReadAnswer]:
            began = time.perf_counter()
            reader = await ReaderProcess.start(Place(str(place), store.generation, CANDIDATES_MAX))
            answer = await reader.ask(ReadRequest("GET", "/", b"", [], b"", live=True), FIRST_WITHIN_S)
            took = time.perf_counter() - began
            await reader.end()
            return took, answer

        took, answer = asyncio.run(ask())
        print(f"\n  40 metrics of 20 values on {DAYS} days; seconds that are waited, not of a processor")
        _line("/ of a new reader", took, gzip.decompress(answer.content), FIRST_MAX_S)


def _again(client: FlaskClient, path: str) -> tuple[float, bytes]:
    took, answer = _processor(lambda: client.get(path))
    assert answer.status_code == 200, answer.text
    return took, answer.data


def _processor(work: Any) -> tuple[float, Any]:
    started = time.process_time()
    done = work()
    return time.process_time() - started, done


def _forget() -> None:
    """Let what was read before be read anew."""
    for once in (estimands._read_once, estimands._pool_once, estimands._tail_once):
        assert once.cache is not None
        once.cache.clear()
    numbers._LIKELIEST.clear()
    numbers._FITS.clear()
    functional._noise_by_weights.cache_clear()


def _line(what: str, took: float, content: bytes, aim: float | None) -> None:
    packed = gzip.compress(content)
    assert len(content) <= BYTES_MAX, what
    assert len(packed) <= PACKED_MAX, what
    beside = "" if aim is None else f"   aim {aim:.3f}{'' if took <= aim else ', MISSED'}"
    print(f"    {what:38}{took:9.3f}{len(content):10,}{len(packed):9,}{beside}", flush=True)


if __name__ == "__main__":
    _run()
