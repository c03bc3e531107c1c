"""The pages: what can be told, each at an address of its own. One optional script, no outside request."""

from collections.abc import Callable

from flask import Flask, Response, request
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

from dither_aggregator.analysis.people import measured
from dither_aggregator.analysis.reading_cache import keeper_of
from dither_aggregator.analysis.snapshots import digest_of
from dither_aggregator.store import Store, at_one_moment
from dither_aggregator.web.charts.scale import (
    SHARES,
    beside,
    end,
    end_in_points,
    measure_of,
    points,
    precise,
    rough,
    rough_in_points,
)
from dither_aggregator.web.pages import (
    asking,
    changes,
    compare,
    embed,
    login,
    metric,
    overview,
    people,
    pipeline,
    planning,
    reading_help,
    share,
    snapshot,
    time,
)
from dither_aggregator.web.pages.presentation import WHOSE, count, in_words, of_pages, rank_in_words
from dither_aggregator.web.problems import EMBED_HEADERS, PAGE_HEADERS, REFRESH_S
from dither_aggregator.web.process_messages import LIVE, SESSION
from dither_aggregator.web.query_parameters import seen
from dither_aggregator.web.url_paths import EMBED
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

Page = Callable[..., "str | tuple[str, int] | Response"]
ADDRESSES: dict[str, Page] = {
    "/": overview.show,
    "/metrics/<name>": metric.show,
    "/metrics/<name>/time": time.show,
    "/metrics/<name>/privacy": metric.privacy,
    "/metrics/<name>/share": share.show,
    "/changes": changes.show,
    "/people": people.show,
    "/compare": compare.show,
    "/ask": asking.show,
    "/plan": planning.show,
    "/pipeline": pipeline.show,
    "/help/reading": reading_help.show,
    "/login": login.show,
    "/s/<id_>": snapshot.show,
    "/s/<id_>.csv": snapshot.csv,
    "/s/<id_>.svg": snapshot.svg,
    "/embed/<signed>": embed.show,
    "/embed/<signed>.svg": embed.svg,
}
"""The function that shows each page, called with the store and with the parts of its address."""
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


def dress(templates: Environment) -> None:
    """Give templates the words and numbers that pages are written with."""
    templates.filters.update(precise=precise, points=points, end=end, end_in_points=end_in_points, rough=rough)
    templates.filters.update(rough_in_points=rough_in_points)
    templates.filters.update(rank=rank_in_words, days=in_words, visible=visible, measure=measure_of, beside=beside)
    templates.filters.update(
        whose=WHOSE.__getitem__, counted=count, of_pages=of_pages, digest=lambda id_: digest_of(id_)[:12]
    )
    templates.globals.update(shares=SHARES)
    templates.trim_blocks = templates.lstrip_blocks = True


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


def register(app: Flask, store: Store) -> None:
    """Add the pages."""
    templates_of(app)
    app.context_processor(lambda: _of_every_page(store))
    for address, show in ADDRESSES.items():
        app.add_url_rule(address, _endpoint(show), _bound(show, store))


def _of_every_page(store: Store) -> dict[str, object]:
    session = request.environ.get(SESSION, False)
    menu = [
        each
        for each in MENU
        if (each[0] not in OPERATORS or request.environ.get(LIVE)) and (each[0] != "people" or measured(store))
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


def _endpoint(show: Page) -> str:
    """Return what `url_for` calls a page: its module, and after it what the module shows beside the page."""
    module = show.__module__.rpartition(".")[2]
    return module if show.__name__ == "show" else f"{module}_{show.__name__}"


def _bound(show: Page, store: Store) -> Page:
    def shown(**named: str) -> str | tuple[str, int] | Response:
        why = OPERATORS.get(_endpoint(show))
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
