"""Connections for attacks and steady loads: never blocking, read as cheaply as Python can."""

import re
import socket
from contextlib import suppress

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


def connecting(address: tuple[str, int], receive_bytes: int = 0) -> socket.socket:
    """Return a socket that never blocks and is being connected, with a receive buffer of its own size if one is given.

    Raises OSError when that fails at once.
    """
    connection = socket.socket()
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        with suppress(BlockingIOError):
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class AnswerReader:
    """Tells when the answer on a connection is whole, and keeps nothing of its content."""

    def __init__(self) -> None:
        self.closes = False
        """Whether the server said that it closes the connection."""
        self._head = b""
        self._status = 0
        self._left: int | None = None
        self._end = b""

    def feed(self, data: bytes) -> int:
        """Return the status of the answer that `data` ends; 0 while more is to come. Raises ValueError: no HTTP."""
        if not self._status:
            self._head += data
            head, blank_line, data = self._head.partition(b"\r\n\r\n")
            if not blank_line:
                return 0
            self._begin(head.lower() + b"\r\n")
        if not self._is_end(data):
            return 0
        status, self._status, self._head = self._status, 0, b""
        return status

    def _begin(self, head: bytes) -> None:
        self._status, self._end = int(head[9:12]), b""
        self.closes = b"\r\nconnection: close\r\n" in head
        length = _LENGTH.search(head)
        chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
        self._left = int(length[1]) if length else None if chunked else 0

    def _is_end(self, data: bytes) -> bool:
        if self._left is None:
            self._end = (self._end + data)[-len(_LAST_CHUNK) :]
            return self._end == _LAST_CHUNK
        self._left -= len(data)
        return self._left <= 0
