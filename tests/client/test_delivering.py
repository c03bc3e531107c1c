"""A program starts itself once more, whatever it is, to send what it left behind."""

import os
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

import dither
from dither import delivering
from dither_shared.registry import Registry
from tests.support.aggregators import ENVIRONMENT, aggregator
from tests.support.examples import NOW, counted, point, shipped
from tests.support.keys import write_key
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted
from tests.support.soaking import thinned
from tests.support.waiting import wait_until

PROGRAM = """
import os, subprocess, sys
from dither.delivering import this_program
if sys.argv[1:] == ["--deliver"]:
    print("delivers", sys.flags.dev_mode)
else:
    sys.exit(subprocess.run([*this_program(), "--deliver"]).returncode)
"""
WAYS = {
    "file": ["app/program.py"],
    "module": ["-m", "app.program"],
    "package": ["-m", "app"],
    "directory": ["app"],
    "archive": ["app.pyz"],
    "options": ["-X", "dev", "app/program.py"],
    "absolute": [],
    "installed": [],
}


@pytest.mark.parametrize("way", thinned([*WAYS], 0, 1, 4, 7))
def test_a_program_starts_itself_in_the_way_that_it_was_started(way: str, tmp_path: Path) -> None:
    """With other arguments."""
    app = tmp_path / "app"
    app.mkdir()
    for name in ("program", "__main__"):
        (app / f"{name}.py").write_text(PROGRAM, encoding="utf-8")
    zipapp.create_archive(app, tmp_path / "app.pyz")
    (tmp_path / "installed").write_text(f"#!{sys.executable}\n{PROGRAM}", encoding="utf-8")
    (tmp_path / "installed").chmod(0o755)
    command = [sys.executable, *WAYS[way]]
    if way == "absolute":
        command.append(str(app / "program.py"))
    elif way == "installed":
        command = [str(tmp_path / "installed")]
    done = subprocess.run(
        [*command, "add", "--deliver", "x"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, f"delivers {way == 'options'}\n"), done.stderr


def test_a_program_that_has_changed_its_arguments_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "/app/program.py", "add", "x"])
    monkeypatch.setattr("sys.argv", ["/app/program.py", "x"])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/app/program.py", raising=False)
    assert delivering.this_program() == [sys.executable, "/app/program.py"]
    monkeypatch.setattr("sys.argv", ["/app/program", "x"])
    assert delivering.this_program() == [sys.executable, "/app/program"]


def test_a_frozen_app_starts_its_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.frozen", True, raising=False)
    assert delivering.this_program() == [sys.executable]


def test_a_notebook_has_no_program_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert delivering.this_program() == []


def test_nothing_is_started_where_nothing_waits_or_a_server_is_to_be_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(delivering, "this_program", lambda: ["program"])
    monkeypatch.setattr(delivering, "start_another", lambda *started_in: started.append(started_in))
    before = str(Path.cwd())
    monkeypatch.chdir(tmp_path)
    busy = Reply(503, headers={"Retry-After": "60"})
    with (
        scripted(busy, Reply(body=accepted)) as (url, _),
        dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path, consent=True) as telemetry,
    ):
        assert not telemetry.deliver_in_background()
        telemetry.dark.record(True)
        assert telemetry.deliver_in_background()
        assert telemetry.deliver_in_background(["deliver", "--quietly"])
        assert telemetry.flush(20).waiting == 1
        assert not telemetry.deliver_in_background()
    assert started == [(["program", "--deliver"], before), (["program", "deliver", "--quietly"], before)]


def test_what_is_kept_in_memory_alone_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an app's own tests: there the program is pytest."""
    monkeypatch.setattr(delivering, "start_another", lambda *_: pytest.fail("started"))
    endpoint = "http://127.0.0.1:9"
    with dither.start(registry(), endpoint=endpoint, key="k", data_dir=":memory:", consent=True) as telemetry:
        telemetry.dark.record(True)
        assert telemetry.status().waiting == 1
        assert not telemetry.deliver_in_background()


def test_a_process_that_cannot_be_started_costs_the_app_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivering, "this_program", lambda: [str(tmp_path / "gone")])
    endpoint = "http://127.0.0.1:9"
    with dither.start(registry(), endpoint=endpoint, key="k", data_dir=tmp_path, consent=True) as telemetry:
        telemetry.dark.record(True)
        assert not telemetry.deliver_in_background()
    assert caplog.messages == ["no process could be started to send what waits: failed (FileNotFoundError)"]


# A frozen app.

LEFT_OUT = "numpy scipy setuptools cryptography chardet gevent asyncio multiprocessing xmlrpc xml bz2 lzma ctypes"
"""Modules that others of this environment would bring, and the example has no use for: building takes a third less."""


IMITATED = f"""#!{sys.executable}
import os, runpy, shutil, sys, tempfile
if "UNPACKED" in os.environ and not os.environ.pop("PYINSTALLER_RESET_ENVIRONMENT", ""):
    sys.exit("what its parent has unpacked is taken away")
with tempfile.TemporaryDirectory() as os.environ["UNPACKED"]:
    program = shutil.copytree(sys.argv[0] + ".app", os.environ["UNPACKED"], dirs_exist_ok=True) + "/notes.py"
    sys.frozen, sys.executable = True, sys.argv[0]
    runpy.run_path(program, run_name="__main__")
"""
"""A program that does as PyInstaller's: it unpacks itself, unless its parent says that it is a part of it."""


def imitated(copy: Path, directory: Path) -> Path:
    """Return a program that does as a frozen one: building that takes 10 to 20 seconds."""
    shutil.move(copy, directory / "notes.app")
    app = directory / "notes"
    app.write_text(IMITATED, encoding="utf-8")
    app.chmod(0o755)
    return app


def frozen(copy: Path, directory: Path) -> Path:
    """Make one executable file of an app, by PyInstaller."""
    options = ["--onefile", "--noconfirm", "--log-level", "ERROR", "--add-data", f"metrics.toml{os.pathsep}."]
    options += [part for name in LEFT_OUT.split() for part in ("--exclude-module", name)]
    options += [part for path in ENVIRONMENT["PYTHONPATH"].split(os.pathsep) for part in ("--paths", path)]
    command = [sys.executable, "-m", "PyInstaller", *options, "notes.py"]
    quick = {"PYINSTALLER_CONFIG_DIR": str(directory / "cache"), "PYINSTALLER_ZLIB_COMPRESSION_LEVEL": "1"}
    done = subprocess.run(command, cwd=copy, env=ENVIRONMENT | quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = Path(shutil.move(copy / "dist" / "notes", directory / "notes"))
    shutil.rmtree(copy)  # what it needs is in it
    return made


@pytest.mark.slow
@pytest.mark.parametrize("make", thinned([imitated, frozen], 0))
def test_a_frozen_command_leaves_its_reports_to_a_process_of_its_own(
    make: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    """It is one file, which unpacks itself for each process: what delivers outlives what has started it."""
    home = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path / "unpacked"), "PATH": os.environ["PATH"]}
    if make is imitated:
        home["PYTHONPATH"] = ENVIRONMENT["PYTHONPATH"]
    (tmp_path / "unpacked").mkdir()
    copy = shipped("cli_app", tmp_path, NOW)
    with aggregator(Registry.load(copy / "metrics.toml"), tmp_path / "data") as (url, service):
        point(copy / "notes.py", url, write_key(service.store))
        app = make(copy, tmp_path)
        done = subprocess.run(
            [app, "--telemetry", "on", "add", "milk"], env=home, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        wait_until(lambda: counted(service) == {"command": 1, "crashes": 1, "notes": 1})
        wait_until(lambda: list((tmp_path / "unpacked").iterdir()) == [])
