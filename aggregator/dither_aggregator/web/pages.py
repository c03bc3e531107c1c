"""The pages: a list of the metrics, and for each what can be told of it. No script, no outside request."""

from flask import Flask, Response, render_template

from dither_aggregator.store import Store
from dither_aggregator.web.metric_page import elsewhere, rank_in_words
from dither_aggregator.web.metric_page import metric_page as shown_metric
from dither_aggregator.web.plot import precise

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def register(app: Flask, store: Store) -> None:
    """Add the pages."""
    app.jinja_env.filters["precise"] = precise
    app.jinja_env.filters["rank"] = rank_in_words
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True

    app.context_processor(lambda: {"lossy": store.lossy})

    @app.get("/")
    def index() -> str:
        epochs = store.all_epochs()
        metrics = [(stored, epochs.get(stored.id, [])) for stored in store.plans()]
        return render_template("index.html", app_name=store.app, metrics=metrics)

    @app.get("/metrics/<metric>")
    def metric_page(metric: str) -> tuple[str, int]:
        page = shown_metric(store, metric)
        html = render_template("metric.html", app_name=store.app, page=page, elsewhere=elsewhere(store, page))
        return html, 200 if page.reading else 410


def guard(response: Response) -> Response:
    """Let a page load its own style sheet and nothing else, from nowhere else."""
    if (response.mimetype or "").startswith(("text/", "image/")):
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
