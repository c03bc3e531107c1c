"""A server without any bound, to see that attacks find one: it takes uploads and keeps nothing, or everything.

    python -m tests.faults.aggregator.unbounded FAULT ...    # what follows is not read

It acknowledges every upload. FAULT is what is wrong with it: `forgets` stores none of them; `hoards` keeps an answer
of 4 MiB for each request; `chats` logs a line for each; `sulks` answers nothing but uploads; `breaks` answers nothing
from the first upload with a wrong key on.
"""

import asyncio
import json
import re
import sys
from contextlib import suppress

KEY = "k" * 43
HOARD_MAX = 175
"""Answers of 4 MiB: more than is allowed, soon, and no more than a test needs."""
_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)\r\n")


class Unbounded:
    """Answers requests, with one fault."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._hoard: list[bytes] = []
        self._broken = False

    async def run(self) -> None:
        """Say where it is, and answer for ever."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        print(json.dumps({"url": f"http://127.0.0.1:{port}", "key": KEY}), flush=True)
        await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                self._do_wrong(head)
                while self._broken or (self._fault == "sulks" and not length):
                    await asyncio.sleep(60)
                status = b"202 ACCEPTED" if length else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    def _do_wrong(self, head: bytes) -> None:
        if self._fault == "hoards" and len(self._hoard) < HOARD_MAX:
            self._hoard.append(bytes(range(256)) * 16384)
        elif self._fault == "chats":
            print("somebody asked for something " * 4, file=sys.stderr)
        elif self._fault == "breaks" and KEY.encode("ascii") not in head:
            self._broken = self._broken or b"Authorization" in head


if __name__ == "__main__":
    asyncio.run(Unbounded(sys.argv[1]).run())
