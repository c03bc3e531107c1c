"""A static site on loopback whose pages have the web SDK, with a policy that lets them load and reach nothing else."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from dither.commands.metrics.compiling import document_of
from dither_shared.registry import Registry
from tests.support.node import COMPILED, NODE, ROOT

WEB = ROOT / "client" / "web"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
PAGE = '<!doctype html><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">'


def node(*arguments: object, cwd: Path = WEB, within_s: float = 300) -> str:
    """Return what a program of Node prints; fail with what it says of an error."""
    command = [str(NODE), *map(str, arguments)]
    environment = {"PATH": f"{NODE.parent}:/usr/bin:/bin", "HOME": str(cwd), **COMPILED}
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def bundle(into: Path, *modules: Path, base: Path = ROOT) -> None:
    """Write modules as a page loads them, each with what it imports, where they are in the `base`."""
    options = {"bundle": True, "splitting": True, "minify": True, "format": "esm", "external": ["node:*"]}
    asked = json.dumps({**options, "entryPoints": [*map(str, modules)], "outbase": str(base), "outdir": str(into)})
    node("--input-type=module", "--eval", f'import {{ build }} from "esbuild"; await build({asked})')


def compiled(registry: str) -> str:
    """Return the compiled form of a registry, as an app ships it."""
    return json.dumps(document_of(Registry.parse(registry)))


@contextmanager
def site(directory: Path, reaches: Sequence[str] = (), serves: Callable[[str], bool] = lambda _: True) -> Iterator[str]:
    """Serve a directory at an origin, `http://localhost:PORT`; its pages may load what it has, and reach these origins.

    More may be added to them later: an aggregator is told the site's origin, and so begins after it. A path that the
    site does not serve is answered with 503; `serves` may take its time.
    """

    class Strict(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

        def do_GET(self) -> None:
            if serves(self.path):
                super().do_GET()
            else:
                self.send_error(503)

        def end_headers(self) -> None:
            policy = f"default-src 'none'; script-src 'self'; img-src data:; connect-src 'self' {' '.join(reaches)}"
            policy += f"; frame-src http://*:{server.server_port}"  # by its address it is another site
            self.send_header("Content-Security-Policy", policy)
            self.send_header("Cache-Control", "no-store")
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (directory / "index.html").write_text(PAGE, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Strict, directory=str(directory))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
