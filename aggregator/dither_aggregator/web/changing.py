"""Requests with admin keys, answered in a thread of the server's own process: readers write nothing."""

import asyncio
from functools import cache

from flask import Flask, Response

from dither_aggregator.store import Store, StoreError, StoreUnavailable
from dither_aggregator.web import api, problems
from dither_aggregator.web.exchange import ReadAnswer, ReadRequest
from dither_aggregator.web.reading import ReadingApp, bare_app, respond
from dither_shared.errors import DitherError
from dither_shared.wire.problems import Problem


def _respond_not_done(error: DitherError) -> Response:
    return problems.respond(Problem("not-done", str(error)))


def changing_app(store: Store) -> ReadingApp:
    """Return the ASGI application of the addresses that change something; one change at a time."""
    one = asyncio.Lock()

    @cache
    def made() -> Flask:  # by the first request: most servers are never asked
        app = bare_app()
        api.register(app, store, api.CHANGES)
        problems.register(app)
        app.register_error_handler(DitherError, _respond_not_done)
        app.register_error_handler(StoreError, _respond_not_done)  # in the place of the reader's, whose fault it is not
        app.register_error_handler(StoreUnavailable, problems.respond_store)
        return app

    async def answer(asked: ReadRequest) -> ReadAnswer:
        async with one:
            return await asyncio.to_thread(lambda: respond(made(), asked))

    return ReadingApp(answer)
