"""Systems that have no fork, other places for files, or no file modes."""

import multiprocessing
import os
from contextlib import closing
from pathlib import Path

import pytest

import dither
from dither.device import FILE_NAME
from dither.starting import default_data_dir
from tests.support.hosts import World, flag, once, telemetry
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted


def test_where_processes_cannot_fork_everything_else_is_there(world: World) -> None:
    """As on Windows: there is neither os.fork nor os.register_at_fork."""

    def host() -> None:
        assert not hasattr(os, "register_at_fork")
        flag(0)
        assert telemetry.flush(20).sent == 1
        process = multiprocessing.get_context("spawn").Process(target=flag, args=(1,))
        process.start()
        process.join(40)
        assert process.exitcode == 0
        assert telemetry.flush(20).sent == 1

    # Patched before multiprocessing is imported: what starts its processes does not need them.
    world.run(host, first="import os\nif __name__ == '__main__':\n    del os.register_at_fork, os.fork")
    assert world.counted() == once(0, 1)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("darwin", {}, "/home/her/Library/Application Support/dither/app"),
        ("darwin", {"XDG_DATA_HOME": "/xdg"}, "/home/her/Library/Application Support/dither/app"),
        ("win32", {}, "/home/her/AppData/Local/dither/app"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/dither/app"),
        ("linux", {}, "/home/her/.local/share/dither/app"),
        ("linux", {"XDG_DATA_HOME": "/xdg"}, "/xdg/dither/app"),
        ("linux", {"XDG_DATA_HOME": ""}, "/home/her/.local/share/dither/app"),
        ("linux", {"XDG_DATA_HOME": "xdg"}, "/home/her/.local/share/dither/app"),  # as the specification has it
        ("linux", {"XDG_DATA_HOME": "~/xdg"}, "/home/her/.local/share/dither/app"),
        ("win32", {"LOCALAPPDATA": "local"}, "/home/her/AppData/Local/dither/app"),
    ],
)
def test_each_system_keeps_the_file_where_it_keeps_such_files(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], expected: str
) -> None:
    for variable in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("HOME", "/home/her")
    monkeypatch.setattr("sys.platform", platform)
    assert Path(default_data_dir("app")).as_posix() == expected


def test_file_modes_are_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without modes everybody may read and write everything, and chmod does nothing."""
    make, open_, chmod = os.mkdir, os.open, os.chmod

    def make_for_all(path: Path, mode: int = 0o777) -> None:
        make(path)
        chmod(path, 0o777)

    def open_for_all(path: str, how: int, mode: int = 0o777) -> int:
        descriptor = open_(path, how)
        chmod(path, 0o777)
        return descriptor

    monkeypatch.setattr("os.mkdir", make_for_all)
    monkeypatch.setattr("os.open", open_for_all)
    monkeypatch.setattr("os.chmod", lambda *arguments, **rest: None)
    with scripted(Reply(body=accepted)) as (url, _):
        for day in range(2):
            with closing(
                dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path / "new" / "directory", consent=True)
            ) as device:
                assert device.status().silent == ""
                (device.dark if day else device.color).record(True if day else "red")
                assert device.flush(20).sent == 1
    assert (tmp_path / "new" / "directory").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "new" / "directory" / FILE_NAME).stat().st_mode & 0o666 == 0o666
