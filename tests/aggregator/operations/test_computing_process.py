"""Pages are computed ahead by a process that nobody waits for: real ones, stopped and killed."""

import os
import random
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests

from dither_aggregator.health import checks
from dither_aggregator.health.checks import Observed
from dither_aggregator.operations.fork_server import Address, Computer, fork_server, unmade
from dither_aggregator.operations.maintenance import maintain
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import WireGroup, encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.aggregator.test_readers import readers
from tests.support.aggregators import NOT_NICE, Served, serve
from tests.support.clocks import DAY_S, Clock
from tests.support.registries import registry_text
from tests.support.soaking import scaled, thinned
from tests.support.stores import fold_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

TEXT = registry_text(kind="words", reports=1, epsilon="4")
REPORTS = 300
WAITS = "being computed"
PATIENT_S = 1_000
"""Beside four busy programs the process that computes has a twentieth of a processor."""
ANSWER_S = 240
"""By then a reader has answered, and started, or the server has said that it took too long."""


def upload(asked: Registry, rng: random.Random) -> bytes:
    """Return reports of words, a third of them of one, and of a flag."""
    coins, cells = Rng(rng.getrandbits), dict[int, list[int | str]]()
    words, dark = asked.metrics["color"], asked.metrics["dark"]
    for number in range(REPORTS):
        cell = words.cells.draw(coins)
        seen = words.class_of(words.read("firefox" if number % 3 else f"{number}"), cell, coins)
        report = words.cells.mechanism_of(cell).randomize(seen, coins)
        cells.setdefault(cell, []).append(int(report))
    flags = [
        int(dark.mechanism.randomize(dark.class_of(dark.read(number % 4 == 0), 0, coins), coins))
        for number in range(REPORTS)
    ]
    said: list[WireGroup] = [(words.name, words.plan.digest, each, cell) for cell, each in cells.items()]
    return encode_upload(new_upload_id(rng.getrandbits), [*said, (dark.name, dark.plan.digest, flags)])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two days that are closed."""
    return lived(tmp_path_factory.mktemp("computing"), 2)


def lived(made: Path, days: int) -> Path:
    """Make a store with so many closed days, the last of them yesterday, and its registry."""
    rng, clock = random.Random(5), Clock()
    (made / "metrics.toml").write_text(TEXT, encoding="utf-8")
    asked = Registry.parse(TEXT)
    clock.now = time.time() - days * DAY_S
    with closing(SQLiteStore.create(made / "data", "example", clock)) as store:
        store.load(asked)
        for _ in range(days):
            body = upload(asked, rng)
            store.append([(parse_upload(body, store.find_plan), body)])
            fold_all(store)
            clock.travel(1)
            for shard in range(store.shards):
                maintain(store, shard)
    return made


@contextmanager
def serving(home: Path) -> Iterator[Served]:
    with closing(sqlite3.connect(home / "data" / FILE_NAME)) as db, db:
        db.execute("DROP TABLE IF EXISTS reading")
    with serve(home / "metrics.toml", home / "data", settings=NOT_NICE) as made:
        yield made


def computing(served: Served) -> int | None:
    """Return the process that computes, once it has begun."""
    for pid in readers(served.process.pid):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(state[16]) == 1 and state[0] != "Z":
            return pid
    return None


def page(served: Served, path: str) -> str:
    answer = requests.get(served.url + path, timeout=ANSWER_S)
    assert answer.status_code == 200, answer.text
    return answer.text


def row(html: str, words: str) -> str:
    return next(str(each) for each in re.findall("<article.*?</article>", html, re.DOTALL) if words in each)


def kept(home: Path) -> set[str]:
    with closing(SQLiteStore(home / "data", read_only=True)) as store:
        return {entry.key for entry in store._readings("NOT open")}


def test_other_rows_are_answered_while_a_reading_is_still_open(home: Path) -> None:
    with serving(home) as served:
        page(served, "/")
        wait_until(lambda: computing(served), PATIENT_S)
        stopped = computing(served)
        assert stopped
        os.kill(stopped, signal.SIGSTOP)
        try:
            html = page(served, "/")
            assert WAITS.capitalize() in row(html, "Which colour do people choose?")
            assert "say yes" in row(html, "Do people use the dark theme?")
            assert '<body data-refresh="5">' in html
            assert "data-refresh" not in page(served, "/metrics/dark")
            changes = page(served, "/changes")
            assert "in any of 1 metric" in changes
            assert re.search(f"Which colour do people choose\\?</bdi></a> {WAITS}", changes)
            for path in ("/metrics/color", "/metrics/color/time", "/compare?metric=color"):
                html = page(served, path)
                assert re.search(r'<p class="headline">Being computed', html), html
                assert '<body data-refresh="5">' in html
            answer = requests.get(served.url + "/v1/metrics/color/estimates", timeout=ANSWER_S)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
            assert answer.json()["type"] == "urn:dither:problem:being-computed"
            meta = requests.get(served.url + "/v1/changes", timeout=ANSWER_S).json()["meta"]
            assert meta["metrics_being_computed"] == ["color"]
            assert meta["metrics_compared"] == 1
        finally:
            os.kill(stopped, signal.SIGCONT)
        # The page itself is not asked until then: it would take a processor from the process that is waited for.
        wait_until(lambda: any(key.startswith(str(Address(True, "/"))) for key in kept(home)), PATIENT_S)
        told = row(page(served, "/"), "Which colour do people choose?")
        assert "lead" in told


def test_a_process_that_is_killed_loses_one_reading_and_the_next_goes_on_until_all_is_made(tmp_path: Path) -> None:
    """Nobody asks: the pages of the last sealed day are computed by themselves. A new server finds them.

    A day before it to compare with, of which there are twice the readings, is in `make soak`.
    """
    home = lived(tmp_path, scaled(1, 2))
    killed, before = set[int](), set[str]()
    with serving(home) as served, closing(SQLiteStore(home / "data", read_only=True)) as store:
        for _ in range(scaled(1, 4)):
            more = len(before) + 2
            wait_until(partial(is_at_work, served, home, killed, more), PATIENT_S)
            assert before <= kept(home)
            before = kept(home)
            if pid := computing(served):  # it may have ended well by itself
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        wait_until(lambda: store.merged() == store.sealed() and not any(unmade(store)), PATIENT_S)
        assert before <= kept(home)
        wait_until(lambda: checks._readings.find(Observed(asked=store)).value == "0 being computed", PATIENT_S)
        wait_until(lambda: computing(served) is None, PATIENT_S)  # its memory is given back
    with serve(home / "metrics.toml", home / "data") as served:
        for path in ("/", "/changes", "/metrics/color", "/metrics/color/time", "/compare?metric=color"):
            html = page(served, path)
            assert WAITS not in html.lower(), path
            assert "could not be computed" not in html


def is_at_work(served: Served, home: Path, killed: set[int], more: int) -> bool:
    """Tell whether another process than those has kept something."""
    pid = computing(served)
    return pid is not None and pid not in killed and len(kept(home)) >= more


LESS_TIME = "reader_process.PROCESSOR_S = 0"
MORE_MEMORY = """missing = reading_cache.Computing._missing
reading_cache.Computing._missing = lambda self, asked, make, state: missing(
    self, asked, (lambda: bytearray(2 * reader_process.MEMORY_BYTES_MAX)) if asked.slow else make, state
)"""


@pytest.mark.parametrize(
    ("planted", "words"), thinned([(LESS_TIME, "takes too long"), (MORE_MEMORY, "more memory")], 0)
)
def test_a_process_over_its_limits_is_one_row_that_says_so(
    home: Path, planted: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from dither_aggregator.analysis import reading_cache; from dither_aggregator.operations import fork_server\n"
        f"from dither_aggregator.web import reader_process\n{planted}\nfork_server.main()"
    )
    fork_server.end()
    for name, niceness in NOT_NICE.items():
        monkeypatch.setattr(name, niceness)
    monkeypatch.setattr("dither_aggregator.operations.fork_server.command", lambda: (sys.executable, "-P", "-c", code))
    with closing(SQLiteStore(home / "data")) as store:
        with closing(sqlite3.connect(home / "data" / FILE_NAME)) as db, db:
            db.execute("DROP TABLE IF EXISTS reading")
        with closing(Computer(store, str(home / "data"), alone=True)) as computer:
            computer.compute(Address(True, "/"))
        check = checks._readings.find(Observed(asked=store))
        assert not check.well
        assert check.value.startswith("color: ")
        assert words in check.value
    fork_server.end()


def test_an_address_is_read_as_it_was_written() -> None:
    for address in (Address(True, "/"), Address(False, "/compare", "metric=a&level=99")):
        assert Address.parse(str(address)) == address
    for other in ("", "live", "live /", "live / a b", "dead / ", f"live / {'a' * 1_001}", "live /\u00e4 "):
        with pytest.raises(ValueError, match="no page"):
            Address.parse(other)
