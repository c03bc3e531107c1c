"""Web servers, with every way to make workers: one device, one report each, and a flush that is over in time."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

from dither.session import LAZY_APPS
from tests.support.aggregators import ENVIRONMENT
from tests.support.examples import children, gunicorn
from tests.support.hosts import World, a_world, flags, once
from tests.support.soaking import thinned
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

APP = """
import logging, time
import dither, dither.sending.upload_thread, requests  # a greenlet that imports it lets no other one run meanwhile

logging.basicConfig(level="WARNING")
dither.sending.upload_thread.SEND_WITHIN_S = 0.5
url, key, directory, metrics = {settings!r}
telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory, consent=True)
telemetry.m0.record(True)  # where the module is imported

def app(environ, start_response):
    number, _, timeout = environ["PATH_INFO"].strip("/").partition("/")
    getattr(telemetry, f"m{{number}}").record(True)
    began = time.monotonic()
    said = telemetry.flush(float(timeout)) if timeout else "recorded"
    said = f"{{time.monotonic() - began:f}} {{said}}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said.encode()]

async def asgi(scope, receive, send):
    number, _, timeout = scope["path"].strip("/").partition("/")
    getattr(telemetry, f"m{{number}}").record(True)
    began = time.monotonic()
    said = await telemetry.flush_async(float(timeout)) if timeout else "recorded"
    said = f"{{time.monotonic() - began:f}} {{said}}"
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": said.encode()}})

if __name__ == "site_asgi":
    app = asgi
"""


def installed(world: World, name: str = "site_wsgi") -> Path:
    program = world.directory.with_name(f"{name}.py")
    program.write_text(APP.format(settings=tuple(world.settings()[:4])), encoding="utf-8")
    return program


def visit(address: str, path: str) -> tuple[float, str]:
    """Return for how long the app flushed, and what it says."""
    answer = requests.get(f"{address}/{path}", timeout=40)
    assert answer.status_code == 200
    took, _, said = answer.text.partition(" ")
    return float(took), said


def serves_one_device(world: World, address: str, log: Callable[[], str]) -> None:
    """Visit a server whose aggregator takes two seconds for its first answer, and look at what arrives."""
    took_s, said = visit(address, "1/0.3")
    assert took_s < 0.3 + 0.25 + 1.0, took_s  # the last for a busy machine
    assert "sent=0" in said
    wait_until(lambda: world.counted() == once(0, 1))  # by itself
    # The device leaves the aggregator alone until it has written down that the answer has come after all.
    wait_until(lambda: "waiting=0" in visit(address, "2/20")[1])
    for _ in range(4):
        assert "waiting=0" in visit(address, "2/20")[1]
    assert world.counted() == once(0, 1, 2)
    assert visit(address, "3")[1] == "recorded"
    wait_until(lambda: world.counted() == once(0, 1, 2, 3))
    assert not re.search(r"Traceback|Exception|CRITICAL|WORKER TIMEOUT|telemetry", log()), log()


MATRIX = [
    (kind, preload)
    for preload in ([], ["--preload"])
    for kind in ("sync", "gthread", "gevent", "uvicorn.workers.UvicornWorker")
]


@pytest.mark.parametrize(("kind", "preload"), thinned(MATRIX, 6), ids=str)
def test_under_gunicorn_a_flush_in_a_request_is_over_in_time(kind: str, preload: list[str], world: World) -> None:
    """Workers of uvicorn are in test_framework_examples.py, too."""
    world.delay_s = 2.0
    program = installed(world, "site_asgi" if "uvicorn" in kind else "site_wsgi")
    log = world.directory.with_name("log")
    with gunicorn(program, log, "-k", kind, *preload, workers=2) as (master, address):
        serves_one_device(world, address, log.read_text)
        master.terminate()
        assert master.wait(20) == 0
    assert world.counted_in_the_end() == once(0, 1, 2, 3)


@contextmanager
def uwsgi(program: Path, *options: str) -> Iterator[tuple["subprocess.Popen[bytes]", str, Path]]:
    """Run a web app under uWSGI with two workers; yield its master, its address and its log.

    It is killed in the end: a worker that is told to end before it listens never does, whatever the app is.
    """
    log, workers = program.with_name("log"), list[int]()
    command = [str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:0", "--processes", "2"]
    with log.open("wb") as out:
        master = subprocess.Popen(
            [*command, "--die-on-term", "--need-app", "--module", f"{program.stem}:app", *options],
            cwd=program.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=ENVIRONMENT,
        )
        try:
            wait_until(lambda: log.read_text().count("spawned uWSGI worker") == 2)
            found = re.search(r"TCP address (127\.0\.0\.1:\d+)", log.read_text())
            assert found
            workers = children(master.pid)
            yield master, f"http://{found[1]}", log
        finally:
            workers = workers or children(master.pid)
            master.kill()
            master.wait()
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("options", thinned([["--master"], ["--master", "--lazy-apps"], []], 0), ids=" ".join)
def test_under_uwsgi_each_worker_is_the_device_with_lazy_apps_or_without(options: list[str], world: World) -> None:
    """It forks in C, and Python hears of it when the app is called."""
    world.delay_s = 2.0
    with uwsgi(installed(world), *options) as (master, address, log):
        serves_one_device(world, address, log.read_text)
        master.terminate()
        master.wait(20)
    assert world.counted_in_the_end() == once(0, 1, 2, 3)


def test_under_uwsgi_hidden_presence_asks_for_lazy_apps_in_one_line(tmp_path: Path) -> None:
    """Nothing runs in a worker until the app calls, which may depend on an answer."""
    with a_world(tmp_path, flags(4, presence="hidden")) as world, uwsgi(installed(world), "--master") as (_, _, log):
        lines = [line for line in log.read_text().splitlines() if "lazy-apps" in line]
        assert lines == [f"WARNING:dither:telemetry {LAZY_APPS}"]
        assert "lazy-apps = true" in LAZY_APPS
