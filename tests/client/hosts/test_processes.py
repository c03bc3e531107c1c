"""Processes that a host starts in other ways than a bare fork are one device."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import dither
from tests.support.hosts import World, flag, forks, once, our_threads, telemetry
from tests.support.soaking import thinned


@forks
@pytest.mark.slow
@pytest.mark.parametrize("method", thinned(["fork", "spawn", "forkserver"], 0))
def test_processes_of_multiprocessing_are_one_device(world: World, method: str) -> None:
    """A process that is spawned is in test_systems.py, too."""

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
        dither.sending.upload_thread.FORK_WAIT_S = 20  # however busy the machine is
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
