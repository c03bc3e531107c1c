"""Requests with admin keys, answered in a thread of the server's own process: readers write nothing."""

import asyncio
from collections.abc import Callable
from functools import cache, partial

from flask import Response

from dither_aggregator.ingest.service import Service
from dither_aggregator.store import StoreError, StoreUnavailable
from dither_aggregator.web import problems
from dither_aggregator.web.page_requests import ReadingApp
from dither_aggregator.web.process_messages import ReadAnswer, ReadRequest
from dither_shared.errors import DitherError
from dither_shared.wire.reading import Problem

LOAD = "/v1/admin/registry/load"


def _respond_not_done(error: DitherError) -> Response:
    return problems.respond(Problem("not-done", str(error)))


def another_is_read() -> Problem:
    """Return why a registry is not taken while another one is read."""
    return Problem("too-many", "another registry is being read; send the same bytes again later")


def changing_app(service: Service) -> ReadingApp:
    """Return the application of the addresses that change something; one change at a time.

    A registry takes up to a minute to be read, for which nothing else waits; another one that comes then is refused.
    """
    one, store = asyncio.Lock(), service.store

    @cache
    def made() -> Callable[[ReadRequest], ReadAnswer]:
        # By the first request, which loads what it needs: most servers are never asked.
        from dither_aggregator.web import api, flask_apps

        app = flask_apps.bare_app()
        api.register(app, store, api.CHANGES)
        problems.register(app)
        app.register_error_handler(DitherError, _respond_not_done)
        app.register_error_handler(StoreError, _respond_not_done)  # in the place of the reader's, whose fault it is not
        app.register_error_handler(StoreUnavailable, problems.respond_store)
        return partial(flask_apps.respond, app)

    def load_alone(asked: ReadRequest) -> ReadAnswer:
        if not service.loading.acquire(blocking=False):  # held by the thread: who asked may have gone
            raise another_is_read()
        try:
            return made()(asked)
        finally:
            service.loading.release()

    async def answer(asked: ReadRequest) -> ReadAnswer:
        if asked.path == LOAD:
            return await asyncio.to_thread(load_alone, asked)
        async with one:
            return await asyncio.to_thread(lambda: made()(asked))

    return ReadingApp(answer)
