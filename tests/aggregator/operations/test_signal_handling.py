"""Commands that run until they are told to end: a Redis that is loading at their start, SIGUSR1 and SIGQUIT."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
import requests

from dither_aggregator.operations import signal_handling as log_module
from dither_shared.wire import PATH
from tests.support.aggregators import ENVIRONMENT, dither, refused, serve
from tests.support.machines import Crowd, Machine, Site, is_running
from tests.support.registries import registry_text
from tests.support.soaking import scaled, thinned
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

COMMANDS = ["api", "worker", "beat"]
IN_ORDER = "dither: SIGQUIT ends this in order, as SIGTERM does\n"
OF_A_STACK = ("thread ", "  ")
"""The lines that a process writes at SIGUSR1 begin so."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    with made.running():
        yield made


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Its store's Redis was restarted, and is loading: who ends that begins it again."""
    made = Site(tmp_path_factory.mktemp("loading"))
    with made.running():
        made.data.slow_to_load()
        made.data.start_loading()
        yield made


@pytest.fixture(scope="module")
def waited(loading: Site) -> Iterator[dict[str, Machine]]:
    """All commands, ready once it had loaded. The tests after that find what else they said, and end them."""
    with ExitStack() as running:
        waiting = {
            command: running.enter_context(loading.machine(command, *options(command, loading), ready=False))
            for command in COMMANDS
        }
        for one in waiting.values():
            assert f"redis at 127.0.0.1:{loading.data.port}/0 is loading what it holds" in one.hear()
        loading.data.load_fast()
        for one in waiting.values():
            one.wait_ready()
        yield waiting


def options(command: str, site: Site) -> tuple[object, ...]:
    return (
        *site.places,
        *(("--port", 0) if command == "api" else ()),
        *(("--processes", 1) if command != "beat" else ()),
    )


# A Redis that is loading.


@pytest.mark.parametrize(
    ("command", "how"),
    # beat opens its store as a worker does, and is waited with below
    thinned([(command, how) for how in (signal.SIGTERM, signal.SIGINT) for command in COMMANDS], 0, 4),
    ids=str,
)
def test_who_waits_for_a_redis_that_is_loading_ends_at_once(command: str, how: signal.Signals, loading: Site) -> None:
    with loading.machine(command, *options(command, loading), ready=False) as one:
        assert "waiting for it" in one.hear()
        assert one.stop(how) == (0, "")
        assert loading.data.is_loading()


def test_a_redis_that_is_gone_while_it_is_waited_for_is_not_waited_for(loading: Site) -> None:
    with loading.machine("beat", *loading.places, ready=False) as one:
        assert "waiting for it" in one.hear()
        loading.data.kill()
        code, err = one.wait()
        assert code == 2
        assert "cannot be used now" in err
    loading.data.start_loading()


def test_a_command_that_only_looks_says_that_redis_is_loading(loading: Site) -> None:
    done = dither("ledger", "--data", loading.data.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is loading what it holds, and can be used when it has" in done.stderr


def test_a_redis_that_is_loading_is_waited_for(waited: dict[str, Machine]) -> None:
    assert all(one.said for one in waited.values())


# SIGUSR1 and SIGQUIT.


def test_sigusr1_says_where_every_thread_of_serve_is_and_sigquit_ends_it_in_order(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    with serve(path, tmp_path / "data") as served:
        assert served.process.stderr
        for _ in range(2):
            served.process.send_signal(signal.SIGUSR1)
            _read_stack(served.process.stderr)
        assert served.stop(signal.SIGQUIT).endswith(IN_ORDER)
        assert served.process.returncode == 0


def _read_stack(stream: IO[str] | None) -> None:
    """Read the stacks of a process up to the main thread's, which is the last: nothing else is said before."""
    assert stream
    for line in stream:
        assert line.startswith(OF_A_STACK), line
        if line == "thread MainThread:\n":
            return
    pytest.fail("it ended without a stack")


BUSY = """
import threading
from dither_aggregator.operations.signal_handling import answer_signals

def work():
    while True:
        [work.__name__ for _ in map(str, range(9))]

answer_signals()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
work()  # a main thread that pauses would miss a signal that comes between its last look and its pause
"""


def test_a_busy_process_lives_through_any_number_of_sigusr1() -> None:
    """With faulthandler it died of SIGSEGV, after five signals at most."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        for _ in range(scaled(8, 40)):
            process.send_signal(signal.SIGUSR1)
            _read_stack(process.stderr)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", COMMANDS)
def test_sigusr1_says_where_it_is(command: str, waited: dict[str, Machine]) -> None:
    one = waited[command]
    children = one.children()
    assert bool(children) == (command != "beat")
    for pid in (one.process.pid, *children):
        os.kill(pid, signal.SIGUSR1)
        _read_stack(one.process.stderr)
    assert one.children() == children


def test_a_terminal_s_sigquit_ends_parents_and_processes_in_order(loading: Site, waited: dict[str, Machine]) -> None:
    Crowd(loading, waited["api"]).upload(20)
    wait_until(lambda: loading.backlog() == 0)
    for command in ("worker", "beat", "api"):
        one = waited[command]
        children = one.children()
        for pid in children:
            os.kill(pid, signal.SIGQUIT)
            os.kill(pid, signal.SIGUSR1)  # which comes behind the other
            _read_stack(one.process.stderr)
        assert one.children() == children  # it is their parent that ends them
        code, err = one.stop(signal.SIGQUIT)
        lines = err.splitlines(keepends=True)
        assert (code, [line for line in lines if not line.startswith(OF_A_STACK)]) == (0, [IN_ORDER])
        assert not any(map(is_running, children))


def test_the_same_line_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = [100.0]
    monkeypatch.setattr(log_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(log_module._Damper())
    log = logging.Logger("of this test")
    log.addHandler(handler)

    def flood() -> None:
        for number in range(100):
            log.error("a client left, %s\ntransport: <_Transport object at %x>", "as before", number)

    flood()
    log.error("a client left, %s", "in another way")
    assert [line.partition("\n")[0] for line in said] == ["a client left, as before", "a client left, in another way"]
    now[0] += log_module.SAME_AGAIN_AFTER_S
    flood()
    assert len(said) == 3
    assert said[2].endswith("(and 99 times more before)")


def test_logging_is_set_up_once_and_leaves_others_handlers_alone() -> None:
    root = logging.getLogger()
    before = [(handler, list(handler.filters)) for handler in root.handlers]
    log_module.set_up_logging()
    assert [(handler, list(handler.filters)) for handler in root.handlers] == before


def test_each_record_is_one_line_of_json() -> None:
    code = """
import logging
from dither_aggregator.operations.signal_handling import set_up_logging

set_up_logging("json", "debug")
log = logging.getLogger("dither_aggregator")
log.debug("two\\nlines of %d", 1)
try:
    raise ValueError("nobody foresaw this")
except ValueError:
    log.exception("it failed")
logging.getLogger("asyncio").info("a library says this of 127.0.0.1")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    first, second = map(json.loads, done.stderr.splitlines())
    assert datetime.fromisoformat(first.pop("time")).utcoffset() == timedelta(0)
    assert first == {"level": "debug", "logger": "dither_aggregator", "message": "two\nlines of 1"}
    assert second["exception"].endswith("ValueError: nobody foresaw this")


@pytest.mark.parametrize("command", thinned(COMMANDS, 0, 1))  # beat is one process that logs as a worker's parent
def test_all_processes_of_a_command_log_in_json(command: str, site: Site) -> None:
    said = {"DITHER_LOG_FORMAT": "json", "DITHER_LOG_LEVEL": "debug"}
    with site.machine(command, *options(command, site), environment=said) as one:
        if command == "api":
            with requests.Session() as session:
                session.trust_env = False
                assert session.get(one.said["url"] + "/", timeout=60).status_code == 200  # by a reader's process
                assert session.post(one.said["url"] + PATH, timeout=60).status_code == 401
        code, err = one.stop()
    assert code == 0, err
    records = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records), records
    if command == "api":
        assert "a request was refused: key-missing" in {record["message"] for record in records}


@pytest.mark.parametrize("given", [("--log-level", "loud"), ("--log-format", "xml")])
def test_a_log_that_there_is_not_is_refused(given: tuple[str, str], tmp_path: Path) -> None:
    for words, environment in ((given, {}), ((), {f"DITHER_{given[0][2:].upper().replace('-', '_')}": given[1]})):
        done = refused("serve", "metrics.toml", "--data", tmp_path, *words, **environment)
        said = f"argument {given[0]}" if words else next(iter(environment))
        assert f"{said}: must be one of" in done.stderr
