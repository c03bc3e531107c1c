"""A year of one app: its devices, its aggregator, what happens to both of them, and an account of every upload.

It begins with the files of a release before: a store and devices that today's code has to bring to its own versions.
Devices are found again at each start of their app, and send over HTTP; of some uploads nobody hears the answer.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import dither.device.recording
from dither.device import Device
from dither.sending.transport import Answer, HttpTransport, Outcome
from dither.sending.upload_thread import Sender
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, dump
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.restoring import restore
from dither_shared.exact import to_micro
from dither_shared.frozen import replaced
from dither_shared.registry import Registry
from dither_shared.rng import Rng, keyed_rng
from dither_shared.wire import WireGroup, encode_upload
from tests.faults.aggregator.oracle import Oracle
from tests.faults.aggregator.uploads import Sent, SentGroup
from tests.pinned.devices import of_today
from tests.support.aggregators import http_server, web_app
from tests.support.clocks import Clock

NOBODY = "http://127.0.0.1:9"
"""An address without an aggregator."""
UNHEARD = 0.08
"""How often nobody hears the answer to an upload that was stored."""


class Books:
    """The account of all uploads: those of the pinned store, and each that a device made a connection for."""

    def __init__(self, *registries: Registry) -> None:
        self.oracle = Oracle("year", registries[0], *registries[1:])
        self.copies = 0
        """Uploads that came again, and were known."""

    def note(self, id_: str, body: bytes) -> None:
        """Take an upload into the account when it is first sent."""
        if id_ in self.oracle.ids():
            return
        groups = []
        for group in json.loads(body)["groups"]:
            key, cell = (group["metric"], group["plan"]), group.get("cell", 0)
            shape = self.oracle.uploads.plans[key].cells.mechanism_of(cell).shape
            reports = [shape.from_wire(report) for report in group["reports"]]
            groups.append(SentGroup(key, len(reports), shape.pack(reports), cell=cell))
        self.oracle.note(Sent(id_, body, tuple(groups)))

    def stored(self, id_: str, *, duplicate: bool) -> None:
        """Account for a receipt, whether the device hears of it or not."""
        n = sum(group.n for group in self.oracle.sent(id_).groups)
        self.copies += duplicate
        self.oracle.acknowledged(id_, {"upload": id_, "accepted": n, "duplicate": duplicate, "rejected": []})

    def stored_before(self, id_: str, groups: Sequence[WireGroup]) -> None:
        """Account for an upload of the release before."""
        self.note(id_, encode_upload(id_, groups))
        self.stored(id_, duplicate=False)


class Post:
    """A device's way to the aggregator, on which some answers are lost."""

    def __init__(
        self,
        url: str,
        key: str,
        books: Books,
        clock: Clock,
        unheard: Callable[[], bool],
        left: Callable[[str, bytes], None],
    ) -> None:
        self._inner = HttpTransport(url, key)
        self._books, self._clock, self._unheard, self._left = books, clock, unheard, left
        self.answers: Counter[str] = Counter()

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        body = of_today(body)

        def stand() -> None:
            stands()
            self._books.note(upload_id, body)
            self._left(upload_id, body)

        answer = self._inner.post(upload_id, body, stand)
        answer = replaced(answer, date=self._clock.now)  # the server itself says today's
        assert (answer.rejected, answer.outcome is Outcome.DROPPED) == (0, False), answer
        self.answers[answer.detail] += 1
        if answer.outcome is not Outcome.ACCEPTED:
            return answer
        self._books.stored(upload_id, duplicate=answer.duplicate)
        return Answer(Outcome.KEPT, "no answer") if self._unheard() else answer

    def idle(self) -> None:
        self._inner.idle()


@dataclass
class Phone:
    """A device: its file, what its app ships, and what it must never do."""

    directory: Path
    name: str
    registry: Registry
    key: str
    agrees: bool = True
    """Whether its person agrees to what a registry asks, each time that it asks."""
    spent: dict[str, int] = field(default_factory=dict)
    memos: dict[str, set[tuple[bytes, bytes]]] = field(default_factory=dict)
    """The bytes that the permanent answers of each memo were drawn from."""
    said: Counter[str] = field(default_factory=Counter)
    """Reports that left, by metric."""
    answers: Counter[str] = field(default_factory=Counter)
    """How often its attempts got each answer."""
    runs: int = 0
    asked: int = 0
    """How often its person was asked, and agreed."""
    left: set[str] = field(default_factory=set)
    """Ids of uploads for which a connection stood."""

    def run(self, day: int, url: str, books: Books, clock: Clock, unheard: Callable[[], bool]) -> None:
        """Start the app for a moment: record, send what is due, and end."""
        self.runs += 1
        rng = Rng(random.Random(f"{self.name} {self.runs}").getrandbits)
        device = Device(self.registry, self.directory, rng, clock)
        post = Post(url, self.key, books, clock, unheard, self._note)
        try:
            device.open()
            if device.choice() is None or (device.asks() and self.agrees):
                self.asked += 1
                device.agree(chosen=True)
            device.begin()
            self._record(device, day)
            sender = Sender(device, post, clock)
            while sender.attempt() is Outcome.ACCEPTED:
                pass
            self._check(device)
        finally:
            post.idle()
            device.close()
            self.answers += post.answers

    def _record(self, device: Device, day: int) -> None:
        """Record what the person does today: the memos' answers never change."""
        drawn: list[tuple[bytes, bytes]] = []

        def keyed(secret: bytes, context: bytes) -> Rng:
            drawn.append((secret, context))
            return keyed_rng(secret, context)

        with mock.patch.object(dither.device.recording, "keyed_rng", keyed):
            for name, metric in self.registry.metrics.items():
                drawn.clear()
                answer = {"theme": "red", "word": "hello"}.get(name, ("red", "green", "blue")[day % 3])
                device.record(metric, answer)
                if metric.memoized:
                    self.memos.setdefault(name, set()).update(drawn)

    def _note(self, id_: str, body: bytes) -> None:
        if id_ not in self.left:
            self.left.add(id_)
            self.said.update(group["metric"] for group in json.loads(body)["groups"])

    def _check(self, device: Device) -> None:
        """Look that the budget only grew, and never beyond what the person agreed to."""
        spent = device.spent()
        for metric, before in self.spent.items():
            assert spent[metric] >= before, f"{self.name}: what {metric} spent was refreshed"
        total, most = sum(spent.values()), device._agreement.epsilon()
        assert total <= most <= to_micro(self.registry.device_epsilon), f"{self.name} spent {total} of {most}"
        self.spent = spent


class Year:
    """The aggregator through the year, and the phones that send to it."""

    def __init__(self, home: Path, clock: Clock, books: Books, phones: list[Phone], seed: int) -> None:
        self.home, self.clock, self.books, self.phones = home, clock, books, phones
        self.day = 0
        self.url = NOBODY
        self.store: Store | None = None
        self._rng = random.Random(f"year {seed}")
        self._served = ExitStack()
        self._silenced = False

    # The aggregator.

    def serve(self, store: Store) -> None:
        """Serve a store from now on."""
        self.store = store
        self._served.enter_context(closing(store))
        self._set_clock()
        service = self._served.enter_context(WholeService(store))
        server = http_server(web_app(service))
        self._served.enter_context(server.in_background())
        self.url = server.url

    def close(self) -> None:
        """Stop whatever runs."""
        self._served.close()

    def stop(self) -> None:
        """Stop serving: from here on nothing is acknowledged."""
        self._served.close()
        self.store, self.url = None, NOBODY

    def fold(self) -> Store:
        """Count what waits, close the days that are over, and return the store."""
        assert self.store
        for shard in range(self.store.shards):
            self.store.fold_all(shard)
            maintenance.maintain(self.store, shard)
        maintenance.maintain_whole(self.store)
        for metric in maintenance.unfinalized(self.store):
            maintenance.finalize(self.store, metric)
        return self.store

    def _set_clock(self) -> None:
        """Let the store's day be that of the devices: a Redis has a clock of its own."""
        assert self.store
        if isinstance(self.store, RedisStore):
            self.store.set_clock_offset(self.clock.now - time.time())
        self.store.refresh()

    # The days.

    def pass_until(self, day: int, *, every: int) -> None:
        """Let days pass; on each `every`th the apps are started, as a rule."""
        while self.day < day:
            if self.day % every == 0:
                self.run_phones(0.8)
            self.day += 1
            self.clock.travel(1)
            if self.store:
                self._set_clock()

    def run_phones(self, share: float = 1.0) -> None:
        """Start the app on some of the phones."""
        for phone in self.phones:
            if self._rng.random() < share:
                phone.run(self.day, self.url, self.books, self.clock, self._unheard)

    def _unheard(self) -> bool:
        return self._silenced or self._rng.random() < UNHEARD

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Let no device hear an answer."""
        self._silenced = True
        try:
            yield
        finally:
            self._silenced = False

    # The store's events.

    def back_up(self, file: Path, directory: Path) -> None:
        """Write a backup of a directory's store, served or not."""
        with closing(SQLiteStore(directory, self.clock, read_only=True)) as store:
            dump.write(file, store.dump())

    def restored(self, file: Path, directory: Path) -> SQLiteStore:
        """Return a new store of a backup."""
        made = SQLiteStore.create(directory, dump.app_of(file), self.clock, unfinished=True)
        restore(made, dump.read(file))
        return made

    def check(self) -> None:
        """Look that every upload that was stored is counted once, and that the store is sound."""
        self.books.oracle.check(self.fold())
