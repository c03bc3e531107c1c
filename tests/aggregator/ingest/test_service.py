"""The writer behind the HTTP server, when its store hangs, comes back, or ends it."""

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.ingest import service as module
from dither_aggregator.ingest.service import Service, Submitted, WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, SQLiteStore, Store, StoreUnavailable
from dither_shared.wire.reading import Problem, Upload, parse_upload
from tests.support.registries import registry
from tests.support.stores import body_of
from tests.support.waiting import wait_until

WITHIN_S = 20


class Hanging(SQLiteStore):
    """A store that takes nothing until it may."""

    may = threading.Event()
    began = threading.Event()

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        self.began.set()
        assert self.may.wait(WITHIN_S)
        return super().append(uploads)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Hanging]:
    Hanging.create(tmp_path, registry().app).close()
    with closing(Hanging(tmp_path)) as made:
        made.may, made.began = threading.Event(), threading.Event()
        made.load(registry())
        yield made


def submit(service: Service, bits: int = 1) -> Submitted:
    body = body_of(registry(), {"dark": [1] * bits})
    return service.submit(parse_upload(body, service.store.find_plan), body)


def counted(store: SQLiteStore) -> int:
    return sum(row.accepted for row in store.ledger())


def test_a_store_that_hangs_holds_so_many_uploads_and_no_more(store: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_UPLOADS_MAX", 10)
    with Service(store) as service:
        taken = [submit(service)]
        assert store.began.wait(WITHIN_S)
        taken += [submit(service) for _ in range(10)]
        with pytest.raises(Problem, match="too much waits"):
            submit(service)
        store.may.set()
        assert all(isinstance(each.result(WITHIN_S), Receipt) for each in taken)
        assert isinstance(submit(service).result(WITHIN_S), Receipt)
    assert counted(store) == 12


def test_a_store_that_hangs_holds_so_many_bytes_and_no_more(store: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(store) as service:
        taken = [submit(service, 500)]
        assert store.began.wait(WITHIN_S)
        monkeypatch.setattr(module, "WAITING_BYTES_MAX", 5 * len(body_of(registry(), {"dark": [1] * 500})))
        with suppress(Problem):
            for _ in range(20):
                taken.append(submit(service, 500))
        assert 2 < len(taken) < 20
        with pytest.raises(Problem, match="too much waits"):
            submit(service, 500)
        store.may.set()
        assert all(isinstance(each.result(WITHIN_S), Receipt) for each in taken)
        for _ in range(3 * len(taken)):  # room is given back
            assert isinstance(submit(service, 500).result(WITHIN_S), Receipt)


def test_what_was_given_up_before_its_commit_is_not_stored(store: Hanging) -> None:
    with Service(store) as service:
        first = submit(service)
        assert store.began.wait(WITHIN_S)
        second, third = submit(service), submit(service)
        assert not first.cancel()  # nobody knows what will become of it
        assert second.cancel()
        store.may.set()
        assert isinstance(first.result(WITHIN_S), Receipt)
        assert isinstance(third.result(WITHIN_S), Receipt)
    assert counted(store) == 2


def test_an_end_waits_for_no_upload_that_was_given_up(store: Hanging) -> None:
    with Service(store) as service:
        first = submit(service)
        assert store.began.wait(WITHIN_S)
        for _ in range(3 * module.COMMIT_UPLOADS_MAX):
            assert submit(service).cancel()
        store.began.clear()
        store.may.set()
        assert isinstance(first.result(WITHIN_S), Receipt)
    assert not store.began.is_set()
    assert counted(store) == 1


def test_tasks_that_cannot_be_published_end_no_writer(store: Hanging) -> None:
    def fail(shards: Collection[int]) -> None:
        if shards:
            raise RuntimeError("no tasks")

    store.may.set()
    with Service(store, fail) as service:
        for _ in range(3):
            assert isinstance(submit(service).result(WITHIN_S), Receipt)
    assert counted(store) == 3


def test_whatever_a_look_for_final_days_meets_ends_no_scheduler(
    store: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []

    def fail(store: Store) -> list[str]:
        looks.append(None)
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(module, "MAINTAIN_EVERY_S", 0.01)
    monkeypatch.setattr(maintenance, "unfinalized", fail)
    with WholeService(store) as service:
        wait_until(lambda: len(looks) >= 3, WITHIN_S)
        assert service.trouble() == {"finalizing": "nobody foresaw this"}


def test_the_log_says_when_a_store_and_a_writer_recover(
    store: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REFRESH_EVERY_S", 0.01)
    caplog.set_level(logging.WARNING)

    def fail(*_: object) -> None:
        raise StoreUnavailable("away")

    def said(line: str) -> bool:
        return line in caplog.messages

    store.may.set()
    with Service(store) as service:
        with monkeypatch.context() as away:
            away.setattr(store, "refresh", fail)
            away.setattr(store, "append", fail)
            assert isinstance(submit(service).result(WITHIN_S), Problem)
            wait_until(lambda: said("store: away") and said("writer: away"), WITHIN_S)
            assert not [line for line in caplog.messages if "again" in line]
        assert isinstance(submit(service).result(WITHIN_S), Receipt)
        wait_until(lambda: said("store: as it must be again") and said("writer: as it must be again"), WITHIN_S)
        assert isinstance(submit(service).result(WITHIN_S), Receipt)
    assert caplog.messages.count("writer: as it must be again") == 1


def test_a_store_is_looked_at_before_uploads_are_taken(store: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first ones would be taken by a store of which nobody knows whether it may lose them."""
    monkeypatch.setattr(store, "trouble", lambda: {Trouble.SETTINGS: "it may lose them"})
    monkeypatch.setattr(Service, "_watch", lambda self: self._stopping.wait())
    with Service(store) as service:
        assert service.trouble() == {Trouble.SETTINGS: "it may lose them"}
        assert service.store_status
        with pytest.raises(Problem, match="may lose what it acknowledges"):
            submit(service)


def test_a_look_that_fails_does_not_forget_that_the_store_may_lose_uploads(
    store: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "trouble", lambda: {Trouble.SETTINGS: "it may lose them"})
    monkeypatch.setattr(Service, "_watch", lambda self: self._stopping.wait())

    def fail() -> None:
        raise StoreUnavailable("away")

    with Service(store) as service:
        with monkeypatch.context() as away:
            away.setattr(store, "refresh", fail)
            service._look()
        assert service.trouble() == {"settings": "it may lose them", "store": "away"}
        with pytest.raises(Problem, match="may lose what it acknowledges"):
            submit(service)
        monkeypatch.setattr(store, "trouble", dict)
        service._look()
        assert service.trouble() == {}


def test_whatever_a_look_meets_ends_no_watcher(
    store: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[None] = []

    def fail() -> None:
        looks.append(None)
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(module, "REFRESH_EVERY_S", 0.01)
    monkeypatch.setattr(store, "refresh", fail)
    with Service(store) as service:
        wait_until(lambda: len(looks) > 3, WITHIN_S)
        assert service.trouble() == {"store": "nobody foresaw this"}
        monkeypatch.undo()
        wait_until(lambda: not service.trouble(), WITHIN_S)
    assert caplog.messages.count("the store could not be looked at") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_has_ended_is_given_nothing(store: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    def end(uploads: object) -> None:
        raise Ended

    monkeypatch.setattr(store, "append", end)
    with Service(store) as service:
        submit(service)
        service._writer.join(WITHIN_S)
        with pytest.raises(Problem, match="not written any more"):
            submit(service)
        assert "writer" in service.trouble()
