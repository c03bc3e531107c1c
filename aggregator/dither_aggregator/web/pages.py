"""The pages: a list of the metrics, and for each its estimates as a plot and a table. No script, no outside request."""

from flask import Flask, Response, render_template, request

from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.store import Store
from dither_aggregator.web.api import requested
from dither_aggregator.web.plot import draw, percent

PLOT_ROWS = 25

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def register(app: Flask, store: Store) -> None:
    """Add the pages."""
    app.jinja_env.filters["precise"] = precise
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True

    app.context_processor(lambda: {"lossy": store.lossy})

    @app.get("/")
    def index() -> str:
        epochs = store.all_epochs()
        metrics = [(stored, epochs.get(stored.id, [])) for stored in store.plans()]
        return render_template("index.html", app_name=store.app, metrics=metrics)

    @app.get("/metrics/<metric>")
    def metric_page(metric: str) -> str:
        reading = requested(store, metric)
        rows = sorted(reading.rows, key=lambda row: -row.estimate)
        shown = rows if "all" in request.args else rows[:PLOT_ROWS]
        return render_template(
            "metric.html",
            app_name=store.app,
            reading=reading,
            plan=reading.stored.plan,
            epochs=store.epochs(reading.stored.plan),
            rows=rows,
            plot=draw(shown, reading.noise_floor) if reading.noise_floor and rows else None,
            confidence=percent(CONFIDENCE, 0),
        )


def precise(share: float, std_error: float) -> str:
    """Return a share as percent with the digits that its standard error leaves it."""
    points = 100 * std_error
    return percent(share, 0 if points >= 5 else 1 if points >= 0.5 else 2 if points >= 0.05 else 3)


def guard(response: Response) -> Response:
    """Let a page load its own style sheet and nothing else, from nowhere else."""
    if (response.mimetype or "").startswith(("text/", "image/")):
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
