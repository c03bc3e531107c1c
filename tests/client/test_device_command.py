import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dither.cli import main
from dither.device import FILE_NAME
from tests.support.aggregators import dither
from tests.support.clocks import Clock
from tests.support.devices import MEMO, make, record, send


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A device with a charged answer, one that waits, and a metric that is refused."""
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    record(device, asked, answer="blue")
    send(device)
    record(device, asked, "dark", True)
    device.agree(chosen=True)
    device.refuse_metric("gone", refused=True)
    device.close()
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(word) for word in arguments]) == 0
    return capsys.readouterr().out


def test_inspect_shows_what_the_device_keeps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(said(capsys, "device", "inspect", folder, "--json"))
    assert document == {
        "app": "example",
        "first_day": "2026-11-20",
        "last_day": "2026-11-20",
        "choice": "agreed",
        "refused": ["gone"],
        "silent_until": None,
        "cohort": None,
        "waiting": ["dark"],
        "built_uploads": [],
        "next_attempt": None,
        "counts": {"accepted": 1},
    }
    lines = said(capsys, "device", "inspect", folder).splitlines()
    assert "waiting            dark" in lines
    assert "counts             accepted 1" in lines
    assert "cohort             -" in lines


def test_budget_shows_what_was_charged_beside_what_was_agreed_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(said(capsys, "device", "budget", folder, "--json"))
    assert document["spent"] == 4
    assert document["agreed"] == 16
    assert document["metrics"] == [
        {"metric": "color", "spent": 4, "agreed": 8},
        {"metric": "dark", "spent": 0, "agreed": 8},
    ]
    assert said(capsys, "device", "budget", folder).splitlines() == [
        "metric       spent      agreed",
        "color            4           8",
        "dark             0           8",
        "device           4          16",
    ]


def test_forget_keeps_what_was_spent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "silent for 30 days" in said(capsys, "device", "forget", folder)
    document = json.loads(said(capsys, "device", "inspect", folder, "--json"))
    assert document["waiting"] == []
    assert document["silent_until"] is not None
    assert document["counts"] == {"accepted": 1, "forgotten": 1}
    assert json.loads(said(capsys, "device", "budget", folder, "--json"))["spent"] == 8


def refused(action: str, folder: Path) -> str:
    done = dither("device", action, folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("action", ["inspect", "budget", "forget"])
def test_a_folder_without_a_device_is_said_and_left_alone(action: str, tmp_path: Path) -> None:
    assert f"there is no {FILE_NAME} in {tmp_path}" in refused(action, tmp_path)
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
        assert "it is no device's" in refused(action, tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("value", ["'x'", "x'00'", "1e300", "-1e18"])
def test_what_no_device_writes_is_said(value: str, folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as other:
        other.execute(f"UPDATE state SET value = {value} WHERE key = 'first_day'")
        other.execute("UPDATE agreement SET terms = 'x'")
        other.commit()
    assert "holds what no device writes" in refused("inspect", folder)
    assert "holds what no device writes" in refused("budget", folder)
