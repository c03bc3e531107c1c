"""Changes: the last sealed days beside as many before, over all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from flask import render_template

from dither_aggregator.analysis.differences import DAYS, Changes, Comparison, Difference
from dither_aggregator.analysis.reading import Window
from dither_aggregator.store import Store
from dither_aggregator.web.pages.asking import saved_cards
from dither_aggregator.web.pages.presentation import count, lagging
from dither_aggregator.web.pages.presentations import presentation_of
from dither_aggregator.web.queries import changed
from dither_aggregator.web.query_parameters import Parameters, query_parameters
from dither_shared.safe_output import visible

VALUES_SHOWN = 5
METRICS_SHOWN = 100
MOVES_TOLD = 2
"""Values of the metric that moved most surely, in the headline."""


@dataclass(frozen=True)
class Moved:
    """The entry of a metric."""

    comparison: Comparison
    rows: Sequence[Difference]
    more: int
    """How many values moved that are not shown here."""


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    query_parameters(Parameters)
    found, left_out = changed(store)
    moved = [Moved(one, _shown(one), max(0, len(one.moved) - VALUES_SHOWN)) for one in found.moved[:METRICS_SHOWN]]
    state = [*lagging(store), *young(found.after)]
    asked = [card for card in saved_cards(store) if card.move]
    return render_template(
        "changes.html", found=found, moved=moved, headline=headline(found), left_out=left_out, state=state, asked=asked
    )


def _shown(one: Comparison) -> Sequence[Difference]:
    """Return the largest moves: of numbers mean and quantiles in the order of the metric's page."""
    largest = one.moved[:VALUES_SHOWN]
    if not one.after.stored.plan.domain.unit:
        return largest
    places = {row.value: at for at, row in enumerate(one.rows)}
    return sorted(largest, key=lambda row: places[row.value])


def young(after: Window) -> list[str]:
    """Return why the windows that pages choose are shorter than the week that a reader expects."""
    if after.days >= DAYS:
        return []
    return ["The counts go back less than two weeks: the later half of these days is compared with the earlier."]


def headline(found: Changes) -> str:
    """Return in a sentence what moved."""
    compared = len(found.moved) + len(found.still)
    if not compared:
        return "Nothing can be compared yet: no metric has reports of both windows."
    if not found.moved:
        return f"Nothing can be told to have moved, in any of {count(compared, 'metric')}."
    stored, rows = found.moved[0].after.stored, found.moved[0].moved
    moves = ", ".join(presentation_of(stored.plan).move(row) for row in rows[:MOVES_TOLD])
    where = f"{'most surely ' * (len(found.moved) > 1)}in “{visible(stored.question)}”"
    return f"Something moved in {len(found.moved):,} of {count(compared, 'metric')}, {where}: {moves}."
