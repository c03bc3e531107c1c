"""The cost of recording: no write where it is silent, one transaction where it is not, and never a checkpoint."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device, DeviceBusy
from dither.device.file import WAIT_S
from dither.sending import upload_thread
from dither.sending.transport import Answer, Outcome
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.faults.apps import Taker
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, begun, make, open_device, record, send
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled

WAL_BYTES_MAX = 1_000_000


def image(directory: Path) -> dict[str, bytes]:
    """Return the files, but for the index of the log, which readers mark."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}


@pytest.fixture
def statements(tmp_path: Path) -> Iterator[tuple[Device, Registry, list[str]]]:
    device, asked = make(Clock(), tmp_path)
    device.look()
    assert device._file._db
    seen: list[str] = []
    device._file._db.set_trace_callback(seen.append)
    yield device, asked, seen
    device.close()


@pytest.mark.parametrize("silence", ["answered", "refused", "not-agreed", "waiting", "expired", "spent", "quiet"])
def test_a_silent_record_writes_nothing(tmp_path: Path, silence: str) -> None:
    clock = Clock()
    changes = {"spent": {"reports": 1}, "quiet": {"quiet_days": 9}}.get(silence, {})
    asked = registry(**{"expires": EXPIRES, **changes})
    device = open_device(asked, tmp_path, clock, agree=silence != "not-agreed")
    if silence in ("answered", "waiting", "spent"):
        record(device, asked)
    if silence == "spent":
        send(device)
        clock.travel(1)
    elif silence == "waiting":
        clock.travel(1)
        record(device, asked)
        clock.travel(1)
    elif silence == "refused":
        device.refuse_metric("color", refused=True)
    elif silence == "expired":
        clock.travel(100)
    device.look()
    before = image(tmp_path)
    for _ in range(100):
        assert record(device, asked) == silence
    assert image(tmp_path) == before
    assert device.counters()[silence] >= 100


def test_reasons_that_a_transaction_did_not_keep_are_kept_by_the_next(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    record(device, asked)

    def failing(bits: int) -> int:
        raise OSError("no randomness")

    slots = device._slots
    rng, slots._rng = slots._rng, type(slots._rng)(failing)
    with pytest.raises(OSError, match="no randomness"):
        record(device, asked, "dark", True)
    slots._rng = rng
    assert record(device, asked, "dark", True) == ""
    assert device.counters() == {"answered": 1}


def test_what_another_process_refuses_holds_at_the_next_call(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    other, _ = make(clock, tmp_path, seed=2)
    assert [record(device, asked) for _ in range(3)] == ["", "answered", "answered"]
    other.refuse()
    assert record(device, asked) == "answered"  # silent as it was, and without a look into the file
    assert record(device, asked, "dark", True) == "refused"
    other.agree(chosen=True)
    assert record(device, asked) == "answered"  # the period stays answered
    assert record(device, asked, "dark", True) == ""


def test_the_next_day_is_noticed_without_a_look(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    assert [record(device, asked) for _ in range(3)] == ["", "answered", "answered"]
    clock.travel(1)
    assert [record(device, asked) for _ in range(2)] == ["", "answered"]


def test_a_receipt_of_another_process_brings_a_device_back_to_a_day_without_answers(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    other, _ = make(clock, tmp_path, seed=2)
    clock.travel(1)
    assert record(device, asked) == ""
    clock.travel(-1)
    assert record(device, asked) == "answered"
    other.settle("none that there is", "accepted", date=clock())
    assert record(device, asked) == ""


def test_an_answer_that_is_taken_is_one_transaction(statements: tuple[Device, Registry, list[str]]) -> None:
    device, asked, seen = statements
    assert device.record(asked.metrics["color"], "red", lambda: 5.0) == ""
    begun = [statement for statement in seen if statement.split()[0] in ("BEGIN", "COMMIT", "ROLLBACK")]
    assert begun == ["BEGIN IMMEDIATE", "COMMIT"]
    assert device.look().when is not None  # the moment was planned in it
    record(device, asked)  # the look has ended what was known
    seen.clear()
    assert record(device, asked) == "answered"
    assert seen == []  # nothing makes it untrue today


def test_what_is_known_outlasts_answers_to_other_metrics_and_looks(
    statements: tuple[Device, Registry, list[str]],
) -> None:
    """Neither lets a silent metric speak, though a look writes what was counted."""
    device, asked, seen = statements
    for _ in range(3):
        record(device, asked)
    assert record(device, asked, "dark", True) == ""
    assert record(device, asked) == "answered"
    device.look()
    seen.clear()
    assert record(device, asked) == "answered"
    assert seen == []


def test_a_metric_of_which_nothing_is_known_is_not_asked_for_it(statements: tuple[Device, Registry, list[str]]) -> None:
    device, asked, seen = statements
    record(device, asked)
    seen.clear()
    assert record(device, asked, "dark", True) == ""
    assert seen.count("PRAGMA data_version") == 1  # its transaction's own


def test_what_is_known_ends_with_an_upload_that_an_answer_builds(tmp_path: Path) -> None:
    """It empties the slots of others, and drops from them what the budget no longer bears."""
    device, asked, clock = begun(tmp_path)
    record(device, asked)
    clock.travel(1)
    assert record(device, asked, "dark", True) == ""
    assert device._file.recall("dark") == "answered"
    assert record(device, asked) == ""  # yesterday's is built to make room
    assert device._file.recall("dark") is None
    assert device._file.lately("dark") == "answered"


class Thinking(Taker):
    """A transport whose server does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def post(self, upload_id: str, body: bytes, stands: object) -> Answer:
        self.asked.set()
        assert self.answers.wait(60)
        return Answer(Outcome.KEPT, "no answer", connected=False)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["waits for its moment", "hangs"])
def test_the_log_stays_short_where_a_process_only_records(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred metrics for some days, as fast as it goes. The agreement to them is one write before.

    A log that nobody writes into the file is too long on the first day.
    """
    checkpoints: set[str] = set()
    tidy = Device.tidy

    def see(self: Device) -> bool:
        checkpoints.add(threading.current_thread().name)
        return tidy(self)

    monkeypatch.setattr(Device, "tidy", see)
    # A busy machine's thread has its turn later than an app waits.
    monkeypatch.setattr(upload_thread, "HURRY_WAIT_S", 50 * upload_thread.HURRY_WAIT_S)
    head, _, rest = registry_text(epsilon="0.01", reports=20, expires=EXPIRES).partition("[metric.color]")
    flag = rest.partition("[metric.dark]")[2]
    asked = Registry.parse(head.replace("40.0", "1000") + "".join(f"[metric.m{number}]{flag}" for number in range(300)))
    clock, transport = Clock(), Thinking()
    wal = tmp_path / f"{FILE_NAME}-wal"
    with closing(Telemetry(Settings(asked, transport, tmp_path, consent=True, clock=clock))) as telemetry:
        if server == "hangs":
            telemetry.m0.record(True)
            threading.Thread(target=telemetry.flush, args=(60,), daemon=True).start()
            assert transport.asked.wait(30)
        longest = 0
        for _ in range(scaled(3, 20)):
            for name in asked.metrics:
                getattr(telemetry, name).record(True)
                longest = max(longest, wal.stat().st_size)
            clock.travel(1)
            with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:  # so that the next day has answers to take
                db.execute("DELETE FROM slot")
                db.commit()
        assert longest < WAL_BYTES_MAX
        assert checkpoints == {"dither-uploader"}
        assert "failed" not in telemetry.status().counts
        transport.answers.set()


def test_closing_writes_the_log_into_the_file(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, **MEMO, seed=random.Random(1).getrandbits(8))
    record(device, asked)
    device.close()
    assert not (tmp_path / f"{FILE_NAME}-wal").exists()
    assert upload_thread.LOG_BYTES_HURRY < WAL_BYTES_MAX


@pytest.mark.parametrize("changes", range(4))
def test_what_is_known_of_a_metric_ends_with_the_connection_that_it_was_read_by(changes: int, tmp_path: Path) -> None:
    """Each connection counts what others have written from its own beginning: equal numbers may mean another file."""
    device, asked, clock = begun(tmp_path)
    other = open_device(asked, tmp_path, clock)
    for _ in range(2):
        record(device, asked)
    other.refuse_metric("dark", refused=True)
    for _ in range(2):
        assert record(device, asked, "dark", True) == "refused"
    device._file.before_fork()
    device._file.after_fork_in_parent()
    for _ in range(changes):
        other.refuse_metric("dark", refused=True)
        device.waiting()
    assert record(device, asked, "dark", True) == "refused"
    other.refuse_metric("dark", refused=False)
    assert record(device, asked, "dark", True) == ""


@pytest.mark.parametrize("ahead", [200, -1, 1])
def test_what_is_known_of_a_metric_ends_with_the_day_of_a_clock_that_is_wrong_for_a_moment(
    ahead: float, tmp_path: Path
) -> None:
    device, asked, clock = begun(tmp_path, period="7d")
    for _ in range(3):
        record(device, asked)
    device.agree()
    clock.travel(ahead)
    record(device, asked, "dark", True)
    clock.travel(-ahead)
    known = [record(device, asked, "dark", True) for _ in range(2)]
    fresh = open_device(asked, tmp_path, clock)
    assert known[-1] == record(fresh, asked, "dark", True)


def test_a_record_waits_once_for_a_thread_that_waits_for_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither.device.file.DURABLE_WAIT_S", 4 * WAIT_S)  # so long the thread waits
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    assert record(device, asked) == "answered"
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        took_s = list[float]()
        for _ in range(3):  # a busy machine may be late once
            waits = threading.Thread(target=lambda: suppressed(device.agree))
            waits.start()
            while not device._file._calls:
                pass
            began = time.monotonic()
            with pytest.raises(DeviceBusy):
                record(device, asked, "dark", answer=True)
            took_s.append(time.monotonic() - began)
            assert record(device, asked) == "answered"  # as it was said of this day
            waits.join()
        assert min(took_s) < 1.6 * WAIT_S
        other.execute("ROLLBACK")


def suppressed(action: Callable[[], None]) -> None:
    with suppress(sqlite3.OperationalError):
        action()
