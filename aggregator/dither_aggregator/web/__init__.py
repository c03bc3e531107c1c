"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages."""

from collections.abc import Collection

from dither_aggregator.service import Service
from dither_aggregator.web.answers import App, Receive, Scope, Send, refusal
from dither_aggregator.web.health import answer_health
from dither_aggregator.web.hosts import refused_reader
from dither_aggregator.web.ingest import Ingest
from dither_aggregator.web.server import HEALTH
from dither_shared.wire import PATH


def create_app(service: Service, reading: App, hosts: Collection[str] = ()) -> App:
    """Return the ASGI application around a running service. Whatever is not an upload is for `reading`.

    `hosts` are the names, beside localhost, under which somebody may read.
    """
    ingest = Ingest(service)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["state"].get(HEALTH):
            await answer_health(service, scope).send(send)
        elif scope["path"] == PATH and scope["method"] == "POST":
            message = await receive()
            await (await ingest.answer(scope, message["body"])).send(send)
        elif problem := refused_reader(scope, hosts):
            await refusal(problem).send(send)
        else:
            await reading(scope, receive, send)

    return app
