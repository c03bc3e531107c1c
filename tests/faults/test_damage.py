"""A device's file that is cut, overwritten or half lost, before a start and during one.

Nothing raises into the app, whatever happened to the file, and either the device goes on with all that it was charged,
or it is silent, says so, and sends nothing.
"""

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dither.device import FILE_NAME, Device
from dither.device.file import DeviceFile
from dither_shared.rng import Rng
from tests.faults.apps import Seen, Taker, start, use_everything
from tests.faults.witness import Killed
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, connect, send
from tests.support.registries import registry
from tests.support.soaking import scaled

ASKED = registry(reports=40, epsilon="0.5", device_epsilon="40", expires=EXPIRES)
EPSILON = 0.5
DAYS = 5
WAL = f"{FILE_NAME}-wal"
Image = dict[str, bytes]


def image_of(directory: Path) -> Image:
    return {name: (directory / name).read_bytes() for name in (FILE_NAME, WAL) if (directory / name).exists()}


def write(directory: Path, image: Image) -> Path:
    directory.mkdir()
    for name, content in image.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Image, Image]:
    """Return a file that was used for five days, of which four were sent: while it is open, and after it was closed."""
    directory = tmp_path_factory.mktemp("device")
    clock = Clock()
    device = Device(ASKED, directory, Rng(random.Random(1).getrandbits), clock)
    device.agree()
    for day in range(DAYS):
        for metric in ASKED.metrics.values():
            assert device.record(metric, "red") == ""
        if day < DAYS - 1:
            assert send(device)
            clock.travel(1)
    while_open = image_of(directory)
    device.close()
    return while_open, image_of(directory)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a file that stays locked for less than five seconds."""
    monkeypatch.setattr("dither.device.file.DURABLE_WAIT_S", 0.3)
    monkeypatch.setattr("dither.device.schema.OPEN_WAIT_S", 0.3)


def later() -> Clock:
    clock = Clock()
    clock.travel(DAYS)
    return clock


def check(seen: Seen) -> None:
    if seen.silent:
        assert not seen.sent, f"{seen.silent}, and {seen.sent} was sent"
    elif "failed" not in seen.counts:
        charged = (DAYS - 1) * EPSILON
        assert all(seen.spent_first[name] >= charged for name in ASKED.metrics), f"forgotten: {seen.spent_first}"
    for name, times in seen.sent.items():
        assert seen.silent or seen.spent[name] >= seen.spent_first[name] + (times - 1) * EPSILON


# Before a start.


@pytest.mark.parametrize("length", [*range(2, 21_504, 999), 100, 1_024, 4_096, 19_457, 19_968])
def test_a_file_cut_short_is_refused_and_left_alone(home: Path, images: tuple[Image, Image], length: int) -> None:
    """Two bytes or more: an empty file is a new one, as a kill in the middle of the first start leaves it."""
    content = images[1][FILE_NAME]
    assert len(content) == 21_504
    directory = write(home / "d", {FILE_NAME: content[:length]})
    seen = use_everything(ASKED, directory, later())
    assert seen.silent
    assert not seen.sent
    assert (directory / FILE_NAME).read_bytes() == content[:length]


SECTOR = 512


@pytest.mark.parametrize("damage", ["zeros", "noise"])
def test_a_damaged_sector_is_found_or_does_no_harm(home: Path, images: tuple[Image, Image], damage: str) -> None:
    content = images[1][FILE_NAME]
    rng = random.Random(1)
    for number, at in enumerate(range(0, len(content), SECTOR * scaled(4, 1))):
        filled = bytes(SECTOR) if damage == "zeros" else rng.randbytes(SECTOR)
        directory = write(home / str(number), {FILE_NAME: content[:at] + filled + content[at + SECTOR :]})
        check(use_everything(ASKED, directory, later()))


def test_no_damage_raises_into_the_app(home: Path, images: tuple[Image, Image]) -> None:
    """The damage is in the database or in its log, wherever and however long."""
    rng = random.Random(2)
    for number in range(scaled(30, 3_000)):
        image = dict(rng.choice(images))
        name = rng.choice(sorted(image))
        content = bytearray(image[name])
        at, size = rng.randrange(len(content)), rng.choice([1, 8, 64, 600])
        content[at : at + size] = rng.choice([bytes(size), rng.randbytes(size)])
        seen = use_everything(ASKED, write(home / str(number), {**image, name: bytes(content)}), later())
        assert seen.silent or all(
            seen.spent[name] >= seen.spent_first.get(name, 0) + (times - 1) * EPSILON
            for name, times in seen.sent.items()
        )


# The write-ahead log.


@pytest.fixture
def cut_logs(home: Path) -> tuple[Image, int, str, dict[str, int]]:
    """Return a device that died soon after it had sent, how long its log was then, and what was sent and charged."""
    directory, clock = home / "device", Clock()
    device = Device(ASKED, directory, Rng(random.Random(1).getrandbits), clock)
    device.agree()
    color, dark = ASKED.metrics["color"], ASKED.metrics["dark"]
    device.record(color, "red")
    device.record(dark, True)
    upload = connect(device)
    assert upload
    synced, charged = (directory / WAL).stat().st_size, device.spent()
    device.put_off(upload.id, "503", clock.now + 60)
    clock.travel(1)
    device.record(color, "red")
    device.settle(upload.id, "accepted")
    device.record(dark, True)
    image = image_of(directory)
    device.close()
    return image, synced, upload.id, charged


def _after(directory: Path, image: Image, log: bytes | None) -> tuple[dict[str, int], str]:
    """Return what a device was charged that finds such a log, or none, and the id that it sends next."""
    write(directory, {FILE_NAME: image[FILE_NAME], **({} if log is None else {WAL: log})})
    clock = Clock()
    clock.travel(1)
    device = Device(ASKED, directory, Rng(random.Random(3).getrandbits), clock)
    spent, upload = device.spent(), device.next_upload()
    device.close()
    return spent, upload.id if upload else ""


def test_a_log_cut_anywhere_after_the_last_sync_loses_nothing_that_was_sent(
    home: Path, cut_logs: tuple[Image, int, str, dict[str, int]]
) -> None:
    """As a power cut leaves it."""
    image, synced, sent_id, charged = cut_logs
    ids = set()
    for length in range(synced, len(image[WAL]) + 1, scaled(499, 23)):
        spent, upload_id = _after(home / str(length), image, image[WAL][:length])
        assert spent == charged
        ids.add(upload_id == sent_id)
    assert ids == {True, False}  # sent again under its id until the answer to it was kept


def test_a_log_that_is_cut_or_lost_takes_nothing_back_of_what_was_sent(
    home: Path, cut_logs: tuple[Image, int, str, dict[str, int]]
) -> None:
    """As a damaged disk leaves it, or whoever copies the database without its log."""
    image, _, _, charged = cut_logs
    logs = [None, *(image[WAL][:length] for length in range(0, len(image[WAL]), scaled(499, 97)))]
    assert len(logs) > 10
    for number, log in enumerate(logs):
        spent, _ = _after(home / str(number), image, log)
        assert all(spent.get(name, 0) >= micro for name, micro in charged.items()), f"after {len(log or '')}: {spent}"


def test_what_is_sent_after_a_kill_is_in_the_database_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process is killed when the charge is in the log, and only there; the second one sends."""

    def killed(self: DeviceFile) -> None:
        raise Killed

    clock = Clock()
    first = Device(ASKED, home / "a", Rng(random.Random(1).getrandbits), clock)
    first.agree()
    first.record(ASKED.metrics["color"], "red")
    with monkeypatch.context() as patched:
        patched.setattr(DeviceFile, "checkpoint", killed)
        with pytest.raises(Killed):
            connect(first)
    second = Device(ASKED, write(home / "b", image_of(home / "a")), Rng(random.Random(2).getrandbits), clock)
    assert connect(second)
    spent, _ = _after(home / "c", image_of(home / "b"), None)
    assert spent["color"] == EPSILON * 1_000_000
    first.close()
    second.close()


# During a start.


@pytest.fixture
def clock() -> Clock:
    return later()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(random.Random(4).randbytes(path.stat().st_size))


def replace(path: Path) -> None:
    """Put another database in its place, as a backup that is played back does."""
    path.unlink()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE metric (name TEXT)")
    other.close()


def charged_in(path: Path) -> dict[str, float]:
    """Return what a database without its log says was charged."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        return {name: micro / 1_000_000 for name, micro in db.execute("SELECT name, spent FROM metric")}


@pytest.mark.parametrize("which", [FILE_NAME, WAL])
@pytest.mark.parametrize("damage", [cut, empty, scribble, replace, Path.unlink], ids=lambda damage: damage.__name__)
def test_a_file_damaged_while_it_is_open_raises_nothing_and_sends_nothing_uncharged(
    home: Path, images: tuple[Image, Image], damage: Callable[[Path], None], which: str
) -> None:
    """Not the -shm file: whoever cuts what is mapped into the memory of a process ends it, SQLite's or not."""
    directory, clock, taker = write(home / "d", images[1]), later(), Taker()
    telemetry = start(ASKED, directory, taker, clock)
    telemetry.color.record("red")
    telemetry.flush(5)
    before, told = telemetry.status().spent, taker.told()
    assert before["color"] == DAYS * EPSILON  # what waited has left, and today's waits for tomorrow
    damage(directory / which)
    for _ in range(3):
        clock.travel(1)
        telemetry.color.record("red")
        telemetry.dark.record(True)
        telemetry.flush(0.5)
    telemetry.preview()
    status = telemetry.status()
    spent = charged_in(directory / FILE_NAME) if status.silent else status.spent
    for name, times in (taker.told() - told).items():
        assert spent[name] >= before[name] + times * EPSILON
    assert status.silent or spent["color"] >= before["color"]
    telemetry.forget()
    telemetry.close()


@pytest.mark.parametrize("which", [FILE_NAME, WAL])
@pytest.mark.parametrize("damage", [cut, empty, scribble, replace, Path.unlink], ids=lambda damage: damage.__name__)
def test_a_start_after_damage_while_it_was_open_raises_nothing(
    home: Path, images: tuple[Image, Image], damage: Callable[[Path], None], which: str
) -> None:
    directory, clock = write(home / "d", images[1]), later()
    first = start(ASKED, directory, Taker(), clock)
    first.color.record("red")
    first.flush(5)
    damage(directory / which)
    clock.travel(1)
    seen = use_everything(ASKED, directory, clock)
    assert seen.silent or seen.sent
    first.color.record("red")
    first.flush(0.5)
    first.close()
