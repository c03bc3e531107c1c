"""Share: makes a signed link by which another site shows a metric's answer. `dither embed` makes the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape

from flask import render_template, request
from marshmallow import fields

from dither_aggregator.analysis.reading import WINDOWS
from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.document_kinds import ACTIVE, READ
from dither_aggregator.web.allowed_hosts import is_local, name_of
from dither_aggregator.web.embed_links import DAYS_MAX, FRAME, EmbedLink
from dither_aggregator.web.pages.presentation import FormField, form
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


def show(store: Store, name: str) -> str:
    """Return the form and, where a key is named, the link."""
    asked = query_parameters(ShareAsked)
    return render_template("share.html", page=_page(store, name, asked))


def _page(store: Store, name: str, asked: QueryParameters) -> SharePage:
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
