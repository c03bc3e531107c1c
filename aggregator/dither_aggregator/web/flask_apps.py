"""The applications of pages and API, and an answer of theirs, in whatever process or thread.

It loads all that is estimated and drawn, which takes a second or two: a process that only takes uploads never does.
"""

import asyncio
import sys
import threading
from functools import cache, partial
from io import BytesIO
from typing import Any

from flask import Flask, request
from msgspec.structs import replace
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from dither_aggregator.analysis.reading_cache import Elsewhere, keeper_of
from dither_aggregator.ask import language
from dither_aggregator.operations.computing_process import Address
from dither_aggregator.store import Store
from dither_aggregator.web import api, pages, problems
from dither_aggregator.web.authentication import LOGOUT
from dither_aggregator.web.page_requests import ReadingApp
from dither_aggregator.web.process_messages import ACTOR, BODY, HOST, LIVE, LONG, SESSION, ReadAnswer, ReadRequest, pack
from dither_aggregator.web.query_parameters import LongList
from dither_aggregator.web.url_paths import is_known
from dither_shared.wire import PATH


def reading_app(store: Store, candidates_max: int | None = None) -> Flask:
    """Return the WSGI application of pages and API. Lists of more than `candidates_max` raise LongList."""
    app = bare_app()
    for name, address in (("reports", PATH), ("logout", LOGOUT)):
        app.add_url_rule(address, name, methods=["POST"])  # never comes here; other methods are told so
    app.before_request(partial(_want_nothing, store))
    app.extensions["store"] = store
    api.register(app, store, candidates_max=candidates_max)
    problems.register(app)
    pages.register(app, store)
    return app


def bare_app() -> Flask:
    """Return a WSGI application without an address."""
    app = Flask("dither_aggregator.web")
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider; keys read best as written
    app.url_map.merge_slashes = False  # no address is another one's
    app.before_request(_refuse_other_spellings)
    app.after_request(pages.guard)
    return app


def prepare() -> None:
    """Make what the first page of every application takes most of its time for. It is kept in this process."""
    language.parser()
    templates = pages.templates_of(bare_app())
    for name in ("base.html", "charts.html", "overview.html"):
        templates.get_template(name)


def _refuse_other_spellings() -> None:
    """Answer that nothing is here: routing leaves slashes out at the begin, and the reader of files takes `..`."""
    if not is_known(request.environ["PATH_INFO"]):
        raise NotFound


def respond(app: Flask, asked: ReadRequest) -> ReadAnswer:
    """Answer a request; LONG where its list of candidates is too long for here, or no address has all that it asks."""
    environ = _environ_of(asked)
    try:
        answer = pack(Response.from_app(app, environ, buffered=True))
    except (LongList, Elsewhere):
        return LONG
    except Exception as error:
        return pack(problems.respond(problems.failure(error)))
    keeper = keeper_of(app.extensions.get("store"))
    if not (keeper and keeper.wanted):
        return answer
    can_be_computed = asked.method == "GET" and Address.of(asked).is_short
    return replace(answer, wanted=True) if can_be_computed else LONG


def _environ_of(asked: ReadRequest) -> dict[str, Any]:
    """Return a request as PEP 3333 has it, and what else we say of it."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": asked.root,
        "PATH_INFO": asked.path,
        "QUERY_STRING": asked.query.decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(asked.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        SESSION: asked.session,
        ACTOR: asked.actor,
        LIVE: asked.live,
        HOST: asked.host,
        BODY: asked.body,
    }
    for name, value in asked.headers:
        variable = name.decode("latin-1").upper().replace("-", "_")
        environ[variable if variable.startswith("CONTENT_") else f"HTTP_{variable}"] = value.decode("latin-1")
    return environ


def _want_nothing(store: Store) -> None:
    if keeper := keeper_of(store):
        keeper.wanted = False


def in_threads(store: Store) -> ReadingApp:
    """Return pages and API that are made in threads of this process: for trials.

    The application is made for the first who reads: it takes a twentieth of a second, which uploads need not wait for.
    """
    making = threading.Lock()
    app = cache(lambda: reading_app(store))

    def answer(asked: ReadRequest) -> ReadAnswer:
        with making:
            made = app()
        return respond(made, asked)

    return ReadingApp(lambda asked: asyncio.to_thread(answer, asked))
