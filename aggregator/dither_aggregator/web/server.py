"""waitress, set up so that whatever it refuses by itself leaves as a problem document too."""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer, create_server
from waitress.task import ErrorTask

from dither_aggregator.web.problems import CONTENT_TYPE, render
from dither_shared.errors import ConfigurationError
from dither_shared.wire import Problem

THREADS = 16
"""Requests that wait for one commit together; more would add little and cost memory."""
CONNECTIONS_MAX = 1_000
HEADER_BYTES_MAX = 16 * 1024
DRAINED_BYTES_MAX = 2 * 1024 * 1024
"""A body up to here is read and refused in words; a longer one is cut off."""

_SLUGS = {413: "too-large", 431: "headers-too-large"}


class _ProblemTask(ErrorTask):
    """Answers a request that waitress could not read."""

    def execute(self) -> None:
        """Write a problem document in place of waitress's plain text."""
        error = self.request.error
        problem = Problem(_SLUGS.get(error.code, "malformed"), f"{error.reason}: {error.body}")
        body = render(problem)
        self.status = f"{problem.status} {error.reason}"
        self.response_headers.append(("Content-Type", CONTENT_TYPE))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):
    error_task_class = _ProblemTask


def make_server(app: Callable[..., Any], host: str, port: int) -> TcpWSGIServer:
    """Return a listening server; raise ConfigurationError when the address cannot be had. Port 0 is any free one."""
    listener = _listen(host, port)
    server: TcpWSGIServer = create_server(
        app,
        sockets=[listener],
        threads=THREADS,
        connection_limit=CONNECTIONS_MAX,
        max_request_header_size=HEADER_BYTES_MAX,
        max_request_body_size=DRAINED_BYTES_MAX,
        ident="dither",
        clear_untrusted_proxy_headers=True,
    )
    server.channel_class = _Channel
    return server


def address(server: TcpWSGIServer) -> str:
    """Return the URL that reaches a server from this machine."""
    try:
        ip = ipaddress.ip_address(server.effective_host)
    except ValueError:
        return f"http://{server.effective_host}:{server.effective_port}"
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://{f'[{ip}]' if ip.version == 6 else ip}:{server.effective_port}"


@contextmanager
def in_background(server: TcpWSGIServer) -> Iterator[str]:
    """Answer requests on a thread; yield the address."""
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()
    try:
        yield address(server)
    finally:
        server.task_dispatcher.shutdown()
        server.close()
        thread.join(5)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen on {host}: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror}; name another --port, or 0 for any free one"
        ) from None
    return listener
