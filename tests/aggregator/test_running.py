"""Commands that run until they are told to end: a Redis that is loading at their start, SIGUSR1 and SIGQUIT."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from dither_aggregator import running as running_module
from tests.support.aggregators import dither, serve
from tests.support.machines import Crowd, Machine, Site, is_running, wait_until
from tests.support.registries import registry_text

pytestmark = pytest.mark.slow

COMMANDS = ["api", "worker", "beat"]
IN_ORDER = "dither: SIGQUIT ends this in order, as SIGTERM does\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        made.data.start()
        made.broker.start()
        assert made.init().returncode == 0
        yield made
    finally:
        made.data.stop()
        made.broker.stop()


@pytest.fixture
def loading(site: Site) -> Site:
    """Its store's Redis was restarted, and is loading."""
    site.data.slow_to_load()
    site.data.start_loading()
    return site


def options(command: str, site: Site) -> tuple[object, ...]:
    return (
        *site.places,
        *(("--port", 0) if command == "api" else ()),
        *(("--processes", 1) if command != "beat" else ()),
    )


def said(one: Machine) -> str:
    """Return the next line that it writes to stderr."""
    assert one.process.stderr
    return one.process.stderr.readline()


# A Redis that is loading.


@pytest.mark.parametrize("command", COMMANDS)
def test_a_redis_that_is_loading_is_waited_for(command: str, loading: Site) -> None:
    with loading.machine(command, *options(command, loading), ready=False) as one:
        assert f"redis at 127.0.0.1:{loading.data.port}/0 is loading what it holds" in said(one)
        loading.data.load_fast()
        one.wait_ready()
        assert one.stop() == (0, "")  # it said so once


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_who_waits_for_a_redis_that_is_loading_ends_at_once(command: str, how: signal.Signals, loading: Site) -> None:
    with loading.machine(command, *options(command, loading), ready=False) as one:
        assert "waiting for it" in said(one)
        began = time.monotonic()
        assert one.stop(how) == (0, "")
        assert time.monotonic() - began < 5
        assert loading.data.is_loading()


def test_a_redis_that_is_gone_while_it_is_waited_for_is_not_waited_for(loading: Site) -> None:
    with loading.machine("beat", *loading.places, ready=False) as one:
        assert "waiting for it" in said(one)
        loading.data.kill()
        code, err = one.wait()
        assert code == 2
        assert "cannot be used now" in err


def test_a_command_that_only_looks_says_that_redis_is_loading(loading: Site) -> None:
    done = dither("ledger", "--data", loading.data.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is loading what it holds, and can be used when it has" in done.stderr


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
    """Read the stacks of a process up to the main thread's, which is the last."""
    assert stream
    for line in stream:
        if line == "thread MainThread:\n":
            return
    pytest.fail("it ended without a stack")


BUSY = """
import threading, time
from dither_aggregator.running import answer_signals

def work():
    while True:
        [work.__name__ for _ in map(str, range(9))]

answer_signals()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
while True:
    time.sleep(.01)
"""


def test_a_busy_process_lives_through_any_number_of_sigusr1() -> None:
    """With faulthandler it died of SIGSEGV, after five signals at most."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        for _ in range(40):
            process.send_signal(signal.SIGUSR1)
            _read_stack(process.stderr)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", COMMANDS)
def test_sigusr1_says_where_it_is_and_sigquit_ends_it_in_order(command: str, site: Site) -> None:
    with site.machine(command, *options(command, site)) as one:
        children = one.children()
        assert bool(children) == (command != "beat")
        for pid in (one.process.pid, *children):
            os.kill(pid, signal.SIGUSR1)
            _read_stack(one.process.stderr)
        assert one.children() == children
        code, err = one.stop(signal.SIGQUIT)
        assert code == 0
        assert err.endswith(IN_ORDER)
        assert not any(map(is_running, children))


def test_a_terminal_s_sigquit_ends_parents_and_processes_in_order(site: Site) -> None:
    with site.api() as api, site.worker() as worker:
        Crowd(site, api).upload(20)
        wait_until(lambda: site.backlog() == 0, 20)
        for one in (worker, api):
            for pid in one.children():
                os.kill(pid, signal.SIGQUIT)
            assert one.stop(signal.SIGQUIT) == (0, IN_ORDER)


def test_the_same_line_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = [100.0]
    monkeypatch.setattr(running_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(running_module._Damper())
    log = logging.Logger("of this test")
    log.addHandler(handler)

    def flood() -> None:
        for number in range(100):
            log.error("a client left, %s\ntransport: <_Transport object at %x>", "as before", number)

    flood()
    log.error("a client left, %s", "in another way")
    assert [line.partition("\n")[0] for line in said] == ["a client left, as before", "a client left, in another way"]
    now[0] += running_module.SAME_AGAIN_AFTER_S
    flood()
    assert len(said) == 3
    assert said[2].endswith("(and 99 times more before)")


def test_logging_is_set_up_once_and_leaves_others_handlers_alone() -> None:
    root = logging.getLogger()
    before = [(handler, list(handler.filters)) for handler in root.handlers]
    running_module.set_up_logging()
    assert [(handler, list(handler.filters)) for handler in root.handlers] == before
