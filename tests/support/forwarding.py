"""A network of a test's own on the loopback: forwarders before the nodes of a cluster, which hold up what is cut."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dither_aggregator.arguments.settings import LOOPBACK
from tests.support.ports import free_port
from tests.support.redis_servers import RedisCluster, RedisServer

Result = TypeVar("Result")
STOPPED_WITHIN_S = 30


class Network:
    """Every connection from a node or a client to a node goes through it; each node connects from its own address."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._held: dict[frozenset[str], asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._pumps: set[asyncio.Task[None]] = set()

    def join(self, cluster: RedisCluster) -> None:
        """Put a cluster that is not started behind this network."""
        for number, node in enumerate(cluster.nodes):
            node.port, bus, address = free_port(), free_port(), f"127.0.0.{number + 2}"
            node.settings |= {
                "cluster-port": str(bus),
                "bind-source-addr": address,
                "cluster-announce-ip": LOOPBACK,
                "cluster-announce-port": str(self._forward(node.port, address)),
                "cluster-announce-bus-port": str(self._forward(bus, address)),
            }

    @contextmanager
    def cut(self, node: RedisServer, *others: RedisServer) -> Iterator[None]:
        """Let nothing pass between a node and others, or clients where no others are given."""
        mine = node.settings["bind-source-addr"]
        far = [other.settings["bind-source-addr"] for other in others] or [LOOPBACK]
        pairs = [frozenset({mine, each}) for each in far]
        self._run(self._hold(pairs))
        try:
            yield
        finally:
            self._run(self._release(pairs))

    def stop(self) -> None:
        """Close all connections."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOPPED_WITHIN_S)
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(STOPPED_WITHIN_S)

    async def _hold(self, pairs: list[frozenset[str]]) -> None:
        self._held |= {pair: asyncio.Event() for pair in pairs}

    async def _release(self, pairs: list[frozenset[str]]) -> None:
        for pair in pairs:
            self._held.pop(pair).set()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _forward(self, to: int, address: str) -> int:
        port = free_port()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pair = frozenset({writer.get_extra_info("peername")[0], address})
            try:
                await self._pass(pair)
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK, to)
                await asyncio.gather(self._pump(pair, reader, far_writer), self._pump(pair, far_reader, writer))
            except OSError:
                pass  # a node that was killed
            finally:
                await _close(writer)

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pump = self._loop.create_task(connected(reader, writer))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

        self._servers.append(self._run(asyncio.start_server(begin, LOOPBACK, port)))
        return port

    async def _pass(self, pair: frozenset[str]) -> None:
        while held := self._held.get(pair):
            await held.wait()

    async def _pump(self, pair: frozenset[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while some := await reader.read(65_536):
                await self._pass(pair)
                writer.write(some)
                await writer.drain()
        finally:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
