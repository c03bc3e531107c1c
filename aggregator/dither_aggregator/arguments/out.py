"""The argument that says where a command writes its lines."""

import argparse
import io
import sys
from pathlib import Path

from dither_shared.safe_output import behind


def add_out_argument(action: argparse.ArgumentParser, what: str) -> None:
    """Add --out."""
    action.add_argument("--out", type=Path, metavar="FILE", help=f"write the {what} to a file (default: stdout)")


def write(text: str, out: Path | None) -> None:
    """Write lines in UTF-8, as they are, to a file or to stdout."""
    if out is not None:
        out.write_text(text, encoding="utf-8", newline="")
        return
    stdout = behind(sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8", newline="")  # values may be in any language
    print(text, end="", file=sys.stdout if stdout.isatty() else stdout)
