"""A disk that is full, or that may not be written: what is not charged is not sent, and the app goes on."""

import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.device import FILE_NAME, Device
from dither.status import REFUSED
from dither.telemetry import Telemetry
from dither_shared.rng import Rng, keyed_rng
from tests.faults.apps import ASKED, Taker, start
from tests.support.aggregators import ENVIRONMENT
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, make, record, send
from tests.support.registries import metrics_text
from tests.support.soaking import thinned

EPSILON = 0.5
NOBODY = 65_534

# A full disk.


def fill(directory: Path, room: int) -> str:
    """Run an app whose files may grow to so many bytes, and to any length later; return what it printed."""
    code = f"""
import json, resource
from pathlib import Path
from tests.faults.apps import ASKED, Taker, start
from tests.support.clocks import Clock

clock, taker = Clock(), Taker()
telemetry = start(ASKED, Path({str(directory)!r}), taker, clock)

def live(days, timeout_s):
    for _ in range(days):
        telemetry.color.record("red")
        telemetry.dark.record(True)
        telemetry.flush(timeout_s)
        clock.travel(1)
    status = telemetry.status()
    return dict(status.counts), status.spent, taker.sent()

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
print(json.dumps(live(2, 5)))
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, hard))
print(json.dumps(live(12, 0.1)))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(json.dumps(live(2, 5)))
telemetry.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("room", thinned([1, 7_000, 9_000, 13_000], 0, 2))
def test_on_a_full_disk_nothing_leaves_uncharged_and_room_ends_the_silence(home: Path, room: int) -> None:
    before, full, after = map(json.loads, fill(home / "d", room).splitlines())
    assert full[0]["failed"] > 0
    for _, spent, sent in (before, full, after):
        assert all(spent[name] >= times * EPSILON for name, times in sent.items())
    assert after[0]["failed"] == full[0]["failed"]
    assert after[2]["color"] >= full[2]["color"] + 2
    assert after[1] == {name: times * EPSILON for name, times in after[2].items()}


REFUSE = """
import json, resource
from pathlib import Path
from tests.faults.apps import ASKED, Taker, start
from tests.support.clocks import Clock

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

def fill_the_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))

clock, taker, directory = Clock(), Taker(), Path({directory!r})
{code}
telemetry.flush(0.3)
status = telemetry.status()
telemetry.close()
print(json.dumps({{"kept": kept, "sent": taker.sent(), "silent": status.silent, "refused": list(status.refused)}}))
"""
RUNNING = """
telemetry = start(ASKED, directory, taker, clock)
assert not telemetry.status().silent
fill_the_disk()
kept = telemetry.set_consent(False, metric={metric!r})
"""
STARTING = """
fill_the_disk()
telemetry = start(ASKED, directory, taker, clock)
kept = telemetry.set_consent(False, metric={metric!r})
"""
NEXT_START = """
fill_the_disk()
telemetry = start(ASKED, directory, taker, clock)
kept = None
"""


def on_a_full_disk(code: str, directory: Path) -> dict[str, Any]:
    """Run an app that fills the disk; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSE.format(directory=str(directory), code=code)],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def marks(directory: Path) -> list[str]:
    return sorted(path.name.removeprefix(FILE_NAME) for path in directory.glob("*-refused*"))


def written(directory: Path) -> list[object]:
    """Return the refusals that the file holds: of metrics, and None of the whole app."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        everything = db.execute("SELECT 1 FROM state WHERE key = 'consent' AND value = 0").fetchall()
        named = db.execute("SELECT metric FROM agreement WHERE refused ORDER BY metric").fetchall()
    return [*(None for _ in everything), *(metric for (metric,) in named)]


def let_both_wait(directory: Path) -> Telemetry:
    """Start an app here, where there is room, whose reports of both metrics wait."""
    telemetry = start(ASKED, directory, Taker(), Clock())
    telemetry.color.record("red")
    telemetry.dark.record(True)
    return telemetry


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "metric"), [(RUNNING, None), (STARTING, "color")], ids=["running, all", "starting, one"]
)
def test_a_refusal_on_a_full_disk_holds_at_the_next_start(home: Path, when: str, metric: str | None) -> None:
    """While there is no room it is an empty file; then it is written, and the file is gone."""
    directory = home / "d"
    let_both_wait(directory).close()
    seen = on_a_full_disk(when.format(metric=metric), directory)
    assert (seen["kept"], seen["sent"]) == (True, {})
    mark = [f"-refused-{metric}" if metric else "-refused"]
    assert marks(directory) == mark
    seen = on_a_full_disk(NEXT_START, directory)
    assert seen["sent"] == {}
    assert seen["silent"] or seen["refused"] == [metric]
    assert marks(directory) == mark
    assert written(directory) == []
    taker = Taker()
    telemetry = start(ASKED, directory, taker, Clock())
    telemetry.color.record("red")
    telemetry.flush(5)
    assert telemetry.status().silent == ("" if metric else REFUSED)
    telemetry.close()
    assert taker.sent() == ({"dark": 1} if metric else {})
    if metric is None:  # written by the first process that may speak again, and not before
        assert written(directory) == [None] or marks(directory) == mark
        again = Device(ASKED, directory, Rng(random.Random(1).getrandbits), Clock())
        again.keep_refusals()
        again.close()
    assert written(directory) == [metric]
    assert marks(directory) == []


@pytest.mark.slow
@pytest.mark.parametrize("metric", [None, "color"])
def test_another_process_honours_a_refusal_that_could_not_be_written(home: Path, metric: str | None) -> None:
    """One that has been running since before, and has room."""
    directory, taker = home / "d", Taker()
    telemetry = start(ASKED, directory, taker, Clock())
    telemetry.color.record("red")
    telemetry.dark.record(True)
    assert on_a_full_disk(RUNNING.format(metric=metric), directory)["kept"] is True
    telemetry.flush(5)
    assert taker.sent() == ({"dark": 1} if metric else {})
    status = telemetry.status()
    assert (status.silent, status.refused) == (("", ("color",)) if metric else (REFUSED, ()))
    assert status.counts["refused"] == (1 if metric else 2)
    assert written(directory) == [metric]
    assert marks(directory) == []
    telemetry.close()


def test_a_memo_that_began_on_a_full_disk_is_drawn_from_the_secret_that_the_file_keeps(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that was not written is none: the next start would draw another permanent answer, and charge nothing."""
    drawn: list[bytes] = []

    def keyed(secret: bytes, context: bytes) -> Rng:
        drawn.append(secret)
        return keyed_rng(secret, context)

    monkeypatch.setattr("dither.device.recording.keyed_rng", keyed)
    clock, (_, hard) = Clock(), resource.getrlimit(resource.RLIMIT_FSIZE)
    first, asked = make(clock, home / "d", **MEMO)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(sqlite3.OperationalError):
            record(first, asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    told = []
    for device in (first, make(clock, home / "d", seed=2, **MEMO)[0]):
        drawn.clear()
        assert record(device, asked) == ""
        assert send(device)
        told += drawn
        clock.travel(1)
    assert len(told) == 2
    assert len(set(told)) == 1
    assert sum(first.spent().values()) == asked.metrics["color"].charge


@pytest.mark.parametrize("pages", [0, 1])
def test_a_database_that_may_not_grow_fails_closed(home: Path, pages: int) -> None:
    """As `max_page_count` lets it run full at any page, of 50 metrics whose upload needs several."""
    flag = {"kind": "flag", "epsilon": 0.1, "reports": 5, "schedule": "early", "expires": EXPIRES}
    asked = type(ASKED).parse(metrics_text({f"flag_{number}": flag for number in range(50)}, device_epsilon=50))
    clock, taker = Clock(), Taker()
    telemetry = start(asked, home / "d", taker, clock)
    device = telemetry._session.device
    assert device
    assert device._file._db
    (used,) = device._file._db.execute("PRAGMA page_count").fetchone()
    device._file._db.execute(f"PRAGMA max_page_count = {used + pages}")
    for _ in range(3):
        for name in asked.metrics:
            getattr(telemetry, name).record(answer=True)
        result = telemetry.flush(0.5)
        clock.travel(1)
    status = telemetry.status()
    assert status.counts.get("failed", 0) or "failed" in result.detail
    sent = taker.sent()
    assert all(status.spent[name] >= times * 0.1 - 1e-9 for name, times in sent.items())
    device._file._db.execute("PRAGMA max_page_count = 100000")
    telemetry.flush(5)
    status = telemetry.status()
    assert status.waiting == 0
    assert status.spent == {name: pytest.approx(taker.sent()[name] * 0.1) for name in status.spent}
    telemetry.close()


# A directory or a file that may not be written.


AS_NOBODY = f"""
import json, os, sys
from pathlib import Path
import requests, requests.adapters, logging.handlers, http.cookiejar
from tests.faults.apps import ASKED, Taker, start
from tests.support.clocks import Clock
import dither, dither.sending.upload_thread, dither.sending.transport

if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for directory in map(Path, sys.argv[1:]):
    clock, taker = Clock(), Taker()
    clock.travel(1)
    telemetry = start(ASKED, directory, taker, clock)
    telemetry.color.record("red")
    result = telemetry.flush(5)
    telemetry.preview()
    status = telemetry.status()
    telemetry.set_consent(False)
    telemetry.set_consent(True)
    telemetry.forget()
    telemetry.close()
    print(json.dumps(dict(silent=status.silent, sent=taker.sent(), counts=dict(status.counts))))
"""
"""An app of a user who owns nothing, root's permissions being no obstacle, in one directory after another."""


def lock_directory(directory: Path) -> None:
    (directory / FILE_NAME).chmod(0o666)
    directory.chmod(0o555)


def lock_file(directory: Path) -> None:
    (directory / FILE_NAME).chmod(0o444)
    directory.chmod(0o777)


def lock_both(directory: Path) -> None:
    (directory / FILE_NAME).chmod(0o444)
    directory.chmod(0o555)


def hide(directory: Path) -> None:
    (directory / FILE_NAME).chmod(0o000)
    directory.chmod(0o755)


@pytest.mark.slow
def test_what_may_not_be_written_is_left_alone_and_said(home: Path) -> None:
    home.chmod(0o755)
    locks = [lock_directory, lock_file, lock_both, hide]
    directories = [home / lock.__name__ for lock in locks]
    content = []
    for directory, lock in zip(directories, locks, strict=True):
        device = Device(ASKED, directory, Rng(random.Random(1).getrandbits), Clock())
        device.agree()
        device.record(ASKED.metrics["dark"], True)
        device.close()
        content.append((directory / FILE_NAME).read_bytes())
        lock(directory)
    (home / "closed").mkdir(0o555)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *directories, home / "closed" / "d"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    for directory, seen in zip([*directories, home / "closed"], map(json.loads, done.stdout.splitlines()), strict=True):
        assert "cannot be used" in seen["silent"], directory
        assert seen["sent"] == {}
        directory.chmod(0o755)
    assert [(directory / FILE_NAME).read_bytes() for directory in directories] == content
    assert os.listdir(home / "closed") == []  # noqa: PTH208


def test_a_directory_that_vanishes_raises_nothing(home: Path) -> None:
    clock, taker = Clock(), Taker()
    telemetry = start(ASKED, home / "d", taker, clock)
    telemetry.color.record("red")
    for path in (home / "d").iterdir():
        path.unlink()
    (home / "d").rmdir()
    for _ in range(3):
        clock.travel(1)
        telemetry.color.record("red")
        telemetry.flush(0.5)  # waits as long: there is no file
    status = telemetry.status()
    assert status.silent or status.spent["color"] >= taker.sent()["color"] * EPSILON
    telemetry.close()
    assert os.listdir(home) == []  # noqa: PTH208
