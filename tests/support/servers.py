"""A loopback server that answers as a script says: what a device must survive."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dither_shared.wire import PROBLEM_PREFIX


@dataclass
class Reply:
    """One answer: sent after `delay_s`, cut short of its stated length by `cut` bytes."""

    status: int = 202
    body: bytes | Callable[[bytes], bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: int = 0


@dataclass
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


def accepted(body: bytes) -> bytes:
    """Return the receipt of an upload."""
    return json.dumps(
        {"upload": json.loads(body)["upload"], "accepted": 1, "duplicate": False, "rejected": []}
    ).encode()


def problem(status: int, slug: str, **headers: str) -> Reply:
    """Return a problem document of ours."""
    return Reply(status, json.dumps({"type": PROBLEM_PREFIX + slug}).encode(), headers)


@contextmanager
def scripted(*replies: Reply) -> Iterator[tuple[str, list[Request]]]:
    """Serve the replies in turn, the last one for ever; yield the address and the requests so far."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(Request(self.path, dict(self.headers), body))
            reply = replies[min(len(requests), len(replies)) - 1]
            time.sleep(reply.delay_s)
            content = reply.body if isinstance(reply.body, bytes) else reply.body(body)
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
                self.send_header(name, value)
            with suppress(BrokenPipeError, ConnectionResetError):  # the device may have left
                self.end_headers()
                self.wfile.write(content[: len(content) - reply.cut])

        def do_GET(self) -> None:
            requests.append(Request(self.path, dict(self.headers), b"GET"))
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
