"""Requests with admin keys, answered in a thread of the server's own process: readers write nothing."""

import asyncio
from collections.abc import Callable
from functools import cache, partial

from flask import Response

from dither_aggregator.store import Store, StoreError, StoreUnavailable
from dither_aggregator.web import problems
from dither_aggregator.web.exchange import ReadAnswer, ReadRequest
from dither_aggregator.web.reading import ReadingApp
from dither_shared.errors import DitherError
from dither_shared.wire.problems import Problem


def _respond_not_done(error: DitherError) -> Response:
    return problems.respond(Problem("not-done", str(error)))


def changing_app(store: Store) -> ReadingApp:
    """Return the ASGI application of the addresses that change something; one change at a time."""
    one = asyncio.Lock()

    @cache
    def made() -> Callable[[ReadRequest], ReadAnswer]:
        # By the first request, which loads what it needs: most servers are never asked.
        from dither_aggregator.web import api, wsgi

        app = wsgi.bare_app()
        api.register(app, store, api.CHANGES)
        problems.register(app)
        app.register_error_handler(DitherError, _respond_not_done)
        app.register_error_handler(StoreError, _respond_not_done)  # in the place of the reader's, whose fault it is not
        app.register_error_handler(StoreUnavailable, problems.respond_store)
        return partial(wsgi.respond, app)

    async def answer(asked: ReadRequest) -> ReadAnswer:
        async with one:
            return await asyncio.to_thread(lambda: made()(asked))

    return ReadingApp(answer)
