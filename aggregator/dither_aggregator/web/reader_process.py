"""Pages and API: the addresses of pages, the application of both, and the process that answers with it.

It loads all that is estimated and drawn, which takes a second or two: a process that only takes uploads never does.

**A reader** is a process that answers one request after the other, and takes no upload. It is nicer than the server:
where both want a processor, the server has it. It ends when its socket does. It is forked by
`operations/fork_server.py`, which also has the program that computes what pages need: a reader that is nicer still,
within limits, and nobody waits for it.
"""

import asyncio
import logging
import os
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from io import BytesIO
from typing import Any, BinaryIO

import msgspec
from flask import Flask, Response, render_template, request
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from marshmallow import fields
from msgspec.structs import replace
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as PlainResponse

from dither_aggregator.analysis.reading_cache import Computing, Elsewhere, Kept, keeper_of
from dither_aggregator.ask import language
from dither_aggregator.operations.fork_server import Address
from dither_aggregator.store import Store, StoreError, at_one_moment, open_store
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web import api, problems
from dither_aggregator.web.addresses import EMBED, is_known
from dither_aggregator.web.authentication import LOGOUT
from dither_aggregator.web.pages import (
    asking,
    compare,
    days,
    embed,
    metric,
    overview,
    people,
    pipeline,
    planning,
    reading_help,
)
from dither_aggregator.web.pages.presentation import dress, load_presentations
from dither_aggregator.web.problems import EMBED_HEADERS, PAGE_HEADERS, REFRESH_S
from dither_aggregator.web.process_messages import (
    ACTOR,
    BODY,
    HOST,
    LENGTH,
    LIVE,
    LONG,
    SESSION,
    Computed,
    Place,
    ReadAnswer,
    ReadingApp,
    ReadRequest,
    encode,
    pack,
)
from dither_aggregator.web.query_parameters import LongList, Parameters, query_parameters, seen
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem

# The pages.


class LoginAsked(Parameters):
    """The parameters of the login page: the page to go to afterwards, and whether the key was wrong."""

    next = fields.String(load_default="/")
    wrong = fields.String(load_default="")


def show_login(store: Store) -> str:
    """Return the page."""
    return render_template("login.html", **query_parameters(LoginAsked))


Page = Callable[..., "str | tuple[str, int] | Response"]
PAGES: dict[str, tuple[str, Page]] = {
    "/": ("overview", overview.show),
    "/metrics/<name>": ("metric", metric.show),
    "/metrics/<name>/time": ("time", days.show_days),
    "/metrics/<name>/privacy": ("metric_privacy", metric.privacy),
    "/metrics/<name>/share": ("share", embed.show_share),
    "/changes": ("changes", compare.show_changes),
    "/people": ("people", people.show),
    "/compare": ("compare", compare.show),
    "/ask": ("asking", asking.show),
    "/plan": ("planning", planning.show),
    "/pipeline": ("pipeline", pipeline.show),
    "/help/reading": ("reading_help", reading_help.show),
    "/login": ("login", show_login),
    "/s/<id_>": ("snapshot", days.show_snapshot),
    "/s/<id_>.csv": ("snapshot_csv", days.csv),
    "/s/<id_>.svg": ("snapshot_svg", days.svg),
    "/embed/<signed>": ("embed", embed.show),
    "/embed/<signed>.svg": ("embed_svg", embed.svg),
}
"""By address: the name of a page for `url_for`, and the function that shows it.

It is called with the store and with the parts of the address.
"""
MENU = (
    ("overview", "Metrics"),
    ("changes", "Changes"),
    ("people", "People"),
    ("asking", "Ask"),
    ("planning", "Plan"),
    ("pipeline", "Pipeline"),
    ("reading_help", "How to read"),
)
"""The links of every page."""
OPERATORS = {"pipeline": "shows what comes at the moment", "share": "lets others see what a read key sees"}
"""Pages for an admin key, with why."""
TAGGED_BYTES_MAX = 1024 * 1024
"""The most bytes of an answer that gets a tag: larger ones cost more to compare than they save."""


# The application, in the order in which a request passes it.


def reading_app(store: Store, candidates_max: int | None = None) -> Flask:
    """Return the WSGI application of pages and API. Lists of more than `candidates_max` raise LongList."""
    app = bare_app()
    for name, address in (("reports", PATH), ("logout", LOGOUT)):
        app.add_url_rule(address, name, methods=["POST"])  # never comes here; other methods are told so
    app.before_request(partial(_want_nothing, store))
    app.extensions["store"] = store
    api.register(app, store, candidates_max=candidates_max)
    problems.register(app)
    _add_pages(app, store)
    return app


def bare_app() -> Flask:
    """Return a WSGI application without an address."""
    app = Flask("dither_aggregator.web")
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider; keys read best as written
    app.url_map.merge_slashes = False  # no address is another one's
    app.before_request(_refuse_other_spellings)
    app.after_request(guard)
    return app


def _refuse_other_spellings() -> None:
    """Answer that nothing is here: routing leaves slashes out at the begin, and the reader of files takes `..`."""
    if not is_known(request.environ["PATH_INFO"]):
        raise NotFound


def _want_nothing(store: Store) -> None:
    if keeper := keeper_of(store):
        keeper.wanted = False


def _add_pages(app: Flask, store: Store) -> None:
    """Add the pages, each with what all of them show."""
    templates_of(app)
    app.context_processor(lambda: _of_every_page(store))
    for address, (name, show) in PAGES.items():
        app.add_url_rule(address, name, _bound(show, store, OPERATORS.get(name)))


def _of_every_page(store: Store) -> dict[str, object]:
    session = request.environ.get(SESSION, False)
    menu = [
        each
        for each in MENU
        if (each[0] not in OPERATORS or request.environ.get(LIVE)) and (each[0] != "people" or store.measuring_people())
    ]
    keeper = keeper_of(store)
    return {
        "app_name": store.app,
        "lossy": store.lossy,
        "pages": menu,
        "operator": request.environ.get(LIVE, False),
        "session": session,
        "refresh_s": REFRESH_S if keeper and keeper.wanted else None,
    }


def _bound(show: Page, store: Store, why: str | None) -> Page:
    def shown(**named: str) -> str | tuple[str, int] | Response:
        if why and not request.environ.get(LIVE):
            raise Problem("key-scope", f"this page {why}: an admin key is needed")
        by_link = request.path.startswith(EMBED)  # such a page looks for its key, and reads what that may see
        with at_one_moment():
            return show(store if by_link else seen(store), **named)

    return shown


def guard(response: Response) -> Response:
    """Let a page load its own style sheet and script and nothing else, from nowhere else, and no site use it.

    The answer of a signed link has no script, and any site may use it.
    """
    embedded = request.path.startswith(EMBED)
    if (response.mimetype or "").startswith(("text/", "image/")):
        response.headers.update(EMBED_HEADERS if embedded else PAGE_HEADERS)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin" if embedded else "same-origin"
    return _tagged(response)


def _tagged(response: Response) -> Response:
    """Let a browser that has these bytes be told so. The tag is weak: what is sent may be compressed, or not."""
    made = response.status_code == 200 and request.method == "GET" and not response.direct_passthrough
    if made and len(response.get_data()) <= TAGGED_BYTES_MAX:
        response.add_etag(weak=True)
    if "ETag" in response.headers:
        response.make_conditional(request)
    return response


# Templates.


class _Compiled(BytecodeCache):
    """The compiled templates of this process, and of the one that it was forked from: every application has them."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a template its code, if it was compiled."""
        if code := self._compiled.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template."""
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_compiled = _Compiled()


def templates_of(app: Flask) -> Environment:
    """Return the templates of an application, dressed."""
    dress(app.jinja_env)
    app.jinja_env.bytecode_cache = _compiled
    return app.jinja_env


def prepare() -> None:
    """Make what the first page of every application takes most of its time for. It is kept in this process."""
    language.parser()
    load_presentations()
    templates = templates_of(bare_app())
    for name in ("base.html", "charts.html", "overview.html"):
        templates.get_template(name)


# A request.


def respond(app: Flask, asked: ReadRequest) -> ReadAnswer:
    """Answer a request; LONG where its list of candidates is too long for here, or no address has all that it asks."""
    environ = _environ_of(asked)
    try:
        answer = pack(PlainResponse.from_app(app, environ, buffered=True))
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


# A reader.


PROCESSOR_S = 600
"""For one reading; then the process is ended."""
MEMORY_BYTES_MAX = 3 << 30

_log = logging.getLogger("dither_aggregator")


def answer(talk: socket.socket) -> None:
    """Answer until nobody asks any more. To be called in a process that has nothing else to do."""
    asking, answering = talk.makefile("rb"), talk.makefile("wb")
    threading.Thread(target=_end_with_server, args=(talk,), name="lifeline", daemon=True).start()
    place = msgspec.msgpack.decode(_read(asking), type=Place)

    def say(message: ReadAnswer | Computed) -> None:
        answering.write(encode(message))
        answering.flush()

    desk = _Desk(place, say)
    decoder = msgspec.msgpack.Decoder(ReadRequest)
    while message := _read(asking):
        answered = desk.answer(decoder.decode(message))
        say(Computed(None) if place.computes else answered)


def _end_with_server(talk: socket.socket) -> None:
    """End when nobody asks any more, also in the middle of a long answer."""
    poll = select.poll()
    poll.register(talk, 0)  # hears of the other end's close alone
    poll.poll()
    os._exit(0)


def _read(asking: BinaryIO) -> bytes:
    """Return what is said next, nothing at the end."""
    length = asking.read(LENGTH.size)
    return asking.read(LENGTH.unpack(length)[0]) if len(length) == LENGTH.size else b""


class _Desk:
    """Answers requests out of a store, which is opened at the first of them."""

    def __init__(self, place: Place, say: Callable[[Computed], None]) -> None:
        self._place, self._say = place, say
        self._opened: tuple[Store, Flask] | None = None

    def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request."""
        try:
            store, app = self._opened = self._opened or self._open()
            store.refresh()
        except StoreError as error:
            _log.error("a reader: %s", error)
            known = is_known(asked.path)
            problem = Problem("read-failed", "the store cannot be read") if known else problems.nowhere(asked.root)
            return pack(problems.respond(problem))
        except Exception as error:
            return pack(problems.respond(problems.failure(error)))
        return respond(app, asked)

    def _open(self) -> tuple[Store, Flask]:
        store = open_store(self._place.data, read_only=True, allow_lossy_store=True)
        if store.generation != self._place.generation:
            store.close()
            raise StoreError("another store was put in the place of the one that this was started on")
        if self._place.computes:
            limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
            store.keeper = Computing(store, self._hand_over, alone=self._place.alone)
        elif self._place.candidates_max is not None:  # else somebody waits for this one answer, and nobody else does
            store.keeper = Kept(store)
        return store, reading_app(store, self._place.candidates_max)

    def _hand_over(self, made: KeptReading) -> None:
        """Hand over a reading; each that is begun may take PROCESSOR_S from then on."""
        limit(resource.RLIMIT_CPU, int(time.process_time()) + PROCESSOR_S)
        self._say(Computed(made))


def limit(what: int, most: int) -> None:
    """Move a limit of this process, as far as it may."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
