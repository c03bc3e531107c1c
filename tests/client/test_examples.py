"""The examples do what they show: against a real aggregator, in processes of their own where they have some."""

import importlib.util
import os
import pty
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
import requests

import dither
import dither.telemetry
from dither.device import FILE_NAME
from dither.sending.transport import Answer, HttpTransport
from dither.sending.upload_thread import BACKOFF_S, Uploader
from dither.session import Settings
from dither.status import NOT_ASKED
from dither.telemetry import Telemetry
from dither_aggregator.ingest.service import Service, WholeService
from dither_shared.registry import Registry
from tests.support.aggregators import ENVIRONMENT, aggregator, http_server, sqlite_store, web_app
from tests.support.clocks import DAY_S, Clock
from tests.support.examples import EXAMPLES, NOW, children, counted, gunicorn, has_open, point, shipped
from tests.support.keys import write_key
from tests.support.soaking import scaled, thinned
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("example", "metrics"),
    [("cli_app", 3), ("flask_app", 2), ("desktop_app", 2), ("django_app", 2), ("fastapi_app", 2), ("celery_app", 2)],
)
def test_a_shipped_registry_is_sound_and_its_dates_are_at_most_a_year_away(example: str, metrics: int) -> None:
    registry = Registry.load(EXAMPLES / example / "metrics.toml")
    registry.check_dates(date(2026, 11, 21), example)
    assert len(registry.metrics) == metrics


# The command line app.


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status()` waits for the uploader as long as a test does: it has the device for seconds on a busy machine."""
    monkeypatch.setattr(dither.telemetry, "LOOK_WITHIN_S", 60.0)


@dataclass
class Notes:
    """The command line app, installed for a person whose home is a directory of its own."""

    program: Path
    home: Path
    registry: Registry
    url: str

    def run(self, *arguments: str, **environment: str) -> str:
        """Run one command, as a script would, and return what it printed."""
        done = self._run(subprocess.DEVNULL, *arguments, **environment)
        return done.stdout

    def answer(self, answer: str, *arguments: str) -> str:
        """Run one command at a terminal where a person types an answer if asked."""
        person, terminal = pty.openpty()
        try:
            os.write(person, answer.encode() + b"\n")
            return self._run(terminal, *arguments).stdout
        finally:
            os.close(person)
            os.close(terminal)

    def crash(self, *arguments: str) -> str:
        """Run one command that ends with an error, and return the error's last line."""
        done = self._start(subprocess.DEVNULL, *arguments)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    def _run(self, stdin: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = self._start(stdin, *arguments, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done

    def _start(self, stdin: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(self.home), "XDG_DATA_HOME": ""}
        return subprocess.run(
            [sys.executable, self.program, *arguments],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**ENVIRONMENT, **home, **environment},
        )

    @property
    def kept(self) -> list[Path]:
        """Everything that telemetry keeps on the disk."""
        return list((self.home / ".local" / "share" / "dither").rglob("*"))


@contextmanager
def notes(directory: Path) -> Iterator[tuple[Notes, Service]]:
    """Install the command line app, and run the aggregator that it sends to."""
    copy = shipped("cli_app", directory, NOW)
    (directory / "home").mkdir()
    registry = Registry.load(copy / "metrics.toml")
    with aggregator(registry, directory / "data") as (url, service):
        point(copy / "notes.py", url, write_key(service.store))
        yield Notes(copy / "notes.py", directory / "home", registry, url), service


ONCE = {"command": 1, "crashes": 1, "notes": 1}


def test_a_command_asks_once_and_what_it_leaves_is_sent(tmp_path: Path) -> None:
    """A script is not asked, and of it nothing is kept or sent."""
    with notes(tmp_path) as (app, service):
        assert app.run("list") == "\n"
        assert app.kept == []
        assert counted(service) == {}
        assert "[y/N]" in app.answer("y", "add", "buy milk")
        wait_until(lambda: counted(service) == ONCE)  # by a process of its own
        assert app.answer("n", "list") == "buy milk\n"  # not asked again
        assert app.run() == "buy milk\n"
        assert counted(service) == ONCE


def test_a_crash_is_recorded_and_goes_on_raising(tmp_path: Path) -> None:
    with notes(tmp_path) as (app, service):
        (app.home / ".notes").write_bytes(b"\xff")
        assert "UnicodeDecodeError" in app.crash("--telemetry", "on")
        (file,) = (path for path in app.kept if path.name == FILE_NAME)
        with closing(sqlite3.connect(file)) as db:
            assert db.execute("SELECT metric FROM slot").fetchall() == [("crashes",)]
        (app.home / ".notes").unlink()
        app.run()
        wait_until(lambda: counted(service) == ONCE)


def test_who_declines_is_not_asked_again_until_they_say_on(tmp_path: Path) -> None:
    with notes(tmp_path) as (app, service):
        assert "[y/N]" in app.answer("", "list")
        assert "[y/N]" not in app.answer("y", "list")
        assert counted(service) == {}
        app.run("--telemetry", "on")
        wait_until(lambda: counted(service) == ONCE)


def test_do_not_track_goes_before_what_was_chosen(tmp_path: Path) -> None:
    with notes(tmp_path) as (app, service):
        app.run("--telemetry", "off")
        app.run("--telemetry", "on", DO_NOT_TRACK="1")  # while it is set, nobody agrees to anything
        app.run()
        assert counted(service) == {}
        app.run("--telemetry", "on")
        wait_until(lambda: counted(service) == ONCE)


@pytest.mark.slow
def test_an_aggregator_that_does_not_answer_delays_no_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with notes(tmp_path) as (app, service):
        program = app.program.read_text(encoding="utf-8")
        assert "DELIVER_WITHIN_S = 10.0" in program
        app.program.write_text(program.replace("DELIVER_WITHIN_S = 10.0", "DELIVER_WITHIN_S = 30.0"), encoding="utf-8")
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            silent.settimeout(60)
            deaf = f"http://127.0.0.1:{silent.getsockname()[1]}"
            app.run("--telemetry", "on", DITHER_ENDPOINT=deaf)
            connection, _ = silent.accept()
            with closing(connection):
                connection.recv(1)
                assert not ended(connection)  # the command has ended, and the upload still waits for its answer
        assert counted(service) == {}
        # The rest is sent when the process that delivers has given up, and has been left alone for as long as it must.
        transport = HttpTransport(app.url, write_key(service.store))
        monkeypatch.setattr(
            "dither.sending.upload_thread.PAUSE_MAX_S", 0.2
        )  # how often it is asked whether it has given up
        directory = app.home / ".local" / "share" / "dither" / "notes"
        later = Telemetry(
            Settings(app.registry, transport, directory, None, clock=lambda: time.time() + 2 * BACKOFF_S + 20)
        )
        wait_until(lambda: later.flush(5).waiting == 0 and counted(service) == ONCE)  # it may only now give up
        later.close()


def ended(connection: socket.socket) -> bool:
    """Return whether the other side has closed it."""
    try:
        while connection.recv(65_536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    return True


@pytest.mark.slow
def test_commands_at_the_same_time_are_one_device(tmp_path: Path) -> None:
    with notes(tmp_path) as (app, service), ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: app.run("--telemetry", "on"), range(scaled(3, 12))))
        wait_until(lambda: counted(service) == ONCE)
        app.run()
        assert counted(service) == ONCE


# The web app.


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the test finds the worker that holds the device in /proc, which only Linux has"
)
@pytest.mark.parametrize(
    "options", thinned([[], ["--preload"], ["--threads", "4"], ["--preload", "--threads", "4"]], 3), ids=" ".join
)
def test_four_workers_under_gunicorn_are_one_device(tmp_path: Path, options: list[str]) -> None:
    """Their answers are one a period, their reports are counted once, and they end when they are told."""
    copy = shipped("flask_app", tmp_path, NOW)
    registry, log, data = Registry.load(copy / "metrics.toml"), tmp_path / "log", tmp_path / "wiki"
    with ExitStack() as stack:
        url, service = stack.enter_context(aggregator(registry, tmp_path / "data"))
        point(copy / "wiki.py", url, write_key(service.store))
        served = gunicorn(copy / "wiki.py", log, *options, WIKI_DATA=str(data), WIKI_TELEMETRY="on")
        master, address = stack.enter_context(served)
        pool = stack.enter_context(ThreadPoolExecutor(8))

        def visit(_: int) -> bool:
            return requests.get(address, timeout=20).text == "Welcome to the wiki.\n"

        assert all(pool.map(visit, range(scaled(16, 100))))
        wait_until(lambda: counted(service) == {"proxied": 1, "server": 1})
        workers = children(master.pid)
        wait_until(lambda: visit(0) and all(has_open(worker, FILE_NAME) for worker in workers))
        assert len(workers) == 4
        assert not has_open(master.pid, FILE_NAME)
        assert all(pool.map(visit, range(scaled(16, 100))))

        started = time.monotonic()
        master.terminate()
        assert master.wait(20) == 0
        assert time.monotonic() - started < 10
        assert not re.search(r"Traceback|Exception|Error|CRITICAL|WORKER TIMEOUT", log.read_text())

        device = dither.start(
            registry, endpoint=url, key=write_key(service.store), data_dir=data / "telemetry", consent=True
        )
        assert device.flush(20).detail.startswith("nothing to send: ")
        assert device.status().spent == {"proxied": 1.0, "server": 2.0}
        assert device.status().counts["accepted"] == 2
        device.close()
        assert counted(service) == {"proxied": 1, "server": 1}


# The desktop app.


@dataclass
class Counted:
    """A transport that counts its attempts."""

    inner: HttpTransport
    attempts: int = 0

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        answer = self.inner.post(upload_id, body, stands)
        self.attempts += 1
        return answer

    def idle(self) -> None:
        self.inner.idle()


def load(program: Path) -> ModuleType:
    """Import an example."""
    spec = importlib.util.spec_from_file_location(program.stem, program)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Desktop:
    """The desktop app on one person's machine, opened and closed every day."""

    directory: Path
    url: str
    key: str
    clock: Clock
    agrees: bool = True
    asked: int = 0

    def __post_init__(self) -> None:
        copy = shipped("desktop_app", self.directory)
        self.registry, self.module = Registry.load(copy / "metrics.toml"), load(copy / "editor.py")

    def ask(self, question: str) -> bool:
        assert "Which theme do people use?" in question
        self.asked += 1
        return self.agrees

    def planned(self) -> float:
        """Return the moment of the next attempt, as it is kept; 0 if there is none."""
        with closing(sqlite3.connect(self.directory / "device" / FILE_NAME)) as db:
            row = db.execute("SELECT value FROM state WHERE key = 'planned'").fetchone()
        return (row and row[0]) or 0.0

    @contextmanager
    def day(self) -> Iterator[tuple[Telemetry, Counted]]:
        """Open the app for a day, which then is over."""
        transport = Counted(HttpTransport(self.url, self.key))
        telemetry = Telemetry(Settings(self.registry, transport, self.directory / "device", None, clock=self.clock))
        editor = self.module.Editor(telemetry, self.ask)
        editor.open("dark", ["files", "terminal"])
        yield telemetry, transport
        editor.close()
        self.clock.travel(1)


def test_a_desktop_that_was_offline_for_a_week_sends_what_was_kept_once(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and not listening: whoever connects is refused
        port = closed.getsockname()[1]
        app = Desktop(tmp_path, f"http://127.0.0.1:{port}", "k", Clock(time.time() // DAY_S * DAY_S + DAY_S / 2))
        with app.day() as (telemetry, _):
            assert telemetry.status().counts == {"quiet": 2}  # the first day says nothing
        for day in range(1, 8):
            with app.day() as (telemetry, transport):
                status = telemetry.status()
                assert status.waiting == (2 if day == 1 else 4)
                assert {metric.silent for metric in status.metrics.values()} == {"answered" if day < 3 else "waiting"}
                assert status.counts.get("waiting", 0) >= (0 if day < 3 else 2)
                assert status.spent == {"panels": 0.0, "theme": 0.0}  # nothing ever had a connection
                if day > 1:  # what was due yesterday is tried when the app opens
                    wait_until(lambda: transport.attempts)
                wait_until(lambda: app.planned() > app.clock.now)  # the next one: this one is over and done with
        assert telemetry.status().silent == "closed"
    with sqlite_store(app.registry, tmp_path / "data") as store:
        app.key = write_key(store)
        with WholeService(store) as service, http_server(web_app(service), port).in_background():
            with app.day() as (telemetry, _):
                wait_until(lambda: counted(service).get("theme", 0) >= 1)  # by itself: it was due for days
                telemetry.flush(10)
            for reports in (2, 3):  # one of a metric leaves a day: what waited on the next one, then that one's
                with app.day() as (telemetry, _):
                    telemetry.flush(10)
                    status = telemetry.status()
                assert counted(service) == {"panels": reports, "theme": reports}
            assert app.asked == 1
    assert status.spent == {"panels": 3.0, "theme": 3.0}
    assert status.waiting == 2  # the last day's answers
    # A reason is counted in memory, and kept with what is written next: at the end of a day there may be nothing.
    assert status.counts["accepted"] == 6
    assert Counter(status.counts) <= Counter({"accepted": 6, "quiet": 2, "waiting": 12})


def test_an_app_that_closes_at_once_keeps_the_moment_of_its_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start would draw another hour, and nothing would leave at it. Here the thread is slow to begin."""
    run = Uploader._run

    def run_late(uploader: Uploader) -> None:
        time.sleep(0.2)
        run(uploader)

    monkeypatch.setattr(Uploader, "_run", run_late)
    app = Desktop(tmp_path, "http://127.0.0.1:9", "k", Clock(time.time()))
    with app.day():
        assert not app.planned()  # the first day says nothing
    with app.day():
        pass
    assert app.planned()


def test_whoever_declines_the_dialog_is_not_asked_again_and_may_change_their_mind(tmp_path: Path) -> None:
    app = Desktop(tmp_path, "http://127.0.0.1:9", "k", Clock(time.time()), agrees=False)
    for _ in range(3):
        with app.day() as (telemetry, _):
            assert telemetry.status().silent not in ("", NOT_ASKED)
    assert app.asked == 1
    with app.day() as (telemetry, _):
        app.module.Editor(telemetry, app.ask).settings(tell=True)
        assert telemetry.status().silent == ""
    with app.day() as (telemetry, _):
        assert telemetry.status().waiting == 2
    assert app.asked == 1


def test_the_desktop_app_opens_and_closes(tmp_path: Path) -> None:
    copy = shipped("desktop_app", tmp_path)
    point(copy / "editor.py", "http://127.0.0.1:9", "k")
    done = subprocess.run(
        [sys.executable, copy / "editor.py", "dark"],
        input="y\n\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**ENVIRONMENT, "DITHER_DATA_DIR": str(tmp_path / "device")},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "device" / "editor" / FILE_NAME).exists()
