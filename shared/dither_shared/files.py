"""Files: those that a person names, which may be anything, and our own, which nobody else may change."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from os import PathLike
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG, S_ISVTX

from dither_shared.errors import DitherError
from dither_shared.light_typing import Any

# Reading the files that a person names, which may be anything: a pipe, a device, a disk's image.

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


# Directories and files that nobody else may change: looked at, and mended, before anything in them is read or written.
#
#     a directory   ours or root's, on a path without links of others. If others may write in it, that is taken from
#                   them; in one like /tmp, or another's that all may write in, nothing can be kept.
#     a file in it  a file, no link, with one name, of the same owners. If others may read or write it, likewise.
#
# Who may write in a directory above may take the whole away, and put another in its place: that is said, since it may
# be how a machine is kept. A group that may write in what is not ours was let in by its owner. Root may use what
# belongs to the owner of the directory, as in a container that has a person's directory mounted, and changes no mode
# there. A link that the user or root made is followed, on the way to a directory. Windows has no modes, and nothing is
# looked at; a file system that keeps none is used, and the caller is told.

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
ROOT = 0
OTHERS_WRITE = 0o022
OTHERS_MAY = 0o077
ALL_WRITE = 0o002
GROUP_WRITE = 0o020
LINKS_MAX = 40
"""As many as Linux follows on one way."""


class NotOurs(DitherError):
    """Others may change what is to be kept, and that cannot be mended here; with the next step."""


def keep(directory: StrPath, names: Sequence[str], *, mend: bool = True) -> list[str]:
    """Make a directory for the user alone if there is none; look at it, and at the files of these names in it.

    Return a sentence for each mode that was mended or could not be. Without `mend` nothing is made or changed, and the
    sentences say what should be. Raises NotOurs.
    """
    directory = absolute(directory)
    if not hasattr(os, "geteuid"):
        _make(directory)
        return []
    user: int = os.geteuid()
    real = os.path.realpath(directory)
    if real != directory:
        _check_links(directory, user)
    if mend:
        _make(directory)
    owner = _look(real).st_uid
    warnings = [*_keep_directory(directory, real, user, mend)]
    for name in names:
        warnings += _keep_file(f"{directory}/{name}", owner, user, mend)
    return warnings


def absolute(path: StrPath) -> str:
    """Return an absolute path, in which ".." stays: what is before it may be a link."""
    return os.path.join(os.getcwd(), path) if not os.path.isabs(path) else os.fspath(path)


def is_there(path: str) -> bool:
    """Tell whether there is anything of that name. Raises OSError where that may not be known."""
    try:
        os.stat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP):
            raise
        return False
    return True


def make_file(path: StrPath) -> None:
    """Make an empty file for the user alone if there is none. Raises OSError for one that may not be written.

    One that may be is not opened: who closes a file lets go of SQLite's locks on it, those of other threads too.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_LINK, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            os.close(os.open(path, os.O_RDWR | NO_LINK))  # which says why


def check_named(path: StrPath) -> None:
    """Raise NotOurs for a file that a person named, and that all may write: anybody may have written what is in it."""
    mode = S_IMODE(os.stat(path).st_mode)
    if mode & ALL_WRITE and hasattr(os, "geteuid"):
        raise NotOurs(f"all may write {path} (mode {mode:o}): look at what is in it, then `chmod o-w` it")


def _make(directory: str) -> None:
    """Make a directory and those above it, all for the user alone."""
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError:
        above = os.path.dirname(directory)
        if os.path.exists(above):  # as in /proc, where nothing can be made
            raise
        _make(above)
        _make(directory)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise


def _check_links(directory: str, user: int) -> None:
    """Look at each link on the way to a directory, those that are reached through links, too."""
    at, parts = _parted(directory)
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":  # of a link's text: behind what it was resolved to
            at = os.path.dirname(at)
            continue
        path = os.path.join(at, part)
        try:
            found = _look(path)
        except FileNotFoundError:  # it will be made, and what follows may lead out of it again
            at = path
            continue
        if not S_ISLNK(found.st_mode):
            at = path
            continue
        links += 1
        if found.st_uid not in (user, ROOT):
            raise NotOurs(f"{path} is a link of user {found.st_uid}: name the directory itself")
        if links > LINKS_MAX:
            return  # `os.path.realpath` and the system refuse a circle
        root, to = _parted(os.readlink(path))
        at = root or at
        parts += to


def _parted(path: str) -> tuple[str, list[str]]:
    """Return the root of a path, "" of one without, and its parts, the last first."""
    drive, rest = os.path.splitdrive(path)
    root = drive + os.sep if rest.startswith(os.sep) else drive
    return root, [part for part in reversed(rest.split(os.sep)) if part not in ("", ".")]


def _keep_directory(directory: str, real: str, user: int, mend: bool) -> Iterator[str]:
    found = _look(real)
    mode, owner = S_IMODE(found.st_mode), found.st_uid
    if owner not in (user, ROOT) and user != ROOT:
        raise NotOurs(f"{directory} belongs to user {owner}: run this as that user, or name a directory of your own")
    if mode & ALL_WRITE and (owner != user or mode & S_ISVTX):
        raise NotOurs(f"all may write in {directory} (mode {mode:o}): name a directory within it, yet to be made")
    if mode & OTHERS_WRITE and owner == user:
        yield from _close(real, mode, mode & ~OTHERS_WRITE, mend)
    above = real
    while above != (above := os.path.dirname(above)):
        if others := _who_may_change(above, (user, ROOT, owner) if user == ROOT else (user, ROOT)):
            yield f"{others}, and so may take {directory} away"


def _who_may_change(above: str, trusted: Sequence[int]) -> str:
    """Return who else may take away what is in a directory, as words; "" where nobody may.

    Many systems give each user a group with the same number: it is no other's in what is the user's own.
    """
    found = _look(above)
    mode, shown = found.st_mode, f"{above} (mode {S_IMODE(found.st_mode):o})"
    if found.st_uid not in trusted:
        return f"{shown} belongs to user {found.st_uid}, who may write in it"
    if mode & S_ISVTX:
        return ""
    if mode & ALL_WRITE:
        return f"all may write in {shown}"
    if mode & GROUP_WRITE and found.st_gid != ROOT and not found.st_gid == found.st_uid == trusted[0]:
        return f"group {found.st_gid} may write in {shown}"
    return ""


def _keep_file(path: str, owner: int, user: int, mend: bool) -> Iterator[str]:
    try:
        found = _look(path)
    except FileNotFoundError:
        return
    mode = S_IMODE(found.st_mode)
    if S_ISLNK(found.st_mode):
        raise NotOurs(f"{path} is a link: name the directory of the file itself")
    if not S_ISREG(found.st_mode):
        raise NotOurs(f"{path} is no file: take it away")
    if found.st_nlink > 1:
        raise NotOurs(f"{path} has {found.st_nlink} names, as hard links: put a copy in its place")
    if found.st_uid not in (user, ROOT) and (user, found.st_uid) != (ROOT, owner):
        raise NotOurs(f"{path} belongs to user {found.st_uid}: give it to user {user}, or take it away")
    ours = found.st_uid == user and owner in (user, ROOT)
    if mode & ALL_WRITE and not ours:
        raise NotOurs(f"all may write {path} (mode {mode:o}) of user {found.st_uid}: `chmod 600` it, or delete it")
    if mode & OTHERS_MAY and ours:
        yield from _close(path, mode, 0o600, mend)


def _close(path: str, mode: int, closed: int, mend: bool) -> Iterator[str]:
    """Take from others what they may do, and say so; raise NotOurs if they may write and that cannot be changed."""
    open_ = f"{path} was open to others (mode {mode:o})"
    if not mend:
        yield f"{path} is open to others (mode {mode:o}): `chmod {closed:o}` it"
        return
    try:
        os.chmod(path, closed)
        kept = S_IMODE(os.stat(path).st_mode) == closed
    except FileNotFoundError:  # a log that SQLite has taken away meanwhile
        return
    except OSError as error:
        if mode & OTHERS_WRITE:
            raise NotOurs(
                f"others may write {path} (mode {mode:o}), and that cannot be changed ({error.strerror}): "
                "name another directory"
            ) from None
        yield f"{open_}, and that cannot be changed: {error.strerror}"
        return
    yield f"{open_}: it has mode {closed:o} now" if kept else f"{open_}, and stays so: its file system keeps no modes"


def _look(path: str) -> os.stat_result:
    return os.lstat(path)
