"""The HTTP server itself: what it answers while clients are slow, and when it ends."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from dither_aggregator.web import http_server as serving
from dither_aggregator.web.endpoints import in_words
from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_shared.wire.reading import Problem
from tests.support.aggregators import http_server
from tests.support.http import HEAD, Connection, Echo, Served, running, slug, until, upload


@pytest.fixture
def served() -> Iterator[Served]:
    with running() as made:
        yield made


@pytest.mark.parametrize("made", [lambda: Problem("key-wrong", "another"), lambda: RuntimeError("a bug")])
def test_a_refusal_leaves_nothing_to_collect(made: Callable[[], Exception]) -> None:
    """Circles of an exception and its frames held everybody up for 50 ms whenever they were collected."""

    async def refuse(scope: Scope, body: bytes) -> HttpAnswer:
        raise made()

    async def refused(times: int) -> None:
        for _ in range(times):
            await in_words(refuse)({}, b"")

    asyncio.run(refused(1))
    gc.collect()
    gc.freeze()  # else what other tests have left is looked through again
    gc.disable()
    try:
        asyncio.run(refused(200))
        assert gc.collect() < 200
    finally:
        gc.enable()


def test_slow_clients_take_no_thread_from_others(served: Served) -> None:
    for _ in range(100):
        served.connect(upload(700) + b"x")
        served.connect(HEAD)
    for _ in range(20):
        assert served.connect(upload(3) + b"abc").answer()[0] == 200
    assert {body for _, body in served.echo.came} == {b"abc"}


@contextmanager
def ended_before_its_connections(echo: Echo) -> Iterator[Served]:
    http = http_server(in_words(echo))
    with ExitStack() as opened, http.in_background():
        yield Served(echo, http, opened)


def test_a_connection_that_was_being_made_when_the_server_ended_does_not_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not among those that are told to end at first, and its client goes on asking."""
    monkeypatch.setattr(serving, "DRAIN_WITHIN_S", 1_000)
    told = serving.BoundedConnection.shutdown
    late = iter([lambda _: None])
    monkeypatch.setattr(serving.BoundedConnection, "shutdown", lambda self: next(late, told)(self))
    answered: list[int] = []

    def go_on(made: Connection) -> None:
        with suppress(AssertionError, OSError):
            while True:
                made.send(upload(3) + b"abc")
                answered.append(made.answer()[0])

    with ExitStack() as waiting, ended_before_its_connections(Echo()) as served:
        asking = threading.Thread(target=go_on, args=[served.connect()], daemon=True)
        asking.start()
        waiting.callback(asking.join, 10)
        until(lambda: answered)
    assert not asking.is_alive()


def test_what_is_not_answered_when_the_server_has_waited_long_enough_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "DRAIN_WITHIN_S", 0.3)
    echo = Echo()
    echo.waits = True
    with ended_before_its_connections(echo) as served:
        made = served.connect(upload(3) + b"abc")
        answers: list[tuple[int, dict[str, Any]]] = []
        asking = threading.Thread(target=lambda: answers.append(made.answer()), daemon=True)
        asking.start()
        served.opened.callback(asking.join, 10)  # before its connection is closed
        until(lambda: echo.came)
    assert echo.cancelled == 1  # nobody waits for it any more
    ((status, document),) = answers
    assert (status, slug(document)) == (503, "unavailable")


def test_a_second_sigint_waits_for_nobody() -> None:
    echo = Echo()
    echo.waits = True
    http = http_server(in_words(echo))

    def interrupt_twice() -> None:
        with ExitStack() as opened:
            Served(echo, http, opened).connect(upload(3) + b"abc")
            until(lambda: echo.came)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: http._ending)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: echo.cancelled)

    interrupting = threading.Thread(target=interrupt_twice)
    interrupting.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        http.run()
    interrupting.join()
    assert time.monotonic() - began < serving.DRAIN_WITHIN_S / 2
