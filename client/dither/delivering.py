"""A process of its own that sends what a short program left behind: started by it, and outliving it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dither_shared.light_typing import Any


def this_program() -> list[str]:
    """Return the command that runs this program, without its arguments; [] where there is none, as in a notebook.

    A frozen app is its own executable. Python's command is the one that this process was started with: of a file, a
    directory, an archive, an installed script, or a module with -m, and with Python's own options.
    """
    if getattr(sys, "frozen", False):
        return [sys.executable]
    if not sys.executable or getattr(sys.modules.get("__main__"), "__file__", None) is None:
        return []
    given = sys.orig_argv[1:]
    if sys.argv[0] in given:
        return [sys.executable, *given[: given.index(sys.argv[0]) + 1]]
    if "-m" in given:
        return [sys.executable, *given[: given.index("-m") + 2]]
    return [sys.executable, sys.argv[0]]


def start_another(command: Sequence[str], directory: str | None) -> None:
    """Start a process that has nothing to do with this one's terminal, and outlives it."""
    import subprocess  # on most runs it is not needed

    apart: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    if sys.platform == "win32":
        apart["creationflags"] = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        apart["start_new_session"] = True
    # An app in one file unpacks itself, and takes away at its end what it has unpacked: another one needs its own.
    environment = {**os.environ, "PYINSTALLER_RESET_ENVIRONMENT": "1"} if getattr(sys, "frozen", False) else None
    subprocess.Popen(command, cwd=directory, env=environment, **apart)  # noqa: S603
