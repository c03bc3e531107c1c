"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask

from dither_aggregator.service import Service
from dither_aggregator.web import api, pages, problems
from dither_aggregator.web.ingest import reports_app
from dither_shared.wire import PATH


def create_app(service: Service) -> WSGIApplication:
    """Return the WSGI application around a running service: uploads by themselves, everything else by Flask."""
    take_reports = reports_app(service)
    everything_else = _flask_app(service)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == PATH and environ["REQUEST_METHOD"] == "POST":
            return take_reports(environ, start_response)
        return everything_else(environ, start_response)

    return app


def _flask_app(service: Service) -> Flask:
    app = Flask("dither_aggregator.web")
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider; keys read best as written
    app.add_url_rule(PATH, "reports", methods=["POST"])  # never comes here; other methods are told so
    problems.register(app)
    api.register(app, service)
    pages.register(app, service.store)
    app.after_request(pages.guard)
    return app
