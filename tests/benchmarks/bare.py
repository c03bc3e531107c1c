"""The server of `dither serve`, or of `dither api` with so many processes, answering 202 and storing nothing.

python -m tests.benchmarks.bare [PROCESSES]
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dither_aggregator.web.processes import HttpProcesses, Worker
from dither_aggregator.web.server import HttpServer
from tests.benchmarks.peers.wsgi_app import app


@contextmanager
def _worker() -> Iterator[Worker]:
    yield Worker(app, lambda: None)


def main() -> None:
    """Print the address when ready, and answer until SIGTERM."""
    if len(sys.argv) == 1:
        server = HttpServer(app, "127.0.0.1", 0)
        print(server.url, flush=True)
        server.run()
    else:
        http = HttpProcesses(_worker, "127.0.0.1", 0, int(sys.argv[1]))
        http.run(lambda: print(http.url, flush=True))


if __name__ == "__main__":
    main()
