"""`dither demo`: an aggregator and a fleet of simulated devices whose true answers are known, over a week."""

import argparse
import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import requests

from dither_aggregator.arguments import number
from dither_aggregator.arguments.settings import port_number
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.simulate.fleet import Answers, Fleet
from dither_aggregator.simulate.populations import (
    COMPARING,
    TABLE_ROWS,
    Population,
    browsers,
    by_design,
    census,
    holds,
    too_few_hold,
)
from dither_aggregator.store import SQLiteStore, Store
from dither_aggregator.store.document_kinds import WRITE
from dither_aggregator.store.records import DAY_S, Counted, total_of
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.listeners import Listener
from dither_aggregator.web.reader_process import in_threads
from dither_shared.errors import DitherError
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.safe_output import behind

EXAMPLE = "dither demo --data census --devices 48842"
DEVICES_MAX = 2_000_000
PROCESSES_MAX = 8
PROCESS_DEVICES = 20
"""A process for fewer devices a day is not worth its start."""
FOLD_WITHIN_S = 60.0
DAYS = 7
"""Days of the store's clock: pages show a week by default."""
POPULATIONS: Mapping[str, Callable[[], Population]] = {"browsers": browsers, "census": census}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "--devices", type=number(1, DEVICES_MAX), default=20_000, help="simulated devices (default: %(default)s)"
    )
    parser.add_argument(
        "--data",
        choices=POPULATIONS,
        default="browsers",
        help="whose answers: browser versions by their shares of use, or the people of a census (default: %(default)s)",
    )
    parser.add_argument("--port", type=port_number, default=0, help="the page's port (default: any free one)")
    parser.add_argument("--seed", type=_seed, help="draw the same true answers again; the noise is never repeatable")
    parser.add_argument("--all", action="store_true", help=f"print every row, not the {TABLE_ROWS} largest")
    parser.add_argument(
        "--publish",
        metavar="DIRECTORY",
        type=Path,
        help="write the site of published totals there, as `dither publish` does; the week is then the last whole one",
    )
    then = parser.add_mutually_exclusive_group()
    then.add_argument("--exit", action="store_true", help="end after the tables, as it does without a terminal")
    then.add_argument("--serve", action="store_true", help="serve the pages until Ctrl-C, as it does at a terminal")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document; progress goes to stderr")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"must be a number of at most 18 digits, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Simulate, compare, and serve; return 1 when the ledger or the intervals do not hold."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the temporary directory goes
    population = POPULATIONS[args.data]()
    people = population.devices_max
    if people is not None and args.devices > people:
        raise DitherError(f"--devices must be at most {people} with --data {args.data}, got {args.devices}")
    # Without a terminal nobody would see the address, or press Ctrl-C.
    serves = args.serve or (not args.exit and sys.stdin.isatty() and sys.stdout.isatty())
    if args.publish and not population.publish_epsilon_year:
        raise DitherError(f"--publish needs a population whose totals are published, not --data {args.data}")
    clock = _Clock(whole_week=bool(args.publish))
    seed = secrets.randbits(32) if args.seed is None else args.seed
    answers = population.draw(args.devices, seed)
    with tempfile.TemporaryDirectory(prefix="dither-demo-") as name:
        path = Path(name) / "metrics.toml"
        path.write_text(population.registry(utc_today()), encoding="utf-8")
        registry = Registry.load(path)
        with closing(SQLiteStore.create(Path(name) / "data", registry.app, clock)) as store:
            store.load(registry)
            with WholeService(store) as service:
                app = create_app(service, in_threads(store))
                server = HttpServer(app, Listener("127.0.0.1", args.port))
                with server.in_background():
                    _, key = store.create_key(WRITE)
                    document = _simulate(path, server.url, key, store, answers, clock)
                    if args.publish:
                        _publish(args.publish, store, registry)
                    if args.json:
                        print(json.dumps(document), flush=True)
                    else:
                        print(_tables(document, registry, everything=args.all), flush=True)
                    if serves:
                        _serve_on(server.url, registry, Path(name) / "data")
    return _verdict(document)


class _Clock:
    """The store's: it stands still on each of the days before this one, as the demo begins, and ends on this one.

    Or, for a whole week, on this week's Monday: totals are published of weeks that begin with one.
    """

    def __init__(self, *, whole_week: bool = False) -> None:
        self.began = time.time()
        self.started = self.began - (utc_today().weekday() * DAY_S if whole_week else 0)
        self._days_ago = DAYS

    def __call__(self) -> float:
        return self.started - self._days_ago * DAY_S

    def next_day(self) -> None:
        """Let a day pass."""
        self._days_ago -= 1


def _simulate(path: Path, url: str, key: str, store: Store, answers: Answers, clock: _Clock) -> dict[str, Any]:
    """Let the fleet send its answers, a part of it each day; return the demo's document."""
    devices = len(next(iter(answers.values())))
    processes = max(1, min(os.cpu_count() or 1, PROCESSES_MAX, devices // DAYS // PROCESS_DEVICES))
    bar = _Bar(devices)
    with Fleet(path, url, key, processes) as fleet:
        for day in range(DAYS):
            first, last = devices * day // DAYS, devices * (day + 1) // DAYS
            if first < last:
                _send(fleet, {name: each[first:last] for name, each in answers.items()}, bar, first)
                _wait_for_fold(store)
            clock.next_day()
            for shard in range(store.shards):
                maintenance.maintain(store, shard)
    bar.end()
    metrics = [_compare(metric, url, answers[metric.name]) for metric in Registry.load(path).metrics.values()]
    ledger = total_of(store.ledger()).to_document()
    seconds = round(time.time() - clock.began, 1)
    return {"devices": devices, "seconds": seconds, "ledger": ledger, "metrics": metrics}


def _publish(directory: Path, store: Store, registry: Registry) -> None:
    from dither_aggregator.publishing.site import publish_to

    releases, refused = publish_to(directory, store, registry)
    for reason in refused:
        print(reason, file=sys.stderr)
    print(f"{directory / 'index.html'} has {len(releases)} releases", file=sys.stderr)


def _send(fleet: Fleet, answers: Answers, bar: "_Bar", before: int) -> None:
    """Let the devices of a day send; `before` were shown before them."""
    devices = len(next(iter(answers.values())))
    done = None
    for done in fleet.send(answers):
        bar.show(before + done.devices)
    if done is None or done.devices < devices or done.unsent:
        raise DitherError(
            f"only {done.devices if done else 0:,} of {devices:,} devices of a day finished, "
            f"{done.unsent if done else 0:,} reports were not acknowledged"
        )


def _wait_for_fold(store: Store) -> None:
    deadline = time.monotonic() + FOLD_WITHIN_S
    while backlog := store.backlog():
        if time.monotonic() > deadline:
            raise DitherError(f"{backlog:,} uploads are still not folded after {FOLD_WITHIN_S:.0f} seconds")
        for shard in range(store.shards):  # the service would take up to a second to begin
            store.fold_all(shard)


def _compare(metric: Metric, url: str, answers: Sequence[object]) -> dict[str, Any]:
    """Return what the API says of a metric, beside the truth."""
    with requests.Session() as session:
        session.trust_env = False  # no proxy stands between us and ourselves
        address = f"{url}/v1/metrics/{metric.name}/estimates?window={DAYS}&intervals=each"
        reading = session.get(address, timeout=30).json()
    meta = reading["meta"]
    rows = COMPARING[metric.kind.estimand].rows(metric, answers, reading["rows"])
    return {
        "metric": metric.name,
        "mechanism": meta["mechanism"],
        "epsilon": meta["epsilon"],
        "n": meta["n"],
        "coverage": sum(map(holds, rows)) / len(rows) if rows else None,
        "rows": rows,
    }


def _verdict(document: dict[str, Any]) -> int:
    rows = [row for metric in document["metrics"] for row in metric["rows"]]
    ledger = document["ledger"]
    expected = document["devices"] * len(document["metrics"])
    fine = (
        ledger["accepted"] == ledger["folded"] == expected
        and all(metric["n"] == document["devices"] for metric in document["metrics"])
        and not too_few_hold(rows)
    )
    return 0 if fine else 1


def _tables(document: dict[str, Any], registry: Registry, *, everything: bool) -> str:
    lines = []
    for compared in document["metrics"]:
        metric = registry.metrics[compared["metric"]]
        by = f"{compared['mechanism']}, epsilon {compared['epsilon']:g} each"
        lines += [
            "",
            f"{metric.name}: {compared['n']:,} reports by {by}",
            *COMPARING[metric.kind.estimand].table(metric, compared["rows"], everything=everything),
        ]
    rows = [row for compared in document["metrics"] for row in compared["rows"]]
    lines += [
        "",
        *([by_design(rows)] if rows else []),
        f"ledger: {Counted(**document['ledger']).equation}",
        f"{document['devices']:,} devices in {document['seconds']:.1f} s",
    ]
    return "\n".join(lines[1:])


def _serve_on(url: str, registry: Registry, data: Path) -> None:
    try:
        print("pages: " + "  ".join(f"{url}/metrics/{name}" for name in registry.metrics), file=sys.stderr)
        print(f"other commands read its store meanwhile: --data {data}", file=sys.stderr)
        print(f"still serving {url} until Ctrl-C", file=sys.stderr, flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print(file=sys.stderr)


class _Bar:
    """A progress bar on stderr: redrawn on a terminal, a line each tenth elsewhere."""

    WIDTH = 32

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = time.monotonic()
        self._tenth = 0
        self._redraws = sys.stderr.isatty()
        self.show(0)

    def show(self, done: int) -> None:
        """Draw the bar for so many devices."""
        tenth = 10 * done // self._total
        if not self._redraws and tenth <= self._tenth and done:
            return
        self._tenth = tenth
        elapsed = time.monotonic() - self._started
        left = f", {elapsed / done * (self._total - done):.0f} s left" if done else ""
        filled = self.WIDTH * done // self._total
        bar = f"[{'#' * filled}{'.' * (self.WIDTH - filled)}] {done:,} of {self._total:,} devices{left}"
        if self._redraws:
            print(f"\r{bar:<79}", end="", file=behind(sys.stderr), flush=True)
        else:
            print(bar, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the bar's line."""
        if self._redraws:
            print(file=sys.stderr)
