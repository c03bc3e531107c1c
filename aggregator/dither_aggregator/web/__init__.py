"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages."""

import asyncio
from collections.abc import Collection
from typing import Any

from dither_aggregator.ingest.service import Service
from dither_aggregator.web import problems
from dither_aggregator.web.addresses import is_known
from dither_aggregator.web.admin_requests import changing_app
from dither_aggregator.web.answers import App, Receive, Scope, Send, refusal
from dither_aggregator.web.authentication import ADMINISTRATION, Authentication, unstored
from dither_aggregator.web.health import answer_health
from dither_aggregator.web.hosts import check_monitor, check_reader
from dither_aggregator.web.listener_connections import HEALTH
from dither_aggregator.web.messages import ACTOR
from dither_aggregator.web.origins import PREFLIGHT, is_preflight
from dither_aggregator.web.upload_endpoint import Ingest
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem


def create_app(service: Service, reading: App, hosts: Collection[str] = (), *, reachable: bool = False) -> App:
    """Return the ASGI application around a running service. `reading` answers all that only reads.

    `hosts` are the names, beside localhost, under which somebody may read or monitor; `reachable` says that readers
    may come from beyond this machine, so that each of them needs a key.
    """
    authentication = Authentication(service, reachable=reachable)
    ingest, changing = Ingest(service, authentication), changing_app(service)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["state"].get(HEALTH):
            check_monitor(scope, hosts)
            await answer_health(service, scope).send(send)
        elif scope["path"] == PATH and scope["method"] == "POST":
            message = await receive()
            await (await ingest.answer(scope, message["body"])).send(send)
        elif is_preflight(scope):
            await receive()
            await PREFLIGHT.send(send)
        elif scope["path"].startswith(ADMINISTRATION) and is_known(scope["path"]):
            check_reader(scope, hosts)
            await changing({**scope, ACTOR: authentication.administer(scope)}, receive, unstored(send))
        else:
            check_reader(scope, hosts)
            await authentication.enter(scope, receive, send, reading)

    return in_words(answer)


def in_words(app: App) -> App:
    """Return an application that answers as another one does, and in our words where that fails."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        begun, refused = False, None

        async def note(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, note)
        except Problem as problem:
            refused = problem.with_traceback(None)  # which has this frame, and this frame has the problem: a circle
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            refused = Problem("unavailable", "the server is being stopped")
        except Exception as error:
            refused = problems.failure(error)
        if refused:
            problems.note_refused(refused)
        if refused and not begun:
            await refusal(refused).send(send)

    return answer
