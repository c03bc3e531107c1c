"""A metric's answer for other sites: a card and a picture, by a signed link (`web/embed_links.py`)."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from flask import Response, render_template

from dither_aggregator.analysis.reading import Window, for_readers
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.charts.shares import SmallRow, draw_rows
from dither_aggregator.web.embed_links import EmbedLink
from dither_aggregator.web.pages.overview import read_answer
from dither_aggregator.web.pages.presentation import ReadingAnswer
from dither_aggregator.web.pages.presentations import presentation_of
from dither_aggregator.web.pages.snapshot import svg_of
from dither_aggregator.web.query_parameters import Parameters, asked_plan, query_parameters
from dither_shared.safe_output import visible

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
