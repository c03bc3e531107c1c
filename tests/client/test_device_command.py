import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.cli import main
from dither.commands.device import inspect
from dither.device import FILE_NAME
from dither.device.file import DeviceFile
from dither.device.recording import REASONS
from dither.sending.transport import Answer, Outcome
from dither.session import Settings
from dither.starting import default_data_dir
from dither.telemetry import Telemetry
from tests.support.aggregators import dither
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, begun, connect, make, record, send
from tests.support.registries import registry


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A device with a charged answer, one that waits, and a metric that is refused."""
    device, asked = make(Clock(), tmp_path, **MEMO)
    record(device, asked, answer="blue")
    send(device)
    device.look()
    assert device.record(asked.metrics["dark"], True, lambda: 60.0) == ""
    device.agree(chosen=True)
    device.refuse_metric("gone", refused=True)
    device.close()
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(word) for word in arguments]) == 0
    return capsys.readouterr().out


def test_inspect_shows_what_the_device_keeps(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dither.commands.device.DeviceFile", lambda where, create: DeviceFile(where, Clock(), create=create)
    )
    document = json.loads(said(capsys, "device", "inspect", directory, "--json"))
    assert document == {
        "app": "example",
        "first_day": "2026-11-20",
        "last_day": "2026-11-20",
        "choice": "agreed",
        "refused": ["gone"],
        "metrics": {"color": ANSWERED, "dark": ANSWERED, "gone": {"silent": "refused", "until": None}},
        "silent_until": None,
        "erasing": False,
        "cohort": None,
        "used": None,
        "waiting": ["dark"],
        "built_uploads": [],
        "last_outcome": "accepted",
        "last_attempt": "2026-11-20T12:00:00+00:00",
        "next_attempt": "2026-11-20T12:01:00+00:00",
        "counts": {"accepted": 1},
    }
    lines = said(capsys, "device", "inspect", directory).splitlines()
    assert "waiting            dark" in lines
    assert "counts             accepted 1" in lines
    assert "cohort             -" in lines
    (metrics,) = [line for line in lines if line.startswith("metrics")]
    assert "color: answered (this period was answered, until 2026-11-21); dark: answered (" in metrics
    assert metrics.endswith("gone: refused (the person refused)")


ANSWERED = {"silent": "answered", "until": "2026-11-21"}


def test_inspect_shows_an_upload_that_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device, asked, clock = begun(tmp_path)
    record(device, asked)
    built = device.next_upload()
    assert built is not None
    device.put_off(built.id, "no answer (ConnectionError)", clock() + 60)
    document = json.loads(said(capsys, "device", "inspect", tmp_path, "--json"))
    assert document["built_uploads"] == [{"reports": 1, "charged": False, "failed_attempts": 1, "first_attempt": None}]
    assert document["last_outcome"] == "no answer (ConnectionError)"
    connect(device)
    device.close()
    document = json.loads(said(capsys, "device", "inspect", tmp_path, "--json"))
    assert document["built_uploads"] == [
        {"reports": 1, "charged": True, "failed_attempts": 1, "first_attempt": "2026-11-20T12:00:00+00:00"}
    ]


Life = Callable[[Telemetry, Clock], None]


def answers(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.color.record("red")


def answers_and_sends(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.color.record("red")
    telemetry.flush(5)
    clock.travel(1)


def answers_and_waits_for_a_day_off(telemetry: Telemetry, clock: Clock) -> None:
    answers_and_sends(telemetry, clock)
    while telemetry.status().metrics["color"].silent != "unscheduled":  # on 3 days of 365 at most
        clock.travel(1)


def answers_and_cannot_send(telemetry: Telemetry, clock: Clock) -> None:
    for _ in range(2):
        telemetry.color.record("red")
        clock.travel(1)
    telemetry.color.record("red")


def refuses_one(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.set_consent(False, metric="color")


def refuses_all(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.set_consent(False)


def forgets(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.forget()


def expires(telemetry: Telemetry, clock: Clock) -> None:
    answers_and_sends(telemetry, clock)
    clock.travel(100)


def goes_back(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.color.record("red")
    clock.travel(-3)
    assert telemetry._session.uploader
    telemetry._session.uploader.start()  # it looks, and plans anew


class TaskHandlers:
    """A transport that answers with an outcome."""

    def __init__(self, outcome: Outcome, **more: Any) -> None:
        self._answer = Answer(outcome, outcome.value, **more)

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        return self._answer

    def idle(self) -> None:
        pass


TAKEN = TaskHandlers(Outcome.ACCEPTED)
LIVES: dict[str, tuple[Life, dict[str, Any], TaskHandlers]] = {
    "speaks": (lambda telemetry, clock: None, {}, TAKEN),
    "answered": (answers, {"period": "7d"}, TAKEN),
    "waiting": (answers_and_cannot_send, {}, TaskHandlers(Outcome.KEPT)),
    "spent": (answers_and_sends, {"reports": 1}, TAKEN),
    "a memo is never spent": (answers_and_sends, MEMO, TAKEN),
    "quiet": (answers, {"quiet_days": 3}, TAKEN),
    "forgotten": (forgets, {}, TAKEN),
    "expired": (expires, {}, TAKEN),
    "refused": (refuses_one, {}, TAKEN),
    "all refused": (refuses_all, {}, TAKEN),
    "unscheduled": (answers_and_waits_for_a_day_off, {"schedule": "spread", "reports": 3, "epsilon": "1"}, TAKEN),
    "clock-behind": (goes_back, {}, TAKEN),
    "retired": (answers_and_sends, {}, TaskHandlers(Outcome.DROPPED, retired=(0,))),
    "wrong-key": (answers_and_sends, {}, TaskHandlers(Outcome.STOPPED)),
    "hidden": (answers, {"presence": "hidden", "reports": 20, "epsilon": "1"}, TAKEN),
}


@pytest.mark.parametrize("life", LIVES)
def test_inspect_says_of_each_metric_and_of_sending_what_the_app_is_told(life: str, tmp_path: Path) -> None:
    lives, changes, transport = LIVES[life]
    clock = Clock()
    asked = registry(**{"expires": EXPIRES, **changes})
    telemetry = Telemetry(Settings(asked, transport, tmp_path, True, clock=clock))
    try:
        lives(telemetry, clock)
        status = telemetry.status()
        shown: dict[str, object] = {}
        while status != (status := telemetry.status()) or not shown:  # the thread may be sending meanwhile
            file = DeviceFile(tmp_path, clock, create=False)
            shown = inspect(file)
            file.close()
        assert shown["metrics"] == {
            name: {"silent": metric.silent, "until": metric.until and metric.until.isoformat()}
            for name, metric in status.metrics.items()
        }
        if life in REASONS:
            assert status.metrics["color"].silent == life
        last, following = status.sending.last, status.sending.next
        if not status.silent:
            assert shown["last_outcome"] == (status.sending.outcome or None)
            assert shown["last_attempt"] == (last and last.isoformat())
            assert shown["next_attempt"] == (following and following.isoformat())
    finally:
        telemetry.close()


@pytest.mark.parametrize(
    ("lives", "upgrade"),
    [
        (answers_and_sends, {"reports": 1}),
        (answers_and_sends, {"expires": "2026-11-21"}),
        (answers_and_waits_for_a_day_off, {"reports": 3, "epsilon": "1", "schedule": "spread"}),
    ],
)
def test_inspect_says_what_the_app_is_told_after_an_upgrade_too(
    lives: Life, upgrade: dict[str, Any], tmp_path: Path
) -> None:
    clock = Clock()
    for live, changes in ((answers_and_sends, {}), (lives, upgrade)):
        asked = registry(**{"expires": EXPIRES, **changes})
        telemetry = Telemetry(Settings(asked, TAKEN, tmp_path, True, clock=clock))
        live(telemetry, clock)
        status = telemetry.status()
        telemetry.close()
        file = DeviceFile(tmp_path, clock, create=False)
        shown = inspect(file)["metrics"]
        file.close()
        assert shown == {
            name: {"silent": metric.silent, "until": metric.until and metric.until.isoformat()}
            for name, metric in status.metrics.items()
        }
    assert status.metrics["color"].silent


def test_budget_shows_what_was_charged_beside_what_was_agreed_to(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(said(capsys, "device", "budget", directory, "--json"))
    assert document["spent"] == 4
    assert document["agreed"] == 16
    assert document["metrics"] == [
        {"metric": "color", "spent": 4, "agreed": 8},
        {"metric": "dark", "spent": 0, "agreed": 8},
    ]
    assert said(capsys, "device", "budget", directory).splitlines() == [
        "metric       spent      agreed",
        "color            4           8",
        "dark             0           8",
        "device           4          16",
    ]


def test_forget_keeps_what_was_spent(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "device", "forget", directory)
    assert "silent for 30 days" in out
    assert "another process" not in out
    document = json.loads(said(capsys, "device", "inspect", directory, "--json"))
    assert document["waiting"] == []
    assert document["silent_until"] is not None
    assert document["counts"] == {"accepted": 1, "forgotten": 1}
    assert json.loads(said(capsys, "device", "budget", directory, "--json"))["spent"] == 8


def test_forget_says_that_another_process_reads_the_file(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM state").fetchall()
        document = json.loads(said(capsys, "device", "forget", directory, "--json"))
        assert document == {"silent_for_days": 30, "erased": False}
        assert json.loads(said(capsys, "device", "inspect", directory, "--json"))["erasing"] is True
        reader.execute("COMMIT")
    assert "another process reads the file" not in said(capsys, "device", "forget", directory)
    assert json.loads(said(capsys, "device", "inspect", directory, "--json"))["erasing"] is False


def refused(action: str, directory: Path) -> str:
    done = dither("device", action, directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("action", ["inspect", "budget", "forget"])
def test_a_directory_without_a_device_is_said_and_left_alone(action: str, tmp_path: Path) -> None:
    err = refused(action, tmp_path)
    assert f"there is no {FILE_NAME} in {tmp_path}: DIR is the data_dir of the app, by default " in err
    assert str(default_data_dir("APP")) in err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_device_file_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
    assert "cannot be used: file is not a database" in refused("inspect", tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"")
    assert "it was never used" in refused("inspect", tmp_path)


def test_another_programs_file_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
        other.execute("CREATE TABLE x (y)")
        other.commit()
    before = (tmp_path / FILE_NAME).read_bytes()
    for action in ("inspect", "budget", "forget"):
        assert "the file is another program's" in refused(action, tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("value", ["'x'", "x'00'", "1e300", "-1e18"])
def test_what_no_device_writes_is_said(value: str, directory: Path) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as other:
        other.execute(f"UPDATE state SET value = {value} WHERE key = 'first_day'")
        other.execute("UPDATE agreement SET terms = 'x'")
        other.commit()
    assert "holds what no device writes" in refused("inspect", directory)
    assert "holds what no device writes" in refused("budget", directory)
