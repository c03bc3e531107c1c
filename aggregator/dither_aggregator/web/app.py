"""The application around a running service: who may come in, and who answers."""

import asyncio
from collections.abc import Collection

from dither_aggregator.ingest.service import Service
from dither_aggregator.web import problems
from dither_aggregator.web.admin_requests import changing_app
from dither_aggregator.web.allowed_hosts import PREFLIGHT, check_monitor, check_reader, is_preflight
from dither_aggregator.web.authentication import ADMINISTRATION, Authentication, unstored
from dither_aggregator.web.health_endpoints import answer_health
from dither_aggregator.web.http_messages import App, HttpAnswer, Scope
from dither_aggregator.web.listeners import HEALTH
from dither_aggregator.web.problems import refusal
from dither_aggregator.web.process_messages import ACTOR
from dither_aggregator.web.public_site import PublicSite
from dither_aggregator.web.upload_endpoint import Ingest
from dither_aggregator.web.url_paths import is_known
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem


def create_app(
    service: Service,
    reading: App,
    hosts: Collection[str] = (),
    *,
    reachable: bool = False,
    public: PublicSite | None = None,
) -> App:
    """Return the application around a running service. `reading` answers all that only reads.

    `hosts` are the names, beside localhost, under which somebody may read or monitor; `reachable` says that readers
    may come from beyond this machine, so that each of them needs a key; `public` is what they are shown without one.
    """
    authentication = Authentication(service, reachable=reachable)
    ingest, changing = Ingest(service, authentication), changing_app(service)

    async def answer(scope: Scope, body: bytes) -> HttpAnswer:
        if scope["state"].get(HEALTH):
            check_monitor(scope, hosts)
            return answer_health(service, scope)
        if scope["path"] == PATH and scope["method"] == "POST":
            return await ingest.answer(scope, body)
        if is_preflight(scope):
            return PREFLIGHT
        check_reader(scope, hosts)
        if public and public.has(scope["path"]):
            return await public.answer(scope)
        if scope["path"].startswith(ADMINISTRATION) and is_known(scope["path"]):
            return unstored(await changing({**scope, ACTOR: authentication.administer(scope)}, body))
        return await authentication.enter(scope, body, reading)

    return in_words(answer)


def in_words(app: App) -> App:
    """Return an application that answers as another one does, and in our words where that fails."""

    async def answer(scope: Scope, body: bytes) -> HttpAnswer:
        try:
            return await app(scope, body)
        except Problem as problem:
            refused = problem.with_traceback(None)  # which has this frame, and this frame has the problem: a circle
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            refused = Problem("unavailable", "the server is being stopped")
        except Exception as error:
            refused = problems.failure(error)
        problems.note_refused(refused)
        return refusal(refused)

    return answer
