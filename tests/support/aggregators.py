"""Real aggregators for the tests: in this process, or `dither serve` in one of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

from flask import Flask
from werkzeug.routing import Rule

from dither.cli import main
from dither_aggregator.ingest.service import Service, WholeService
from dither_aggregator.store import SQLiteStore, Store
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.http_messages import App
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.listeners import Admitting, Listener
from dither_aggregator.web.process_messages import LIVE
from dither_aggregator.web.reader_process import in_threads, reading_app
from dither_shared.registry import Registry
from tests.support import failing
from tests.support.clocks import Clock
from tests.support.nursery import Nursery, Piped

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
# Hundreds of processes start here. One that may not keep what it compiled spends a third of its start on that.
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)
STARTED_WITH = dict(ENVIRONMENT)
"""The environment that the nursery of processes is started with, whatever a test changes."""
DITHER = [sys.executable, "-m", "dither.cli"]
SERVERS = ("serve", "api", "worker", "beat", "demo")
"""Commands that change what is their process's own, such as its signals."""
SET_BY_SERVERS = (signal.SIGUSR1, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)

NOT_NICE: dict[str, object] = {
    "dither_aggregator.operations.fork_server.READING_NICENESS": 0,
    "dither_aggregator.operations.fork_server.COMPUTING_NICENESS": 1,
}
"""So that a process that computes hardly waits for other programs; a reader's niceness is another one."""


def nursery() -> Nursery:
    """Return the nursery of this process."""
    return Nursery.shared(STARTED_WITH)


@contextmanager
def sqlite_store(registry: Registry, directory: Path, clock: Clock | None = None) -> Iterator[SQLiteStore]:
    """Open the store in a directory, made if there is none, with the registry loaded."""
    with closing(SQLiteStore.open_or_create(directory, registry.app, *([clock] if clock else []))) as store:
        store.load(registry)
        yield store


@contextmanager
def aggregator(
    registry: Registry, directory: Path, clock: Clock | None = None, *, fold_every_s: float = 0.01
) -> Iterator[tuple[str, Service]]:
    """Run an aggregator in this process, which counts at once; yield its address and its service."""
    with (
        patch("dither_aggregator.ingest.service.FOLD_EVERY_S", fold_every_s),
        sqlite_store(registry, directory, clock) as store,
        WholeService(store) as service,
    ):
        server = http_server(web_app(service))
        with server.in_background():
            yield server.url, service


def web_app(service: Service) -> App:
    """Return the whole application around a service, pages and API in threads of this process."""
    return create_app(service, in_threads(service.store))


def _compiled_once() -> None:
    """Let rules of one form share what werkzeug compiles for them: nine tenths of an application's making."""
    compile_builder, kept = Rule._compile_builder, dict[tuple[object, ...], Callable[..., tuple[str, str]]]()

    def compiled(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        if rule.defaults:  # whose values are compiled into it
            return compile_builder(rule, append_unknown)
        key = (rule.rule, *rule._trace, append_unknown)
        if key not in kept:
            kept[key] = compile_builder(rule, append_unknown)
        return kept[key]

    Rule._compile_builder = compiled  # type: ignore[method-assign,assignment]


_compiled_once()


def operators_app(store: Store, candidates_max: int | None = None) -> Flask:
    """Return pages and API as the operator sees them at loopback without keys: `reading_app` tells a read key less."""
    app = reading_app(store, candidates_max)
    wsgi = app.wsgi_app
    patched = lambda environ, start_response: wsgi({**environ, LIVE: True}, start_response)  # noqa: E731
    app.wsgi_app = patched  # type: ignore[method-assign]
    return app


def http_server(app: App, port: int = 0, admission: Admitting | None = None) -> HttpServer:
    """Return a server on loopback, its health on another port."""
    return HttpServer(app, Listener("127.0.0.1", port), Listener("127.0.0.1", 0), admission)


@dataclass
class Served:
    """A running `dither serve`."""

    process: Piped | subprocess.Popen[str]
    url: str
    key: str
    health: str

    def stop(self, how: signal.Signals = signal.SIGTERM) -> str:
        """End it and return what it wrote to stderr."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=30)[1]


def start(*arguments: object, **environment: str) -> Piped:
    """Start a `dither` command that a test will interrupt; `failing` says what an environment may order."""
    module = failing.__name__ if failing.ENVIRONMENT_NAME in environment else "dither.cli"
    return nursery().piped(module, [str(argument) for argument in arguments], {**ENVIRONMENT, **environment})


def start_afresh(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start a `dither` command as a person does, for a measurement."""
    return subprocess.Popen(
        [*DITHER, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )


@contextmanager
def serve(
    registry: Path,
    data: Path,
    *options: object,
    settings: Mapping[str, object] = {},
    starting: Callable[..., Piped | subprocess.Popen[str]] = start,
) -> Iterator[Served]:
    """Run `dither serve` in a process of its own, on a free port unless told otherwise.

    `settings` are values of modules by their full name.
    """
    arguments = ("serve", registry, "--data", data, "--json", *(options or ("--port", 0)))
    process = starting(*arguments, **failing.with_settings(settings))
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)[1]
        yield Served(process, **json.loads(line))
    finally:
        process.kill()
        process.communicate()


def dither(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a `dither` command to its end: in this process, which has imported it already, unless it serves."""
    words = [str(argument) for argument in arguments]
    serves = words and words[0] in SERVERS and "--help" not in words
    return (_in_a_process if serves else _in_this_process)(words, environment)


def refused(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in this process a command that would serve, if it did not end before it does: all must be as it was then."""
    handlers = {number: signal.getsignal(number) for number in SET_BY_SERVERS}
    try:
        done = _in_this_process([str(argument) for argument in arguments], environment)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done


def _in_this_process(words: list[str], environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    out, err = (TextIOWrapper(BytesIO(), "utf-8", newline="\n") for _ in range(2))
    with (
        Path(os.devnull).open() as nothing,
        patch.object(sys, "stdin", nothing),
        patch.dict(os.environ, {**ENVIRONMENT, **environment}, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = main(words)
        except SystemExit as ended:  # argparse's
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    for written in (out, err):
        written.seek(0)
    return subprocess.CompletedProcess(words, code, out.read(), err.read())


def _in_a_process(words: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    process = start(*words, **environment)
    out, err = process.communicate(timeout=280)
    return subprocess.CompletedProcess(words, process.wait(1), out, err)
