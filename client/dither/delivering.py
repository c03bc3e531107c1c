"""A process of its own that sends what a short program left behind: started by it, and outliving it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def this_program() -> list[str]:
    """Return the command that runs this program, without its arguments; [] where there is none, as in a notebook.

    A frozen app is its own executable. Python's command is the one that this process was started with: of a file, a
    module with -m, an archive, an installed script, and with its options.
    """
    if getattr(sys, "frozen", False):
        return [sys.executable]
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if file is None or not sys.executable:
        return []
    arguments = len(sys.argv) - 1
    command = sys.orig_argv[1 : len(sys.orig_argv) - arguments]
    if not command or sys.orig_argv[len(sys.orig_argv) - arguments :] != sys.argv[1:]:
        command = [sys.argv[0]]  # the program has changed its arguments
    if command[-1] == sys.argv[0]:  # a file, wherever the program went meanwhile
        command[-1] = file if Path(file).name == Path(command[-1]).name else str(Path(command[-1]).absolute())
    return [sys.executable, *command]


def start_another(command: Sequence[str]) -> None:
    """Start a process that has nothing to do with this one's terminal, and outlives it."""
    import subprocess  # on most runs it is not needed

    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    nothing = subprocess.DEVNULL
    # An app in one file unpacks itself, and takes away at its end what it has unpacked: another one needs its own.
    environment = {**os.environ, "PYINSTALLER_RESET_ENVIRONMENT": "1"} if getattr(sys, "frozen", False) else None
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, env=environment, **apart)  # noqa: S603
