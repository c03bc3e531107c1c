"""Processes that a host starts in other ways than a bare fork are one device."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

import dither
from tests.support.celery_workers import is_idle
from tests.support.examples import children
from tests.support.hosts import PATHS, World, flag, forks, once, our_threads, telemetry, until
from tests.support.redis_servers import running_redis


@forks
@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_one_device(world: World, method: str) -> None:
    def host(method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        flag(0)
        process = context.Process(target=flag, args=(1,))
        process.start()
        process.join(40)
        assert process.exitcode == 0
        with context.Pool(2) as pool:
            pool.map(flag, [2, 3, 0, 1], chunksize=1)
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            list(executor.map(flag, [4, 5, 2, 3]))
        flag(6)
        assert telemetry.flush(20) == dither.FlushResult(sent=7, waiting=0, detail="")
        counts = dict(telemetry.status().counts)
        # Each process counts its silent answers in memory until it writes: one that ends before that takes them along.
        assert counts.pop("answered", 0) <= 4
        assert counts == {"accepted": 7}

    world.run(host, method)
    assert world.counted() == world.counted_in_the_end() == once(*range(7))


@forks
def test_a_host_that_runs_programs_goes_on(world: World) -> None:
    def host() -> None:
        dither.sending.uploader.FORK_WAIT_S = 20  # however busy the machine is
        flag(0)
        assert our_threads()
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=40)
        assert our_threads()  # what only starts a program does not fork Python
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=40, preexec_fn=os.getpid)
        flag(1)
        assert our_threads()
        assert telemetry.flush(20).sent == 2

    world.run(host)
    assert world.counted() == once(0, 1)


@pytest.mark.slow
def test_processes_that_start_at_the_same_time_on_a_new_directory_are_one_device(world: World) -> None:
    """Workers without --preload: each makes the file if no other has."""
    code = (
        "import sys, time, dither\n"
        "url, key, directory, metrics, number = sys.argv[1:5] + sys.argv[6:]\n"
        "sys.stdin.readline()\n"
        "telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory, consent=True, strict=True)\n"
        "telemetry.m0.record(True)\n"
        "getattr(telemetry, 'm' + number).record(True)\n"
        "assert telemetry.status().silent == ''\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *world.settings(), str(number)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
            text=True,
        )
        for number in range(1, 7)
    ]
    try:
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(60) for process in processes] == [0] * 6
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert world.counted_in_the_end() == once(*range(7))


TASKS = """
import sys
from celery import Celery
import dither, dither.sending.uploader

dither.sending.uploader.SEND_WITHIN_S = 0.5
url, key, directory, metrics, broker = {settings!r}
telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory, consent=True)
app = Celery("tasks", broker=broker)
app.conf.update(broker_connection_retry_on_startup=False)

@app.task
def flag(number):
    getattr(telemetry, f"m{{number}}").record(True)

if __name__ == "__main__":
    for number in list(range(10)) * 3:
        flag.delay(number)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Run a Redis: a worker that looks into folders takes seconds to see that it is to end."""
    with running_redis(tmp_path / "redis") as redis:
        yield redis.url


@pytest.mark.slow
def test_tasks_of_a_prefork_celery_worker_are_counted_once(world: World, broker: str) -> None:
    home = world.directory.parent
    settings = (*world.settings()[:4], broker)
    (home / "tasks.py").write_text(TASKS.format(settings=settings), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    log = home / "log"
    command = [
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "-c",
        "2",
        "-P",
        "prefork",
        "--loglevel",
        "INFO",
        "--without-gossip",
        "--without-mingle",
    ]
    with log.open("wb") as out, subprocess.Popen([sys.executable, "tasks.py"], cwd=home, env=environment) as caller:
        worker = subprocess.Popen(
            [sys.executable, *command], cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            assert caller.wait(60) == 0
            # By themselves, from the pool's processes, while they go on.
            assert until(lambda: world.counted() == once(*range(10)), 40), log.read_text()
            assert until(lambda: log.read_text().count(" succeeded in ") == 30, 40), log.read_text()
            with Celery(broker=broker) as app:
                assert until(lambda: is_idle(app), 40), log.read_text()
            worker.terminate()
            assert worker.wait(30) == 0
        finally:
            caller.kill()  # else the end of the `with` waits for it
            pool = children(worker.pid)
            if worker.poll() is None:
                worker.kill()
                worker.wait()
            for pid in pool:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in log.read_text()
    assert world.counted_in_the_end() == once(*range(10))
