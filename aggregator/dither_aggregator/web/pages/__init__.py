"""The pages: what can be told, each at an address of its own. No script, no outside request."""

from collections.abc import Callable

from flask import Flask, Response

from dither_aggregator.store import Store
from dither_aggregator.web.charts.scale import points, precise, rough, visible
from dither_aggregator.web.pages import changes, compare, metric, overview, planning, reading_help, time
from dither_aggregator.web.pages.words import in_words, rank_in_words

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

Page = Callable[..., "str | tuple[str, int]"]
ADDRESSES: dict[str, Page] = {
    "/": overview.show,
    "/metrics/<name>": metric.show,
    "/metrics/<name>/time": time.show,
    "/changes": changes.show,
    "/compare": compare.show,
    "/plan": planning.show,
    "/help/reading": reading_help.show,
}
"""What shows each page, called with the store and with what its address names."""
MENU = (("overview", "Metrics"), ("changes", "Changes"), ("planning", "Plan"), ("reading_help", "How to read"))
"""What every page leads to."""


def register(app: Flask, store: Store) -> None:
    """Add the pages."""
    app.jinja_env.filters.update(
        precise=precise, points=points, rough=rough, rank=rank_in_words, days=in_words, visible=visible
    )
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.context_processor(lambda: {"app_name": store.app, "lossy": store.lossy, "pages": MENU})
    for address, show in ADDRESSES.items():
        app.add_url_rule(address, show.__module__.rpartition(".")[2], _bound(show, store))


def _bound(show: Page, store: Store) -> Page:
    return lambda **named: show(store, **named)


def guard(response: Response) -> Response:
    """Let a page load its own style sheet and nothing else, from nowhere else."""
    if (response.mimetype or "").startswith(("text/", "image/")):
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
