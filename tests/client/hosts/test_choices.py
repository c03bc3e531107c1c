"""A choice that the person makes in one process of a host reaches the others while they run."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import dither
from dither.status import REFUSED
from dither.telemetry import Telemetry
from tests.support.hosts import PATHS, World, ended, fork, forks, once
from tests.support.soaking import scaled


def unasked() -> Telemetry:
    """Start a telemetry whose person has not chosen yet."""
    url, key, directory, metrics = sys.argv[1:5]
    return dither.start(metrics, endpoint=url, key=key, data_dir=directory + "-of-the-unasked")


@forks
def test_an_agreement_in_a_forked_worker_reaches_its_sibling_and_their_master(world: World) -> None:
    def host() -> None:
        site = unasked()
        asked, agreed = os.pipe()

        def settings_page() -> None:
            assert site.set_consent(True)
            os.write(agreed, b".")

        def worker() -> None:
            site.m0.record(True)  # which is gone
            assert site.status().ask
            assert ended(fork(settings_page)) == [0]
            os.read(asked, 1)
            time.sleep(dither.session.CATCH_UP_EVERY_S + 0.1)
            site.m1.record(True)
            assert site.flush(20) == dither.FlushResult(sent=1, waiting=0, detail="")

        assert ended(fork(worker)) == [0]
        assert (site.status().ask, site.status().silent) == (False, "")
        site.m2.record(True)
        assert site.flush(20).sent == 1
        assert site.set_consent(False)

    world.run(host, needs=[unasked])
    assert world.counted() == once(1, 2)


ON_REQUEST = """
import sys, dither
url, key, directory, metrics = sys.argv[1:5]
telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Worker:
    """A process of its own, without a fork, that evaluates what it is asked."""

    def __init__(self, world: World) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_REQUEST, *world.settings()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "DITHER_TELEMETRY": "1", "PYTHONPATH": os.pathsep.join(PATHS)},
            text=True,
        )

    def __call__(self, expression: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(f"telemetry.{expression}", file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


def test_choices_travel_between_workers_that_start_by_themselves(world: World) -> None:
    workers = one, other = Worker(world), Worker(world)
    try:
        assert [worker("status().ask") for worker in workers] == ["True", "True"]
        one("m0.record(True)")
        assert not world.directory.exists()
        for number in (1, 2):
            assert other("set_consent(True)") == "True"
            assert (one("status().ask"), one("status().silent")) == ("False", "")
            one(f"m{number}.record(True)")
            assert one("flush(20).sent") == "1"
            assert one("set_consent(False)") == "True"
            assert [worker("status().silent") for worker in workers] == [REFUSED, REFUSED]
            one("m3.record(True)")
            other("m3.record(True)")
        assert other("status().waiting") == "0"
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.communicate()
    assert world.counted() == once(1, 2)


@forks
@pytest.mark.slow
def test_a_look_for_a_choice_sticks_in_no_child_that_was_forked_while_sqlite_was_in_use(world: World) -> None:
    """The child opens the file for the first time, with SQLite's own locks as another thread had taken them."""

    def host(forked: int) -> None:
        site, stop = unasked(), threading.Event()
        Path(sys.argv[3] + "-of-the-unasked").mkdir()
        (Path(sys.argv[3] + "-of-the-unasked") / "device.sqlite3").touch()

        def open_and_close() -> None:
            while not stop.is_set():
                sqlite3.connect(":memory:").close()

        def child() -> None:
            signal.alarm(20)
            site.m0.record(True)
            assert site.status().ask

        threads = [threading.Thread(target=open_and_close, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(forked):
                assert ended(fork(child)) == [0]
        finally:
            stop.set()

    world.run(host, scaled(4, 40), needs=[unasked])
