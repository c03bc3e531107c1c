"""The sender is back within a limit and a second, in 32 MB, whatever a server or a proxy does."""

import gzip
import json
import random
import select
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from dither.sending.transport import HEADERS
from tests.support.certificates import Certificate
from tests.support.posting import BODY, ID, RECEIPT
from tests.support.soaking import scaled

LIMIT_S, CONNECT_S = 1.0, 0.3
GROWTH_KB_MAX = 32 * 1024
HANG_S = 30.0
GAP_S = 0.05
"""Between the drops of a slow server: far below any step's timeout."""

CHILD = f"""
import json, resource, sys, time
from concurrent.futures import ThreadPoolExecutor
from dither.sending import connection, route
from dither.sending.transport import HttpTransport
connection.EXCHANGE_TIMEOUT_S, connection.CONNECT_TIMEOUT_S, connection.READ_TIMEOUT_S = {LIMIT_S}, {CONNECT_S}, 0.5
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # code that fails takes no more of the machine
where = {{}}
def addresses(host, port, *args, real=connection.socket.getaddrinfo, **kwargs):
    return where[host] if host in where else real(host, port, *args, **kwargs)
connection.socket.getaddrinfo = addresses
def size(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
def post(asked):
    where.update({{host: [(2, 1, 6, "", ("127.0.0.1", port))] * 100 for host, port in asked["blind"].items()}})
    transport = HttpTransport(asked["url"], "k", asked["proxy"], asked["ca"])
    body = {BODY!r} + b" " * asked["more"]
    for _ in range(3):  # a busy machine may be late once
        began = time.monotonic()
        answer = transport.post({ID!r}, body, lambda: None)
        took_s = time.monotonic() - began
        if took_s < {LIMIT_S} + 1:
            break
    transport.idle()
    return took_s, answer.outcome.value, answer.detail
with ThreadPoolExecutor(16) as pool:
    for line in sys.stdin:
        open("/proc/self/clear_refs", "w").write("5")
        before = size("VmRSS")
        answers = list(pool.map(post, json.loads(line)))
        print(json.dumps([size("VmHWM") - before, answers]), flush=True)
"""
"""Posts to all the servers of a line at once; says by how many KiB it grew beside them, how long each took, and what
came of it."""


class Hostile(ThreadingTCPServer):
    """Says what it likes to each request, until nobody listens."""

    daemon_threads = True

    def __init__(self, speak: Callable[[socket.socket, threading.Event], None]) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.port = self.server_address[1]
        self.over = threading.Event()
        self._speak = speak

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(HANG_S)
        with suppress(OSError):
            self._speak(request, self.over)


@contextmanager
def serving(speak: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    with Hostile(speak) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.port
        server.over.set()
        server.shutdown()
        thread.join()


class Child:
    """The process that posts."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def post(self, *asked: dict[str, Any]) -> list[tuple[float, str, str]]:
        """Post to servers at once; hold time and memory against their limits, and return what came of each."""
        process = self._process
        assert process.stdin
        assert process.stdout
        every: dict[str, Any] = {"proxy": None, "ca": None, "more": 0, "blind": {}}
        process.stdin.write(json.dumps([every | each for each in asked]) + "\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], HANG_S)[0], "the sender is kept"
        grown, answers = json.loads(process.stdout.readline())
        assert grown < GROWTH_KB_MAX
        assert max(took_s for took_s, _, _ in answers) < LIMIT_S + 1, answers
        return [tuple(answer) for answer in answers]


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            child = Child(process)
            with serving(said(head(b"Content-Length: %d" % len(RECEIPT)) + RECEIPT)) as port:
                asked = [{"url": f"http://127.0.0.1:{port}"}] * 16
                while {outcome for _, outcome, _ in child.post(*asked)} != {"accepted"}:
                    pass  # until everything is loaded, in every thread
            yield child
        finally:
            process.kill()


def head(*lines: bytes, status: bytes = b"202 Accepted") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


def read_request(sock: socket.socket) -> None:
    """Read a CONNECT, or a POST with its body."""
    request = b""
    while piece := sock.recv(65_536):
        request += piece
        if BODY in request if request.startswith(b"POST") else b"\r\n\r\n" in request:
            return


def said(*words: bytes, then: Any = ()) -> Callable[[socket.socket, threading.Event], None]:
    """Speak: some words, then others without end as fast as they are read, then nothing, and do not hang up."""

    def speak(sock: socket.socket, over: threading.Event) -> None:
        read_request(sock)
        for word in words:
            sock.sendall(word)
        for word in then:
            sock.sendall(word)
        while sock.recv(65_536):
            pass

    return speak


def dripping(words: bytes, drop: bytes, head: bytes = b"") -> Callable[[socket.socket, threading.Event], None]:
    """Speak: a proxy's head and what comes through its tunnel then; some words, and then drops for ever."""

    def speak(sock: socket.socket, over: threading.Event) -> None:
        read_request(sock)
        if head:
            sock.sendall(head)
            sock.recv(65_536)
        sock.sendall(words)
        while not over.wait(GAP_S):
            sock.sendall(drop)

    return speak


def flood(piece: bytes) -> Iterator[bytes]:
    return repeat(piece * (1 + 65_536 // len(piece)))


HELLO = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc"
"""The first bytes of a server's hello in TLS, of 16 KiB."""
CHUNKED = head(b"Transfer-Encoding: chunked")
GZIP = head(b"Content-Encoding: gzip", b"Content-Length: %d")
ENDLESS = {
    "status line": (b"HTTP/1.1 202 ", b"x"),
    "interim answers": (b"", head(status=b"100 Continue")),
    "interim answers of another kind": (b"", head(b"Link: x", status=b"103 Early Hints")),
    "interim headers": (b"HTTP/1.1 100 Continue\r\n", b"a: b\r\n"),
    "headers": (b"HTTP/1.1 202 Accepted\r\n", b"a: b\r\n"),
    "headers that are one": (b"HTTP/1.1 202 Accepted\r\na: b\r\n", b" c\r\n"),
    "header line": (b"HTTP/1.1 202 Accepted\r\na: ", b"x"),
    "body": (head(), b" "),
    "body of a length": (head(b"Content-Length: %d" % 10**15), b" "),
    "body of no length": (head(b"Content-Length: -1"), b" "),
    "body of too long a length": (head(b"Content-Length: " + b"9" * 5_000), b" "),
    "body of lengths": (head(b"Content-Length: " + b"9," * 20_000), b" "),
    "body of a redirect": (head(b"Location: /", status=b"307 Temporary Redirect"), b" "),
    "chunk line": (CHUNKED, b"1"),
    "chunk extension": (CHUNKED + b"1;", b"x"),
    "chunk": (CHUNKED + b"f" * 15 + b"\r\n", b" "),
    "chunk of no length": (CHUNKED + b"-1\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "trailer line": (CHUNKED + b"0\r\na: ", b"x"),
    "gzip": (head(b"Content-Encoding: gzip"), b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x00\x00\x00\xff\xff"),
}
"""The words before it, and what comes again and again."""


def test_words_without_end_are_left_alone(child: Child) -> None:
    for name, (words, piece) in ENDLESS.items():
        with serving(said(words, then=flood(piece))) as port:
            ((_, outcome, _),) = child.post({"url": f"http://127.0.0.1:{port}"})
            assert outcome == "kept", name


def test_drops_without_end_are_left_alone(child: Child) -> None:
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(dripping(words, piece[:16]))) for words, piece in ENDLESS.values()]
        silent = [stack.enter_context(serving(said(words))) for words, _ in ENDLESS.values()]
        answers = child.post(*[{"url": f"http://127.0.0.1:{port}"} for port in ports + silent])
    assert {outcome for _, outcome, _ in answers} == {"kept"}


def packed(content: bytes, times: int) -> bytes:
    for _ in range(times):
        content = gzip.compress(content, compresslevel=1, mtime=0)
    encodings = b", ".join([b"gzip"] * times)
    return head(b"Content-Encoding: " + encodings, b"Content-Length: %d" % len(content)) + content


def receipt(rest: bytes, status: bytes = b"202 Accepted", *lines: bytes) -> bytes:
    content = RECEIPT[:-1] + b", " + rest + b"}"
    return head(*lines, b"Content-Length: %d" % len(content), status=status) + content


LARGE: dict[str, Callable[[], bytes]] = {
    "a bomb": lambda: packed(b" " * 40_000_000, 1),
    "a bomb in a bomb": lambda: packed(b" " * 400_000_000 if scaled(0, 1) else b" " * 40_000_000, 3),
    "deflate": lambda: head(b"Content-Encoding: deflate", b"Connection: close") + zlib.compress(b" " * 40_000_000, 1),
    "lists in lists": lambda: receipt(b'"rejected": ' + b"[" * 50_000),
    "objects in objects": lambda: receipt(b'"rejected": ' + b'{"a":' * 10_000),
    "many refused": lambda: receipt(b'"rejected": [' + b"{}," * 20_000 + b"{}]"),
    "many places": lambda: receipt(b'"rejected": [' + b'{"reason":"retired","group":1e9},' * 1_500 + b"{}]"),
    "long numbers": lambda: receipt(b'"rejected": [' + b"9" * 50_000 + b"]"),
    "many cookies": lambda: receipt(b'"a": 1', b"202 Accepted", b"Set-Cookie: " + b"a=b; " * 10_000),
    "an odd cookie": lambda: receipt(b'"a": 1', b"202 Accepted", b"Set-Cookie: a=b; Expires=" + b" 1" * 25_000),
    "quoted cookies": lambda: receipt(b'"a": 1', b"202 Accepted", b'Set-Cookie2: a="' + b"\\\\" * 25_000),
    "types": lambda: receipt(b'"a": 1', b"202 Accepted", b"Content-Type: a" + b";a=b" * 14_000),
    "folds": lambda: receipt(b'"a": 1', b"202 Accepted", b"a: b" + b"\r\n \t" * 14_000),
    "spaces": lambda: receipt(b'"a": 1', b"202 Accepted", b"Transfer-Encoding:" + b" " * 60_000 + b"x"),
    "a refusal in colours": lambda: receipt(
        b'"type": "urn:dither:problem:\\u001b[7m", "upload": 1', b"400 Bad Request", b"Retry-After: " + b"9" * 60_000
    ),
}


def test_large_and_tangled_answers_are_read_in_bounds(child: Child) -> None:
    for name, words in LARGE.items():
        with serving(said(words())) as port:
            ((_, outcome, detail),) = child.post({"url": f"http://127.0.0.1:{port}"})
            assert outcome in ("kept", "accepted"), name
            assert detail.isprintable(), name


def test_a_server_that_reads_nothing_is_left(child: Child, trusted: Certificate) -> None:
    context = trusted.server_context()

    def read(sock: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            while not over.wait(GAP_S):
                secure.recv(16_384)

    with serving(lambda sock, over: (over.wait(HANG_S), None)[1]) as plain, serving(read) as port:
        asked = {"ca": str(trusted.authority), "more": 6_000_000}
        urls = [f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{port}"]
        answers = child.post(*[{"url": url, **asked} for url in urls])
    assert {outcome for _, outcome, _ in answers} == {"kept"}


def test_tls_without_end_is_left(child: Child, trusted: Certificate) -> None:
    context = trusted.server_context()
    context.num_tickets = 100_000

    def give_tickets(sock: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            over.wait(HANG_S)
            secure.close()

    with (
        serving(give_tickets) as tickets,
        serving(dripping(HELLO, b"x")) as dripped,
        serving(said(HELLO, then=flood(b"\x16\x03\x03\x00\x01\x01"))) as records,
    ):
        asked = [
            {"url": f"https://127.0.0.1:{port}", "ca": str(trusted.authority)} for port in (tickets, dripped, records)
        ]
        answers = child.post(*asked)
        assert {outcome for _, outcome, _ in answers} == {"kept"}


def test_a_proxy_without_end_is_left(child: Child, trusted: Certificate) -> None:
    """So is a handshake in its tunnel, and one of TLS within TLS."""
    words = b"HTTP/1.1 200 OK\r\n"
    context = trusted.server_context()

    def within(sock: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            dripping(HELLO, b"x", head(status=b"200 OK"))(secure, over)

    with (
        serving(said(words, then=flood(b"a: b\r\n"))) as fast,
        serving(dripping(words, b"a: b\r\n")) as slow,
        serving(dripping(HELLO, b"x", head(status=b"200 OK"))) as handshake,
        serving(within) as secure,
    ):
        proxies = [*[f"http://127.0.0.1:{port}" for port in (fast, slow, handshake)], f"https://127.0.0.1:{secure}"]
        asked = {"url": "https://127.0.0.1:9", "ca": str(trusted.authority)}
        answers = child.post(*[asked | {"proxy": proxy} for proxy in proxies])
        assert {outcome for _, outcome, _ in answers} == {"kept"}


def test_a_host_of_a_hundred_addresses_that_say_nothing_is_left(child: Child, trusted: Certificate) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        port = full.getsockname()[1]
        for _ in range(3):  # nobody accepts them: what comes after waits for ever
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        asked = {"url": f"https://blind.invalid:{port}", "ca": str(trusted.authority), "blind": {"blind.invalid": port}}
        ((took_s, outcome, detail),) = child.post(asked)
    assert outcome == "kept"
    assert took_s > CONNECT_S
    assert "Timeout" in detail or "ConnectionError" in detail


def test_answers_of_all_kinds_are_survived(child: Child) -> None:
    """Pieces of heads, framings and receipts in any order; half of the servers hang up then, the others wait."""
    rng = random.Random(37)
    pieces = [
        *[piece for pair in ENDLESS.values() for piece in pair],
        *[
            head(),
            CHUNKED,
            RECEIPT,
            b"0\r\n",
            b"\r\n",
            b"%x\r\n" % len(RECEIPT),
            b"\x00" * 50,
            b"HTTP/1.1 ",
            b"1" * 3_000,
        ],
        *[b"Content-Length: %d\r\n" % length for length in (0, 1, len(RECEIPT), 2**31, 2**63)],
    ]

    def speaker(words: bytes, hangs_up: bool) -> Callable[[socket.socket, threading.Event], None]:
        def speak(sock: socket.socket, over: threading.Event) -> None:
            read_request(sock)
            sock.sendall(words)
            if not hangs_up:
                sock.recv(1)

        return speak

    for _ in range(scaled(3, 100)):
        with ExitStack() as stack:
            ports = []
            for number in range(32):
                words = b"".join(rng.choice(pieces) * rng.choice([1, 1, 1, 1, 200]) for _ in range(rng.randint(1, 8)))
                if rng.random() < 0.7:
                    words = rng.choice([head(), CHUNKED, head(b"Content-Length: %d" % rng.randint(0, 300))]) + words
                ports.append(stack.enter_context(serving(speaker(words, number % 2 == 0))))
            answers = child.post(*[{"url": f"http://127.0.0.1:{port}"} for port in ports])
        assert {outcome for _, outcome, _ in answers} <= {"kept", "accepted"}


def test_the_headers_of_a_request_ask_for_nothing_packed() -> None:
    assert HEADERS["Accept-Encoding"] == "identity"
