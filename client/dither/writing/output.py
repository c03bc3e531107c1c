"""The output of a page or a stub: a file, or stdout. Both are UTF-8, whatever the locale says."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from dither_shared.errors import ConfigurationError
from dither_shared.safe_output import behind, visible


def write(text: str, out: Path | None) -> None:
    """Write a whole text to a file, or to stdout."""
    if out:
        out.write_text(text, encoding="utf-8", newline="\n")
    else:
        speak_utf8()
        stdout = behind(sys.stdout)
        print(text, end="", file=sys.stdout if stdout.isatty() else stdout)


def check_writable(out: Path) -> None:
    """Raise ConfigurationError or OSError where a file cannot be written: work that takes minutes tries it first."""
    if not out.parent.is_dir():
        raise ConfigurationError(f"{out} cannot be written: there is no folder {out.parent}, make it first")
    was_there = out.exists()
    with out.open("a"):
        pass
    if not was_there:
        out.unlink()


def progress(doing: str) -> None:
    """Say on stderr what is done now: on one line where somebody watches, which "" clears."""
    if sys.stderr.isatty():
        print(f"\r\033[K{visible(doing)}", end="", file=behind(sys.stderr), flush=True)
    elif doing:
        print(doing, file=sys.stderr, flush=True)


def speak_utf8() -> None:
    """Let stdout take every character: values and questions may be in any language."""
    stdout = behind(sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8")
