"""A flush while the program ends sends what waits, or says why not: since 3.12 Python then starts no thread."""

import atexit
import sys
import threading
from pathlib import Path

import pytest

import dither
from tests.support.hosts import World, flag, once, our_threads, telemetry, until
from tests.support.soaking import SOAK, thinned

PYTHONS = [Path(sys.executable), *sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))]
TRIED = PYTHONS if SOAK else [*PYTHONS[:1], *PYTHONS[1:][-1:]]
pythons = pytest.mark.parametrize("python", TRIED, ids=lambda path: path.parts[-3])


def no_thread_starts() -> None:
    """Let this process start no thread any more, as Python does where it ends."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    threading.Thread.start = refuse  # type: ignore[method-assign,assignment]


@pythons
def test_a_flush_at_exit_sends_what_was_recorded(world: World, python: Path) -> None:
    def host() -> None:
        def end() -> None:
            no_thread_starts()
            print(telemetry.flush(20))

        atexit.register(end)
        flag(0)
        assert our_threads()

    said = world.run(host, python=python, needs=[no_thread_starts])
    assert said == f"{dither.FlushResult(sent=1, waiting=0, detail='')}\n"
    assert world.counted() == once(0)


@pytest.mark.parametrize(
    ("python", "open_"), thinned([(python, open_) for open_ in (True, False) for python in TRIED], 0, -1)
)
def test_what_is_recorded_at_exit_is_kept_and_a_flush_says_why_it_waits(
    world: World, python: Path, open_: bool
) -> None:
    """Nothing waited before, so that there is no thread; nor may there be a connection, as after a fork."""

    def host(open_: bool) -> None:
        def end() -> None:
            no_thread_starts()
            flag(0)
            print(telemetry.flush(20))

        atexit.register(end)
        assert telemetry.flush(20).detail.startswith("nothing to send: ")
        assert until(lambda: not our_threads())
        if not open_:
            telemetry._session.device._file.before_fork()  # type: ignore[union-attr]
            telemetry._session.device._file.after_fork_in_parent()  # type: ignore[union-attr]

    said = world.run(host, open_, python=python, needs=[no_thread_starts])
    assert "sent=0, waiting=1" in said
    assert "no thread can be started" in said
    assert "the program ends" in said
    assert world.counted() == {}
    assert world.counted_in_the_end() == once(0)
