"""A store's directory where nothing can be written, as in a snapshot that is mounted: it is read whole, or refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.sqlite import FILE_NAME
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.mounts import read_only
from tests.support.registries import registry
from tests.support.stores import append, body_of, fold_all

ASKED = registry()


def wal(directory: Path) -> Path:
    return directory / f"{FILE_NAME}-wal"


def shm(directory: Path) -> Path:
    return directory / f"{FILE_NAME}-shm"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SQLiteStore]:
    """A store in use: three reports are folded, two wait, and nothing of that is in the file itself yet."""
    with closing(SQLiteStore.create(tmp_path / "served", ASKED.app)) as store:
        store.load(ASKED)
        append(store, body_of(ASKED, {"dark": [1, 0, 1]}))
        fold_all(store)
        append(store, body_of(ASKED, {"dark": [1, 1]}))
        yield store


@pytest.fixture
def closed(served: SQLiteStore, tmp_path: Path) -> Path:
    """Its directory when it is in use no more."""
    served.close()
    assert not wal(tmp_path / "served").exists()
    return tmp_path / "served"


@pytest.fixture
def snapshot(served: SQLiteStore, tmp_path: Path) -> Path:
    """The files as a snapshot of the file system has them, or as kill -9 leaves them."""
    shutil.copytree(tmp_path / "served", tmp_path / "snapshot")
    assert wal(tmp_path / "snapshot").stat().st_size
    return tmp_path / "snapshot"


def ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT)


SEVERAL = "import sys; from dither.cli import main; print([main(each.split()) for each in sys.argv[1:]])"
REFUSED = "import sys; from dither.cli import main; sys.exit(sum(main(each.split()) for each in sys.argv[1:]))"
"""Commands that one process runs, to import what they need once: their codes are printed, or added up."""


def check_read_whole(directory: Path, backup: Path) -> None:
    mounted = directory.with_name("mounted")
    commands = [f"{each} --data {mounted}" for each in ("ledger --json", "fsck", f"backup {backup}")]
    done = ran(read_only(directory, mounted, sys.executable, "-c", SEVERAL, *commands))
    said, _, others = done.stdout.partition("the store of example is as it must be\n")
    ledger = json.loads(said)
    assert (ledger["accepted"], ledger["folded"], ledger["pending"], ledger["balanced"]) == (5, 3, 2, True)
    assert others.endswith("[0, 0, 0]\n"), done
    restored = backup.with_name("restored")
    assert "5 accepted = 3 folded + 2 pending" in dither("restore", backup, "--data", restored).stdout


def test_a_store_that_was_closed_is_read(closed: Path, tmp_path: Path) -> None:
    check_read_whole(closed, tmp_path / "backup.gz")


def test_a_snapshot_of_a_store_in_use_is_read_with_its_write_ahead_log(snapshot: Path, tmp_path: Path) -> None:
    check_read_whole(snapshot, tmp_path / "backup.gz")


def test_an_empty_write_ahead_log_is_none(closed: Path, tmp_path: Path) -> None:
    wal(closed).touch()
    check_read_whole(closed, tmp_path / "backup.gz")


def test_a_write_ahead_log_that_cannot_be_read_is_not_left_out(snapshot: Path, tmp_path: Path) -> None:
    shm(snapshot).unlink()
    mounted, backup = tmp_path / "mounted", tmp_path / "backup.gz"
    commands = ["ledger", "fsck", f"backup {backup}"]
    asked = [f"{each} --data {mounted}" for each in commands]
    done = ran(read_only(snapshot, mounted, sys.executable, "-c", REFUSED, *asked))
    assert (done.returncode, done.stdout) == (2 * len(commands), "")
    assert done.stderr.count(f"{FILE_NAME}-wal holds commits that {FILE_NAME} lacks") == 3
    assert done.stderr.count(f"cp -r {mounted} COPY") == 3
    assert not backup.exists()
    shutil.copytree(snapshot, tmp_path / "COPY")
    for each in commands:
        assert dither(*each.split(), "--data", tmp_path / "COPY").returncode == 0


READER = """
import sys
from pathlib import Path
from dither_aggregator.store import SQLiteStore, StoreUnavailable
store = SQLiteStore(Path(sys.argv[1]), read_only=True)
steps = iter(store.dump()) if sys.argv[2] == "dump" else None
if steps:
    next(steps)
print("read", flush=True)
input()
try:
    print(sum(1 for _ in steps) if steps else store.ledger())
except StoreUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["ledger", "dump"])
def test_a_file_that_is_written_elsewhere_while_it_is_read_is_noticed(what: str, closed: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    command = read_only(closed, mounted, sys.executable, "-c", READER, str(mounted), what)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as reader:
        assert reader.stdout
        assert reader.stdout.readline() == "read\n"
        with closing(SQLiteStore(closed)) as writer:
            append(writer, body_of(ASKED, {"dark": [1] * 500}))
        said = reader.communicate("\n", timeout=30)[0]
    assert "was changed while it was read" in said
