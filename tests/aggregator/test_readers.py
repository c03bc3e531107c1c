"""Pages and API in processes of their own: real ones, killed, stopped and kept waiting."""

import asyncio
import gc
import gzip
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from dither_aggregator.operations.fork_server import FORK_SERVER_NAME, READER_NAME, fork_server
from dither_aggregator.operations.registry_process import COMPUTING_NICENESS, READING_NICENESS
from dither_aggregator.store import SQLiteStore
from dither_aggregator.web.endpoints import in_words
from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_aggregator.web.process_messages import Place, ReadAnswer, ReadingApp, ReadRequest
from dither_aggregator.web.reader_pool import (
    CANDIDATES_MAX,
    READERS,
    WAIT_WITHIN_S,
    WAITING_MAX,
    Alone,
    ReaderProcess,
    Readers,
)
from dither_aggregator.workers.candidate_jobs import ASK_EVERY_S
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import PATH, WireGroup, encode_upload, new_upload_id
from dither_shared.wire.reading import Problem
from tests.support.aggregators import ENVIRONMENT, Served, serve
from tests.support.keys import STRONG, bearer
from tests.support.machines import Machine, Site, is_running
from tests.support.registries import registry_text
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

TEXT = registry_text(kind="text", epsilon="4", epsilon_permanent="8", color="candidates_expected = 9")
COLOR = Registry.parse(TEXT).metrics["color"]
MANY = [f"word {number}" for number in range(60_000)]
"""A list that takes a reader minutes."""
LOOK = "/v1/metrics/color/estimates?window=today"


def reports(number: int) -> list[WireGroup]:
    """Return reports of "alpha", by cohort."""
    rng = random.Random(5)
    coins = Rng(rng.getrandbits)
    groups: list[WireGroup] = []
    for _ in range(number):
        cohort = rng.randrange(COLOR.cells.count)
        report = COLOR.mechanism.randomize(COLOR.class_of("alpha", cohort, coins), coins)
        groups.append((COLOR.name, COLOR.plan.digest, [COLOR.mechanism.shape.to_wire(report)], cohort))
    return groups


def upload(url: str, key: str, groups: list[WireGroup]) -> int:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = encode_upload(new_upload_id(random.getrandbits), groups)
    return requests.post(url + PATH, data=body, headers=headers, timeout=30).status_code


def readers(server: int) -> list[int]:
    """Return the reader processes of a server, or of a worker."""
    return [reader for forking in named(FORK_SERVER_NAME, server) for reader in named(READER_NAME, forking)]


def named(name: str, parent: int) -> list[int]:
    """Return the processes of a name that another one has started, those that have ended left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            start, _, rest = (path / "stat").read_text().rpartition(")")
            state, of = rest.split()[:2]
            if start.partition("(")[2] == name and int(of) == parent and state != "Z":
                found.append(int(path.name))
    return found


@contextmanager
def serving(home: Path) -> Iterator[Served]:
    """Run a server, with some reports counted."""
    (home / "metrics.toml").write_text(TEXT, encoding="utf-8")
    with serve(home / "metrics.toml", home / "data") as made:
        assert upload(made.url, made.key, reports(50)) == 202
        wait_until(lambda: requests.get(made.url + LOOK, timeout=60).json()["meta"]["n"] == 50)
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as made:
        yield made


def test_pages_are_made_by_another_process_that_is_nicer(served: Served) -> None:
    assert requests.get(served.url + "/", timeout=60).status_code == 200
    (reader,) = readers(served.process.pid)
    niceness = int(Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[16])
    assert niceness == READING_NICENESS
    assert os.sched_getscheduler(reader) == os.SCHED_BATCH


def test_uploads_are_taken_while_no_page_can_be_made(served: Served) -> None:
    assert requests.get(served.url + "/", timeout=60).status_code == 200
    stopped: list[int] = []
    try:
        while len(stopped) < READERS:  # another one is started while the first cannot answer
            found = [pid for pid in readers(served.process.pid) if pid not in stopped]
            for reader in found:
                os.kill(reader, signal.SIGSTOP)
            stopped += found
            if len(stopped) < READERS:
                with suppress(requests.Timeout):
                    requests.get(served.url + "/", timeout=0.5)
        asking = [socket.create_connection(_place(served.url)) for _ in range(20)]
        for each in asking:
            each.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(20):
            assert upload(served.url, served.key, reports(1)) == 202
        assert requests.get(served.health + "/readyz", timeout=30).status_code == 200
        for each in asking:
            each.close()
    finally:
        for reader in stopped:
            os.kill(reader, signal.SIGCONT)
    assert requests.get(served.url + "/", timeout=60).status_code == 200


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def _listens(process: int) -> bool:
    """Tell whether a process has come so far that it catches SIGUSR1."""
    (caught,) = re.findall(r"SigCgt:\s(\w+)", Path(f"/proc/{process}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


def test_sigusr1_ends_no_reader(served: Served) -> None:
    assert requests.get(served.url + "/", timeout=60).status_code == 200
    wait_until(lambda: all(map(_listens, readers(served.process.pid))))
    before = readers(served.process.pid)
    for reader in before:
        os.kill(reader, signal.SIGUSR1)
    for _ in range(2 * READERS):
        assert requests.get(served.url + "/", timeout=60).status_code == 200
    assert before
    assert set(before) <= set(readers(served.process.pid))


def test_a_reader_that_is_killed_is_replaced(served: Served) -> None:
    before = readers(served.process.pid)
    for reader in before:
        os.kill(reader, signal.SIGKILL)
    statuses = [requests.get(served.url + "/", timeout=60).status_code for _ in range(3)]
    assert set(statuses) <= {200, 503}
    assert statuses[-1] == 200
    assert not set(before) & set(readers(served.process.pid))


def test_readers_have_no_file_connection_or_lock_of_the_server(served: Served) -> None:
    assert requests.get(served.url + "/", timeout=60).status_code == 200
    (forking,) = named(FORK_SERVER_NAME, served.process.pid)
    assert Path(f"/proc/{forking}/cmdline").read_bytes() == Path(f"/proc/{served.process.pid}/cmdline").read_bytes()
    held = _held(served.process.pid)
    assert len(_sockets(held)) > 4  # it listens on two, and talks to each reader over two
    assert not _sockets(held) & _sockets(_held(forking))
    store = {file for file in held if "/data/" in file}
    assert store
    assert not store & _held(forking)
    assert {file for file in _held(forking) if not file.startswith(("socket:", "pipe:", "/dev/null"))} == set()
    for reader in readers(served.process.pid):
        assert not (_sockets(held) | _sockets(_held(forking))) & _sockets(_held(reader))
        assert not {file for file in _held(reader) if file.endswith("lock")}


def _held(process: int) -> set[str]:
    """Return all that a process has open."""
    held = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            held.add(str(descriptor.readlink()))
    return held


def _sockets(held: set[str]) -> set[str]:
    return {each for each in held if each.startswith("socket:")}


def test_a_fork_server_that_is_killed_is_replaced_and_its_readers_answer_on(served: Served) -> None:
    assert requests.get(served.url + "/", timeout=60).status_code == 200
    (forking,) = named(FORK_SERVER_NAME, served.process.pid)
    before = readers(served.process.pid)
    os.kill(forking, signal.SIGKILL)
    assert requests.get(served.url + "/", timeout=60).status_code == 200  # by a reader that has lost its parent
    wait_until(lambda: not named(FORK_SERVER_NAME, served.process.pid))
    for reader in before:
        os.kill(reader, signal.SIGKILL)
    wait_until(lambda: requests.get(served.url + "/", timeout=60).status_code == 200)
    (another,) = named(FORK_SERVER_NAME, served.process.pid)
    assert another != forking
    assert readers(served.process.pid)


def test_answers_are_compressed_for_those_who_take_that(served: Served) -> None:
    def ask(encoding: str) -> tuple[bytes, dict[str, str]]:
        with requests.get(
            served.url + "/static/dither.css", headers={"Accept-Encoding": encoding}, stream=True
        ) as answer:
            return answer.raw.read(), {name.lower(): value for name, value in answer.headers.items()}

    packed, headers = ask("br;q=1.0, gzip;q=0.8, *;q=0.1")
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    for refused in ("identity", "gzip;q=0", ""):
        plain, headers = ask(refused)
        assert "content-encoding" not in headers
        assert int(headers["content-length"]) == len(plain)
        assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain)


def test_nobody_reads_under_a_name_that_is_not_allowed(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(url: str, host: str, key: str = "") -> int:
        headers = {"Host": host, **(bearer(key) if key else {})}
        return requests.get(url + "/v1/metrics", headers=headers, timeout=60).status_code

    port = _place(served.url)[1]
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", "10.1.2.3:80", f"[::1]:{port}", "localhost."):
        assert ask(served.url, host) == 200, host
    for host in (
        "[::1]attacker.example",
        "attacker.example",
        f"attacker.example:{port}",
        "localhost.attacker.example",
        "127.0.0.1.nip.io",
        "",
    ):
        assert ask(served.url, host) == 421, host
    (tmp_path / "metrics.toml").write_text(TEXT, encoding="utf-8")
    options = ("--port", 0, "--allow-host", "Telemetry.Example.org")
    monkeypatch.setitem(ENVIRONMENT, "DITHER_READ_KEY_FILE", str(tmp_path / "read.key"))
    (tmp_path / "read.key").write_text(STRONG)
    with serve(tmp_path / "metrics.toml", tmp_path / "data", *options) as named:
        assert ask(named.url, "telemetry.example.org:443", STRONG) == 200
        assert ask(named.url, "telemetry.example.org:443") == 401
        assert ask(named.url, "attacker.example", STRONG) == 421
        headers = {"Host": "anything.example", "Authorization": f"Bearer {named.key}"}
        answer = requests.post(named.url + PATH, headers=headers, timeout=30)
        assert answer.status_code == 415  # devices show a key: their name for us is the proxy's business


def test_a_query_that_is_not_ascii_is_refused_in_words(served: Served) -> None:
    with socket.create_connection(_place(served.url), timeout=30) as connection:
        connection.sendall(b"GET /?x=\xff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 400 " in connection.recv(65536).partition(b"\r\n")[0]


def look(url: str, words: list[str]) -> requests.Response:
    return requests.post(url + LOOK, data=json.dumps({"candidates": words}), timeout=300)


def check_a_long_list(url: str) -> None:
    """A list too long for a reader is answered as a short one is."""
    few = look(url, ["alpha", "beta"]).json()
    many = look(url, ["alpha", "beta", *MANY[:CANDIDATES_MAX]])
    assert many.status_code == 200, many.text
    assert [row["value"] for row in many.json()["rows"][:2]] == ["alpha", "beta"]
    assert many.json()["meta"]["n"] == few["meta"]["n"]


@contextmanager
def waiting_for_many(url: str) -> Iterator[None]:
    """Ask for minutes of work, and leave at the block's end."""
    with socket.create_connection(_place(url), timeout=30) as connection:
        body = json.dumps({"candidates": MANY}).encode()
        head = f"POST {LOOK} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        yield


def test_a_long_list_has_a_process_to_itself_that_ends_with_it_or_when_nobody_waits(served: Served) -> None:
    requests.get(served.url + "/", timeout=60)
    before = readers(served.process.pid)
    with waiting_for_many(served.url):
        wait_until(lambda: len(readers(served.process.pid)) > len(before))
        (own,) = set(readers(served.process.pid)) - set(before)
        wait_until(lambda: os.sched_getscheduler(own) == os.SCHED_IDLE)  # it takes what nobody else wants
    wait_until(lambda: readers(served.process.pid) == before)
    check_a_long_list(served.url)
    wait_until(lambda: readers(served.process.pid) == before)


def test_a_reader_that_is_ended_before_it_has_read_all_leaves_no_error_to_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ended() -> None:
        reader = await ReaderProcess.start(Place("nowhere", "", None))
        while not (pid := reader._child.pid):
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        reader._asking.write(bytes(10_000_000))
        await reader.end()
        assert not is_running(pid)

    asyncio.run(ended())
    gc.collect()
    assert caplog.records == []


def test_one_long_list_is_looked_for_at_a_time(served: Served) -> None:
    before = set(readers(served.process.pid))
    with waiting_for_many(served.url):
        wait_until(lambda: set(readers(served.process.pid)) - before)  # the shorter list would keep the longer one out
        wait_until(lambda: look(served.url, MANY[:3_000]).status_code == 503)
        assert look(served.url, ["alpha"]).status_code == 200
    wait_until(lambda: look(served.url, MANY[:3_000]).status_code == 200)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_readers_end_with_the_server(how: signal.Signals, served: Served, tmp_path: Path) -> None:
    """The tests before share the one that is told to end."""
    with nullcontext(served) if how == signal.SIGTERM else serving(tmp_path) as made, waiting_for_many(made.url):
        wait_until(lambda: len(readers(made.process.pid)) > 1)
        found = readers(made.process.pid) + named(FORK_SERVER_NAME, made.process.pid)
        made.process.send_signal(how)
        wait_until(lambda: not any(is_running(pid) for pid in found), 60)


# With workers.


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Machine, Machine]]:
    """An API and a worker, with some reports counted."""
    site = Site(tmp_path_factory.mktemp("asked"), TEXT)
    with site.running(), site.api(ready=False) as api, site.worker() as worker:
        api.wait_ready()
        assert upload(api.said["url"], site.key, reports(50)) == 202
        wait_until(lambda: requests.get(api.said["url"] + LOOK, timeout=60).json()["meta"]["n"] == 50)
        yield site, api, worker


def test_a_worker_looks_for_a_long_list_as_long_as_somebody_waits(asked: tuple[Site, Machine, Machine]) -> None:
    _, api, worker = asked
    working: list[int] = []

    def works() -> bool:
        working.extend(readers(worker.process.pid))
        return bool(working)

    with waiting_for_many(api.said["url"]):
        wait_until(works)
        time.sleep(ASK_EVERY_S + 0.5)  # longer than it takes to notice that somebody has left
        assert is_running(working[0])
        assert look(api.said["url"], MANY[:3_000]).status_code == 503
    wait_until(lambda: not any(is_running(pid) for pid in working))
    check_a_long_list(api.said["url"])
    assert worker.stop() == (0, "")


def test_an_api_whose_broker_is_gone_says_so(asked: tuple[Site, Machine, Machine]) -> None:
    site, api, _ = asked
    site.broker.stop()
    answer = look(api.said["url"], MANY[:3_000])
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:dither:problem:read-failed")
    assert "no worker can be asked" in answer.json()["detail"]
    assert look(api.said["url"], ["alpha"]).status_code == 200
    assert api.stop() == (0, "")


@pytest.mark.parametrize(("path", "content_type"), [("/changes", "text/html"), ("/v1/changes", "application/problem")])
def test_a_read_that_fails_is_a_page_where_a_page_was_asked_for_in_words_of_its_own(
    path: str, content_type: str
) -> None:
    async def late(asked: ReadRequest) -> ReadAnswer:
        raise Problem("read-failed", "the answer took too long")

    async def ask() -> HttpAnswer:
        scope: Scope = {"method": "GET", "path": path, "query_string": b"", "headers": [], "client": None}
        return await in_words(ReadingApp(late))({**scope, "over": asyncio.Event()}, b"")

    answer = asyncio.run(ask())
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    body = b"".join(answer.parts or [answer.content]).decode()
    assert (answer.status, headers["retry-after"]) == (503, "60")
    assert headers["content-type"].startswith(content_type)
    assert headers["x-content-type-options"] == "nosniff"
    assert "the answer took too long" in body
    assert "This cannot be shown now; ask again in a minute" in body
    assert not re.search("store reports|send the same bytes", body)
    assert ("content-security-policy" in headers) == (content_type == "text/html")


def test_a_reader_that_starts_slowly_beside_busy_programs_is_not_started_anew_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither_aggregator.web.reader_pool.ANSWER_WITHIN_S", 0.0)
    asked = ReadRequest("GET", "/", b"", [], b"", live=True)

    async def ask(generation: str) -> None:
        made = Readers(str(tmp_path / "data"), generation)
        try:
            assert (await made.answer(asked)).status == 200
            with pytest.raises(Problem, match="took too long"):
                await made.answer(asked)
        finally:
            await made.close()

    with closing(SQLiteStore.create(tmp_path / "data", "example")) as store:
        asyncio.run(ask(store.generation))


class _Leaping(selectors.DefaultSelector):
    """Waits for nothing: where nothing is there, the loop's clock leaps to the next timer."""

    ahead = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout:
            self.ahead += timeout
        return found


def _leaping() -> asyncio.SelectorEventLoop:
    selector = _Leaping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: time.monotonic() + selector.ahead  # type: ignore[method-assign]
    return loop


class _Slow:
    """A reader that takes as long as 50,000 values do on a busy machine, or fails when it is told to."""

    has_answered = True

    def __init__(self, failing: asyncio.Event | None = None) -> None:
        self._failing = failing

    async def ask(self, asked: ReadRequest, within_s: float) -> ReadAnswer:
        if self._failing:
            await self._failing.wait()
            raise Problem("read-failed", "the answer took too long")
        await asyncio.sleep(9.0)
        return ReadAnswer(200, [], b"")

    async def end(self) -> None:
        pass


def _with(monkeypatch: pytest.MonkeyPatch, reader: _Slow) -> Readers:
    async def start(place: Place) -> _Slow:
        return reader

    monkeypatch.setattr(ReaderProcess, "start", start)
    return Readers("nowhere", "none")


def test_eight_readers_of_a_long_list_wait_for_their_turn_and_a_crowd_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ReadRequest("GET", LOOK, b"", [], b"", live=True)

    async def ask(number: int) -> tuple[list[ReadAnswer | BaseException], float]:
        made = _with(monkeypatch, _Slow())
        began = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(made.answer(asked) for _ in range(number)), return_exceptions=True)
        await made.close()
        return found, asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=_leaping) as runner:
        eight, took_s = runner.run(ask(8))
        assert [isinstance(one, ReadAnswer) for one in eight] == [True] * 8
        assert took_s < WAIT_WITHIN_S
        many, took_s = runner.run(ask(READERS + WAITING_MAX + 5))
        assert sum("too many pages" in str(one) for one in many[-5:]) == 5
        assert took_s < WAIT_WITHIN_S + 2 * 9.0 + 1.0


def test_a_reader_that_fails_when_its_client_has_gone_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        failing = asyncio.Event()
        made = _with(monkeypatch, _Slow(failing))
        client = asyncio.create_task(made.answer(ReadRequest("GET", "/", b"", [], b"", live=True)))
        while not made._asked:
            await asyncio.sleep(0)
        client.cancel()
        await asyncio.wait({client})
        failing.set()
        while made._asked:
            await asyncio.sleep(0)

    asyncio.run(leave())
    gc.collect()
    assert caplog.records == []


def test_a_long_list_that_gets_no_processor_time_begins_anew_with_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor, for the length of the test, has a program that never rests."""
    begun: list[tuple[int, bool]] = []
    start = ReaderProcess.start
    with closing(SQLiteStore.create(tmp_path / "data", "example")) as store:
        generation = store.generation

    def answer() -> ReadAnswer:
        asked = ReadRequest("GET", "/", b"", [], b"", live=True)
        return asyncio.run(Alone(str(tmp_path / "data"), generation).answer(asked))

    async def noted(place: Place, niceness: int, idle: bool) -> ReaderProcess:
        begun.append((niceness, idle))
        if not idle:
            busy.kill()
        return await start(place, niceness, idle)

    cores = os.sched_getaffinity(0)
    fork_server.end()  # the next one, and what it forks, have this processor too
    os.sched_setaffinity(0, {min(cores)})
    try:
        answer()  # a fork server imports for a second or two, and would have to beside that program
        monkeypatch.setattr("dither_aggregator.web.reader_pool.STARVED_S", 0.5)
        monkeypatch.setattr(ReaderProcess, "start", noted)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                assert answer().status == 200
            finally:
                busy.kill()
    finally:
        os.sched_setaffinity(0, cores)
        fork_server.end()
    assert begun == [(COMPUTING_NICENESS, True), (COMPUTING_NICENESS, False)]


def test_a_fork_server_that_begins_again_ends_the_one_before() -> None:
    code = """
import os
from pathlib import Path
from dither_aggregator.operations.fork_server import fork_server
children = Path(f"/proc/self/task/{os.getpid()}/children")
fork_server.begin()
before = children.read_text()
fork_server.begin()
after = children.read_text()
fork_server.end()
print(len(before.split()), len(after.split()), before != after, repr(children.read_text()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert (done.stdout.split(), done.stderr) == (["1", "1", "True", "''"], "")
