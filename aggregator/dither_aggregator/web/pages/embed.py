"""A metric's answer for other sites: the page that signs a link, and the card and picture that it leads to.

`web/embed_links.py` has the link, and `dither embed` makes the same.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape

from flask import Response, render_template, request
from marshmallow import fields

from dither_aggregator.analysis.reading import WINDOWS, Window, for_readers
from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.document_kinds import ACTIVE, READ
from dither_aggregator.web.addresses import is_local, name_of
from dither_aggregator.web.embed_links import DAYS_MAX, FRAME, EmbedLink
from dither_aggregator.web.forest_plots import SmallRow, draw_rows
from dither_aggregator.web.pages.days import svg_of
from dither_aggregator.web.pages.overview import read_answer
from dither_aggregator.web.pages.presentation import FormField, ReadingAnswer, form, presentation_of
from dither_aggregator.web.process_messages import HOST
from dither_aggregator.web.query_parameters import (
    Day,
    Parameters,
    QueryParameters,
    about,
    asked_plan,
    one_of,
    query_parameters,
)
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

USUAL_DAYS = 90
"""Days until a link ends, if nothing else is asked for."""


class ShareAsked(Parameters):
    """The parameters of a link."""

    key = fields.String(
        metadata=about("the id of the read key behind the link: once it is revoked, the link ends", "key")
    )
    until = Day(metadata=about(f"the last day (UTC), at most {DAYS_MAX} days from now", "until"))
    window = one_of([str(days) for days in WINDOWS], "days to the last sealed one", "days")


@dataclass(frozen=True)
class SharePage:
    """All that the template shows."""

    stored: StoredPlan
    form: Sequence[FormField]
    """Empty where there is no read key."""
    until: str = ""
    card: str = ""
    """The path of the card; "" where no link was asked for."""
    frame: str = ""
    """HTML for a page of another site, with the whole address."""


def show_share(store: Store, name: str) -> str:
    """Return the form and, where a key is named, the link."""
    asked = query_parameters(ShareAsked)
    return render_template("share.html", page=_share_page(store, name, asked))


def _share_page(store: Store, name: str, asked: QueryParameters) -> SharePage:
    stored = asked_plan(store, name, {})
    until = asked.get("until", store.today() + timedelta(days=USUAL_DAYS))
    readers = [key for key in store.keys.listed() if key.scope == READ and key.state == ACTIVE]
    choices = {key.id: f"{key.id} {key.label}".strip() for key in readers}
    fields = form(ShareAsked, {**asked, "until": until}, {"key": choices}) if choices else []
    if "key" not in asked:
        return SharePage(stored, fields)
    try:
        card = request.script_root + EmbedLink(name, until, int(asked["window"])).path(store, asked["key"])
    except StoreError as error:
        raise Problem("malformed", str(error)) from None
    host = request.environ.get(HOST, request.host)
    scheme = "http" if is_local(name_of(host.encode("latin-1"))) else "https"  # no door of ours speaks TLS itself
    frame = FRAME.format(escape(f"{scheme}://{host}{card}"), escape(name))
    return SharePage(stored, fields, f"{until}", card, frame)


# The card and the picture.


LINE_CHARACTERS = 88
"""Characters of a line of the picture: half an em each fill its 768 pixels."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class EmbedPage:
    """All that the templates show of a link."""

    stored: StoredPlan
    window: Window
    answer: ReadingAnswer
    rows: Sequence[SmallRow]

    def lines(self, text: str) -> list[str]:
        """Return a text in lines of the picture."""
        return textwrap.wrap(visible(text), LINE_CHARACTERS)


def show(store: Store, signed: str) -> str:
    """Return the card of a link."""
    return render_template("embed.html", page=_page(store, signed))


def svg(store: Store, signed: str) -> Response:
    """Return its picture, a file of its own."""
    page = _page(store, signed)
    return svg_of(render_template("embed.svg", page=page), f"{page.stored.plan.metric}-{page.window.last}")


def _page(store: Store, signed: str) -> EmbedPage:
    query_parameters(Parameters)
    link, store = EmbedLink.read(store, signed), for_readers(store)
    stored, window = asked_plan(store, link.metric, {}), link.window(store)
    answer, shown = read_answer(store, stored, window, CONFIDENCE), presentation_of(stored.plan)
    measure = answer.measure or shown.measure
    return EmbedPage(stored, window, answer, draw_rows(answer.rows, measure, shown.axis) if answer.rows else ())
