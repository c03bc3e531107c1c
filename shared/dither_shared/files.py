"""Reading the files that a person names, which may be anything: a pipe, a device, a disk's image."""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from os import PathLike
from stat import S_ISDIR, S_ISREG

from dither_shared.light_typing import Any

StrPath = str | PathLike[str]
"""A path. A start does without `pathlib`, which takes as long as SQLite and JSON together."""

BYTE_ORDER_MARK = "\ufeff"
"""Some editors put it before a text in UTF-8, of which it is no part."""


def read_text(path: StrPath, bytes_max: int) -> str:
    """Return the text of a regular file in UTF-8, its lines ended by newlines.

    Raises OSError if it cannot be read, UnicodeDecodeError if it is not UTF-8, and ValueError if it is no regular file
    or has more than `bytes_max` bytes.
    """
    mode = os.stat(path).st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):  # a pipe may never be written to; of a directory `open` says what it is
        raise ValueError("it is no regular file")
    with open(path, "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"it has more than {bytes_max:,} bytes")
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


KEY_PARTS_MAX = 8
NESTING_MAX = 8
KEYS_MAX = 100_000
"""Parts of keys, lists and tables of a TOML file together: a registry has at most a thousand metrics of some thirty."""
ITEMS_MAX = 500_000
WORD_CHARACTERS_MAX = 1_000
_SHORT = 64 * 1024
"""Characters of a text that may have as many keys, lists and items as fit."""

_STRINGS = (
    r'''"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?'''
    "|"
    r"'''(?:[^']++|'(?!''))*+(?:'{3,5})?"
    "|"
    r""""(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+"""
)
"""Strings and comments of TOML. A string that nothing ends goes on to the end."""
_DOT = r"[ \t]*\.[ \t]*"
_WITHIN = rf"(?:{_DOT}|[ \t]*=[ \t]*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*?(?<![\w.-]))"
"""Between the name of a table and that of a key in it."""


def parse_toml(text: str, parse_float: Callable[[str], Any] = Decimal) -> dict[str, Any]:
    """Return the document of a TOML text; raise ValueError.

    The parser takes memory and time by the square of a key's parts, so these are counted before it begins.
    """
    import tomllib  # not for a registry that is compiled

    if len(text) > _SHORT or any(line.count(".") >= KEY_PARTS_MAX for line in text.split("\n")):
        _check_toml(text)
    try:
        return tomllib.loads(text.removeprefix(BYTE_ORDER_MARK), parse_float=parse_float)
    except RecursionError:
        raise ValueError(f"lists and tables must be nested at most {NESTING_MAX} deep") from None
    except tomllib.TOMLDecodeError:
        raise
    except (ValueError, ArithmeticError):  # of `int` and `parse_float`, in words of Python's own
        raise ValueError("a number is too long, or its exponent is") from None


def _check_toml(text: str) -> None:
    """Refuse too much of anything outside of strings and comments."""
    import re  # only for a long text, or one with long lines

    bare = re.sub(_STRINGS, "", text, flags=re.DOTALL)
    if re.search(rf"(?:\.[^=\n,{{}}\[\].]*+){{{KEY_PARTS_MAX}}}", bare):
        raise ValueError(f"a key must have at most {KEY_PARTS_MAX} parts")
    if re.search(rf"(?<![\w.+:-])[\w.+:-]{{{WORD_CHARACTERS_MAX + 1}}}", bare):  # from where a word begins alone
        raise ValueError(f"a number, and a key without quotes, must have at most {WORD_CHARACTERS_MAX:,} characters")
    parts = len(re.findall(r"\.(?=[^=\n,{}\[\].]*+\.)", bare))  # but for one dot of each, which a number may have, too
    if sum(map(bare.count, "=[{")) + parts > KEYS_MAX:
        raise ValueError(f"there must be at most {KEYS_MAX:,} parts of keys, lists and tables")
    if bare.count(",") > ITEMS_MAX:
        raise ValueError(f"all lists together must have at most {ITEMS_MAX:,} items")
    brackets = re.sub(r"[^\[\]{}]++", "", bare)
    for _ in range(NESTING_MAX):
        brackets = brackets.replace("[]", "").replace("{}", "")
    if "[]" in brackets or "{}" in brackets:
        raise ValueError(f"lists and tables must be nested at most {NESTING_MAX} deep")


def line_of_item(text: str, where: str, key: str, number: int) -> int:
    """Return the line of a string in a list of strings, which a key of the table `where` has; 0 if it is not found.

    For a mistake: the parser keeps no lines. The key may be written in any way, below any head, but for a head that
    ends with a name in quotes.
    """
    import re

    def blank(found: re.Match[str]) -> str:
        name = re.fullmatch(r"""(["'])([\w-]+)\1""", found[0])
        if name and re.compile(r"[ \t]*[.=]").match(text, found.end()):
            return f" {name[2]} "  # a key, whose quotes mean nothing
        return re.sub(r"[^\n]", " ", found[0])

    bare = re.sub(_STRINGS, blank, text, flags=re.DOTALL)
    path = [re.escape(name) for name in [*where.split("."), key]]
    for cut in reversed(range(len(path))):
        head = re.search(rf"^[ \t]*\[[ \t]*{_DOT.join(path[:cut])}[ \t]*\]", bare, re.MULTILINE) if cut else None
        if cut and not head:
            continue
        place = head.end() if head else 0
        below = re.compile(r"^[ \t]*\[", re.MULTILINE).search(bare, place)
        keyed = re.compile(rf"^[ \t]*{_WITHIN.join(path[cut:])}[ \t]*=", re.MULTILINE)
        found = keyed.search(bare, place, below.start() if below else len(bare))
        if found:
            break
    else:
        return 0
    items = re.compile(_STRINGS, re.DOTALL).finditer(text, found.end(), bare.find("]", found.end()))
    strings = (item for item in items if item[0][0] != "#")
    item = next(islice(strings, number, None), None)
    return text.count("\n", 0, item.start()) + 1 if item else 0
