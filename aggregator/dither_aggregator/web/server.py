"""The HTTP server, set up so that no client can wear it out: two doors, one for everybody and one for health."""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from dither_aggregator.web import http_messages
from dither_aggregator.web.http_connection import LINGER_S, BoundedConnection, Serving
from dither_aggregator.web.http_messages import ACCEPTED_AT_ONCE, BACKLOG, App
from dither_aggregator.web.listeners import Admitting, Door, Listener

DRAIN_WITHIN_S = 25
"""How long a server that ends waits for what it is being asked."""
LOOK_EVERY_S = 0.25
DRAINED_EVERY_S = 0.05
CLOSE_WITHIN_S = 5.0

Close = Callable[[], Awaitable[None]]

_log = logging.getLogger("dither_aggregator")


class HttpServer:
    """Answers what comes to a listener, and to health's if there is one.

    `admission` says which requests are read at all, `close` ends what may take long.
    """

    def __init__(
        self,
        app: App,
        public: Listener,
        health: Listener | None = None,
        admission: Admitting | None = None,
        close: Close | None = None,
    ) -> None:
        self._serving = Serving(app, admission or Admitting())
        self._doors = [(public, Door(http_messages.connections_max(), http_messages.BODY_BYTES_MAX), False)]
        if health:
            self._doors.append(
                (health, Door(http_messages.HEALTH_CONNECTIONS_MAX, http_messages.HEALTH_BODY_BYTES_MAX), True)
            )
        self._close = close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._ending = self._hurried = False
        self.url = public.url
        self.health = health.url if health else None

    def run(self) -> None:
        """Answer requests until SIGINT, SIGTERM or `stop`; the requests that have begun are finished.

        The first signal is then raised again, for whatever the caller set for it: by default KeyboardInterrupt. A
        second SIGINT ends at once.
        """
        heard: list[int] = []

        def hear(number: int, _frame: object) -> None:
            self._hurried |= bool(heard) and number == signal.SIGINT
            heard.append(number)
            self.stop()

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        self.serve()
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])

    def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `stop`; call `ready` once it does."""
        asyncio.run(self._serve(ready))

    def stop(self) -> None:
        """End `run` or `serve`, from any thread or signal handler, after the requests that have begun."""
        self._ending = True
        if self._loop:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests on a thread of its own while the block runs."""
        thread = threading.Thread(target=self.serve, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(DRAIN_WITHIN_S + 5)

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        if self._ending:
            self._stopped.set()
        servers: list[asyncio.Server] = []
        for listener, door, health in self._doors:
            made = partial(BoundedConnection, self._serving, door, health=health)
            servers.append(await self._loop.create_server(made, sock=listener.socket, backlog=ACCEPTED_AT_ONCE))
            listener.socket.listen(BACKLOG)  # asyncio has it hold no more than it accepts at once
        looking = asyncio.create_task(self._look(self._loop))
        ready()
        await self._stopped.wait()
        if self._close:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._close(), CLOSE_WITHIN_S)
        for server in servers:
            server.close()
        self._end_connections()
        if not await self._drained(DRAIN_WITHIN_S):
            _log.error("%d requests were not answered in time, and are refused", len(self._serving.tasks))
            for task in self._serving.tasks:
                task.cancel()
            await self._drained(LINGER_S)
        looking.cancel()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._serving.admission.look()
            for connection in list(self._serving.connections):
                connection.look(loop.time())
            if self._ending:
                self._end_connections()  # again: one may have been made after the others were told

    def _end_connections(self) -> None:
        for connection in list(self._serving.connections):
            connection.shutdown()

    async def _drained(self, within_s: float) -> bool:
        """Wait until nobody is there, or is to be waited for; return whether that came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.sleep(DRAINED_EVERY_S)  # also at first: connections that were accepted are made meanwhile
                while (self._serving.connections or self._serving.tasks) and not self._hurried:
                    await asyncio.sleep(DRAINED_EVERY_S)
                return True
        return False
