"""A store in Redis, served: what each process of `dither api` has a copy of, and opens for itself."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from dither_aggregator.health.capacity import Capacity
from dither_aggregator.ingest.request_limits import Limits
from dither_aggregator.ingest.service import Service
from dither_aggregator.operations.computing_process import Address, Computer
from dither_aggregator.operations.log import set_up_logging
from dither_aggregator.store import StoreError, open_store
from dither_aggregator.web import create_app
from dither_aggregator.web.page_requests import ReadingApp
from dither_aggregator.web.process_supervisor import Opened
from dither_aggregator.web.reader_pool import Readers
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.url_paths import BasePath
from dither_aggregator.workers.candidate_jobs import CandidateJobs, secret_of
from dither_aggregator.workers.publisher import Publisher
from dither_aggregator.workers.tasks import TaskQueue, make_app

READERS = 1
"""A process: there are several."""


@dataclass
class ServedStore:
    """Opens what one process needs of its own; that publishes tasks for what it wrote last before it is closed.

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

    def open(self, opened: ExitStack) -> Opened:
        """Open what one process needs of its own."""
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
        look_for_many = None
        if self.broker:
            jobs_queue = opened.enter_context(closing(TaskQueue(make_app(self.broker))))
            look_for_many = CandidateJobs(self.broker, secret_of(store), jobs_queue.publish).answer
        readers = Readers(self.data, self.generation, READERS, look_for_many, want)
        app = create_app(service, ReadingApp(readers.answer), self.hosts, reachable=self.reachable)
        return Opened(app, Admission(service, self.limits, self.base_path), readers.close)
