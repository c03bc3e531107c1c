"""The first page: every metric, a row each."""

from flask import render_template

from dither_aggregator.store import Store
from dither_aggregator.web.asking import Asked, given


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    given(Asked)
    epochs = store.all_epochs()
    metrics = [(stored, epochs.get(stored.id, [])) for stored in store.plans()]
    return render_template("overview.html", metrics=metrics)
