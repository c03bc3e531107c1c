"""Directories and files that nobody else may change: looked at, and mended, before anything in them is read or written.

    a directory   ours or root's, on a path without links of others. If others may write in it, that is taken from
                  them; in one like /tmp, or another's that all may write in, nothing can be kept.
    a file in it  a file, no link, with one name, of the same owners. If others may read or write it, likewise.

Who may write in a directory above may take the whole away, and put another in its place: that is said, since it may be
how a machine is kept. A group that may write in what is not ours was let in by its owner. Root may use what belongs to
the owner of the directory, as in a container that has a person's directory mounted, and changes no mode there. A link
that the user or root made is followed, on the way to a directory. Windows has no modes, and nothing is looked at; a
file system that keeps none is used, and the caller is told.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from stat import S_IMODE, S_ISLNK, S_ISREG, S_ISVTX

from dither_shared.errors import DitherError
from dither_shared.files import StrPath

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
