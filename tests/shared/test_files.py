"""Files that a person names may be anything. Each is read by a program of its own, which may neither wait nor grow."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dither_shared.errors import RegistryError
from dither_shared.registry import REGISTRY_BYTES_MAX, Registry
from tests.support.registries import registry, registry_text

MEMORY_BYTES_MAX = 1024**3


def check(path: Path) -> tuple[int, str]:
    """Return how `dither metrics check` ended and what it said."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))

    command = [sys.executable, "-m", "dither.cli", "metrics", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit, check=False)
    return done.returncode, done.stderr


def naming(directory: Path, named: Path) -> Path:
    """Write a registry whose values are in a file."""
    path = directory / "metrics.toml"
    path.write_text(registry_text().replace('values = ["red", "green", "blue"]', f'values_file = "{named}"'), "utf-8")
    return path


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return a file that takes no room and is longer than any that is read."""
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(100 * MEMORY_BYTES_MAX)
    return path


def test_a_pipe_or_a_device_is_no_list_of_values(tmp_path: Path, fifo: Path) -> None:
    for named in (fifo, Path("/dev/zero")):
        code, said = check(naming(tmp_path, named))
        assert code == 2
        assert f"{named} cannot be read: it is no regular file" in said


def test_a_pipe_or_a_device_is_no_registry(fifo: Path) -> None:
    for path in (fifo, Path("/dev/zero")):
        assert check(path) == (2, f"dither: {path}: cannot be read: it is no regular file\n")


def test_a_file_that_is_too_long_is_read_no_further(tmp_path: Path, endless: Path) -> None:
    code, said = check(naming(tmp_path, endless))
    assert code == 2
    assert f"{endless} cannot be read: it has more than " in said
    assert check(endless) == (2, f"dither: {endless}: cannot be read: it has more than {REGISTRY_BYTES_MAX:,} bytes\n")


def test_the_longest_list_there_may_be_is_read(tmp_path: Path) -> None:
    """Each line has 200 characters of four bytes, and ends with the longest separator."""
    lines = [f"{number:0>3}".ljust(200, "\U0001f600") for number in range(300)]
    (tmp_path / "values.txt").write_bytes("\u2028".join([*lines, ""]).encode())
    assert Registry.load(naming(tmp_path, tmp_path / "values.txt")).metrics["color"].values == (*lines, "other")


def test_a_registry_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8-sig")
    assert Registry.load(path) == registry()
    path.write_bytes(registry_text().replace("\n", "\r\n").encode("utf-8-sig"))
    assert Registry.load(path) == registry()
    path.write_bytes("\ufeff\ufeff".encode())
    with pytest.raises(RegistryError, match="must be TOML"):
        Registry.load(path)
