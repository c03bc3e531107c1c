"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages."""

from flask import Flask

from dither_aggregator.service import Service
from dither_aggregator.web import api, ingest, pages, problems


def create_app(service: Service) -> Flask:
    """Return the WSGI application around a running service."""
    app = Flask("dither_aggregator.web")
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider; keys read best as written
    problems.register(app)
    ingest.register(app, service)
    api.register(app, service)
    pages.register(app, service.store)
    app.after_request(pages.guard)
    return app
