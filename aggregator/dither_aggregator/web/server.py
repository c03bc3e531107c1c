"""waitress, set up so that whatever it refuses by itself leaves as a problem document too."""

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import create_server
from waitress.task import ErrorTask
from waitress.wasyncore import close_all

from dither_aggregator.web.problems import CONTENT_TYPE, render
from dither_shared.errors import ConfigurationError
from dither_shared.wire import Problem

THREADS = 16
"""Requests that wait for one commit together; more would add little and cost memory."""
CONNECTIONS_MAX = 1_000
HEADER_BYTES_MAX = 16 * 1024
DRAINED_BYTES_MAX = 2 * 1024 * 1024
"""A body up to here is read and refused in words; a longer one is cut off."""

# A request that waits for a thread is nothing to warn about: it waits for the same commit as those before it.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

_SLUGS = {413: "too-large", 431: "headers-too-large"}


class _Parser(HTTPRequestParser):
    def parse_header(self, header_plus: bytes) -> None:
        """Refuse what is not a URL as what is not HTTP is refused."""
        try:
            super().parse_header(header_plus)
        except ValueError:
            raise ParsingError("the request's target is not a URL") from None


class _ProblemTask(ErrorTask):
    """Answers a request that waitress could not read, or that failed within the application."""

    def execute(self) -> None:
        """Write a problem document in place of waitress's plain text. An error of ours is no fault of the upload's."""
        request: Any = self.request  # a parser, which waitress's stubs take for a request
        error = request.error
        slug = "unavailable" if error.code == 500 else _SLUGS.get(error.code, "malformed")
        detail = "the request failed" if slug == "unavailable" else f"{error.reason}: {error.body}"
        problem = Problem(slug, detail)
        body = render(problem)
        self.status = f"{problem.status} {HTTPStatus(problem.status).phrase}"
        self.response_headers = [*self.response_headers, ("Content-Type", CONTENT_TYPE)]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):
    parser_class = _Parser
    error_task_class = _ProblemTask


class HttpServer:
    """A listening server. Raises ConfigurationError when the address cannot be had; port 0 is any free one."""

    def __init__(self, app: Callable[..., Any], host: str, port: int) -> None:
        listener = _listen(host, port)
        host, port = listener.getsockname()[:2]
        self.url = _url(host, port)
        self.reachable_from_elsewhere = not ipaddress.ip_address(host).is_loopback
        self._dispatchers: dict[int, Any] = {}
        server: Any = create_server(
            app,
            map=self._dispatchers,
            sockets=[listener],
            threads=THREADS,
            connection_limit=CONNECTIONS_MAX,
            max_request_header_size=HEADER_BYTES_MAX,
            max_request_body_size=DRAINED_BYTES_MAX,
            ident="dither",
            clear_untrusted_proxy_headers=True,
        )
        server.channel_class = _Channel
        self._server = server

    def run(self) -> None:
        """Answer requests until KeyboardInterrupt or `stop`; the requests that have begun are finished."""
        try:
            self._server.run()
        finally:
            self._server.task_dispatcher.shutdown()
            close_all(self._dispatchers)

    def stop(self) -> None:
        """End `run`, from any other thread, after the requests that have begun."""
        self._server.task_dispatcher.shutdown()
        # Within the loop: closing its descriptors from outside would pull them from under its select.
        with suppress(OSError):  # a loop that was just awake has done so, and closed the trigger too
            self._server.trigger.pull_trigger(lambda: close_all(self._dispatchers))

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests on a thread of its own while the block runs."""
        thread = threading.Thread(target=self.run, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(5)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host's name"
        raise ConfigurationError(f"cannot listen on {host}: {reason}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror}; name another --port, or 0 for any free one"
        ) from None
    return listener


def _url(host: str, port: int) -> str:
    """Return the address that reaches a bound socket from this machine."""
    ip = ipaddress.ip_address(host)
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://[{ip}]:{port}" if ip.version == 6 else f"http://{ip}:{port}"
