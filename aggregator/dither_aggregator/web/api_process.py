"""A store in Redis, served: the ASGI application that each process of `dither api` has a copy of."""

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from dither_aggregator.health.capacity import Capacity
from dither_aggregator.ingest.limits import Limits
from dither_aggregator.ingest.service import Service
from dither_aggregator.operations.computing import Address, Computer
from dither_aggregator.operations.log import set_up_logging
from dither_aggregator.store import StoreError, open_store
from dither_aggregator.web import create_app
from dither_aggregator.web.addresses import BasePath
from dither_aggregator.web.admission import Admission
from dither_aggregator.web.answers import App, Receive, Scope, Send
from dither_aggregator.web.page_requests import ReadingApp
from dither_aggregator.web.readers import Readers
from dither_aggregator.workers.candidate_jobs import CandidateJobs, secret_of
from dither_aggregator.workers.publisher import Publisher
from dither_aggregator.workers.tasks import TaskQueue, make_app
from dither_shared.errors import DitherError
from dither_shared.harmless import visible
from dither_shared.wire.problems import Problem

READERS = 1
"""A process: there are several."""


@dataclass
class ServedStore:
    """Opens in its lifespan what one process needs of its own; it publishes tasks for what it wrote last before it
    ends.

    A process that is started again takes up no other store: it would refuse the keys of this one for good.
    """

    data: str
    broker: str | None
    generation: str
    allow_lossy_store: bool
    hosts: tuple[str, ...]
    reachable: bool
    limits: Limits = field(default_factory=Limits)
    """The part of one process."""
    capacity: Capacity = field(default_factory=Capacity)
    base_path: BasePath = field(default_factory=BasePath)
    _app: App | None = field(default=None, init=False)
    _admission: Admission | None = field(default=None, init=False)
    _readers: Readers | None = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or open and close what answers them."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            assert self._app
            await self._app(scope, receive, send)

    def admit(self, scope: Scope) -> Problem | None:
        """Return why a request is not to be read."""
        return self._admission.admit(scope) if self._admission else None

    def look(self) -> None:
        """Forget whom there is no need to know any more."""
        if self._admission:
            self._admission.look()

    async def close(self) -> None:
        """End the readers."""
        if self._readers:
            await self._readers.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        with ExitStack() as opened:
            try:
                self._app = self._open(opened)
            except DitherError as error:
                print(f"dither: {visible(str(error))}", file=sys.stderr, flush=True)
            except Exception:
                logging.getLogger("dither_aggregator").exception("a server process failed")
            await send({"type": "lifespan.startup.complete" if self._app else "lifespan.startup.failed"})
            if self._app:
                await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _open(self, opened: ExitStack) -> App:
        set_up_logging()
        store = opened.enter_context(closing(open_store(self.data, allow_lossy_store=self.allow_lossy_store)))
        if store.generation != self.generation:
            raise StoreError("another store was put in the place of the one that this was started on: restart it")
        if self.broker:
            task_queue = opened.enter_context(closing(TaskQueue(make_app(self.broker))))
            publisher = opened.enter_context(Publisher(task_queue.publish))
            service = opened.enter_context(Service(store, publisher.reports_came, self.capacity))
            want: Callable[[Address], None] = publisher.want
        else:
            computer = Computer(store, self.data, alone=False)
            service = opened.enter_context(Service(store, capacity=self.capacity, computer=computer))
            want = service.want
        self._admission = Admission(service, self.limits, self.base_path)
        look_for_many = None
        if self.broker:
            jobs_queue = opened.enter_context(closing(TaskQueue(make_app(self.broker))))
            look_for_many = CandidateJobs(self.broker, secret_of(store), jobs_queue.publish).answer
        self._readers = Readers(self.data, self.generation, READERS, look_for_many, want)
        return create_app(service, ReadingApp(self._readers.answer), self.hosts, reachable=self.reachable)
