"""Joins the writes of a connection, into as few parts as may be."""

import asyncio
from typing import Any

LONG_BYTES = 16 * 1024
"""Longer data is sent at once."""


class CoalescingTransport:
    """A transport that sends in one what is written in one turn of the loop: an answer's head and its body.

    It never stops reading: clients that leave would not be seen, and the bounds hold what they send.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it soon, at once if it is long."""
        self._parts.append(data)
        if len(data) > LONG_BYTES:
            self.send()
        elif len(self._parts) == 1:
            self._loop.call_soon(self.send)

    def pause_reading(self) -> None:
        """Read on."""

    def close(self) -> None:
        """Send what there is, and close."""
        self.send()
        self._transport.close()

    def send(self) -> None:
        """Send what there is."""
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))
