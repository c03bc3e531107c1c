"""uvicorn, set up so that no client can wear it out: two doors, one for everybody and one for health."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from dither_aggregator.web import bounds
from dither_aggregator.web.connection import BoundedConnection
from dither_aggregator.web.listener import Listener
from dither_aggregator.web.listener_connections import AdmitAll, Admitting, Doors

DRAIN_WITHIN_S = 25
"""How long a server that ends waits for what it is being asked."""
LOOK_EVERY_S = 0.25
CLOSE_WITHIN_S = 5.0

# uvicorn's words at lower levels are about clients that do not speak HTTP.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


Close = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    pass


class Server(uvicorn.Server):
    """Beyond uvicorn's: somebody looks after the connections, at the end too."""

    def __init__(
        self, config: uvicorn.Config, health_port: int | None, admission: Admitting, close: Close = _nothing
    ) -> None:
        super().__init__(config)
        self._close = close
        self.server_state: Doors = Doors(health_port, admission)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and to look after who comes."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(bounds.BACKLOG)  # uvicorn has it hold no more than it accepts at once
        self._looking = asyncio.create_task(self._look())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what `close` ends, answer the other requests that have begun, and end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._close(), CLOSE_WITHIN_S)
        try:
            await super().shutdown(sockets)
        finally:
            self._looking.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.server_state.admission.look()
            for connection in list(self.server_state.connections):
                if self.should_exit:
                    connection.shutdown()  # again: it may have been made after the others were told
                connection.look(loop.time())  # type: ignore[union-attr]


def configured(app: Any, **changed: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an ASGI application."""
    return uvicorn.Config(
        app,
        loop="asyncio",  # uvloop was not faster here
        http=BoundedConnection,
        ws="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=bounds.ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=DRAIN_WITHIN_S,
        **{"lifespan": "off", **changed},
    )


class HttpServer:
    """Answers what comes to a listener, and to health's if there is one.

    `admission` says which requests are read at all, `close` ends what may take long.
    """

    def __init__(
        self,
        app: Any,
        public: Listener,
        health: Listener | None = None,
        admission: Admitting | None = None,
        close: Close = _nothing,
    ) -> None:
        self._listeners = [each for each in (public, health) if each]
        self._server = Server(configured(app), health.port if health else None, admission or AdmitAll(), close)
        self.url = public.url
        self.health = health.url if health else None

    def run(self) -> None:
        """Answer requests until SIGINT, SIGTERM or `stop`; the requests that have begun are finished.

        The signal is then raised again, for whatever the caller set for it: by default KeyboardInterrupt.
        """
        with _heard(self.stop):
            self._server.run(sockets=[listener.socket for listener in self._listeners])

    def stop(self) -> None:
        """End `run`, from any thread or signal handler, after the requests that have begun."""
        self._server.should_exit = True

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests on a thread of its own while the block runs."""
        thread = threading.Thread(target=self.run, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(DRAIN_WITHIN_S + 5)


@contextmanager
def _heard(stop: Callable[[], None]) -> Iterator[None]:
    """Hear signals before uvicorn's loop does, and after."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        stop()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
