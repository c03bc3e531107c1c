"""Texts of strangers, made harmless where they leave: a log or terminal, a command's output, CSV, a file's name.

Anybody may upload, so a word that the totals name may be meant for whoever reads it: for their terminal, which runs
escapes, for the eye, which a direction turned round deceives, or for a spreadsheet, which runs formulas.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Sequence

from dither_shared.light_typing import TYPE_CHECKING, Any
from dither_shared.text_normalization import is_visible as is_visible
from dither_shared.text_normalization import visible as visible

if TYPE_CHECKING:
    from pathlib import Path

_SEPARATORS = frozenset(',;\t\r\n"')
_FORMULAS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
"""The last four are the wide forms of the first, which some spreadsheets take for them."""
_WORDS = {None: "", True: "true", False: "false"}
FILE_NAME_CHARACTERS_MAX = 150
_NO_FILE = r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)"
"""Windows opens a device of its own in place of such a file."""


# For logs and terminals.


class VisibleStream:
    """A stream on which nothing is unseen but the ends of lines and tabs. `behind` is the one that takes the rest."""

    def __init__(self, behind: Any) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """Write a text."""
        self.behind.write(visible(text, keep="\n\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def behind(stream: Any) -> Any:
    """Return the stream itself, for documents that go to a file as they are, and for what is redrawn."""
    return stream.behind if isinstance(stream, VisibleStream) else stream


# The output of commands: a file, or stdout. Both are UTF-8, whatever the locale says.


def write(text: str, out: Path | None) -> None:
    """Write a whole text to a file, or to stdout."""
    if out:
        out.write_text(text, encoding="utf-8", newline="\n")
    else:
        speak_utf8()
        stdout = behind(sys.stdout)
        print(text, end="", file=sys.stdout if stdout.isatty() else stdout)


def speak_utf8() -> None:
    """Let stdout take every character: values and questions may be in any language."""
    stdout = behind(sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8")


# For spreadsheets.


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV with a header (RFC 4180). None is an empty cell; numbers stay numbers."""
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in (columns, *rows))


def _cell(content: object) -> str:
    if isinstance(content, str):
        return csv_cell(content)
    return _WORDS[content] if content is None or isinstance(content, bool) else str(content)


def csv_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet runs, whether it takes commas, semicolons or tabs for separators.

    An apostrophe, which says "this is text", stands before each of = + - @ that begins the text, or that follows what
    may begin a cell somewhere: a separator, the end of a line, a quote, or something unseen that is left out.
    """
    if not _FORMULAS.isdisjoint(text):
        begins, marked = True, []
        for character in text:
            if begins and character in _FORMULAS:
                marked.append("'")
            marked.append(character)
            begins = character in _SEPARATORS or not is_visible(character)
        text = "".join(marked)
    if text.startswith(("\t", "\r")):
        text = f"'{text}"
    return text if _SEPARATORS.isdisjoint(text) else '"' + text.replace('"', '""') + '"'


# For files.


def file_name(text: str, ending: str) -> str:
    """Return a name that every system takes as one file in the directory that it is put into."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:FILE_NAME_CHARACTERS_MAX].lstrip(".-") or "_"
    return f"{'_' if re.match(_NO_FILE, name, re.IGNORECASE) else ''}{name}.{ending}"
