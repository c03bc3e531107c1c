"""The server of `dither serve`, or of `dither api` with so many processes, answering 202 and storing nothing.

python -m tests.benchmarks.bare [PROCESSES]
"""

import sys
from contextlib import ExitStack

from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.listeners import Admitting, Listener
from dither_aggregator.web.process_supervisor import HttpProcesses, Opened
from tests.benchmarks.peers.wsgi_app import RECEIPT

ACCEPTED = HttpAnswer(202, [(b"content-type", b"application/json")], RECEIPT)


class App:
    """Answers every request alike."""

    async def __call__(self, scope: Scope, body: bytes) -> HttpAnswer:
        """Answer one request."""
        return ACCEPTED

    def open(self, opened: ExitStack) -> Opened:
        """Open nothing."""
        return Opened(self, Admitting(), self.close)

    async def close(self) -> None:
        """End nothing."""


def main() -> None:
    """Print the address when ready, and answer until SIGTERM."""
    listener = Listener("127.0.0.1", 0)
    if len(sys.argv) == 1:
        print(listener.url, flush=True)
        HttpServer(App(), listener).run()
    else:
        HttpProcesses(App(), listener, None, int(sys.argv[1])).serve(lambda: print(listener.url, flush=True))


if __name__ == "__main__":
    main()
